"""Requests to a broker's management address, one connection each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from legato.amqp.names import MANAGEMENT_ADDRESS
from legato.client.connection import ConnectionFactory
from legato.client.failover.uri import short_wait
from legato.client.messages import TextMessage
from legato.errors import JMSError

ANSWER_WAIT_S = 30.0
PAGE_ROWS = 500
_OK = 200


def request(url: str, operation: str, type: str, name: str = "", **arguments: str | float) -> Any:
    """The result of one request.

    Args:
        type: `queue`, `topic`, `subscription` or `broker`.

    Raises:
        JMSError: the broker refused it, or did not answer.
    """
    with (
        ConnectionFactory(url, **short_wait(url)).create_connection() as connection,
        connection.create_session() as session,
    ):
        address = session.create_queue(MANAGEMENT_ADDRESS)
        answers = session.create_consumer(address)
        connection.start()
        asked = TextMessage()
        for key, value in {"operation": operation, "type": type, "name": name, **arguments}.items():
            asked.set_property(key, value)
        session.create_producer(address).send(asked)
        answer = answers.receive(timeout_s=ANSWER_WAIT_S)
        if answer is None:
            raise JMSError(f"The broker at {url} did not answer within {ANSWER_WAIT_S:g} s.")
        assert isinstance(answer, TextMessage)
        if answer.properties["statusCode"] != _OK:
            raise JMSError(str(answer.properties["statusDescription"]))
        return json.loads(answer.body or "{}")


def rows(url: str, type: str, match: str = "") -> Iterator[dict[str, Any]]:
    """All nodes of a type whose address matches a pattern, page by page."""
    offset = 0
    while True:
        page = request(url, "query", type, match=match, offset=offset, count=PAGE_ROWS)
        yield from page["results"]
        if not page["more"]:
            return
        offset += PAGE_ROWS
