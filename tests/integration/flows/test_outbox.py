"""Inbox, outbox and sweeper on real databases, with a sender that the test looks into."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import create_engine, inspect

from legato.errors import ConfigError, JMSError
from legato.flows import Flows
from legato.flows.database.database import DataSource, create_tables, schema_sql
from legato.flows.database.inbox import PRUNED_AT_ONCE_MAX, Inbox
from legato.flows.database.outbox import Outbox
from legato.flows.database.sweeper import CLAIMED_AT_ONCE_MAX, LEASE_US, Sweeper
from legato.flows.database.transactions import InboxOutbox, Received
from legato.flows.model.calls import first_envelope
from legato.flows.model.envelope import Call, Outgoing
from legato.flows.model.stage_run import Ran
from legato.flows.starting.database_support import DatabaseSupport
from legato.flows.starting.service_initiator import new_id
from tests.support.databases import database_url, postgres

__all__ = ["database_url", "postgres"]

GRACE_US = 5_000_000
SECOND_US = 1_000_000
RETENTION_S = 3600.0
WAIT_S = 60.0


class Hands:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.us = time.time_ns() // 1000

    def now_us(self) -> int:
        return self.us

    def monotonic_ms(self) -> int:
        return self.us // 1000


class Wire:
    """Where the sweeper sends: it remembers, and refuses what it is told to."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.refused: set[str] = set()

    def __call__(self, outgoing: Sequence[Outgoing]) -> None:
        ids = [one.envelope.message_id for one in outgoing]
        if self.refused & set(ids):
            raise ConnectionError("the queue is full")
        self.sent.append(ids)


class Desk:
    """A database with its tables and a sweeper, which has no thread."""

    def __init__(self, url: str) -> None:
        self.source = DataSource(url)
        self.source.create_tables()
        self.clock, self.wire = Hands(), Wire()
        self.inbox = Inbox(self.source.sql, RETENTION_S)
        self.sweepers = [self._sweeper() for _ in range(2)]

    def _sweeper(self) -> tuple[Outbox, Sweeper]:
        outbox = Outbox(self.source.sql, skips_locked=self.source.kind == "postgresql", grace_us=GRACE_US)
        return outbox, Sweeper(self.source, self.inbox, outbox, self.wire, self.clock, RETENTION_S)

    def put(self, *ids: str) -> None:
        """Rows, in a transaction."""
        with self.source.transaction() as work:
            rows = [("cause", outgoing(message_id, self.clock.us)) for message_id in ids]
            self.sweepers[0][0].put(work.connection(), rows, self.clock.us)
            work.commit()

    def rewrite(self, old: str, new: str, *ids: str) -> None:
        """What rows of the outbox say, as another version of the program might."""
        with self.source.transaction() as work:
            sql = self.source.sql("UPDATE legato_outbox SET outgoing = replace(outgoing, ?, ?) WHERE message_id = ?")
            for message_id in ids:
                work.connection().exec_driver_sql(sql, (old, new, message_id))
            work.commit()

    def age(self, seconds: float, message_id: str = "%") -> None:
        """What the inbox has is so much older by the database's clock."""
        with self.source.transaction() as work:
            sql = self.source.sql("UPDATE legato_inbox SET at_us = at_us - ? WHERE message_id LIKE ?")
            work.connection().exec_driver_sql(sql, (round(seconds * SECOND_US), message_id))
            work.commit()

    def enter(self, message_id: str, now_us: int) -> bool:
        """Whether a message is new to the inbox."""
        with self.source.transaction() as work:
            new = self.inbox.enter(work.connection(), "Orders.place", [message_id], now_us)
            work.commit()
        return new == {message_id}

    def prune(self, now_us: int) -> None:
        """As a process does whose clock says `now_us`."""
        with self.source.transaction() as work:
            self.inbox.prune(work.connection(), now_us - round(RETENTION_S * SECOND_US))
            work.commit()

    def rows(self, table: str = "legato_outbox") -> list[str]:
        """The ids in a table."""
        with self.source.engine.connect() as connection:
            return sorted(row[0] for row in connection.exec_driver_sql(f"SELECT message_id FROM {table}"))


