"""`legato log`: the servers of a replicated log, run on this machine to try, or looked at."""

from __future__ import annotations

import signal
import threading
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from legato.cli.commands import Commands
from legato.cli.endings import undone_if_ended
from legato.cli.failures import EXIT_FAILED
from legato.cli.log_login import Login, ServersArgument, TimeoutOption, takes_login, telling_late
from legato.cli.options import JsonOption
from legato.cli.output import say, say_json
from legato.quoting import quoted, sentence
from legato.sizes import size

if TYPE_CHECKING:
    from legato.errors import LogUnavailableError
    from legato.processes.log_servers import LogServers
    from legato.replication.log import LogHealth
    from legato.replication.nats import NatsSettings

app = Commands(
    name="log",
    help="Servers of a replicated log, on which brokers of different machines agree: run some to try, look at them.",
)

_SYNCED = {
    True: "on disk before it acknowledges",
    False: "acknowledges before it is on disk",
    None: "does not say when it writes to disk",
}


@app.command("run")
def run(
    directory: Annotated[
        Path, typer.Option("--directory", help="What they keep; used again at the next start.", metavar="DIR")
    ] = Path("log"),
    nodes: Annotated[int, typer.Option("--nodes", help="How many servers: 3 or 5.", metavar="N")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Run servers of a replicated log on this machine until Ctrl-C: NATS with JetStream, each write on disk at once.

    They are for trying and for tests: one machine, one disk, no logins, and only this machine can connect. Started
    again with the same directory they have the same ports and records.

    Examples: legato log run; legato log run --nodes 5 --directory /tmp/log --json
    """
    from legato.errors import ConfigError
    from legato.processes.log_servers import LogServers

    if nodes not in (3, 5):
        raise ConfigError(f"A log is kept by 3 or 5 servers, not by {nodes}: a majority has to outlive a loss.")
    ended = threading.Event()
    servers = LogServers(directory.resolve(), nodes=nodes, on_end=ended.set)
    with undone_if_ended(), closing(servers):
        with telling_late(partial(_say_who_starts, servers)):  # Ctrl-C ends a start that lasts
            servers.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: ended.set())
        _tell_servers(servers, as_json)
        ended.wait()
        if lost := [server for server in servers.servers if not server.running]:
            say(f"{lost[0].name} ended by itself: see {lost[0].log_file}", err=True)
            raise typer.Exit(EXIT_FAILED)


@app.command("status")
@takes_login
def status(
    servers: ServersArgument,
    group: Annotated[
        str | None, typer.Option("--group", help="The log of this group only.", metavar="NAME", show_default=False)
    ] = None,
    *,
    login: Login,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show the logs on servers: who leads, who lags behind, who writes to disk before it acknowledges.

    The exit code is 1 if something is wrong with one of them.

    Examples: legato log status nats://127.0.0.1:4222; legato log status tls://log-1,log-2 --user brokers --ca ca.pem
    """
    from legato.errors import LogUnavailableError
    from legato.replication.nats import survey

    settings = login.settings(servers, group or "all")
    found = {name: health for name, health in survey(settings, timeout_s).items() if group in (None, name)}
    if as_json:
        say_json({name: _as_json(health) for name, health in found.items()})
    elif not found:
        say("no group has a log there" if group is None else f"the group {quoted(group)} has no log there")
    else:
        for name, health in found.items():
            _tell_health(name, health)
    wrong = [health for health in found.values() if isinstance(health, LogUnavailableError) or health.trouble]
    if wrong or (group is not None and not found):
        raise typer.Exit(EXIT_FAILED)


@app.command("begin")
@takes_login
def begin(
    servers: ServersArgument,
    group: Annotated[str, typer.Option("--group", help="The group.", metavar="NAME")] = "legato",
    *,
    login: Login,
    timeout_s: TimeoutOption = 30.0,
) -> None:
    """Say that a group is new, so that a broker with an empty store begins its log before all the others have come.

    Needed only if ha.addresses names brokers that do not run yet: without a word the log begins when all of them have
    come with empty stores. Start one of them first. It is refused if the group has a log, or a broker that had one.

    Example: legato log begin nats://log-1,nats://log-2,nats://log-3 --group orders
    """
    from legato.errors import LogError
    from legato.replication.beginning import allow_beginning
    from legato.replication.nats import NatsRegister, Opening
    from legato.replication.patience import Patience

    settings = login.settings(servers, group)
    opening = Opening(settings)
    try:
        opening.connection.wait_for_first(timeout_s)
        register = NatsRegister(opening.connection, settings)
        if not register.entries(timeout_s):  # before anything is made under a name that may be mistyped
            raise LogError(
                f"no broker of the group {group} has come to these servers: if the name is right, start one, which "
                "says what it waits for, and run this again"
            )
        last = Patience(timeout_s).insist(opening.prepared).last(timeout_s)
        allow_beginning(register, group, last, timeout_s)
    finally:
        opening.close()
    say(f"the log of the group {quoted(group)} begins with the next broker that has an empty store")


@app.command("restore")
@takes_login
def restore(
    store: Annotated[
        Path,
        typer.Argument(metavar="STORE", help="The store of the broker that is furthest.", show_default=False),
    ],
    servers: ServersArgument,
    group: Annotated[str, typer.Option("--group", help="The group.", metavar="NAME")] = "legato",
    other: Annotated[
        list[Path] | None,
        typer.Option(
            "--other",
            help="The store of another broker of the group, or a file with what legato replica status --json printed "
            "for it. For each of them.",
            metavar="PATH",
            show_default=False,
        ),
    ] = None,
    brokers: Annotated[int, typer.Option("--brokers", help="How many brokers the group has.", metavar="N", min=1)] = 3,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on though another broker has, or may have, commits that STORE lacks."),
    ] = False,
    *,
    login: Login,
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Begin a new log with a broker's store, after all servers of the log have lost their disks.

    Stop all brokers of the group first. Look at each store with legato replica status, and run this where the commit is
    highest: the last primary has everything that was confirmed. It is refused if it is not known that STORE is that
    one, and if the log is not lost. The other brokers need a copy of STORE then: legato replica seed.

    Example: legato log restore /var/lib/legato tls://log-1,log-2,log-3 --group orders --other b.json --other c.json
    """
    from legato.errors import StoreError
    from legato.replication.restoring import Evidence, evidence, restore_log
    from legato.server.storage.replicated_log import hold_directory

    settings = login.settings(servers, group)
    if not store.is_dir():  # the lock would make it
        raise StoreError(f"there is no store in {store}")
    compared = [path.resolve() for path in (store, *(other or ()))]
    if twice := [path for path in compared if compared.count(path) > 1]:
        raise StoreError(f"{twice[0]} is named twice: --other is for each of the other brokers")
    others: list[Evidence] = [evidence(path) for path in other or ()]
    lock = hold_directory(store)
    try:
        _see_group(settings, timeout_s)
        restored = restore_log(store, settings, others, brokers=brokers, accept_loss=accept_loss, timeout_s=timeout_s)
    finally:
        lock.release()
    if as_json:
        say_json({"group": group, "epoch": restored.epoch, "commit": restored.commit, "record": restored.sequence})
        return
    say(f"the group {quoted(group)} has a new log, which begins with commit {restored.commit:,} of {store}")
    say("start this broker; copy its store to the others (legato replica seed) before they start")


def _say_who_starts(servers: LogServers) -> str:
    from legato.processes.log_servers import START_S

    late = [server for server in servers.servers if not server.is_healthy] or servers.servers
    names = ", ".join(server.name for server in late)
    return (
        f"waits until {names} can keep a log, at most {START_S:g} s: what they say is in "
        f"{servers.directory}/*/{late[0].log_file.name}"
    )


def _see_group(settings: NatsSettings, timeout_s: float) -> None:
    """See that a name is not mistyped, as far as the servers tell, before anything is made under it.

    Raises:
        LogError: there are logs, and nobody has come by that name.
    """
    from legato.errors import LogError, LogUnavailableError
    from legato.replication.nats import open_register, survey

    register = open_register(settings, timeout_s)
    try:
        has_come = bool(register.entries(timeout_s))
    finally:
        register.close()
    found: list[str] = []
    with suppress(LogUnavailableError):  # a login may not be permitted to ask for all
        found = [] if has_come else sorted(survey(settings, timeout_s))
    if found and settings.group not in found:
        raise LogError(
            f"no broker of the group {settings.group} has come to these servers, which have logs of "
            f"{', '.join(map(quoted, found))}: if the name is right, start one of its brokers, which says that the log "
            "is lost, and run this again"
        )


def _tell_servers(servers: LogServers, as_json: bool) -> None:
    if as_json:
        nodes = [
            {
                "name": server.name,
                "port": server.ports.client,
                "monitor_port": server.ports.monitor,
                "directory": str(server.directory),
            }
            for server in servers.servers
        ]
        say_json({"url": servers.url, "servers": nodes})
        return
    say(f"a log on {servers.url}")
    for server in servers.servers:
        say(f"  {server.name}  port {server.ports.client}, files and its own log in {server.directory}")
    say("Ctrl-C ends them; what they keep stays.")


def _tell_health(group: str, health: LogHealth | LogUnavailableError) -> None:
    if isinstance(health, Exception):
        say(f"group {quoted(group)}: {sentence(health)}", fg=typer.colors.RED)
        return
    records = "no records" if not health.first else f"records {health.first:,} to {health.last:,}"
    led = f"led by {health.leader}" if health.leader else "led by nobody"
    say(f"group {quoted(group)}: {records}, {size(health.kept_bytes)}, {led}")
    for replica in health.replicas:
        lags = "1 record behind" if replica.lag == 1 else f"{replica.lag:,} records behind"
        lags = lags if replica.heard else f"does not answer the leader, {lags}"
        state = "leads" if replica.leads else "current" if replica.current else lags
        say(f"  {quoted(replica.server)}  {state}, {_SYNCED[replica.synced]}")
    for trouble in health.trouble:
        say(f"  {sentence(trouble)}", fg=typer.colors.RED)


def _as_json(health: LogHealth | LogUnavailableError) -> dict[str, Any]:
    import dataclasses

    if isinstance(health, Exception):
        return {"trouble": [str(health)]}
    return {
        **dataclasses.asdict(health),
        "leader": health.leader,
        "quorum": health.quorum,
        "sync_proved": health.sync_proved,
    }
