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
    intervals,
    ledger,
    queue,
    receive,
    reload,
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
    epilog="Start with `legato demo`, or with `legato serve --store ./store` in one terminal and "
    "`legato send hello 'a first message'` in another.",
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("demo")(demo.demo)
app.command("drill")(drill.drill)
app.command("send")(send.send)
app.command("receive")(receive.receive)
app.command("browse")(browse.browse)
app.command("status")(status.status)
app.command("connections")(connections.connections)
app.command("console")(console.console)
app.command("audit")(audit.audit)
app.command("story")(ledger.story)
app.command("queues")(queue.queues)
app.command("topics")(topic.topics)
app.command("subscriptions")(subscription.subscriptions)
app.command("reload")(reload.reload)
app.command("can")(can.can)
app.command("intervals")(intervals.intervals)
app.command("switchover")(switchover.switchover)
app.add_typer(ledger.app)
app.add_typer(dlq.app)
app.add_typer(flows.app)
app.add_typer(queue.app)
app.add_typer(topic.app)
app.add_typer(subscription.app)
app.add_typer(sink.app)
app.add_typer(user.app)
app.add_typer(store.app)


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
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        explanation = explain(error)
        if explanation is None:
            say_lines("".join(traceback.format_exception(error)), err=True)
            sys.exit(EXIT_FAILED)
        sentence, code = explanation
        say(escaped(f"legato: {sentence}", ERROR_CHARACTERS_MAX), fg=typer.colors.RED, err=True)
        sys.exit(code)
