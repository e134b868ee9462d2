"""What facts add up to at a high-water mark: those before it, also of its own commit, and not those after it."""

from legato.core.facts import QueueMarked
from legato.spark.auditor.high_water_marks import marks, queue_and_epoch_facts
from legato.spark.ledger import fact_frames
from tests.spark.conftest import MakeFacts
from tests.spark.history import HIGH, URGENT, record, stored, took


def test_in_its_own_commit_a_mark_counts_what_comes_before_it(facts_of: MakeFacts) -> None:
    facts = facts_of(
        [
            record(1, 1, stored(URGENT, 1)),
            record(
                1,
                2,
                stored(URGENT, 2),
                stored(URGENT, HIGH + 1),
                took(URGENT, 1),
                QueueMarked(URGENT, 2, 3, 1),
                stored(URGENT, 3),
                took(URGENT, 2),
                QueueMarked(URGENT, 3, 4, 2),
                stored(URGENT, 4),
            ),
            record(1, 3, took(URGENT, HIGH + 1), took(URGENT, 9)),
            record(1, 4, QueueMarked(URGENT, 4, 5, 4)),
        ]
    )
    found = marks(queue_and_epoch_facts(facts), fact_frames.commits(facts)).orderBy("place").collect()
    assert [(row["seq_found"], row["stored_found"], row["consumed_found"]) for row in found] == [
        (2, 3, 1),
        (3, 4, 2),
        (4, 5, 4),
    ]
    assert [(row["seq"], row["stored"], row["consumed"]) for row in found] == [(2, 3, 1), (3, 4, 2), (4, 5, 4)]
    assert all(row["in_order"] for row in found)
