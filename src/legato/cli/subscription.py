"""`legato subscription` and `legato subscriptions`: list, inspect, purge, pause and end subscriptions."""

from __future__ import annotations

from legato.cli.administration import NameArgument, PatternArgument, list_nodes, purge_node, show, tell
from legato.cli.commands import Commands
from legato.cli.confirmation import DryRunOption, YesOption, confirm, messages
from legato.cli.management import node, request
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption

app = Commands(
    name="subscription",
    help="Inspect, empty, pause and end subscriptions, by the names that `legato subscriptions` shows.",
)


@app.command("list")
def subscriptions(match: PatternArgument = "", as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """List subscriptions: subscription://CLIENT/NAME is durable, volatile://... ends with its consumers.

    Example: legato subscriptions --json
    """
    list_nodes(url, "subscription", match, as_json=as_json)


@app.command("show")
def show_subscription(name: NameArgument, as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """Show a subscription and the settings of its topic.

    Example: legato subscription show subscription://ann/prices
    """
    show(node(url, "subscription", name, changes=False), as_json=as_json)


@app.command("delete")
def delete(
    name: NameArgument, yes: YesOption = False, dry_run: DryRunOption = False, url: UrlOption = URL_DEFAULT
) -> None:
    """End a subscription and drop all messages in it. Its consumers are disconnected from it.

    Example: legato subscription delete subscription://ann/prices --dry-run
    """
    found = node(url, "subscription", name)
    if confirm(f"end {name} and drop the {messages(found['depth'])} in it", yes=yes, dry_run=dry_run):
        gone = request(url, "delete", "subscription", name)
        tell(f"ended {name} with {messages(gone['messages'])}")


@app.command("purge")
def purge(
    name: NameArgument, yes: YesOption = False, dry_run: DryRunOption = False, url: UrlOption = URL_DEFAULT
) -> None:
    """Drop the waiting messages of a subscription. Messages that a consumer holds stay.

    Example: legato subscription purge subscription://ann/prices --yes
    """
    purge_node(url, "subscription", name, yes=yes, dry_run=dry_run)


@app.command("pause")
def pause(name: NameArgument, url: UrlOption = URL_DEFAULT) -> None:
    """Stop deliveries from a subscription until it is resumed, also over restarts.

    Example: legato subscription pause subscription://ann/prices
    """
    node(url, "subscription", name)
    request(url, "pause", "subscription", name)
    tell(f"{name} is paused")


@app.command("resume")
def resume(name: NameArgument, url: UrlOption = URL_DEFAULT) -> None:
    """Resume deliveries from a paused subscription.

    Example: legato subscription resume subscription://ann/prices
    """
    node(url, "subscription", name)
    request(url, "resume", "subscription", name)
    tell(f"{name} goes on")
