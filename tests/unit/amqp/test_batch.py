"""Runs of deliveries through the compiled module say and send what one call at a time does."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, groupby, pairwise
from typing import Any

import pytest
from cproton import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from legato.amqp.codec.types import Described, UInt, ULong
from legato.amqp.engine import batch, bypass, runs
from legato.amqp.engine import sender as senders
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import (
    AcceptedRun,
    Attached,
    ConfirmedRun,
    Disposition,
    Event,
    SessionBegan,
    Transfer,
    TransferRun,
)
from legato.amqp.engine.link import Link, Receiver, Sender
from legato.amqp.engine.outcomes import ACCEPTED, DELIVERY_FAILED, RECEIVED, RELEASED, Rejected, Transactional
from legato.amqp.engine.settings import Settings
from tests.support.examples import examples
from tests.unit.amqp.pair import Pair
from tests.unit.amqp.test_hostile import ATTACH_RECEIVER, ATTACH_SENDER, BEGIN, FLOW, HEADER, OPEN, frame

pytestmark = pytest.mark.skipif(not batch.available, reason="the optional module was not compiled, or is forbidden")

MESSAGE_BYTES_MAX = 2000
CREDIT = 40


def plain(event: Event) -> tuple[Any, ...]:
    """What an event says, comparable between connections."""
    fields = []
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, Link):
            value = (value.name, value.credit, value.closed, value._last_handle, unsettled(value))
        fields.append((name, value) if name != "session" else (name, None))
    return (type(event).__name__, *fields)


def unsettled(link: Link) -> list[int]:
    """The handles of what is unsettled on a link, of its runs too."""
    handles = [*link._unsettled]
    if isinstance(link, Receiver):
        for handle, run in link._runs.items():
            handles += range(handle, handle + run.length)
        for handle, run in link._stated:
            handles += range(handle, handle + run.length)
    elif isinstance(link, Sender):
        for handle, sent in link._runs.items():
            handles += range(handle + sent.settled, handle + sent.count)
    return sorted(handles)


def reported(link: Link) -> dict[int, Any]:
    """What was told of deliveries and is not settled, of those in runs too."""
    said: dict[int, Any] = {**link._reported}
    if isinstance(link, Sender):
        for handle, run in link._runs.items():
            said |= dict.fromkeys(range(handle + run.settled, handle + run.reported), ACCEPTED)
    return said


def bodies_of(run: TransferRun) -> list[bytes]:
    """Its messages, however its link wants them."""
    if run.link.reads_apart:
        assert run.bodies is not None
        assert not run.data
        assert not run.ends
        return run.bodies
    assert run.bodies is None
    return [run.data[begin:end] for begin, end in pairwise((0, *run.ends))]


def taken_apart(event: Event) -> list[Event]:
    """The transfers of a run, or the event itself."""
    if isinstance(event, AcceptedRun):
        return [
            Disposition(event.link, (event.context, event.at + n), ACCEPTED, event.settled, event.delivery + n)
            for n in range(event.count)
        ]
    if isinstance(event, ConfirmedRun):
        confirmed = range(event.delivery, event.delivery + event.count)
        return [Disposition(event.link, handle, ACCEPTED, True, handle) for handle in confirmed]
    if not isinstance(event, TransferRun):
        return [event]
    reads_tags = event.link.reads_tags
    return [
        Transfer(
            event.link,
            event.delivery + at,
            (event.number + at).to_bytes(8, "big") if reads_tags else b"",
            data,
            event.settled,
            None,
        )
        for at, data in enumerate(bodies_of(event))
    ]


def held(link: Link) -> tuple[Any, ...]:
    """What is kept of a link's deliveries, by us and by the engine."""
    engine = 0 if link.closed else lib.pn_link_unsettled(link._pn)
    known = len(link._deliveries) + link.connection._run_deliveries
    return link.credit, unsettled(link), reported(link), known, engine


CREDIT = 12
SENT = 9

# -- the same bytes from a peer that may do anything -------------------------------------------------------------

STATES = [
    None,
    Described(ULong(0x24), []),
    Described(ULong(0x26), []),
    Described(ULong(0x23), [UInt(0), ULong(0)]),
    Described(ULong(0x27), [True]),
    Described(ULong(0x34), [b"txn"]),
    Described(ULong(0x34), [b"txn", Described(ULong(0x24), [])]),
]


