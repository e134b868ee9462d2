"""`legato serve`: one broker process. A second one on the same store is the backup."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from legato.cli.output import say
from legato.errors import ConfigError

if TYPE_CHECKING:
    from legato.server.config.configuration import Config


def serve(
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="Directory of the store; primary and backup use the same one, or each its own with --replicate.",
            metavar="DIR",
        ),
    ] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", help="Where to listen (default localhost:5672).", metavar="HOST:PORT")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            "--advertise",
            help="Where the brokers of its group reach this one, if not at --listen.",
            metavar="HOST:PORT",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML file with any of the settings.", metavar="FILE")
    ] = None,
    ledger: Annotated[
        bool | None,
        typer.Option(
            "--ledger/--no-ledger",
            help="Write ledger segments for audits while serving; by default if pyarrow is installed.",
            show_default=False,
        ),
    ] = None,
    container_id: Annotated[
        str | None, typer.Option("--container-id", help="The broker's AMQP name.", metavar="NAME")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option("--http", help="Serve /metrics, /livez and /readyz here.", metavar="HOST:PORT"),
    ] = None,
    replicate: Annotated[
        str | None,
        typer.Option(
            "--replicate",
            help="Keep the store the same on several machines, by the replicated log on these servers "
            "(nats://HOST[:PORT] or tls://HOST[:PORT], with commas). Each broker has a store of its own.",
            metavar="SERVERS",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="With --replicate: the group of brokers (default legato).", metavar="NAME"),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            help="Accept this user; may be repeated. For trials: everybody on this machine can read a command line; "
            "see `legato user add`.",
            metavar="NAME:PASSWORD",
        ),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure", help="Serve other machines also without TLS or users; the log says so.", show_default=False
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Say whether these settings can be used, and start no broker.")
    ] = False,
) -> None:
    """Serve messages from a store, or wait as the backup of the process that does.

    A second process with the same store, and another port, is the backup. Prints `active epoch=N` when it serves,
    `backup` when it waits. SIGTERM and Ctrl-C end it cleanly; SIGHUP is as `legato reload`.

    Examples: legato serve --store ./store; legato serve --store ./store --listen localhost:5673;
    legato serve --config legato.toml --check;
    legato serve --store ./store --replicate nats://a,nats://b,nats://c --group orders
    """
    from legato.cli.fatal_log import log_fatal, wants_json
    from legato.server.config import configuration
    from legato.server.process.run import run

    if replicate == "":
        raise ConfigError("--replicate names no server of a log, and without one this broker would serve alone.")
    read_config = partial(
        configuration.load,
        config,
        store=store,
        listen=listen,
        advertise=advertise,
        ledger=ledger,
        container_id=container_id,
        users=user,
        insecure=insecure,
        http=http,
        replicate=replicate,
        group=group,
    )
    if check:
        _check(read_config())
        return
    readable = "Everybody on this machine can read a password on a command line; use legato user add."
    try:
        settings = read_config()
        _refuse_lone(settings)
        refuse_backup(settings.store_directory)
        run(settings, read_config, [readable] if user else [])
    except Exception as error:
        if wants_json(config):
            raise typer.Exit(log_fatal(error)) from error
        raise


def _check(config: Config) -> None:
    """See that a broker can be started with these settings by this user, and leave everything as it is.

    Raises:
        ConfigError: it cannot; the message says why.
    """
    from legato.server.config.secret_files import refuse_shared
    from legato.server.identity.users import Users
    from legato.server.process.usable import see_usable
    from legato.server.storage.replicated_log import log_settings

    trail = Path(config.audit.file) if config.audit.file else None
    there_is_none = trail is not None and not trail.exists()
    try:
        for said in see_usable(config, Users.load(config)):
            say(said, err=True)
    finally:
        # It was written to, to see whether it can be; whoever asks may be another user than the broker.
        if trail is not None and there_is_none:
            trail.unlink(missing_ok=True)
    store = config.store_directory
    _refuse_lone(config)
    if config.replication.servers:
        log_settings(config.replication).tls()
    refuse_backup(store)
    if store.exists() and not store.is_dir():
        raise ConfigError(f"Cannot use {store} as the store: it has to be a directory, and it is a file.")
    if store.exists() and any(store.iterdir()):
        refuse_shared(store, "the store")
    say("these settings can be used")


def _refuse_lone(config: Config) -> None:
    """Refuse to serve alone, without the others of a group, what says that there are others.

    Raises:
        ConfigError: settings of a replicated log are given, and none of its servers.
    """
    from legato.server.config.configuration import ReplicationSection

    section, without = config.replication, ReplicationSection()
    names = [name for name in section.__struct_fields__ if getattr(section, name) != getattr(without, name)]
    if names and not section.servers:
        raise ConfigError(
            f"replication.{names[0]} is given, and no server of the log: name these in replication.servers "
            "(--replicate), or this broker would serve alone."
        )


def refuse_backup(store: Path) -> None:
    """Refuse to serve from a backup itself: it would be none from then on, and its copy of the ledger would go on.

    Raises:
        ConfigError: it is one, from which no broker has served.
    """
    from legato.ha.lock import LOCK_NAME
    from legato.store.backup_files import MANIFEST_NAME

    if (store / MANIFEST_NAME).exists() and not (store / LOCK_NAME).exists():
        raise ConfigError(f"{store} is a backup: make a store of it first, with legato store restore {store} STORE.")
