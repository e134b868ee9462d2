"""Output of the commands: lines for people, in which nothing of what others wrote is obeyed, and exact JSON."""

from __future__ import annotations

import json
from typing import Any

import typer

from legato.quoting import lines, one_line


def say(line: str, *, err: bool = False, **style: Any) -> None:
    """Print a line for people. Names and ids in it belong into `quoted`; what a terminal would obey is shown.

    Args:
        style: see `typer.secho`.
    """
    typer.secho(one_line(line), err=err, **style)


def counted(count: int, noun: str) -> str:
    """So many of something, in words."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def say_lines(text: str, *, err: bool = False, **style: Any) -> None:
    """Print a text of several lines."""
    typer.secho(lines(text), err=err, **style)


def say_json(value: object) -> None:
    """Print a value as JSON on one line: exact, and in plain ASCII, of which a terminal obeys nothing."""
    typer.echo(json.dumps(value))
