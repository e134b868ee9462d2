"""Admission to the bulk endpoint: tickets looked at before bodies are read, used once where they must be; and errors
without what is nobody else's business."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import pyarrow.flight as flight

from legato.bulk.requests import HOLDER_HEADER, TICKET_HEADER
from legato.bulk.stage_files import StageTicket
from legato.bulk.tickets import CopyTicket, Limited, Ticket, TicketRefused, unseal
from legato.errors import StoreError
from legato.quoting import sentence

GATE = "gate"
"""The name of the middleware."""

log = logging.getLogger("legato.bulk")

_KINDS: dict[flight.FlightMethod, Any] = {
    flight.FlightMethod.DO_GET: Ticket | CopyTicket,
    flight.FlightMethod.DO_ACTION: Ticket,
    flight.FlightMethod.DO_PUT: StageTicket,
}
T = TypeVar("T", bound=Limited)


class Admission:
    """Looks at tickets.

    Args:
        secret: what they are sealed with.
        bound: whether each must come in a header, with its holder's secret.
    """

    def __init__(self, secret: bytes, *, bound: bool) -> None:
        self._secret = secret
        self._bound = bound
        self._lock = threading.Lock()
        self._used: dict[bytes, float] = {}

    def at_the_gate(self, method: flight.FlightMethod, headers: dict[str, list[Any]]) -> Admitted | None:
        """A call begins; its body was not looked at yet.

        Raises:
            TicketRefused: it may not go on.
        """
        kind = _KINDS.get(method)
        if kind is None:
            raise TicketRefused("Only ranges and copies are read here, and rows staged.")
        sealed, holder = (_first(headers, name) for name in (TICKET_HEADER, HOLDER_HEADER))
        if not sealed:
            if self._bound:
                raise TicketRefused("There is no ticket; ask the broker for one, and send it in the header.")
            return None
        return Admitted(sealed, unseal(self._secret, sealed, time.time(), kind, holder))

    def ticket(self, context: flight.ServerCallContext, sealed: bytes, kind: type[T]) -> T:
        """The ticket of a call, of that kind or of one of those kinds, from its header or else from its body.

        Raises:
            TicketRefused: it has none that is good.
        """
        admitted = context.get_middleware(GATE)
        if admitted is None:
            return unseal(self._secret, sealed, time.time(), kind)
        if not isinstance(admitted.ticket, kind) or admitted.sealed != sealed:
            raise TicketRefused("The header has another ticket than the body.")
        return admitted.ticket

    def use(self, ticket: StageTicket) -> None:
        """Use a ticket up.

        Raises:
            TicketRefused: that was done before.
        """
        now_s = time.time()
        with self._lock:
            if ticket.id in self._used:
                raise TicketRefused("The ticket was used already; ask the broker for a new one.")
            # Of the same age, nearly: those that are over come first.
            for used, until_s in list(self._used.items()):
                if until_s >= now_s:
                    break
                del self._used[used]
            self._used[ticket.id] = ticket.until_s


class Admitted(flight.ServerMiddleware):  # type: ignore[misc]
    """A call that may go on, with its ticket."""

    def __init__(self, sealed: bytes, ticket: Ticket | StageTicket | CopyTicket) -> None:
        super().__init__()
        self.sealed = sealed
        self.ticket = ticket


class Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Is asked as each call begins."""

    def __init__(self, admission: Admission) -> None:
        super().__init__()
        self._admission = admission

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[Any]]) -> Admitted | None:
        """See `flight.ServerMiddlewareFactory`."""
        with answering():
            return self._admission.at_the_gate(info.method, headers)


@contextmanager
def answering() -> Iterator[None]:
    """Answer errors with sentences: Flight would send the whole traceback, and paths with it."""
    try:
        yield
    except TicketRefused as error:
        raise flight.FlightUnauthenticatedError(str(error)) from None
    except msgspec.MsgspecError:
        raise flight.FlightServerError("The request cannot be read.") from None
    except OSError as error:
        log.error("! a request was not done: %r", error)
        raise flight.FlightServerError(f"The broker's disk: {error.strerror or 'it cannot be used'}.") from None
    except StoreError as error:
        # Its text names paths and numbers of the broker's.
        log.error("! a request was not done: %s", sentence(error))
        raise flight.FlightServerError("The broker's store cannot be read; the broker's log says why.") from None
    except ValueError as error:
        raise flight.FlightServerError(str(error)) from None
    except (flight.FlightError, GeneratorExit):
        raise
    except Exception as error:
        log.error("! a request was not done: %r", error)
        raise flight.FlightServerError("The broker could not do that; its log says why.") from None


def _first(headers: dict[str, list[Any]], name: bytes) -> bytes:
    found = headers.get(name.decode(), [])
    return found[0] if found and isinstance(found[0], bytes) else b""
