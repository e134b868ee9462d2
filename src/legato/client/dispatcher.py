"""The thread that calls a session's message listeners, one message at a time."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from legato.client.session_state import AcknowledgeMode, Delivery
from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.client.consumer import MessageConsumer
    from legato.client.messages import Message
    from legato.client.session import Session

log = logging.getLogger("legato.client")


class Dispatcher:
    """Takes the listening consumers in turn (Jakarta Messaging 8.7: one thread for all listeners of a session)."""

    def __init__(self, session: Session, name: str, *, redeliver_on_error: bool) -> None:
        self._session = session
        self._redeliver_on_error = redeliver_on_error
        self._stopping = False
        self._running = threading.Lock()
        """Held while listeners run."""
        self.current: Delivery | None = None
        """The message that a listener has now."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether a listener is asking."""
        return threading.current_thread() is self._thread

    def wait_idle(self) -> None:
        """Wait for the listener that runs now, unless it is the one that asks."""
        if not self.is_current_thread:
            with self._running:
                pass

    def stop(self) -> None:
        """End after the listener that runs now."""
        self._stopping = True
        self._session._channel.gate.open()
        if not self.is_current_thread:
            self._thread.join()

    def _run(self) -> None:
        session = self._session
        gate = session._channel.gate
        while not self._stopping:
            worked = False
            for consumer in list(session._consumers):
                if consumer._listener is not None and self._one(consumer):
                    worked = True
            if not worked:
                gate.wait(self._has_work)

    def _has_work(self) -> bool:
        if self._stopping:
            return True
        return any(
            consumer._inbox and consumer._listener is not None and consumer._transport.started
            for consumer in self._session._consumers
        )

    def _one(self, consumer: MessageConsumer) -> bool:
        with self._running, self._session._lock:
            taken = consumer._take_for_listener()
            if taken is None:
                return False
            delivery, message = taken
            self.current = delivery
            try:
                self._call(consumer, delivery, message)
            finally:
                self.current = None
            return True

    def _call(self, consumer: MessageConsumer, delivery: Delivery, message: Message) -> None:
        failed = False
        listener = consumer._listener
        try:
            if listener is not None:
                listener(message)
        except Exception as error:
            failed = True
            log.exception("a message listener raised")
            consumer._transport.report(
                JMSError(f"The listener for {consumer.destination} raised {error!r}.", code="LISTENER", linked=error)
            )
        if consumer._mode not in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK):
            return
        if not (failed and self._redeliver_on_error):
            consumer._listener_returned(delivery)
        elif not self._stopping:
            # A session that closes gives the message back by itself, one whose connection is gone need not.
            with contextlib.suppress(JMSError):
                self._session._give_back([delivery])
