"""Assignments of a stream, one for each address: how far each is, and what the next batch takes of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from legato.errors import JMSError
from legato.quoting import quoted
from legato.spark.connector.broker_groups import BrokerGroups
from legato.spark.connector.offsets import Offset, shares
from legato.spark.connector.option_parsing import LATEST
from legato.spark.connector.options import SourceOptions
from legato.spark.connector.requests import Missing, Requests

log = logging.getLogger("legato.spark")

NO_LIMIT = 1 << 62


class Place(msgspec.Struct):
    """The state of the stream's assignment of one address."""

    name: str
    fence: int
    acknowledged: int
    last: int
    waiting: int
    begun: int | None = None
    """The last number that a run of the stream has begun to read; None if the broker does not know of such."""
    has_ended: bool = False
    """Its queue was deleted: what was taken from it before is still to be done, and nothing follows."""

    @property
    def end(self) -> int:
        """The number that the last message would have that waits now."""
        return self.last + self.waiting


class Limits(msgspec.Struct, frozen=True):
    """The limits of a batch."""

    rows: int = NO_LIMIT
    size: int = 0
    """Bytes of all addresses together, about; 0 for any."""
    at_least: int = 0
    """Rows that have to be there, or it has none."""

    @property
    def is_none(self) -> bool:
        """Whether it may have everything."""
        return self.rows == NO_LIMIT and not self.size


