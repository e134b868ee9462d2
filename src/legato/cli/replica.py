"""`legato replica`: the store of one broker of a group, seen for itself and beside the others'."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from legato.cli.commands import Commands
from legato.cli.confirmation import DryRunOption, YesOption, confirm
from legato.cli.endings import undone_if_ended
from legato.cli.failures import EXIT_FAILED
from legato.cli.log_login import Login, ServersArgument, TimeoutOption, takes_login
from legato.cli.options import JsonOption
from legato.cli.output import say, say_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from legato.replication.nats import NatsRegister, NatsSettings

app = Commands(
    name="replica",
    help="A store that brokers keep the same on several machines: how far it is, and whether it has what others have.",
)


GroupOption = Annotated[str, typer.Option("--group", help="The group.", metavar="NAME")]


@app.command("status")
def status(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Show how far a store is in the log of its group, also while a broker serves from it.

    Example: legato replica status ./store
    """
    from legato.cli.rendering import clock_time
    from legato.ha.members import list_members
    from legato.quoting import quoted, sentence
    from legato.store.lmdb import LmdbStore

    opened = LmdbStore(store, read_only=True)
    try:
        meta = opened.meta()
    finally:
        opened.close()
    record = None if meta.applied is None else meta.applied.number
    members = list_members(store)
    if as_json:
        roles = [
            {"role": member.role, "pid": member.pid, "listen": member.listen, "trouble": member.trouble}
            for member in members
        ]
        say_json(
            {"store": str(store), "epoch": meta.epoch, "commit": meta.log_position, "record": record, "members": roles}
        )
        return
    where = (
        f"record {record:,} of its group's log"
        if record
        else "not on the log of a group: its last commit came from no log"
    )
    say(f"{store}: commit {meta.log_position:,}, epoch {meta.epoch}, {where}")
    for member in members:
        say(f"process {member.pid} at {quoted(member.listen)} is its {member.role}")
        for trouble in member.trouble:
            say(f"  it waits since {clock_time(member.trouble_since_us)}, and goes on trying: {sentence(trouble)}")
    if not members:
        say("no broker runs on it")


