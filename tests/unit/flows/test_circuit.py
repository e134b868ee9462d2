"""When a stage pauses and when it tries again (CONTRACT D16)."""

from legato.flows.model.circuit import Circuit, State


def opened(failures_max: int = 3) -> Circuit:
    circuit = Circuit(failures_max, pause_first_s=1.0, pause_max_s=3.0)
    for number in range(failures_max):
        circuit.failed(f"m{number}", 10.0)
    assert circuit.state is State.OPEN
    return circuit


def test_failures_of_several_messages_in_a_row_open_it_and_the_last_one_is_not_counted() -> None:
    """CONTRACT D16."""
    circuit = Circuit(3)
    assert [circuit.failed(message, 10.0) for message in ("a", "b", "c")] == [True, True, False]
    assert circuit.state is State.OPEN


def test_one_message_alone_does_not_open_it() -> None:
    circuit = Circuit(3)
    assert all(circuit.failed("poison", 10.0) for _ in range(10))
    assert circuit.state is State.CLOSED


def test_the_first_failure_that_no_message_is_to_blame_for_opens_it_and_is_not_counted() -> None:
    """CONTRACT D16: also where others succeed in between."""
    circuit = Circuit(5)
    for number in range(1, 10):
        assert not circuit.failed("m", 10.0, environmental=True)
        assert (circuit.state, circuit.opened) == (State.OPEN, number)
        circuit.wait_s("one", circuit.until_s)
        assert circuit.succeeded()


def test_a_success_in_between_begins_the_row_anew() -> None:
    circuit = Circuit(3)
    for message in "abcdef":
        circuit.failed(message, 10.0)
        circuit.succeeded()
    assert circuit.state is State.CLOSED


def test_after_the_pause_one_worker_tries_and_the_others_wait() -> None:
    circuit = opened()
    assert circuit.wait_s("one", 10.5) == 0.5
    assert circuit.wait_s("one", 11.0) == 0.0
    assert circuit.state is State.HALF_OPEN
    assert circuit.wait_s("two", 11.0) > 0
    assert circuit.wait_s("one", 11.0) == 0.0
    assert (circuit.may_take("one"), circuit.may_take("two")) == (True, False)


def test_the_pause_doubles_up_to_its_bound_and_is_short_again_after_a_success() -> None:
    circuit = opened()
    pauses = []
    for _ in range(4):
        now_s = circuit.until_s
        circuit.wait_s("one", now_s)
        circuit.failed("m", now_s)
        pauses.append(circuit.until_s - now_s)
    assert pauses == [2.0, 3.0, 3.0, 3.0]
    assert circuit.succeeded()
    for number in range(3):
        circuit.failed(f"m{number}", 50.0)
    assert circuit.until_s == 51.0


def test_what_fails_as_a_trial_is_counted_only_when_it_comes_round_again_and_somebody_is_to_blame() -> None:
    circuit = opened()
    assert not circuit.failed("x", 10.0)
    assert circuit.failed("x", 10.0)
    assert not circuit.failed("x", 10.0, environmental=True)
    assert not circuit.failed("x", 10.0, environmental=True)


def test_it_never_opens_if_it_is_not_wanted() -> None:
    circuit = Circuit(0)
    for number in range(100):
        assert circuit.failed(str(number), 10.0, environmental=True)
    assert circuit.state is State.CLOSED
