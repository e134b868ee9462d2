"""What was refused is known as long as it may come again, and takes up little room however much that is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legato import limits
from legato.core.facts import MessageStored
from legato.core.producers import Producer
from legato.core.records import ProducerRecord
from legato.core.refused_numbers import RefusedNumbers, note_refused
from legato.core.settings import AddressSettings
from legato.store import values
from tests.support.examples import examples
from tests.support.scenario import Scenario

KEPT = limits.REFUSED_NUMBERS_KEPT
RECORD_BYTES_MAX = KEPT // 8 + 200
HUGE = (1 << 64) - 1


def record_of(*refused: int, last: int = 0) -> ProducerRecord:
    record = ProducerRecord(1, "p", last or max(refused))
    note_refused(record, dict.fromkeys(refused, True))
    return record


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_80_000_refusals_make_no_record_large(step: int) -> None:
    """However they lie: one after the other, every other one, far apart."""
    refused = RefusedNumbers()
    for number in range(1, 80_000 * step, step):
        refused.add(number)
    record = ProducerRecord(1, "p", number)
    refused.note(record)
    assert len(values.encode(record)) < RECORD_BYTES_MAX
    assert [*RefusedNumbers.of(record)] == [n for n in range(1, number + 1, step) if n > number - KEPT]
    assert record.refused_forgotten == max(n for n in range(1, number - KEPT + 1, step))


@pytest.mark.parametrize("numbers", [(1, HUGE), (HUGE, 1), (HUGE, 1, HUGE - 1), (1 << 40, 5, 1 << 50)])
def test_no_number_of_a_peer_makes_it_large(numbers: tuple[int, ...]) -> None:
    refused = RefusedNumbers()
    for number in numbers:
        refused.add(number)
        assert refused._bits.bit_length() <= 2 * KEPT
        assert number in refused or number <= refused.forgotten


def test_what_former_versions_wrote_is_read() -> None:
    record = ProducerRecord(1, "p", 9, refused=[3, 4, 8])
    assert [*RefusedNumbers.of(record)] == [3, 4, 8]
    note_refused(record, {4: False, 9: True})
    assert (record.refused, [*RefusedNumbers.of(record)]) == ([], [3, 8, 9])


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=60))
def test_it_is_a_set_of_what_is_not_far_behind(steps: list[tuple[int, bool]]) -> None:
    model: set[int] = set()
    record = ProducerRecord(1, "p")
    refused = RefusedNumbers()
    for number, is_refused in steps:
        (model.add if is_refused else model.discard)(number)
        (refused.add if is_refused else refused.discard)(number)
        record.last_number = max(record.last_number, number)
        note_refused(record, {number: is_refused})
        assert [*refused] == [*RefusedNumbers.of(record)] == sorted(model)
        assert refused.highest_other(number) == max(n for n in range(number + 1) if n not in model)


def test_what_was_refused_so_long_ago_that_it_is_forgotten_is_neither_confirmed_nor_stored() -> None:
    """To confirm it as a duplicate could lose it, to store it could be once more, or out of order."""
    producer = Producer(record_of(5, last=5 + KEPT))
    assert producer.refused.forgotten == 5
    for number in (4, 5):
        assert not producer.is_duplicate(number)
        assert producer.is_overtaken(number)
    assert producer.is_duplicate(6)


def test_a_producer_whose_address_is_full_costs_a_commit_no_more_each_time() -> None:
    """`when_full = fail`: its record is written anew by each commit, in which it refuses or stores something."""
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=1, when_full="fail")
    s.publish("q", b"the only one")
    producer = s.broker.producers.attach("p")
    for number in range(1, 2 * KEPT):
        s.broker.publisher.publish_numbered(s.broker.directory.queue("q"), b"x", "x", number, producer, number)
    s.run()
    assert len(s.refused) == 2 * KEPT - 1
    record = s.store.producer("p")
    assert record is not None
    assert len(values.encode(record)) < RECORD_BYTES_MAX
    after = s.crash()
    again = after.broker.producers.attach("p")
    after.settings.clear()
    for number in (1, KEPT, 2 * KEPT - 1, 2 * KEPT):
        after.broker.publisher.publish_numbered(after.broker.directory.queue("r"), b"x", "x", number, again, number)
    after.run()
    assert [fact.number for fact in after.facts if isinstance(fact, MessageStored)] == [KEPT, 2 * KEPT - 1, 2 * KEPT]
    assert [*after.refused] == [1]
