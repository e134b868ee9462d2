"""A transaction dies with its broker; one call sends again what it had sent (CONTRACT A5, A9, A16, E13).

What a transacted session received comes again and what it sent is disposed: `commit()` raises
`TransactionRolledBackError`, once, and the session goes on. Where other clients compute their sends anew,
`session.replay()` sends the very same messages in the next transaction.

Run it: python examples/transacted_replay.py
"""

from legato.client import Connection, ConnectionFactory, TextMessage, TransactionRolledBackError
from legato.testing import broker_pair


def all_of(connection: Connection, queue: str) -> list[str]:
    """What waits in a queue, consumed."""
    with connection.create_session() as session, session.create_consumer(session.create_queue(queue)) as consumer:
        return [message.text for message in iter(consumer.receive_no_wait, None)]


def main() -> None:
    with broker_pair() as brokers, ConnectionFactory(brokers.url).create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        producer = session.create_producer(session.create_queue("letters"))
        for letter in "abc":
            producer.send(TextMessage(letter))
            print("sent", letter, "in a transaction")

        print(brokers.primary.name, "is killed")
        brokers.kill_primary()
        print(brokers.primary.name, "serves")

        try:
            session.commit()
        except TransactionRolledBackError as error:
            print("commit() raised TransactionRolledBackError:", error)
        else:
            raise AssertionError("commit() must not claim what was lost")
        assert all_of(connection, "letters") == []
        print("nothing of the transaction is visible")

        print("replay() sends", session.replay(), "messages again")
        session.commit()
        letters = all_of(connection, "letters")
        print("committed:", *letters)
        assert letters == ["a", "b", "c"]


if __name__ == "__main__":
    main()
