"""One message's life, told from its id or from where it lay."""

import pytest

from legato.errors import ConfigError
from legato.spark.auditor.message_stories import tell
from tests.spark.conftest import MakeFacts
from tests.spark.history import DUE, NEWS, ORDERS, READERS, SCHEDULE, history, news_history


def test_a_story_follows_a_message_to_the_dead_letters(facts_of: MakeFacts) -> None:
    story = tell(facts_of(history()), "ID:5")
    assert [(each.queue, each.seq, each.epoch, each.event) for each in story.chapters] == [
        ("orders", 5, 1, "stored, 10 bytes by shop as its 5"),
        ("orders", 5, 2, "dead-lettered by consumer 1 of w: poison, to DLQ 1"),
        ("DLQ", 1, 2, "stored, 10 bytes from orders 5"),
    ]
    assert "  +285 ms  epoch 2  orders 5: dead-lettered" in story.lines()[1]
    assert tell(facts_of(history()), f"{ORDERS}/5").chapters == story.chapters


def test_a_story_follows_a_copy_through_a_delayed_redelivery(facts_of: MakeFacts) -> None:
    story = tell(facts_of(news_history()), f"{READERS}/3")
    told = [(each.queue.rpartition("/")[2], each.seq, each.event.partition(",")[0]) for each in story.chapters]
    assert told[:3] == [
        ("readers", 3, "stored"),
        ("readers", 3, "came back by consumer 1: modified"),
        ("readers", 3, "moved: delayed"),
    ]
    assert ("$schedule", DUE, "moved: due") in told
    assert ("news", 5, "published") in told
    assert told[-1] == ("readers", 5, "consumed by consumer 1")
    assert {NEWS, SCHEDULE}, "the topic and the schedule are queues of their own"


def test_an_unknown_message_has_no_story(facts_of: MakeFacts) -> None:
    with pytest.raises(ConfigError, match="knows no message"):
        tell(facts_of(history()), "ID:none")
