"""Messages and outcomes between two connections."""

from __future__ import annotations

import pytest

from legato.amqp.engine.events import Disposition, Flow, Transfer, TransferLost
from legato.amqp.engine.outcomes import (
    ACCEPTED,
    DELIVERY_FAILED,
    RECEIVED,
    RELEASED,
    Declared,
    Modified,
    Outcome,
    Rejected,
    Transactional,
)
from tests.unit.amqp.pair import Pair, of

pytestmark = pytest.mark.usefixtures("either_way")

TERMINAL = [
    ACCEPTED,
    RELEASED,
    Rejected(),
    Rejected("amqp:not-found", "no such ünit"),
    DELIVERY_FAILED,
    Modified(undeliverable_here=True),
    Modified(delivery_failed=True, text="ValueError: not a number"),
    Declared(b"\x00\xff"),
    Transactional(b"t\x00", ACCEPTED),
    Transactional(b"t", RELEASED),
    Transactional(b"t", Modified(True, True, "why")),
    Transactional(b"t", Rejected("a:b", "why")),
    Transactional(b"t"),
]


def test_a_message_arrives_as_it_was_sent(pair: Pair) -> None:
    sender, receiver = pair.outgoing()
    sender.send(b"hello", b"12345678", "context")
    _, events = pair.exchange()
    (transfer,) = of(events, Transfer)
    assert transfer.link is receiver
    assert (transfer.data, transfer.tag, transfer.settled, transfer.txn_id) == (b"hello", b"12345678", False, None)


@pytest.mark.parametrize("tag", [b"", b"\xff\xfe\x00", b"\x80" * 8, b"x" * 32])
def test_a_tag_may_hold_any_bytes(pair: Pair, tag: bytes) -> None:
    sender, _ = pair.outgoing()
    sender.send(b"m", tag)
    _, events = pair.exchange()
    assert [transfer.tag for transfer in of(events, Transfer)] == [tag]


def test_an_empty_message_is_a_message(pair: Pair) -> None:
    sender, _ = pair.outgoing()
    sender.send(b"", b"t")
    _, events = pair.exchange()
    assert [transfer.data for transfer in of(events, Transfer)] == [b""]


@pytest.mark.parametrize("outcome", TERMINAL, ids=str)
def test_a_settled_outcome_reaches_the_sender_with_its_context(pair: Pair, outcome: Outcome) -> None:
    sender, receiver = pair.outgoing()
    context = object()
    handle = sender.send(b"m", b"t", context)
    _, events = pair.exchange()
    receiver.settle(of(events, Transfer)[0].delivery, outcome)
    events, _ = pair.exchange()
    assert of(events, Disposition) == [Disposition(sender, context, outcome, True, handle)]
    assert sender.unsettled == receiver.unsettled == 0


@pytest.mark.parametrize("outcome", [*TERMINAL, RECEIVED], ids=str)
def test_an_unsettled_outcome_waits_for_the_senders_confirmation(pair: Pair, outcome: Outcome) -> None:
    receiver, sender = pair.incoming()
    sender.send(b"m", b"t", "context")
    events, _ = pair.exchange()
    delivery = of(events, Transfer)[0].delivery
    receiver.update(delivery, outcome)
    _, events = pair.exchange()
    (disposition,) = of(events, Disposition)
    assert (disposition.context, disposition.outcome, disposition.settled) == ("context", outcome, False)
    sender.confirm(disposition.delivery, Rejected("legato:went-elsewhere"))
    events, _ = pair.exchange()
    (answer,) = of(events, Disposition)
    assert (answer.link, answer.context, answer.settled) == (receiver, delivery, True)
    assert answer.outcome == Rejected("legato:went-elsewhere")
    assert sender.unsettled == receiver.unsettled == 0


def test_an_outcome_may_change_until_it_is_settled(pair: Pair) -> None:
    receiver, sender = pair.incoming()
    sender.send(b"m", b"t")
    events, _ = pair.exchange()
    delivery = of(events, Transfer)[0].delivery
    for outcome in (Transactional(b"one", ACCEPTED), Transactional(b"two", RELEASED), RECEIVED, ACCEPTED):
        receiver.update(delivery, outcome)
        _, events = pair.exchange()
        assert [event.outcome for event in of(events, Disposition)] == [outcome]


def test_settling_without_an_outcome_is_reported_as_such(pair: Pair) -> None:
    sender, receiver = pair.outgoing()
    sender.send(b"m", b"t")
    _, events = pair.exchange()
    receiver.settle(of(events, Transfer)[0].delivery, None)
    events, _ = pair.exchange()
    (disposition,) = of(events, Disposition)
    assert disposition.outcome is None
    assert disposition.settled


