"""Senders: links over which we send whole messages, or one message in parts."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import sub
from typing import TYPE_CHECKING, Any

from cproton import ffi, lib

from legato.amqp.engine import batch
from legato.amqp.engine.bypass import ALONE_MIN, BODY_MIN, FRAME_REST_BYTES
from legato.amqp.engine.link_base import Link
from legato.amqp.engine.outcomes import ACCEPTED, Outcome, Transactional
from legato.amqp.engine.states import ACCEPTED_STATE, write_outcome

if TYPE_CHECKING:
    from legato.amqp.engine.link import Session

BATCH_MIN = 2
"""Fewer messages are cheaper to send one by one."""

_pn_delivery = lib.pn_delivery
_pn_delivery_settle = lib.pn_delivery_settle
_pn_link_advance = lib.pn_link_advance
_pn_link_send = lib.pn_link_send


class SentRun:
    """Deliveries with neighbouring handles, as an array of pointers.

    Attributes:
        context: what was given to `send_run`.
        reported: so many of them, the first ones, the peer has accepted.
        settled: so many of these are settled.
    """

    __slots__ = ("context", "count", "deliveries", "reported", "settled")

    def __init__(self, deliveries: Any, count: int, context: Any) -> None:
        self.deliveries = deliveries
        self.count = count
        self.context = context
        self.reported = 0
        self.settled = 0


class Sender(Link):
    """A link over which we send.

    Attributes:
        credit: messages that may be sent now; sending more only queues them in memory.
        draining: the peer wants the credit used up or given back: send what there is, then call `drained`.
    """

    def __init__(self, session: Session, name: str, pn_link: Any) -> None:
        super().__init__(session, name, pn_link)
        self.draining = False
        self._runs: dict[int, SentRun] = {}
        """Runs that are not settled, by the handle of the first."""
        self.reserved = 0
        """Of the peer's credit, what is for messages that are begun, or wait in the shell for that to end."""
        self._begun_delivery: Any = None
        self._begun_settled = False

    def send(
        self,
        data: bytes,
        tag: bytes,
        context: Any = None,
        *,
        settled: bool = False,
        txn_id: bytes | None = None,
    ) -> int:
        """Send one message.

        Args:
            data: the encoded message.
            tag: at most 32 bytes (AMQP 2.8.7).
            context: comes back in every `Disposition` of this delivery.
            settled: nothing will be heard of it any more.
            txn_id: the transaction it belongs to (AMQP 4.5.6).

        Returns:
            A handle for `confirm` and `settle`; 0 if settled or the link is closed.
        """
        if self.closed:
            return 0
        pn = self._pn
        if txn_id is None and batch.sends_one:
            delivery = batch.send_one(pn, tag, data)
        else:
            delivery = _pn_delivery(pn, (len(tag), ffi.from_buffer(tag)))
            if txn_id is not None:
                write_outcome(delivery, Transactional(txn_id))
            _pn_link_send(pn, data, len(data))
            _pn_link_advance(pn)
        self.credit -= 1
        if settled:
            _pn_delivery_settle(delivery)
            return 0
        self._last_handle = handle = self._last_handle + 1
        self._unsettled[handle] = delivery
        self._deliveries[delivery] = (self, handle, context)
        return handle

    def send_one(self, data: bytes, tag: bytes, context: Any) -> int:
        """`send_all` of a single message; returns its handle."""
        if len(data) < BODY_MIN or not self.connection._batches:
            return self.send(data, tag, context)
        return self.send_all([data], tag, (context,))[0]

    def send_all(self, bodies: list[bytes], tags: bytes, contexts: Sequence[Any]) -> Sequence[int]:
        """`send` many messages, unsettled and of no transaction.

        Args:
            bodies: the encoded messages.
            tags: 8 bytes for each.
            contexts: as for `send`, one for each.

        Returns:
            Their handles.
        """
        count = len(bodies)
        is_worth_it = count >= BATCH_MIN or (count == 1 and len(bodies[0]) >= BODY_MIN)
        if self.closed or not is_worth_it or not self.connection._batches:
            return [
                self.send(data, tags[at : at + 8], context)
                for data, at, context in zip(bodies, range(0, 8 * count, 8), contexts, strict=True)
            ]
        ends = array("I", accumulate(map(len, bodies)))
        deliveries = ffi.unpack(self._send_run(bodies, ends, tags), count)
        self.credit -= count
        handles = range(self._last_handle + 1, self._last_handle + 1 + count)
        self._last_handle += count
        unsettled = self._unsettled
        known = self._deliveries
        for delivery, handle, context in zip(deliveries, handles, contexts, strict=True):
            unsettled[handle] = delivery
            known[delivery] = (self, handle, context)
        return handles

    @property
    def unsettled(self) -> int:
        """Deliveries that we have not settled."""
        return len(self._unsettled) + sum(run.count - run.settled for run in self._runs.values())

    def send_run(
        self, content: bytes | memoryview | Sequence[bytes], ends: array[int], first_tag: int, context: Any
    ) -> int:
        """`send_all` of messages that lie one behind the other, whose tags are neighbouring numbers.

        Their outcomes are told by `AcceptedRun`, as long as the peer accepts one after the other; otherwise by
        `Disposition`, whose context is `(context, place)` with the message's place in the run, from 0 on.

        Args:
            content: the encoded messages, as one or by themselves.
            ends: where each ends, if they lie one behind the other.
            first_tag: the number that is the first one's tag, in 8 bytes.

        Returns:
            The first one's handle; 0 if the link is closed.
        """
        if self.closed:
            return 0
        count = len(ends)
        numbers = array("Q", range(first_tag, first_tag + count))
        if sys.byteorder == "little":
            numbers.byteswap()
        tags = numbers.tobytes()
        if not self.connection._batches or not batch.tells_runs:
            bodies = _bodies(content, ends)
            return self.send_all(bodies, tags, [(context, place) for place in range(count)])[0]
        deliveries = self._send_run(content, ends, tags)
        handle = self._last_handle + 1
        self._last_handle += count
        self.credit -= count
        self._runs[handle] = SentRun(deliveries, count, context)
        self.connection._run_deliveries += count
        return handle

    def _send_run(self, content: bytes | memoryview | Sequence[bytes], ends: array[int], tags: bytes) -> Any:
        """Have the engine send messages; their deliveries, as an array of pointers."""
        # Before the peer's Open nobody knows what fits into a frame of its.
        bypass = self.connection._bypass if self.connection._opened else None
        sizes = [*map(sub, ends, (0, *ends))] if bypass is not None and ends[-1] >= BODY_MIN * len(ends) else None
        if sizes is None or max(sizes) + FRAME_REST_BYTES > self.connection.remote_max_frame_bytes:
            bypass = None
        if not isinstance(content, bytes | memoryview):
            if bypass is not None and sizes is not None and min(sizes) >= ALONE_MIN:
                return bypass.send_all(self, self._pn, content, tags)
            content = b"".join(content)
        if bypass is not None:
            return bypass.send_run(self, self._pn, content, ends, tags)
        return batch.send_run(self._pn, content, ends, tags)

    def confirm_run(self, handle: int, count: int) -> None:
        """`confirm` as accepted, for `count` deliveries of a run, from `handle` on, that an `AcceptedRun` told of."""
        for first, run in self._runs.items():
            if first + run.settled == handle and run.settled + count <= run.reported:
                batch.settle_run(run.deliveries, run.settled, count, ACCEPTED_STATE)
                self._settled_in(first, run, count)
                return
        self.confirm_all([*range(handle, handle + count)])

    def _settled_in(self, first: int, run: SentRun, count: int) -> None:
        """So many more of a run were settled."""
        self.connection._run_deliveries -= count
        run.settled += count
        if run.settled == run.count:
            del self._runs[first]

    def _spread_runs(self) -> None:
        """Have the runs' deliveries among all others, since one of them is told of, or settled, by itself."""
        for first, run in self._runs.items():
            self.connection._run_deliveries -= run.count - run.settled
            for place in range(run.settled, run.count):
                delivery, handle = run.deliveries[place], first + place
                self._unsettled[handle] = delivery
                self._deliveries[delivery] = (self, handle, (run.context, place))
                if place < run.reported:
                    self._reported[handle] = ACCEPTED
        self._runs.clear()

    def _forget(self) -> None:
        in_runs = sum(run.count - run.settled for run in self._runs.values())
        self.given_up += in_runs
        self.connection._run_deliveries -= in_runs
        self._runs.clear()
        super()._forget()

    # -- in parts ------------------------------------------------------------------------------------------------

    def begin(self, tag: bytes, context: Any = None, *, settled: bool = False, txn_id: bytes | None = None) -> int:
        """Begin a message that goes out in parts: `push` each, then `finish`; until then nothing else may be sent.

        Args:
            tag, context, settled, txn_id: as for `send`.

        Returns:
            A handle for `confirm` and `settle`; 0 if the link is closed.
        """
        if self.closed:
            return 0
        self._begun_delivery = delivery = _pn_delivery(self._pn, (len(tag), ffi.from_buffer(tag)))
        self._begun_settled = settled
        if txn_id is not None:
            write_outcome(delivery, Transactional(txn_id))
        self.credit -= 1
        self.reserved += 1
        self._begun = self._last_handle = handle = self._last_handle + 1
        if not settled:
            self._unsettled[handle] = delivery
            self._deliveries[delivery] = (self, handle, context)
        return handle

    def push(self, data: bytes) -> bool:
        """Send more of the message begun; False if it has ended meanwhile: the peer settled it, or the link closed."""
        if not self._begun:
            return False
        _pn_link_send(self._pn, data, len(data))
        return True

    def finish(self) -> bool:
        """That was all of the message begun; False as for `push`."""
        if not self._begun:
            return False
        self._begun = 0
        self.reserved -= 1
        _pn_link_advance(self._pn)
        if self._begun_settled:
            _pn_delivery_settle(self._begun_delivery)
        return True

    def abort(self) -> None:
        """Abort the message that was begun; the receiver drops its parts (AMQP 2.7.5)."""
        if self._begun:
            self._unsettled.pop(self._begun, None)
            self._deliveries.pop(self._begun_delivery, None)
            self._abort()

    def _abort(self) -> None:
        self._begun = 0
        self.reserved -= 1
        lib.pn_delivery_abort(self._begun_delivery)

    def replace_context(self, handle: int, context: Any) -> None:
        """Report another context with what is said of a delivery from now on."""
        if self._runs:
            self._spread_runs()
        delivery = self._unsettled.get(handle)
        if delivery is not None:
            self._deliveries[delivery] = (self, handle, context)

    def confirm(self, handle: int, outcome: Outcome | None = None) -> None:
        """Settle our side of a delivery whose receiver waits for it; nothing if it is settled already.

        Args:
            outcome: the state to settle with, if any.
        """
        if self._runs and handle not in self._unsettled:
            self._spread_runs()
        delivery = self._unsettled.pop(handle, None)
        if delivery is None:
            return
        self._reported.pop(handle, None)
        del self._deliveries[delivery]
        if outcome is not None:
            write_outcome(delivery, outcome)
        if handle == self._begun:
            self._abort()
        else:
            _pn_delivery_settle(delivery)

    settle = confirm

    def confirm_all(self, handles: list[int]) -> None:
        """`confirm` as accepted, for many at once."""
        if self._runs and not self._unsettled.keys() >= set(handles):
            self._spread_runs()
        if self._begun and self._begun in handles:
            # Accepted before its end.
            handles = [handle for handle in handles if handle != self._begun]
            self.confirm(self._begun)
        if self._reported:
            for handle in handles:
                self._reported.pop(handle, None)
        self._accept_all(handles)

    def drained(self) -> int:
        """Give back the credit left over; returns how much, 0 unless the peer drains."""
        if self.closed:
            return 0
        given_back: int = lib.pn_link_drained(self._pn)
        self.credit = lib.pn_link_credit(self._pn)
        return given_back


def _bodies(content: bytes | memoryview | Sequence[bytes], ends: array[int]) -> list[bytes]:
    """The messages of a run, by themselves."""
    if isinstance(content, bytes | memoryview):
        return [bytes(content[begin:end]) for begin, end in pairwise((0, *ends))]
    return [*content]