@app.command("verify")
def verify(
    stores: Annotated[
        list[Path], typer.Argument(metavar="STORE...", help="Store directories, or copies of them.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Read all of a store and print its commit and a digest of its content, also while a broker serves from it.

    Replicas at the same commit have the same digest: compare what this prints on each machine, when nothing is sent.
    The log of facts does not count: each store keeps as much of it as its ledger still needs.
    Given several stores, the exit code is 1 if two at the same commit differ.

    Examples: legato replica verify ./store; legato replica verify ./a ./b
    """
    import msgspec

    from legato.store.content_digest import content_digest

    found = {store: content_digest(store) for store in stores}
    if as_json:
        say_json([{"store": str(store)} | msgspec.to_builtins(content) for store, content in found.items()])
    else:
        for store, content in found.items():
            say(f"{store}: commit {content.commit:,} of epoch {content.epoch}, content {content.digest}")
    digests = {(content.commit, content.digest) for content in found.values()}
    if len(digests) > len({commit for commit, _ in digests}):
        say("stores at the same commit differ: keep both, and report it", err=True)
        raise typer.Exit(EXIT_FAILED)
    if len(digests) > 1 and not as_json:
        say("they are at different commits: compare them when nothing is sent")


@app.command("seed")
def seed(
    store: Annotated[
        Path,
        typer.Argument(metavar="STORE", help="The broker's store, or where it is to be.", show_default=False),
    ],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="The URL of the group's brokers; or a backup; or the store of another broker, which may serve.",
            metavar="URL|DIR",
            show_default=False,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Copy another broker's store to this one, whose log does not reach back to it; no broker may run on STORE.

    When the broker starts it takes from the log what came after the copy. What STORE had before stays in it as a file
    data.mdb.replaced-at-N; remove that when all is well. With a URL the broker that serves sends the copy, to a user
    whose role has management = "administer".

    Examples: legato replica seed /var/lib/legato --from amqps://a.example,b.example;
    legato replica seed /var/lib/legato --from /backup/legato-7
    """
    from legato.cli.store_fetching import fetching
    from legato.client.failover.uri import is_uri, parse_uri
    from legato.errors import StoreError
    from legato.replication import seeding
    from legato.server.storage.replicated_log import hold_directory
    from legato.server.storage.seed_source import snapshot_from

    named = f"the store at {parse_uri(source)}" if is_uri(source) else source
    if not is_uri(source) and not Path(source).is_dir():
        raise StoreError(f"there is no store in {source}")
    if not is_uri(source) and store.resolve() == Path(source).resolve():
        raise StoreError(f"{store} cannot be a copy of itself: --from names another directory")
    with ExitStack() as begun:
        begun.enter_context(undone_if_ended())
        begun.enter_context(_made(store))
        lock = hold_directory(store)
        begun.callback(lock.release)
        with ExitStack() as stack:
            told = stack.enter_context(fetching()) if is_uri(source) else lambda done, total: None
            snapshot = stack.enter_context(snapshot_from(source, store, told))
            if snapshot.position is None:
                raise StoreError(
                    f"the last commit in {named} came from no log: it can begin the log of a group, and is restored "
                    "with legato store restore (docs/howto/replication.md)"
                )
            before = seeding.seed(store, snapshot)
    record = snapshot.position.sequence
    if as_json:
        replaced = None if before is None else str(before)
        say_json({"epoch": snapshot.epoch, "commit": snapshot.commit, "record": record, "replaced": replaced})
        return
    say(f"{store}: a copy of {named}, commit {snapshot.commit:,}, epoch {snapshot.epoch}, record {record:,} of its log")
    if before is not None:
        say(f"what it had before is in {before.name}")


@app.command("detach")
def detach(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store directory.", show_default=False)],
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Take a store out of its group's log, to serve it alone from now on; no broker may run on STORE.

    For a restored copy, or for the last broker of a group that is to end: there stop all brokers first, and take the
    store whose commit is the highest (legato replica status). What is confirmed on it afterwards nobody else has, and
    neither can it follow the group's log again nor can the group's other stores follow it.

    Examples: legato replica detach ./restored; legato replica detach /var/lib/legato --yes
    """
    from legato.cli.serve import refuse_backup
    from legato.errors import StoreError, StoreLockedError
    from legato.ha.lock import StoreLock
    from legato.store.environment import DATA_NAME
    from legato.store.lmdb import LmdbStore

    if not (store / DATA_NAME).is_file():
        raise StoreError(f"there is no store in {store}")
    refuse_backup(store)
    lock = StoreLock(store)
    if not lock.try_acquire():
        raise StoreLockedError(f"a broker runs on the store in {store}: stop it first")
    try:
        opened = LmdbStore(store)
        try:
            meta = opened.meta()
            if meta.applied is None:
                say(f"{store} is of no log: a broker serves it alone as it is")
                return
            commit = f"commit {meta.log_position:,} of epoch {meta.epoch}"
            what = f"take {store}, as of {commit}, out of its group's log for good"
            if confirm(what, yes=yes, dry_run=dry_run):
                opened.place(None)
                say(f"{store} is of no log any more, as of {commit}: serve it without --replicate")
        finally:
            opened.close()
    finally:
        lock.release()


@app.command("list")
@takes_login
def list_replicas(
    servers: ServersArgument,
    group: GroupOption = "legato",
    *,
    login: Login,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the brokers of a group as the servers of its log know them, whether a broker serves or not.

    Example: legato replica list nats://log-1,nats://log-2,nats://log-3 --group orders
    """
    import dataclasses

    import msgspec

    from legato.cli.rendering import age
    from legato.quoting import quoted, sentence

    with _register(login.settings(servers, group), timeout_s) as register:
        found = register.entries(timeout_s)
    if as_json:
        say_json([msgspec.to_builtins(dataclasses.asdict(each)) for each in found])
        return
    for each in found:
        entry = each.entry
        where = f"record {entry.sequence:,} of the log" if entry.sequence else "no record of the log"
        say(
            f"{quoted(entry.listen)}  {quoted(entry.state)}, commit {entry.commits:,} of epoch {entry.epoch}, {where}, "
            f"Legato {quoted(entry.version)}, {age(each.age_s)} ago"
        )
        if entry.trouble:
            say(f"  {sentence(entry.trouble)}", fg=typer.colors.YELLOW)
    if not found:
        say(f"no broker of the group {quoted(group)} has registered there")


@app.command("forget")
@takes_login
def forget(
    servers: ServersArgument,
    listen: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Of the broker, as it is listed.", show_default=False)
    ],
    group: GroupOption = "legato",
    *,
    login: Login,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Forget a broker of a group that is gone for good, so that its primary does not miss it. One that runs comes back.

    Example: legato replica forget nats://log-1,nats://log-2,nats://log-3 three.example:5672 --group orders
    """
    from legato.quoting import quoted

    with _register(login.settings(servers, group), timeout_s) as register:
        was_there = register.forget(listen, timeout_s)
    if not was_there:
        say(f"no broker {quoted(listen)} of the group {quoted(group)} has registered there", err=True)
        raise typer.Exit(EXIT_FAILED)
    say(f"{quoted(listen)} is no broker of the group {quoted(group)} any more")


@contextmanager
def _made(directory: Path) -> Iterator[None]:
    """A directory, made with those above it if need be; what was made is removed if the block fails."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if missing:
            shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):
            for each in missing[1:]:
                each.rmdir()
        raise


@contextmanager
def _register(settings: NatsSettings, timeout_s: float) -> Iterator[NatsRegister]:
    from legato.replication.nats import open_register

    register = open_register(settings, timeout_s)
    try:
        yield register
    finally:
        register.close()
