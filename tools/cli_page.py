"""Writer of docs/reference/cli.md: every command of `legato`, its arguments and options, from the program itself."""

import re
import sys
from pathlib import Path

import typer
from typer.cli import get_docs_for_click
from typer.main import get_group, get_install_completion_arguments

from legato.cli.main import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
_HEAD = """# Commands

Every command of `legato`, as `legato COMMAND --help` shows it. Exit codes: 0 if all went well, 1 if nothing was
found or something failed, also if whoever reads the output stops early, 2 if the command line or a setting is
wrong, 130 if Ctrl-C cut it off; `legato` alone shows its help and exits with 0. `LEGATO_URL` stands for `--url`.
`legato --install-completion` lets the shell complete commands and options.

This page is made by `make cli-reference`.

"""
_MARKUP = re.compile(r"^```.*?^```$|`[^`\n]*`|[<>]", re.DOTALL | re.MULTILINE)
_EXAMPLES = re.compile(r"^(Examples?):\n((?:.+\n)+)\n", re.MULTILINE)
_ESCAPED = {"<": "&lt;", ">": "&gt;"}


def page() -> str:
    """The page as it should be."""
    # Its own tree: commands remember the names of `--help` in the first context that asked for them.
    command = get_group(app)
    command.params += get_install_completion_arguments()
    context = typer.Context(command, info_name="legato", **command.context_settings)
    text = get_docs_for_click(obj=command, ctx=context, name="legato", indent=1)
    text = text.replace("\\[", "[")
    text = re.sub(r" {2,}(?=\[(default|env var|required))", " ", text)
    text = _EXAMPLES.sub(_as_commands, text)
    return _HEAD + _MARKUP.sub(lambda found: _ESCAPED.get(found[0], found[0]), text).rstrip() + "\n"


def _as_commands(found: re.Match[str]) -> str:
    """Examples one a line, as they are entered."""
    commands = found[2].splitlines()
    return f"**{found[1]}**:\n\n```console\n" + "".join(f"$ {command}\n" for command in commands) + "```\n\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
