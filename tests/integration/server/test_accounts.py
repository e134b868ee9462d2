"""What users and addresses may take, on the wire: who goes over a limit is refused, and nobody else notices."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from legato.amqp import names
from legato.amqp.codec.coordinator import encode_declare
from legato.amqp.codec.types import UInt
from legato.amqp.engine.events import Disposition, SessionEnded, Transfer
from legato.amqp.engine.link import Sender
from legato.amqp.engine.outcomes import ACCEPTED, Declared, Rejected
from legato.amqp.engine.terminus import Terminus
from legato.bulk.stage_files import MessageRecord, path_of, write_stage
from legato.client import ConnectionFactory
from legato.errors import JMSError
from legato.ha.heartbeat_connection import BACKUP_USER
from legato.ha.lock import StoreLock
from tests.integration.server.conftest import Connect
from tests.integration.server.test_management import Manager
from tests.integration.server.wire import attach, durable, got
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.monitored import until
from tests.support.raw import TRANSFER, RawPeer, frame
from tests.support.server import Server, server

CONFIGURATION = """
[auth]
anonymous = true
[auth.users]
few = "few"
linked = "linked"
maker = "maker"
asker = "asker"
stager = "stager"
slow = "slow"
greedy = "greedy"
good = "good"
[server]
insecure = true
[limits.users.few]
connections = 2
[limits.users.linked]
links = 3
sessions = 2
[limits.users.maker]
creations_per_minute = 4
[limits.users.asker]
creations_per_minute = 4
[limits.users.stager]
creations_per_minute = 4
[limits.users.slow]
messages_per_s = 20
[limits.users.greedy]
held_bytes = 1000000
"""
LIMIT = "amqp:resource-limit-exceeded"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    directory = tmp_path_factory.mktemp("broker")
    file = directory / "legato.toml"
    file.write_text(CONFIGURATION)
    file.chmod(0o600)
    with server(directory / "store", "--config", str(file)) as running:
        yield running


def login(connect: Connect, user: str, container: str = "") -> AmqpPeer:
    return connect(container, user=user, password=user)


def send_much(peer: AmqpPeer, link: Sender, txn_id: bytes) -> None:
    for _ in range(30):
        peer.send(link, text(b"x" * 100_000), txn_id=txn_id)


def works(connect: Connect) -> None:
    """Somebody else's messages come and go."""
    peer = login(connect, "good", f"good-{time.monotonic_ns()}")
    assert peer.send(peer.sender("good"), text(b"x")) == ACCEPTED
    peer.close()


def test_a_connection_too_many_is_closed_with_a_sentence(connect: Connect) -> None:
    first, _ = login(connect, "few"), login(connect, "few")
    with pytest.raises(Refused, match=f"{LIMIT}.*The user 'few' may have 2 connections"):
        login(connect, "few").sender("orders")
    works(connect)
    first.close()
    login(connect, "few").sender("orders")


def test_clients_raise_an_error_for_a_connection_too_many(connect: Connect, broker: Server) -> None:
    """They do not hang."""
    for container in ("a", "b"):
        login(connect, "few", container)
    factory = ConnectionFactory(f"amqp://few:few@127.0.0.1:{broker.port}")
    with pytest.raises(JMSError, match="The user 'few' may have 2 connections"):
        factory.create_connection()


def test_a_link_too_many_is_refused_and_one_that_ends_makes_room(connect: Connect) -> None:
    one, other = login(connect, "linked"), login(connect, "linked")
    first = one.sender("orders")
    one.receiver("orders", 1)
    other.sender("orders")
    for peer in (one, other):
        with pytest.raises(Refused, match=f"{LIMIT}: The user 'linked' may have 3 links"):
            peer.receiver("orders", 1)
    first.close()
    one.flush()
    one.receiver("orders", 1)


def test_a_session_too_many_is_ended(connect: Connect) -> None:
    peer = login(connect, "linked")
    peer.amqp.begin_session()
    peer.amqp.begin_session()
    ended = peer.expect(SessionEnded)
    assert (ended.condition, ended.description) == (
        LIMIT,
        "The user 'linked' may have 2 sessions (limits.user.sessions).",
    )
    peer.sender("orders")


