"""How a client notices that its broker is lost, and where it goes: options, detection, discovery, re-attachment."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.amqp.engine.connection import Connection as Engine
from legato.amqp.engine.sasl import SaslServer
from legato.amqp.engine.settings import Settings
from legato.cli.management import request
from legato.client import AcknowledgeMode, Connection, ConnectionFactory, FailoverEvent, JMSError, TextMessage, aio
from legato.client.failover.uri import Host
from tests.integration.client.calling import until
from tests.integration.client.helpers import WAIT_S, drain, receive, send, texts
from tests.integration.ha.relay import Relay
from tests.support.broker import BrokerPair
from tests.support.server import Server, free_port, server

Connect = Callable[..., Connection]
Factory = Callable[..., ConnectionFactory]

QUICK_S = 0.6


@pytest.fixture
def open_connection(factory: Factory) -> Iterator[Connect]:
    """Makes started connections to a URI."""
    made: list[Connection] = []

    def make(url: str, **options: Any) -> Connection:
        connection = factory(url, **options).create_connection()
        made.append(connection)
        connection.start()
        return connection

    yield make
    for connection in made:
        connection.close()


class Told:
    """What the listeners of a connection were told."""

    def __init__(self, connection: Connection) -> None:
        self.errors: list[JMSError] = []
        self.failed_over, self._error = threading.Event(), threading.Event()
        connection.failover_listener = lambda event: self.failed_over.set()
        connection.exception_listener = self._on_error

    def _on_error(self, error: JMSError) -> None:
        self.errors.append(error)
        self._error.set()

    def wait_for_failover(self) -> None:
        assert self.failed_over.wait(WAIT_S)
        self.failed_over.clear()

    def wait_for_error(self) -> JMSError:
        assert self._error.wait(WAIT_S)
        return self.errors[-1]


# -- the network fails, the broker lives -------------------------------------------------------------------------


def test_after_a_network_fault_nothing_is_missing_and_nobody_is_told_but_who_asked(
    calm_pair: BrokerPair, open_connection: Connect, queue_name: str
) -> None:
    """CONTRACT E1: the same server, the same sessions and consumers, unacknowledged messages still theirs."""
    with Relay(calm_pair.primary.port) as relay:
        connection = open_connection(f"amqp://127.0.0.1:{relay.port}")
        told = Told(connection)
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        queue = session.create_queue(queue_name)
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        for text in "123":
            producer.send(TextMessage(text))
        messages = receive(consumer, 2)
        relay.cut()
        told.wait_for_failover()
        producer.send(TextMessage("4"))
        messages += receive(consumer, 2)
        assert texts(messages) == list("1234")
        messages[-1].acknowledge()
        (event,) = connection.failovers
        assert (event.detection, event.same_server, event.old_epoch) == ("lost", True, event.new_epoch)
        assert (event.old_host, event.kept_deliveries, event.aborted_transactions) == (event.new_host, 2, ())
        assert event.attempts >= 1
        assert told.errors == []
        connection.close()
        assert drain(open_connection(calm_pair.url), queue_name) == []


def test_a_server_that_is_silent_for_the_check_period_counts_as_lost(
    calm_pair: BrokerPair, open_connection: Connect, queue_name: str
) -> None:
    """CONTRACT E4, E1: no byte for so long; it is found again when it can be."""
    with Relay(calm_pair.primary.port) as relay:
        connection = open_connection(
            f"amqp://127.0.0.1:{relay.port}", client_failure_check_period_s=QUICK_S, connect_timeout_s=1
        )
        told = Told(connection)
        send(connection, queue_name, "1")
        relay.freeze()
        noticed = threading.Event()
        watch_attempts(connection, 1, noticed)
        assert noticed.wait(WAIT_S)
        relay.thaw()
        # On a busy machine the server is silent for so long now and then.
        until(lambda: any(event.attempts > 1 for event in connection.failovers))
        assert {(event.detection, event.same_server) for event in connection.failovers} == {("silent", True)}
        assert drain(connection, queue_name) == ["1"]
        assert told.errors == []


def watch_attempts(connection: Connection, count: int, reached: threading.Event) -> None:
    """Set an event when the client has failed to connect so often."""
    connecting = connection._transport.connecting
    failed = connecting.failed
    failures: list[Host] = []

    def note(host: Host, error: Exception) -> None:
        failures.append(host)
        if len(failures) >= count:
            reached.set()
        failed(host, error)

    connecting.failed = note  # type: ignore[method-assign]


def test_a_server_with_nothing_to_say_is_not_taken_for_lost(calm_pair: BrokerPair, open_connection: Connect) -> None:
    """CONTRACT E4: heartbeats come often enough for a short period."""
    connection = open_connection(calm_pair.url, client_failure_check_period_s=3)
    patient = open_connection(calm_pair.url, client_failure_check_period_s=4)
    watched = Told(connection)
    assert not watched.failed_over.wait(5)
    assert connection.failovers == patient.failovers == []


def test_a_stopped_primary_is_left_for_the_backup_that_replaces_it(pair: BrokerPair, open_connection: Connect) -> None:
    """CONTRACT E4, B1: SIGSTOP is noticed by silence; nothing answers until the primary is killed."""
    connection = open_connection(pair.url, client_failure_check_period_s=QUICK_S)
    send(connection, "q", "1")
    noticed = threading.Event()
    watch_attempts(connection, 2, noticed)
    pair.kill_primary(signal.SIGSTOP)
    assert noticed.wait(WAIT_S)
    pair.kill_primary()
    until(lambda: connection.failovers and not connection.failovers[-1].same_server)
    event = connection.failovers[-1]
    assert (event.detection, event.same_server, event.new_epoch) == ("silent", False, event.old_epoch + 1)
    assert drain(connection, "q") == ["1"]
    pair.swap()


# -- what a failover event tells ---------------------------------------------------------------------------------


def test_a_failover_event_tells_what_happened(pair: BrokerPair, open_connection: Connect) -> None:
    """CONTRACT B5, E3: the old and the new broker, how it was noticed, what became of sessions and messages."""
    connection = open_connection(pair.url)
    told = Told(connection)
    send(connection, "q", *"12345")
    keeping = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    receive(keeping.create_consumer(keeping.create_queue("q"), prefetch=1), 2)
    transacted = connection.create_session(transacted=True)
    transacted.create_producer(transacted.create_queue("other")).send(TextMessage("lost with its transaction"))
    old, new = pair.primary.port, pair.backup.port
    pair.kill_primary()
    told.wait_for_failover()
    (event,) = connection.failovers
    assert (event.old_host, event.new_host) == (f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    assert (event.detection, event.same_server, event.old_epoch, event.new_epoch) == ("lost", False, 1, 2)
    assert (event.kept_deliveries, event.aborted_transactions) == (2, (transacted._channel.name,))
    assert event.attempts >= 2
    assert event.gap_ms > 0
    pair.swap()
    pair.fail_over(signal.SIGTERM)
    told.wait_for_failover()
    request(pair.url, "switchover", "broker")
    pair.backup.wait_for("active")
    told.wait_for_failover()
    assert [event.detection for event in connection.failovers] == ["lost", "shutdown", "switchover"]
    assert told.errors == []


# -- whether there is a failover ---------------------------------------------------------------------------------


def test_a_clean_shutdown_ends_the_connection_where_it_is_not_to_fail_over(
    pair: BrokerPair, open_connection: Connect
) -> None:
    """CONTRACT E7: a crash and a switchover always lead to a failover, a shutdown only if that is wanted."""
    connection = open_connection(pair.url, failover_on_server_shutdown=False)
    failed_over = threading.Event()
    connection.failover_listener = lambda event: failed_over.set()
    pair.fail_over()
    assert failed_over.wait(WAIT_S)
    failed_over.clear()
    request(pair.url, "switchover", "broker")
    pair.backup.wait_for("active")
    pair.primary.wait_for("backup")
    pair.primary, pair.backup = pair.backup, pair.primary
    assert failed_over.wait(WAIT_S)
    told = Told(connection)
    session = connection.create_session()
    pair.fail_over(signal.SIGTERM)
    assert told.wait_for_error().code == "UNBLOCKED"
    with pytest.raises(JMSError, match="stops") as caught:
        session.create_consumer(session.create_queue("q"))
    assert caught.value.code == "UNBLOCKED"
    assert len(connection.failovers) == 2


def test_a_loss_without_failover_ends_every_call_with_unblocked(pair: BrokerPair, open_connection: Connect) -> None:
    """CONTRACT E6, E11: the calls that wait, and those that come later."""
    connection = open_connection(pair.url, reconnect_attempts=0)
    told = Told(connection)
    send(connection, "q", "1")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    transacted = connection.create_session(transacted=True)
    transacted.create_producer(transacted.create_queue("q")).send(TextMessage("2"))
    queue = session.create_queue("q")
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    (message,) = receive(consumer, 1)
    pair.kill_primary()
    calls: list[Callable[[], object]] = [
        lambda: consumer.receive(WAIT_S),
        lambda: producer.send(TextMessage("3")),
        lambda: session.create_consumer(queue),
        connection.create_session,
        message.acknowledge,
        session.recover,
        transacted.commit,
        transacted.rollback,
    ]
    for call in calls:
        with pytest.raises(JMSError) as caught:
            call()
        assert caught.value.code == "UNBLOCKED"
    assert told.wait_for_error().code == "UNBLOCKED"
    assert connection.failovers == []


def test_when_the_attempts_are_used_up_every_call_ends(pair: BrokerPair, open_connection: Connect) -> None:
    """CONTRACT E6, E11."""
    connection = open_connection(pair.url, reconnect_attempts=3)
    told = Told(connection)
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue("q"))
    pair.backup.kill()
    pair.kill_primary()
    with pytest.raises(JMSError, match="No broker can be reached") as caught:
        consumer.receive(WAIT_S)
    assert caught.value.code == "UNBLOCKED"
    assert told.wait_for_error().code == "UNBLOCKED"


def test_the_first_connection_waits_for_the_first_host_where_it_is_not_to_fail_over(
    pair: BrokerPair, open_connection: Connect
) -> None:
    """CONTRACT E8, E9: it tries the first host again and again, then fails; a later loss may lead anywhere."""
    backup_first = f"amqp://127.0.0.1:{pair.backup.port},127.0.0.1:{pair.primary.port}"
    with pytest.raises(JMSError, match=str(pair.backup.port)) as caught:
        open_connection(backup_first, connect_attempts=3, failover_contract="hornetq")
    assert str(pair.primary.port) not in str(caught.value)
    taking_over = threading.Timer(0.2, pair.kill_primary)
    taking_over.start()
    connection = open_connection(backup_first, connect_attempts=-1, failover_on_initial_connection=False)
    taking_over.join()
    pair.swap()
    told = Told(connection)
    pair.fail_over()
    told.wait_for_failover()
    send(connection, "q", "1")


@pytest.mark.parametrize("options", [{}, {"failover_contract": "hornetq", "failover_on_initial_connection": True}])
def test_the_first_connection_tries_every_host_where_it_is_to_fail_over(
    calm_pair: BrokerPair, open_connection: Connect, queue_name: str, options: dict[str, Any]
) -> None:
    """CONTRACT E9."""
    backup_first = f"amqp://127.0.0.1:{calm_pair.backup.port},127.0.0.1:{calm_pair.primary.port}"
    connection = open_connection(backup_first, connect_attempts=1, **options)
    assert connection.host == f"127.0.0.1:{calm_pair.primary.port}"
    send(connection, queue_name, "1")
    assert drain(connection, queue_name) == ["1"]
    assert connection.failovers == [], "it never was with another one"


# -- brokers that tell of brokers --------------------------------------------------------------------------------


@pytest.fixture
def telling(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A primary and a backup that tell their clients of both."""
    ports = [free_port(), free_port()]
    addresses = {"LEGATO_HA_ADDRESSES": ",".join(f"127.0.0.1:{port}" for port in ports)}
    servers = [Server(tmp_path / "store", port=port, environment=addresses).start() for port in ports]
    yield servers[0], servers[1]
    for each in servers:
        each.kill()


