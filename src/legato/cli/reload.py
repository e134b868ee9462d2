"""`legato reload`: has a broker read its configuration again."""

from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, UrlOption
from legato.cli.output import say


def reload(url: UrlOption = URL_DEFAULT) -> None:
    """Make the broker read its address settings and users again. A configuration with a mistake is refused.

    SIGHUP does the same. Other settings take effect after a restart.

    Example: legato reload
    """
    request(url, "reload", "broker")
    say("the broker has read its configuration again")