def test_what_is_created_is_bounded_by_the_minute(connect: Connect) -> None:
    peer = login(connect, "maker")
    peer.sender("made.1")
    attach(peer, durable("made.2"), name="subscription")
    target = Terminus(address=None, kind="target", dynamic=True)
    link = peer.session.sender("temporary", target=target)
    peer._attached(link)
    for name in ("made.3", "topic://made.4"):
        with pytest.raises(Refused, match=f"{LIMIT}: The user 'maker' may create 4 queues, topics and subscriptions"):
            peer.receiver(name, 1)
    peer.receiver("made.1", 1)


def test_what_management_creates_counts_however_it_is_spelled(connect: Connect) -> None:
    """`create` in capitals was done, and not counted; so was the target of a move."""
    peer = login(connect, "asker")
    manager = Manager(peer)
    manager.ask("create", "asked.1")
    for operation, arguments in (("CREATE", {}), ("Create", {}), ("MOVE", {"to": "asked.4"})):
        assert manager.ask(operation, "asked.1" if operation == "MOVE" else f"asked.{operation}", **arguments)[0] == 200
    for operation, arguments in (("CREATE", {}), ("move", {"to": "asked.5"})):
        status, said = manager.ask(operation, "asked.1" if operation == "move" else "asked.6", **arguments)
        assert (status, "may create 4" in said) == (429, True)
    assert manager.ask("move", "asked.1", to="asked.4")[0] == 200, "a target that is there counts for nothing"


def test_who_sends_more_than_it_may_waits_and_loses_nothing(connect: Connect) -> None:
    peer = login(connect, "slow")
    link = peer.sender("slow")
    began = time.monotonic()
    assert [peer.send(link, text(b"x")) for _ in range(60)] == [ACCEPTED] * 60
    assert time.monotonic() - began > 1.5
    works(connect)


def test_messages_that_arrive_as_a_run_count_one_by_one(connect: Connect) -> None:
    """A run of up to a thousand was one message of the rate."""
    peer = login(connect, "slow")
    link = peer.sender("slow.run")
    began = time.monotonic()
    handles = [link.send(text(b"x"), b"%d" % number, None) for number in range(60)]
    peer.flush()
    assert [peer.expect(Disposition, lambda event: event.link is link).outcome for _ in handles] == [ACCEPTED] * 60
    # Forty more than one second's worth. (A lower bound: a slow machine cannot fail it.)
    peer.send(link, text(b"x"))
    assert time.monotonic() - began > 1.5
    receiver = peer.receiver("slow.run", 100)
    assert len(got(peer, receiver, 61)) == 61


def test_who_holds_too_much_in_transactions_is_cut_off_and_nobody_else(connect: Connect) -> None:
    peer = login(connect, "greedy")
    coordinator, link = peer.coordinator(), peer.sender("greedy")
    txn_id = peer.declare(coordinator)
    with pytest.raises((Refused, OSError)):
        send_much(peer, link, txn_id)
    works(connect)
    again = login(connect, "greedy")
    assert again.send(again.sender("greedy"), text(b"x" * 100_000)) == ACCEPTED


def test_who_holds_too_much_in_unfinished_messages_is_cut_off(broker: Server, connect: Connect) -> None:
    peer = login(connect, "greedy")
    link = peer.sender("greedy")
    part = b"x" * 200_000
    closed = None
    for number in range(8):
        handle = peer.session.sender(f"part {number}", target=Terminus(address="greedy", kind="target"))
        peer._attached(handle)
        fields = [UInt(number + 1), UInt(number), b"tag", UInt(0), False, True]
        try:
            while handle.credit == 0:
                peer.flush()
                # It may be cut off before the attach that follows what was too much is answered.
                if not (data := peer.socket.recv(1 << 16)):
                    raise ConnectionResetError
                peer.events += peer.amqp.receive_data(data)
            peer.flush()
            peer.socket.sendall(frame(TRANSFER, fields, part))
            peer.sender(f"anywhere {number}")
        except (Refused, OSError) as error:
            closed = error
            break
    assert closed is not None
    assert link.closed or isinstance(closed, (Refused, OSError))
    broker.wait_for_log("1000000 bytes in unfinished messages")
    works(connect)


