"""`legato sink`: list and forget the sinks whose published batches the broker remembers."""

from __future__ import annotations

from legato.cli.administration import NameArgument, tell
from legato.cli.commands import Commands
from legato.cli.confirmation import DryRunOption, YesOption, confirm
from legato.cli.management import request, rows
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption
from legato.cli.output import say, say_json
from legato.errors import JMSError
from legato.quoting import quoted

app = Commands(
    name="sink",
    help="List and forget sinks of Spark streams; the broker remembers which of their batches are published.",
)


@app.command("list")
def sinks(as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """List sinks with their last batch. A sink's name is its transactionalId, by default the id of its checkpoint.

    Example: legato sink list --json
    """
    found = list(rows(url, "stage"))
    if as_json:
        say_json(found)
        return
    if not found:
        say("There are no sinks.")
    for sink in found:
        size = "" if sink["rows"] is None else f", {sink['rows']:,} rows"
        say(f"{quoted(sink['name'])}  last batch {sink['last_batch']}{size}")


@app.command("forget")
def forget(
    name: NameArgument, yes: YesOption = False, dry_run: DryRunOption = False, url: UrlOption = URL_DEFAULT
) -> None:
    """Forget a sink whose query never runs again. If it repeated a batch, the batch would be published again.

    Example: legato sink forget 1c0f9a52-5d0e-4b9e-9d0b-1f1f9d2b7a34 --yes
    """
    names = [str(row["name"]) for row in rows(url, "stage")]
    if name not in names:
        there = f"There are {', '.join(map(quoted, sorted(names)))}." if names else "There are none."
        raise JMSError(f"There is no sink {name!r}. {there}")
    if confirm(f"forget which batches the sink {name} has published", yes=yes, dry_run=dry_run):
        request(url, "forget", "stage", name)
        tell(f"forgot the sink {name}")
