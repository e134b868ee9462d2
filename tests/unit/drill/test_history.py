"""Planted faults in a broker's log are found without Spark too."""

from legato.core.facts import AnyFact, LogRecord, MessageConsumed, MessageStored, QueueDeleted
from legato.drill.history import History, HistoryFinding

QUEUE = 1


def stored(seq: int, number: int = 0) -> MessageStored:
    return MessageStored(QUEUE, seq, 10, f"id-{seq}", producer=1 if number else 0, number=number)


def consumed(seq: int) -> MessageConsumed:
    return MessageConsumed(QUEUE, seq, 1, 0, 1)


def judge(*records: list[AnyFact], waiting: int = 0, epochs: tuple[int, ...] = ()) -> HistoryFinding:
    history = History()
    for position, facts in enumerate(records, 1):
        epoch = epochs[position - 1] if epochs else 1
        history.add(position, LogRecord(epoch, 0, facts))
    return history.judge({QUEUE: waiting}, {QUEUE: "orders"})


def test_a_log_that_adds_up_holds() -> None:
    finding = judge([stored(1), stored(2)], [consumed(1)], waiting=1)
    assert finding.holds
    assert (finding.stored, finding.consumed) == (2, 1)


def test_a_message_that_neither_left_nor_waits_is_lost() -> None:
    finding = judge([stored(1), stored(2)], [consumed(1)])
    assert finding.lost == 1
    assert "orders" in finding.complaints[0]


def test_a_message_that_waits_though_it_left_is_found() -> None:
    assert not judge([stored(1)], [stored(2), consumed(1)], waiting=2).holds


def test_a_message_that_left_twice_is_done_twice() -> None:
    assert judge([stored(1)], [consumed(1)], [consumed(1)]).duplicated == 1


def test_a_number_that_was_stored_twice_is_a_duplicate() -> None:
    assert judge([stored(1, 7), stored(2, 7)], [consumed(1), consumed(2)]).duplicated == 1


def test_an_epoch_that_wrote_after_the_next_had_begun_is_found() -> None:
    assert not judge([stored(1)], [consumed(1)], [], epochs=(1, 2, 1)).holds


def test_what_went_with_its_queue_is_not_lost() -> None:
    assert judge([stored(1)], [QueueDeleted(QUEUE, "orders", 1)]).holds


def test_a_gap_in_the_log_is_found() -> None:
    history = History()
    history.add(1, LogRecord(1, 0, []))
    history.add(3, LogRecord(1, 0, []))
    assert not history.judge({}, {}).holds
