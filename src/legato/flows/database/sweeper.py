"""The sweeper: a thread that sends leftovers of the outbox, and prunes inbox and outbox (CONTRACT D12)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from legato.clock import Clock
from legato.flows.database.inbox import Inbox
from legato.flows.database.outbox import Outbox
from legato.flows.model.envelope import Outgoing
from legato.quoting import quoted

if TYPE_CHECKING:
    from legato.flows.database.database import DataSource

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
PRUNE_EVERY_S = 60.0
LEASE_US = 30_000_000
"""What a sweeper has taken is another one's after so long: it may have died."""
CLAIMED_AT_ONCE_MAX = 100
BACKOFF_FIRST_US = 1_000_000
BACKOFF_MAX_US = 300_000_000
COMMIT_LOOKS_S = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""When to look for what an application is about to commit: SQLAlchemy tells of a commit just before it."""

Send = Callable[[Sequence[Outgoing]], None]


class Sweeper:
    """Sweeps the outbox at intervals.

    Args:
        send: sends all of it durably, or raises.
        retention_s: how long the inbox remembers.
        is_away: whether there is no broker, which is why something was not sent.
    """

    def __init__(
        self,
        source: DataSource,
        inbox: Inbox,
        outbox: Outbox,
        send: Send,
        clock: Clock,
        retention_s: float,
        is_away: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source = source
        self._inbox = inbox
        self._outbox = outbox
        self._send = send
        self._clock = clock
        self._is_away = is_away
        self._retention_us = round(retention_s * 1_000_000)
        self._condition = threading.Condition()
        self._awaited: list[str] = []
        self._ending = threading.Event()
        """Of the present thread: one that is late to end has its own."""
        self._thread: threading.Thread | None = None
        self._prune_ms = 0

    def start(self) -> None:
        """Begin, if it has not."""
        with self._condition:
            if self._thread is None:
                self._ending = threading.Event()
                self._thread = threading.Thread(target=self._work, args=(self._ending,), name="outbox", daemon=True)
                self._thread.start()

    def end(self, timeout_s: float) -> None:
        """Have it delete what was sent, and end; if it still sends after `timeout_s`, it ends when it has done so."""
        with self._condition:
            self._ending.set()
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        with self._condition:
            self._thread = None

    def expect(self, cause_id: str) -> None:
        """Somebody is about to commit rows of that cause: send them as soon as they are seen."""
        self.start()
        with self._condition:
            self._awaited.append(cause_id)
            self._condition.notify()

    def _work(self, ending: threading.Event) -> None:
        while True:
            with self._condition:
                if self._thread is not threading.current_thread():
                    return  # Nobody waits for it any more, and the service may have no connection.
                awaited, self._awaited = self._awaited, []
            if awaited:
                self._send_committed(awaited)
            last = ending.is_set()
            try:
                self.sweep()
            except Exception as error:
                logger.warning("The outbox could not be swept; again in %.0f s: %r", LOOK_EVERY_S, error)
            if last:
                return
            with self._condition:
                if not self._awaited and not ending.is_set():
                    self._condition.wait(LOOK_EVERY_S)

    def sweep(self) -> None:
        """Send what is due, delete what was sent, and forget what the inbox has had for long enough."""
        if not self._source.has_tables():
            return
        while self._batch() == CLAIMED_AT_ONCE_MAX and not self._ending.is_set():
            pass
        if self._outbox.has_sent:
            self._delete()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._prune_ms:
            self._prune_ms = now_ms + round(PRUNE_EVERY_S * 1000)
            self._prune()

    def _batch(self) -> int:
        """Take some that are due, and send them; returns how many there were, 0 if there is no broker."""
        now_us = self._clock.now_us()
        with self._source.engine.connect() as connection:
            if not self._outbox.is_any_due(connection, now_us):
                return 0
        with self._source.transaction() as work:
            connection = work.connection()
            with self._outbox.deleting(connection):
                claimed, unreadable = self._outbox.claim(connection, now_us, LEASE_US, CLAIMED_AT_ONCE_MAX)
                for message_id, attempts in unreadable:
                    self._outbox.postpone(connection, message_id, now_us + backoff_us(attempts))
                work.commit()
        if claimed:
            logger.info("The outbox had %d messages that nobody had sent.", len(claimed))
            if not self._ship([(late(outgoing, now_us), attempts) for outgoing, attempts in claimed]):
                return 0
        return len(claimed) + len(unreadable)

    def _ship(self, claimed: Sequence[tuple[Outgoing, int]]) -> bool:
        """Send what was claimed, and postpone what cannot be sent; False if there is no broker to send it to."""
        batches = deque([claimed])
        while batches:
            batch = batches.popleft()
            outgoing = [one for one, _ in batch]
            try:
                self._send(outgoing)
            except Exception as error:
                if self._is_away():
                    # None of them is to blame, and to look for a broker may take long.
                    self._postpone([one for each in (batch, *batches) for one in each], error)
                    return False
                if len(batch) == 1:
                    self._postpone(batch, error)
                else:
                    # One that is refused must not hold up the others.
                    batches.extend([one] for one in batch)
            else:
                self._outbox.sent(outgoing)
        return True

    def _postpone(self, claimed: Sequence[tuple[Outgoing, int]], error: Exception) -> None:
        waits_us = [backoff_us(attempts) for _, attempts in claimed]
        logger.warning(
            "%s, and %d others, could not be sent; again in %d s: %r",
            quoted(claimed[0][0].envelope.to),
            len(claimed) - 1,
            min(waits_us) // 1_000_000,
            error,
        )
        with self._source.transaction() as work:
            now_us = self._clock.now_us()
            for (outgoing, _), wait_us in zip(claimed, waits_us, strict=True):
                self._outbox.postpone(work.connection(), outgoing.envelope.message_id, now_us + wait_us)
            work.commit()

    def _delete(self) -> None:
        with self._source.transaction() as work, self._outbox.deleting(work.connection()):
            work.commit()

    def _prune(self) -> None:
        more = True
        while more and not self._ending.is_set():
            with self._source.transaction() as work:
                more = self._inbox.prune(work.connection(), self._clock.now_us() - self._retention_us)
                work.commit()

    def _send_committed(self, cause_ids: Sequence[str]) -> None:
        """Send what the application has committed by now, or will any moment; the rest waits until it is due."""
        missing = list(cause_ids)
        for wait_s in COMMIT_LOOKS_S:
            with self._condition:
                if wait_s and not self._ending.is_set():
                    self._condition.wait(wait_s)
            try:
                if not self._source.has_tables():
                    continue  # The application's transaction creates them.
                with self._source.engine.connect() as connection:
                    found = {cause: self._outbox.unsent(connection, [cause]) for cause in missing}
                outgoing = [one for cause in missing for one in found[cause]]
                if outgoing:
                    self._send(outgoing)
                    self._outbox.sent(outgoing)
            except Exception as error:
                logger.warning("What an application has committed is sent when it is due: %r", error)
                return
            missing = [cause for cause in missing if not found[cause]]
            if not missing:
                return


def late(outgoing: Outgoing, now_us: int) -> Outgoing:
    """Shorten delay and lifetime of a message that is sent late.

    Args:
        now_us: microseconds since 1970.
    """
    if not outgoing.delay_ms and not outgoing.time_to_live_ms:
        return outgoing
    elapsed_ms = max(0, (now_us - outgoing.envelope.sent_us) // 1000)
    return msgspec.structs.replace(
        outgoing,
        delay_ms=max(0, outgoing.delay_ms - elapsed_ms),
        time_to_live_ms=max(1, outgoing.time_to_live_ms - elapsed_ms) if outgoing.time_to_live_ms else 0,
    )


def backoff_us(attempts: int) -> int:
    """How long to wait after so many attempts."""
    return min(BACKOFF_FIRST_US << min(attempts, 20), BACKOFF_MAX_US)
