"""What a peer says never makes a commit fail: its texts and numbers are stored without AMQP's types."""

import pytest

from legato.amqp.codec.types import Char, Symbol, UInt, ULong
from legato.core.facts import LogRecord, QueueCreated, decode_record, encode_record
from legato.store.values import encode


def test_facts_of_symbols_and_small_numbers_are_stored_as_texts_and_numbers() -> None:
    fact = QueueCreated(UInt(7), Symbol("q"))
    stored = decode_record(encode_record(LogRecord(ULong(1), 2, [fact])))
    assert stored == LogRecord(1, 2, [QueueCreated(7, "q")])
    assert type(stored.facts[0].name) is str  # type: ignore[union-attr]
    assert encode([Symbol("a"), Char("b"), UInt(3)]) == encode(["a", "b", 3])


def test_what_is_no_text_and_no_number_is_not_stored() -> None:
    with pytest.raises(NotImplementedError):
        encode(object())
