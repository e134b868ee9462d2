"""Old defects that the drill has been seen to find can still be planted; `tools/drill_planted.py` runs the drills."""

from pathlib import Path

import pytest
from tools.drill_planted import PLANTED, SOURCES, plant


@pytest.mark.parametrize("name", PLANTED)
def test_the_place_of_an_old_defect_is_what_it_was(name: str, tmp_path: Path) -> None:
    planted = plant(name, tmp_path / "sources")
    for file, _, _ in PLANTED[name].changes:
        text = (planted / "legato" / file).read_text()
        assert text != (SOURCES / file).read_text()
        compile(text, file, "exec")
