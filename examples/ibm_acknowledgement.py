"""Five ways to acknowledge, side by side, with a kill in each (CONTRACT C1-C11).

In each mode an application receives orders and the primary dies in the middle. Then the application crashes too, and
another one gets what is left. What had been received comes flagged; so may what only was on its way when the primary
died, for nobody knows that better.

Run it: python examples/ibm_acknowledgement.py
"""

import logging
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from legato.client import AcknowledgeMode, Connection, ConnectionFactory, Message, TextMessage
from legato.testing import BrokerPair, broker_pair


def main() -> None:
    with broker_pair() as brokers, connected(brokers) as observer:
        auto(brokers, observer)
        auto_with_a_listener(brokers, observer)
        dups_ok(brokers, observer)
        client(brokers, observer)
        transacted(brokers, observer)
        recover(brokers, observer)


def auto(brokers: BrokerPair, observer: Connection) -> None:
    print("AUTO: acknowledged when receive() returns, before the application works on it [C1, C2]")
    send(observer, "auto", *"12345")
    with connected(brokers) as application:
        session = application.create_session(acknowledge_mode=AcknowledgeMode.AUTO)
        consumer = session.create_consumer(session.create_queue("auto"))
        seen = [consumer.receive(timeout_s=10).text for _ in range(3)]
        brokers.fail_over()
        seen.append(consumer.receive(timeout_s=10).text)
    left = what_is_left(observer, "auto")
    print(f"  received {' '.join(seen)}, the kill after the third; left: {described(left)}")
    assert (seen, texts(left)) == ([*"1234"], ["5"])


def auto_with_a_listener(brokers: BrokerPair, observer: Connection) -> None:
    print("AUTO with a listener: acknowledged when it is over, well or not [C3, C6]; one is at risk [C4]")
    send(observer, "listened", *"12345")
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    go_on = threading.Event()
    logging.disable()  # or else the log shows the traceback of the listener that raises

    def on_message(message: Message) -> None:
        heard.put(message.text)
        if message.text == "2":
            raise ValueError("this one is too hard")
        if message.text == "3":
            go_on.wait()

    with connected(brokers) as application:
        session = application.create_session(acknowledge_mode=AcknowledgeMode.AUTO)
        session.create_consumer(session.create_queue("listened")).message_listener = on_message
        seen = [heard.get(timeout=10) for _ in range(3)]
        brokers.fail_over()
        go_on.set()
        seen += [heard.get(timeout=10) for _ in range(2)]
    left = what_is_left(observer, "listened")
    print(f"  heard {' '.join(seen)}, the kill during the third; left: {described(left)}")
    assert (seen, left) == ([*"12345"], [])


def dups_ok(brokers: BrokerPair, observer: Connection) -> None:
    print("DUPS_OK: acknowledged in lumps, some time later; a failure may bring a lump again [C5]")
    send(observer, "lazy", *"12345")
    with connected(brokers) as application:
        session = application.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK)
        consumer = session.create_consumer(session.create_queue("lazy"))
        before = [consumer.receive(timeout_s=10) for _ in range(2)]
        brokers.fail_over()
        after = [consumer.receive(timeout_s=10)]
        while after[-1].text != "5":
            after.append(consumer.receive(timeout_s=10))
    print(f"  received {' '.join(texts(before))}, the kill, then: {described(after)}")
    assert texts(before) == [*"12"]
    assert texts(after) in ([*"345"], [*"2345"], [*"12345"])
    assert all(message.redelivered for message in after if message.text in texts(before))


def client(brokers: BrokerPair, observer: Connection) -> None:
    print(
        "CLIENT: acknowledge() covers all that the session has received [C7, C11]; the rest comes again, flagged [C10]"
    )
    send(observer, "client", *"123456")
    with connected(brokers) as application:
        session = application.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = session.create_consumer(session.create_queue("client"))
        batch = [consumer.receive(timeout_s=10) for _ in range(4)]
        batch[1].acknowledge()
        assert consumer.receive(timeout_s=10).text == "5"
        brokers.fail_over()
    left = what_is_left(observer, "client")
    print(f"  received 1 2 3 4, acknowledged 2, received 5, the kill; left: {described(left)}")
    assert texts(left) == [*"56"]
    assert left[0].redelivered


def transacted(brokers: BrokerPair, observer: Connection) -> None:
    print("SESSION_TRANSACTED: by commit() [C1]; the rest comes again, flagged [C10]")
    send(observer, "transacted", *"12345")
    with connected(brokers) as application:
        session = application.create_session(transacted=True)
        consumer = session.create_consumer(session.create_queue("transacted"))
        for _ in range(2):
            consumer.receive(timeout_s=10)
        session.commit()
        assert consumer.receive(timeout_s=10).text == "3"
        brokers.fail_over()
    left = what_is_left(observer, "transacted")
    print(f"  received 1 2, committed, received 3, the kill; left: {described(left)}")
    assert texts(left) == [*"345"]
    assert left[0].redelivered


def recover(brokers: BrokerPair, observer: Connection) -> None:
    print("recover(): what was received and not acknowledged comes again [C8]; it need not be the same any more [C9]")
    session = observer.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    orders = session.create_queue("orders")
    producer = observer.create_session().create_producer(orders)
    producer.send(TextMessage("tea"))
    producer.send(TextMessage("today's bread"), time_to_live_ms=700)
    consumer = session.create_consumer(orders)
    received = [consumer.receive(timeout_s=10).text for _ in range(2)]
    brokers.fail_over()
    time.sleep(1)
    producer.send(TextMessage("fire extinguisher"), priority=9)
    session.recover()
    left = [consumer.receive(timeout_s=10) for _ in range(2)]
    print(f"  received {' and '.join(received)}, the kill, recover(); then: {described(left)}")
    assert texts(left) == ["fire extinguisher", "tea"]
    assert [message.redelivered for message in left] == [False, True]
    assert consumer.receive_no_wait() is None


@contextmanager
def connected(brokers: BrokerPair) -> Iterator[Connection]:
    # In Legato's own contract a message whose listener raised comes again; IBM's clients acknowledge it.
    with ConnectionFactory(brokers.url, listener_error="acknowledge").create_connection() as connection:
        connection.start()
        yield connection


def send(connection: Connection, name: str, *texts: str) -> None:
    with connection.create_session() as session, session.create_producer(session.create_queue(name)) as producer:
        for text in texts:
            producer.send(TextMessage(text))


def what_is_left(connection: Connection, name: str) -> list[Message]:
    """What another application gets of a queue."""
    with connection.create_session() as session, session.create_consumer(session.create_queue(name)) as consumer:
        return list(iter(consumer.receive_no_wait, None))


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def described(messages: list[Message]) -> str:
    return ", ".join(message.text + " (flagged)" * message.redelivered for message in messages) or "nothing"


if __name__ == "__main__":
    main()
