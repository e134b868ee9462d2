"""What a drill asks of brokers' management: a switchover, and at its end that its own queues and topics go."""

import json
from typing import Any

from legato.amqp.names import MANAGEMENT_ADDRESS
from legato.client import ConnectionFactory, TextMessage
from legato.drill.messages import identity_of
from legato.drill.records import Identity
from legato.errors import JMSError

ANSWER_WAIT_S = 30.0
PAGE_ROWS = 500
OK = 200
DEAD = "DLQ."


def request(url: str, operation: str, type: str, name: str = "", **arguments: str | int) -> Any:
    """The result of one request.

    Args:
        type: `queue`, `topic`, `subscription` or `broker`.

    Raises:
        JMSError: the broker refused it, or did not answer.
    """
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        address = session.create_queue(MANAGEMENT_ADDRESS)
        answers = session.create_consumer(address)
        connection.start()
        asked = TextMessage()
        for key, value in {"operation": operation, "type": type, "name": name, **arguments}.items():
            asked.set_property(key, value)
        session.create_producer(address).send(asked)
        answer = answers.receive(timeout_s=ANSWER_WAIT_S)
        if answer is None:
            raise JMSError(f"The broker did not answer {operation} within {ANSWER_WAIT_S:g} s.")
        if answer.properties["statusCode"] != OK:
            raise JMSError(str(answer.properties["statusDescription"]))
        return json.loads(str(answer.body or "{}"))


def names(url: str, type: str, match: str) -> list[str]:
    """The names of all nodes of a type that match a pattern such as `drill.7.#`.

    Raises:
        JMSError: the broker does not let us know.
    """
    found: list[str] = []
    while True:
        page = request(url, "query", type, match=match, offset=len(found), count=PAGE_ROWS)
        found += [str(row["name"]) for row in page["results"]]
        if not page["more"]:
            return found


def dead_letters(url: str, prefix: str) -> frozenset[tuple[str, Identity]]:
    """What waits in the drill's dead-letter queues, if they have the names that are usual, with where it comes from.

    Raises:
        JMSError: the broker does not let us know.
    """
    found: set[tuple[str, Identity]] = set()
    queues = names(url, "queue", f"{DEAD}{prefix}#")
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        for name in queues:
            with session.create_browser(session.create_queue(name)) as browser:
                found.update((name.removeprefix(DEAD), identity_of(message)) for message in browser)
    return frozenset(found)


def delete_all(url: str, prefix: str) -> list[str]:
    """Delete the queues and topics whose names begin with a drill's prefix, with subscriptions and dead letters.

    Args:
        prefix: ends with a dot.

    Returns:
        What there was.

    Raises:
        JMSError: the broker does not let us.
    """
    gone: list[str] = []
    for type, match in (("queue", f"{prefix}#"), ("queue", f"{DEAD}{prefix}#"), ("topic", f"{prefix}#")):
        for name in names(url, type, match):
            request(url, "delete", type, name)
            gone.append(name)
    return gone
