"""A digest of what a store holds: replicas at the same commit have the same one.

What each store removes by itself, when it comes to it, does not count: what deleted queues held, outcomes past their
time, parts of large messages that nobody needs, bodies in topics, and the log of facts, of which a primary keeps only
what its ledger does not have.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from legato.amqp.codec.stubs import read_stub
from legato.core.facts import Kind
from legato.core.records import QueueRecord, StoredMessage
from legato.store import values
from legato.store.backup import Snapshot

DIGEST_BYTES = 16
PAGE = 1_000
PAGE_BYTES = 1 << 22


class ContentDigest(msgspec.Struct, frozen=True):
    """What a store holds.

    Args:
        epoch: of the last commit.
        commit: its position in the log.
        digest: of the content as of that commit, in hexadecimal digits.
    """

    epoch: int
    commit: int
    digest: str


def content_digest(path: Path) -> ContentDigest:
    """The digest of the store in a directory, as of one commit; a broker may serve from it meanwhile.

    Raises:
        StoreError: it cannot be read.
    """
    store = Snapshot(path)
    try:
        meta = store.meta()
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        larges: set[int] = set()
        for queue in store.queues():
            _add_queue(digest, store, queue, larges)
        after = 0
        while found := store.producers(after, PAGE):
            digest.update(values.encode(found))
            after = found[-1].producer
        numbers = [meta.epoch, meta.next_queue, meta.next_producer, meta.next_consumer, meta.steady_us]
        digest.update(values.encode(numbers))
        return ContentDigest(meta.epoch, meta.log_position, digest.hexdigest())
    finally:
        store.close()


def _add_queue(digest: hashlib.blake2b, store: Snapshot, queue: QueueRecord, larges: set[int]) -> None:
    """`larges` has the numbers of large messages whose bodies the digest has: many subscriptions may share one."""
    for kept in store.kept_ids(queue.queue):
        digest.update(values.encode(kept))
    if queue.kind == Kind.TOPIC:
        digest.update(values.encode([queue.queue, queue.name]))
        return
    digest.update(values.encode(queue))
    digest.update(values.encode([[*msgspec.structs.astuple(each)] for each in store.taken(queue.queue)]))
    for lane in sorted({0, *queue.lanes}):
        after = lane << 56
        while found := store.messages(queue.queue, after, PAGE, PAGE_BYTES):
            digest.update(values.encode(found))
            for message in found:
                _add_body(digest, store, message, larges)
            after = found[-1].seq


def _add_body(digest: hashlib.blake2b, store: Snapshot, message: StoredMessage, larges: set[int]) -> None:
    """What a large message has besides its stub."""
    stub = read_stub(message.body)
    if stub is not None and stub.large not in larges:
        larges.add(stub.large)
        index = 0
        while (part := store.chunk(stub.large, index)) is not None:
            digest.update(values.encode(part))
            index += 1
