"""The notebooks of `examples/notebooks` run from top to bottom, draw what they show, and import what they install."""

import ast
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
HOWTO = ROOT / "docs" / "howto" / "ledger.md"
"""It tells how to start a notebook."""


def read(path: Path) -> Any:
    """A notebook."""
    return nbformat.reads(path.read_text(), 4)  # type: ignore[no-untyped-call]


def pictures(notebook: Any) -> list[str]:
    """Of which cells there are pictures."""
    return [
        cell["source"].splitlines()[0]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs_from_top_to_bottom(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes a ledger of its own: two brokers, a kill."""
    monkeypatch.delenv("LEGATO_LEDGER", raising=False)
    kept = read(path)
    run = NotebookClient(read(path), timeout=110, kernel_name="python3").execute()
    assert pictures(run) == pictures(kept) != []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_with_its_pictures_and_without_errors(path: Path) -> None:
    kept = read(path)
    assert pictures(kept)
    kinds = {output["output_type"] for cell in kept.cells for output in cell.get("outputs", [])}
    assert kinds <= {"display_data", "execute_result", "stream"}


def imported(notebook: Any) -> set[str]:
    """The packages that the cells import, but for Python's own."""
    names: set[str] = set()
    for cell in notebook.cells:
        for node in ast.walk(ast.parse(cell["source"] if cell["cell_type"] == "code" else "")):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def installed(command: str) -> set[str]:
    """The packages that a command of pip asks for, with those that the extras of Legato name."""
    extras: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names: set[str] = set()
    wanted = shlex.split(command)
    while wanted:
        found = re.match(r"([\w-]+)(?:\[([\w,-]+)\])?", wanted.pop())
        assert found
        names.add(found[1])
        if found[1] == "legato" and found[2]:
            wanted += [package for extra in found[2].split(",") for package in extras[extra]]
    return names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_imports_only_what_the_extras_bring_that_its_pages_install(path: Path) -> None:
    texts = [cell["source"] for cell in read(path).cells if cell["cell_type"] == "markdown"] + [HOWTO.read_text()]
    commands = [line for text in texts for line in re.findall(r"^pip install (.*notebook.*)$", text, re.MULTILINE)]
    assert len(commands) == 2
    for command in commands:
        assert imported(read(path)) <= installed(shlex.split(command)[0])


def test_no_example_gives_no_listener_where_it_means_not_to_wait() -> None:
    """That is the default: a producer that was to be faster than its consumer waited for the disk each time."""
    pages = [
        page
        for kind in ("*.ipynb", "*.py", "*.md")
        for page in (*ROOT.glob(f"examples/**/{kind}"), *ROOT.glob(f"docs/howto/{kind}"))
    ]
    assert pages
    assert [page.name for page in pages if "completion_listener=None" in page.read_text()] == []
