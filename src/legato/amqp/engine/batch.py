"""Batched engine calls: one for a run of deliveries, if the optional module `_batch` was compiled."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

if TYPE_CHECKING:
    from legato.amqp.engine.bypass import Bypass

try:
    from legato.amqp import _batch
except ImportError:
    _batch = None  # type: ignore[assignment]

RUN_MAX = 1024
"""Deliveries in one call at most."""
RUN_BYTES_MAX = 1 << 18
"""Message bytes in one call at most."""
TAG_BYTES_MAX = 32
RUN_MIN = 4
"""Fewer messages are cheaper to report one by one."""
NUMBER_MAX = 1 << 62
"""Tags above it are no numbers of messages."""
SETTLED = 0x80
"""In a state that `Run.take_outcomes` returns: the peer settled."""

FLOW_EVENT, MESSAGE_EVENT, OUTCOME_EVENT = 0, 1, 2
IS_SETTLED, IS_ACCEPTED, IS_TRANSACTIONAL = 1, 2, 4

_DELIVERY, _LINK_FLOW, _COORDINATOR = lib.PN_DELIVERY, lib.PN_LINK_FLOW, lib.PN_COORDINATOR
_unpack = ffi.unpack
POINTERS = ffi.typeof("pn_delivery_t *[]")
_TRANSACTED = struct.Struct("@I4B")
"""A `transacted` of the module's: size, tag's size, id's size, kind, flags."""
_POINTER_BYTES = ffi.sizeof("void *")
_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


def _bind() -> bool:
    """Give the module the engine's functions; whether it can be used."""
    if _batch is None or not _batch.lib.wanted():
        return False
    functions = _batch.lib.proton
    try:
        for name, field in _batch.ffi.typeof("proton_functions").fields:
            setattr(functions, name, _batch.ffi.cast(field.type, ffi.addressof(lib, f"pn_{name}")))
    except AttributeError:
        return False
    return True


available = _bind()
"""Whether connections made from now on batch: the module was compiled, and `LEGATO_PURE=1` did not forbid it."""

inspects = available and hasattr(_batch.lib, "step_over_deliveries")
"""Whether the module looks at frames too: one that was compiled earlier does not."""


tells_runs = available and hasattr(_batch.lib, "take_accepted") and array("I").itemsize == ffi.sizeof("uint32_t")
"""Whether a run can be reported as one event: the module knows what they need."""


knows_transactions = available and hasattr(_batch.lib, "take_transacted")
"""Whether the module reads and writes what transactions say."""


sends_one = available and hasattr(_batch.lib, "send_one")
"""Whether the module sends a single message in one call."""


bypasses = tells_runs and hasattr(_batch.lib, "take_apart")
"""Whether bodies can pass the engine by (`bypass`): the module knows how."""


class Inspector:
    """Looks at frames before the engine does; see `legato.amqp.engine.gate`."""

    def __init__(self) -> None:
        self._skip = _batch.ffi.new("uint64_t *")
        self._elements = _batch.ffi.new("uint32_t *")
        self._end = _batch.ffi.new("size_t *")

    def inspect(
        self,
        data: bytes,
        at: int,
        skip: int,
        frame_bytes_max: int,
        frame_elements_max: int,
        empty_max: int,
        elements: int,
        elements_max: int,
    ) -> tuple[int, int, int, int]:
        """Where what was looked at ends, why, what of the frame there is to come, and how many elements it has."""
        self._skip[0] = skip
        self._elements[0] = elements
        look = _batch.lib.inspect_frames(
            _batch.ffi.from_buffer(data),
            len(data),
            at,
            self._skip,
            frame_bytes_max,
            frame_elements_max,
            empty_max,
            self._elements,
            elements_max,
            self._end,
        )
        return self._end[0], look, self._skip[0], self._elements[0]


def step_over_deliveries(data: bytes, at: int) -> int:
    """Where from `at` on the first frame begins that is neither empty nor a transfer or disposition of the usual form;
    the end of `data` or more if there is none, or where one begins whose descriptor is not there yet."""
    found: int = _batch.lib.step_over_deliveries(_batch.ffi.from_buffer(data), len(data), at)
    return found


