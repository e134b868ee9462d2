"""Futures of flows: wait for a reply, blocking or with `await` (CONTRACT D25)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from legato.client import Connection, Message, MessageConsumer, Session, TemporaryQueue
from legato.errors import FlowError, FlowFailedError, FlowTimeoutError
from legato.flows.model.envelope import Call, Envelope, Frame, Reach, Saved
from legato.flows.model.payloads import from_json, to_json
from legato.flows.model.wire import envelope_of
from legato.quoting import quoted

if TYPE_CHECKING:
    from legato.flows.starting.service_initiator import ServiceInitiator

FUTURES_MAX = 50_000
FUTURE_TIMEOUT_S = 30.0
SENDING_THREADS = 8
LOOK_AGAIN_S = 3600.0
"""The longest that the thread of the deadlines waits at once: a lock takes no time without end."""
SETTLED_MAX = 1_000
"""Deadlines of futures that have their replies, beside one for each that waits; of more, all are dropped."""


class FlowFuture:
    """The reply of a flow, once it is there.

    Attributes:
        trace_id: of the flow.
        flow_id: of the flow; None until it is begun.
    """

    def __init__(self, trace_id: str, kind: Any) -> None:
        self.trace_id = trace_id
        self.flow_id: str | None = None
        self.kind = kind
        self._future: Future[Any] = Future()

    def __repr__(self) -> str:
        return f"<FlowFuture of {quoted(self.trace_id)}, {'done' if self.done() else 'pending'}>"

    def result(self) -> Any:
        """Wait for the reply.

        Raises:
            FlowTimeoutError: it did not come in time.
            FlowFailedError: the flow ended among the dead letters, or was cancelled.
            FlowBackendError: the flow could not be begun.
            MessageFormatError: the reply is of another class.
        """
        return self._future.result()

    def done(self) -> bool:
        """Whether `result()` returns at once."""
        return self._future.done()

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """The reply, or why there is none; only the first of them counts."""
        try:
            if error is None:
                self._future.set_result(value)
            else:
                self._future.set_exception(error)
        except InvalidStateError:
            pass  # It had timed out, or was cancelled by who awaited it.


class Futures:
    """All futures of a service, and the address of this process that their replies come to."""

    def __init__(self, flows: ServiceInitiator) -> None:
        self._flows = flows
        self._condition = threading.Condition()
        self._arriving = threading.Lock()
        """Held while the address is made, for which a broker may be waited for; nobody else waits for that."""
        self._waiting: dict[str, FlowFuture] = {}
        self._deadlines: list[tuple[float, str, str]] = []
        """When a reply is late, whose key that is, and what is said then."""
        self._numbers = itertools.count(1)
        self._pool = ThreadPoolExecutor(SENDING_THREADS, "begin flows")
        self._begun: set[Future[None]] = set()
        self._address: TemporaryQueue | None = None
        self._session: Session | None = None
        self._connection: Connection | None = None
        """Whose address that is."""
        self._consumer: MessageConsumer | None = None
        self._timer: threading.Thread | None = None
        self._closed = False

    def request(
        self, to: str, data: Any, kind: Any, timeout_s: float, trace_id: str, options: Mapping[str, Any]
    ) -> FlowFuture:
        """See `Flows.request`."""
        future = FlowFuture(trace_id, kind)
        body = to_json(data)
        with self._condition:
            if self._closed:
                raise FlowError("The service is stopped.")
            if len(self._waiting) >= FUTURES_MAX:
                raise FlowError(f"{FUTURES_MAX} futures wait for replies already.")
            key = str(next(self._numbers))
            self._waiting[key] = future
            late = f"{to} did not reply within {timeout_s:g} s; the flow may still go on (trace {quoted(trace_id)})."
            heapq.heappush(self._deadlines, (time.monotonic() + timeout_s, key, late))
            if len(self._deadlines) > 2 * len(self._waiting) + SETTLED_MAX:
                self._deadlines = [one for one in self._deadlines if one[1] in self._waiting]
                heapq.heapify(self._deadlines)
            if self._timer is None:
                self._timer = threading.Thread(target=self._watch, name="futures", daemon=True)
                self._timer.start()
            self._condition.notify()
        begun = self._pool.submit(self._begin, future, key, to, body, dict(options))
        self._begun.add(begun)
        begun.add_done_callback(self._begun.discard)
        return future

    @property
    def closed(self) -> bool:
        """Whether it takes no more."""
        return self._closed

    def close(self, timeout_s: float) -> None:
        """Give up all that wait; wait `timeout_s` for those that are being begun, which takes a broker."""
        with self._condition:
            self._closed = True
            keys = list(self._waiting)
            self._condition.notify()
        for key in keys:
            self._settle(key, error=FlowError("The service was stopped before the reply came."))
        self._pool.shutdown(wait=False, cancel_futures=True)
        wait(set(self._begun), timeout_s)
        if self._session is not None:
            self._session.close()

    def _begin(self, future: FlowFuture, key: str, to: str, body: Any, options: dict[str, Any]) -> None:
        try:
            frame = Frame(self._here(), Saved(to_json(key)), Reach.ADDRESS)
            with self._flows.initiate(future.trace_id, **options) as initiation:
                future.flow_id = initiation.begin(Call.REQUEST, to, body, (frame,))
        except Exception as error:
            self._settle(key, error=error)

    def _here(self) -> str:
        with self._arriving:
            if self._closed:
                raise FlowError("The service is stopped.")
            connection = self._flows.connection()
            if self._address is None or self._connection is not connection:
                session = connection.create_session()
                self._address = session.create_temporary_queue()
                self._consumer = session.create_consumer(self._address)
                self._consumer.message_listener = self._heard
                self._session, self._connection = session, connection
            return self._address.name

    def _heard(self, message: Message) -> None:
        envelope = envelope_of(message)
        key = from_json(envelope.state.data, str)
        with self._condition:
            future = self._waiting.get(key)
        if future is None:
            return
        try:
            self._settle(key, _reply_in(envelope, future))
        except Exception as error:
            # Also what a class of the application's raises that is made of the reply.
            self._settle(key, error=error)

    def _settle(self, key: str, value: Any = None, error: BaseException | None = None) -> None:
        with self._condition:
            future = self._waiting.pop(key, None)
        if future is not None:
            future.settle(value, error)

    def _watch(self) -> None:
        while True:
            with self._condition:
                if self._closed:
                    return
                now = time.monotonic()
                if not self._deadlines or self._deadlines[0][0] > now:
                    self._condition.wait(min(self._deadlines[0][0] - now, LOOK_AGAIN_S) if self._deadlines else None)
                    continue
                _, key, late = heapq.heappop(self._deadlines)
            self._settle(key, error=FlowTimeoutError(late))


def _reply_in(envelope: Envelope, future: FlowFuture) -> Any:
    if envelope.call is Call.FAILURE:
        raise FlowFailedError(f"Flow {future.trace_id} failed: {envelope.failure}")
    return from_json(envelope.data, future.kind)
