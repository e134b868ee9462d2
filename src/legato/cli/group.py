"""`legato group`: look at a map of groups before brokers do: is it right, who has an address, what moves."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from legato.cli.commands import Commands
from legato.cli.failures import EXIT_FAILED
from legato.cli.log_login import Login, ServersArgument, TimeoutOption, takes_login
from legato.cli.options import JsonOption
from legato.cli.output import say, say_json
from legato.quoting import quoted
from legato.sizes import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from legato.groups.group_map import GroupMap
    from legato.replication.nats import NatsGroupMaps

app = Commands(
    name="group",
    help="A map of groups: is it right, who serves an address, what moves; and keep it where all brokers find it.",
)

MapArgument = Annotated[Path, typer.Argument(metavar="MAP", help="File with the map of groups.", show_default=False)]
AddressesArgument = Annotated[
    list[str],
    typer.Argument(metavar="ADDRESS...", help="Addresses; - reads them from standard input, one a line."),
]


@app.command("check")
def check(map_file: MapArgument, as_json: JsonOption = False) -> None:
    """Check a map, and say what is in it.

    Example: legato group check /etc/legato/groups.toml
    """
    found = _read(map_file)
    if as_json:
        from legato.groups.group_map import describe

        say_json(describe(found))
        return
    say(f"revision {found.revision:,}: {counted(len(found.group), 'group')}, {counted(len(found.pin), 'pin')}")
    pins: dict[str, int] = {}
    for pin in found.pin:
        pins[pin.group] = pins.get(pin.group, 0) + 1
    total = sum(group.weight for group in found.group)
    for group in found.group:
        share = f"{group.weight / total:.1%} of what is not pinned, {counted(pins.get(group.name, 0), 'pin')}"
        say(f"{group.name}  {', '.join(map(quoted, group.brokers))}  {share}")


@app.command("where")
def where(map_file: MapArgument, addresses: AddressesArgument, as_json: JsonOption = False) -> None:
    """Say which group serves each address, and whether by a pin or by the hash.

    Dead letters, muted ones too, are where their queue is: of DLQ.orders it says that of orders.

    Example: legato group where groups.toml orders.new invoices
    """
    from legato.groups.group_map import Directory

    directory = Directory(_read(map_file))
    for address in _addresses(addresses):
        decides = _decisive(address)
        group = directory.group_of(decides)
        pinned = directory.pinned_to(decides) is not None
        if as_json:
            say_json({"address": address, "group": group.name, "pinned": pinned, "brokers": list(group.brokers)})
        else:
            say(f"{quoted(address)}  {group.name}  {'pinned' if pinned else 'by the hash'}")


@app.command("moves")
def moves(
    former: Annotated[Path, typer.Argument(metavar="FORMER", help="The map as it is.", show_default=False)],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The map as it is to be.", show_default=False)],
    addresses: AddressesArgument,
    as_json: JsonOption = False,
) -> None:
    """Say which addresses another group serves by the new map, which must be a later one.

    Example: legato queues --json | jq -r '.[].name' | legato group moves groups.toml new-groups.toml -
    """
    from legato.groups.group_map import successor
    from legato.groups.moves import moves as moves_between

    before = _read(former)
    after = successor(before, _read(new))
    count = 0
    for move in moves_between(before, after, _addresses(addresses), _decisive):
        count += 1
        if as_json:
            say_json({"address": move.address, "from": move.former, "to": move.group})
        else:
            say(f"{quoted(move.address)}  {move.former} -> {move.group}")
    if not count and not as_json:
        say("nothing moves")


@app.command("put")
@takes_login
def put(
    map_file: MapArgument,
    servers: ServersArgument,
    *,
    login: Login,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Keep a map at the servers of the replicated log: brokers with groups.map_in_log go by it within seconds.

    It must be the first one, or have a higher revision than the one that is there. Of two who change it at once one is
    refused.

    Example: legato group put groups.toml nats://log-1,nats://log-2,nats://log-3
    """
    found = _read(map_file)
    with _kept(login, servers, timeout_s) as maps:
        former = maps.put(found, timeout_s)
    if former == found:
        say(f"revision {found.revision:,} of the map is there already")
        return
    instead = "" if former is None else f", instead of revision {former.revision:,}"
    say(f"the servers keep revision {found.revision:,} of the map{instead}: {len(found.group):,} groups")


@app.command("get")
@takes_login
def get(
    servers: ServersArgument,
    *,
    login: Login,
    timeout_s: TimeoutOption = 10.0,
) -> None:
    """Print the map that the servers of the replicated log keep, as JSON; a file of it ends in .json.

    The exit code is 1 if they keep none.

    Example: legato group get nats://log-1,nats://log-2,nats://log-3 > groups.json
    """
    from legato.groups.group_map import describe

    with _kept(login, servers, timeout_s) as maps:
        kept = maps.read(timeout_s)
    if kept is None:
        say("the servers keep no map of groups", err=True)
        raise typer.Exit(EXIT_FAILED)
    say_json(describe(kept.map))


@contextmanager
def _kept(login: Login, servers: str, timeout_s: float) -> Iterator[NatsGroupMaps]:
    from legato.replication.nats import NatsGroupMaps

    maps = NatsGroupMaps(login.settings(servers, "all"))
    try:
        maps.wait_for_servers(timeout_s)
        yield maps
    finally:
        maps.close()


def _read(file: Path) -> GroupMap:
    from legato.server.config.group_maps import GroupMapFile

    return GroupMapFile(file).read()


def _addresses(given: list[str]) -> list[str]:
    if given == ["-"]:
        return [line.rstrip("\n") for line in sys.stdin if line.strip()]
    return given


def _decisive(address: str) -> str:
    """The address that decides where one is: without its prefix, and of dead letters that of their queue."""
    from legato.core.address_prefixes import QUEUE_PREFIX, TOPIC_PREFIX
    from legato.core.settings import DEFAULT_SETTINGS
    from legato.groups.dead_letters import origin_of

    plain = address.removeprefix(QUEUE_PREFIX).removeprefix(TOPIC_PREFIX)
    return origin_of(plain, (DEFAULT_SETTINGS.dead_letter_queue,)) or plain
