"""What the simulator holds to be promised: neither more nor less than what is."""

import json

import msgspec
import pytest
from simulator.history import History
from simulator.plan import LISTENING_KINDS, TOPIC, QueuePlan, draw
from simulator.record import ViolationError

from legato.client import TextMessage
from legato.client.messages.properties import Properties
from legato.core.dead_letters import HISTORY, MAXIMUM_DELIVERIES
from legato.core.facts import (
    AnyFact,
    ConsumerAttached,
    DuplicateDropped,
    DuplicateIdDropped,
    DuplicateIdKept,
    Kind,
    MessageConsumed,
    MessageDeadLettered,
    MessagePublished,
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


LISTENERS = {3: "volatile://a//x", 4: "volatile://b//y"}
"""Subscriptions that end with their listeners, by number; the consumer of each is 10 above it."""
TOPIC_NUMBER, DEAD_LETTERS, DRAIN = 2, 7, 20


def deaths(*sources: int) -> History:
    """A run in which a message to two listeners died of some of them, and all its dead letters were consumed."""
    topic = QueuePlan(TOPIC, {"maximum_deliveries": 1})
    history = History(lambda: 0, lambda *_: True, msgspec.structs.replace(draw(1), topic=topic))
    history.epoch_began(1)
    facts: list[AnyFact] = [QueueCreated(TOPIC_NUMBER, f"topic:{TOPIC}", kind=Kind.TOPIC)]
    for number, name in LISTENERS.items():
        facts.append(QueueCreated(number, name, kind=Kind.SUBSCRIPTION, topic=TOPIC_NUMBER, temporary=True))
        facts.append(ConsumerAttached(10 + number, number, name, name))
    facts += [MessagePublished(TOPIC_NUMBER, 1, 1, "1", list(LISTENERS)), QueueCreated(DEAD_LETTERS, f"DLQ.{TOPIC}")]
    history.committed(Batch(1, 0, facts, [b"<1>"]))
    for name in LISTENERS.values():
        history.was_presented(name, letter(), name)
    for seq, number in enumerate(sources, 1):
        died = MessageDeadLettered(number, 1, 10 + number, MAXIMUM_DELIVERIES, DEAD_LETTERS, seq, 1)
        history.committed(Batch(1, 0, [died, MessageStored(DEAD_LETTERS, seq, 1, "", origin=(number, 1))], [b"<1>"]))
    seqs = range(1, len(sources) + 1)
    history.committed(Batch(1, 0, [MessageConsumed(DEAD_LETTERS, seq, DRAIN, 0, 1) for seq in seqs], []))
    return history


def letter(number: int = 0) -> TextMessage:
    """The message as an application has it; `number`: as it died of a listener."""
    message = TextMessage("<1>")
    message.delivery_count = 1
    message._properties = Properties({HISTORY: json.dumps([{"consumer": 10 + number}])}, read_only=True)
    return message


def drain(history: History, number: int) -> None:
    """The dead letter of a listener is received."""
    history.was_presented(history.buried(f"DLQ.{TOPIC}", letter(number)), letter(number), "drain")


def test_a_message_may_die_of_each_listener_of_the_topic() -> None:
    history = deaths(3, 4)
    drain(history, 3)
    drain(history, 4)
    history.check_end()


def test_the_dead_letter_of_one_listener_does_not_stand_for_that_of_another() -> None:
    history = deaths(3, 4)
    drain(history, 3)
    with pytest.raises(ViolationError, match=r"1 of DLQ\.prices of volatile://b//y is consumed and nobody had it"):
        history.check_end()


def test_only_a_listener_of_which_a_message_died_has_a_dead_letter_of_it() -> None:
    with pytest.raises(ViolationError, match=r"1 of DLQ\.prices of volatile://b//y was presented and never stored"):
        drain(deaths(3), 4)


@pytest.mark.parametrize("kind", LISTENING_KINDS)
def test_what_died_of_listeners_is_drained(kind: str) -> None:
    topic = QueuePlan(TOPIC, {"maximum_deliveries": 1})
    plan = msgspec.structs.replace(draw(1), topic=topic, kinds=("produce", kind))
    assert f"DLQ.{TOPIC}" in plan.drained
    assert f"DLQ.{TOPIC}" not in msgspec.structs.replace(plan, kinds=("produce",)).drained
