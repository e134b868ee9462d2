"""`legato send`: puts messages on a queue."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from legato.cli.options import URL_DEFAULT, QueueArgument, UrlOption
from legato.cli.output import say


def send(
    queue: QueueArgument,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]", help="The text, or - for one message per line of standard input.", show_default=False
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Send this file as one bytes message.", metavar="FILE"),
    ] = None,
    count: Annotated[int, typer.Option("--count", help="Send it N times.", min=1)] = 1,
    property_: Annotated[
        list[str] | None,
        typer.Option("--property", help="A property of the message; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Send durable messages to a queue; returns when the broker has stored them.

    Examples: legato send orders 'one pound of tea'; seq 1000 | legato send numbers -
    """
    if (text is None) == (file is None):
        raise typer.BadParameter("give either TEXT (or -) or --file")
    properties = dict(parse_property(given) for given in property_ or [])

    from legato.client import BytesMessage, ConnectionFactory, TextMessage
    from legato.client.failover.uri import short_wait

    sent = 0
    with (
        ConnectionFactory(url, **short_wait(url)).create_connection() as connection,
        connection.create_session() as session,
    ):
        producer = session.create_producer(session.create_queue(queue))
        for body in bodies(text, file, count):
            message = BytesMessage(body) if isinstance(body, bytes) else TextMessage(body)
            for name, value in properties.items():
                message.set_property(name, value)
            producer.send(message, completion_listener=None)
            sent += 1
        producer.flush()
    say(f"sent {sent} to {queue}")


def bodies(text: str | None, file: Path | None, count: int) -> Iterator[str | bytes]:
    """The bodies to send, in order."""
    if file is not None:
        data = file.read_bytes()
        for _ in range(count):
            yield data
    elif text == "-":
        for line in sys.stdin:
            for _ in range(count):
                yield line.removesuffix("\n")
    elif text is not None:
        for _ in range(count):
            yield text


def parse_property(given: str) -> tuple[str, str]:
    """`NAME=VALUE` as a pair."""
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"--property wants NAME=VALUE, not {given!r}")
    return name, value
