"""Each class that the glossary names exists in the package that it names."""

import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
ROW = re.compile(r"^\| ([^|]+?) \| ([^|]+?) \| (?:`([\w.]+)`: `(\w+)`)? ?\|$")
ROWS = [found.groups() for line in GLOSSARY.read_text().splitlines() if (found := ROW.match(line))]


def classes(package: str) -> frozenset[str]:
    """The names of all classes that the modules of a package define."""
    root = importlib.import_module(f"legato.{package}")
    names: set[str] = set()
    for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
        if not module.name.endswith("__main__"):
            names.update(_defined(importlib.import_module(module.name)))
    return frozenset(names)


def _defined(module: ModuleType) -> list[str]:
    return [
        name for name, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__
    ]


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
    assert named - classes(package) == set()
