"""A small history of a broker that did everything right once, for tests to spoil."""

import msgspec

from legato.core.facts import (
    AnyFact,
    ConsumerAttached,
    DispatchMarked,
    EpochBegan,
    EpochEnded,
    LogRecord,
    MessageConsumed,
    MessageDeadLettered,
    MessageReturned,
    MessageStored,
    ProducerRegistered,
    QueueCreated,
    QueueMarked,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.ids import make_txn_id

ORDERS, INVOICES, DEAD = 1, 2, 3
FIRST_TXN, SECOND_TXN, ROLLED_BACK_TXN = (bytes(make_txn_id(1, number)) for number in (1, 2, 3))


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


def ms_us(ms: int) -> int:
    """A time in microseconds, given in milliseconds since the history began."""
    return (1_000_000 + ms) * 1000


def record(epoch: int, ms: int, *facts: AnyFact) -> LogRecord:
    """A record at a time in milliseconds since the history began."""
    return LogRecord(epoch, ms_us(ms), list(facts))


def order(seq: int) -> MessageStored:
    """The order at that place, which its producer numbered alike."""
    return MessageStored(ORDERS, seq, 10, f"ID:{seq}", 1, seq)


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


QUEUES_EACH = 10
"""How far apart the queues of two moved histories are."""


def moved(records: list[LogRecord], number: int) -> list[LogRecord]:
    """The records as the `number`-th of several histories in one log: later, with queues and all else of their own."""
    return [
        LogRecord(
            each.epoch + 2 * number, each.time_us + 1_000_000 * number, [_moved(fact, number) for fact in each.facts]
        )
        for each in records
    ]


def moved_txn(txn: bytes, number: int) -> bytes:
    """The transaction's id in the `number`-th history."""
    return txn[:-2] + bytes([number]) + txn[-1:]


def _moved(fact: AnyFact, number: int) -> AnyFact:
    changes: dict[str, object] = {}
    for name in fact.__struct_fields__:
        value = getattr(fact, name)
        if name in ("queue", "dead_queue", "producer", "consumer") and value:
            changes[name] = value + QUEUES_EACH * number
        elif name == "origin" and value:
            changes[name] = (value[0] + QUEUES_EACH * number, value[1])
        elif name == "txn" and value:
            changes[name] = moved_txn(value, number)
    return msgspec.structs.replace(fact, **changes)
