"""The writer commits one batch at a time, tells about each, and survives whatever the store does."""

import queue
import threading
from collections.abc import Iterator

import pytest

from legato.core.facts import QueueCreated
from legato.errors import FencedError, StoreError, StoreFullError
from legato.store.base import Batch
from legato.store.memory import MemoryStore
from legato.store.writer import GroupWriter
from tests.conformance.store import batch_of, stored, waiting

News = tuple[Batch, int | None, StoreError | None]


class HeldStore(MemoryStore):
    """A store whose commits wait until they are let go, and may fail as told."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self.failure: BaseException | None = None

    def commit(self, batch: Batch) -> int:
        self.entered.release()
        assert self.let_go.acquire(timeout=60)
        if self.failure is not None:
            raise self.failure
        return super().commit(batch)


@pytest.fixture
def store() -> HeldStore:
    store = HeldStore()
    store.begin_epoch("b", 0)
    return store


@pytest.fixture
def news() -> "queue.SimpleQueue[News]":
    return queue.SimpleQueue()


@pytest.fixture
def writer(store: HeldStore, news: "queue.SimpleQueue[News]") -> Iterator[GroupWriter]:
    writer = GroupWriter(store, lambda *item: news.put(item))
    yield writer
    for _ in range(3):
        store.let_go.release()
    writer.close()


def test_a_batch_is_committed_and_told_of(
    writer: GroupWriter, store: HeldStore, news: "queue.SimpleQueue[News]"
) -> None:
    batch = batch_of(1, QueueCreated(1, "q"), stored(1))
    writer.submit(batch)
    store.let_go.release()
    assert news.get(timeout=60) == (batch, 2, None)
    assert waiting(store) == [1]


def test_only_one_batch_is_in_flight(writer: GroupWriter, store: HeldStore, news: "queue.SimpleQueue[News]") -> None:
    assert writer.idle
    writer.submit(batch_of(1))
    assert not writer.idle
    with pytest.raises(StoreError, match="in flight"):
        writer.submit(batch_of(1))
    store.let_go.release()
    news.get(timeout=60)
    assert writer.idle
    writer.submit(batch_of(1))


def test_the_next_batch_may_be_submitted_while_the_last_is_told_of(store: HeldStore) -> None:
    last: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def submit_another(batch: Batch, position: int | None, error: StoreError | None) -> None:
        if position == 2:
            own.submit(batch)
        else:
            last.put(position)

    own = GroupWriter(store, submit_another)
    store.let_go.release()
    store.let_go.release()
    own.submit(batch_of(1))
    assert last.get(timeout=60) == 3
    own.close()


@pytest.mark.parametrize("failure", [StoreFullError(), FencedError(), StoreError("x")])
def test_errors_of_the_store_are_passed_on_as_they_are(
    writer: GroupWriter, store: HeldStore, news: "queue.SimpleQueue[News]", failure: StoreError
) -> None:
    store.failure = failure
    writer.submit(batch_of(1))
    store.let_go.release()
    assert news.get(timeout=60)[1:] == (None, failure)


@pytest.mark.parametrize("failure", [RuntimeError("bug"), MemoryError(), SystemExit(1), KeyboardInterrupt()])
def test_anything_else_becomes_a_store_error_and_the_writer_goes_on(
    writer: GroupWriter, store: HeldStore, news: "queue.SimpleQueue[News]", failure: BaseException
) -> None:
    store.failure = failure
    writer.submit(batch_of(1))
    store.let_go.release()
    _, position, error = news.get(timeout=60)
    assert position is None
    assert isinstance(error, StoreError)
    assert error.__cause__ is failure
    store.failure = None
    writer.submit(batch_of(1))
    store.let_go.release()
    assert news.get(timeout=60)[1:] == (2, None)


def test_what_the_listener_raises_is_reported_and_ends_nothing(
    store: HeldStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: queue.SimpleQueue[object] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", lambda report: heard.put(report.exc_type))

    def fail_once(batch: Batch, position: int | None, error: StoreError | None) -> None:
        if position == 2:
            raise RuntimeError("a bug of the listener")
        heard.put(position)

    writer = GroupWriter(store, fail_once)
    for expected in (RuntimeError, 3):
        store.let_go.release()
        writer.submit(batch_of(1))
        assert heard.get(timeout=60) == expected
    writer.close()


def test_closing_waits_for_the_batch_in_flight(
    writer: GroupWriter, store: HeldStore, news: "queue.SimpleQueue[News]"
) -> None:
    writer.submit(batch_of(1))
    assert store.entered.acquire(timeout=60)
    closer = threading.Thread(target=writer.close)
    closer.start()
    assert news.empty()
    store.let_go.release()
    closer.join(timeout=60)
    assert not closer.is_alive()
    assert news.get(timeout=60)[1] == 2
    assert not writer.idle
    with pytest.raises(StoreError, match="closed"):
        writer.submit(batch_of(1))


def test_closing_twice_and_from_the_listener_does_no_harm(store: HeldStore) -> None:
    closed = threading.Event()

    def close(batch: Batch, position: int | None, error: StoreError | None) -> None:
        own.close()
        closed.set()

    own = GroupWriter(store, close)
    store.let_go.release()
    own.submit(batch_of(1))
    assert closed.wait(60)
    own.close()
