"""Hot path with `_batch`: runs of plain deliveries become the events that `Deliveries` would make."""

from __future__ import annotations

from array import array
from typing import Any

from cproton import lib

from legato.amqp.engine.batch import (
    FLOW_EVENT,
    IS_ACCEPTED,
    IS_SETTLED,
    IS_TRANSACTIONAL,
    MESSAGE_EVENT,
    RUN_MAX,
    RUN_MIN,
    SETTLED,
    Run,
    give_run,
    knows_transactions,
    settle_all,
    settle_run,
    take_accepted,
    take_run,
)
from legato.amqp.engine.bypass import Bypass
from legato.amqp.engine.deliveries import Deliveries, Known, refuse_size
from legato.amqp.engine.events import AcceptedRun, ConfirmedRun, Disposition, Event, OutcomeLost, Transfer, TransferRun
from legato.amqp.engine.link import Link, Receiver, Sender
from legato.amqp.engine.outcomes import ACCEPTED, RECEIVED, RELEASED, Outcome, Transactional
from legato.amqp.engine.receiver import ReceivedRun
from legato.amqp.engine.states import ACCEPTED_STATE, RECEIVED_STATE, RELEASED_STATE, TRANSACTIONAL_STATE

_ACCEPTED_AND_SETTLED = ACCEPTED_STATE | SETTLED
_OUTCOMES: dict[int, Outcome | None] = {
    0: None,
    ACCEPTED_STATE: ACCEPTED,
    RECEIVED_STATE: RECEIVED,
    RELEASED_STATE: RELEASED,
}

_peek = lib.pn_collector_peek
_pop = lib.pn_collector_pop
_event_delivery = lib.pn_event_delivery
_delivery_link = lib.pn_delivery_link
_delivery_readable = lib.pn_delivery_readable
_delivery_remote_state = lib.pn_delivery_remote_state
_delivery_settle = lib.pn_delivery_settle


