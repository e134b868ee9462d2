"""`legato reload`: has a broker read its configuration again."""

import typer

from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, UrlOption


def reload(url: UrlOption = URL_DEFAULT) -> None:
    """Have the broker read the settings of addresses and its users again; a configuration with a mistake is refused.

    Sending it SIGHUP does the same. Other settings hold after a restart.

    Example: legato reload
    """
    request(url, "reload", "broker")
    typer.echo("the broker has read its configuration again")
