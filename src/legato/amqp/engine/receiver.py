"""Receivers: links over which we receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cproton import lib

from legato.amqp.engine import batch
from legato.amqp.engine.link_base import Link
from legato.amqp.engine.outcomes import ACCEPTED, Accepted, Outcome
from legato.amqp.engine.states import ACCEPTED_STATE, write_outcome

if TYPE_CHECKING:
    from legato.amqp.engine.link import Session

_pn_delivery_settle = lib.pn_delivery_settle
_pn_delivery_update = lib.pn_delivery_update


class ReceivedRun(NamedTuple):
    """Deliveries with neighbouring handles: `length` of an array of pointers, from `at` on."""

    deliveries: Any
    at: int
    length: int


class Receiver(Link):
    """A link over which we receive; the shell grants `credit` and settles deliveries."""

    def __init__(self, session: Session, name: str, pn_link: Any) -> None:
        super().__init__(session, name, pn_link)
        self.max_message_bytes = session.connection.settings.max_message_bytes
        self.streams = False
        """Whether messages of more than `limits.LARGE_MESSAGE_BYTES` are reported in parts, as they come."""
        self.reads_tags = True
        """Whether `Transfer.tag` is wanted; reading it costs as much as the rest of a small transfer's bookkeeping."""
        self.takes_runs = False
        """Whether messages that arrive together may be reported as a `TransferRun`."""
        self.coordinates = False
        """Whether it is of a coordinator of transactions."""
        self.reads_apart = False
        """Whether the messages of such a run are wanted by themselves, not one behind the other."""
        self._runs: dict[int, ReceivedRun] = {}
        """What is unsettled of reported runs, and no outcome is stated of, by the handle of the first."""
        self._stated: list[tuple[int, ReceivedRun]] = []
        """What was of these and is accepted, and waits for the sender to settle."""
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._streamed_bytes = 0
        """Of the message that is reported in parts, what was; 0 if none is."""
        self._streamed_tag = b""
        self._drain_asked = False

    @property
    def draining(self) -> bool:
        """We asked the peer to use up or give back its credit, and it has not done so yet."""
        return self._drain_asked and self.credit > 0

    @property
    def unsettled(self) -> int:
        """Deliveries that we have not settled."""
        in_runs = sum(run.length for run in self._runs.values()) + sum(run.length for _, run in self._stated)
        return len(self._unsettled) + in_runs

    @property
    def queued(self) -> int:
        """Deliveries begun that are not read to their end."""
        return 0 if self.closed else lib.pn_link_queued(self._pn)

    def add_credit(self, messages: int) -> None:
        """Allow the peer `messages` more; ends a drain."""
        if not self.closed and messages > 0:
            self._drain_asked = False
            self.credit += messages
            lib.pn_link_flow(self._pn, messages)

    def drain(self, messages: int = 0) -> bool:
        """Allow `messages` more and ask for the rest back; a `Flow` tells when it came, unless messages used it up.

        Returns:
            False if there is no credit to drain, so that nothing is to be waited for (amqp.md C2.3).
        """
        if self.closed or self.credit + messages <= 0:
            return False
        self._drain_asked = True
        self.credit += messages
        lib.pn_link_drain(self._pn, messages)
        return True

    def settle(self, delivery: int, outcome: Outcome | None = ACCEPTED) -> None:
        """State `outcome` and settle; nothing if the delivery is unknown or settled."""
        pn_delivery = self._unsettled.pop(delivery, None)
        if pn_delivery is None:
            if not (self._runs or self._stated):
                return
            self._spread_runs()
            pn_delivery = self._unsettled.pop(delivery, None)
            if pn_delivery is None:
                return
        self._deliveries.pop(pn_delivery, None)
        if type(outcome) is Accepted:
            _pn_delivery_update(pn_delivery, ACCEPTED_STATE)
        elif outcome is not None:
            write_outcome(pn_delivery, outcome)
        _pn_delivery_settle(pn_delivery)

    def accept_all(self, deliveries: list[int]) -> None:
        """`settle` as accepted, for many at once."""
        if self._runs or self._stated:
            self._spread_runs()
        self._accept_all(deliveries)

    def accept_run(self, delivery: int, count: int) -> None:
        """`settle` as accepted, for `count` deliveries from one on that came as one run."""
        end = delivery + count
        while delivery < end and (part := self._take_part(delivery, end - delivery)) is not None:
            batch.settle_run(part.deliveries, part.at, part.length, ACCEPTED_STATE)
            delivery += part.length
        if delivery < end:
            self.accept_all([*range(delivery, end)])

    def state_accepted(self, delivery: int, count: int) -> None:
        """`update` as accepted, for `count` deliveries from one on.

        What came in runs is confirmed by `ConfirmedRun`, as long as the sender settles one after the other; otherwise
        by `Disposition`.
        """
        end = delivery + count
        while delivery < end:
            part = self._take_part(delivery, end - delivery)
            if part is None:
                self.update(delivery, ACCEPTED)
                delivery += 1
                continue
            self._stated.append((delivery, part))
            self.connection._run_deliveries += part.length
            for pn_delivery in part.deliveries[part.at : part.at + part.length]:
                _pn_delivery_update(pn_delivery, ACCEPTED_STATE)
            delivery += part.length

    def _take_part(self, delivery: int, count_max: int) -> ReceivedRun | None:
        """Take a delivery, and up to `count_max` with those behind it, out of its run; None if it is in none."""
        first, run = delivery, self._runs.pop(delivery, None)
        if run is None:
            if delivery in self._unsettled:
                return None
            for first, run in self._runs.items():
                if first < delivery < first + run.length:
                    del self._runs[first]
                    break
            else:
                return None
        skipped = delivery - first
        count = min(count_max, run.length - skipped)
        if skipped:
            self._runs[first] = run._replace(length=skipped)
        if left := run.length - skipped - count:
            self._runs[delivery + count] = ReceivedRun(run.deliveries, run.at + skipped + count, left)
        return ReceivedRun(run.deliveries, run.at + skipped, count)

    def update(self, delivery: int, outcome: Outcome) -> None:
        """State `outcome` without settling: a terminal one asks the sender for a confirmation (AMQP 2.6.12)."""
        pn_delivery = self._unsettled.get(delivery)
        if pn_delivery is None and (self._runs or self._stated):
            self._spread_runs()
            pn_delivery = self._unsettled.get(delivery)
        if pn_delivery is not None:
            self._deliveries[pn_delivery] = (self, delivery, delivery)
            write_outcome(pn_delivery, outcome)

    def _limit_messages(self, max_message_bytes: int | None) -> None:
        if max_message_bytes is not None:
            self.max_message_bytes = max_message_bytes
        lib.pn_link_set_max_message_size(self._pn, self.max_message_bytes)

    def _hold_part(self, data: bytes) -> None:
        if not self._parts:
            self.connection._unfinished += 1
        self._parts.append(data)

    def _drop_parts(self) -> None:
        if self._parts:
            self.connection._unfinished -= 1
        self.session.partial_bytes -= self._part_bytes
        self._parts.clear()
        self._part_bytes = self._streamed_bytes = 0

    def _spread_runs(self) -> None:
        """Have the runs' deliveries among all others, since one of them is settled by itself."""
        for handle, run in self._runs.items():
            deliveries = run.deliveries[run.at : run.at + run.length]
            self._unsettled.update(zip(range(handle, handle + run.length), deliveries, strict=True))
        self._runs.clear()
        for handle, run in self._stated:
            self.connection._run_deliveries -= run.length
            for at, pn_delivery in enumerate(run.deliveries[run.at : run.at + run.length], handle):
                self._unsettled[at] = pn_delivery
                self._deliveries[pn_delivery] = (self, at, at)
        self._stated.clear()

    def _read_remote(self) -> None:
        super()._read_remote()
        self.coordinates = self.remote_target.kind == "coordinator"

    def _forget(self) -> None:
        self._drop_parts()
        self._spread_runs()
        super()._forget()
