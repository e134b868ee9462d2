"""One store, several processes: who serves, who waits, who must stop."""

import socket
import time
from pathlib import Path

import msgspec

from legato.amqp.engine.events import Transfer
from legato.amqp.engine.outcomes import ACCEPTED
from legato.store.lmdb import LmdbStore
from tests.support.amqp_peer import AmqpPeer, data_of, text
from tests.support.forked_process import run_legato
from tests.support.server import WAIT_S, Server, server


def test_the_backup_takes_over_with_everything_that_was_confirmed(tmp_path: Path) -> None:
    """CONTRACT B1, B2, B4, B8."""
    with server(tmp_path / "store") as primary, server(tmp_path / "store") as backup:
        assert (primary.role, backup.role) == ("active epoch=1", "backup")
        peer = AmqpPeer(primary.port)
        sender = peer.sender("q")
        for number in range(20):
            assert peer.send(sender, text(b"%d" % number)) == ACCEPTED
        primary.kill()
        backup.wait_for_role("active")
        assert backup.epoch == 2
        after = AmqpPeer(backup.port)
        after.receiver("q", 20)
        assert [data_of(after.transfer()) for _ in range(20)] == [b"%d" % number for number in range(20)]


def test_a_backup_that_could_not_serve_says_so_when_it_starts_not_when_it_is_needed(tmp_path: Path) -> None:
    """It was ready until its primary died, and then ended: nobody served. It ends with 1, so that systemd starts it
    again, until the port is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken, server(tmp_path / "store") as primary:
        port = taken.getsockname()[1]
        with server(tmp_path / "store", port=port) as backup:
            assert backup.wait() == 1
            assert f"Cannot listen on 127.0.0.1:{port}" in backup.log.read_text()
            taken.close()
            assert backup.start().role == "backup"
            primary.kill()
            backup.wait_for_role("active epoch=2")


def test_a_primary_whose_port_is_taken_begins_no_epoch(tmp_path: Path) -> None:
    """It began one, and only then found that it could not listen."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with server(tmp_path / "store", port=port) as broker:
            assert broker.wait() == 1
            assert f"Cannot listen on 127.0.0.1:{port}: another program listens there" in broker.log.read_text()
            assert not (tmp_path / "store" / "data.mdb").exists()
            taken.close()
            assert broker.start().role == "active epoch=1"


def test_a_backup_whose_port_was_taken_since_begins_no_epoch_and_the_old_primary_serves_again(tmp_path: Path) -> None:
    with server(tmp_path / "store") as primary, server(tmp_path / "store") as backup:
        with socket.create_server(("127.0.0.1", backup.port)):
            done = run_legato("switchover", "--url", f"amqp://127.0.0.1:{primary.port}")
            primary.wait_for_role("active epoch=2")
        assert f"Cannot listen on 127.0.0.1:{backup.port}: another program listens there" in backup.log.read_text()
        assert done.returncode == 1
        assert f"No backup took over: 127.0.0.1:{primary.port} serves again, in epoch 2." in done.stderr


def test_a_pair_may_share_one_address(tmp_path: Path) -> None:
    """Where clients know one address only: its backup can listen when the primary is gone, and warns that it cannot
    before."""
    with server(tmp_path / "store") as primary, server(tmp_path / "store", port=primary.port) as backup:
        assert backup.role == "backup"
        [warning] = [line for line in backup.log.read_text().splitlines() if "listens on" in line]
        assert " WARNING " in warning
        assert f"process {primary.pid} of this store" in warning
        assert "give this one an address of its own, with --listen or server.listen" in warning
        for dies, waits, epoch in ((primary, backup, 2), (backup, primary, 3), (primary, backup, 4)):
            dies.kill()
            waits.wait_for_role(f"active epoch={epoch}")
            assert dies.start().role == "backup"


def test_the_dead_primary_comes_back_as_the_backup(tmp_path: Path) -> None:
    """CONTRACT B3: roles swap."""
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        first.kill()
        second.wait_for_role("active")
        first.start()
        assert first.role == "backup"
        second.kill()
        first.wait_for_role("active")
        assert first.epoch == 3