@st.composite
def transfers(draw: st.DrawFn, at: int) -> bytes:
    """Some transfers, one frame each or two."""
    frames = []
    counted = draw(st.booleans())
    for number in range(at, at + draw(st.integers(1, 8))):
        link = draw(st.sampled_from([0] * 12 + [1, 2, 2]))
        tag = draw(st.sampled_from([b"t", b"12345678", b"x" * 32, b""]))
        tag = number.to_bytes(8, "big") if counted and number else tag
        settled = draw(st.sampled_from([False, False, True]))
        state = draw(st.sampled_from([None, None, None, *STATES]))
        aborted = draw(st.integers(0, 9)) == 0
        size = draw(st.sampled_from([1, 10, 300, 10, 300, 0, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1]))
        for more in draw(st.sampled_from([[False], [False], [True, False], [True]])):
            fields = [UInt(link), UInt(number), tag, UInt(0), settled, more, None, state, False, aborted and not more]
            frames.append(frame(0x14, fields, payload=bytes([number % 256]) * size))
    return b"".join(frames)


@st.composite
def dispositions(draw: st.DrawFn) -> bytes:
    """An outcome for some of what we sent, or of what we received."""
    first = draw(st.integers(0, 12))
    return frame(
        0x15,
        [
            draw(st.sampled_from([True, True, True, False])),
            UInt(first),
            UInt(first + draw(st.integers(0, 6))),
            draw(st.booleans()),
            draw(st.sampled_from(STATES)),
        ],
    )


SECOND_ATTACH = frame(
    0x12,
    ["m", UInt(2), False, None, None, Described(ULong(0x28), []), Described(ULong(0x29), ["q"]), None, None, UInt(0)],
)
DETACH = frame(0x16, [UInt(1), True])


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """What a peer sends, as its pieces arrive."""
    data, at = b"", 0
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.integers(0, 9))
        if kind < 4:
            data += draw(transfers(at))
            at += 8
        elif kind < 8:
            data += draw(dispositions())
        else:
            data += draw(st.sampled_from([FLOW, SECOND_ATTACH, DETACH]))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@st.composite
def lawful_streams(draw: st.DrawFn) -> list[bytes]:
    """What a peer sends that keeps the rules, mostly in the order in which it was sent to, as its pieces arrive."""
    data = b""
    accepted = STATES[1]
    came = answered = settled = 0
    for _ in range(draw(st.integers(2, 12))):
        kind = draw(st.integers(0, 9))
        if kind < 4 and came < CREDIT:
            is_settled = draw(st.integers(0, 7)) == 0
            for number in range(came, came + draw(st.integers(1, CREDIT - came))):
                fields = [UInt(0), UInt(number), (number + 1).to_bytes(8, "big"), UInt(0), is_settled]
                data += frame(0x14, fields, payload=bytes([number]) * draw(st.sampled_from([1, 10, 10, 300, 300])))
                came = number + 1
            continue
        # Of what we sent, or received.
        of_sent = kind < 8
        known, next_one = (SENT, answered) if of_sent else (came, settled)
        first = draw(st.sampled_from([next_one, next_one, next_one, draw(st.integers(0, SENT))]))
        if first < known:
            last = draw(st.integers(first, known - 1))
            said = draw(st.sampled_from([accepted, accepted, accepted, accepted, *STATES[:5]]))
            data += frame(0x15, [of_sent, UInt(first), UInt(last), draw(st.integers(0, 3)) > 0, said])
            if of_sent:
                answered = last + 1
            else:
                settled = last + 1
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


