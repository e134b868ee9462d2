"""`legato reload`: has a broker read its configuration again."""

from contextlib import suppress

import typer

from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, UrlOption
from legato.cli.output import say
from legato.cli.status import ask
from legato.errors import JMSError
from legato.quoting import quoted


def reload(url: UrlOption = URL_DEFAULT) -> None:
    """Make the broker read its configuration and its users file again. One with a mistake is refused.

    Settings of addresses, users, roles, limits, certificates and the map of groups take effect at once, others after a
    restart: those that were changed are named. SIGHUP does the same. Only the primary can be asked: a backup reads its
    own configuration when it gets SIGHUP, and takes over with what it has read; the command names those that there are.

    Example: legato reload
    """
    answer = request(url, "reload", "broker") or {}
    say("the broker has read its configuration again")
    if places := answer.get("needs_restart"):
        names = ", ".join(map(quoted, places))
        say(f"changed, and in effect when the broker is started again: {names}", fg=typer.colors.YELLOW)
    with suppress(JMSError):  # What was asked for is done.
        backups = ask(url).get("failover", {}).get("backups", [])
        if backups:
            who, them = ("backups", "them") if len(backups) > 1 else ("backup", "it")
            told = (
                f"the {who} at {', '.join(map(quoted, backups))} did not: send {them} SIGHUP, as systemctl reload does"
            )
            say(told, fg=typer.colors.YELLOW)
