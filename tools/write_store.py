"""Writer of a packed store with some of everything, which later versions of Legato must open.

Run it on the version whose format is to be kept: `python -m tools.write_store tests/integration/store/formats/3.gz`.
"""

import gzip
import sys
import tempfile
from pathlib import Path

from legato.client import AcknowledgeMode, BytesMessage, ConnectionFactory, TextMessage
from legato.testing import broker_pair

HOUR_MS = 3_600_000
LARGE_BYTES = 3 << 20


def fill(url: str) -> None:
    """Leave in a broker whatever a store may have to hold."""
    with ConnectionFactory(url, client_id="keeper").create_connection() as connection:
        connection.start()
        session = connection.create_session()
        notices = session.create_topic("notices")
        audits = session.create_durable_consumer(notices, "audit", selector="weight > 3")
        shared = session.create_shared_durable_consumer(notices, "shared")
        audits.close()
        shared.close()
        orders = session.create_queue("orders")
        producer = session.create_producer(orders)
        for number in range(5):
            producer.send(TextMessage(f"order {number}"), priority=9 if number == 4 else 4)
        producer.send(TextMessage("later"), delivery_delay_ms=1_000 * HOUR_MS)
        producer.send(TextMessage("named"), duplicate_id="order-7")
        large = BytesMessage()
        large.write_bytes(bytes(LARGE_BYTES))
        session.create_producer(session.create_queue("large")).send(large)
        for weight in (1, 7):
            notice = TextMessage(f"weighs {weight}")
            notice.properties["weight"] = weight
            session.create_producer(notices).send(notice)
        rolling = connection.create_session(transacted=True)
        assert rolling.create_consumer(orders).receive(timeout_s=10) is not None
        rolling.rollback()
        rolling.close()
        holding = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        assert holding.create_consumer(orders).receive(timeout_s=10) is not None
        committing = connection.create_session(transacted=True)
        committing.create_producer(session.create_queue("committed")).send(TextMessage("in a transaction"))
        committing.commit()


def main(file: Path) -> None:
    """Write the store and pack it."""
    with tempfile.TemporaryDirectory() as directory:
        with broker_pair(directory=Path(directory)) as pair:
            fill(pair.url)
        file.write_bytes(gzip.compress((pair.store / "data.mdb").read_bytes(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