steps_over_flows = inspects and hasattr(_batch.lib, "step_over_usual") and array("Q").itemsize == 8
"""Whether the module also steps over flows."""


def step_over_usual(data: bytes, at: int, frame_bytes_max: int, links: array[int]) -> int:
    """`step_over_deliveries`, and over flows of the usual form that ask for no echo, of a session or of `links`.

    Args:
        links: of each its channel, times 2^32, and its handle, in order.
    """
    known = _batch.ffi.from_buffer("uint64_t[]", links)
    found: int = _batch.lib.step_over_usual(
        _batch.ffi.from_buffer(data), len(data), at, frame_bytes_max, known, len(links)
    )
    return found


class Run:
    """The buffers of one run; their content is valid until the next call."""

    def __init__(self) -> None:
        self.count = 0
        self._deliveries = ffi.new(POINTERS, RUN_MAX)
        self._bytes = _new_uncleared("char[]", RUN_BYTES_MAX)
        self._view = ffi.buffer(self._bytes)
        self._ends = ffi.new("uint32_t[]", RUN_MAX)
        self._flags = ffi.new("char[]", RUN_MAX)
        self._tags = ffi.new("char[]", RUN_MAX * TAG_BYTES_MAX)
        self._tag_sizes = ffi.new("char[]", RUN_MAX)
        self._places = _batch.ffi.new("body[]", RUN_MAX) if bypasses else None
        self._links = ffi.new("pn_link_t *[]", RUN_MAX)
        self._records = _batch.ffi.new("transacted[]", RUN_MAX) if knows_transactions else None
        self._pieces: list[memoryview] | None = None
        """The messages, if some of them have passed the engine by."""

    def take_transfers(
        self,
        collector: Any,
        pn_link: Any,
        count_max: int,
        message_bytes_max: int,
        tags: bool,
        bypass: Bypass | None = None,
    ) -> int:
        """Read whole messages of one link that wait at the collector's head; how many there were.

        Args:
            count_max: the link's credit.
            message_bytes_max: larger ones are left.
            tags: whether they are wanted.
            bypass: knows the bodies that have passed the engine by, if any can.
        """
        room = (
            collector,
            _DELIVERY,
            pn_link,
            min(count_max, RUN_MAX),
            message_bytes_max,
            self._bytes,
            RUN_BYTES_MAX,
            self._deliveries,
            self._ends,
            self._flags,
            self._tags if tags else ffi.NULL,
            self._tag_sizes,
        )
        self._pieces = None
        if bypass is None:
            self.count = _batch.lib.take_transfers(*room)
            return self.count
        self.count = _batch.lib.take_apart(bypass.way, *room, self._places)
        if bypass.way.taken_apart:
            self._pieces = bypass.pieces(self._places, self.count, memoryview(self._view))
        return self.count

    def let_go(self) -> None:
        """What was received and has the messages in it need not be kept."""
        self._pieces = None

    def take_outcomes(self, collector: Any, count_max: int = RUN_MAX) -> int:
        """Read outcomes of what we sent or received that wait at the collector's head; how many there were."""
        self.count = _batch.lib.take_outcomes(collector, _DELIVERY, count_max, self._deliveries, self._flags)
        return self.count

    def take_transacted(self, collector: Any) -> int:
        """Read what transactions are made of and waits at the collector's head, of any links; how much there was."""
        self.count = _batch.lib.take_transacted(
            collector,
            _DELIVERY,
            _LINK_FLOW,
            _COORDINATOR,
            RUN_MAX,
            self._bytes,
            RUN_BYTES_MAX,
            self._deliveries,
            self._links,
            self._records,
        )
        return self.count

    def transacted(self) -> Iterator[tuple[Any, Any, int, int, bytes, bytes, bytes]]:
        """What was taken: delivery, link, kind, flags, message, tag, and the transaction's id."""
        view = self._view
        records = _batch.ffi.buffer(self._records, self.count * _TRANSACTED.size)
        end = 0
        for delivery, link, (size, tag_size, id_size, kind, flags) in zip(
            self.deliveries(), _unpack(self._links, self.count), _TRANSACTED.iter_unpack(records), strict=True
        ):
            begin, tag_at = end, end + size
            id_at = tag_at + tag_size
            end = id_at + id_size
            yield delivery, link, kind, flags, view[begin:tag_at], view[tag_at:id_at], view[id_at:end]

    def deliveries(self) -> list[Any]:
        """The run's deliveries."""
        taken: list[Any] = _unpack(self._deliveries, self.count)
        return taken

    def flags(self) -> bytes:
        """For transfers whether they came settled, for outcomes the state and `SETTLED`; a byte each."""
        flags: bytes = _unpack(self._flags, self.count)
        return flags

    def bodies(self) -> list[bytes]:
        """The messages."""
        if self._pieces is not None:
            return [*map(bytes, self._pieces)]
        view = self._view
        start = 0
        bodies = []
        for end in _unpack(self._ends, self.count):
            bodies.append(view[start:end])
            start = end
        return bodies

    def tags(self) -> list[bytes]:
        """The messages' tags, where they were wanted."""
        whole = _unpack(self._tags, self.count * TAG_BYTES_MAX)
        sizes = _unpack(self._tag_sizes, self.count)
        return [whole[at : at + size] for at, size in zip(range(0, len(whole), TAG_BYTES_MAX), sizes, strict=True)]

    def content(self) -> tuple[bytes, array[int]]:
        """The messages as one, and where each ends."""
        ends = array("I")
        ends.frombytes(ffi.buffer(self._ends, 4 * self.count))
        if self._pieces is not None:
            return b"".join(self._pieces), ends
        return self._view[: ends[-1]], ends

    def pointers(self) -> Any:
        """The run's deliveries, as the module takes them."""
        taken = ffi.new(POINTERS, self.count)
        ffi.memmove(taken, self._deliveries, self.count * _POINTER_BYTES)
        return taken

    def number(self) -> int:
        """The number that is the first tag, if each tag is one more than the one before; 0 if not."""
        found = ffi.new("uint64_t *")
        are = _batch.lib.consecutive(self._tags, self._tag_sizes, self.count, NUMBER_MAX, found)
        return int(found[0]) if are else 0

    def settle(self) -> None:
        """Settle the run's deliveries."""
        _batch.lib.settle_all(self._deliveries, self.count, 0)