def test_half_open_connections_are_bounded_and_let_go(tmp_path: Path) -> None:
    config = tmp_path / "legato.toml"
    config.write_text("[server]\nhandshake_timeout_s = 2\n[limits.origin]\nhalf_open = 3\n")
    with server(tmp_path / "store", "--config", str(config)) as broker:
        silent: list[RawPeer] = []

        def is_refused() -> bool:
            """On a busy machine the time of those who are silent may be over before somebody else comes."""
            silent[:] = [RawPeer(broker.port) for _ in range(3)]
            try:
                AmqpPeer(broker.port).drop()
            except (Refused, OSError):
                return True
            return False

        until(is_refused)
        assert [peer.hear_all() for peer in silent] == [b""] * 3
        peer = AmqpPeer(broker.port)
        assert peer.send(peer.sender("orders"), text(b"x")) == ACCEPTED
        broker.wait_for_log("The address 127.0.0.1 may have 3 half-open connections (limits.origin.half_open).")
        peer.drop()


def test_an_address_of_origin_is_bounded_whoever_comes_from_it(tmp_path: Path) -> None:
    config = tmp_path / "legato.toml"
    config.write_text("[limits.origin]\nconnections = 2\nlinks = 2\n")
    with server(tmp_path / "store", "--config", str(config)) as broker:
        one, _ = AmqpPeer(broker.port), AmqpPeer(broker.port)
        with pytest.raises(Refused, match=r"The address 127.0.0.1 may have 2 connections"):
            AmqpPeer(broker.port).sender("orders")
        one.sender("orders")
        one.sender("orders")
        with pytest.raises(Refused, match=r"The address 127.0.0.1 may have 2 links"):
            one.sender("orders")


def test_a_backup_is_no_connection_too_many_and_keeps_no_client_out(tmp_path: Path) -> None:
    """As it never counted as one it stayed a half-open one, of which an address may have so many."""
    config = tmp_path / "legato.toml"
    limits = "[limits.origin]\nconnections = 1\nhalf_open = 2\n"
    config.write_text(f'[server]\ninsecure = true\n[auth.users]\nann = "x"\n{limits}')
    config.chmod(0o600)
    with server(tmp_path / "store", "--config", str(config)) as broker:
        ann = AmqpPeer(broker.port, user="ann", password="x")
        holder = StoreLock(broker.store).holder()
        assert holder is not None
        backups: list[AmqpPeer] = []
        for _ in range(3):
            backups.append(AmqpPeer(broker.port, user=BACKUP_USER, password=holder.token))
            backups[-1].receiver(names.HEARTBEAT_ADDRESS, 1)
            backups[-1].expect(Transfer)
        with pytest.raises(Refused, match=r"The address 127.0.0.1 may have 1 connections"):
            AmqpPeer(broker.port, user="ann", password="x").sender("orders")
        ann.close()
        again = AmqpPeer(broker.port, user="ann", password="x")
        assert again.send(again.sender("orders"), text(b"x")) == ACCEPTED


def test_a_connection_may_have_so_many_open_transactions(connect: Connect) -> None:
    """4,096."""
    peer = login(connect, "good", "declaring")
    coordinator = peer.coordinator()
    outcomes = []
    for _ in range(4100 // 50):
        for _ in range(50):
            coordinator.send(encode_declare(), peer._name().encode(), None)
        outcomes += [peer.expect(Disposition).outcome for _ in range(50)]
    assert {type(outcome) for outcome in outcomes[:4096]} == {Declared}
    assert outcomes[4096] == Rejected(LIMIT, "A connection may have 4096 open transactions.")


def test_queues_that_staged_rows_go_to_count_as_created(broker: Server, connect: Connect) -> None:
    """A batch could create as many as it liked."""
    manager = Manager(login(connect, "stager"))
    rows = [MessageRecord(f"staged.{n}", False, 4, 0, 0, b"", "", str(n), text(b"x")) for n in range(100)]
    write_stage(path_of(broker.store, "stager/sink", 0, "a"), iter(rows))
    status, told = manager.ask("publish", "sink", "stage", batch=0, stages="a")
    assert (status, "creations_per_minute" in str(told)) == (503, True), told
