"""Time-outs of acknowledgements and transactions, and consumers that are slow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.message import Message, MessageRun
from legato.core.transaction import Transaction
from legato.server.config.bounds import Timeouts
from legato.server.links.link_roles import DeliveryLink
from legato.server.shell import Peer

log = logging.getLogger("legato.timeouts")

REVIEW_EVERY_US = 250_000


class TakenBack:
    """In the place of a message whose receiver did not acknowledge it in time: what it says of it later is too late."""


TAKEN_BACK = TakenBack()


class _Watched:
    """What one consumer had not settled at former reviews."""

    __slots__ = ("head", "head_us", "is_slow", "since_us")

    def __init__(self) -> None:
        self.since_us: dict[int, int] = {}
        """Since when deliveries are not settled, as the first review found them: by their handles, and messages that
        are not sent yet by their numbers, negative."""
        self.head = 0
        """The oldest delivery."""
        self.head_us = 0
        self.is_slow = False


class TimeoutReview:
    """Looks a few times a second for what is due, so that nothing is counted or timed per message.

    Args:
        timeouts_of: the time-outs of a user; all are 0 by default.
        shortest_of_addresses_s: the shortest time-out of transactions that any address has; 0: none has one.
        slow_consumer_s: a consumer is slow if messages wait in its queue, and for so long it has not settled the oldest
            of its deliveries; 0: none is.
        begin: does work in steps, some at once and more in each turn of the loop.
        spread: the same, and begins in the next turn.
        now_us: the time of day, by which transactions were declared.
        passed_us: a clock that nobody sets, by which consumers are late.
    """

    def __init__(
        self,
        broker: Broker,
        peers: Iterable[Peer],
        timeouts_of: Callable[[Peer], Timeouts],
        shortest_of_addresses_s: Callable[[], float],
        slow_consumer_s: float,
        begin: Callable[[Iterator[None]], None],
        spread: Callable[[Iterator[None]], None],
        now_us: Callable[[], int],
        passed_us: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._peers = peers
        self._timeouts_of = timeouts_of
        self.slow_consumer_s = slow_consumer_s
        self._watched: dict[Consumer, _Watched] = {}
        self._shortest_of_addresses_s = shortest_of_addresses_s
        self._begin = begin
        self._spread = spread
        self._now_us = now_us
        self._passed_us = passed_us
        self._next_us = 0
        self._is_reviewing = False
        """Whether transactions are being looked at: there may be millions."""
        self._is_walking = False
        """Whether consumers are."""

    def review(self, now_us: int) -> None:
        """Take back what is overdue."""
        passed_us = self._passed_us()
        if passed_us < self._next_us:
            return
        self._next_us = passed_us + REVIEW_EVERY_US
        if not self._is_walking:
            self._is_walking = True
            self._begin(self.consumers_in_steps())
        self._broker.dispatcher.dispatch_returned(now_us)

    def consumers_in_steps(self) -> Iterator[None]:
        """Take back what is overdue of all consumers; each step looks at one of them, or takes one message back."""
        try:
            watched: dict[Consumer, _Watched] = {}
            is_any_due = bool(self._shortest_of_addresses_s())
            for peer in list(self._peers):
                timeouts = self._timeouts_of(peer)
                is_any_due |= bool(timeouts.transaction_timeout_s)
                for receiver in list(peer.receivers):
                    if isinstance(receiver, Consumer) and receiver.held:
                        watched[receiver] = seen = self._watched.get(receiver) or _Watched()
                        yield from self._review_consumer(peer, receiver, seen, timeouts, self._passed_us())
                        yield
                if peer.slow_consumers or self.slow_consumer_s:
                    slow = [receiver in watched and watched[receiver].is_slow for receiver in peer.receivers]
                    peer.slow_consumers = sum(slow)
            self._watched = watched
        finally:
            self._is_walking = False
        if is_any_due and not self._is_reviewing:
            self._is_reviewing = True
            self._spread(self.transactions_in_steps())

    def _review_consumer(
        self, peer: Peer, consumer: Consumer, seen: _Watched, timeouts: Timeouts, now_us: int
    ) -> Iterator[None]:
        own_s = consumer.queue.settings.acknowledgement_timeout_s
        timeout_s = _shortest(own_s, timeouts.acknowledgement_timeout_s)
        if timeout_s:
            yield from self._take_back(consumer, seen, timeout_s, now_us)
        oldest = next(iter(consumer.held.values()), None)
        if oldest is None:
            seen.is_slow = False
            return
        handle = oldest.handle + (oldest.settled if isinstance(oldest, MessageRun) else 0)
        if seen.head != handle:
            seen.head, seen.head_us, seen.is_slow = handle, now_us, False
        elif self.slow_consumer_s and now_us - seen.head_us >= self.slow_consumer_s * 1_000_000:
            waits = consumer.queue.depth > consumer.unsettled_count
            if waits and not seen.is_slow:
                log.warning(
                    "! a consumer of %a is slow: %a (%s) has not settled its oldest delivery for %g s",
                    consumer.queue.name,
                    consumer.container,
                    peer.name,
                    self.slow_consumer_s,
                )
            seen.is_slow = waits

    def _take_back(self, consumer: Consumer, seen: _Watched, timeout_s: float, now_us: int) -> Iterator[None]:
        """Take back what was delivered before, if the consumer does not go on with it."""
        before = seen.since_us
        seen.since_us = {key: before.get(key, now_us) for key in map(_key, consumer.unsettled.values())}
        latest_us = now_us - timeout_s * 1_000_000
        overdue = [
            (message, message.handle)
            for message in consumer.unsettled.values()
            if seen.since_us[_key(message)] <= latest_us
        ]
        # What a client has only fetched ahead is not late as long as its application goes on.
        if not any(self._counts(consumer, message) for message, _ in overdue):
            return
        port: DeliveryLink = consumer.port
        taken_back: list[Message] = []
        for message, handle in overdue:
            if consumer.unsettled.get(message.seq) is not message or message.handle != handle:
                # Settled, or its consumer went, or it was given to it again, since the last step.
                continue
            taken_back.append(message)
            port.link.replace_context(handle, TAKEN_BACK)
            if self._counts(consumer, message):
                text = f"not acknowledged within {timeout_s:g} s"
                self._broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False, text=text)
            else:
                # Not reported is not unseen: of a lump only the newest is, and a report may be on its way (promise 4).
                message.flagged = message.flagged or bool(handle)
                self._broker.settlement.release(consumer, message)
            yield
        self._broker.dispatcher.dispatch_returned(self._now_us())
        log.warning(
            "! %s deliveries of %a are taken back from %a: they were not acknowledged within %g s",
            len(taken_back),
            consumer.queue.name,
            consumer.container,
            timeout_s,
        )

    def _counts(self, consumer: Consumer, message: Message) -> bool:
        return message.presented or bool(message.handle and not consumer.reports_presented)

    def _shortest_s(self, peer: Peer) -> float:
        """No transaction of this peer is due sooner; 0 if none is at all."""
        return _shortest(self._timeouts_of(peer).transaction_timeout_s, self._shortest_of_addresses_s())

    def transactions_in_steps(self) -> Iterator[None]:
        """Roll back what is overdue; each step looks at one transaction that may be."""
        try:
            for peer in list(self._peers):
                shortest_s = self._shortest_s(peer)
                if not shortest_s:
                    continue
                for transaction in self._broker.transactions.of(peer):
                    if self._now_us() - transaction.declared_us < shortest_s * 1_000_000:
                        break
                    self._review_transaction(peer, transaction)
                    yield
        finally:
            self._is_reviewing = False

    def _review_transaction(self, peer: Peer, transaction: Transaction) -> None:
        if self._broker.transactions.find(transaction.id, peer) is None:
            return
        own_s = self._timeouts_of(peer).transaction_timeout_s
        timeout_s = _shortest(own_s, *_timeouts_of_addresses(transaction))
        now_us = self._now_us()
        if timeout_s and now_us - transaction.declared_us >= timeout_s * 1_000_000:
            log.warning("! a transaction of %a is rolled back: it was open for %g s", peer.container, timeout_s)
            self._broker.transactions.roll_back(transaction, "timeout")
            self._broker.dispatcher.dispatch_returned(now_us)


def _key(message: Message) -> int:
    """Tells a delivery from all others to its consumer; it has no handle before it has begun."""
    return message.handle or -message.seq


def _timeouts_of_addresses(transaction: Transaction) -> set[float]:
    return {node.settings.transaction_timeout_s for node, _ in transaction.sends} | {
        message.queue.settings.transaction_timeout_s for _, message in transaction.consumed
    }


def _shortest(*timeouts_s: float) -> float:
    return min((timeout_s for timeout_s in timeouts_s if timeout_s), default=0.0)
