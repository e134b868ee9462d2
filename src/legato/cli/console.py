"""`legato console`: pages in a browser on which brokers are watched and dead letters repaired."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legato.cli.options import LEDGER_NAME, URL_DEFAULT, UrlOption
from legato.cli.output import say
from legato.errors import ConfigError


def console(
    url: UrlOption = URL_DEFAULT,
    listen: Annotated[
        str, typer.Option("--listen", help="Where browsers find it; port 0 is any that is free.", metavar="HOST:PORT")
    ] = "127.0.0.1:0",
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="The brokers' store, if it is on this machine: shows its processes, and the ledger in it.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger",
            help="The brokers' ledger: shows earlier takeovers and stories of messages. STORE/ledger if there is one.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="For HTTPS: certificate chain.", metavar="FILE")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="For HTTPS: private key.", metavar="FILE")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A further name by which browsers may ask; may be repeated.", metavar="NAME"),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines also without HTTPS.", show_default=False)
    ] = False,
) -> None:
    """Serve the console: queues, dead letters, connections, members, stories and flows, live, in a browser.

    It prints its address and opens nothing. Visitors log in with their users of the broker, if it has any. It follows
    the primary. With a login in the URL, the printed address has a token, and whoever has it has that login's rights.

    Examples: legato console; legato console --url amqp://one:5672,two:5672 --store /var/lib/legato/store
    """
    from legato.console.serve import Options, serve

    if store is not None and not store.is_dir():
        raise ConfigError(f"There is no directory {store}: --store names the directory that legato serve --store has.")
    if ledger is None and store is not None and (store / LEDGER_NAME).is_dir():
        ledger = store / LEDGER_NAME
    options = Options(
        url=url,
        listen=listen,
        ledger=ledger,
        store=store,
        certificate=str(certificate or ""),
        key=str(key or ""),
        hosts=tuple(host or ()),
        insecure=insecure,
    )
    serve(options, lambda address: say(f"console at {address}"))
