"""`legato send`: puts messages on a queue."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from legato.cli.contents import content
from legato.cli.options import URL_DEFAULT, QueueArgument, UrlOption, a_text
from legato.cli.output import say
from legato.errors import JMSError
from legato.quoting import is_unicode, quoted

WILDCARDS = frozenset("*#")
"""Of patterns, such as `legato queues 'orders.*'` takes."""
BLOCKED_TOLD_AFTER_S = 3.0
"""A broker that takes no message for so long is told of: it holds back who sends to a full address."""


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
        Patience(queue) as patience,
    ):
        producer = session.create_producer(session.create_queue(queue))
        for body in bodies(text, file, count):
            message = BytesMessage(body) if isinstance(body, bytes) else TextMessage(body)
            for name, value in properties.items():
                message.set_property(name, value)
            with patience.waiting():
                producer.send(message, completion_listener=None)
            sent += 1
        with patience.waiting():
            producer.flush()
    say(f"sent {sent} to {quoted(queue)}")
    if not WILDCARDS.isdisjoint(queue):
        say(f"{quoted(queue)} is the name of one queue: in a name * and # are no wildcards.", err=True)


class Patience:
    """Says once, on standard error, that the broker takes no messages.

    Args:
        queue: that is sent to.
        told_after_s: seconds for which one call lasts.
    """

    def __init__(self, queue: str, told_after_s: float = BLOCKED_TOLD_AFTER_S) -> None:
        self._queue = queue
        self._told_after_s = told_after_s
        self._calls = 0
        self._inside = False
        self._done = threading.Event()

    def __enter__(self) -> "Patience":
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the broker is to take something."""
        self._calls += 1
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _watch(self) -> None:
        seen = -1
        while not self._done.wait(self._told_after_s):
            if self._inside and self._calls == seen:
                say(
                    f"the broker takes no messages for {self._queue} now; waiting. It may be full, or the broker away: "
                    f"see legato queue show {self._queue}, or end this with Ctrl-C.",
                    err=True,
                )
                return
            seen = self._calls if self._inside else -1


def bodies(text: str | None, file: Path | None, count: int) -> Iterator[str | bytes]:
    """The bodies to send, in order."""
    if file is not None:
        data = content(file)
        for _ in range(count):
            yield data
    elif text == "-":
        for number, line in enumerate(_lines(), 1):
            _check_text(line, f"line {number} of standard input", "The lines before it were sent. ")
            for _ in range(count):
                yield line.removesuffix("\n")
    elif text is not None:
        _check_text(text, "the argument")
        for _ in range(count):
            yield text


def _lines() -> Iterator[str]:
    """Lines of standard input; what cannot be decoded is in them as surrogates."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return iter(sys.stdin)


def _check_text(text: str, what: str, so_far: str = "") -> None:
    if not is_unicode(text):
        raise JMSError(f"No text in UTF-8: {what}. {so_far}`legato send --file` sends bytes.")


def parse_property(given: str) -> tuple[str, str]:
    """`NAME=VALUE` as a pair."""
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"--property wants NAME=VALUE, not {given!r}")
    return name, a_text(value)
