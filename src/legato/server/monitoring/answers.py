"""Answers to HTTP requests, as pages return them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec


class Answer(msgspec.Struct):
    """An answer to a request."""

    status: HTTPStatus
    content_type: str
    body: bytes


Page = Callable[[Mapping[str, str]], Answer]
"""What answers the requests for a path, from the values of its query."""