IN_TRANSACTION = [Described(ULong(0x34), [b"txn"]), Described(ULong(0x34), [b"\x00" * 20])]
ACCEPTED_IN_TRANSACTION = [
    Described(ULong(0x34), [b"txn", Described(ULong(0x24), [])]),
    Described(ULong(0x34), [b"\x01" * 20, Described(ULong(0x24), [])]),
]
UNUSUAL_STATES = [
    Described(ULong(0x34), [b""]),
    Described(ULong(0x34), [b"", Described(ULong(0x24), [])]),
    Described(ULong(0x34), [b"txn", None]),
    Described(ULong(0x34), [b"txn", Described(ULong(0x24), []), None]),
    Described(ULong(0x34), [b"txn", Described(ULong(0x26), [])]),
    Described(ULong(0x34), [b"txn", Described(ULong(0x25), [])]),
    Described(ULong(0x34), [b"i" * 112, Described(ULong(0x24), [])]),
    Described(ULong(0x34), [b"i" * 113, Described(ULong(0x24), [])]),
    Described(ULong(0x34), [b"i" * 117]),
    Described(ULong(0x34), [b"i" * 118]),
    Described(ULong(0x34), [b"i" * 300]),
]
MALFORMED_STATES = [
    Described(ULong(0x34), []),
    Described(ULong(0x34), ["txn"]),
    Described(ULong(0x34), [b"txn", b"accepted"]),
    Described(ULong(0x34), [b"txn", Described(ULong(0x99), [])]),
    Described(ULong(0x34), [UInt(7), Described(ULong(0x24), [])]),
]


def attached_too(channel: int) -> bytes:
    """A session of a peer with transactions: links that send, 0 and 2, and receive, 1, and one to a coordinator, 3."""
    source, target = Described(ULong(0x28), ["q"]), Described(ULong(0x29), ["q"])
    data = b"" if channel == 0 else frame(0x11, [None, UInt(0), UInt(1000), UInt(1000)], channel)
    for handle, name, is_receiver, end in (
        *(() if channel == 0 else ((0, "l", False, target), (1, "r", True, target))),
        (2, "m", False, target),
        (3, "c", False, Described(ULong(0x30), [])),
    ):
        fields = [name, UInt(handle), is_receiver, None, None, source, end, None, None, UInt(0)]
        data += frame(0x12, fields, channel)
    return data + flow(channel)


def flow(channel: int, credit: int = 10) -> bytes:
    """Credit for what we send."""
    return frame(0x13, [UInt(0), UInt(900), UInt(0), UInt(900), UInt(1), UInt(0), UInt(credit)], channel)


@st.composite
def transacted_streams(draw: st.DrawFn) -> list[bytes]:
    """What a peer with transactions sends in two sessions, as its pieces arrive; rarely it breaks the rules."""
    data = attached_too(0) + attached_too(1)
    cuts = [len(data)]
    came, answered = [0, 0], [0, 0]
    for _ in range(draw(st.integers(2, 30))):
        channel, kind = draw(st.integers(0, 1)), draw(st.integers(0, 19))
        rare = draw(st.integers(0, 19)) == 0
        if kind < 6:
            first = answered[channel]
            last = min(first + draw(st.sampled_from([0, 0, 0, 2])), SENT - 1)
            states: list[Any] = (
                [*UNUSUAL_STATES, *STATES[:5]] if draw(st.integers(0, 4)) == 0 else ACCEPTED_IN_TRANSACTION
            )
            state = draw(st.sampled_from(MALFORMED_STATES if rare and draw(st.booleans()) else states))
            of_sent = draw(st.integers(0, 9)) > 0
            data += frame(0x15, [of_sent, UInt(first), UInt(last), draw(st.integers(0, 3)) > 0, state], channel)
            answered[channel] = last + 1 - (draw(st.integers(0, 4)) == 0)
        elif kind < 18:
            handle = draw(st.sampled_from([0, 0, 0, 2, 3, 3, 3, *([1] if rare else [])]))
            usual: list[Any] = [None] if handle == 3 else IN_TRANSACTION
            usual = [*UNUSUAL_STATES, *STATES] if draw(st.integers(0, 5)) == 0 else usual
            state = draw(st.sampled_from(MALFORMED_STATES if rare and draw(st.booleans()) else usual))
            number, tag = came[channel], draw(st.sampled_from([b"t", b"12345678", b"x" * 32, b""]))
            sizes = [0, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX + 1] if rare else [1, 7, 300]
            size, settled = draw(st.sampled_from(sizes)), draw(st.integers(0, 7)) == 0
            parts = draw(st.sampled_from([[False]] * 8 + [[True, False], [True]]))
            for more in parts:
                aborted = rare and not more and draw(st.booleans())
                fields = [UInt(handle), UInt(number), tag, UInt(0), settled, more, None, state, False, aborted]
                data += frame(0x14, fields, channel, payload=bytes([number % 256]) * size)
            came[channel] += 1
        elif kind == 18:
            data += flow(channel, draw(st.integers(0, 20)))
        else:
            data += draw(st.sampled_from([DETACH, frame(0x16, [UInt(3), True], channel), flow(channel)]))
        if draw(st.integers(0, 5)) == 0:
            cuts.append(len(data) - draw(st.integers(0, 3)))
    return [data[start:end] for start, end in pairwise((0, *cuts, len(data)))]


