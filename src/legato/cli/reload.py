"""`legato reload`: has a broker read its configuration again."""

import typer

from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, UrlOption
from legato.cli.output import say
from legato.quoting import quoted


def reload(url: UrlOption = URL_DEFAULT) -> None:
    """Make the broker read its configuration and its users file again. One with a mistake is refused.

    Settings of addresses, users, roles, limits, certificates and the map of groups take effect at once, others after a
    restart: those that were changed are named. SIGHUP does the same.

    Example: legato reload
    """
    answer = request(url, "reload", "broker") or {}
    say("the broker has read its configuration again")
    if places := answer.get("needs_restart"):
        names = ", ".join(map(quoted, places))
        say(f"changed, and in effect when the broker is started again: {names}", fg=typer.colors.YELLOW)
