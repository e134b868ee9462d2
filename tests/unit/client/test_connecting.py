"""Which broker comes next: after which loss, of whom brokers told, and when it is of no use to go on."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from legato.amqp.codec.types import Symbol, UInt
from legato.amqp.engine.events import Closed
from legato.amqp.engine.settings import Settings
from legato.client.failover.connection_attempts import ConnectionAttempts
from legato.client.failover.disconnect_reason import Detection, Loss, loss_of
from legato.client.failover.peer_problems import WrongProtocolError
from legato.client.failover.schedule import SILENT_HOST_TIMEOUT_S
from legato.client.failover.uri import Host, parse_uri
from legato.client.failover.wire import NoSecretError, RedirectedError, refusal
from legato.errors import InvalidClientIDError, JMSError, JMSSecurityError

A, B, C, D = (Host(name, 5672) for name in "abcd")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
GONE = ConnectionRefusedError(111, "Connection refused")


def connecting(query: str = "", hosts: str = "a,b", connected: bool = True) -> ConnectionAttempts:
    made = ConnectionAttempts(parse_uri(f"amqp://{hosts}?{query}"), Settings(container_id="test"))
    if connected:
        let_in(made)
    return made


def let_in(made: ConnectionAttempts, **properties: Any) -> None:
    wire: Any = SimpleNamespace(properties={name.replace("_", "-"): value for name, value in properties.items()})
    made.connected(wire, after_loss=made.connected_once)


def lost(host: Host, detection: Detection = Detection.LOST, window_s: float = 0.0) -> Loss:
    return Loss(host, detection, JMSError("gone"), window_s)


def tried(made: ConnectionAttempts, count: int) -> list[Host]:
    found = []
    for _ in range(count):
        found.append(made.next(0.0).host)
        made.failed(found[-1], GONE)
    return found


def entry(name: object, port: object = 5672, scheme: str = "amqp") -> dict[object, object]:
    return {Symbol("network-host"): name, Symbol("port"): port, Symbol("scheme"): scheme}


@pytest.mark.parametrize(
    ("detection", "order"),
    [
        (Detection.LOST, [B, C, A, B]),
        (Detection.SILENT, [B, C, A, B]),
        (Detection.SHUTDOWN, [C, A, B, C]),
        (Detection.SWITCHOVER, [C, A, B, C]),
    ],
)
def test_who_may_still_be_there_is_tried_first_and_who_said_farewell_last(
    detection: Detection, order: list[Host]
) -> None:
    """CONTRACT B22, E1: in order, wrapping; at once, for the next one when one is refused."""
    made = connecting(hosts="a,b,c")
    assert made.begin_again(lost(B, detection))
    assert made.next(0.5).wait_s == 0.0
    made.begin_again(lost(B, detection))
    assert tried(made, 4) == order


def test_a_host_that_fell_silent_does_not_keep_the_others_waiting() -> None:
    """CONTRACT E4."""
    made = connecting()
    made.begin_again(lost(A, Detection.SILENT))
    assert [made.next(0.0).timeout_s_max for _ in range(3)] == [SILENT_HOST_TIMEOUT_S, float("inf"), float("inf")]


def test_the_first_try_is_drawn_from_the_window_that_the_broker_asked_for() -> None:
    """CONTRACT B23."""
    made = connecting()
    for chance in (0.0, 0.25, 1.0):
        made.begin_again(lost(A, window_s=8.0))
        assert made.next(chance).wait_s == 8.0 * chance
        assert made.next(chance).wait_s == 0.0


def test_a_broker_that_lets_in_and_drops_is_tried_with_growing_pauses() -> None:
    """It was tried again at once, for ever: sixty times a second where something of the connection could not return."""
    made = connecting("reconnect_attempts=5", hosts="a")
    made.begin_again(lost(A))
    pauses = []
    for _ in range(5):
        pauses.append(made.next(0.0).wait_s)
        let_in(made)
        made.begin_again(lost(A))
    with pytest.raises(JMSError, match="gone"):
        made.next(0.0)
    assert pauses[0] == 0.0 < pauses[1] < pauses[2] < pauses[3] < pauses[4]


def test_who_was_restored_comes_back_at_once_the_next_time() -> None:
    made = connecting(hosts="a")
    for _ in range(3):
        made.begin_again(lost(A))
        assert made.next(0.0).wait_s == 0.0
        let_in(made)
        made.take_attempts()


def test_without_attempts_there_is_no_failover() -> None:
    """CONTRACT E6."""
    assert not connecting("reconnect_attempts=0").begin_again(lost(A))
    made = connecting("reconnect_attempts=2")
    assert made.begin_again(lost(A))
    assert tried(made, 4) == [A, B, A, B]
    with pytest.raises(JMSError, match=r"a:5672: Connection refused; b:5672: ") as caught:
        made.next(0.0)
    assert caught.value.code == "UNBLOCKED"


@pytest.mark.parametrize(
    ("query", "follows"),
    [
        ("", True),
        ("failover_on_server_shutdown=false", False),
        ("failover_contract=ems", True),
        ("failover_contract=gigaspaces", True),
        ("failover_contract=hornetq", False),
        ("failover_contract=hornetq&failover_on_server_shutdown=true", True),
    ],
)
def test_a_shutdown_counts_as_a_loss_where_that_is_wanted(query: str, follows: bool) -> None:
    """CONTRACT E7: a crash always does."""
    made = connecting(query)
    assert made.begin_again(lost(A, Detection.SHUTDOWN)) is follows
    for detection in (Detection.LOST, Detection.SILENT, Detection.SWITCHOVER):
        assert made.begin_again(lost(A, detection))


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("", [A, B, A, B]),
        ("failover_on_initial_connection=false", [A, A, A, A]),
        ("failover_contract=hornetq", [A, A, A, A]),
        ("failover_contract=hornetq&failover_on_initial_connection=true", [A, B, A, B]),
    ],
)
def test_the_first_connection_tries_the_first_host_or_all(query: str, order: list[Host]) -> None:
    """CONTRACT E8, E9."""
    made = connecting(query, connected=False)
    assert tried(made, 4) == order
    let_in(made)
    made.begin_again(lost(A))
    assert tried(made, 3) == [A, B, A]


def test_the_first_connection_fails_after_its_attempts() -> None:
    """CONTRACT E8."""
    made = connecting("failover_on_initial_connection=false&connect_attempts=3", connected=False)
    assert tried(made, 3) == [A, A, A]
    with pytest.raises(JMSError, match="a:5672") as caught:
        made.next(0.0)
    assert caught.value.code is None


def test_the_first_connection_is_tried_for_a_minute_and_the_error_says_so() -> None:
    """A service may start before its broker; CONTRACT E8."""
    made = connecting(connected=False)
    for waited_s in (0.0, 1.5, 30.0, 59.9):
        assert made.next(0.0, waited_s).host == A
        made.failed(A, GONE)
        assert made.next(0.0, waited_s + 4).host == B, "a round that has begun is ended"
        made.failed(B, GONE)
    with pytest.raises(JMSError, match=r"in 60 s \(a:5672: Connection refused; b:5672: ") as caught:
        made.next(0.0, 60.0)
    assert caught.value.code is None
    let_in(made)
    made.begin_again(lost(A))
    assert made.next(0.0, 3600.0).host == A


def test_at_least_one_round_is_tried() -> None:
    made = connecting("connect_wait_s=0", connected=False)
    assert [made.next(0.0, 5.0).host, made.next(0.0, 9.0).host] == [A, B]
    with pytest.raises(JMSError):
        made.next(0.0, 9.0)


def test_rounds_that_are_given_are_tried_however_long_that_takes() -> None:
    made = connecting("connect_attempts=2", connected=False)
    assert [made.next(0.0, 100.0).host for _ in range(4)] == [A, B, A, B]
    for_ever = connecting("connect_attempts=-1", connected=False)
    assert for_ever.next(0.0, 1e9)


@pytest.mark.parametrize("hopeless", [UNKNOWN, WrongProtocolError("it speaks no TLS")], ids=["unknown", "no TLS"])
def test_what_waiting_does_not_help_fails_at_once(hopeless: Exception) -> None:
    made = connecting(connected=False)
    made.failed(A, hopeless)
    with pytest.raises(JMSError, match=r"a:5672: .*b:5672: .*Correct the connection URI"):
        made.failed(B, hopeless)
    one_of_two = connecting(connected=False)
    one_of_two.failed(A, hopeless)
    one_of_two.failed(B, GONE)
    one_of_two.failed(A, hopeless)
    busy = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    one_of_two.failed(A, busy)


def test_an_unknown_host_is_waited_for_after_a_loss_and_where_rounds_are_given() -> None:
    """A container's name may come after it."""
    for made in (connecting(), connecting("connect_attempts=3", connected=False)):
        made.failed(A, UNKNOWN)
        made.failed(B, UNKNOWN)


