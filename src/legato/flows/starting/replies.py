"""Replies to futures that wait at another group of brokers than a stage: they go out when its transaction is over.

A transaction is one group's, and the address of a future is at the group to which its process is connected. Somebody
may wait for a reply that is lost with this process: it is told that it came too late.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from legato.errors import FlowError, JMSError
from legato.flows.model.envelope import Outgoing
from legato.quoting import quoted, sentence

if TYPE_CHECKING:
    from legato.flows.starting.sender_pool import Initiator

logger = logging.getLogger("legato.flows")

REPLIES_MAX = 10_000
"""That wait to be sent, because their group is away; the others are dropped."""


class Replies:
    """Sends them in a thread of its own: a group that is away must not hold up stages of another one."""

    def __init__(self, initiator: Initiator) -> None:
        self._initiator = initiator
        self._pool = ThreadPoolExecutor(1, "replies")
        self._begun: set[Future[None]] = set()

    def send(self, replies: Sequence[Outgoing]) -> None:
        """Send them soon."""
        for one in replies:
            if len(self._begun) >= REPLIES_MAX:
                logger.warning(
                    "Flow %s: its reply is dropped: %d wait for another group of brokers already.",
                    quoted(one.envelope.trace_id),
                    REPLIES_MAX,
                )
                continue
            try:
                begun = self._pool.submit(self._send, one)
            except RuntimeError:  # The service was stopped meanwhile.
                logger.warning("Flow %s: its reply is dropped: the service ends.", quoted(one.envelope.trace_id))
                continue
            self._begun.add(begun)
            begun.add_done_callback(self._begun.discard)

    def close(self, timeout_s: float) -> None:
        """Wait for those that are under way."""
        wait(set(self._begun), timeout_s)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _send(self, one: Outgoing) -> None:
        try:
            self._initiator.send([one])
        except (FlowError, JMSError) as error:
            logger.warning("Flow %s: its reply is lost: %s", quoted(one.envelope.trace_id), sentence(error))
