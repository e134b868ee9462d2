"""A small history of a broker that did everything right once, for tests to spoil."""

import msgspec

from legato.core.facts import (
    AnyFact,
    ConsumerAttached,
    DispatchMarked,
    EpochBegan,
    EpochEnded,
    Kind,
    LogRecord,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePublished,
    MessageReturned,
    MessageStored,
    ProducerRegistered,
    QueueCreated,
    QueueDeleted,
    QueueGrouped,
    QueueMarked,
    QueuePaused,
    ServingBegan,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.ids import group_digest, make_txn_id

ORDERS, INVOICES, DEAD = 1, 2, 3
FIRST_TXN, ROLLED_BACK_TXN = (bytes(make_txn_id(1, number)) for number in (1, 3))
SECOND_TXN = bytes(make_txn_id(1, 2, group_digest("orders")))
"""By then the broker is one of a group."""


def history() -> list[LogRecord]:
    """Two epochs: six orders numbered by their producer, of which four become invoices in two transactions, one comes
    again, one is dead-lettered and the last one waits."""
    ms = 1000
    return [
        LogRecord(1, 1_000_000 * ms, [EpochBegan("a")]),
        record(1, 1, QueueCreated(ORDERS, "orders"), QueueCreated(INVOICES, "invoices"), QueueCreated(DEAD, "DLQ")),
        record(
            1, 2, ProducerRegistered(1, "shop"), ConsumerAttached(1, ORDERS, "w"), ConsumerAttached(2, INVOICES, "c")
        ),
        record(1, 10, *(order(seq) for seq in (1, 2, 3, 4)), DispatchMarked(ORDERS, 1000)),
        record(1, 20, *forward(FIRST_TXN, (1, 2), delivered_ms=15)),
        record(1, 30, MessageReturned(ORDERS, 3, 1, False, 1, "rollback", ROLLED_BACK_TXN), rolled_back(1)),
        record(1, 35, order(5), QueueMarked(ORDERS, 5, 5, 2), QueueMarked(INVOICES, 2, 2, 0)),
        record(1, 40, MessageConsumed(INVOICES, 1, 2, ms_us(22), 1), MessageConsumed(INVOICES, 2, 2, ms_us(22), 1)),
        record(2, 240, EpochBegan("b")),
        record(2, 300, order(6), DispatchMarked(ORDERS, 1000)),
        record(2, 310, *forward(SECOND_TXN, (3, 4), delivered_ms=305, attempts=(2, 1))),
        record(
            2,
            320,
            MessageDeadLettered(ORDERS, 5, 1, "poison", DEAD, 1),
            MessageStored(DEAD, 1, 10, "", origin=(ORDERS, 5)),
        ),
        record(2, 330, *(MessageConsumed(INVOICES, seq, 2, ms_us(312), 1) for seq in (3, 4))),
        record(2, 400, QueueMarked(ORDERS, 6, 6, 5), QueueMarked(INVOICES, 4, 4, 4), QueueMarked(DEAD, 1, 1, 0)),
        record(2, 401, EpochEnded("asked")),
    ]


WAITING = [(ORDERS, 6), (DEAD, 1)]
"""What waits in the store at the end of `history`."""

NEWS, READERS, ARCHIVE, SCHEDULE, REPLIES, URGENT = 4, 5, 6, 7, 8, 9
"""A topic, a subscription of its own, one that is temporary, the schedule, a temporary queue, one with priorities."""

NEWS_TXN = bytes(make_txn_id(1, 4))
HIGH = 10 << 56
"""The lane of priority 9."""

DUE = 1_000_000_100 << 14


def news_history() -> list[LogRecord]:
    """One epoch of topics, priorities, expiry, moves and temporary queues.

    Of what is published, 1 is consumed by both subscriptions; 2 by one, and expires in the other; 3 is delivered again
    later, as 5; 4 and 7 have no subscription; 6 and 7 come in a transaction; 8 was sent to be delivered later. Urgent
    messages are consumed out of order, dropped, purged, moved, dead-lettered to nowhere. A temporary queue and a
    temporary subscription are deleted with what waits in them.
    """
    both = [READERS, ARCHIVE]
    return [
        record(1, 0, EpochBegan("a")),
        record(
            1,
            1,
            QueueCreated(NEWS, "topic://news", Kind.TOPIC),
            QueueCreated(READERS, "subscription://c/readers", Kind.SUBSCRIPTION, NEWS, "kind = 'x'", container="c"),
            QueueCreated(ARCHIVE, "volatile://c//link", Kind.SUBSCRIPTION, NEWS, container="c", temporary=True),
            QueueCreated(SCHEDULE, "$schedule", Kind.SCHEDULE),
            QueueCreated(REPLIES, "replies", container="c", temporary=True),
            QueueCreated(URGENT, "urgent"),
            QueueCreated(DEAD, "DLQ"),
            ProducerRegistered(1, "shop"),
        ),
        record(1, 10, published(1, both, number=1), published(2, both, number=2, expires_us=ms_us(30))),
        record(1, 11, published(3, [READERS], number=3), published(4, [], number=4), DispatchMarked(READERS, 1000)),
        record(1, 20, took(READERS, 1), took(ARCHIVE, 1), took(READERS, 2)),
        record(1, 31, MessageMoved(ARCHIVE, 2, "expired", DEAD, 1), stored(DEAD, 1, origin=(ARCHIVE, 2))),
        record(1, 32, MessageReturned(READERS, 3, 1, False, 1, "modified")),
        record(1, 33, MessageMoved(READERS, 3, "delayed", SCHEDULE, DUE), stored(SCHEDULE, DUE, origin=(READERS, 3))),
        record(
            1,
            40,
            MessageMoved(SCHEDULE, DUE, "due", NEWS, 5),
            published(5, [READERS], origin=(SCHEDULE, DUE)),
            MessageReturned(READERS, 5, 1, False, 0, "carried"),
            QueueMarked(NEWS, 5, 4, 2),
            QueueMarked(READERS, 5, 4, 3),
            QueueMarked(SCHEDULE, DUE, 1, 1),
        ),
        record(1, 41, took(READERS, 5, attempt=2)),
        record(
            1,
            50,
            published(6, both, txn=NEWS_TXN),
            published(7, [], txn=NEWS_TXN),
            stored(SCHEDULE, DUE + 1, number=8, txn=NEWS_TXN),
            TransactionCommitted(NEWS_TXN, 0, 3),
        ),
        record(1, 60, MessageMoved(SCHEDULE, DUE + 1, "due", NEWS, 8), published(8, both, origin=(SCHEDULE, DUE + 1))),
        record(1, 70, *(stored(URGENT, seq, expires_us=ms_us(99)) for seq in (1, 2, HIGH + 1, 3, HIGH + 2, 4))),
        record(
            1,
            71,
            took(READERS, 6),
            took(URGENT, HIGH + 1),
            took(URGENT, 1),
            QueuePaused(URGENT, True),
            QueueGrouped(URGENT),
        ),
        record(1, 72, MessageMoved(URGENT, HIGH + 2, "dropped"), MessageMoved(URGENT, 2, "purged")),
        record(1, 73, MessageMoved(URGENT, 3, "moved", REPLIES, 1), stored(REPLIES, 1, origin=(URGENT, 3))),
        record(1, 74, MessageDeadLettered(URGENT, 4, 3, "rejected", 0, 0), stored(URGENT, HIGH + 3)),
        record(1, 75, stored(REPLIES, 2), took(REPLIES, 1), stored(REPLIES, 3), QueueMarked(REPLIES, 3, 3, 1)),
        record(1, 80, QueueDeleted(REPLIES, "replies", 2), QueueDeleted(ARCHIVE, "volatile://c//link", 2)),
        record(
            1,
            90,
            QueueMarked(NEWS, 8, 6, 4),
            QueueMarked(READERS, 8, 6, 5),
            QueueMarked(SCHEDULE, DUE, 2, 2),
            QueueMarked(URGENT, 4, 7, 6),
            QueueMarked(DEAD, 1, 1, 0),
        ),
        record(1, 90),
        record(1, 91, EpochEnded("asked")),
    ]


NEWS_WAITING = [(READERS, 8), (DEAD, 1), (URGENT, HIGH + 3)]
"""What waits in the store at the end of `news_history`."""


def idle_takeover(*before: AnyFact, cause: str, detection_us: int = 0) -> list[LogRecord]:
    """The primary stores nothing for 46 s, and nor does its successor for as long."""
    return [
        record(1, 0, EpochBegan("a"), QueueCreated(ORDERS, "orders"), ServingBegan(ms_us(20), "start")),
        record(1, 1_000, order(1)),
        record(1, 46_000, *before),
        record(2, 46_050, EpochBegan("b")),
        record(2, 46_080, ServingBegan(ms_us(46_071), cause, detection_us)),
        record(2, 92_000, order(2)),
    ]


def ms_us(ms: int) -> int:
    """A time in microseconds, given in milliseconds since the history began."""
    return (1_000_000 + ms) * 1000


def record(epoch: int, ms: int, *facts: AnyFact) -> LogRecord:
    """A record at a time in milliseconds since the history began."""
    return LogRecord(epoch, ms_us(ms), list(facts))


def order(seq: int) -> MessageStored:
    """The order at that place, which its producer numbered alike."""
    return MessageStored(ORDERS, seq, 10, f"ID:{seq}", 1, seq)


def stored(
    queue: int,
    seq: int,
    *,
    number: int = 0,
    txn: bytes = b"",
    origin: tuple[int, int] | None = None,
    expires_us: int = 0,
) -> MessageStored:
    """A message at that place; numbered ones are of one producer."""
    return MessageStored(queue, seq, 10, "ID:m", 1 if number else 0, number, txn, origin, expires_us)


def published(
    seq: int,
    subscriptions: list[int],
    *,
    number: int = 0,
    txn: bytes = b"",
    origin: tuple[int, int] | None = None,
    expires_us: int = 0,
) -> MessagePublished:
    """A message published to the topic at that place; numbered ones are of one producer."""
    producer = 1 if number else 0
    return MessagePublished(NEWS, seq, 10, "ID:n", subscriptions, producer, number, txn, origin, expires_us)


def took(queue: int, seq: int, attempt: int = 1) -> MessageConsumed:
    """The message consumed, delivered 11 ms after the history began."""
    return MessageConsumed(queue, seq, 1, ms_us(11), attempt)


def forward(txn: bytes, seqs: tuple[int, ...], delivered_ms: int, attempts: tuple[int, ...] = (1, 1)) -> list[AnyFact]:
    """A committed transaction that turns orders into invoices at the same places."""
    return [
        *(
            MessageConsumed(ORDERS, seq, 1, ms_us(delivered_ms), attempt, txn)
            for seq, attempt in zip(seqs, attempts, strict=True)
        ),
        *(MessageStored(INVOICES, seq, 20, f"ID:i{seq}", txn=txn) for seq in seqs),
        TransactionCommitted(txn, len(seqs), len(seqs)),
    ]


def rolled_back(received: int) -> TransactionRolledBack:
    """The end of the transaction that was rolled back."""
    return TransactionRolledBack(ROLLED_BACK_TXN, received, 0, "client")


def without(records: list[LogRecord], unwanted: AnyFact) -> list[LogRecord]:
    """The records without one fact, which must be there."""
    found = [each for each in records if unwanted in each.facts]
    assert len(found) == 1
    found[0].facts.remove(unwanted)
    return records


def instead(records: list[LogRecord], old: AnyFact, new: AnyFact) -> list[LogRecord]:
    """The records with one fact, which must be there, exchanged for another."""
    found = [each for each in records if old in each.facts]
    assert len(found) == 1
    found[0].facts[found[0].facts.index(old)] = new
    return records


QUEUES_EACH = 1000
"""How far apart the queues of two histories in one log are."""


def one_log(histories: list[list[LogRecord]]) -> list[LogRecord]:
    """Several histories in one log, one after the other, with epochs, queues and all else of their own."""
    log: list[LogRecord] = []
    epoch = 0
    for number, records in enumerate(histories):
        log += [
            LogRecord(each.epoch + epoch, each.time_us, [_moved(fact, number) for fact in each.facts])
            for each in records
        ]
        epoch = max(each.epoch for each in log)
    return log


def moved_txn(txn: bytes, number: int) -> bytes:
    """The transaction's id in the `number`-th history."""
    return txn[:-2] + bytes([number]) + txn[-1:]


def _moved(fact: AnyFact, number: int) -> AnyFact:
    changes: dict[str, object] = {}
    if isinstance(fact, ProducerRegistered):
        changes["name"] = f"{fact.name} of {number}"
    for name in fact.__struct_fields__:
        value = getattr(fact, name)
        if name in ("queue", "dead_queue", "to_queue", "topic", "producer", "consumer") and value:
            changes[name] = value + QUEUES_EACH * number
        elif name == "subscriptions":
            changes[name] = [subscription + QUEUES_EACH * number for subscription in value]
        elif name == "origin" and value:
            changes[name] = (value[0] + QUEUES_EACH * number, value[1])
        elif name == "txn" and value:
            changes[name] = moved_txn(value, number)
    return msgspec.structs.replace(fact, **changes)
