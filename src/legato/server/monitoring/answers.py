"""Requests over HTTP, and answers to them, as pages return them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec


class Answer(msgspec.Struct):
    """An answer to a request."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Request(msgspec.Struct):
    """A request."""

    query: Mapping[str, str]
    accept: str
    """Which formats the client takes; empty if it does not say."""


Page = Callable[[Request], Answer]
"""What answers the requests for a path."""
