"""Errors as kombu expects them: those after which it connects again, and those of one operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kombu.exceptions import ChannelError, ConnectionError, KombuError

from legato.errors import (
    ConfigError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JMSSecurityError,
    MessageFormatError,
    ResourceAllocationError,
)

NOT_FOUND = 404
"""AMQP 0.9.1's code for a queue or exchange that does not exist."""
PRECONDITION_FAILED = 406
"""AMQP 0.9.1's code for what is not deleted, since it is not unused or not empty as was asked for."""


class BrokerLostError(ConnectionError):  # type: ignore[misc]
    """The connection is gone for good: no broker was reached for as long as the options allow."""


class BrokerAwayError(KombuError):  # type: ignore[misc]
    """There is no broker at the moment. Kombu does not try again by itself, which would block its caller."""


class ChannelRefusedError(ChannelError):  # type: ignore[misc]
    """The broker refused one operation; the connection goes on.

    Args:
        text: what is wrong.
        code: of AMQP 0.9.1, where kombu looks at it; 0: none.
    """

    def __init__(self, text: str, *, code: int = 0) -> None:
        super().__init__(text, reply_code=code)
        self.code = code


_OF_ONE_OPERATION = (InvalidDestinationError, InvalidSelectorError, JMSSecurityError, ResourceAllocationError)
_CODES_OF_ONE_OPERATION = ("amqp:invalid-field", "amqp:resource-locked", "amqp:link:redirect")
"""Of refusals that have no class of their own: a name that no queue can have, a queue that is somebody else's, a
transaction over queues of two groups of brokers."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise Legato's errors as those that kombu and Celery handle."""
    try:
        yield
    except (ConfigError, MessageFormatError):
        raise  # trying again does not help
    except _OF_ONE_OPERATION as error:
        raise ChannelRefusedError(str(error)) from error
    except JMSError as error:
        if error.code in _CODES_OF_ONE_OPERATION:
            raise ChannelRefusedError(str(error)) from error
        raise BrokerLostError(str(error)) from error