def test_a_presettled_message_owes_nothing(pair: Pair) -> None:
    sender, receiver = pair.outgoing()
    assert sender.send(b"m", b"", settled=True) == 0
    _, events = pair.exchange()
    (transfer,) = of(events, Transfer)
    assert transfer.settled
    assert receiver.unsettled == sender.unsettled == 0
    receiver.settle(transfer.delivery)
    assert pair.exchange() == ([], [])


def test_a_transactional_message_names_its_transaction(pair: Pair) -> None:
    sender, _ = pair.outgoing()
    sender.send(b"m", b"t", txn_id=b"\x00\xfe")
    sender.send(b"m", b"t", txn_id=b"\x01", settled=True)
    _, events = pair.exchange()
    assert [(transfer.txn_id, transfer.settled) for transfer in of(events, Transfer)] == [
        (b"\x00\xfe", False),
        (b"\x01", True),
    ]


def test_events_of_a_batch_are_not_lost_where_the_engine_coalesces_them(pair: Pair) -> None:
    """amqp.md C7: the engine drops an event that equals the one before."""
    sender, receiver = pair.outgoing()
    handles = [sender.send(b"%d" % number, b"t") for number in range(50)]
    _, events = pair.exchange()
    transfers = of(events, Transfer)
    assert [transfer.data for transfer in transfers] == [b"%d" % number for number in range(50)]
    for transfer in transfers:
        receiver.update(transfer.delivery, ACCEPTED)
        receiver.settle(transfer.delivery, ACCEPTED)
    events, _ = pair.exchange()
    settled = [event.delivery for event in of(events, Disposition) if event.settled]
    assert sorted(settled) == handles


def test_credit_goes_down_with_messages_and_up_with_flow(pair: Pair) -> None:
    sender, receiver = pair.outgoing(credit=3)
    assert sender.credit == receiver.credit == 3
    sender.send(b"m", b"t")
    assert sender.credit == 2
    pair.exchange()
    assert receiver.credit == 2
    receiver.add_credit(5)
    events, _ = pair.exchange()
    assert of(events, Flow) == [Flow(sender)]
    assert sender.credit == receiver.credit == 7


def test_a_message_beyond_the_credit_waits_at_the_sender(pair: Pair) -> None:
    sender, receiver = pair.outgoing(credit=1)
    sender.send(b"first", b"1")
    sender.send(b"second", b"2")
    assert sender.credit == -1
    _, events = pair.exchange()
    assert [transfer.data for transfer in of(events, Transfer)] == [b"first"]
    receiver.add_credit(1)
    _, events = pair.exchange()
    assert [transfer.data for transfer in of(events, Transfer)] == [b"second"]


def test_drained_credit_comes_back(pair: Pair) -> None:
    receiver, sender = pair.incoming(credit=10)
    assert receiver.drain(5)
    assert receiver.draining
    _, events = pair.exchange()
    assert of(events, Flow)
    assert (sender.credit, sender.draining) == (15, True)
    sender.send(b"m", b"t")
    assert sender.drained() == 14
    events, _ = pair.exchange()
    assert [type(event) for event in events] == [Transfer, Flow]
    assert (receiver.credit, receiver.draining, sender.credit) == (0, False, 0)


def test_a_drain_without_credit_has_nothing_to_wait_for(pair: Pair) -> None:
    receiver, _ = pair.incoming(credit=0)
    assert not receiver.drain()
    assert not receiver.draining


def test_credit_given_after_a_drain_ends_it(pair: Pair) -> None:
    receiver, sender = pair.incoming(credit=1)
    receiver.drain()
    pair.exchange()
    sender.drained()
    pair.exchange()
    receiver.add_credit(4)
    pair.exchange()
    assert (sender.credit, sender.draining) == (4, False)


def test_more_messages_than_the_engines_window_go_through(pair: Pair) -> None:
    sender, receiver = pair.outgoing(credit=20_000)
    for number in range(20_000):
        sender.send(b"m", number.to_bytes(8, "big"), settled=True)
    _, events = pair.exchange()
    assert len(of(events, Transfer)) == 20_000
    assert receiver.credit == 0


def test_a_transaction_is_told_of_what_came_over_a_closed_link(pair: Pair) -> None:
    """AMQP 4.4.1: it cannot commit without it."""
    sender, receiver = pair.outgoing()
    receiver.close("amqp:resource-deleted")
    sender.send(b"in a transaction", b"1", txn_id=b"txn")
    sender.send(b"alone", b"2")
    _, events = pair.exchange()
    assert of(events, Transfer) == []
    assert [(lost.link, lost.txn_id) for lost in of(events, TransferLost)] == [(receiver, b"txn")]


def test_a_transaction_is_told_of_what_was_too_large(pair: Pair) -> None:
    sender, receiver = pair.outgoing(max_message_bytes=10)
    sender.send(b"x" * 11, b"1", txn_id=b"txn")
    _, events = pair.exchange()
    assert [lost.txn_id for lost in of(events, TransferLost)] == [b"txn"]
    assert receiver.closed
