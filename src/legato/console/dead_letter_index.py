"""Index of dead letters: what each died of, read once in the background, so that pages of any queue come at once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from legato.administration.dead_letters import (
    Letter,
    general,
    letters_of,
    obstacle,
)
from legato.administration.letter_names import may_be_called, selector_of
from legato.administration.other_groups import refuse_left_behind
from legato.console.background import Background
from legato.console.broker_link import BrokerLink
from legato.core.dead_letters import DEAD_LETTERED_AT_MS
from legato.errors import JMSError

LETTERS_MAX = 300_000
"""Of a queue that are in its index, the oldest; a page says when there are more."""
REASON_CHARACTERS_MAX = 160
LOOK_AGAIN_S = 3.0
LOOK_AGAIN_TIMES = 5.0
"""What left a queue is only found by looking through all of it: after so many times as long as the last look took."""
LETTER_WAIT_S = 0.4
"""A page waits so long for a letter's body, and else gets it later."""
BODIES_MAX = 64
LOOKS_MAX = 8
"""Queues that are looked through at the same time, for one visit; others wait for that."""
FETCHES_MAX, FETCHES_WAITING_MAX = 4, 16
"""Dead letters that are looked for at the same time, for one visit, and those that wait for that."""


class Entry(msgspec.Struct, gc=False):
    """What an index knows of a dead letter.

    Attributes:
        name: which tells it from all others of its queue; it begins with the message's id.
        id_characters: of the name that are the id.
    """

    name: str
    id_characters: int
    sequence: int
    cause: str
    reason: str
    origin: str
    times: int
    attempts: int
    dead_since_ms: int
    obstacle: str
    trace_id: str
    muted: str

    @property
    def id(self) -> str:
        """The message's id; empty if it has none."""
        return self.name[: self.id_characters]


class Cause(msgspec.Struct):
    """The dead letters of a queue that died of the same."""

    cause: str
    reason: str
    count: int
    first_ms: int
    last_ms: int
    times_max: int


class Index:
    """The dead letters of one queue.

    Attributes:
        error: why the last look failed; empty if it did not.
    """

    def __init__(self, link: BrokerLink, queue: str, looks: Background, fetches: Background) -> None:
        self._link = link
        self.queue = queue
        self._looks, self._fetches = looks, fetches
        self.error = ""
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._causes: list[Cause] | None = None
        self._looking: threading.Event | None = None
        self._seen = (-1, -1)
        """What the broker had stored in and taken from the queue when the last look began."""
        self._same = 0
        """Dead letters that the last look through all found under names of others."""
        self._incomplete = False
        """Whether there are more than were found: the youngest alone were looked for, and others came as well."""
        self._looked_s = 0.0
        self._took_s = 0.0
        self._bodies: dict[str, Letter] = {}
        self._fetching: set[str] = set()
        self._stopped = False

    # -- looks ---------------------------------------------------------------------------------------------------

    def look(self, row: dict[str, Any], wait_s: float = 0.0) -> None:
        """Look again if the queue has changed, in the background; wait a moment for what is there soon."""
        counters = (int(row["stored"]), int(row["consumed"]))
        with self._lock:
            looking = self._looking
            if looking is None and (counters != self._seen or self._incomplete) and not self._stopped:
                pause_s = max(LOOK_AGAIN_S, LOOK_AGAIN_TIMES * self._took_s)
                grown = counters[1] == self._seen[1] and self._newest_ms() > 0 and not self._incomplete
                if grown or self._seen == (-1, -1) or time.monotonic() - self._looked_s > pause_s:
                    looking = self._looking = self._looks.begin(partial(self._run, counters, int(row["depth"]), grown))
        if looking is not None and wait_s:
            looking.wait(wait_s)

    def _newest_ms(self) -> int:
        return max((entry.dead_since_ms for entry in self._entries.values()), default=0)

    def _run(self, counters: tuple[int, int], depth: int, grown: bool) -> None:
        began_s = time.monotonic()
        try:
            if self._stopped:
                return
            if grown:
                selector = f"{DEAD_LETTERED_AT_MS} >= {self._newest_ms()}"
                found = dict(self._entries)
            else:
                selector, found = "", {}
            interned: dict[str, str] = {}
            room, looked_at = LETTERS_MAX - len(found), 0
            refuse_left_behind(self._link.request, self.queue)
            for number, letter in enumerate(letters_of(self._link.connection(), self.queue, room, selector)):
                if self._stopped:
                    return
                entry = entry_of(letter, interned)
                found[entry.name] = entry
                looked_at = number + 1
                if number % 2000 == 1999 and not grown and len(found) > len(self._entries):
                    with self._lock:
                        self._entries, self._causes = dict(found), None
            with self._lock:
                if not grown:
                    self._same = looked_at - len(found)
                # What is moved here died long ago, perhaps.
                self._incomplete = grown and len(found) + self._same < min(depth, LETTERS_MAX)
                self._entries, self._causes, self._seen, self.error = found, None, counters, ""
        except JMSError as error:
            self.error = str(error)
        finally:
            with self._lock:
                self._looking = None
                self._looked_s = time.monotonic()
                self._took_s = self._looked_s - began_s

    @property
    def is_looking(self) -> bool:
        """Whether not all that is said of the queue is known yet."""
        return self._looking is not None

    @property
    def looked_at(self) -> int:
        """Dead letters that are known."""
        return len(self._entries)

    def remove(self, names: Sequence[str]) -> None:
        """They were moved away."""
        with self._lock:
            # A copy: others go through the old one.
            entries = dict(self._entries)
            for each in names:
                entries.pop(each, None)
                self._bodies.pop(each, None)
            self._entries, self._causes = entries, None

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True

    # -- answers -------------------------------------------------------------------------------------------------

    def causes(self) -> list[Cause]:
        """What they died of, the most frequent first."""
        entries, causes = self._entries, self._causes
        if causes is None:
            causes = group(entries.values())
            with self._lock:
                if self._entries is entries:
                    self._causes = causes
        return causes

    def entries(self, cause: str = "") -> list[Entry]:
        """Those with a cause, or all; the oldest first."""
        return [entry for entry in self._entries.values() if not cause or entry.cause == cause]

    def entry(self, name: str) -> Entry | None:
        """What is known of one, by its name, or by its id if no other has it."""
        entries = self._entries
        known = entries.get(name)
        if known is None and name:
            same = [entry for entry in entries.values() if entry.name.startswith(name) and entry.id == name]
            known = same[0] if len(same) == 1 else None
        return known

    def letter(self, name: str, wait_s: float = LETTER_WAIT_S) -> Letter | None:
        """A dead letter with its body, if it is found within that time; else it is looked for further, for later.

        Raises:
            JMSError: it cannot be read.
        """
        known = self._bodies.get(name)
        if known is not None:
            return known
        with self._lock:
            if name not in self._fetching:
                self._fetching.add(name)
                if self._fetches.begin(partial(self._fetch, name)) is None:
                    self._fetching.discard(name)
                    raise JMSError("Too many dead letters are being looked for. Load the page again in a while.")
        until_s = time.monotonic() + wait_s
        while name in self._fetching and time.monotonic() < until_s:
            time.sleep(0.005)
        return self._bodies.get(name)

    def is_fetching(self, name: str) -> bool:
        """Whether a dead letter's body is still looked for."""
        return name in self._fetching

    def _fetch(self, name: str) -> None:
        try:
            if self._stopped:
                return
            entry = self.entry(name)
            selector = may_be_called(name) if entry is None else selector_of([entry])
            refuse_left_behind(self._link.request, self.queue)
            for letter in letters_of(self._link.connection(), self.queue, LETTERS_MAX, selector):
                if name in (letter.name, letter.id):
                    while len(self._bodies) >= BODIES_MAX:
                        self._bodies.pop(next(iter(self._bodies)), None)
                    self._bodies[name] = letter
                    break
        except JMSError as error:
            self.error = str(error)
        finally:
            self._fetching.discard(name)


