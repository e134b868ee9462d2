"""The path of a message (docs/internals/message-path.md) leads from function to function."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "message-path.md"
STEP = re.compile(r"( *)- `([\w/]+\.py)`: (`[\w.]+`(?: > `[\w.]+`)*)")


class Step(NamedTuple):
    """A function of the path: how far its line is indented, its file, its name, and its place in the line."""

    indent: int
    file: str
    name: str
    place: int

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def test_each_function_of_the_path_is_there_and_called_by_the_one_before() -> None:
    assert list(complaints(PAGE.read_text())) == []


def test_the_path_is_all_read() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.lstrip().startswith("- ")]
    assert len(lines) > 40
    assert [line for line in lines if not STEP.match(line)] == []


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("- `core/broker.py`: `Broker.take_bench`", "core/broker.py: Broker.take_bench: there is no such function"),
        ("- `core/bench.py`: `bench`", "core/bench.py: bench: there is no such function"),
        (
            "- `core/broker.py`: `Broker.committed` > `Broker.failed`",
            "core/broker.py: Broker.failed: core/broker.py: Broker.committed does not call it",
        ),
        (
            "- `core/broker.py`: `Broker.committed`\n  - `core/publishing.py`: `Publisher.publish_numbered`",
            "core/publishing.py: Publisher.publish_numbered: core/broker.py: Broker.committed does not call it",
        ),
    ],
)
def test_a_wrong_step_is_found(page: str, complaint: str) -> None:
    assert list(complaints(page)) == [complaint]


def complaints(page: str) -> Iterator[str]:
    """What is wrong with the path that a page draws."""
    callers: list[Step] = []
    for step in _steps(page):
        if not step.place:
            callers = [caller for caller in callers if caller.indent < step.indent]
        names = _functions(step.file)
        if step.name not in names:
            yield f"{step}: there is no such function"
        elif callers and step.name.split(".")[-1] not in _functions(callers[-1].file).get(callers[-1].name, ()):
            yield f"{step}: {callers[-1]} does not call it"
        callers.append(step)


def _steps(page: str) -> Iterator[Step]:
    for line in page.splitlines():
        if found := STEP.match(line):
            for place, name in enumerate(re.findall(r"`([\w.]+)`", found[3])):
                yield Step(len(found[1]), found[2], name, place)


@cache
def _functions(file: str) -> dict[str, frozenset[str]]:
    """The functions of a file, methods with their class, each with the names that it uses."""
    path = ROOT / "src" / "legato" / file
    if not path.exists():
        return {}
    functions: dict[str, frozenset[str]] = {}
    for node in ast.parse(path.read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef):
                functions[prefix + member.name] = frozenset(_names(member))
    return functions


def _names(function: ast.FunctionDef) -> Iterator[str]:
    """Names that the function uses."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
