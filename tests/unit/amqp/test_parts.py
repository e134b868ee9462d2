"""Messages that go out and come in part by part."""

import pytest
from cproton import lib

from legato import limits
from legato.amqp.engine.events import Disposition, Transfer, TransferAborted, TransferPart
from legato.amqp.engine.link import Receiver, Sender
from legato.amqp.engine.outcomes import ACCEPTED, Released
from legato.amqp.engine.states import ACCEPTED_STATE
from tests.unit.amqp.pair import Pair, of

pytestmark = pytest.mark.usefixtures("either_way")

PART = bytes(range(256)) * 1024
PARTS = 8
"""Two MiB in all."""


def streaming(pair: Pair, *, credit: int = 100) -> tuple[Sender, Receiver]:
    """A link on which the server wants large messages in parts."""
    sender, receiver = pair.outgoing(credit=credit)
    receiver.streams = True
    return sender, receiver


def send_parts(pair: Pair, sender: Sender, *, settled: bool = False, parts: int = PARTS) -> list[TransferPart]:
    """Begin a message and send parts of it; what the server was told."""
    came = []
    sender.begin(b"tag", "context", settled=settled)
    for _ in range(parts):
        sender.push(PART)
        came += of(pair.exchange()[1], TransferPart)
    return came


def test_a_large_message_is_reported_in_parts(pair: Pair) -> None:
    sender, receiver = streaming(pair)
    came = send_parts(pair, sender)
    assert sender.finish()
    _, events = pair.exchange()
    came += of(events, TransferPart)
    assert b"".join(part.data for part in came) == PART * PARTS
    assert [part.first for part in came] == [True] + [False] * (len(came) - 1)
    assert [part.last for part in came] == [False] * (len(came) - 1) + [True]
    assert {part.tag for part in came} == {b"tag"}
    assert len(came[0].data) > limits.LARGE_MESSAGE_BYTES
    receiver.settle(came[-1].delivery)
    (outcome,) = of(pair.exchange()[0], Disposition)
    assert (outcome.context, outcome.outcome, outcome.settled) == ("context", ACCEPTED, True)
    assert sender.credit == receiver.credit == 99
    assert receiver.session.partial_bytes == 0


def test_a_message_of_several_frames_that_is_not_large_comes_whole(pair: Pair) -> None:
    sender, _ = streaming(pair)
    assert send_parts(pair, sender, parts=4) == []
    sender.finish()
    (transfer,) = of(pair.exchange()[1], Transfer)
    assert transfer.data == PART * 4


def test_who_does_not_stream_gets_large_messages_whole(pair: Pair) -> None:
    sender, _ = pair.outgoing()
    assert send_parts(pair, sender) == []
    sender.finish()
    (transfer,) = of(pair.exchange()[1], Transfer)
    assert transfer.data == PART * PARTS


def test_messages_before_and_after_a_large_one_keep_their_order(pair: Pair) -> None:
    sender, receiver = streaming(pair)
    sender.send(b"before", b"1")
    came = send_parts(pair, sender)
    sender.finish()
    sender.send(b"after", b"2")
    _, events = pair.exchange()
    last, after = events[-2:]
    assert isinstance(last, TransferPart)
    assert last.last
    assert isinstance(after, Transfer)
    assert after.data == b"after"
    assert after.delivery > came[0].delivery
    assert receiver.unsettled == 3


def test_a_settled_large_message_is_settled_at_its_end(pair: Pair) -> None:
    sender, receiver = streaming(pair)
    send_parts(pair, sender, settled=True)
    sender.finish()
    last = of(pair.exchange()[1], TransferPart)[-1]
    assert last.settled
    assert receiver.unsettled == sender.unsettled == 0


def test_a_large_message_that_its_sender_gives_up_is_aborted(pair: Pair) -> None:
    """AMQP 2.7.5."""
    sender, receiver = streaming(pair)
    send_parts(pair, sender)
    sender.abort()
    _, events = pair.exchange()
    assert [type(event) for event in events] == [TransferAborted]
    assert not sender.push(PART)
    assert sender.unsettled == receiver.unsettled == 0
    sender.send(b"next", b"2")
    (transfer,) = of(pair.exchange()[1], Transfer)
    assert transfer.data == b"next"
    assert sender.credit == receiver.credit == 98


