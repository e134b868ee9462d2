"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

URL_DEFAULT = "amqp://localhost:5672"
LEDGER_DEFAULT = Path("store", "ledger")
"""Where a broker with `--store ./store` writes its ledger."""

UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="LEGATO_URL",
        help="Where the brokers are: amqp://primary:5672,backup:5673 names both.",
        metavar="URL",
    ),
]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="The store directory.", metavar="DIR", show_default=False),
]
