"""`legato reload`: has a broker read its configuration again."""

import typer

from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, UrlOption


def reload(url: UrlOption = URL_DEFAULT) -> None:
    """Make the broker read its address settings and users again. A configuration with a mistake is refused.

    SIGHUP does the same. Other settings take effect after a restart.

    Example: legato reload
    """
    request(url, "reload", "broker")
    typer.echo("the broker has read its configuration again")