def test_a_client_that_was_told_one_broker_finds_the_others(
    telling: tuple[Server, Server], open_connection: Connect
) -> None:
    """CONTRACT E5: server discovery, remembered over failovers."""
    first, second = telling
    connection = open_connection(f"amqp://127.0.0.1:{first.port}")
    told = Told(connection)
    for dying, other in ((first, second), (second, first), (first, second)):
        dying.kill()
        told.wait_for_failover()
        assert connection.failovers[-1].new_host == f"127.0.0.1:{other.port}"
        send(connection, "q", "1")
        dying.start()
    assert len(drain(connection, "q")) == 3


def test_a_client_that_is_not_to_discover_stays_with_its_list(
    telling: tuple[Server, Server], open_connection: Connect
) -> None:
    """CONTRACT E5: a static list is all that it uses."""
    first, second = telling
    connection = open_connection(f"amqp://127.0.0.1:{first.port}", discover=False, reconnect_attempts=3)
    told = Told(connection)
    first.kill()
    assert str(second.port) not in str(told.wait_for_error())


def test_a_broker_that_does_not_serve_may_send_its_clients_to_one_that_does(
    calm_pair: BrokerPair, open_connection: Connect, queue_name: str
) -> None:
    """AMQP 2.8.16; CONTRACT E5."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pointing = threading.Thread(target=point_elsewhere, args=(listener, calm_pair.primary.port))
        pointing.start()
        port = listener.getsockname()[1]
        connection = open_connection(f"amqp://127.0.0.1:{port}", connect_attempts=1)
        pointing.join(WAIT_S)
        assert connection.host == f"127.0.0.1:{calm_pair.primary.port}"
        send(connection, queue_name, "1")
        assert drain(connection, queue_name) == ["1"]


def point_elsewhere(listener: socket.socket, port: int) -> None:
    """A broker that lets nobody in and names another one, once."""
    sock, _ = listener.accept()
    with sock:
        sasl = SaslServer(anonymous=True, verify=None)
        engine = Engine(server=True, settings=Settings(container_id="elsewhere"))
        refused = False
        while data := sock.recv(1 << 16):
            if not sasl.done:
                sasl.receive_data(data)
                sock.sendall(sasl.data_to_send())
                data = sasl.leftover if sasl.done else b""
            if data:
                engine.receive_data(data)
                if not refused:
                    refused = True
                    engine.refuse("amqp:connection:redirect", "not here", {"network-host": "127.0.0.1", "port": port})
                sock.sendall(engine.data_to_send())
        engine.free()


def test_messages_go_on_while_the_network_fails_again_and_again(
    calm_pair: BrokerPair, open_connection: Connect, queue_name: str
) -> None:
    """CONTRACT E1: every re-attachment is to the same server, and each message comes once, in order."""
    with Relay(calm_pair.primary.port) as relay:
        connection = open_connection(f"amqp://127.0.0.1:{relay.port}")
        told = Told(connection)
        session = connection.create_session()
        queue = session.create_queue(queue_name)
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        got: list[str] = []
        for number in range(60):
            producer.send(TextMessage(str(number)))
            if number % 20 == 10:
                relay.cut()
                told.wait_for_failover()
            got += texts(receive(consumer, 1))
        assert got == [str(number) for number in range(60)]
        assert [event.same_server for event in connection.failovers] == [True] * 3


def test_a_failover_listener_may_be_a_coroutine_function(calm_pair: BrokerPair) -> None:
    """CONTRACT B5: notice for those who ask, in the asyncio client too."""

    async def story(relay: Relay) -> list[FailoverEvent]:
        told: asyncio.Queue[FailoverEvent] = asyncio.Queue()
        url = f"amqp://127.0.0.1:{relay.port}"
        async with aio.ConnectionFactory(url).create_connection() as connection:
            connection.failover_listener = told.put
            relay.cut()
            event = await asyncio.wait_for(told.get(), WAIT_S)
            assert connection.failovers == [event]
            return [event]

    with Relay(calm_pair.primary.port) as relay:
        (event,) = asyncio.run(story(relay))
    assert event.same_server


def test_who_holds_more_than_a_small_frame_can_name_comes_back(tmp_path: Path, open_connection: Connect) -> None:
    """The claims did not fit the broker's frame: it ended the connection, and that began anew, for ever."""
    environment = {"LEGATO_SERVER_MAX_FRAME_BYTES": "1024"}
    numbers = [str(number) for number in range(300)]
    with server(tmp_path / "store", environment=environment) as broker:
        connection = open_connection(f"amqp://localhost:{broker.port}")
        send(connection, "q", *numbers)
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(session.create_queue("q"))
        held = receive(consumer, 200)
        told = Told(connection)
        broker.kill()
        broker.start()
        told.wait_for_failover()
        # Those that were not named come again, flagged; none is lost, and those that were named do not.
        rest = receive(consumer, 100)
        while (more := consumer.receive_no_wait()) is not None:
            rest.append(more)
        assert {*texts(held), *texts(rest)} == {*numbers}
        again = [message for message in rest if message.body in texts(held)]
        assert all(message.redelivered for message in again)
        assert 0 < len(again) < 200
