"""Filler of a store with some of everything, and recorder of what is in it: run by former versions of Legato.

    PYTHONPATH=<sources of a former version> python fill.py DIRECTORY

It fills the new store `store` in a directory through a broker of that version, which it kills; writes the ledger of
that broker to `ledger`; fills the store further by itself; and writes what that version reads from it to `record.json`.
What a version does not know is left out. `tools/write_stores.py` runs it; the tests import `record`, which then reads a
store with the present version.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

HOUR_MS = 3_600_000
LARGE_BYTES = 3 << 20
"""So much is stored in parts by all versions that have large messages."""
DUPLICATE_ID = "order-7"
SETTINGS = '[[address]]\nmatch = "orders"\nmaximum_deliveries = 2\n'
LANE = 1 << 56
ALL = 1 << 30
AMQP_VALUE = b"\x00\x53\x77\xa1\x06"
"""In front of six letters it makes a message."""
SIZE = len(AMQP_VALUE) + 6


# -- through a broker


def fill_by_broker(store: Path) -> None:
    """Leave in a store what clients leave there, and kill the broker while a client has messages."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = store.parent / "settings.toml"
    settings.write_text(SETTINGS if _knows("legato.core.settings", "AddressSettings") else "")
    command = [sys.executable, "-m", "legato.cli", "serve", "--store", str(store), "--listen", f"127.0.0.1:{port}"]
    broker = subprocess.Popen([*command, "--no-ledger", "--config", str(settings)], stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("active")
        connection = _connect(port)
        connection.start()
        _send(connection)
        _roll_back(connection)
        kept = _hold(connection)
    finally:
        broker.kill()
        broker.wait()
    del kept


def _connect(port: int) -> Any:
    client = importlib.import_module("legato.client")
    connection = client.ConnectionFactory(f"amqp://127.0.0.1:{port}").create_connection()
    if isinstance(getattr(type(connection), "client_id", None), property) and type(connection).client_id.fset:
        connection.client_id = "keeper"
    return connection


def _send(connection: Any) -> None:
    client = importlib.import_module("legato.client")
    session = connection.create_session()
    if hasattr(session, "create_durable_consumer"):
        notices = session.create_topic("notices")
        session.create_durable_consumer(notices, "audit", selector="weight > 3").close()
        session.create_shared_durable_consumer(notices, "shared").close()
        for weight in (1, 7):
            notice = client.TextMessage(f"weighs {weight}")
            notice.properties["weight"] = weight
            session.create_producer(notices).send(notice)
        large = client.BytesMessage()
        large.write_bytes(bytes(LARGE_BYTES))
        session.create_producer(session.create_queue("large")).send(large)
        session.create_temporary_queue()
    orders = session.create_queue("orders")
    producer = session.create_producer(orders)
    for number in range(6):
        producer.send(client.TextMessage(f"order {number}"), priority=9 if number == 4 else 4)
    producer.send(client.TextMessage("until 2286"), time_to_live_ms=250 * 365 * 24 * HOUR_MS)
    parameters = inspect.signature(producer.send).parameters
    if "delivery_delay_ms" in parameters:
        producer.send(client.TextMessage("later"), delivery_delay_ms=250 * 365 * 24 * HOUR_MS)
    if "duplicate_id" in parameters:
        producer.send(client.TextMessage("named"), duplicate_id=DUPLICATE_ID)
    numbers = session.create_queue("numbers")
    counting = session.create_producer(numbers)
    for number in range(20):
        counting.send(client.TextMessage(str(number)))
    consumer = session.create_consumer(numbers)
    for _ in range(7):
        assert consumer.receive(timeout_s=10) is not None
    consumer.close()
    committing = connection.create_session(transacted=True)
    committing.create_producer(session.create_queue("committed")).send(client.TextMessage("in a transaction"))
    committing.commit()


def _roll_back(connection: Any) -> None:
    """One message comes to the dead letters, if there are any; one has been given back."""
    for _ in range(3):
        session = connection.create_session(transacted=True)
        assert session.create_consumer(session.create_queue("orders")).receive(timeout_s=10) is not None
        session.rollback()
        session.close()


def _hold(connection: Any) -> Any:
    """Three messages are with an application, of which one is acknowledged."""
    client = importlib.import_module("legato.client")
    session = connection.create_session(acknowledge_mode=client.AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue("numbers"))
    first = consumer.receive(timeout_s=10)
    first.acknowledge()
    held = [consumer.receive(timeout_s=10) for _ in range(3)]
    assert None not in held
    # What it sends now is durable with all that came before.
    sender = connection.create_session()
    sender.create_producer(sender.create_queue("committed")).send(client.TextMessage("the last one"))
    return session, consumer, held


# -- through the store


def fill_by_store(directory: Path) -> None:
    """Add what clients bring about only with trouble: facts that the store of that version understands."""
    facts = importlib.import_module("legato.core.facts")
    store = importlib.import_module("legato.store.lmdb").LmdbStore(directory)
    meta = store.begin_epoch("filler", 1_000_000)
    queue, producer = meta.next_queue, meta.next_producer
    _commit(
        store,
        meta.epoch,
        [
            facts.QueueCreated(queue, "by hand"),
            facts.ProducerRegistered(producer, "refused"),
            *(facts.MessageStored(queue, seq, SIZE, f"ID:{seq}", producer, seq) for seq in range(1, 41)),
            *(facts.NumberRefused(producer, number) for number in (41, 43, 44)),
        ],
    )
    gone = [seq for seq in range(1, 41) if seq % 3 == 0]
    returned = facts.MessageReturned(queue, 2, 1, False, 7, "rollback")
    _commit(
        store,
        meta.epoch,
        [
            *(facts.MessageConsumed(queue, seq, 7, 1_500_000, 1) for seq in gone),
            returned,
            facts.MessagePresented(queue, 4, 7),
            facts.DispatchMarked(queue, 5),
            facts.TransactionCommitted(b"transaction one", 1, 0),
            facts.TransactionCommitted(b"transaction two", 0, 1),
        ],
    )
    if hasattr(facts, "QueuePaused"):
        _commit(store, meta.epoch, [facts.MessageReturned(queue, 2, 2, True, 8, "disconnect")])
        _fill_topics(store, facts, meta.epoch, queue + 1)
    store.close()


def _fill_topics(store: Any, facts: Any, epoch: int, topic: int) -> None:
    kind = facts.Kind
    first, second, paused, deleted = topic + 1, topic + 2, topic + 3, topic + 4
    _commit(
        store,
        epoch,
        [
            facts.QueueCreated(topic, "topic by hand", kind.TOPIC),
            facts.QueueCreated(first, "first by hand", kind.SUBSCRIPTION, topic, "weight > 3", True, "box"),
            facts.QueueCreated(second, "second by hand", kind.SUBSCRIPTION, topic, temporary=True, container="box"),
            facts.QueueCreated(paused, "paused by hand"),
            facts.QueueCreated(deleted, "deleted by hand"),
            facts.QueuePaused(paused, True),
            facts.QueueGrouped(paused),
            *(facts.MessageStored(paused, lane * LANE + 1, SIZE, f"ID:l{lane}", expires_us=1 << 60) for lane in (0, 3)),
            *(facts.MessageStored(deleted, seq, SIZE, f"ID:d{seq}") for seq in range(1, 9)),
            *(facts.MessagePublished(topic, seq, SIZE, f"ID:t{seq}", [first, second]) for seq in range(1, 5)),
            facts.MessagePublished(topic, 5, SIZE, "ID:t5", [first], expires_us=1 << 60),
        ],
    )
    _commit(
        store,
        epoch,
        [facts.MessageConsumed(first, 2, 7, 1_500_000, 1), facts.QueueDeleted(deleted, "deleted by hand", 8)],
    )
    if hasattr(facts, "DuplicateIdKept"):
        kept = [facts.DuplicateIdKept(paused, b"id %d" % seq, 3, f"ID:n{seq}") for seq in range(2, 7)]
        stored = [facts.MessageStored(paused, seq, SIZE, f"ID:n{seq}") for seq in range(2, 7)]
        _commit(store, epoch, [fact for pair in zip(kept, stored, strict=True) for fact in pair])


def _commit(store: Any, epoch: int, facts: list[Any]) -> None:
    batch = importlib.import_module("legato.core.records").Batch
    names = [type(fact).__name__ for fact in facts]
    bodies = [
        AMQP_VALUE + b"body%02d" % (at % 100)
        for at in range(names.count("MessageStored") + names.count("MessagePublished"))
    ]
    store.commit(batch(epoch, 2_000_000, facts, bodies))


# -- what is in it


def record(directory: Path) -> dict[str, Any]:
    """What the version of Legato that is imported reads from a store."""
    store = importlib.import_module("legato.store.lmdb").LmdbStore(directory, read_only=True)
    values = importlib.import_module("legato.store.values")
    try:
        queues = list(store.queues())
        return {
            "meta": msgspec.to_builtins(store.meta()),
            "queues": [{**_fields(queue), "messages": _messages(store, queue)} for queue in queues],
            "producers": [_fields(values.decode_producer(value)) for _, value in _entries(store, "producers")],
            **{name: _raw(store, name) for name in ("queue_names", "producer_names", "outcomes", "outcome_times")},
            **{name: _raw(store, name) for name in ("subscriptions", "temporaries", "deleted", "copies", "expiries")},
            **{name: _raw(store, name) for name in ("deliveries", "larges", "loose")},
            **{name: _raw(store, name) for name in ("duplicates", "duplicate_places", "taken")},
            "chunks": {
                key: hashlib.sha256(bytes.fromhex(value)).hexdigest() for key, value in _raw(store, "chunks").items()
            },
            "log": [
                [position, entry.epoch, entry.time_us, [msgspec.to_builtins(fact) for fact in entry.facts]]
                for position, entry in store.log(0, ALL)
            ],
        }
    finally:
        store.close()


def _messages(store: Any, queue: Any) -> list[dict[str, Any]]:
    lanes = (0, *getattr(queue, "lanes", ()))
    return [_fields(message) for lane in lanes for message in store.messages(queue.queue, lane * LANE, ALL, ALL)]


def _fields(struct: Any) -> dict[str, Any]:
    """JSON has no bytes and no keys that are numbers."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(struct))
    return fields


def _raw(store: Any, name: str) -> dict[str, str]:
    return {bytes(key).hex(): bytes(value).hex() for key, value in _entries(store, name)}


def _entries(store: Any, name: str) -> list[tuple[bytes, bytes]]:
    database = getattr(store._databases, name, None)
    if database is None:
        return []
    with store._env.begin() as txn, txn.cursor(db=database) as cursor:
        return list(cursor)


def _knows(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


def main(directory: Path) -> None:
    """Fill the store and record what is in it."""
    store = directory / "store"
    fill_by_broker(store)
    importlib.import_module("legato.spark.exporter").export_all(store, directory / "ledger")
    fill_by_store(store)
    (directory / "record.json").write_bytes(msgspec.json.encode(record(store)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
