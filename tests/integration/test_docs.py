"""What README and the how-tos show is what happens: their Python runs, their commands exist."""

import re
import shlex
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


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The blocks of a language with the numbers of their first lines."""
    text = page.read_text()
    return [
        (text[: found.start(2)].count("\n") + 1, found[2]) for found in BLOCK.finditer(text) if found[1] == language
    ]


def name(page: Path) -> str:
    return page.name


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    with broker_pair(tmp_path_factory.mktemp("docs")) as running:
        yield running


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, pair: BrokerPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in blocks(page, "python"):
        assert "amqp://" not in code or SHOWN_URL in code
        # Blank lines in front, so that a traceback names the page's own line.
        source = "\n" * (line - 1) + code.replace(SHOWN_URL, pair.url)
        exec(compile(source, str(page), "exec"), namespace)


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