def entry_of(letter: Letter, interned: dict[str, str]) -> Entry:
    """What an index keeps of a dead letter; texts that are the same are one."""

    def one(text: str) -> str:
        return interned.setdefault(text, text) if len(interned) < LETTERS_MAX else text

    reason = letter.summary
    attempts = letter.properties.get("legato_attempts")
    return Entry(
        letter.name,
        len(letter.id),
        letter.sequence,
        one(letter.cause),
        one(reason[:REASON_CHARACTERS_MAX]),
        one(letter.origin),
        letter.times,
        attempts if isinstance(attempts, int) else letter.attempts,
        letter.dead_since_ms,
        one(obstacle(letter)),
        letter.trace_id,
        one(str(letter.properties.get("legato_muted_reason") or "")),
    )


def group(entries: Any) -> list[Cause]:
    """Causes with their counts, the most frequent first."""
    causes: dict[str, Cause] = {}
    for entry in entries:
        known = causes.get(entry.cause)
        if known is None:
            since = entry.dead_since_ms
            causes[entry.cause] = Cause(entry.cause, entry.reason, 1, since, since, entry.times)
            continue
        known.count += 1
        known.first_ms = min(known.first_ms, entry.dead_since_ms)
        known.last_ms = max(known.last_ms, entry.dead_since_ms)
        known.times_max = max(known.times_max, entry.times)
        if known.reason != entry.reason:
            known.reason = general(entry.reason)
    return sorted(causes.values(), key=lambda cause: -cause.count)


class Indexes:
    """The indexes of the queues that were looked at."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._looks = Background("look through dead letters", LOOKS_MAX, sys.maxsize)
        self._fetches = Background("read a dead letter", FETCHES_MAX, FETCHES_WAITING_MAX)
        self._lock = threading.Lock()
        self._indexes: dict[str, Index] = {}

    def of(self, queue: str) -> Index:
        """The index of a queue, which may be empty yet."""
        with self._lock:
            found = self._indexes.get(queue)
            if found is None:
                found = self._indexes[queue] = Index(self._link, queue, self._looks, self._fetches)
            return found

    def keep(self, queues: set[str]) -> None:
        """Forget those of queues that are gone."""
        with self._lock:
            for queue in list(self._indexes):
                if queue not in queues:
                    self._indexes.pop(queue).stop()

    def stop(self) -> None:
        """Look no more."""
        with self._lock:
            for index in self._indexes.values():
                index.stop()
