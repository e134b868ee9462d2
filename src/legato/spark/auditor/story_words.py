"""Words for stories of messages: what each fact says of its message. Pure: facts are rows, of Spark or of Arrow."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from legato.core.facts import Kind
from legato.spark.quantities import duration

Fact = Any
"""A row of the ledger: its values by the names of columns."""
Place = tuple[int, int]
"""The number of a queue, and the place in it."""

_QUEUE_DIGITS_MAX, _SEQ_DIGITS_MAX = 9, 18
"""Of 32 and of 64 bits."""

LIVES = (
    "MessageStored",
    "MessagePublished",
    "MessageConsumed",
    "MessageReturned",
    "MessagePresented",
    "MessageDelivered",
    "MessageSeen",
    "MessageReleased",
    "MessageDeadLettered",
    "MessageMoved",
    "MessageOfFlow",
)
"""Facts found by the place of a message."""

_OF_OTHERS = ("DuplicateIdKept", "DuplicateIdDropped", "TransactionCommitted", "TransactionRolledBack")
"""Facts found by a message id or a transaction, not by the place of a message."""

TOLD = (*LIVES, *_OF_OTHERS)
"""Facts that are told in words."""

NOT_TOLD = (
    *("EpochBegan", "ServingBegan", "EpochEnded", "QueueCreated", "QueueDeleted", "QueuePaused", "QueueGrouped"),
    *("ProducerRegistered", "ProducerForgotten", "ConsumerAttached", "DispatchMarked", "QueueMarked"),
    *("NumberRefused", "DuplicateDropped", "MessageTaken", "AssignmentFenced", "ActionAudited"),
    # Told by the rows of their messages (`fact_schema.py`).
    *("MessagesAssigned", "AssignmentAcknowledged", "RunStored", "BatchPublished"),
    *("MessagesStored", "MessagesConsumed"),
)
"""Facts that are no part of any message's story."""


class Chapter(msgspec.Struct, frozen=True):
    """One thing that happened to a message."""

    time_us: int
    epoch: int
    position: int
    queue: str
    seq: int
    event: str


class Story(msgspec.Struct, frozen=True):
    """All that happened to a message, and to what became of it elsewhere, in the order of the log."""

    message_id: str
    chapters: list[Chapter]

    def lines(self) -> list[str]:
        """The story as text, a line for each chapter."""
        begin = self.chapters[0].time_us if self.chapters else 0
        return [
            f"{datetime.fromtimestamp(each.time_us / 1e6, UTC):%Y-%m-%d %H:%M:%S.%f}"
            f"  {'+' + duration(each.time_us - begin):>9}  epoch {each.epoch}  {each.queue} {each.seq}: {each.event}"
            for each in self.chapters
        ]


KNOWN_BY = {"QueueCreated": "queue", "ConsumerAttached": "consumer", "ProducerRegistered": "producer"}
"""The facts that name what is numbered, and the column with the number."""


class Names:
    """What some numbers stand for.

    Args:
        rows: the facts that name them (`KNOWN_BY`).
    """

    def __init__(self, rows: Iterable[Fact]) -> None:
        self._found = {(KNOWN_BY[row["kind"]], row[KNOWN_BY[row["kind"]]]): row for row in rows}

    def knows(self, column: str, number: int | None) -> bool:
        """Whether there is a name."""
        return (column, number) in self._found

    def _name(self, column: str, number: int | None) -> str:
        found = self._found.get((column, number))
        return found["name"] if found is not None else ""

    def queue(self, number: int | None) -> str:
        """A queue's name."""
        return self._name("queue", number) or f"queue {number}"

    def kind(self, number: int | None) -> Kind:
        """What a queue is."""
        found = self._found.get(("queue", number))
        return Kind((found["queue_kind"] if found is not None else 0) or 0)

    def consumer(self, number: int | None) -> str:
        """A consumer, and whose it is."""
        name = self._name("consumer", number)
        return f"consumer {number}" + (f" of {name}" if name else "")

    def producer(self, number: int | None) -> str:
        """A numbered producer."""
        return self._name("producer", number) or f"producer {number}"


def numbers_in(rows: Iterable[Fact]) -> dict[str, set[int]]:
    """The numbers in some facts that have names, by column of `KNOWN_BY`."""
    rows = list(rows)

    def numbers(*columns: str) -> set[int]:
        return {row[column] for row in rows for column in columns if row[column]}

    queues = numbers("queue", "dead_queue", "to_queue", "origin_queue", "topic")
    return {"queue": queues, "consumer": numbers("consumer"), "producer": numbers("producer")}


