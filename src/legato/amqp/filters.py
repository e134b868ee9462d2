"""Selectors over the bytes of messages: what cannot match is found out by the cheapest means first."""

from __future__ import annotations

from collections.abc import Callable

from legato.amqp.view import View
from legato.errors import ProtocolError
from legato.selectors import compile_selector


def matcher(selector_text: str) -> Callable[[bytes], bool]:
    """A function that says whether a message, as it is stored, matches; a malformed one never does.

    Raises:
        InvalidSelectorError: the selector does not follow the syntax of Jakarta Messaging 3.8.1.
    """
    selector = compile_selector(selector_text)
    required, matches = selector.required, selector.matches

    def test(data: bytes) -> bool:
        for alternatives in required:
            for part in alternatives:
                if part in data:
                    break
            else:
                return False
        try:
            return matches(View(data).get)
        except (ProtocolError, IndexError):
            return False

    return test