class Runs:
    """A connection's deliveries, as many at once as are alike; what is rare is left to `Deliveries`.

    Args:
        links: the connection's, by pointer.
        known: the connection's unsettled deliveries, by pointer.
        transfers: the same, one by one.
        bypass: knows the bodies that have passed the engine by.
    """

    def __init__(
        self, links: dict[Any, Link], known: Known, transfers: Deliveries, bypass: Bypass | None = None
    ) -> None:
        self._links = links
        self._transfers = transfers
        self._bypass = bypass
        self._known = known

    def take(self, collector: Any, delivery: Any, events: list[Event]) -> bool:
        """Handle what the collector's head begins, `delivery` being what it is about; False if that is not plain."""
        if _delivery_remote_state(delivery) == TRANSACTIONAL_STATE:
            if knows_transactions and self._take_transacted(delivery, collector, events):
                return True
            if delivery not in self._known:
                self._spread_run_of(delivery)
            return False
        if not _delivery_readable(delivery):
            link = self._links.get(_delivery_link(delivery))
            count_max = RUN_MAX
            told: bool | None = None
            if isinstance(link, Sender) and link._runs:
                told = self._take_accepted(link, collector, delivery, events)
            elif isinstance(link, Receiver) and link._stated:
                told = self._take_confirmed(link, collector, delivery, events)
            if told:
                return True
            if told is not None:
                if delivery not in self._known:
                    self._spread_run_of(delivery)
                # What follows may be of a run again.
                count_max = 1
            run = take_run()
            taken = run.take_outcomes(collector, count_max)
            if taken:
                self._report_outcomes(run, events)
            give_run(run)
            return taken > 0
        link = self._links.get(_delivery_link(delivery))
        if link.__class__ is not Receiver or link.closed or link._parts or link.credit <= 0:
            return False
        if link.coordinates and knows_transactions and self._take_transacted(delivery, collector, events):
            return True
        run = take_run()
        bypass = self._bypass
        taken = run.take_transfers(collector, link._pn, link.credit, link.max_message_bytes, link.reads_tags, bypass)
        if taken and not (link.takes_runs and taken >= RUN_MIN and self._report_run(run, link, events)):
            self._report_transfers(run, link, events)
        run.let_go()
        give_run(run)
        if bypass is not None and bypass.refuses_next():
            refuse_size(link, _event_delivery(_peek(collector)), events)
            _pop(collector)
            return True
        return taken > 0

    def _take_transacted(self, delivery: Any, collector: Any, events: list[Event]) -> bool:
        """Report what transactions are made of, of any links; False if the collector's head is not usual."""
        link = self._links.get(_delivery_link(delivery))
        if link is None or link.connection._unfinished:
            # What is read may be the end of a message.
            return False
        transfers = self._transfers
        run = take_run()
        taken = run.take_transacted(collector)
        for delivery, pn_link, kind, flags, data, tag, txn_id in run.transacted():
            if kind == FLOW_EVENT:
                transfers.on_flow(pn_link, events)
                continue
            settled = flags & IS_SETTLED != 0
            if kind == MESSAGE_EVENT:
                link = self._links.get(pn_link)
                if link.__class__ is Receiver:
                    transfers.on_message(
                        link, delivery, data, tag, txn_id if flags & IS_TRANSACTIONAL else None, settled, events
                    )
                continue
            known = self._known.get(delivery)
            if known is None:
                link = self._links.get(pn_link)
                if isinstance(link, Sender) and link._runs:
                    link._spread_runs()
                    known = self._known.get(delivery)
            if known is not None:
                outcome = Transactional(txn_id, ACCEPTED if flags & IS_ACCEPTED else None)
                transfers.on_outcome(delivery, known, outcome, settled, events)
            elif link is not None and link.closed:
                events.append(OutcomeLost(txn_id))
        give_run(run)
        return taken > 0

    def _report_run(self, run: Run, link: Receiver, events: list[Event]) -> bool:
        """Report transfers as one event; False if they are not alike."""
        count = run.count
        settled = run.flags().count(b"\x01")
        number = run.number() if link.reads_tags else 0
        if settled not in (0, count) or (link.reads_tags and not number):
            return False
        link.credit -= count
        handle = link._last_handle + 1
        link._last_handle += count
        if not settled:
            link._runs[handle] = ReceivedRun(run.pointers(), 0, count)
        if link.reads_apart:
            events.append(TransferRun(link, handle, b"", array("I"), settled > 0, number, run.bodies()))
        else:
            events.append(TransferRun(link, handle, *run.content(), settled > 0, number))
        return True

    def _report_transfers(self, run: Run, link: Receiver, events: list[Event]) -> None:
        count = run.count
        link.credit -= count
        handle = link._last_handle + 1
        link._last_handle += count
        tags = run.tags() if link.reads_tags else [b""] * count
        settled = run.flags()
        unsettled = link._unsettled
        handles = range(handle, handle + count)
        for handle, delivery, tag, data, known_settled in zip(
            handles, run.deliveries(), tags, run.bodies(), settled, strict=True
        ):
            if known_settled:
                events.append(Transfer(link, handle, tag, data, True, None))
            else:
                unsettled[handle] = delivery
                events.append(Transfer(link, handle, tag, data, False, None))

    def _take_accepted(self, link: Sender, collector: Any, delivery: Any, events: list[Event]) -> bool:
        """Report what the peer accepted of a run; False if the collector's head is not about the next one of any."""
        for first, run in link._runs.items():
            at = run.reported
            if at == run.count or run.deliveries[at] != delivery:
                continue
            count, settled = take_accepted(collector, run.deliveries, at, run.count - at)
            if settled and run.settled < at:
                # What was accepted before waits for our settlement: these cannot be settled before it in one piece.
                events.append(AcceptedRun(link, run.context, at, count, True, first + at))
                run.reported += count
                self._settle_between(link, first, at, count)
            elif count:
                run.reported += count
                if settled:
                    settle_run(run.deliveries, at, count, 0)
                    link._settled_in(first, run, count)
                events.append(AcceptedRun(link, run.context, at, count, settled, first + at))
            return count > 0
        return False

    @staticmethod
    def _take_confirmed(link: Receiver, collector: Any, delivery: Any, events: list[Event]) -> bool:
        """Report what the peer settled of what is stated; False if the collector's head is not about the next of it."""
        for place, (first, run) in enumerate(link._stated):
            if run.deliveries[run.at] != delivery:
                continue
            count, settled = take_accepted(collector, run.deliveries, run.at, run.length)
            if count and settled:
                settle_run(run.deliveries, run.at, count, 0)
                link.connection._run_deliveries -= count
                if count < run.length:
                    link._stated[place] = (
                        first + count,
                        ReceivedRun(run.deliveries, run.at + count, run.length - count),
                    )
                else:
                    del link._stated[place]
                events.append(ConfirmedRun(link, first, count))
            # That the peer has heard our outcome is no news until it settles.
            return count > 0
        return False

    @staticmethod
    def _settle_between(link: Sender, first: int, at: int, count: int) -> None:
        """Settle some of a run's deliveries whose predecessors are not settled."""
        link._spread_runs()
        for handle in range(first + at, first + at + count):
            link._reported.pop(handle, None)
            delivery = link._unsettled.pop(handle)
            del link._deliveries[delivery]
            _delivery_settle(delivery)

    def _report_outcomes(self, run: Run, events: list[Event]) -> None:
        take = self._known.pop
        finished = []
        for delivery, state in zip(run.deliveries(), run.flags(), strict=True):
            if not state & SETTLED:
                if state:
                    self._report_unsettled(delivery, _OUTCOMES[state], events)
                continue
            known = take(delivery, None)
            if known is None and self._spread_run_of(delivery):
                known = take(delivery, None)
            if known is None:
                continue
            link, handle, context = known
            finished.append(delivery)
            del link._unsettled[handle]
            if link._reported:
                link._reported.pop(handle, None)
            outcome = ACCEPTED if state == _ACCEPTED_AND_SETTLED else _OUTCOMES[state ^ SETTLED]
            events.append(Disposition(link, context, outcome, True, handle))
        if len(finished) == run.count:
            run.settle()
        elif finished:
            settle_all(finished, 0)

    def _spread_run_of(self, delivery: Any) -> bool:
        """If the delivery may be one of a run, have it among all others."""
        link = self._links.get(_delivery_link(delivery))
        if (isinstance(link, Sender) and link._runs) or (isinstance(link, Receiver) and link._stated):
            link._spread_runs()
            return True
        return False

    def _report_unsettled(self, delivery: Any, outcome: Outcome | None, events: list[Event]) -> None:
        known = self._known.get(delivery)
        if known is None and self._spread_run_of(delivery):
            known = self._known.get(delivery)
        if known is None:
            return
        link, handle, context = known
        if link._reported.get(handle) == outcome:
            return
        link._reported[handle] = outcome
        events.append(Disposition(link, context, outcome, False, handle))
