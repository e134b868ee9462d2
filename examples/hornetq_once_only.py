"""HornetQ's recipe: catch, try again, duplicate ids; once and only once (CONTRACT E10, E11, E12, E14, E15, E16, E17).

In the contract `hornetq` a failover releases whoever waits for the broker, with an error: whether the send was stored,
or the transaction committed, is not known. The application tries again with the same duplicate ids, and the broker
ignores what it has. Here the primary dies just before and just after it has stored something.

Run it: python examples/hornetq_once_only.py
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from legato.client import Connection, ConnectionFactory, JMSError, TextMessage, TransactionRolledBackError
from legato.testing import BrokerPair, broker_pair

COUNT = 6


def main() -> None:
    with (
        broker_pair() as brokers,
        ConnectionFactory(brokers.url, failover_contract="hornetq").create_connection() as connection,
    ):
        connection.exception_listener = lambda error: print("  the exception listener is told:", error)
        connection.start()
        send_one_by_one(brokers, connection)
        send_in_transactions(brokers, connection)


def send_one_by_one(brokers: BrokerPair, connection: Connection) -> None:
    print("1. Without transactions")
    session = connection.create_session()
    producer = session.create_producer(session.create_queue("orders"))

    def send(number: int) -> None:
        producer.send(TextMessage(str(number)), duplicate_id=f"order {number}")
        print(f"  order {number} is sent")

    for number in range(COUNT):
        with killed(brokers, {2: "before-commit", 4: "between-commit-and-confirm"}.get(number)):
            try_until_it_works(lambda number=number: send(number))
    assert_each_once(connection, "orders")


def send_in_transactions(brokers: BrokerPair, connection: Connection) -> None:
    print("2. In transactions")
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue("invoices"))

    def send_two(number: int) -> None:
        for each in (number, number + 1):
            producer.send(TextMessage(str(each)), duplicate_id=f"invoice {each}")
        session.commit()
        print(f"  invoices {number} and {number + 1} are committed")

    for number in range(0, COUNT, 2):
        with killed(brokers, {2: "before-commit", 4: "between-commit-and-outcome"}.get(number)):
            try_until_it_works(lambda number=number: send_two(number))
    assert_each_once(connection, "invoices")


def try_until_it_works(work: Callable[[], None]) -> None:
    """The recipe."""
    while True:
        try:
            return work()
        except TransactionRolledBackError as error:
            print("  rolled back, or so it seems:", error)
        except JMSError as error:
            if error.code != "UNBLOCKED":
                raise
            print("  released:", error)


def killed(brokers: BrokerPair, point: str | None) -> AbstractContextManager[None]:
    """The primary dies at a point of what it does meanwhile, if one is named."""
    if point is None:
        return nullcontext()
    print(f"  {brokers.primary.name} is killed {point.replace('-', ' ')}")
    return brokers.failing_over_at(point)


def assert_each_once(connection: Connection, queue: str) -> None:
    with connection.create_session() as session, session.create_consumer(session.create_queue(queue)) as consumer:
        numbers = [int(message.text) for message in iter(consumer.receive_no_wait, None)]
    assert numbers == list(range(COUNT)), "each must be there once, in order"
    print(f"  {COUNT} {queue}: each once, in order")


if __name__ == "__main__":
    main()
