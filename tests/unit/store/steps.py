"""What batches may be made of, for comparing a store with its model."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from hypothesis import strategies as st

from legato.amqp.codec.stubs import Stub, make_stub
from legato.core.facts import (
    AnyFact,
    ConsumerAttached,
    DispatchMarked,
    DuplicateIdDropped,
    DuplicateIdKept,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePresented,
    MessagePublished,
    MessageReturned,
    MessageStored,
    MessageTaken,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueGrouped,
    QueuePaused,
    TransactionCommitted,
)
from legato.ids import make_txn_id

QUEUES = range(1, 4)
TOPICS = range(4, 6)
PRODUCERS = 3
TXNS = range(1, 21)
LANES = [0, 0, 0, 1, 10]
IDS = range(40)
SEQ_MAX = 400
HOUR_US = 3_600_000_000
NO_LIMIT = 1 << 40
STUB_SIZE = 300
"""Bodies of that size stand for large messages."""
SIZES = [0, 1, 30, 300, 3_000, 16_000, 40_000]

T = TypeVar("T")
Expiry = Callable[[int, int], int]
"""From now and the number of a message in its run to when it expires."""


class Draw(Protocol):
    """What `st.data()` draws with."""

    def __call__(self, strategy: st.SearchStrategy[T]) -> T: ...


seqs = st.integers(1, SEQ_MAX)
numbers = st.integers(1, 20)
producers = st.integers(1, PRODUCERS)


def size_of(seq: int) -> int:
    """A size; of a body in a topic always the same, as the message may come back to its place."""
    return SIZES[seq % len(SIZES)] if seq % 100 < len(SIZES) else 20


def expiries() -> st.SearchStrategy[Expiry]:
    """Never, all at once, one after the other, in the reverse order, some of them, already."""
    return st.sampled_from(
        [
            lambda now_us, n: 0,
            lambda now_us, n: 0,
            lambda now_us, n: now_us + HOUR_US,
            lambda now_us, n: now_us + n * HOUR_US // 100,
            lambda now_us, n: now_us + (2_000 - n) * HOUR_US // 100,
            lambda now_us, n: now_us + HOUR_US * 2 if n % 3 == 0 else 0,
            lambda now_us, n: now_us - n % 2,
        ]
    )


@st.composite
def runs(draw: st.DrawFn, queues: st.SearchStrategy[int]) -> list[AnyFact]:
    """Neighbouring messages with one fate, as batches are made of; seldom alone."""
    queue, first = draw(queues), draw(seqs) + (draw(st.sampled_from(LANES)) << 56)
    run = range(first, first + draw(st.sampled_from([1, 2, 10, 200])), draw(st.sampled_from([1, 1, 2, 7])))
    fate = draw(st.sampled_from(["stored", "consumed", "consumed", "returned", "presented", "dead", "moved"]))
    size, producer, expiry = size_of(draw(st.integers(0, 9))), draw(st.integers(0, PRODUCERS)), draw(expiries())
    if fate == "stored":
        return [
            MessageStored(queue, seq, size, "", producer, seq if producer else 0, expires_us=expiry(HOUR_US, seq % 999))
            for seq in run
        ]
    if fate == "consumed":
        return [MessageConsumed(queue, seq, 1, 1, 1) for seq in run]
    if fate == "moved":
        return [MessageMoved(queue, seq, "purged") for seq in run]
    if fate == "returned":
        counts, flags = st.integers(0, 9), st.booleans()
        causes = st.sampled_from(["rollback", "claimed"])
        return [MessageReturned(queue, seq, draw(counts), draw(flags), seq % 5, draw(causes)) for seq in run]
    if fate == "presented":
        return [MessagePresented(queue, seq, 1) for seq in run]
    return [MessageDeadLettered(queue, seq, 1, "count", queue % len(QUEUES) + 1, seq) for seq in run]


@st.composite
def others(draw: st.DrawFn) -> list[AnyFact]:
    """A fact of another kind."""
    producer, queue = draw(producers), draw(st.sampled_from(QUEUES))
    facts: list[AnyFact] = [
        ConsumerAttached(draw(numbers), 1, "c"),
        DispatchMarked(queue, draw(seqs) + (draw(st.sampled_from(LANES)) << 56)),
        QueuePaused(queue, draw(st.booleans())),
        QueueGrouped(queue),
        MessageTaken(queue, draw(seqs), "container", "link"),
        NumberRefused(producer, draw(numbers)),
        DuplicateIdDropped(queue, b"1", "", "", producer, draw(numbers)),
        ProducerRegistered(producer, f"producer-{producer}"),
        ProducerForgotten(producer, f"producer-{producer}"),
        TransactionCommitted(make_txn_id(1, draw(st.sampled_from(TXNS))), 1, 1),
    ]
    return [draw(st.sampled_from(facts))]


@st.composite
def ids(draw: st.DrawFn, queues: st.SearchStrategy[int]) -> list[AnyFact]:
    """Duplicate ids of an address, with a window that is mostly full."""
    queue, window, first = draw(queues), draw(st.sampled_from([1, 3, 30])), draw(st.sampled_from(IDS))
    count = draw(st.sampled_from([1, 2, 10, 50]))
    return [DuplicateIdKept(queue, b"%d" % (n % len(IDS)), window, f"ID:{n}") for n in range(first, first + count)]


def has_body(fact: AnyFact) -> bool:
    """Whether a body of the batch belongs to the fact."""
    return isinstance(fact, MessageStored) or (isinstance(fact, MessagePublished) and len(fact.subscriptions) > 0)


def stub_of(large: int) -> bytes:
    """A body that stands for a large message."""
    return make_stub(bytes(STUB_SIZE - len(make_stub(b"", Stub(0, 0)))), Stub(large, 8))


def body_of(fact: AnyFact) -> bytes:
    """Bytes that tell where they belong."""
    match fact:
        case MessageStored(owner, seq, size) | MessagePublished(owner, seq, size):
            return f"{owner}/{seq};".encode().ljust(size, b".")[:size]
    raise AssertionError(fact)
