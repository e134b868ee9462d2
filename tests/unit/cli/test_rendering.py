"""How figures look on a terminal."""

import pytest

from legato.cli.rendering import _age, _size


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (150 * 1024, "150 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072 TiB"),
    ],
)
def test_sizes_are_short(count: int, shown: str) -> None:
    assert _size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages_are_short(seconds: float, shown: str) -> None:
    assert _age(seconds) == shown
