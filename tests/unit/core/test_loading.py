"""A window that is read in runs is the same as one that is read message by message."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import Any, cast
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from legato.core import lanes
from legato.core.lanes import Lane
from legato.core.message import MessageRun
from legato.core.queues import Queue
from legato.core.records import Archive, Attempt, StoredMessage, StoredRun
from tests.support.examples import examples


class Disk:
    """Messages of one queue; `cuts` are where one run on disk ends and another begins."""

    def __init__(self, stored: Sequence[StoredMessage], cuts: set[int], *, in_runs: bool) -> None:
        self.stored = stored
        self.cuts = cuts
        self.in_runs = in_runs

    def messages(self, queue: int, after: int, limit: int, limit_bytes: int) -> Sequence[StoredMessage]:
        found: list[StoredMessage] = []
        for message in self.stored:
            if message.seq > after and len(found) < limit and limit_bytes >= 0:
                found.append(message)
                limit_bytes -= len(message.body)
        return found

    def messages_in_runs(
        self, queue: int, after: int, limit: int, limit_bytes: int
    ) -> Sequence[StoredMessage | StoredRun]:
        found = self.messages(queue, after, limit, limit_bytes)
        if not self.in_runs:
            return found
        groups: list[list[StoredMessage]] = []
        for message in found:
            last = groups[-1][-1] if groups else message
            if last.is_plain and message.is_plain and last.seq + 1 == message.seq and message.seq not in self.cuts:
                groups[-1].append(message)
            else:
                groups.append([message])
        return [each for group in groups for each in self.together(group)]

    @staticmethod
    def together(group: Sequence[StoredMessage]) -> Sequence[StoredMessage | StoredRun]:
        if not group[0].is_plain:
            return group
        bodies = [message.body for message in group]
        return [StoredRun(group[0].seq, b"".join(bodies), array("I", accumulate(map(len, bodies))))]


class OneQueue:
    """What a lane asks of its queue."""

    id = 1
    takes_runs = True


def window(lane: Lane) -> list[Any]:
    """What is ready, entry by entry."""
    return [
        ("run", entry.seq, entry.content, list(entry.ends), entry.size)
        if isinstance(entry, MessageRun)
        else ("message", entry.seq, entry.body, entry.count, entry.flagged, entry.expires_us)
        for entry in lane.ready
    ]


def apart(entry: tuple[Any, ...]) -> list[tuple[int, bytes]]:
    """Places and bodies of an entry of a window."""
    kind, seq, content, *rest = entry
    if kind == "message":
        return [(seq, content)]
    bodies = content if isinstance(content, list) else [content[a:b] for a, b in pairwise((0, *rest[0]))]
    return list(enumerate(bodies, seq))


def loaded(disk: Disk, visible: int, mark: int, claimed: set[int], first: int) -> list[Any]:
    lane = Lane(cast(Queue, OneQueue()), 0, visible, mark, waiting=True)
    lane.claimed = set(claimed)
    lane.load_next = first
    states: list[Any] = []
    while lane.load(cast(Archive, disk)):
        states.append((window(lane), lane.loaded_seq, lane.window_bytes, lane.run_messages))
        lane.ready.clear()
        lane.run_messages = 0
    return [*states, lane.loaded_seq]


def some_messages(chance: Random, count: int) -> list[StoredMessage]:
    """Mostly plain, mostly without gaps, of all sizes."""
    seq = 0
    found: list[StoredMessage] = []
    for _ in range(count):
        seq += 1 if chance.random() < 0.95 else 2
        size = chance.choice((0, 1, 9, 60, 300))
        message = StoredMessage(seq, bytes([size % 251]) * size)
        match chance.randrange(40):
            case 0:
                message.count, message.history = 1, [Attempt(0, 0, "disconnect")]
            case 1:
                message.expires_us = 7
        found.append(message)
    return found


@settings(max_examples=examples(500))
@given(st.integers(0, 1 << 32))
def test_what_is_read_in_runs_is_as_what_is_read_one_by_one(seed: int) -> None:
    chance = Random(seed)
    messages = some_messages(chance, chance.randrange(150))
    last = messages[-1].seq if messages else 0
    cuts, claimed = ({chance.randint(0, last + 1) for _ in range(chance.randrange(most))} for most in (20, 4))
    visible, mark = chance.choice((last, chance.randint(0, last + 1))), chance.choice((0, chance.randint(0, last)))
    first = chance.choice((1, 7, 64))
    with patch.multiple(lanes, DELIVERY_BYTES_IN_ONE_GO=500, LOAD_BYTES=2000, JOINED_BYTES_MAX=100, WINDOW_MESSAGES=80):
        one, other = (
            loaded(Disk(messages, cuts, in_runs=in_runs), visible, mark, claimed, first) for in_runs in (False, True)
        )
    assert one == other
    *states, _ = one
    assert [each for entries, *_ in states for entry in entries for each in apart(entry)] == [
        (message.seq, message.body) for message in messages if message.seq <= visible and message.seq not in claimed
    ]
