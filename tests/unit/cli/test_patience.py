"""`legato send` says why it does not return."""

import threading

import pytest

from legato.cli import send


def test_who_waits_for_a_full_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for ever and said nothing."""
    told = threading.Event()
    lines: list[str] = []

    def say(line: str, *, err: bool = False) -> None:
        assert err
        lines.append(line)
        told.set()

    monkeypatch.setattr(send, "say", say)
    with send.Patience("orders", told_after_s=0.001) as patience, patience.waiting():
        assert told.wait(60)
    assert lines[0].startswith("the broker takes no messages for orders now; waiting.")
    assert "legato queue show orders" in lines[0]