def test_hosts_that_a_broker_tells_of_come_after_those_of_the_uri_and_are_remembered() -> None:
    """CONTRACT E5."""
    made = connecting(hosts="b", connected=False)
    let_in(made, failover_server_list=[entry("c"), entry("b"), entry("d", UInt(5672))])
    assert list(made.hosts) == [B, C, D]
    made.begin_again(lost(B))
    assert tried(made, 2) == [B, C]
    let_in(made)
    made.begin_again(lost(C))
    assert tried(made, 3) == [C, D, B]
    let_in(made, failover_server_list=[entry("a")])
    assert list(made.hosts) == [B, A]


def test_who_does_not_want_to_discover_stays_with_the_uri() -> None:
    """CONTRACT E5: a static list always works."""
    made = connecting("discover=false", hosts="b", connected=False)
    let_in(made, failover_server_list=[entry("c")])
    assert list(made.hosts) == [B]


@pytest.mark.parametrize(
    "offered",
    [
        "c",
        ["c", 7, None],
        [entry("")],
        [entry(7)],
        [entry("c", "5672")],
        [entry("c", 0)],
        [entry("c", 70_000)],
        [entry("c", scheme="amqps")],
    ],
)
def test_a_list_that_makes_no_sense_is_passed_over(offered: object) -> None:
    made = connecting(hosts="a,b", connected=False)
    let_in(made, failover_server_list=offered)
    assert list(made.hosts) == [A, B]


