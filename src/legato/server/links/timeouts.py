"""Time-outs of acknowledgements and transactions, and consumers that are slow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

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
        """Since when deliveries are not settled, by their handles: as the first review found them."""
        self.head = 0
        """The oldest delivery."""
        self.head_us = 0
        self.is_slow = False


class TimeoutReview:
    """Looks a few times a second for what is due, so that nothing is counted or timed per message.

    Args:
        timeouts_of: the time-outs of a user; all are 0 by default.
        slow_consumer_s: a consumer is slow if messages wait in its queue, and for so long it has not settled the oldest
            of its deliveries; 0: none is.
    """

    def __init__(
        self, broker: Broker, peers: Iterable[Peer], timeouts_of: Callable[[Peer], Timeouts], slow_consumer_s: float
    ) -> None:
        self._broker = broker
        self._peers = peers
        self._timeouts_of = timeouts_of
        self.slow_consumer_s = slow_consumer_s
        self._watched: dict[Consumer, _Watched] = {}
        self._declared_us: dict[bytes, int] = {}
        self._next_us = 0

    def review(self, now_us: int) -> None:
        """Take back what is overdue."""
        if now_us < self._next_us:
            return
        self._next_us = now_us + REVIEW_EVERY_US
        watched: dict[Consumer, _Watched] = {}
        declared_us: dict[bytes, int] = {}
        for peer in list(self._peers):
            timeouts = self._timeouts_of(peer)
            for receiver in list(peer.receivers):
                if isinstance(receiver, Consumer) and receiver.held:
                    watched[receiver] = seen = self._watched.get(receiver) or _Watched()
                    self._review_consumer(peer, receiver, seen, timeouts, now_us)
            peer.slow_consumers = sum(receiver in watched and watched[receiver].is_slow for receiver in peer.receivers)
            for txn_id in list(peer.transactions):
                declared_us[txn_id] = self._declared_us.get(txn_id, now_us)
                self._review_transaction(peer, txn_id, timeouts, now_us - declared_us[txn_id])
        self._watched, self._declared_us = watched, declared_us
        self._broker.dispatcher.dispatch_returned(now_us)

    def _review_consumer(self, peer: Peer, consumer: Consumer, seen: _Watched, timeouts: Timeouts, now_us: int) -> None:
        own_s = consumer.queue.settings.acknowledgement_timeout_s
        timeout_s = _shortest(own_s, timeouts.acknowledgement_timeout_s)
        if timeout_s:
            self._take_back(consumer, seen, timeout_s, now_us)
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

    def _take_back(self, consumer: Consumer, seen: _Watched, timeout_s: float, now_us: int) -> None:
        """Take back what was delivered before, if the consumer does not go on with it."""
        before = seen.since_us
        seen.since_us = {message.handle: before.get(message.handle, now_us) for message in consumer.unsettled.values()}
        latest_us = now_us - timeout_s * 1_000_000
        overdue = [message for message in consumer.unsettled.values() if seen.since_us[message.handle] <= latest_us]
        # What a client has only fetched ahead is not late as long as its application goes on.
        if not any(self._counts(consumer, message) for message in overdue):
            return
        port: DeliveryLink = consumer.port
        for message in overdue:
            port.link.replace_context(message.handle, TAKEN_BACK)
            if self._counts(consumer, message):
                text = f"not acknowledged within {timeout_s:g} s"
                self._broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False, text=text)
            else:
                self._broker.settlement.release(consumer, message)
        log.warning(
            "! %s deliveries of %a are taken back from %a: they were not acknowledged within %g s",
            len(overdue),
            consumer.queue.name,
            consumer.container,
            timeout_s,
        )

    def _counts(self, consumer: Consumer, message: Message) -> bool:
        return message.presented or not consumer.reports_presented

    def _review_transaction(self, peer: Peer, txn_id: bytes, timeouts: Timeouts, age_us: int) -> None:
        transaction = self._broker.transactions.find(txn_id, peer)
        if transaction is None:
            peer.transactions.discard(txn_id)
            return
        timeout_s = _shortest(timeouts.transaction_timeout_s, *_timeouts_of_addresses(transaction))
        if timeout_s and age_us >= timeout_s * 1_000_000:
            log.warning("! a transaction of %a is rolled back: it was open for %g s", peer.container, timeout_s)
            self._broker.transactions.roll_back(transaction, "timeout")
            peer.transactions.discard(txn_id)


def _timeouts_of_addresses(transaction: Transaction) -> set[float]:
    return {node.settings.transaction_timeout_s for node, _ in transaction.sends} | {
        message.queue.settings.transaction_timeout_s for _, message in transaction.consumed
    }


def _shortest(*timeouts_s: float) -> float:
    return min((timeout_s for timeout_s in timeouts_s if timeout_s), default=0.0)
