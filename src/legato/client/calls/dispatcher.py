"""Dispatch to a session's message listeners, one message at a time."""

from __future__ import annotations

import contextlib
import logging
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from legato.client.calls.ports import SessionPort
from legato.client.links.deliveries import Delivery
from legato.client.links.session_state import AcknowledgeMode
from legato.client.mapping.explanations import explanation
from legato.client.steps import Await, Steps, Wait, drive
from legato.errors import JMSError
from legato.quoting import escaped, quoted, sentence

if TYPE_CHECKING:
    from legato.client.calls.consumer_steps import ConsumerSteps
    from legato.client.calls.consumer_work import MessageListener
    from legato.client.messages.message import Message

log = logging.getLogger("legato.client")

BACKOFF_MAX_S = 10.0
"""Listeners rest no longer before a message whose listener raised is given back."""


def backoff_s(attempt: int, first_s: float) -> float:
    """How long to wait after a failed attempt before the next one.

    Args:
        attempt: 1 for the first, after which there is no waiting.
        first_s: after the second attempt; doubled after each further one, up to `BACKOFF_MAX_S`.
    """
    if attempt < 2 or not first_s:
        return 0.0
    return min(first_s * 2.0 ** min(attempt - 2, 64), max(BACKOFF_MAX_S, first_s))


