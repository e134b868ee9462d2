"""Three ways to carry on: re-attachment, automatic failover, and the application's own (CONTRACT E1, E2, E3, E6).

The network breaks while the broker lives: the client re-attaches to the same broker, and nobody notices. The broker
dies: the client fails over to the other one, with its temporary queue. And with `reconnect_attempts=0` the client
leaves it to the application, which hears of the loss and connects anew.

Run it: python examples/reattachment.py
"""

import threading

from legato.client import Connection, ConnectionFactory, JMSError, TextMessage
from legato.testing import BrokerPair, Network, broker_pair


def main() -> None:
    with broker_pair() as brokers, Network(brokers) as network:
        with ConnectionFactory(network.url).create_connection() as connection:
            connection.start()
            by_itself(connection, brokers, network)
        by_the_application(brokers)


def by_itself(connection: Connection, brokers: BrokerPair, network: Network) -> None:
    restored = threading.Semaphore(0)
    connection.failover_listener = lambda event: restored.release()
    session = connection.create_session()
    replies = session.create_temporary_queue()
    producer = session.create_producer(replies)
    consumer = session.create_consumer(replies)

    print("1. The network breaks; the broker lives")
    producer.send(TextMessage("before the cut"))
    network.cut()
    network.heal()
    assert restored.acquire(timeout=10)
    producer.send(TextMessage("after the cut"))
    assert [consumer.receive(timeout_s=10).text for _ in range(2)] == ["before the cut", "after the cut"]
    back = connection.failovers[-1]
    assert back.old_epoch == back.new_epoch
    print(f"   re-attached to the same broker, epoch {back.new_epoch}, in {back.gap_ms:.0f} ms: nothing is missing")

    print("2. The broker dies")
    producer.send(TextMessage("before the kill"))
    brokers.fail_over()
    assert restored.acquire(timeout=10)
    producer.send(TextMessage("after the kill"))
    assert [consumer.receive(timeout_s=10).text for _ in range(2)] == ["before the kill", "after the kill"]
    over = connection.failovers[-1]
    assert (over.old_epoch, over.new_epoch) == (1, 2)
    print(f"   failed over to epoch {over.new_epoch} in {over.gap_ms:.0f} ms: the temporary queue is still there")


def by_the_application(brokers: BrokerPair) -> None:
    print("3. The broker dies, and the application sees to it")
    lost = threading.Event()
    with ConnectionFactory(brokers.url, reconnect_attempts=0).create_connection() as connection:
        connection.exception_listener = lambda error: lost.set()
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("orders"))
        producer.send(TextMessage("tea"))
        brokers.fail_over()
        assert lost.wait(timeout=10)
        print("   the exception listener is told; there is no failover")
        try:
            producer.send(TextMessage("coffee"))
        except JMSError as error:
            print("   send() raised", type(error).__name__)
        else:
            raise AssertionError("a connection without failover must say that it is lost")

    with ConnectionFactory(brokers.url, reconnect_attempts=0).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        orders = session.create_queue("orders")
        session.create_producer(orders).send(TextMessage("coffee"))
        consumer = session.create_consumer(orders)
        assert [consumer.receive(timeout_s=10).text for _ in range(2)] == ["tea", "coffee"]
        print("   the application connected anew, and sent it again")


if __name__ == "__main__":
    main()