@pytest.fixture
def desk(database_url: str) -> Iterator[Desk]:
    """On each kind of database."""
    made = Desk(database_url)
    yield made
    made.source.close()


def outgoing(message_id: str, now_us: int) -> Outgoing:
    """A message."""
    return Outgoing(
        first_envelope(
            message_id=message_id,
            flow_id="f1",
            trace_id="order:17",
            sender="test",
            to="Orders.place",
            data=msgspec.Raw(b'"\xc3\xa9"'),
            now_us=now_us,
            call=Call.SEND,
        )
    )


def test_delays_and_lifetimes_count_from_when_the_stage_sent_also_if_it_sends_again(desk: Desk) -> None:
    """CONTRACT D12: it was killed between its commits, or the broker was."""
    sent: list[list[Outgoing]] = []

    class Messaging:
        def send(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None:
            sent.append(list(outgoing))
            if len(sent) == 1:
                raise ConnectionError("the process is killed here")

        def check(self) -> None: ...

        def commit(self) -> None: ...

    timer = msgspec.structs.replace(outgoing("timer", desk.clock.us), delay_ms=5_000, time_to_live_ms=9_000)
    level = InboxOutbox(desk.source, desk.inbox, desk.sweepers[0][0], desk.clock)
    received = [Received(outgoing("cause", desk.clock.us).envelope, 1)]
    with pytest.raises(ConnectionError):
        level.perform("Orders.place", received, lambda *_: Ran([timer]), Messaging())
    desk.clock.us += 2 * SECOND_US
    level.perform("Orders.place", received, lambda *_: pytest.fail("it runs again"), Messaging())
    assert [(one.delay_ms, one.time_to_live_ms) for [one] in sent] == [(5_000, 9_000), (3_000, 7_000)]


def test_a_sweeper_sends_what_has_been_in_the_outbox_for_too_long_once_and_deletes_it(desk: Desk) -> None:
    """CONTRACT D12."""
    desk.put("a", "b")
    _, sweeper = desk.sweepers[0]
    sweeper.sweep()
    assert desk.wire.sent == [], "whoever put it there is about to send it"
    desk.clock.us += GRACE_US
    sweeper.sweep()
    assert desk.wire.sent == [["a", "b"]]
    assert desk.rows() == []


def test_what_is_sent_late_is_sent_in_the_order_in_which_it_was_put(desk: Desk) -> None:
    """Ids of one run's messages are in no order."""
    ids = [f"id{7 * number % 1_000:03}" for number in range(2 * CLAIMED_AT_ONCE_MAX)]
    desk.put(*ids)
    outbox, sweeper = desk.sweepers[0]
    with desk.source.engine.connect() as connection:
        assert [one.envelope.message_id for one in outbox.unsent(connection, ["cause"])] == ids
    desk.clock.us += GRACE_US
    sweeper.sweep()
    assert [each for sent in desk.wire.sent for each in sent] == ids


def test_what_one_sweeper_has_taken_is_no_other_ones_until_its_lease_ends(desk: Desk) -> None:
    """CONTRACT D12."""
    desk.put("a")
    desk.clock.us += GRACE_US
    with desk.source.transaction() as work:
        taken, unreadable = desk.sweepers[0][0].claim(work.connection(), desk.clock.us, LEASE_US, CLAIMED_AT_ONCE_MAX)
        work.commit()
    assert [(one.envelope.message_id, attempts) for one, attempts in taken] == [("a", 1)]
    assert unreadable == []
    desk.sweepers[1][1].sweep()
    assert desk.wire.sent == []
    desk.clock.us += LEASE_US
    desk.sweepers[1][1].sweep()
    assert desk.wire.sent == [["a"]], "the other one has died"


def test_sweepers_at_the_same_time_take_different_rows(desk: Desk) -> None:
    """CONTRACT D12."""
    ids = [f"id{number:03}" for number in range(3 * CLAIMED_AT_ONCE_MAX)]
    desk.put(*ids)
    desk.clock.us += GRACE_US
    together([sweeper.sweep for _, sweeper in desk.sweepers])
    assert sorted(one for sent in desk.wire.sent for one in sent) == ids
    assert desk.rows() == []


def test_what_the_broker_refuses_holds_nothing_up_and_is_tried_again(desk: Desk) -> None:
    """CONTRACT D12."""
    desk.put("a", "b", "c")
    desk.wire.refused = {"b"}
    desk.clock.us += GRACE_US
    _, sweeper = desk.sweepers[0]
    sweeper.sweep()
    assert desk.wire.sent == [["a"], ["c"]]
    assert desk.rows() == ["b"]
    sweeper.sweep()
    desk.wire.refused = set()
    desk.clock.us += SECOND_US
    sweeper.sweep()
    assert len(desk.wire.sent) == 2, "not so soon"
    desk.clock.us += SECOND_US
    sweeper.sweep()
    assert desk.wire.sent[2:] == [["b"]]
    assert desk.rows() == []


OF_ANOTHER_VERSION = [
    ('"call":"send"', '"call":"later"', "later"),
    ('"flow_id":"f1"', '"format":2,"flow_id":"f1"', "format 2"),
    ('"data":"é"', f'"data":{"[" * 100_000}{"]" * 100_000}', "deserializing"),
]


@pytest.mark.parametrize(("known", "written", "said"), OF_ANOTHER_VERSION, ids=["enum", "format", "depth"])
def test_what_cannot_be_read_holds_nothing_up_is_said_once_and_is_sent_by_who_can_read_it(
    desk: Desk, caplog: pytest.LogCaptureFixture, known: str, written: str, said: str
) -> None:
    """Such as the row of a later version, after a downgrade."""
    desk.put("a", "b", "c")
    desk.rewrite(known, written, "b")
    desk.clock.us += GRACE_US
    _, sweeper = desk.sweepers[0]
    sweeper.sweep()
    assert desk.wire.sent == [["a", "c"]]
    assert desk.rows() == ["b"]
    for _ in range(2):
        desk.clock.us += 2 * SECOND_US
        sweeper.sweep()
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert told[0].startswith("Message b stays in the table legato_outbox: this version of Legato cannot read it.")
    assert said in told[0]
    desk.rewrite(written, known, "b")
    desk.clock.us += 4 * SECOND_US
    sweeper.sweep()
    assert desk.wire.sent == [["a", "c"], ["b"]]
    assert desk.rows() == []


def test_a_broker_that_is_not_there_is_looked_for_once(desk: Desk) -> None:
    """It was looked for once for each message, perhaps for a minute each time."""
    looks: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as nobody:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = nobody.accept()
                    looks.append(peer)
                    peer.close()

        threading.Thread(target=hang_up, daemon=True).start()
        flows = Flows(f"amqp://127.0.0.1:{nobody.getsockname()[1]}?connect_attempts=1")
        with pytest.raises(JMSError):
            flows.connection()
        looks_once = len(looks)
        sweeper = DatabaseSupport(desk.source.engine, flows._initiator, desk.clock, new_id).sweeper
        ids = [f"m{number:03}" for number in range(CLAIMED_AT_ONCE_MAX + 1)]
        desk.put(*ids)
        desk.clock.us += GRACE_US
        sweeper.sweep()
        assert len(looks) == 2 * looks_once
        nobody.shutdown(socket.SHUT_RDWR)
    assert desk.rows() == ids
    desk.clock.us += 2 * SECOND_US
    for _, other in desk.sweepers:
        other.sweep()
    assert sorted(itertools.chain(*desk.wire.sent)) == ids


def test_so_many_that_cannot_be_read_as_are_taken_at_once_hold_nothing_up(desk: Desk) -> None:
    ids = [f"id{number:03}" for number in range(CLAIMED_AT_ONCE_MAX)]
    desk.put(*ids)
    desk.rewrite('"call":"send"', '"call":"later"', *ids)
    desk.clock.us += 1
    desk.put("last")
    desk.clock.us += GRACE_US
    desk.sweepers[0][1].sweep()
    assert desk.wire.sent == [["last"]]
    assert desk.rows() == ids


def test_a_stage_whose_work_is_done_leaves_what_it_cannot_read_to_the_sweepers(desk: Desk) -> None:
    """The message that it comes of is no dead letter therefore."""
    sent: list[list[str]] = []

    class Messaging:
        def send(self, outgoing: Sequence[Outgoing], *, once: bool = False) -> None:
            sent.append([one.envelope.message_id for one in outgoing])
            if len(sent) == 1:
                raise ConnectionError("the process is killed here, and another version is started")

        def check(self) -> None: ...

        def commit(self) -> None: ...

    level = InboxOutbox(desk.source, desk.inbox, desk.sweepers[0][0], desk.clock)
    received = [Received(outgoing("cause", desk.clock.us).envelope, 1)]
    calls = [outgoing(message_id, desk.clock.us) for message_id in ("a", "b")]
    with pytest.raises(ConnectionError):
        level.perform("Orders.place", received, lambda *_: Ran(calls), Messaging())
    desk.rewrite('"call":"send"', '"call":"later"', "b")
    level.perform("Orders.place", received, lambda *_: pytest.fail("it runs again"), Messaging())
    assert sent == [["a", "b"], ["a"]]
    desk.sweepers[0][1].sweep()
    assert desk.rows() == ["b"]


def test_a_sweeper_that_is_late_to_end_sends_nothing_more(desk: Desk) -> None:
    """The service has no connection by then, and would make another one."""
    outbox, _ = desk.sweepers[0]
    sending, go_on = threading.Event(), threading.Event()

    def send(outgoing: Sequence[Outgoing]) -> None:
        desk.wire(outgoing)
        sending.set()
        assert go_on.wait(WAIT_S)

    sweeper = Sweeper(desk.source, desk.inbox, outbox, send, desk.clock, RETENTION_S)
    desk.put("1")
    desk.clock.us += GRACE_US
    sweeper.start()
    assert sending.wait(WAIT_S)
    thread = sweeper._thread
    assert thread is not None
    sweeper.end(timeout_s=0.01)
    desk.put("2")
    desk.clock.us += GRACE_US
    go_on.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert desk.wire.sent == [["1"]]


def test_rows_whose_transaction_could_not_delete_them_are_deleted_by_another(desk: Desk) -> None:
    """CONTRACT D12."""
    desk.put("a")
    outbox, sweeper = desk.sweepers[0]
    outbox.sent([outgoing("a", 0)])
    with desk.source.transaction() as work, pytest.raises(KeyError), outbox.deleting(work.connection()):
        raise KeyError("a")
    assert desk.rows() == ["a"]
    sweeper.sweep()
    assert desk.rows() == []
    assert desk.wire.sent == []


def test_the_inbox_knows_a_message_until_its_time_is_over(desk: Desk) -> None:
    """CONTRACT D13."""
    ids = [f"id{number:04}" for number in range(PRUNED_AT_ONCE_MAX + 1)]
    with desk.source.transaction() as work:
        connection = work.connection()
        for first in range(0, len(ids), 500):
            part = ids[first : first + 500]
            assert desk.inbox.enter(connection, "Orders.place", part, desk.clock.us) == set(part)
        assert desk.inbox.enter(connection, "Orders.place", ["new", "new", ids[0]], desk.clock.us) == {"new"}
        assert desk.inbox.enter(connection, "Orders.place", ["new"], desk.clock.us) == set()
        assert desk.inbox.enter(connection, "Orders.place.stage1", ["new"], desk.clock.us) == {"new"}
        work.commit()
    desk.age(RETENTION_S / 2)
    assert desk.enter("later", desk.clock.us)
    _, sweeper = desk.sweepers[0]
    sweeper.sweep()
    assert len(desk.rows("legato_inbox")) == len(ids) + 3
    desk.age(RETENTION_S / 2 + 1)
    desk.clock.us += 61 * SECOND_US
    sweeper.sweep()
    assert desk.rows("legato_inbox") == ["later"]


WRONG_S = [8 * 86_400.0, RETENTION_S / 2, -RETENTION_S / 2, -8 * 86_400.0]


@pytest.mark.parametrize("wrong_s", WRONG_S)
def test_the_wrong_clock_of_one_process_does_not_make_an_inbox_forget(desk: Desk, wrong_s: float) -> None:
    """CONTRACT D13: of several processes that share it, each may enter and prune."""
    wrong_us = desk.clock.us + round(wrong_s * SECOND_US)
    assert desk.enter("right", desk.clock.us)
    assert desk.enter("wrong", wrong_us)
    for now_us in (wrong_us, desk.clock.us):
        desk.prune(now_us)
        assert not desk.enter("right", now_us)
        assert not desk.enter("wrong", now_us)


@pytest.mark.parametrize("wrong_s", WRONG_S)
def test_the_wrong_clock_of_one_process_does_not_keep_an_inbox_from_forgetting(desk: Desk, wrong_s: float) -> None:
    """CONTRACT D13: another one prunes, and what was entered with a clock ahead is kept for longer."""
    assert desk.enter("right", desk.clock.us)
    desk.age(RETENTION_S + 1)
    desk.prune(desk.clock.us + round(wrong_s * SECOND_US))
    desk.prune(desk.clock.us + 2 * SECOND_US)
    assert desk.rows("legato_inbox") == []


def test_of_two_that_work_on_a_message_at_the_same_time_one_finds_it_new(desk: Desk) -> None:
    """CONTRACT D13: a failover may have given it to both."""
    found: list[set[str]] = []

    def work_on_it() -> None:
        with desk.source.transaction() as work:
            found.append(desk.inbox.enter(work.connection(), "Orders.place", ["a"], desk.clock.us))
            work.commit()

    together([work_on_it] * 4)
    assert sorted(map(sorted, found)) == [[], [], [], ["a"]]


def test_tables_may_be_there_already_and_several_processes_may_create_them(database_url: str) -> None:
    """CONTRACT D12."""
    engines = [create_engine(database_url) for _ in range(4)]
    together([lambda engine=engine: create_tables(engine) for engine in engines])  # type: ignore[misc]
    with engines[0].begin() as connection:
        for statement in schema_sql().split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    assert {"legato_inbox", "legato_outbox"} <= set(inspect(engines[0]).get_table_names())
    for engine in engines:
        engine.dispose()


def test_a_service_whose_tables_are_not_there_yet_sweeps_nothing(database_url: str) -> None:
    source = DataSource(database_url)
    assert not source.may_have_outbox()
    outbox = Outbox(source.sql, skips_locked=False, grace_us=0)
    Sweeper(source, Inbox(source.sql, RETENTION_S), outbox, Wire(), Hands(), RETENTION_S).sweep()
    source.create_tables()
    assert source.may_have_outbox()
    source.close()


def test_a_database_that_does_not_answer_may_have_an_outbox(tmp_path: Path) -> None:
    assert DataSource(create_engine(f"sqlite:///{tmp_path}/no/such.db")).may_have_outbox()


def test_inbox_and_outbox_are_refused_where_they_would_not_be_right(database_url: str) -> None:
    """CONTRACT D14."""
    engine = create_engine(database_url)
    engine.dialect.name = "oracle"
    with pytest.raises(ConfigError, match="SQLite or PostgreSQL; this database is oracle"):
        create_tables(engine)
    engine.dispose()


def together(actions: Sequence[Callable[[], object]]) -> None:
    """Run all at the same time; raises what one of them raised."""
    errors: list[BaseException] = []
    begin = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        try:
            begin.wait()
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