class Dispatching:
    """Takes the listening consumers in turn (Jakarta Messaging 8.7: no two listeners of a session run at once).

    Args:
        redeliver_on_error: whether a message whose listener raised is given back, or acknowledged.
        backoff_s: see `Options.listener_backoff_s`.
    """

    def __init__(self, session: SessionPort, *, redeliver_on_error: bool, backoff_s: float = 0.0) -> None:
        self.current: Delivery | None = None
        """The message that a listener has now."""
        self.serving: ConsumerSteps | None = None
        """The consumer whose listener has a message or may get one: named before it looks whether that is closed, so
        that who closes it knows whether a message is on its way."""
        self.has_returned = False
        """Whether that consumer's listener has returned, or raised: what is left is for the broker to answer."""
        self.closing: list[ConsumerSteps] = []
        """Consumers that their own listener has closed: that is done once it has returned (Jakarta Messaging 8.8)."""
        self.raised: BaseException | None = None
        """What a listener raised last."""
        self._session = session
        self._gate = session._channel.gate
        self._redeliver_on_error = redeliver_on_error
        self._backoff_s = backoff_s
        self._stopping = False
        self._busy = False
        """Set before it looks whether messages may come, so that who forbids it knows whether one is on its way."""
        self.ended = False
        """Whether no listener will be called any more, and none runs."""
        self.at_end: Callable[[], None] | None = None
        """What is to be done when it has ended: its session's close, if nobody waits for that any more."""

    @property
    def is_current(self) -> bool:
        """Whether a listener is asking."""
        raise NotImplementedError

    @property
    def waits_for_asker(self) -> bool:
        """Whether the listener that runs now asks, or waits for who does: it is not to be waited for."""
        return self.is_current

    def _ends(self, error: BaseException) -> bool:
        """Whether what a listener raised is meant for who calls it, and ends that."""
        raise NotImplementedError

    def wait_listened(self, consumer: ConsumerSteps) -> Steps[None]:
        """Wait for the consumer's listener, which may take its time."""
        yield Wait(self._gate, lambda: self.serving is not consumer or self.has_returned, for_listener=True)

    def wait_served(self, consumer: ConsumerSteps, timeout_s: float) -> Steps[None]:
        """Wait until its message is acknowledged or given back too."""
        yield Wait(self._gate, lambda: self.serving is not consumer, timeout_s)

    def wait_idle(self) -> Steps[None]:
        """Wait for the listener that runs now, unless it is the one that asks."""
        if not self.is_current:
            # One that rests as its connection was not stopped yet looks again.
            self._gate.open()
            self._session._guard.turn.ring()
            yield Wait(self._gate, lambda: not self._busy)

    def stop(self) -> None:
        """End after the listener that runs now."""
        self._stopping = True
        self._gate.open()
        self._session._guard.turn.ring()

    def _is_held_back(self) -> bool:
        """Whether no message is to be presented now."""
        return self._stopping or not self._session._channel.transport.started

    def _run(self) -> Steps[None]:
        try:
            while not self._stopping:
                worked = False
                for consumer in list(self._session._members.consumers):
                    # Whoever else uses the session is not kept from it for nothing.
                    if consumer._inbox and consumer._listener is not None:
                        worked = (yield from self._one(consumer)) or worked
                if not worked:
                    for consumer in list(self._session._members.consumers):
                        consumer._ask_for_listener()
                    yield Wait(self._gate, self._has_work)
        finally:
            self.ended = True
            if self.at_end is not None:
                self.at_end()
            self._gate.open()

    def _has_work(self) -> bool:
        if self._stopping:
            return True
        channel = self._session._channel
        if channel.error is not None or channel.transport.error is not None:
            return False  # what is not presented by now cannot be
        return any(
            consumer._inbox and consumer._listener is not None and consumer._transport.started
            for consumer in self._session._members.consumers
        )

    def _one(self, consumer: ConsumerSteps) -> Steps[bool]:
        turn = self._session._guard.turn
        self._busy = True
        try:
            # Who has it may wait for a message, and be told only later that none comes.
            if not turn.acquire(False) and not (yield from turn.awaited(unless=self._is_held_back)):
                return False
            turn.keep(True)
            try:
                if not (yield from self._heard()):
                    return False
                # Who closes the consumer takes its listener away; the message that it is about to get is for it yet.
                listener = consumer._listener
                if listener is None:
                    return False
                self.has_returned = False
                self.serving = consumer
                taken = consumer._take_for_listener()
                if taken is None and consumer._is_suspect():
                    # If its session or connection is gone, others tell of it.
                    with contextlib.suppress(JMSError):
                        yield from consumer._announce()
                    taken = consumer._take_for_listener()
                if taken is None:
                    return False
                delivery, message = taken
                self.current = delivery
                yield from self._call(consumer, listener, delivery, message)
                while self.closing:
                    closed = self.closing.pop()
                    yield from closed._end_closing(closed._session._connection._options.close_timeout_s)
                return True
            finally:
                self.current = None
                turn.keep(False)
                turn.release()
                # Who closes the consumer waits for this, and may use the session then.
                self.serving = None
                if consumer._closed:
                    # Who has closed it may have been interrupted.
                    consumer._release()
        finally:
            self._busy = False
            self._gate.open()

    def _heard(self) -> Steps[bool]:
        """Whether nothing is left of a commit or rollback that was interrupted; waits for its outcome."""
        session = self._session
        if session._undertakings.current is None:
            return True
        try:
            heard = yield from session._undertakings.hear(lambda: self._stopping)
        except JMSError:
            # The session or its connection is gone, of which others tell.
            yield Wait(self._gate, lambda: self._stopping)
            return False
        session._transactions.untold = None
        return heard

    def _call(
        self, consumer: ConsumerSteps, listener: MessageListener, delivery: Delivery, message: Message
    ) -> Steps[None]:
        failure = ""
        try:
            if (result := listener(message)) is not None:
                yield Await(result)
        except BaseException as error:
            if self._ends(error):
                raise
            self.raised, shown = error, _shown(error)
            # Of what a listener raised the broker hears the end, which says what it was.
            failure = explanation("".join(traceback.format_exception(error)), whole_end=True)
            log.exception(
                "The listener for %s %s raised %s on message %s; %s.",
                escaped(consumer.destination.capability.replace("-", " ")),
                quoted(consumer.destination.name),
                sentence(shown),
                sentence(_identity(message)),
                sentence(self._what_follows(consumer._mode, message)),
            )
            # The log has it.
            consumer._transport.report(
                JMSError(f"The listener for {consumer.destination} raised {shown}.", code="LISTENER", linked=error),
                usual=True,
            )
        self.current = None
        self.has_returned = True
        if consumer._closed:
            self._gate.open()
        if consumer._mode not in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK):
            return
        if not (failure and self._redeliver_on_error):
            consumer._listener_returned(delivery)
        elif not self._stopping:
            # A session that closes gives the message back by itself, one whose connection is gone need not.
            if pause_s := self._pause_s(message):
                yield Wait(self._gate, lambda: self._is_disturbed(consumer), pause_s)
                if self._stopping:
                    return
            with contextlib.suppress(JMSError):
                yield from self._session._acknowledgements.return_deliveries([delivery], failure)

    def _pause_s(self, message: Message) -> float:
        """How long its session rests before a message whose listener raised is given back."""
        try:
            return backoff_s(message.delivery_count, self._backoff_s)
        except JMSError:
            return 0.0

    def _is_disturbed(self, consumer: ConsumerSteps) -> bool:
        """Whether somebody waits for a listener's rest to end."""
        channel = self._session._channel
        transport = consumer._transport
        is_lost = channel.error is not None or transport.error is not None
        return self._stopping or consumer._closed or is_lost or not transport.started

    def _what_follows(self, mode: AcknowledgeMode, message: Message) -> str:
        """What becomes of a message whose listener raised (Jakarta Messaging 8.7, CONTRACT C6)."""
        if mode not in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK):
            return "it stays received, for the application to acknowledge or give back"
        if self._redeliver_on_error:
            pause_s = self._pause_s(message)
            when = f" in {pause_s:g} s" if pause_s else ""
            return f"it is delivered again{when}, until the broker makes it a dead letter"
        return "it is acknowledged all the same, as the option listener_error says"


def _shown(error: BaseException) -> str:
    """An application's error, which may not be able to say what it is."""
    try:
        return repr(error)
    except Exception:
        return type(error).__name__


def _identity(message: Message) -> str:
    """Which message it is, and which attempt; a listener may have failed because it cannot be read."""
    try:
        return f"{quoted(message.message_id or 'without an id')}, attempt {message.delivery_count}"
    except JMSError as error:
        return f"with headers that cannot be read ({sentence(error)})"


class ThreadDispatcher(Dispatching):
    """Calls listeners in a thread of the session's own."""

    def __init__(self, session: SessionPort, name: str, *, redeliver_on_error: bool, backoff_s: float = 0.0) -> None:
        super().__init__(session, redeliver_on_error=redeliver_on_error, backoff_s=backoff_s)
        self._thread = threading.Thread(target=lambda: drive(self._run()), name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether a listener is asking."""
        return threading.current_thread() is self._thread

    def _ends(self, error: BaseException) -> bool:
        """Nothing that a listener raises: `sys.exit()` in a thread ends nothing else either."""
        return isinstance(error, GeneratorExit)
