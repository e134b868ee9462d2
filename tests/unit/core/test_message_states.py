"""The state of a message: every transition happens, none that is not in the table does, and the page shows them all."""

import pytest
from tools.message_states_page import PAGE, page

from legato.core import commit, dispatch, lanes, reservations, router, settlement
from legato.core.message import Message
from legato.core.message_states import (
    ARRIVING,
    AVAILABLE,
    CLAIM,
    DELIVERED,
    ENLIST,
    KEEP,
    LEAVE,
    LEAVING,
    PUT_BACK,
    RETURN,
    STATES,
    TRANSITIONS,
    Transition,
    enter,
)
from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the transitions that are taken through `enter`."""
    names: set[str] = set()

    def note(message: Message, transition: Transition) -> None:
        enter(message, transition)
        names.add(transition.name)

    for module in (commit, dispatch, lanes, reservations, router, settlement):
        monkeypatch.setattr(module, "enter", note)
    return names


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text() == page(), "make message-states"


def test_states_are_bits_and_every_state_can_be_reached_and_left() -> None:
    assert all(bit & (bit - 1) == 0 for bit in STATES)
    assert {transition.target for transition in TRANSITIONS} == STATES.keys() - {ARRIVING}
    for bit in STATES:
        assert any(bit & transition.sources for transition in TRANSITIONS)


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda transition: transition.name)
def test_a_transition_is_refused_from_every_other_state(transition: Transition) -> None:
    scenario = Scenario()
    message = Message(scenario.broker.directory.queue("q"), 1, b"tea", 3)
    for bit, (name, _) in STATES.items():
        message.state = bit
        if bit & transition.sources:
            enter(message, transition)
            assert message.state == transition.target
        else:
            with pytest.raises(AssertionError, match=f"{transition.name}: .*{name}"):
                enter(message, transition)


def test_a_message_is_arriving_until_it_is_durable_then_available_delivered_and_leaving() -> None:
    scenario = Scenario()
    queue = scenario.broker.directory.queue("q")
    consumer = scenario.consumer(queue, credit=0)
    scenario.broker.publisher.publish(queue, b"tea", "ID:1", "token")
    message = scenario.broker.kernel.gathering.stored[0]
    assert isinstance(message, Message)
    assert message.state == ARRIVING
    scenario.run()
    assert message.state == AVAILABLE
    scenario.broker.receivers.flow(consumer, 1, False, scenario.now_us)
    scenario.run()
    assert message.state == DELIVERED
    scenario.accept(consumer, message)
    assert message.state == LEAVING


def test_nobody_is_given_what_is_not_durable() -> None:
    scenario = Scenario()
    queue = scenario.broker.directory.queue("q")
    consumer = scenario.consumer(queue, credit=1)
    message = Message(queue, 1, b"tea", 3)
    queue.main.mark = 1
    with pytest.raises(AssertionError, match=r"give: .*arriving"):
        dispatch.give(consumer, message, scenario.store, 1, {})


def test_nobody_is_given_what_is_above_the_dispatch_mark() -> None:
    scenario = Scenario()
    queue = scenario.broker.directory.queue("q")
    consumer = scenario.consumer(queue, credit=1)
    message = Message(queue, 1, b"tea", 3, state=AVAILABLE)
    with pytest.raises(AssertionError, match="above its dispatch mark"):
        dispatch.give(consumer, message, scenario.store, 1, {})


def test_nobody_consumes_what_was_consumed() -> None:
    scenario = Scenario()
    queue = scenario.broker.directory.queue("q")
    consumer = scenario.consumer(queue, credit=1)
    scenario.publish(queue, b"tea")
    (message,) = scenario.inbox[consumer]
    scenario.accept(consumer, message)
    message.consumer = consumer
    with pytest.raises(AssertionError, match=r"consume: .*leaving"):
        scenario.broker.settlement.acknowledge(consumer, message, confirm=False)


def test_what_fails_is_released_enlisted_or_claimed_takes_these_transitions(entered: set[str]) -> None:
    scenario = Scenario()
    scenario.settings["dead"] = AddressSettings(maximum_deliveries=1)
    queue, dead = scenario.broker.directory.queue("q"), scenario.broker.directory.queue("dead")
    consumer = scenario.consumer(queue, credit=10, exact=True)
    scenario.publish(queue, b"a", b"b", b"c", b"d")
    a, b, c, d = scenario.inbox[consumer]
    scenario.broker.settlement.release(consumer, a)
    scenario.broker.settlement.modify(consumer, b, failed=True, undeliverable_here=False)
    txn = scenario.broker.transactions.declare("owner")
    transaction = scenario.broker.transactions.find(txn, "owner")
    assert transaction is not None
    scenario.broker.transactions.acknowledge(transaction, consumer, c)
    scenario.broker.transactions.roll_back(transaction, "client")
    scenario.broker.presentations.present(consumer, d)
    scenario.lose(consumer)
    doomed = scenario.consumer(dead, credit=1)
    scenario.publish(dead, b"x")
    scenario.broker.settlement.modify(doomed, scenario.inbox[doomed][0], failed=True, undeliverable_here=False)
    scenario.run()
    scenario.consumer(queue, credit=1, name="other", held=[a.seq])
    assert {PUT_BACK.name, RETURN.name, ENLIST.name, KEEP.name, LEAVE.name, CLAIM.name} <= entered
