"""The help of each command says all that its docstring says, and each example can be entered."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from legato.cli.commands import help_of
from legato.cli.main import app


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands, with what is entered."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands(get_command(app)))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_help_says_all_that_the_docstring_says_and_has_an_example(path: tuple[str, ...]) -> None:
    """`pip install 'legato[query]'` was shown as `pip install 'legato'`: Rich took the brackets for markup."""
    docstring = ALL[path].callback.__doc__ or ""
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "10000", "TERM": "dumb"}).output
    words = set(shown.split())
    assert [word for word in docstring.split() if word not in words and word.rstrip(";") not in words] == []
    assert "Example" in shown or path == ("ledger", "sql")
    assert "{" not in next(line for line in shown.splitlines() if "Usage:" in line)


def test_the_end_of_a_help_is_shown_as_it_is_written() -> None:
    """`legato[demo]` was shown as `legato`."""
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "10000", "TERM": "dumb"}).output
    assert "`legato demo` (with Java 17 and legato[demo]) shows all of it at work." in shown


def test_each_example_is_a_line_and_a_command_that_there_is() -> None:
    group = get_command(app)
    for path, command in ALL.items():
        for line in command.help.replace("\\[", "[").splitlines():
            if not line.startswith("legato "):
                continue
            words = shlex.split(line.partition(" | ")[0])
            found: Any = group
            for word in words[1:]:
                if not isinstance(found, TyperGroup):
                    break
                found = found.commands[word]
            assert not isinstance(found, TyperGroup), line
            known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert given <= known, (path, line)


def test_paragraphs_are_wrapped_and_examples_are_not() -> None:
    docstring = """Do it.

    What is written
    on two lines. Examples: legato a; legato b

    Example: legato c 'x; y'
    """
    told = "Do it.\n\nWhat is written on two lines.\n\nExamples:\nlegato a\nlegato b\n\nExample:\nlegato c 'x; y'"
    assert help_of(docstring) == told
    assert help_of("In [ha].") == "In \\[ha]."
