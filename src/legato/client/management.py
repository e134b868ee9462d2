"""Requests to a broker's management address."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from legato.amqp.names import MANAGEMENT_ADDRESS
from legato.client.connection import Connection, ConnectionFactory
from legato.client.failover.uri import parse_uri, short_wait
from legato.client.messages import TextMessage
from legato.errors import JMSError

ANSWER_WAIT_S = 30.0
PAGE_ROWS = 500
_OK = 200


class Requester:
    """Requests by a connection that was started, one after the other: for one thread at a time.

    Args:
        broker: what the broker is called in errors.
    """

    def __init__(self, connection: Connection, broker: str) -> None:
        self._broker = broker
        self._session = connection.create_session()
        address = self._session.create_queue(MANAGEMENT_ADDRESS)
        self._answers = self._session.create_consumer(address)
        self._producer = self._session.create_producer(address)
        self.answered = False
        """Whether the last request was answered, if only by a refusal; if not, no other one may be made here."""

    def request(
        self, operation: str, type: str, name: str, arguments: Mapping[str, str | float], wait_s: float = ANSWER_WAIT_S
    ) -> Any:
        """The result of one request; see the function `request`."""
        self.answered = False
        asked = TextMessage()
        for key, value in {"operation": operation, "type": type, "name": name, **arguments}.items():
            asked.set_property(key, value)
        self._producer.send(asked)
        answer = self._answers.receive(timeout_s=wait_s)
        if answer is None:
            raise JMSError(f"{self._broker[:1].upper()}{self._broker[1:]} did not answer within {wait_s:g} s.")
        self.answered = True
        assert isinstance(answer, TextMessage)
        status = answer.properties["statusCode"]
        if status != _OK:
            raise JMSError(str(answer.properties["statusDescription"]), code=str(status))
        return json.loads(answer.body or "{}")

    def close(self) -> None:
        """Give its session back."""
        self._session.close()


def request(url: str, operation: str, type: str, name: str = "", **arguments: str | float) -> Any:
    """The result of one request, by a connection of its own.

    Args:
        type: `queue`, `topic`, `subscription` or `broker`.

    Raises:
        JMSError: the broker refused it, or did not answer.
    """
    with ConnectionFactory(url, **short_wait(url)).create_connection() as connection:
        connection.start()
        return Requester(connection, f"the broker at {url}").request(operation, type, name, arguments)


def request_at_group(
    url: str, operation: str, type: str, name: str, *, served: str = "", **arguments: str | float
) -> Any:
    """The result of one request, at the group of brokers that serves the queue or topic.

    What is here although another group serves it was left behind by a move, and is not what is meant.

    Args:
        served: the address that tells the group, if it is not the name.

    Raises:
        JMSError: as `request`.
    """
    with ConnectionFactory(url, **short_wait(url)).create_connection() as connection:
        connection.start()
        asking = Requester(connection, f"the broker at {url}")
        group = ""
        if connection.group and parse_uri(url).options.discover:
            told = asking.request("read", "group", "", {"addresses": json.dumps([served or name])})
            group = str(told["elsewhere"].get(served or name, ""))
        if not group:
            return asking.request(operation, type, name, arguments)
    return request(url_of_group(url, group), operation, type, name, **arguments)


def group_elsewhere(url: str, address: str) -> str:
    """The group that serves an address, if it is another one than that of the URL's brokers; else nothing."""
    try:
        told = request(url, "read", "group", addresses=json.dumps([address]))
    except JMSError:
        # A broker that knows of no groups, or has gone: what there was to say is said without.
        return ""
    return str(told["elsewhere"].get(address, ""))


def url_of_group(url: str, group: str) -> str:
    """The URL with which any broker sends a client to a group; without a group the URL itself."""
    return f"{url}{'&' if '?' in url else '?'}vhost={quote(group, safe='')}" if group else url


def rows(url: str, type: str, match: str = "") -> Iterator[dict[str, Any]]:
    """All nodes of a type whose address matches a pattern, page by page."""
    offset = 0
    while True:
        page = request(url, "query", type, match=match, offset=offset, count=PAGE_ROWS)
        yield from page["results"]
        if not page["more"]:
            return
        offset += PAGE_ROWS
