"""`legato reload`: has a broker read its configuration again."""

from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, UrlOption
from legato.cli.output import say


def reload(url: UrlOption = URL_DEFAULT) -> None:
    """Make the broker read its configuration and its users file again. One with a mistake is refused.

    Settings of addresses, users, roles, limits and certificates take effect at once, others after a restart. SIGHUP
    does the same.

    Example: legato reload
    """
    request(url, "reload", "broker")
    say("the broker has read its configuration again")
