"""Five messages, one acknowledgement, and a primary that dies after the third (CONTRACT A18, A7, A11, A15, A17).

The application is written for GigaSpaces: an acknowledged batch is a transaction on one space. When that space is
lost, the next `receive()` says so with `TransactionRolledBackError`, and the batch begins anew at its first message.

Run it: python examples/gigaspaces_sync.py
"""

from legato.client import AcknowledgeMode, ConnectionFactory, TextMessage, TransactionRolledBackError
from legato.testing import broker_pair


def main() -> None:
    with (
        broker_pair() as brokers,
        ConnectionFactory(brokers.url, failover_contract="gigaspaces").create_connection() as connection,
    ):
        connection.start()
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        batch = session.create_queue("batch")
        producer = session.create_producer(batch)
        for number in range(1, 6):
            producer.send(TextMessage(f"message {number}"))
        consumer = session.create_consumer(batch)

        for _ in range(3):
            print("received", consumer.receive(timeout_s=10).text)

        print(brokers.primary.name, "is killed")
        brokers.kill_primary()
        print(brokers.primary.name, "serves")

        try:
            consumer.receive(timeout_s=10)
        except TransactionRolledBackError as error:
            print("the fourth receive() raised TransactionRolledBackError:", error)
        else:
            raise AssertionError("the fourth receive() must say that the batch was rolled back")

        again = [consumer.receive(timeout_s=10) for _ in range(5)]
        for message in again:
            print("received", message.text, "(redelivered)" if message.redelivered else "")
        assert [message.text for message in again] == [f"message {number}" for number in range(1, 6)]
        assert [message.redelivered for message in again[:3]] == [True, True, True]

        again[-1].acknowledge()
        assert consumer.receive_no_wait() is None
        print("all five are acknowledged: none is left")


if __name__ == "__main__":
    main()
