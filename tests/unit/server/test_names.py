"""Which names peers may give."""

import pytest

from legato.server.limits.names import Names, UnfitName

NAMES = Names(255)


@pytest.mark.parametrize(
    "name", ["orders.new", "a b", "x" * 255, "é" * 127, "заказы", "注文", "../DLQ", "<b>", "'; --"]
)
def test_a_name_that_can_be_read_and_is_short_may_be_given(name: str) -> None:
    NAMES.check(name, "a queue")


INVISIBLE = (
    *("a\0b", "a\nb", "\x1b[2J", "\x7f", "\x9b31m", "a\u202eb", "a\u200bb", "\ufeffa", "a\u2066b", "a\u2028b"),
    *("a\u00a0b", "a\u3164", "a\u034fb", "a\ufe0f", "a\U000e0041", "a\u00adb", "\ud800"),
)


@pytest.mark.parametrize("name", INVISIBLE)
def test_a_name_with_characters_that_nobody_sees_is_refused(name: str) -> None:
    with pytest.raises(UnfitName, match=r"cannot be the name of a queue: the character U\+[0-9A-F]{4,6} in it") as told:
        NAMES.check(name, "a queue")
    assert str(told.value).isprintable()
    assert str(told.value).isascii()


@pytest.mark.parametrize(("name", "size"), [("x" * 256, 256), ("é" * 128, 256), ("x" * 240_000, 240_000)])
def test_a_name_is_measured_in_bytes_and_shown_in_part(name: str, size: int) -> None:
    with pytest.raises(UnfitName, match=f"it has {size} bytes; names have at most 255") as told:
        NAMES.check(name, "a topic")
    assert len(str(told.value)) < 800


def test_what_has_its_name_already_keeps_it() -> None:
    NAMES.check("a\nb", "a queue", lambda: True)
    with pytest.raises(UnfitName):
        NAMES.check("\ud800", "a queue", lambda: True)


def test_the_bounds_can_be_moved() -> None:
    Names(1000, printable=False).check("\n" * 1000, "a queue")
    with pytest.raises(UnfitName):
        Names(1000, printable=False).check("\ud800", "a queue")
