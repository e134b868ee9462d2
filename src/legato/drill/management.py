"""Management requests of a drill: a switchover, and the deletion of its queues and topics at the end."""

from legato.client import ConnectionFactory
from legato.client.management import request, rows
from legato.drill.letters import DeadLetter, doomed_in, letter_of

DEAD = "DLQ."


def names(url: str, type: str, match: str) -> list[str]:
    """The names of all nodes of a type that match a pattern such as `drill.7.#`.

    Raises:
        JMSError: the broker does not let us know.
    """
    return [str(row["name"]) for row in rows(url, type, match)]


def dead_letters(url: str, prefix: str) -> frozenset[DeadLetter]:
    """Messages in the drill's dead-letter queues, if these have their usual names, and what is still to die.

    Raises:
        JMSError: the broker does not let us know.
    """
    found: set[DeadLetter] = set()
    queues = names(url, "queue", f"{DEAD}{prefix}#") + names(url, "queue", f"{prefix}#")
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        for name in queues:
            with session.create_browser(session.create_queue(name)) as browser:
                letters = (letter_of(message) or doomed_in(name, message) for message in browser)
                found.update(letter for letter in letters if letter is not None)
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
