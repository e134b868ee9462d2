"""What README and the how-tos show is what happens: their Python runs and has types, their commands exist."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from legato.cli.main import app
from legato.testing import BrokerPair, broker_pair

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN_URL = "amqp://localhost:5672,localhost:5673"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


FILE = re.compile(r"# (\w+)\.py\n")
"""The first line of a block that is a file of its own, as those of the tutorial: `test_tutorial.py` runs them."""


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The blocks of a language with the numbers of their first lines."""
    text = page.read_text()
    return [
        (text[: found.start(2)].count("\n") + 1, found[2]) for found in BLOCK.finditer(text) if found[1] == language
    ]


def name(page: Path) -> str:
    return page.name


def in_the_order_of_readme() -> list[Path]:
    """The pages with Python as a reader opens them: README, those it links to, the others."""
    readme = ROOT / "README.md"
    linked = [(ROOT / link).resolve() for link in re.findall(r"\]\(([^)#]+\.md)", readme.read_text())]
    order = [readme, *linked]
    with_python = [page for page in PAGES if blocks(page, "python")]
    return sorted(with_python, key=lambda page: order.index(page) if page in order else len(order))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    with broker_pair(tmp_path_factory.mktemp("docs")) as running:
        yield running


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader is: files of one page are there when the next one is read."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.parametrize("page", in_the_order_of_readme(), ids=name)
@pytest.mark.parametrize("reading", ["first", pytest.param("second", marks=pytest.mark.slow)])
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, reading: str, pair: BrokerPair, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages in the order of README on one broker, and all of them again: none needs a broker without messages."""
    monkeypatch.chdir(directory)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks(page, "python"):
        if FILE.match(code):
            continue
        assert "amqp://" not in code or SHOWN_URL in code
        # Blank lines in front, so that a traceback names the page's own line.
        source = "\n" * (line - 1) + code.replace(SHOWN_URL, pair.url)
        exec(compile(source, str(page), "exec"), namespace)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of each page as a program, whose lines have the page's numbers."""
    directory = tmp_path_factory.mktemp("snippets")
    for page in PAGES:
        lines = [""] * page.read_text().count("\n")
        for first, code in blocks(page, "python"):
            if file := FILE.match(code):
                (directory / f"{file[1]}.py").write_text(code)
                continue
            written = code.splitlines()
            lines[first - 1 : first - 1 + len(written)] = written
        if any(lines):
            (directory / f"{page.stem.replace('-', '_')}_page.py").write_text("\n".join(lines) + "\n")
    return directory


@pytest.mark.slow
def test_mypy_strict_has_nothing_to_say_about_the_python_of_any_page(programs: Path) -> None:
    """What a reader copies has types: the names of a message's class are known without a cast."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *map(str, programs.glob("*.py"))]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_pyright_strict_has_nothing_to_say_about_the_python_of_any_page(programs: Path) -> None:
    """The same for who reads with Pylance."""
    settings = {"include": ["."], "strict": ["."], "extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11"}
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(programs)]
    run = subprocess.run(command, cwd=programs, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=name)
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for _, code in blocks(page, "sh"):
        for words in (shlex.split(line, comments=True) for line in code.splitlines()):
            if words[:1] != ["legato"]:
                continue
            command, rest = group.commands[words[1]], words[2:]
            if isinstance(command, TyperGroup):
                command, rest = command.commands[rest[0]], rest[1:]
            context = command.make_context(words[1], rest, resilient_parsing=False)
            context.close()
