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
    own configuration when it takes over and when it gets SIGHUP; the command names those that there are.

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
            where, later = ", ".join(map(quoted, backups)), "to hear of mistakes in it now, send it SIGHUP"
            who = f"the backup at {where} reads its own when it takes over"
            if len(backups) > 1:
                who = f"the backups at {where} read theirs when they take over"
                later = "to hear of mistakes in them now, send them SIGHUP"
            say(f"{who}; {later}, as systemctl reload does")
