"""`legato intervals`: show or change the heartbeat and activation intervals of a running pair."""

from typing import Annotated

import typer

from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption
from legato.cli.output import say, say_json


def intervals(
    heartbeat_s: Annotated[
        float | None,
        typer.Option("--heartbeat", help="Seconds between two heartbeats of the primary.", metavar="S"),
    ] = None,
    activation_s: Annotated[
        float | None,
        typer.Option(
            "--activation",
            help="Seconds after the last heartbeat until a backup counts the primary as lost; at least twice the "
            "heartbeat interval.",
            metavar="S",
        ),
    ] = None,
    url: UrlOption = URL_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show or change the heartbeat and activation intervals of running brokers, in seconds.

    A change takes effect at once for all brokers of the store, and survives takeovers. It is not saved: after all
    brokers have stopped, heartbeat_interval_s and activation_interval_s in [ha] of the configuration apply again.

    Examples: legato intervals; legato intervals --heartbeat 1 --activation 4
    """
    given = {"heartbeat_interval_s": heartbeat_s, "activation_interval_s": activation_s}
    changed = {name: value for name, value in given.items() if value is not None}
    told = request(url, "update", "broker", "", **changed)
    if as_json:
        say_json(told)
        return
    heartbeat_s, activation_s = told["heartbeat_interval_s"], told["activation_interval_s"]
    say(f"a heartbeat every {heartbeat_s:g} s, activation after {activation_s:g} s")