def test_a_committed_acknowledgement_is_never_undone_by_a_takeover(tmp_path: Path) -> None:
    """CONTRACT B9."""
    with server(tmp_path / "store") as primary, server(tmp_path / "store") as backup:
        peer = AmqpPeer(primary.port)
        sender = peer.sender("q")
        for body in (b"done", b"waiting"):
            peer.send(sender, text(body))
        link = peer.receiver("q", 1)
        link.update(peer.transfer().delivery, ACCEPTED)
        from legato.amqp.engine.events import Disposition

        peer.expect(Disposition, lambda event: event.link is link)
        primary.kill()
        backup.wait_for_role("active")
        after = AmqpPeer(backup.port)
        after.receiver("q", 10)
        assert data_of(after.transfer()) == b"waiting"
        # A status answer over the same connection comes after anything that was to be delivered.
        after.receiver("$status", 1)
        assert after.expect(Transfer).tag == b"status"


def test_a_broker_whose_epoch_is_over_stops_serving(tmp_path: Path) -> None:
    """Promise 7: it cannot commit, so it must not go on; with the lock still its own it begins anew."""
    with server(tmp_path / "store") as fenced:
        peer = AmqpPeer(fenced.port)
        sender = peer.sender("q")
        peer.send(sender, text(b"before"))
        usurper = LmdbStore(tmp_path / "store")
        usurper.begin_epoch("usurper", time.time_ns() // 1000)
        sender.send(text(b"after"), b"t", None)
        peer.flush()
        fenced.wait_for_role("active epoch=3")
        assert [stored.body for stored in usurper.messages(1, 0, 10, 1 << 20)] == [text(b"before")]
        assert "epoch 1 is over" in fenced.log.read_text()
        usurper.close()


def test_a_broker_whose_lock_file_was_replaced_stops_serving_before_another_begins(tmp_path: Path) -> None:
    """CORRECTNESS D8 a24: it becomes the backup of its successor; at no instant are both the primary."""
    with server(tmp_path / "store") as robbed:
        (tmp_path / "store" / "lock").unlink()
        with server(tmp_path / "store") as other:
            # The robbed broker itself may be the first to lock the new file.
            primary, backup = primary_of_epoch(2, robbed, other)
            roles = recorded_roles(tmp_path / "store")
            assert roles.count("primary") == 1, roles
            backup.wait_for_role("backup")
            backup.wait_for_log("heartbeats of epoch 2")
            robbed.wait_for_log("its file was replaced")
            primary.kill()
            backup.wait_for_role("active epoch=3")


def primary_of_epoch(epoch: int, one: Server, another: Server) -> tuple[Server, Server]:
    """Wait until one of two servers serves in an epoch; returns it and the other."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for primary, backup in ((one, another), (another, one)):
            if primary.role == f"active epoch={epoch}":
                return primary, backup
        time.sleep(0.01)
    raise AssertionError(f"the servers said {one.role!r} and {another.role!r}")


def recorded_roles(store: Path) -> list[str]:
    """What each process of a store says of itself, as it stands in its file."""
    return [msgspec.json.decode(path.read_bytes())["role"] for path in (store / "members").glob("*.json")]


def test_takeover_does_not_depend_on_the_backlog(tmp_path: Path) -> None:
    """Promise 6: nothing is read that is not asked for; measured in bench/p5.py."""
    store = LmdbStore(tmp_path / "store")
    from legato.core.facts import MessageStored, QueueCreated
    from legato.core.records import Batch

    epoch = store.begin_epoch("filler", 1).epoch
    store.commit(Batch(epoch, 1, [QueueCreated(1, "q")], []))
    for begin in range(0, 100_000, 10_000):
        facts = [MessageStored(1, begin + n + 1, 256, "") for n in range(10_000)]
        store.commit(Batch(epoch, 1, list(facts), [b"x" * 256] * len(facts)))
    store.close()
    with server(tmp_path / "store") as broker:
        assert broker.rss_anon_bytes() < 150 << 20
