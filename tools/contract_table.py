"""Writer of docs/reference/contract.md: each line of the five documents, and the tests that cite it."""

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = ROOT / "docs" / "contract.toml"
PAGE = ROOT / "docs" / "reference" / "contract.md"
CHECKED_PARTS = "ABCDE"
"""Of these parts each line that is stated must be named by a test."""

_NAME = re.compile(r"(?<!\.md )\b([A-E])(\d+)(?:-\1?(\d+))?")
_SLOW = "pytest.mark.slow"
_HEAD = """# The contract

Legato does what five documents specify. Each of their lines is here in our words, with the tests that name it:
`CONTRACT A18` in a test's docstring means the line A18. An example is run by the tests too.

- **S**: the document states it. **D**: a consequence that is worth a test.
- **X**: a fact about that product, which we follow or deliberately do not.

Where the documents disagree about what an application sees, the connection option `failover_contract` decides
(see [client](client.md)).

This page is made by `make contract` from [contract.toml](../contract.toml) and from the tests.
"""


class Line:
    """One line of a document.

    Args:
        mark: S, X or D.
        says: the line in our words.
        here: what Legato does, where that needs saying.
    """

    def __init__(self, name: str, mark: str, says: str, here: str = "") -> None:
        self.name = name
        self.mark = mark
        self.says = says
        self.here = here

    @property
    def part(self) -> str:
        return self.name[0]


class Naming:
    """A test, or an example, that names lines.

    Args:
        file: relative to the root.
        title: the test's name as a sentence; empty for an example.
        slow: whether only `make test-full` runs it.
    """

    def __init__(self, file: Path, title: str, lines: list[str], *, slow: bool = False) -> None:
        self.file = file
        self.title = title
        self.lines = lines
        self.slow = slow


def read_lines(file: Path = LINES) -> tuple[dict[str, str], dict[str, Line]]:
    """The titles of the parts, and the lines by name."""
    entries = tomllib.loads(file.read_text())
    titles: dict[str, str] = entries.pop("titles")
    return titles, {name: Line(name, **entry) for name, entry in entries.items()}


def names_in(docstring: str) -> list[str]:
    """The lines that a docstring names after the word CONTRACT; `E14-E16` are three."""
    _, _, text = docstring.partition("CONTRACT ")
    found: list[str] = []
    for part, first, last in _NAME.findall(text):
        found += [f"{part}{number}" for number in range(int(first), int(last or first) + 1)]
    return list(dict.fromkeys(found))


def namings(root: Path = ROOT) -> Iterator[Naming]:
    """All tests and examples that name a line, in the order of their files."""
    for file in sorted((root / "tests").rglob("test_*.py")):
        text = file.read_text()
        if "CONTRACT " not in text:
            # To parse all tests takes seconds.
            continue
        module = ast.parse(text)
        all_slow = any(_SLOW in ast.unparse(node) for node in module.body if isinstance(node, ast.Assign))
        for node in ast.walk(module):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                continue
            if lines := names_in(ast.get_docstring(node) or ""):
                title = node.name.removeprefix("test_").replace("_", " ")
                slow = all_slow or any(ast.unparse(mark) == _SLOW for mark in node.decorator_list)
                yield Naming(file.relative_to(root), title, lines, slow=slow)
    for file in sorted((root / "examples").glob("*.py")):
        if lines := names_in(ast.get_docstring(ast.parse(file.read_text())) or ""):
            yield Naming(file.relative_to(root), "", lines)


def by_line(found: Iterable[Naming]) -> dict[str, list[Naming]]:
    """The tests and examples that name each line."""
    result: dict[str, list[Naming]] = defaultdict(list)
    for naming in found:
        for line in naming.lines:
            result[line].append(naming)
    return result


def complaints(lines: Mapping[str, Line], tests: Mapping[str, list[Naming]]) -> list[str]:
    """What is wrong: names of lines that there are not, stated lines that no test of `make test` names."""
    unknown = [
        f"{naming.file} names {name}, which is no line"
        for name in tests.keys() - lines.keys()
        for naming in tests[name]
    ]
    untested = [
        f"no test of `make test` names {name}: {line.says}"
        for name, line in lines.items()
        if line.mark == "S" and line.part in CHECKED_PARTS and all(naming.slow for naming in tests.get(name, []))
    ]
    return sorted(unknown) + untested


def page(titles: Mapping[str, str], lines: Mapping[str, Line], tests: Mapping[str, list[Naming]]) -> str:
    """The page as it should be."""
    text = [_HEAD]
    for part, title in titles.items():
        text += [f"\n## {part}: {title}\n\n", "| | | The line | Here |\n|---|---|---|---|\n"]
        for line in lines.values():
            if line.part == part:
                text.append(f"| {line.name} | {line.mark} | {line.says} | {_here(line, tests.get(line.name, []))} |\n")
    return "".join(text)


def _here(line: Line, tests: Iterable[Naming]) -> str:
    titles: dict[Path, list[str]] = defaultdict(list)
    for naming in tests:
        titles[naming.file].append(naming.title)
    shown = [f"{line.here}."] if line.here else []
    for file, sentences in titles.items():
        label = file.relative_to("tests") if file.parts[0] == "tests" else file
        link = f"[{label}](../../{file})"
        shown.append(f"{link}: {'; '.join(sentences)}" if any(sentences) else link)
    return "<br>".join(shown)


def main() -> int:
    """Write the page, or only say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is stale")
    check = parser.parse_args().check
    titles, lines = read_lines()
    tests = by_line(namings())
    wanted = page(titles, lines, tests)
    stale = not PAGE.exists() or PAGE.read_text() != wanted
    if stale and not check:
        PAGE.write_text(wanted)
    wrong = complaints(lines, tests) + (
        ["docs/reference/contract.md is stale: make contract"] if check and stale else []
    )
    for complaint in wrong:
        print(complaint, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
