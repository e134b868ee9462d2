"""`legato topic` and `legato topics`: topics, and how many subscriptions each has."""

from __future__ import annotations

from legato.cli.administration import NameArgument, PatternArgument, list_nodes, show, tell
from legato.cli.commands import Commands
from legato.cli.confirmation import DryRunOption, YesOption, confirm
from legato.cli.management import node, request
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption

app = Commands(
    name="topic",
    help="Create, inspect and delete topics.",
)


@app.command("list")
def topics(match: PatternArgument = "", as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """List topics.

    Example: legato topics 'prices.*'
    """
    list_nodes(url, "topic", match, as_json=as_json)


@app.command("show")
def show_topic(name: NameArgument, as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """Show a topic, its subscriptions and its settings.

    Example: legato topic show prices
    """
    show(node(url, "topic", name, changes=False), as_json=as_json)


@app.command("create")
def create(name: NameArgument, url: UrlOption = URL_DEFAULT) -> None:
    """Create a topic; does nothing if there is one.

    Example: legato topic create prices
    """
    request(url, "create", "topic", name)
    tell(f"topic {name} is there")


@app.command("delete")
def delete(
    name: NameArgument, yes: YesOption = False, dry_run: DryRunOption = False, url: UrlOption = URL_DEFAULT
) -> None:
    """Delete a topic and all its subscriptions, durable ones too. Its producers and consumers are disconnected from it.

    Example: legato topic delete prices --dry-run
    """
    count = node(url, "topic", name)["subscriptions"]
    subscriptions = "1 subscription" if count == 1 else f"{count:,} subscriptions"
    if confirm(f"delete topic {name} and its {subscriptions}", yes=yes, dry_run=dry_run):
        request(url, "delete", "topic", name)
        tell(f"deleted topic {name}")