_runs: list[Run] = []


def take_run() -> Run:
    """Room for a run, for one thread; give it back with `give_run`."""
    try:
        return _runs.pop()
    except IndexError:
        return Run()


def give_run(run: Run) -> None:
    """Another connection may use it: connections that do nothing hold no room."""
    _runs.append(run)


def state_fields(delivery: Any, state: int, fields: bytes) -> None:
    """State `state`, whose fields are encoded in `fields`."""
    _batch.lib.state_fields(delivery, state, fields, len(fields))


def send_one(pn_link: Any, tag: bytes, data: bytes) -> Any:
    """Send one message over a link; its delivery."""
    return _batch.lib.send_one(pn_link, tag, len(tag), data, len(data))


def settle_all(deliveries: list[Any], state: int) -> None:
    """State `state`, unless it is 0, and settle."""
    _batch.lib.settle_all(ffi.new(POINTERS, deliveries), len(deliveries), state)


def settle_run(deliveries: Any, at: int, count: int, state: int) -> None:
    """The same of `count` of the deliveries of `Run.pointers`, from the one at `at` on."""
    _batch.lib.settle_all(deliveries + at, count, state)


def send_run(pn_link: Any, content: bytes | memoryview, ends: array[int], tags: bytes) -> Any:
    """Send messages over a link that lie one behind the other in `content`; their deliveries, as an array of pointers.

    Args:
        tags: 8 bytes for each.
    """
    made = ffi.new(POINTERS, len(ends))
    _batch.lib.send_all(
        pn_link,
        len(ends),
        ffi.from_buffer(content),
        ffi.cast("uint32_t *", ffi.from_buffer(ends)),
        ffi.from_buffer(tags),
        made,
    )
    return made


def take_accepted(collector: Any, deliveries: Any, at: int, count: int) -> tuple[int, bool]:
    """How many of `count` deliveries, from the one at `at` on, are said to be accepted; and whether settled, too."""
    settled = _batch.ffi.new("_Bool *")
    taken = _batch.lib.take_accepted(collector, _DELIVERY, deliveries + at, count, settled)
    return taken, settled[0]
