"""Each class that the glossary names exists in the package that it names."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
SOURCES = ROOT / "src" / "legato"
ROW = re.compile(r"^\| ([^|]+?) \| ([^|]+?) \| (?:`([\w.]+)`: `(\w+)`)? ?\|$")
ROWS = [found.groups() for line in GLOSSARY.read_text().splitlines() if (found := ROW.match(line))]


def class_of(package: str, name: str) -> type | None:
    """The class of that name that a module of the package defines, imported from there."""
    for file in sorted((SOURCES / package).rglob("*.py")):
        if re.search(rf"^class {name}\b", file.read_text(), re.MULTILINE):
            module = ".".join(file.relative_to(SOURCES.parent).with_suffix("").parts)
            found = getattr(importlib.import_module(module), name)
            return found if isinstance(found, type) else None
    return None


def test_a_word_stands_for_one_concept() -> None:
    words = [word for word, *_ in ROWS]
    assert len(words) >= 40
    assert sorted(words) == sorted(set(words))


def test_every_row_of_the_glossary_is_read() -> None:
    lines = [
        line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ") and not line.startswith("| Word")
    ]
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("package", sorted({package for _, _, package, _ in ROWS if package}))
def test_the_classes_that_the_glossary_names_exist(package: str) -> None:
    named = {name for _, _, at, name in ROWS if at == package}
    assert {name for name in named if class_of(package, name) is None} == set()
