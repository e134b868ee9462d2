"""Options shared by several commands."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from legato.quoting import is_unicode

URL_DEFAULT = "amqp://localhost:5672"
STORE_DEFAULT = Path("store")
LEDGER_NAME = "ledger"
LEDGER_DEFAULT = STORE_DEFAULT / LEDGER_NAME
"""Where a broker with `--store ./store` writes its ledger."""

URL_GIVEN = "legato.url"
"""Under it the context of a command that looks for a broker is among the `meta` of all contexts."""


def a_number(value: float) -> float:
    """The number that was given, which may be infinite.

    Raises:
        typer.BadParameter: it is `nan`.
    """
    if math.isnan(value):
        raise typer.BadParameter("it is no number")
    return value


def a_text(value: str) -> str:
    """The text that was given: bytes that are none come as surrogates, which no wire and no file takes.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        # In a locale of ASCII they may be UTF-8 nevertheless.
        return value if is_unicode(value) else os.fsencode(value).decode()
    except UnicodeError:
        raise typer.BadParameter("it is no text in UTF-8") from None


def finite(value: float) -> float:
    """The number that was given.

    Raises:
        typer.BadParameter: it is `inf` or `nan`.
    """
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no number to count with")
    return value


def _keep_context(context: typer.Context, url: str) -> str:
    context.meta[URL_GIVEN] = context
    return url


UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="LEGATO_URL",
        help="Where the brokers are: amqp://primary:5672,backup:5673 names both.",
        metavar="URL",
        callback=_keep_context,
    ),
]
QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False, callback=a_text)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="The store directory.", metavar="DIR", show_default=False),
]
LedgerArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[LEDGER]",
        help="Directory of the ledger segments; that of the store (--store), or ./store/ledger, if left out.",
        show_default=False,
    ),
]
LedgersArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[LEDGER]...",
        help="Directory of the ledger segments; that of the store (--store), or ./store/ledger, if left out. "
        "Several are those of groups: NAME=DIR, or a directory with broker_group=NAME for each.",
        show_default=False,
    ),
]
LedgerStoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="The store whose ledger it is, if LEDGER is left out: the segments are in DIR/ledger.",
        metavar="DIR",
        show_default=False,
    ),
]


def one_or_groups(places: Sequence[str] | None, store: Path | None) -> Path | dict[str, Path]:
    """The directory of segments that a command line names, or those of several groups, by name.

    Raises:
        ConfigError: two have one name.
        typer.BadParameter: several are named, and a store.
    """
    from legato.spark.ledger.ledger_groups import GROUP_COLUMN, ledgers_of

    if not places:
        return ledger_of(None, store)
    alone = Path(places[0]) if len(places) == 1 else None
    # A directory may have an equals sign in its name.
    if alone is not None and (alone.exists() or "=" not in places[0]) and not any(alone.glob(f"{GROUP_COLUMN}=*")):
        return ledger_of(alone, store)
    if store is not None:
        raise typer.BadParameter("it names the store of one ledger, and several are given", param_hint="--store")
    return ledgers_of(places)


def ledger_of(ledger: Path | None, store: Path | None) -> Path:
    """The directory of segments that a command line names: itself, by its store, or not at all."""
    if ledger is not None:
        return ledger
    return store / LEDGER_NAME if store is not None else LEDGER_DEFAULT
