"""What must be true of a store's databases among one another after every commit."""

from collections import Counter
from itertools import pairwise

from legato.amqp.codec.stubs import read_stub
from legato.store import values
from legato.store.block_writer import BLOCK_BODY_BYTES, BLOCK_MESSAGES, BLOCK_REFERENCES
from legato.store.blocks import Block
from legato.store.consistency import Consistency
from legato.store.keys import read_chunk_key, read_expiry, read_place, read_position
from legato.store.lmdb import LmdbStore


def blocks(store: LmdbStore, database: str = "messages") -> list[Block]:
    """All blocks of a database, in order; their bodies are not to be looked at."""
    with store._reading() as txn:
        return [Block(*read_place(key), value) for key, value in txn.cursor(db=getattr(store._databases, database))]


def check_consistent(store: LmdbStore) -> None:
    """Bodies, counts and references agree, the index leads to all that expires, blocks are within bounds."""
    held = blocks(store)
    counted = {(b.queue, seq): n for b in blocks(store, "copies") for seq, n in zip(b.seqs(), b.sizes(), strict=True)}
    assert counted == Counter((block.topic, seq) for block in held if block.topic for seq in block.seqs())
    topics = {topic for topic, _ in counted}
    assert counted.keys() == {(block.queue, seq) for block in held if block.queue in topics for seq in block.seqs()}
    with store._reading() as txn:
        index = [read_expiry(key) for key, _ in txn.cursor(db=store._databases.expiries)]
    assert index == sorted((b.first_expiry_us(), b.queue, b.first) for b in held if b.first_expiry_us())
    check_larges(store)
    with store._reading() as txn:
        Consistency(txn, store._databases, store.path).check()
    for block in held:
        assert block.count <= (BLOCK_REFERENCES if block.topic else BLOCK_MESSAGES)
        assert block.topic or block.count == 1 or block.total_size() <= BLOCK_BODY_BYTES
        assert not block.expiries or any(block.expiries)
    for before, behind in pairwise(held):
        assert before.queue < behind.queue or before.last < behind.first


def check_larges(store: LmdbStore) -> None:
    """Stubs are counted, and every chunk is of a large message that is either counted or loose."""
    databases = store._databases
    counted: Counter[int] = Counter()
    with store._reading() as txn:
        for key, value in txn.cursor(db=databases.messages):
            block = Block(*read_place(key), value)
            stubs = [read_stub(body) for body in block.bodies(0, block.count)] if not block.topic else []
            counted.update(stub.large for stub in stubs if stub is not None)
        larges = {read_position(key): values.decode_number(value) for key, value in txn.cursor(db=databases.larges)}
        loose = {read_position(key) for key, _ in txn.cursor(db=databases.loose)}
        chunks = {read_chunk_key(key)[0] for key, _ in txn.cursor(db=databases.chunks)}
    assert larges == counted
    assert loose.isdisjoint(larges)
    assert chunks == loose | larges.keys()
