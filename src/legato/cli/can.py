"""`legato can`: explains whether a user may do something."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legato.cli.output import say
from legato.errors import ConfigError

LEVELS = ("view", "operate", "administer")


def can(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's name; anonymous: none.", show_default=False)],
    operation: Annotated[
        str,
        typer.Argument(
            metavar="OPERATION",
            help="send, receive, browse, create, delete or bulk; or view, operate or administer.",
            show_default=False,
        ),
    ],
    address: Annotated[
        str,
        typer.Argument(
            metavar="[ADDRESS]",
            help="A queue, or topic://NAME; management (view, operate, administer) has none.",
            show_default=False,
        ),
    ] = "",
    config: Annotated[
        Path | None, typer.Option("--config", help="The broker's TOML file, with its roles.", metavar="FILE")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="The store's directory, for its users file.", metavar="DIR")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", help="A role that the user's token gives it; may be repeated.", metavar="GROUP"),
    ] = None,
) -> None:
    """Explain whether a user may do something, by the roles in a configuration. Exit code 1 if not.

    Examples: legato can ann send orders.new --config legato.toml; legato can ann operate --config legato.toml
    """
    from legato.server.access.permissions import OPERATIONS, Level, decide, decide_level
    from legato.server.access.roles import check_roles, read_roles
    from legato.server.config import configuration
    from legato.server.identity.exposure import admits_anonymous
    from legato.server.identity.users import Users

    if operation not in (*OPERATIONS, *LEVELS):
        raise ConfigError(f"OPERATION is {operation!r}; there are {', '.join((*OPERATIONS, *LEVELS))}.")
    if operation in OPERATIONS and not address:
        raise ConfigError(f"Give the ADDRESS for {operation}: legato can {user} {operation} orders.")
    loaded = configuration.load(config, store=store or (None if config is not None else Path()))
    users = Users.load(loaded)
    with loaded.locating_errors():
        permissions = read_roles(loaded.role)
        check_roles(permissions, users)
    known = user in users
    if user == "anonymous" and not admits_anonymous(loaded, users):
        say("no: anonymous peers are not let in")
        raise typer.Exit(1)
    note = ""
    if not known and user != "anonymous":
        note = f" ({user!r} is in no users file: it would need a certificate or a token)"
    if permissions is None:
        say(f"yes: there is no [[role]], so whoever is let in may do everything{note}")
        return
    found = users.find(user)
    roles = permissions.roles_of(user, found.roles if found else (), group or (), known=user != "anonymous")
    if operation in LEVELS:
        decision = decide_level(user, roles, Level[operation.upper()])
    else:
        topic = address.startswith("topic://")
        decision = decide(user, roles, operation, address.removeprefix("queue://"), topic or None if topic else False)
    say(f"{'yes' if decision.allowed else 'no'}: {decision.reason}{note}")
    if not decision.allowed:
        raise typer.Exit(1)
