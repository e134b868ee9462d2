"""Messages whose body is a string."""

from __future__ import annotations

from typing import Any

from legato.amqp.codec.values import encode_string
from legato.client.messages.message import VALUE_PREFIX, Message
from legato.errors import MessageFormatError

_NULL_BODY = VALUE_PREFIX + b"\x40"


class TextMessage(Message):
    """A message whose body is a string, or None."""

    def __init__(self, text: str | None = None) -> None:
        if type(text) is str:
            # As the setter does it, for what can be written: this runs for each message sent.
            self._body_value = text
        else:
            self.text = text

    @property
    def text(self) -> str | None:
        """The body."""
        value: str | None = self._read_body()
        return value

    @text.setter
    def text(self, value: str | None) -> None:
        if value is not None and not isinstance(value, str):
            raise MessageFormatError(f"A text message's body is a str or None, not {type(value).__name__}.")
        self._write_body(value)

    def _assignable_body(self) -> Any:
        return self._read_body()

    def _encoded_body(self) -> bytes:
        text = self._body_value
        return _NULL_BODY if text is None else VALUE_PREFIX + encode_string(text)
