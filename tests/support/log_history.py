"""Claimants and followers of a replicated log, what they were told, and the comparison of that with the log.

Each record says whose it is: an epoch's number, its owner, and a number in the epoch.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from legato.errors import FencedError, LogDamagedError, LogUnavailableError
from legato.replication.log import BEGINNING, Claim, Position, Record, ReplicatedLog

CALL_S = 120.0
"""Longer than any fault."""


class Entry(msgspec.Struct, frozen=True):
    """What is in a record. The first of an epoch has the number 0."""

    epoch: int
    owner: str
    number: int
    filling: bytes = b""

    def encode(self) -> bytes:
        """As a record."""
        return msgspec.msgpack.encode(self)


def decode(data: bytes) -> Entry:
    """What is in a record."""
    return msgspec.msgpack.decode(data, type=Entry)


@dataclass
class History:
    """What everybody was told."""

    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)
    """The sequence and the data of each record whose append returned."""
    refused: list[bytes] = field(default_factory=list)
    """The data of each record whose append was fenced."""
    in_doubt: list[bytes] = field(default_factory=list)
    """The data of each record whose claim was left while it was on its way."""
    followed: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    """What each follower took."""
    damage: list[str] = field(default_factory=list)
    """What readers said of damaged files."""
    errors: list[str] = field(default_factory=list)
    """What nobody should be told."""
    longest_append_s: float = 0.0


class Workers:
    """Threads that claim, append and follow until they are stopped.

    Args:
        new_log: one more broker's object for the log.
        seed: decides when they claim and what they append.
    """

    def __init__(self, new_log: Callable[[], ReplicatedLog], seed: int) -> None:
        self.history = History()
        self._new_log = new_log
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._claimed = threading.Event()
        self._last = 0
        self._claimants: list[threading.Thread] = []
        self._followers: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self, claimants: int, followers: int) -> None:
        """Begin."""
        for number in range(claimants):
            self._claimants.append(self._start(f"claimant {number}", self._contend))
        for number in range(followers):
            self.history.followed[f"follower {number}"] = []
            self._followers.append(self._start(f"follower {number}", self._follow))

    def stop(self) -> History:
        """End the claimants, and let the followers take what is there then."""
        self._stopping.set()
        self._join(self._claimants)
        log = self._new_log()
        self._finish(log)
        self._last = log.last(CALL_S)
        log.close()
        self._claimed.set()
        self._join(self._followers)
        return self.history

    def _finish(self, log: ReplicatedLog) -> None:
        """Append a whole record behind all: the parts of one that a claimant left would never come to followers."""
        place, epoch = BEGINNING, 0
        while True:
            try:
                reading = log.read(place, timeout_s=CALL_S)
                place = reading.end
                epoch = max([epoch, *(decode(record.data).epoch for record in reading.records)])
                if reading.drained:
                    first = Entry(epoch + 1, "the last", 0, b"").encode()
                    claim = log.claim(first, place, CALL_S)
                    self._acknowledged(claim.began.position, first)
                    claim.close()
                    return
            except LogDamagedError as error:
                self._mend(log, error)

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            thread.join(2 * CALL_S)
            if thread.is_alive():
                self.history.errors.append(f"{thread.name} hangs")

    def _start(self, name: str, work: Callable[[str, random.Random, ReplicatedLog], None]) -> threading.Thread:
        seed = self._random.random()

        def run() -> None:
            log = self._new_log()
            try:
                work(name, random.Random(seed), log)
            except Exception as error:
                self.history.errors.append(f"{name}: {type(error).__name__}: {error}")
            finally:
                log.close()

        thread = threading.Thread(target=run, name=name)
        thread.start()
        return thread

    def _contend(self, name: str, chance: random.Random, log: ReplicatedLog) -> None:
        """Read on, claim now and then, append until fenced or tired."""
        place, epoch = BEGINNING, 0
        while not self._stopping.is_set():
            try:
                reading = log.read(place, timeout_s=CALL_S)
            except LogDamagedError as error:
                self._mend(log, error)
                continue
            place = reading.end
            epoch = max([epoch, *(decode(record.data).epoch for record in reading.records)])
            if not reading.drained or self._stopping.wait(chance.uniform(0, 0.5)) or chance.random() < 0.5:
                continue
            first = Entry(epoch + 1, name, 0, chance.randbytes(8)).encode()
            try:  # what was refused once is not appended again, so that it is known for what it is
                claim = log.claim(first, place, CALL_S)
            except FencedError:
                self.history.refused.append(first)
                continue
            except LogDamagedError as error:
                self.history.in_doubt.append(first)
                self._mend(log, error)
                continue
            self._acknowledged(claim.began.position, first)
            self._append(name, epoch + 1, claim, chance)

    def _append(self, name: str, epoch: int, claim: Claim, chance: random.Random) -> None:
        tired_s = time.monotonic() + chance.uniform(0, 5.0)
        number = 0
        while time.monotonic() < tired_s and not self._stopping.is_set():
            number += 1
            size = chance.choice((0, 100, 1000, 16_384)) if chance.random() < 0.999 else 3_000_000
            data = Entry(epoch, name, number, chance.randbytes(size)).encode()
            began_s = time.monotonic()
            leave = chance.random() < 0.01
            appending = claim.submit(data)
            if leave:
                time.sleep(chance.uniform(0, 0.01))
                claim.close()
            try:
                position = appending.result(CALL_S).position
            except FencedError:
                self.history.refused.append(data)
                return
            except (LogUnavailableError, LogDamagedError) as error:
                self.history.in_doubt.append(data)
                if isinstance(error, LogDamagedError):
                    self.history.damage.append(str(error))
                elif not leave:
                    self.history.errors.append(f"{name}: {error}")
                return
            with self._lock:
                self.history.longest_append_s = max(self.history.longest_append_s, time.monotonic() - began_s)
            self._acknowledged(position, data)
            if leave:
                return
        claim.close()

    def _follow(self, name: str, chance: random.Random, log: ReplicatedLog) -> None:
        """Take what comes, and begin anew now and then where this one was."""
        taken = self.history.followed[name]
        place = BEGINNING
        while not (self._claimed.is_set() and place.sequence >= self._last):
            try:
                following = log.follow(place, CALL_S)
                until_s = time.monotonic() + chance.uniform(1.0, 20.0)
                while time.monotonic() < until_s and not (self._claimed.is_set() and place.sequence >= self._last):
                    taken.extend((record.position.sequence, record.data) for record in following.take(0.5))
                    place = following.end
                following.close()
            except LogDamagedError as error:
                self._mend(log, error)

    def _mend(self, log: ReplicatedLog, error: LogDamagedError) -> None:
        """Let another server lead."""
        self.history.damage.append(str(error))
        try:
            if error.leader is not None:
                log.move_leader(error.leader, CALL_S)
        except LogUnavailableError as late:
            self.history.errors.append(str(late))

    def _acknowledged(self, position: Position, data: bytes) -> None:
        self.history.acknowledged.append((position.sequence, data))


def check(history: History, records: Sequence[Record]) -> list[str]:
    """What is wrong with a log, compared with what everybody was told; nothing if all is well.

    Args:
        history: of all who wrote and followed.
        records: all of the log, read at the end.
    """
    return [
        *history.errors,
        *_lost(history, records),
        *_twice(records),
        *_wrong_epochs(records),
        *_wrong_followers(history, records),
    ]


def _lost(history: History, records: Sequence[Record]) -> Iterable[str]:
    found = {record.position.sequence: record.data for record in records}
    there = {record.data for record in records}
    for sequence, data in history.acknowledged:
        if found.get(sequence) != data:
            yield f"record {sequence} was acknowledged and is not there: {_named(data)}"
    for data in history.refused:
        if data in there:
            yield f"a record was refused and is there: {_named(data)}"
    numbers = Counter(sequence for sequence, _ in history.acknowledged)
    for sequence, count in numbers.items():
        if count > 1:
            yield f"record {sequence} was acknowledged {count} times"


def _twice(records: Sequence[Record]) -> Iterable[str]:
    for data, count in Counter(record.data for record in records).items():
        if count > 1:
            yield f"a record is there {count} times: {_named(data)}"


def _wrong_epochs(records: Sequence[Record]) -> Iterable[str]:
    """Epochs follow each other, and each has records of its owner alone, without gaps."""
    last = Entry(0, "", 0)
    for record in records:
        entry = decode(record.data)
        follows = entry.epoch == last.epoch and entry.owner == last.owner and entry.number == last.number + 1
        begins = entry.epoch == last.epoch + 1 and entry.number == 0
        if not (follows or begins):
            yield f"record {record.position.sequence}: {_named(record.data)} follows epoch {last.epoch}/{last.number}"
        last = entry


def _wrong_followers(history: History, records: Sequence[Record]) -> Iterable[str]:
    all_records = [(record.position.sequence, record.data) for record in records]
    for name, taken in history.followed.items():
        if taken != all_records[: len(taken)]:
            at = next(index for index, pair in enumerate(taken) if index >= len(records) or pair != all_records[index])
            yield f"{name} took something else than record {at + 1} of the log"
        elif len(taken) < len(records):
            yield f"{name} took {len(taken)} of {len(records)} records"


def _named(data: bytes) -> str:
    entry = decode(data)
    return f"epoch {entry.epoch}, {entry.owner}, {entry.number}"