def verdict(handle: int) -> int:
    """Of nine messages two are accepted and settled (1), and six accepted, to be settled by the sender first (2)."""
    return (0, 1, 1, 2, 2, 2, 2, 2, 2)[handle % 9]


def accept_most(events: list[Event]) -> None:
    """Accept messages by their `verdict`, in runs if they came in runs."""
    for event in events:
        if isinstance(event, Transfer):
            if verdict(event.delivery) == 1:
                event.link.accept_all([event.delivery])
            elif verdict(event.delivery) == 2:
                event.link.update(event.delivery, ACCEPTED)
        elif isinstance(event, TransferRun):
            for wanted, alike in groupby(range(event.delivery, event.delivery + len(bodies_of(event))), verdict):
                first, *others = alike
                if wanted == 1:
                    event.link.accept_run(first, 1 + len(others))
                elif wanted == 2:
                    event.link.state_accepted(first, 1 + len(others))


def confirm_most(events: list[Event]) -> None:
    """Settle what a receiver accepted and waits for, but every fifth; in runs if it was accepted in runs."""
    for event in events:
        if isinstance(event, Disposition) and isinstance(event.link, Sender):
            if not event.settled and event.outcome == ACCEPTED and event.delivery % 5:
                event.link.confirm_all([event.delivery])
        elif isinstance(event, AcceptedRun) and not event.settled:
            left = [number for number in range(event.delivery, event.delivery + event.count) if number % 5]
            while left:
                count = next((n for n in range(1, len(left)) if left[n] != left[0] + n), len(left))
                event.link.confirm_run(left[0], count)
                left = left[count:]


@contextmanager
def bodies_pass_by(*, even_small_ones: bool) -> Iterator[None]:
    """Bodies pass the engine by that are hardly larger than what takes their place, if the module knows how."""
    with pytest.MonkeyPatch.context() as patch:
        if even_small_ones:
            for module in (bypass, senders):
                patch.setattr(module, "BODY_MIN", 33)
            patch.setattr(senders, "ALONE_MIN", 100)
            patch.setattr(senders, "FRAME_REST_BYTES", 64)
        yield


def heard(
    pieces: list[bytes],
    *,
    batched: bool,
    in_runs: bool = False,
    with_tags: bool = True,
    apart: bool = False,
    reads_apart: bool = False,
) -> list[Any]:
    """What a server with links in both directions reports of them, and answers."""
    with pytest.MonkeyPatch.context() as patch, bodies_pass_by(even_small_ones=apart):
        patch.setattr(batch, "available", batched)
        patch.setattr(batch, "knows_transactions", batched and batch.knows_transactions)
        patch.setattr(batch, "sends_one", batched and batch.sends_one)
        return _heard(pieces, in_runs=in_runs, with_tags=with_tags, reads_apart=reads_apart)


def _heard(pieces: list[bytes], *, in_runs: bool, with_tags: bool, reads_apart: bool) -> list[Any]:
    connection = Connection(server=True, settings=Settings(container_id="server", max_message_bytes=MESSAGE_BYTES_MAX))
    connection.open()
    log: list[Any] = []
    for piece in [HEADER + OPEN + BEGIN + ATTACH_SENDER + ATTACH_RECEIVER + FLOW, *pieces]:
        events = connection.receive_data(piece)
        for event in events:
            log += map(plain, taken_apart(event))
        accept_most(events)
        confirm_most(events)
        for event in events:
            if isinstance(event, SessionBegan):
                event.session.open()
            elif isinstance(event, Attached):
                event.link.accept()
                if isinstance(event.link, Receiver):
                    event.link.takes_runs, event.link.reads_tags = in_runs, with_tags
                    event.link.reads_apart = reads_apart
                    event.link.add_credit(CREDIT)
                elif isinstance(event.link, Sender):
                    tags = b"".join(number.to_bytes(8, "big") for number in range(SENT))
                    bodies = [bytes([number]) * (number % 5 * 60 + number) for number in range(SENT)]
                    if in_runs:
                        event.link.send_run(b"".join(bodies), array("I", accumulate(map(len, bodies))), 0, "sent")
                    else:
                        event.link.send_all(bodies, tags, [("sent", number) for number in range(SENT)])
        log.append(connection.data_to_send())
        log += map(held, connection._links.values())
    connection.free()
    return log


