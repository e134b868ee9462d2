"""`legato store`: back up, restore and verify a store, while brokers serve from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from legato.cli.commands import Commands
from legato.cli.confirmation import messages
from legato.cli.endings import undone_if_ended
from legato.cli.options import JsonOption
from legato.cli.output import say, say_json
from legato.errors import ConfigError
from legato.sizes import counted

if TYPE_CHECKING:
    from legato.store.backup import Contents

app = Commands(
    name="store",
    help="Back up, restore and verify a store, with or without brokers that serve from it.",
)

BackupArgument = Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory of a backup.", show_default=False)]


@app.command("backup")
def backup(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="The store directory, or the URL of the brokers that serve it.", show_default=False
        ),
    ],
    to: Annotated[
        Path, typer.Argument(metavar="TO", help="A new directory, best on another disk.", show_default=False)
    ],
    ledger: Annotated[bool, typer.Option("--ledger/--no-ledger", help="Copy the ledger's segments too.")] = True,
    ledger_directory: Annotated[
        Path | None,
        typer.Option(
            "--ledger-directory", help="Where they are, if not in STORE/ledger.", metavar="DIR", show_default=False
        ),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Then read all of the copy.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Copy a store as of one commit, while brokers serve from it or not. TO gets its name when all is there.

    With a URL the store may be on another machine. Its broker sends the copy, without the ledger's segments, to a user
    whose role has management = "administer".

    Examples: legato store backup /var/lib/legato/store /backup/legato-1;
    legato store backup ./store ./copy --no-ledger; legato store backup amqps://a.example,b.example ./copy
    """
    import msgspec

    from legato.cli.store_fetching import fetch
    from legato.client.failover.uri import is_uri, parse_uri
    from legato.store import backup as backups
    from legato.store.backup_files import LEDGER_NAME

    _see_that_it_can_be_named(to)
    if is_uri(store):
        if ledger_directory is not None:
            raise typer.BadParameter(
                "segments of the ledger are not copied from a URL", param_hint="--ledger-directory"
            )
        with undone_if_ended():
            manifest = fetch(store, to)
        store = f"the store at {parse_uri(store)}"
    else:
        segments = (ledger_directory or Path(store, LEDGER_NAME)) if ledger else None
        with undone_if_ended():
            manifest = backups.take(Path(store), to, ledger=segments)
    contents = backups.verify(to) if verify else None
    if as_json:
        say_json({"manifest": msgspec.to_builtins(manifest), "contents": msgspec.to_builtins(contents)})
        return
    say(
        f"backed up {store} as of commit {manifest.log_position:,} of epoch {manifest.epoch:,}: "
        f"{manifest.data_bytes:,} bytes, {counted(len(manifest.segments), 'ledger segment')}"
    )
    if contents is not None:
        say(f"verified {to}: {_sentence(contents)}")


@app.command("restore")
def restore(
    backup: BackupArgument,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The new store: a directory that is new or empty.")],
) -> None:
    """Make a store of a backup. What happened after the backup was taken is not in it; start brokers on it afterwards.

    Example: legato store restore /backup/legato-1 /var/lib/legato/store
    """
    from legato.store import backup as backups
    from legato.store.base import FORMAT_VERSION

    _see_that_it_can_be_named(store)
    with undone_if_ended():
        manifest = backups.restore(backup, store)
    say(f"restored {store} as of commit {manifest.log_position:,} of epoch {manifest.epoch:,}")
    if manifest.format != FORMAT_VERSION:
        say(f"it has format {manifest.format}: the first broker that serves from it brings it to {FORMAT_VERSION}")


@app.command("verify")
def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A store, or a backup of one.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Read all of a store or backup as of one commit: files against their digests, messages with all parts of large
    ones, counters, indexes, the log.

    A store that an older version of Legato wrote is migrated in a temporary copy (in TMPDIR) and read there: so you
    know that the upgrade will succeed before you do it.

    The exit code is 1 if something is not as it was written. Example: legato store verify /backup/legato-1
    """
    import msgspec

    from legato.store import backup as backups
    from legato.store.base import FORMAT_VERSION

    with undone_if_ended():
        contents = backups.verify(path)
    if as_json:
        say_json(msgspec.to_builtins(contents))
        return
    say(f"{path}: {_sentence(contents)}")
    if contents.format != FORMAT_VERSION:
        say(f"it has format {contents.format}: a copy of it was migrated to format {FORMAT_VERSION} and read")


def _see_that_it_can_be_named(directory: Path) -> None:
    """Refuse at once what a finished copy could not be renamed to, however empty it is.

    Raises:
        ConfigError: it is a mount point or a symbolic link.
    """
    if directory.is_symlink():
        raise ConfigError(f"{directory} is a symbolic link: name the directory itself, which is new or empty.")
    if directory.is_mount():
        raise ConfigError(f"A file system is mounted at {directory}: name a new directory in it.")


def _sentence(contents: Contents) -> str:
    last = contents.log_position
    if contents.log_records:
        log = f"its log has commits {last - contents.log_records + 1:,} to {last:,}"
    else:
        log = "its log is empty: a ledger has what it held" if last else "its log is empty"
    return (
        f"{messages(contents.messages)} of {contents.message_bytes:,} bytes in {contents.queues:,} "
        f"{'queue or topic' if contents.queues == 1 else 'queues and topics'}, "
        f"as of commit {last:,} of epoch {contents.epoch:,}; {log}"
    )
