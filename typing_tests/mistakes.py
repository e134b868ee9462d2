"""Nine mistakes of users, each marked as mypy and as pyright name it."""

from __future__ import annotations

from legato.client import ConnectionFactory, TextMessage

ConnectionFactory("amqp://localhost:5672", prefetc=10)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
ConnectionFactory("amqp://localhost:5672", prefetch="many")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
with ConnectionFactory("amqp://localhost:5672").create_connection() as connection:
    connection.start()
    with connection.create_session(transacted=True) as session:
        orders = session.create_queue("orders")
        producer = session.create_producer(orders)
        producer.sendd(TextMessage("tea"))  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

        producer.send(42)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

        consumer = session.create_consumer(orders)
        consumer.receive(timeout_ms=5)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
        consumer.receive(timeout=5)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
        consumer.receive_body(str, timeout=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

        message = consumer.receive(timeout_s=5)
        assert message is not None
        print(message.txt)  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]

        session.comit()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
