"""`legato receive`: takes messages from a queue and prints them."""

from typing import Annotated

import typer

from legato.cli.options import URL_DEFAULT, JsonOption, QueueArgument, UrlOption, a_number
from legato.cli.output import say
from legato.quoting import quoted


def receive(
    queue: QueueArgument,
    count: Annotated[int, typer.Option("--count", help="Stop after N messages; 0 takes all.", min=0)] = 1,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait",
            help="Stop when no message came for this many seconds.",
            metavar="SECONDS",
            min=0,
            callback=a_number,
        ),
    ] = 1.0,
    as_json: JsonOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Receive messages, print each on a line, and acknowledge it after printing it.

    The exit code is 1 if no message came. Example: legato receive orders --count 0 --json
    """
    from legato.cli.management import missing_queue
    from legato.cli.rendering import say_message
    from legato.client import AcknowledgeMode, ConnectionFactory, Message
    from legato.client.failover.uri import short_wait

    received = 0
    with (
        ConnectionFactory(url, **short_wait(url)).create_connection() as connection,
        connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) as session,
    ):
        connection.start()
        missing = missing_queue(connection, url, queue)
        consumer = session.create_consumer(session.create_queue(queue))

        def come() -> Message | None:
            """The next message: what waits in the queue comes, however short the wait is and busy the broker."""
            message = consumer.receive(timeout_s=wait_s)
            return consumer.receive_no_wait() if message is None else message

        while (not count or received < count) and (message := come()) is not None:
            say_message(message, as_json=as_json)
            # Printed first: a message whose line never reached the terminal comes again.
            message.acknowledge()
            received += 1
    if not received:
        said = f"no message came from {quoted(queue)} within {wait_s:g} s"
        if missing:
            said += f". There was no such queue: this command made it. {missing} `legato queue delete` takes it away."
        say(said, err=True)
        raise typer.Exit(1)
