"""Confirmation of what destroys: asked on a terminal, given with `--yes`, tried with `--dry-run`.

What can be undone by another command is asked on a terminal only: a script goes on without `--yes`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from legato.cli.output import say
from legato.errors import ConfigError
from legato.quoting import one_line
from legato.sizes import counted

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would happen, and change nothing.")]


def confirm(what: str, *, yes: bool, dry_run: bool) -> bool:
    """Whether to go on with `what`, such as `delete queue orders and the 3 messages in it`.

    Raises:
        ConfigError: nobody can be asked.
        typer.Exit: the answer was no.
    """
    if dry_run:
        say(f"would {what}")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise ConfigError(f"This would {what}: add --yes to do so, or --dry-run.")
    if not typer.confirm(one_line(f"{what[0].upper()}{what[1:]}?")):
        say("nothing was changed")
        raise typer.Exit(1)
    return True


def confirm_on_terminal(what: Callable[[], str], *, yes: bool, dry_run: bool) -> bool:
    """As `confirm`, of what can be undone: it goes on if nobody can be asked.

    Args:
        what: is called only if it is to be said.

    Raises:
        typer.Exit: the answer was no.
    """
    if not dry_run and (yes or not sys.stdin.isatty()):
        return True
    return confirm(what(), yes=yes, dry_run=dry_run)


def messages(count: int) -> str:
    """So many messages, in words."""
    return counted(count, "message")
