"""A listener cannot be raised at: the exception listener hears of a lost batch (CONTRACT A19, A12, A15, A17).

The same five messages as in gigaspaces_sync.py, with a message listener. The primary dies after the third; the
connection's exception listener gets a `SpaceLostError` that names the session, and the batch begins anew at its first
message.

Run it: python examples/gigaspaces_async.py
"""

import queue
import threading

from legato.client import AcknowledgeMode, ConnectionFactory, JMSError, Message, SpaceLostError, TextMessage
from legato.testing import broker_pair


def main() -> None:
    with (
        broker_pair() as brokers,
        ConnectionFactory(brokers.url, failover_contract="gigaspaces").create_connection() as connection,
    ):
        heard: queue.SimpleQueue[TextMessage | SpaceLostError] = queue.SimpleQueue()
        go_on = threading.Event()

        def on_message(message: Message) -> None:
            heard.put(message)
            if message.text == "message 3" and not message.redelivered:
                go_on.wait()  # the application works on it while the primary dies

        def on_exception(error: JMSError) -> None:
            heard.put(error)
            go_on.set()

        connection.exception_listener = on_exception
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        batch = session.create_queue("batch")
        consumer = session.create_consumer(batch)
        consumer.message_listener = on_message
        producer = connection.create_session().create_producer(batch)
        connection.start()
        for number in range(1, 6):
            producer.send(TextMessage(f"message {number}"))

        for _ in range(3):
            print("heard", heard.get(timeout=10).text)

        print(brokers.primary.name, "is killed")
        brokers.kill_primary()
        print(brokers.primary.name, "serves")

        error = heard.get(timeout=10)
        assert isinstance(error, SpaceLostError), "the exception listener must be told before anything comes again"
        assert error.session is session
        print("the exception listener heard SpaceLostError:", error)

        again = [heard.get(timeout=10) for _ in range(5)]
        for message in again:
            print("heard", message.text, "(redelivered)" if message.redelivered else "")
        assert [message.text for message in again] == [f"message {number}" for number in range(1, 6)]
        assert [message.redelivered for message in again[:3]] == [True, True, True]
        again[-1].acknowledge()
        print("all five are acknowledged")


if __name__ == "__main__":
    main()
