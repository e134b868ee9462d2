"""What becomes of a message whose stage failed: another attempt, or the dead letters with all that is known."""

from __future__ import annotations

import os
import platform
import socket
import traceback
from dataclasses import dataclass

from legato.amqp.types import Int
from legato.client import Message, Queue, Session, TextMessage
from legato.errors import (
    FlowEndedError,
    IllegalCallFlowError,
    MessageFormatError,
    RefuseMessageError,
    StateVersionError,
)

DEAD_LETTER_PREFIX = "DLQ."
STACK_TRACE_CHARS_MAX = 16_000

REFUSED = "legato_refused"
EXCEPTION = "legato_exception"
STACK_TRACE = "legato_stack_trace"
ATTEMPTS = "legato_attempts"
HOST = "legato_host"
VERSIONS = "legato_versions"
SERVICE = "legato_service"
DEAD_LETTERED_AT_MS = "legato_dead_lettered_at_ms"
DEAD_LETTER_COUNT = "legato_dead_letter_count"
ORIGINAL_DESTINATION = "legato_original_destination"

HOPELESS = (RefuseMessageError, FlowEndedError, MessageFormatError, StateVersionError, IllegalCallFlowError)
"""Errors that another attempt cannot mend (CONTRACT D21)."""


@dataclass(frozen=True)
class Whereabouts:
    """Who worked on a message.

    Attributes:
        service: the program's name and version.
        host: the machine's name and the process's number.
        versions: of Python and Legato.
    """

    service: str
    host: str
    versions: str

    @classmethod
    def here(cls, service: str) -> Whereabouts:
        """This process."""
        return cls(service, f"{socket.gethostname()}:{os.getpid()}", f"Python {platform.python_version()}")


def dead_letter_of(
    message: TextMessage, error: BaseException, queue: str, where: Whereabouts, now_ms: int
) -> TextMessage:
    """A copy of a message that says why it is a dead letter (CONTRACT D20).

    Args:
        queue: where it failed.
        now_ms: milliseconds since 1970.
    """
    letter = TextMessage(message.body)
    letter.correlation_id = message.correlation_id
    letter.type = message.type
    for name, value in message.properties.items():
        if not name.startswith("JMSX"):
            letter.set_property(name, value)
    times = message.properties.get(DEAD_LETTER_COUNT)
    trace = "".join(traceback.format_exception(error))
    reasons: dict[str, bool | int | str] = {
        REFUSED: isinstance(error, HOPELESS),
        EXCEPTION: f"{type(error).__qualname__}: {error}",
        STACK_TRACE: trace[-STACK_TRACE_CHARS_MAX:],
        ATTEMPTS: Int(message.delivery_count),
        HOST: where.host,
        VERSIONS: where.versions,
        SERVICE: where.service,
        DEAD_LETTERED_AT_MS: now_ms,
        DEAD_LETTER_COUNT: Int((int(times) if isinstance(times, int) else 0) + 1),
        ORIGINAL_DESTINATION: queue,
    }
    for name, value in reasons.items():
        letter.set_property(name, value)
    return letter


def bury(session: Session, message: Message, error: BaseException, queue: str, where: Whereabouts, now_ms: int) -> None:
    """Send a message that this session received to the dead letters of `queue`; the caller commits.

    Raises:
        JMSError: the broker refused it.
    """
    if isinstance(message, TextMessage):
        letter: Message = dead_letter_of(message, error, queue, where, now_ms)
    else:
        letter = message
    with session.create_producer(Queue(DEAD_LETTER_PREFIX + queue)) as producer:
        producer.send(letter, priority=message.priority)
