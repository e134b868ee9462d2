"""Answers of JetStream: JSON with an error or a result in it.

An answer with an error has the fields of a result, too, such as `"seq": 0`: the error is looked at first.
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from legato.errors import LogAccessError, LogUnavailableError
from legato.quoting import quoted

WRONG_LAST_SEQUENCE = 10071
NO_MESSAGE = 10037
STREAM_NOT_FOUND = 10059
STREAM_NAME_IN_USE = 10058

_UNAVAILABLE = 503
"""The status of errors such as "JetStream system temporarily unavailable"."""
_ERROR_BYTES_MAX = 1024
"""Of an answer that is nothing but an error."""
_NOT_ENABLED = {10039, 10076}


class Refusal(Exception):
    """An error that JetStream answered with.

    Args:
        code: JetStream's number of the error.
        text: what it says.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    def as_trouble(self) -> LogUnavailableError:
        """The error for one that may pass by itself, as all do that are not expected."""
        if self.code in _NOT_ENABLED:
            return LogAccessError("the account of these credentials may not use JetStream: enable it for the account")
        return LogUnavailableError(f"the log's servers refuse for now: {quoted(str(self))} ({self.code})")


def result(data: bytes) -> dict[str, Any]:
    """What an answer has to say.

    Raises:
        Refusal: it is an error.
        LogUnavailableError: it is no answer of JetStream.
    """
    try:
        answer = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        raise LogUnavailableError("the log's servers answered something that is not JetStream's") from None
    error = answer.get("error")
    if error is not None:
        raise Refusal(int(error.get("err_code", 0)), str(error.get("description", "no reason given")))
    return answer


def is_unavailable(data: bytes) -> bool:
    """Whether an answer says that nobody can answer now: there is no leader, or none whom this server can reach."""
    if len(data) > _ERROR_BYTES_MAX:
        return False
    try:
        error = msgspec.json.decode(data, type=dict[str, Any]).get("error")
        return error is not None and int(error.get("code", 0)) == _UNAVAILABLE
    except (ValueError, TypeError, AttributeError):
        return True


def data_of(message: Mapping[str, Any]) -> bytes:
    """What a message of a stream has, as the servers hand it out."""
    return base64.b64decode(message.get("data", ""))


def headers_of(message: Mapping[str, Any]) -> bytes:
    """The headers of a message of a stream, as they were on the wire; nothing if it has none."""
    return base64.b64decode(message.get("hdrs", ""))
