"""`legato browse`: shows the waiting messages of a queue and leaves them there."""

from typing import Annotated

import typer

from legato.cli.options import URL_DEFAULT, JsonOption, QueueArgument, UrlOption
from legato.cli.output import say
from legato.errors import InvalidDestinationError
from legato.quoting import quoted


def browse(
    queue: QueueArgument,
    count: Annotated[int, typer.Option("--count", help="Show at most N messages; 0 shows all.", min=0)] = 20,
    as_json: JsonOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Print the waiting messages of a queue, oldest first, without consuming them.

    Example: legato browse orders --count 5 --json
    """
    from itertools import islice

    from legato.cli.management import missing_queue
    from legato.cli.rendering import say_message
    from legato.client import ConnectionFactory
    from legato.client.failover.uri import short_wait
    from legato.core.address_prefixes import TOPIC_PREFIX

    if queue.startswith(TOPIC_PREFIX):
        raise InvalidDestinationError(
            f"{quoted(queue)} is a topic: its messages wait in its subscriptions, which legato subscriptions lists."
        )
    with (
        ConnectionFactory(url, **short_wait(url)).create_connection() as connection,
        connection.create_session() as session,
    ):
        connection.start()
        if missing := missing_queue(connection, url, queue):
            raise InvalidDestinationError(f"There is no queue {queue!r}. {missing}")  # a browser would make the queue
        with session.create_browser(session.create_queue(queue)) as messages:
            message = None
            for message in islice(messages, count or None):
                say_message(message, as_json=as_json)
    if message is None:
        say(f"no message waits in {quoted(queue)}", err=True)