def test_a_redirect_is_followed_at_once_and_not_in_circles() -> None:
    made = connecting(connected=False)
    assert made.next(0.0).host == A
    made.failed(A, refusal(A, Closed("amqp:connection:redirect", "", False, {"network-host": "d", "port": 5672})))
    assert made.next(0.0).host == D
    made.failed(D, refusal(D, Closed("amqp:connection:redirect", "", False, {"network-host": "a", "port": 5672})))
    assert made.next(0.0).host == B
    nowhere = refusal(B, Closed("amqp:connection:redirect", "", False, {}))
    assert isinstance(nowhere, RedirectedError)
    made.failed(B, nowhere)
    assert made.next(0.0).host == A


def test_where_a_redirect_led_is_tried_first_after_a_loss() -> None:
    """CONTRACT E1."""
    made = connecting()
    made.begin_again(lost(D))
    assert tried(made, 4) == [D, A, B, D]


def test_it_is_of_no_use_to_go_on_with_a_wrong_password_or_a_client_id_in_use() -> None:
    made = connecting(connected=False)
    with pytest.raises(JMSSecurityError):
        made.failed(A, JMSSecurityError("no"))
    with pytest.raises(InvalidClientIDError):
        made.failed(A, InvalidClientIDError("taken"))
    # After a loss it is our own old connection that has the id.
    let_in(made)
    made.failed(A, InvalidClientIDError("taken"))


def test_attempts_are_counted_from_loss_to_return() -> None:
    made = connecting(connected=False)
    tried(made, 3)
    let_in(made)
    made.begin_again(lost(A))
    tried(made, 5)
    # Lost again before everything was back.
    made.begin_again(lost(B))
    tried(made, 2)
    assert made.take_attempts() == 7
    assert made.take_attempts() == 0


@pytest.mark.parametrize(
    ("info", "detection", "window_s"),
    [
        ({}, Detection.LOST, 2.0),
        ({"legato:farewell": "shutdown"}, Detection.SHUTDOWN, 2.0),
        ({"legato:farewell": "switchover", "legato:return-window-ms": UInt(500)}, Detection.SWITCHOVER, 0.5),
        ({"legato:farewell": "good night", "legato:return-window-ms": "long"}, Detection.LOST, 2.0),
        ({"legato:farewell": "silent", "legato:return-window-ms": 10**9}, Detection.LOST, 2.0),
    ],
)
def test_a_farewell_says_how_the_connection_was_lost(
    info: dict[str, Any], detection: Detection, window_s: float
) -> None:
    """CONTRACT E7, B23."""
    closed = Closed("amqp:connection:forced", "it is late", False, info)
    loss = loss_of(A, closed, silent=False, return_window_s=2.0)
    assert (loss.detection, loss.return_window_s) == (detection, window_s)
    assert "it is late" in str(loss.cause)
    assert loss_of(A, closed, silent=True, return_window_s=2.0).detection is Detection.SILENT


def test_a_token_that_cannot_be_had_is_a_try_in_vain_once_a_broker_has_let_us_in() -> None:
    """Only what a broker refuses is final then: its provider may be away for a moment."""
    away = NoSecretError("There is no token to log in with: the provider is away.")
    with pytest.raises(JMSSecurityError, match="away"):
        connecting(connected=False).failed(A, away)
    made = connecting()
    made.begin_again(lost(A))
    for _ in range(3):
        made.failed(made.next(0.0).host, away)
    assert "the provider is away" in made.problems
    with pytest.raises(JMSSecurityError, match="refused"):
        made.failed(A, JMSSecurityError("refused"))


def test_a_group_that_another_broker_named_is_told_of() -> None:
    """Its hosts are in no URI that anybody could check."""
    made = connecting("connect_attempts=1", "a", connected=False)
    made.sent_to = "rest"
    tried(made, 1)
    with pytest.raises(JMSError, match=r"^No broker of the group 'rest' can be reached \(a:5672: Connection refused\)"):
        made.next(0.0)
    unknown = connecting("", "a", connected=False)
    unknown.sent_to = "rest"
    unknown.next(0.0)
    with pytest.raises(JMSError, match=r"Correct the hosts of rest in the map of groups\.$"):
        unknown.failed(A, UNKNOWN)
