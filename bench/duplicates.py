"""The broker's work for a message with a duplicate id, against one without.

Messages are read as they come from the wire, published in commits of so many, and as many are consumed. The window is
full from the beginning. What is counted is processor time: reading (`admit`), the core and the store's commits.
"""

import argparse
import time
from pathlib import Path

from bench.figures import interleave
from bench.harness import finish_pairs, note, options, temporary_store
from legato.amqp import names
from legato.amqp.codec.admission import Admission
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.core.broker import Broker
from legato.core.settings import AddressSettings
from legato.core.traits import PLAIN
from legato.server.messages.message_bodies import MessageBodies
from legato.server.messages.transfers import traits_of
from legato.store.lmdb import LmdbStore


def encoded(number: int, size: int, *, named: bool) -> bytes:
    """A message as a JMS client sends it, with one property."""
    said = {"shop": "Lyon"} | ({names.DUPLICATE_ID: f"order {number}"} if named else {})
    properties = Properties(message_id=f"ID:bench-{number}", to="q", creation_ms=1_700_000_000_000 + number)
    return encode_message(
        header=Header(durable=True), properties=properties, application_properties=said, body=DataBody(bytes(size))
    )


def measure(named: bool, given: argparse.Namespace) -> float:
    """Messages a second of processor time."""
    settings = AddressSettings(duplicate_window=given.window)
    with temporary_store() as path:
        store = LmdbStore(Path(path), sync=False)
        meta = store.begin_epoch("bench", 0)
        broker = Broker(store, meta, bodies=MessageBodies(), settings=lambda address: settings)
        queue, admit = broker.directory.queue("q"), Admission().admit
        consumer, _ = broker.receivers.attach(queue, None, "c", reports_presented=False)
        spent = 0.0
        warm = given.window // given.batch
        for commit in range(warm + given.count // given.batch):
            first = commit * given.batch
            arrived = [encoded(number, given.size, named=named) for number in range(first, first + given.batch)]
            begin = time.thread_time()
            for data in arrived:
                body, message_id, special = admit(data)
                broker.publisher.publish(
                    queue, body, message_id, data, PLAIN if special is None else traits_of(special, 0)
                )
            batch = broker.take_batch(commit)
            assert batch is not None
            store.commit(batch)
            broker.committed(commit)
            broker.receivers.flow(consumer, given.batch, False, commit)
            broker.dispatcher.dispatch_returned(commit)
            broker.take_effects()
            for message in list(consumer.unsettled.values()):
                broker.settlement.acknowledge(consumer, message, confirm=False)
            if commit >= warm:
                spent += time.thread_time() - begin
        store.close()
    note(f"{'with' if named else 'without'} ids: {spent / given.count * 1e6:.2f} us a message")
    return float(given.count / spent)


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=20_000)
    parser.add_argument("--window", type=int, default=20_000, help="ids that the address remembers")
    parser.add_argument("--batch", type=int, default=500, help="messages published by a commit")
    given = parser.parse_args()
    pairs = interleave(lambda: measure(True, given), lambda: measure(False, given), given.pairs)
    finish_pairs(
        "duplicates",
        f"the broker's processor time, commits of {given.batch}, {given.size} bytes, a window of {given.window} ids",
        ("with ids", "without"),
        pairs,
        None,
        unit="messages/s",
    )


if __name__ == "__main__":
    main()
