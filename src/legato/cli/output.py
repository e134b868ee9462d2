"""Output of the commands: lines for people, in which nothing of what others wrote is obeyed, and exact JSON."""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from legato.errors import ConfigError
from legato.quoting import lines, one_line

_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)


def say(line: str, *, err: bool = False, **style: Any) -> None:
    """Print a line for people. Names and ids in it belong into `quoted`; what a terminal would obey is shown.

    Args:
        style: see `typer.secho`.
    """
    typer.secho(one_line(line), err=err, **style)


def say_lines(text: str, *, err: bool = False, **style: Any) -> None:
    """Print a text of several lines."""
    typer.secho(lines(text), err=err, **style)


def say_json(value: object) -> None:
    """Print a value as JSON on one line: exact, and in plain ASCII, of which a terminal obeys nothing."""
    typer.echo(json.dumps(value))


@contextmanager
def naming(file: Path, temporary: Path) -> Iterator[None]:
    """Name the file that cannot be written, of which the system tells no name, or that of the temporary one.

    Raises:
        ConfigError: it cannot, for a reason that somebody can do something about.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_DISKS or error.filename not in (None, str(temporary)):
            raise
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from None


def beside(output: Path) -> Path:
    """The name of a file to be written in the same directory first. Nobody can foresee it, and put a link there."""
    return output.with_name(f".{output.name}.{secrets.token_hex(8)}.writing")


def replaceable(output: Path) -> Path:
    """The file to be replaced by what is written to `output`: that which a link leads to, so that the link stays.

    Raises:
        ConfigError: it is a device, a pipe or a directory: a file in its place would take it from all others.
    """
    if output.exists() and not output.is_file():
        kind = "a directory" if output.is_dir() else "a device or a pipe"
        raise ConfigError(f"{output} is {kind}: name a file.")
    return output.resolve() if output.is_symlink() else output