def test_what_was_given_up_before_it_was_known_to_be_large_is_reported_for_its_credit(pair: Pair) -> None:
    sender, receiver = streaming(pair)
    send_parts(pair, sender, parts=1)
    sender.abort()
    assert [type(event) for event in pair.exchange()[1]] == [TransferAborted]
    assert receiver.session.partial_bytes == 0


def test_a_sender_whose_link_closes_can_send_no_more(pair: Pair) -> None:
    sender, receiver = streaming(pair)
    send_parts(pair, sender)
    receiver.close("amqp:resource-deleted", "gone")
    pair.exchange()
    sender.close()
    assert not sender.push(PART)
    assert not sender.finish()
    sender.abort()


@pytest.mark.parametrize("settles", [False, True])
def test_a_receiver_that_decides_before_the_end_gets_no_more(pair: Pair, settles: bool) -> None:
    """AMQP 2.6.14."""
    sender, receiver = streaming(pair)
    send_parts(pair, sender)
    delivery = lib.pn_link_current(receiver._pn)
    lib.pn_delivery_update(delivery, ACCEPTED_STATE)
    if settles:
        # Legato's receivers never do; so what it has of the message must be forgotten by hand.
        lib.pn_delivery_settle(delivery)
        receiver._drop_parts()
    (said,) = of(pair.exchange()[0], Disposition)
    assert (said.outcome, said.settled) == (ACCEPTED, settles)
    sender.confirm_all([said.delivery])
    assert not sender.push(PART)
    assert not sender.finish()
    sender.send(b"next", b"2")
    _, events = pair.exchange()
    assert [transfer.data for transfer in of(events, Transfer)] == [b"next"]
    assert sender.credit == 98
    assert sender.unsettled == 1


def test_credit_for_a_message_that_is_begun_is_not_counted_again(pair: Pair) -> None:
    sender, receiver = streaming(pair, credit=2)
    send_parts(pair, sender)
    assert sender.credit == 1
    receiver.add_credit(5)
    pair.exchange()
    assert sender.credit == 6
    sender.finish()
    pair.exchange()
    assert sender.credit == receiver.credit == 6


def test_a_message_in_parts_that_is_too_large_is_settled_early_and_ends_the_link() -> None:
    """AMQP 2.6.14: the sender learns that the receiver wants no more of it."""
    pair = Pair(server={"max_message_bytes": 1_500_000}).opened()
    sender, receiver = streaming(pair)
    send_parts(pair, sender, parts=PARTS)
    assert receiver.closed
    assert not sender.push(PART)
    assert sender.unsettled == 0
    assert receiver.session.partial_bytes == 0
    pair.free()


def test_small_frames_make_no_difference() -> None:
    pair = Pair(server={"max_frame_bytes": 1024}).opened()
    sender, _ = streaming(pair)
    came = send_parts(pair, sender)
    sender.finish()
    came += of(pair.exchange()[1], TransferPart)
    assert b"".join(part.data for part in came) == PART * PARTS
    pair.free()


def test_what_waits_for_the_window_is_known(pair: Pair) -> None:
    sender, _ = streaming(pair)
    sender.begin(b"tag")
    sender.push(PART)
    assert sender.session.outgoing_bytes == len(PART)
    pair.exchange()
    assert sender.session.outgoing_bytes == 0


@pytest.mark.parametrize("outcome", [ACCEPTED, Released()])
def test_links_work_on_after_a_large_message(pair: Pair, outcome: object) -> None:
    sender, receiver = streaming(pair)
    for number in range(3):
        send_parts(pair, sender)
        sender.finish()
        last = of(pair.exchange()[1], TransferPart)[-1]
        receiver.settle(last.delivery, outcome)  # type: ignore[arg-type]
        (answer,) = of(pair.exchange()[0], Disposition)
        assert answer.outcome == outcome, number
    assert sender.unsettled == 0
