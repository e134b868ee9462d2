"""Failure reports: the contents of a stage's dead letter."""

from __future__ import annotations

import logging
import os
import platform
import socket
import traceback
from dataclasses import dataclass

from legato.client import Message, Session
from legato.errors import (
    FlowEndedError,
    IllegalCallFlowError,
    MessageFormatError,
    RefuseMessageError,
    StateVersionError,
)
from legato.flows.model.attempts import Verdict
from legato.quoting import quoted, sentence

logger = logging.getLogger(__name__)

STACK_TRACE_BYTES_MAX = 16_000
EXCEPTION_CHARS_MAX = 1_000

REFUSED = "legato_refused"
STACK_TRACE = "legato_stack_trace"
ATTEMPTS = "legato_attempts"
HOST = "legato_host"
VERSIONS = "legato_versions"
SERVICE = "legato_service"
UNDONE = "legato_undone"

HOPELESS = (RefuseMessageError, FlowEndedError, MessageFormatError, StateVersionError, IllegalCallFlowError)
"""Errors that another attempt cannot mend (CONTRACT D21)."""

ENVIRONMENTAL = (ConnectionError, TimeoutError, InterruptedError)
"""Errors that tell of what cannot be reached: no message is to blame for them (`Policy.environment_retry_s`)."""
DATABASE_ERRORS = frozenset({"OperationalError", "InterfaceError", "DisconnectionError", "TimeoutError"})


@dataclass(frozen=True)
class Whereabouts:
    """The process that worked on a message: service, version, host.

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
        from importlib.metadata import version

        versions = f"Python {platform.python_version()}, Legato {version('legato')}"
        return cls(service, f"{socket.gethostname()}:{os.getpid()}", versions)


@dataclass(frozen=True)
class Failure:
    """The record of a failed attempt.

    Attributes:
        text: the exception, in one line where it is one.
        stack_trace: its last `STACK_TRACE_BYTES_MAX` bytes.
        hopeless: whether another attempt cannot mend it.
        environmental: whether it is no message's fault: a database or another service cannot be reached.
    """

    text: str
    stack_trace: str
    hopeless: bool
    environmental: bool

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Report of `error`."""
        trace = "".join(traceback.format_exception(error)).encode(errors="replace")
        return cls(
            f"{type(error).__qualname__}: {error}"[:EXCEPTION_CHARS_MAX],
            trace[-STACK_TRACE_BYTES_MAX:].decode(errors="ignore"),
            isinstance(error, HOPELESS),
            is_environmental(error),
        )


def is_environmental(error: BaseException) -> bool:
    """Whether it tells of a database or a network that cannot be reached, by its class."""
    if isinstance(error, ENVIRONMENTAL):
        return True
    kinds = type(error).__mro__
    return any(kind.__name__ in DATABASE_ERRORS and not kind.__module__.startswith("legato") for kind in kinds)


def log_failure(who: str, message: Message, failure: Failure, verdict: Verdict, error: BaseException) -> None:
    """Log an attempt that failed: one line, and with the first attempt of a message where it happened.

    Args:
        who: worked on it.
    """
    logger.log(
        logging.ERROR if verdict.last or verdict.opened else logging.WARNING,
        "%s: attempt %d failed: %s; %s. Message %s.",
        who,
        verdict.attempt,
        sentence(failure.text.rstrip(".")),
        verdict,
        quoted(message.message_id),
        exc_info=error if verdict.first else None,
    )


def bury(
    session: Session, message: Message, failure: Failure, where: Whereabouts, attempts: int, *, undone: bool = False
) -> None:
    """Have a message that this session received go to the dead letters when it commits (CONTRACT D20).

    The broker does it, so that its facts and what it says of dead letters are the same for all of them.

    Args:
        attempts: how often it was tried, with attempts that the broker did not count.
        undone: whether what its flow did is undone therefore.

    Raises:
        IllegalStateError: the message is not of the session's current transaction.
    """
    said: dict[str, str | int] = {
        REFUSED: failure.hopeless,
        STACK_TRACE: failure.stack_trace,
        ATTEMPTS: attempts,
        HOST: where.host,
        VERSIONS: where.versions,
        SERVICE: where.service,
        UNDONE: undone,
    }
    session.reject(message, failure.text, said)
