"""What the simulator holds to be promised: neither more nor less than what is."""

import msgspec
import pytest
from simulator.history import History
from simulator.plan import QueuePlan, draw
from simulator.record import ViolationError

from legato.client import TextMessage
from legato.core.facts import (
    AnyFact,
    DuplicateDropped,
    DuplicateIdDropped,
    DuplicateIdKept,
    MessageStored,
    QueueCreated,
)
from legato.core.records import Batch

QUEUE, PRODUCER, WINDOW = 1, 1, 2


def history_of(*facts: AnyFact) -> History:
    """A run of one broker, with a queue that remembers few duplicate ids."""
    settings = {"duplicate_window": WINDOW}
    plan = msgspec.structs.replace(draw(1), queues=(QueuePlan("q", settings),), disk_fills=False)
    history = History(lambda: 0, lambda *_: True, plan)
    history.epoch_began(1)
    bodies = [b"<%d>" % fact.seq for fact in facts if isinstance(fact, MessageStored)]
    history.committed(Batch(1, 0, [QueueCreated(QUEUE, "q"), *facts], bodies))
    return history


def stored(number: int, duplicate_id: bytes) -> list[AnyFact]:
    """A message with a duplicate id."""
    name = str(number)
    return [
        DuplicateIdKept(QUEUE, duplicate_id, WINDOW, name, PRODUCER, number),
        MessageStored(QUEUE, number, 1, name, PRODUCER, number),
    ]


def tell(history: History, number: int, *, duplicate: bool) -> None:
    """The sender of a message hears what became of it."""
    message = TextMessage("")
    message.message_id, message.duplicate = str(number), duplicate
    history.was_confirmed(message)


DROPPED = DuplicateIdDropped(QUEUE, b"a", "2", "1", PRODUCER, 2)
RESENT = DuplicateDropped(PRODUCER, 2)


def test_who_sends_a_duplicate_again_hears_so_as_long_as_its_id_is_remembered() -> None:
    """CONTRACT E19."""
    history = history_of(*stored(1, b"a"), DROPPED, *stored(3, b"b"), RESENT)
    with pytest.raises(ViolationError, match="2 is not stored"):
        tell(history, 2, duplicate=False)


def test_who_sends_a_duplicate_again_when_its_id_is_forgotten_may_hear_that_it_is_stored() -> None:
    """CONTRACT E19: one of that id is."""
    history = history_of(*stored(1, b"a"), DROPPED, *stored(3, b"b"), *stored(4, b"c"), RESENT)
    tell(history, 2, duplicate=False)
    with pytest.raises(ViolationError, match="4 is stored, not a duplicate"):
        tell(history, 4, duplicate=True)


def test_who_sends_a_message_again_whose_id_is_another_ones_by_now_may_hear_that_it_is_a_duplicate() -> None:
    """CONTRACT E19."""
    later = [*stored(3, b"b"), *stored(4, b"c"), *stored(5, b"a")]
    history = history_of(*stored(1, b"a"), *later, DuplicateDropped(PRODUCER, 1))
    tell(history, 1, duplicate=True)
    with pytest.raises(ViolationError, match="5 is stored, not a duplicate"):
        tell(history, 5, duplicate=True)


def test_a_broker_that_decides_while_an_id_is_being_pushed_out_may_say_that_the_message_is_a_duplicate() -> None:
    """CONTRACT E19: what is sent again comes while another message has its id, which the next commit forgets."""
    history = history_of(*stored(1, b"a"), *stored(3, b"b"), *stored(4, b"c"), *stored(5, b"a"))
    history.committed(Batch(1, 1, [*stored(6, b"d"), *stored(7, b"e")], [b"<6>", b"<7>"]))
    history.committed(Batch(1, 2, [DuplicateDropped(PRODUCER, 1)], []))
    tell(history, 1, duplicate=True)


@pytest.mark.parametrize("presentations", [1, 2])
def test_who_consumed_a_message_is_told_that_another_had_it_only_of_an_earlier_delivery(presentations: int) -> None:
    """CONTRACT B12: `acknowledge()` is about all that the session received, also what it lost and got again since."""
    history = history_of(*stored(1, b"a"))
    history.containers[5] = "client"
    copy = history.copies["q", 1]
    copy.ended, copy.consumer = "consumed", 5
    copy.holders = ["client"] * presentations
    if presentations == 1:
        with pytest.raises(ViolationError, match="it has consumed them"):
            history.went_elsewhere("q", [1], "client")
    else:
        history.went_elsewhere("q", [1], "client")
