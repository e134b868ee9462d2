"""What the next batch of a stream takes of each address, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from legato.spark.connector.assignments import Limits, Place, Places
from legato.spark.connector.options import source_options


def test_a_limit_of_bytes_is_that_of_all_addresses_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address took so many: a batch of ten queues had ten times the limit."""
    places = Places(source_options({"url": "amqp://one", "queues": "a,b,c,d", "subscription": "s"}))
    waiting = {"a": 600, "b": 300, "c": 100, "d": 0}
    places.by_address = {address: Place(address, 1, 0, 0, count) for address, count in waiting.items()}
    asked: dict[str, int] = {}

    def ask(operation: str, address: str, name: str, *, fence: int, limit: int, limit_bytes: int = 0) -> dict[str, Any]:
        if limit:
            asked[address] = limit_bytes
        last = min(limit, limit_bytes // 10)
        return {"acknowledged": 0, "last": last, "waiting": waiting[address] - last}

    monkeypatch.setattr(places, "_ask", ask)
    ends = places.plan({}, Limits(size=1000), None)
    assert asked == {"a": 600, "b": 300, "c": 100}
    assert ends == {"a": 60, "b": 30, "c": 10, "d": 0}


def test_what_a_queue_keeps_back_does_not_take_the_room_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million messages of a paused queue, or in consumers' hands, left the others one row in each batch."""
    places = Places(source_options({"url": "amqp://one", "queues": "kept,a,b", "subscription": "s"}))
    waiting, last = {"kept": 1_000_000, "a": 500, "b": 10}, dict.fromkeys(("kept", "a", "b"), 0)
    places.by_address = {address: Place(address, 1, 0, 0, count) for address, count in waiting.items()}

    def ask(operation: str, address: str, name: str, *, fence: int, limit: int) -> dict[str, Any]:
        if address != "kept":
            last[address] += min(limit, waiting[address] - last[address])
        return {"acknowledged": 0, "last": last[address], "waiting": waiting[address] - last[address]}

    monkeypatch.setattr(places, "_ask", ask)
    ends = places.plan({}, Limits(rows=100), None)
    assert ends["kept"] == 0
    assert ends["b"] > 0
    assert sum(ends.values()) == 100
    assert last == ends, "no more was taken than the batch has"
    assert places.plan(ends, Limits(rows=1000), None) == {"kept": 0, "a": 500, "b": 10}
