"""Files and directories that nobody else may read, or is refused: keys, passwords, stores."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from legato.errors import ConfigError

OWN_NAME = "legato"
_NAMES_OF_OURS = ("data.mdb", "lock", "users", "backup.json", "_exporter.lock")
"""One of them is in every store, backup and ledger."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def refuse_readable(path: Path, what: str) -> None:
    """Refuse a file with a secret that others than its owner may read or change.

    A file of root's may be read by its group, as system packages have it. What is not there, or cannot be looked at,
    is left to whoever opens it.

    Args:
        what: names it, at the beginning of the sentence.

    Raises:
        ConfigError: they may; the message has the command that mends it.
    """
    try:
        found = path.stat()
    except OSError:
        return
    allowed = stat.S_IRGRP if found.st_uid == 0 != os.geteuid() else 0
    if found.st_mode & OTHERS & ~allowed:
        if not stat.S_ISREG(found.st_mode):
            # Nobody must be told to close /tmp, or /dev/null, to others.
            raise ConfigError(f"{what} {path} can be read by others, and is no file: name one.")
        raise ConfigError(
            f"{what} {path} can be read by others (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"chmod 600 {shlex.quote(str(path))}"
        )


def make_private(directory: Path, what: str, *, within: bool = True) -> None:
    """Make a directory that only we may look into; one that is there and empty becomes such a one.

    Args:
        within: whether what is in it is looked at too, as `refuse_shared` does.

    Raises:
        ConfigError: others may look into what is in it; the message has the command that mends it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(directory.stat().st_mode)
        if mode & OTHERS and not any(directory.iterdir()):
            directory.chmod(0o700)
            return
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"Cannot use {directory} as {what}: it has to be a directory, and it is a file.") from None
    except OSError as error:
        raise ConfigError(f"Cannot use {directory} as {what}: {error.strerror}.") from None
    refuse_shared(directory, what, within=within)


def refuse_shared(directory: Path, what: str, *, within: bool = True) -> None:
    """Refuse a directory that others may look into, or that has files or directories of such a kind in it.

    What is deeper is out of their reach then.

    Raises:
        ConfigError: there are such; the message has the command that mends them.
    """
    for path in (directory, *(directory.iterdir() if within else ())):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if stat.S_IMODE(mode) & OTHERS and not stat.S_ISLNK(mode):
            mend = f"Close it to them: chmod -R go= {shlex.quote(str(directory))}"
            if not _is_ours(directory):
                mend = f"There are other things in it: name a directory of its own, such as {directory / OWN_NAME}."
            raise ConfigError(
                f"Others on this machine can get at {what}: {path} has mode {stat.S_IMODE(mode):04o}. {mend}"
            )


def _is_ours(directory: Path) -> bool:
    """Whether a store or a ledger is there, or nothing. Else it may be somebody's home, or `/`, and others need it."""
    names = [path.name for path in directory.iterdir()]
    return not names or any(name in _NAMES_OF_OURS for name in names)