def chapters(rows: Iterable[Fact], names: Names) -> list[Chapter]:
    """Facts as chapters, in the order of the log."""
    ordered = sorted(rows, key=lambda row: (row["position"], row["ordinal"], row["topic"] or 0, row["queue"] or 0))
    return [
        Chapter(
            row["time_us"],
            row["epoch"],
            row["position"],
            names.queue(row["queue"]) if row["queue"] else "",
            row["seq"] or 0,
            event(row, names),
        )
        for row in ordered
    ]


def event(row: Fact, names: Names) -> str:
    """What a fact says of its message, in words."""
    txn = f" in transaction {bytes(row['txn']).hex()}" if row["txn"] else ""
    by = f" by {names.consumer(row['consumer'])}" if row["consumer"] else ""
    match row["kind"]:
        case "MessageStored" | "MessagePublished":
            return _arrival(row, names) + txn
        case "MessageConsumed":
            return f"consumed{by}, delivery {row['attempt']} of {_clock(row['delivered_us'])}{txn}"
        case "MessageReturned":
            flagged = ", flagged as redelivered" if row["flagged"] else ""
            return f"came back{by}: {row['cause']}, {row['attempt']} failed so far{flagged}{txn}"
        case "MessagePresented":
            return f"presented{by}"
        case "MessageDelivered":
            again = " again" if row["flagged"] else ""
            return f"delivered{again}{by}, delivery {row['attempt']}"
        case "MessageSeen":
            return f"given to its application{by}"
        case "MessageReleased":
            return f"given back unused{by}"
        case "MessageDeadLettered":
            target = _target(row["dead_queue"], row["dead_seq"], names)
            return f"dead-lettered{by}: {row['cause']}{target}"
        case "MessageOfFlow":
            if not row["flow_id"]:
                return f"a bundle of {row['stored']} calls of {row['stage']}"
            return (
                f"call {row['number']}, {row['call']} of {row['stage']}, in flow {row['trace_id']} ({row['flow_id']})"
            )
        case "DuplicateIdKept":
            return "its duplicate id is remembered"
        case "DuplicateIdDropped":
            return f"came again and was not stored: a duplicate of {row['name']}{txn}"
        case "TransactionCommitted" | "TransactionRolledBack":
            ended = "committed" if row["kind"] == "TransactionCommitted" else f"rolled back: {row['cause']}"
            return f"{ended}, {row['consumed']} received and {row['stored']} sent{txn}"
        case "MessageMoved":
            return f"moved: {row['cause']}{_target(row['to_queue'], row['to_seq'], names)}"
        case kind:
            raise AssertionError(f"nothing is told of {kind}")


def _arrival(row: Fact, names: Names) -> str:
    origin = f" from {names.queue(row['origin_queue'])} {row['origin_seq']}" if row["origin_seq"] is not None else ""
    if row["topic"]:
        return f"stored, a copy from {names.queue(row['topic'])}"
    sender = f" by {names.producer(row['producer'])} as its {row['number']}" if row["producer"] else ""
    what = f"published, {row['stored']} copies" if row["kind"] == "MessagePublished" else "stored"
    size = "" if row["size"] is None else f", {row['size']} bytes"
    return f"{what}{size}{sender}{origin}"


def _target(queue: int | None, seq: int | None, names: Names) -> str:
    return f", to {names.queue(queue)} {seq}" if queue else ", to nowhere"


def _clock(time_us: int | None) -> str:
    return "unknown time" if time_us is None else f"{datetime.fromtimestamp(time_us / 1e6, UTC):%H:%M:%S.%f}"


def named_by_numbers(message: str) -> set[Place]:
    """The place that `QUEUE/SEQ` names; none if it is an id."""
    queue, _, seq = message.partition("/")
    return {(int(queue), int(seq))} if is_number(queue, _QUEUE_DIGITS_MAX) and is_number(seq) else set()


def is_number(text: str, digits_max: int = _SEQ_DIGITS_MAX) -> bool:
    """Whether a text is the number of a queue or a message, as the ledger has them."""
    return text.isascii() and text.isdecimal() and len(text) <= digits_max


def key_of(row: Fact) -> tuple[Any, ...]:
    """What tells a fact from all others."""
    return (row["position"], row["ordinal"], row["kind"], row["queue"])


def places_of(row: Fact) -> set[Place]:
    """The places that a fact speaks of. Those of a topic's copies are found by the topic's."""
    pairs = [("queue", "seq"), ("dead_queue", "dead_seq"), ("to_queue", "to_seq"), ("origin_queue", "origin_seq")]
    return {(row[queue], row[seq]) for queue, seq in pairs if row[queue] and row[seq] is not None}