@settings(max_examples=examples(300), deadline=None)
@given(streams(), st.booleans())
def test_the_same_bytes_mean_the_same(pieces: list[bytes], apart: bool) -> None:
    assert heard(pieces, batched=True, apart=apart) == heard(pieces, batched=False)


@pytest.mark.skipif(not batch.knows_transactions, reason="the module was compiled earlier")
@settings(max_examples=examples(300), deadline=None)
@given(transacted_streams(), st.booleans(), st.booleans())
def test_the_same_transactions_mean_the_same(pieces: list[bytes], tags: bool, apart: bool) -> None:
    together = heard(pieces, batched=True, in_runs=True, with_tags=tags, apart=apart)
    assert together == heard(pieces, batched=False, with_tags=tags)


@pytest.mark.skipif(not batch.knows_transactions, reason="the module was compiled earlier")
def test_a_transaction_is_read_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sessions, each with an outcome, a message, a discharge and a declare."""
    taken = []
    take = batch.Run.take_transacted

    def count(self: batch.Run, collector: Any) -> int:
        taken.append(take(self, collector))
        return taken[-1]

    monkeypatch.setattr(batch.Run, "take_transacted", count)
    data = b""
    for channel in (0, 1):
        data += frame(0x15, [True, UInt(0), UInt(0), True, ACCEPTED_IN_TRANSACTION[0]], channel)
        data += flow(channel, 11)
        for number, (handle, state) in enumerate([(0, IN_TRANSACTION[0]), (3, None), (3, None)]):
            fields = [UInt(handle), UInt(number), b"t", UInt(0), False, False, None, state]
            data += frame(0x14, fields, channel, payload=b"text")
    log = heard([attached_too(0) + attached_too(1), data], batched=True)
    assert taken == [10]
    events = [entry for entry in log if isinstance(entry, tuple) and entry[0] in ("Transfer", "Disposition")]
    ids = [dict(fields)["txn_id"] for name, *fields in events if name == "Transfer"]
    assert ids == [b"txn", None, None] * 2
    assert [dict(fields)["outcome"] for name, *fields in events if name == "Disposition"] == [
        Transactional(b"txn", ACCEPTED)
    ] * 2


@pytest.mark.skipif(not batch.tells_runs, reason="the module was compiled before there were runs")
@settings(max_examples=examples(300), deadline=None)
@given(st.one_of(streams(), lawful_streams(), lawful_streams()), st.booleans(), st.booleans(), st.booleans())
def test_a_run_taken_apart_is_the_transfers_that_the_same_bytes_mean(
    pieces: list[bytes], tags: bool, apart: bool, reads_apart: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "RUN_MIN", 2)
        of_runs = heard(pieces, batched=True, in_runs=True, with_tags=tags, apart=apart, reads_apart=reads_apart)
    assert of_runs == heard(pieces, batched=False, with_tags=tags)


# -- the same calls on two connections ---------------------------------------------------------------------------

OUTCOMES = [
    ACCEPTED,
    ACCEPTED,
    ACCEPTED,
    RELEASED,
    RECEIVED,
    DELIVERY_FAILED,
    Rejected("a:b"),
    Transactional(b"t", ACCEPTED),
]
STEPS = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 30), st.sampled_from(OUTCOMES), st.booleans()), min_size=1, max_size=25
)


class Conversation:
    """Two connections that are told what to do, and everything they report and write."""

    def __init__(self, *, batched: bool) -> None:
        self.log: list[Any] = []
        self.batched = batched
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch, "available", batched)
            self.pair = Pair(client={"max_frame_bytes": 512}, server={"max_frame_bytes": 512}).opened()
        self.sender, self.receiver = self.pair.outgoing(credit=CREDIT, max_message_bytes=MESSAGE_BYTES_MAX)
        self.sent = 0

    def step(self, kind: int, number: int, outcome: Any, flag: bool) -> None:
        """One thing that a shell may do."""
        sender, receiver = self.sender, self.receiver
        sending = sender._begun == 0 and sender.credit > number
        if kind <= 1 and sending:
            tags = b"".join((self.sent + at).to_bytes(8, "big") for at in range(number))
            bodies = [bytes([at]) * (1 + at * (300 if flag else 11)) for at in range(number)]
            self.log.append(list(sender.send_all(bodies, tags, range(self.sent, self.sent + number))))
            self.sent += number
        elif kind == 2 and sending and number % 3 == 1:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(batch, "sends_one", self.batched and batch.sends_one)
                self.log.append(sender.send_one(b"o" * number * (40 if flag else 1), b"12345678", self.sent))
        elif kind == 2 and sending:
            txn_id = b"t" if flag else None
            self.log.append(
                sender.send(b"s" * number * 10, bytes(number), self.sent, settled=number > 20, txn_id=txn_id)
            )
        elif kind == 3 and sending:
            self.log.append(sender.begin(b"12345678", "begun"))
        elif kind == 4 and sender._begun:
            sender.push(b"p" * 100)
            if flag:
                sender.abort()
            else:
                sender.finish()
        elif kind == 5:
            receiver.accept_all([*sorted(receiver._unsettled)[:number], number])
        elif kind == 6:
            for handle in sorted(receiver._unsettled)[:number]:
                receiver.update(handle, outcome)
        elif kind == 7:
            for handle in sorted(receiver._unsettled)[:number]:
                receiver.settle(handle, outcome)
        elif kind == 8:
            sender.confirm_all([*sorted(sender._unsettled)[:number], number])
        elif kind == 9:
            receiver.reads_tags = flag
            receiver.add_credit(number)
        elif kind == 10 and number > 28:
            (sender if flag else receiver).close()
        else:
            self.exchange(number)

    def exchange(self, cut_at: int) -> None:
        """Hand over what both have written; the server gets it in two pieces, cut at 0 to 30 thirtieths."""
        up, down = self.pair.client.data_to_send(), self.pair.server.data_to_send()
        self.log += [up, down]
        cut = len(up) * cut_at // 30
        for piece in (up[:cut], up[cut:]):
            self.log += map(plain, self.pair.server.receive_data(piece))
        self.log += map(plain, self.pair.client.receive_data(down))
        self.log += map(held, (self.sender, self.receiver))


@settings(max_examples=examples(200), deadline=None)
@given(STEPS, st.booleans())
def test_the_same_calls_say_and_write_the_same(steps: list[tuple[int, int, Any, bool]], apart: bool) -> None:
    logs = []
    for batched in (True, False):
        with bodies_pass_by(even_small_ones=apart):
            conversation = Conversation(batched=batched)
            for step in [*steps, *[(11, 0, None, False)] * 4]:
                conversation.step(*step)
        conversation.pair.free()
        logs.append(conversation.log)
    assert logs[0] == logs[1]


def test_more_messages_than_one_call_takes_arrive(pair: Pair) -> None:
    """Both bounds of a run are crossed: the number of its messages, and their bytes."""
    count = 2 * batch.RUN_MAX + 10
    sender, receiver = pair.outgoing(credit=2 * count)
    tags = b"".join(number.to_bytes(8, "big") for number in range(count))
    sender.send_all([b"m"] * count, tags, range(count))
    sender.send_all([b"large" * 5000] * 40, tags[:320], range(40))
    _, events = pair.exchange()
    assert [event.data for event in events] == [b"m"] * count + [b"large" * 5000] * 40  # type: ignore[attr-defined]
    receiver.accept_all(sorted(receiver._unsettled))
    events, _ = pair.exchange()
    assert [event.context for event in events] == [*range(count), *range(40)]  # type: ignore[attr-defined]
    assert sender.unsettled == receiver.unsettled == len(sender._deliveries) == 0


def test_the_environment_can_forbid_the_module() -> None:
    environment = {**os.environ, "LEGATO_PURE": "1"}
    script = "from legato.amqp.engine import batch; print(batch.available)"
    asked = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert asked.stdout == "False\n"


# -- parts of runs -----------------------------------------------------------------------------------------------

PARTS = [[(2, 3), (0, 2), (5, 3)], [(0, 8)], [(0, 3), (3, 5)], [(5, 3), (0, 5)], [(1, 1), (0, 8)]]
"""Ranges of a run of eight: place and count."""


@pytest.mark.skipif(not batch.tells_runs, reason="the module was compiled before there were runs")
@pytest.mark.parametrize("parts", PARTS)
def test_parts_of_a_received_run_are_accepted_as_their_deliveries_are(parts: list[tuple[int, int]]) -> None:
    frames = [frame(0x14, [UInt(0), UInt(n), bytes([n]), UInt(0), False], payload=b"tea") for n in range(8)]
    said = []
    for in_runs in (True, False):
        connection, receiver, _ = server(in_runs=in_runs)
        events = connection.receive_data(b"".join(frames))
        assert len(events) == (1 if in_runs else 8)
        log: list[Any] = []
        for place, count in parts:
            if in_runs:
                receiver.accept_run(1 + place, count)
            else:
                receiver.accept_all([*range(1 + place, 1 + place + count)])
            log += [connection.data_to_send(), held(receiver)]
        said.append(log)
        connection.free()
    assert said[0] == said[1]


@pytest.mark.skipif(not batch.tells_runs, reason="the module was compiled before there were runs")
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("settled", [False, True])
def test_parts_of_a_received_run_are_confirmed_as_their_deliveries_are(
    parts: list[tuple[int, int]], settled: bool
) -> None:
    """AMQP 2.6.12: whatever parts are accepted, and whatever parts of that the sender settles."""
    accepted = Described(ULong(0x24), [])
    frames = [frame(0x14, [UInt(0), UInt(n), bytes([n]), UInt(0), False], payload=b"tea") for n in range(8)]
    said = []
    for in_runs in (True, False):
        connection, receiver, _ = server(in_runs=in_runs)
        connection.receive_data(b"".join(frames))
        log: list[Any] = []
        for place, count in parts:
            if in_runs:
                receiver.state_accepted(1 + place, count)
            else:
                for handle in range(1 + place, 1 + place + count):
                    receiver.update(handle, ACCEPTED)
            log += [connection.data_to_send(), held(receiver)]
        for first, last in ((0, 1), (4, 5), (2, 7)):
            for event in connection.receive_data(frame(0x15, [False, UInt(first), UInt(last), settled, accepted])):
                log += map(plain, taken_apart(event))
            log += [connection.data_to_send(), held(receiver)]
        said.append(log)
        connection.free()
    assert said[0] == said[1]


@pytest.mark.skipif(not batch.tells_runs, reason="the module was compiled before there were runs")
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("settled", [False, True])
def test_parts_of_a_sent_run_are_accepted_and_confirmed_as_their_deliveries_are(
    parts: list[tuple[int, int]], settled: bool
) -> None:
    accepted = Described(ULong(0x24), [])
    bodies = [b"tea"] * 8
    said = []
    for in_runs in (True, False):
        connection, _, sender = server(in_runs=in_runs)
        if in_runs:
            first = sender.send_run(b"".join(bodies), array("I", range(3, 27, 3)), 7, "sent")
        else:
            tags = b"".join(number.to_bytes(8, "big") for number in range(7, 15))
            first = sender.send_all(bodies, tags, [("sent", place) for place in range(8)])[0]
        log: list[Any] = [connection.data_to_send()]
        for place, count in parts:
            fields = [True, UInt(place), UInt(place + count - 1), settled, accepted]
            for event in connection.receive_data(frame(0x15, fields)):
                log += map(plain, taken_apart(event))
            log.append(held(sender))
        for place, count in [] if settled else parts:
            if in_runs:
                sender.confirm_run(first + place, count)
            else:
                sender.confirm_all([*range(first + place, first + place + count)])
            log += [connection.data_to_send(), held(sender)]
        said.append(log)
        connection.free()
    assert said[0] == said[1]


def server(*, in_runs: bool) -> tuple[Connection, Receiver, Sender]:
    """A server with a link in each direction, with credit."""
    connection = Connection(server=True, settings=Settings(container_id="server"))
    connection.open()
    links: dict[type[Link], Any] = {}
    for event in connection.receive_data(HEADER + OPEN + BEGIN + ATTACH_SENDER + ATTACH_RECEIVER + FLOW):
        if isinstance(event, SessionBegan):
            event.session.open()
        elif isinstance(event, Attached):
            event.link.accept()
            links[type(event.link)] = event.link
    receiver, sender = links[Receiver], links[Sender]
    receiver.takes_runs, receiver.reads_tags = in_runs, False
    receiver.add_credit(CREDIT)
    connection.data_to_send()
    return connection, receiver, sender