class Places:
    """Asks the broker for the assignments of a stream; connects when it is asked something.

    A batch is planned by one thread at a time; how things stand may be read meanwhile.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._outlives_queues = bool(options.pattern) or not options.fail_on_data_loss
        """Whether a queue that is deleted is the end of that address only, not of the stream."""
        self._groups: BrokerGroups | None = None
        self._is_known = False
        """Whether the stream has read something from the broker, in this process or in an earlier one."""
        self._opening = threading.RLock()
        """Held from a request that opens or resumes an assignment until its fence is known here."""
        self.by_address: Mapping[str, Place] = {}

    def of(self, address: str) -> Place:
        """The place at an address.

        Raises:
            JMSError: the stream does not read it.
        """
        place = self.by_address.get(address)
        if place is None:
            raise _foreign(address)
        return place

    def open(self, known: Iterable[str] = (), *, begins: bool = False) -> None:
        """Open what is not yet, also queues that have come since, or have come again.

        Opening an assignment ends what an earlier run of this stream may still do with it.

        Args:
            known: addresses that the stream read before. Those whose queues are gone have an end. The broker is waited
                for, if it is not there now.
            begins: whether Spark knows no offset of the stream yet. With `startingOffsets` = latest a stream that
                begins leaves out what waits then; it reads all that is in queues which come later.
        """
        with self._opening:
            known = tuple(known)
            self._is_known = self._is_known or bool(known)
            addresses = self._addresses()
            self._connected().locate((*addresses, *known))
            latest = begins and self._options.starting_offsets == LATEST and not any(map(self._is_assigned, addresses))
            for address in addresses:
                place = self.by_address.get(address)
                if place is None or place.has_ended:
                    self._put(address, self._open(address, again=place is not None, latest=latest))
            for address in known:
                if self._outlives_queues and address not in self.by_address:
                    self._put(address, self._resume(address))

    def acknowledge(self, through: Offset) -> None:
        """The stream is done with all numbers up to those."""
        for address, number in through.items():
            place = self.of(address)
            self._require_given_out(address, place, number)
            if number > place.acknowledged and place.name:
                self._note(place, self._ask("acknowledge", address, place.name, fence=place.fence, through=number))

    def _require_given_out(self, address: str, place: Place, number: int) -> None:
        if number > place.last and place.name:
            raise _ahead(self._options.subscription_of(address), address, number, place.last)

    def begin_reading(self, ends: Offset) -> None:
        """The stream is about to read all numbers up to those."""
        # Who plans the next batch meanwhile may find that a queue is gone, and resume its assignment under a new fence.
        with self._opening:
            for address, number in ends.items():
                place = self.of(address)
                if place.begun is not None and number > place.begun and place.name:
                    self._ask("begin", address, place.name, fence=place.fence, through=number)
                    place.begun = number

    def begun_of(self, done: Offset) -> Offset | None:
        """How much of what Spark has done a run has begun to read; None if that is all, or not known.

        Raises:
            JMSError: Spark has done more than the subscription ever gave out: the checkpoint is not of this one.
        """
        begun = dict(done)
        for address, number in done.items():
            place = self.of(address)
            self._require_given_out(address, place, number)
            if place.begun is not None and number > max(place.begun, place.acknowledged):
                begun[address] = max(place.begun, place.acknowledged)
        return None if begun == done else begun

    def release(self, done: Offset) -> None:
        """Put back into their queues what is not acknowledged, where Spark says that it is done."""
        for address, number in done.items():
            place = self.of(address)
            if number > place.acknowledged and place.name and not place.has_ended:
                self._ask("release", address, place.name)

    def plan(self, planned: Offset, limits: Limits, targets: Mapping[str, int] | None) -> Offset:
        """Up to where the next batch goes: what was assigned before it was planned comes first.

        Args:
            planned: up to where the one before it went.
            targets: up to where any batch goes; None for no end.
        """
        planned = {address: planned.get(address, place.acknowledged) for address, place in self.by_address.items()}
        for address, place in self.by_address.items():
            # Nothing to take, but how much there is.
            self._take(address, place, {"limit": 0})
        ends = dict(planned)
        available = self._available(planned, targets)
        if sum(available.values()) < limits.at_least:
            return ends
        total = sum(available.values())
        left, wanting = limits.rows, available
        while wanting:
            short: set[str] = set()
            for address, share in shares(wanting, left).items():
                if share:
                    # Nobody knows the sizes before: bytes are divided as rows are.
                    size = max(limits.size * available[address] // total, 1) if limits.size else 0
                    before = ends[address]
                    ends[address] = self._assign(address, planned[address], before - planned[address] + share, size)
                    left -= ends[address] - before
                    if ends[address] - before < share:
                        short.add(address)
            # What others hold, or a paused queue keeps, cannot be had: its share goes to those that have more.
            more = {address: available[address] - (ends[address] - planned[address]) for address in wanting}
            is_over = not short or bool(limits.size)
            wanting = {} if is_over else {each: count for each, count in more.items() if count and each not in short}
        return ends

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._groups is not None:
            self._groups.close()

    def group_of(self, address: str) -> str:
        """See `BrokerGroups.group_of`."""
        return self._connected().group_of(address)

    def _available(self, planned: Offset, targets: Mapping[str, int] | None) -> dict[str, int]:
        ends = {
            address: place.end if targets is None or place.has_ended else min(place.end, targets.get(address, 0))
            for address, place in self.by_address.items()
        }
        return {address: max(end - planned[address], 0) for address, end in ends.items()}

    def _assign(self, address: str, after: int, share: int, size: int) -> int:
        """Have what is missing of a share assigned; returns how far that went."""
        place = self.of(address)
        through = after + share
        while place.last < through and not (size and place.last > after):
            before = place.last
            arguments = {"limit": through - place.last} | ({"limit_bytes": size} if size else {})
            self._take(address, place, arguments)
            if place.last == before:
                break
        return max(min(place.last, through), after)

    def _take(self, address: str, place: Place, arguments: dict[str, int]) -> None:
        """Have some assigned, unless the queue is gone."""
        if place.has_ended:
            return
        try:
            self._note(place, self._ask("assign", address, place.name, fence=place.fence, **arguments))
        except Missing as error:
            if not self._outlives_queues:
                raise Missing(f"{error} Set the option failOnDataLoss to false to go on without it.") from None
            with self._opening:
                ended = self._resume(address)
                if not ended.name:
                    raise
                place.fence, place.waiting, place.has_ended = ended.fence, 0, True

    def _is_assigned(self, address: str) -> bool:
        """Whether an earlier run, or this one, has opened the assignment of an address."""
        try:
            subscription = self._options.subscription_of(address)
            self._ask("resume", address, subscription=subscription, topic=self._options.is_topic)
        except Missing:
            return False
        return True

    def _open(self, address: str, *, again: bool, latest: bool) -> Place | None:
        """The place at an address; None if it is not there any more.

        Args:
            again: whether its queue was deleted while the stream read it.
            latest: whether what waits there is left out, if nothing was assigned yet.
        """
        told: dict[str, Any]
        try:
            told = self._ask(
                "open",
                address,
                subscription=self._options.subscription_of(address),
                topic=self._options.is_topic,
                latest=latest,
                selector=self._options.selector,
                existing=again or bool(self._options.pattern),
                renew=self._outlives_queues,
                tells=True,
            )
        except Missing:
            if again or self._options.pattern:
                return None
            raise
        told.pop("source")
        if again:
            log.warning("! %s is there again: the stream goes on with it", quoted(address))
        return msgspec.convert(told, Place)

    def _resume(self, address: str) -> Place:
        """The place at an address whose queue was deleted; it has no name if nothing was taken from there.

        Raises:
            JMSError: its queue is there, and the stream does not read it.
        """
        subscription = self._options.subscription_of(address)
        try:
            told = self._ask("resume", address, subscription=subscription, topic=self._options.is_topic)
        except Missing:
            return Place("", 0, 0, 0, 0, has_ended=True)
        if told.pop("source"):
            raise _foreign(address)
        log.warning(
            "! %s was deleted, with what waited there; the stream %s goes on without it",
            quoted(address),
            quoted(subscription),
        )
        return msgspec.convert({**told, "waiting": 0, "has_ended": True}, Place)

    def _put(self, address: str, place: Place | None) -> None:
        if place is not None:
            self.by_address = {**self.by_address, address: place}

    def _addresses(self) -> tuple[str, ...]:
        """The addresses of the stream, those of a pattern as they are now."""
        options = self._options
        if not options.pattern:
            return options.addresses
        return self._connected().matching(options.pattern, topics=options.is_topic)

    def _note(self, place: Place, told: dict[str, Any]) -> None:
        place.acknowledged, place.last, place.waiting = told["acknowledged"], told["last"], told["waiting"]

    def _ask(self, operation: str, address: str, name: str = "", **arguments: str | int | bool) -> Any:
        """Ask the broker that has the address; without a name about the address itself."""
        what = {} if name else {"address": address}
        return self._connected().of(address).ask(operation, "assignment", name, **what, **arguments)

    def _connected(self) -> BrokerGroups:
        if self._groups is None:
            self._groups = BrokerGroups(
                self._options.url, lambda url: Requests(url, self._options.patience, is_known=self._is_known)
            )
        return self._groups


def _foreign(address: str) -> JMSError:
    return JMSError(
        f"The checkpoint is of a stream that read {quoted(address)} too, which this one does not: add it to the option "
        "queues or topics, or give this stream a checkpointLocation and a subscription of its own."
    )


def _ahead(subscription: str, address: str, number: int, last: int) -> JMSError:
    return JMSError(
        f"The checkpoint says that {number} messages of {quoted(address)} were read, and the subscription "
        f"{quoted(subscription)} has given out {last}: the checkpoint belongs to another subscription, or the broker's "
        "store is an older one, or a new one. Use the subscription that the checkpoint was begun with, or give this "
        "stream a checkpointLocation of its own."
    )
