"""Entry point of `legato`: registers the commands and explains failures."""

import sys
import traceback
from typing import Annotated, Any

import typer

from legato.cli import (
    audit,
    browse,
    can,
    connections,
    console,
    demo,
    dlq,
    drill,
    flows,
    group,
    intervals,
    ledger,
    log,
    queue,
    receive,
    reload,
    replica,
    send,
    serve,
    sink,
    status,
    store,
    subscription,
    switchover,
    topic,
    user,
)
from legato.cli.commands import CommandGroup, Commands
from legato.cli.failures import EXIT_FAILED, EXIT_INTERRUPTED, explain, hide_interrupted_calls
from legato.cli.options import URL_GIVEN
from legato.cli.output import say, say_lines
from legato.cli.whereabouts import with_whereabouts
from legato.errors import JMSError
from legato.quoting import ERROR_CHARACTERS_MAX, escaped


class _Legato(CommandGroup):
    """All commands; an error that no broker can be reached says where one may be."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `CommandGroup`. `legato` alone asks for the help: no mistake, unlike a noun without its command."""
        return super().parse_args(ctx, args or ["--help"])

    def invoke(self, ctx: Any) -> Any:
        """See `CommandGroup`."""
        try:
            return super().invoke(ctx)
        except JMSError as error:
            context = ctx.meta.get(URL_GIVEN)
            if context is None:
                raise
            source = context.get_parameter_source("url")
            told = with_whereabouts(error, context.params, url_given_by=source.name if source else "")
            if told is error:
                raise
            raise told from error


app = Commands(
    name="legato",
    cls=_Legato,
    help="Durable messaging with Jakarta Messaging semantics that carries on through the failure of its broker.",
    epilog="Start with `legato serve --store ./store` in one terminal, and in another "
    "`legato send hello 'a first message'`, `legato status` and `legato receive hello`. "
    "`legato demo` (with Java 17 and legato[demo]) shows all of it at work. "
    "`legato COMMAND --help` has examples.",
    pretty_exceptions_enable=False,
)
BROKERS, MESSAGES, WATCHING, ADMINISTRATION, PAST, TRIALS = (
    "Run brokers",
    "Messages",
    "See what there is",
    "Administer queues, dead letters and users",
    "The past, from the ledger",
    "See it work",
)
"""Under which heading the help has a command."""

for name, function, panel in (
    ("serve", serve.serve, BROKERS),
    ("reload", reload.reload, BROKERS),
    ("switchover", switchover.switchover, BROKERS),
    ("intervals", intervals.intervals, BROKERS),
    ("send", send.send, MESSAGES),
    ("receive", receive.receive, MESSAGES),
    ("browse", browse.browse, MESSAGES),
    ("status", status.status, WATCHING),
    ("queues", queue.queues, WATCHING),
    ("topics", topic.topics, WATCHING),
    ("subscriptions", subscription.subscriptions, WATCHING),
    ("connections", connections.connections, WATCHING),
    ("console", console.console, WATCHING),
    ("can", can.can, ADMINISTRATION),
    ("audit", audit.audit, PAST),
    ("story", ledger.story, PAST),
    ("demo", demo.demo, TRIALS),
    ("drill", drill.drill, TRIALS),
):
    app.command(name, rich_help_panel=panel)(function)
for noun, panel in (
    (store, BROKERS),
    (log, BROKERS),
    (replica, BROKERS),
    (group, BROKERS),
    (flows, WATCHING),
    (queue, ADMINISTRATION),
    (topic, ADMINISTRATION),
    (subscription, ADMINISTRATION),
    (dlq, ADMINISTRATION),
    (sink, ADMINISTRATION),
    (user, ADMINISTRATION),
    (ledger, PAST),
):
    app.add_typer(noun.app, rich_help_panel=panel)


def print_version(wanted: bool) -> None:
    """Print the version and end, if `--version` was given."""
    if wanted:
        from importlib.metadata import version

        say(f"legato {version('legato')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    """Run the command line; the process exits with its code."""
    hide_interrupted_calls()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        explanation = explain(error)
        if explanation is None:
            say_lines("".join(traceback.format_exception(error)), err=True)
            sys.exit(EXIT_FAILED)
        sentence, code = explanation
        say(escaped(f"legato: {sentence}", ERROR_CHARACTERS_MAX), fg=typer.colors.RED, err=True)
        sys.exit(code)
