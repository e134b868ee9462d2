"""Words of peers are data: what writes a log or a terminal quotes them (SECURITY findings 19 and 20)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "legato"
LOGGERS = {"log", "logger"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
QUOTING = {"quoted", "escaped", "sentence", "_told", "len", "round", "int"}
NUMBER_OR_REPR = re.compile(r"%[-+ 0#]*(\d+|\*)?(\.\d+)?([a-zA-Z%])")

OURS = {
    *("self.name", "peer.name", "other.name", "stream.peer.name", "self.client_address[0]"),  # addresses
    *("self.stage.id", "who", "TABLE", "way", "verdict", "why", "ending", "done", "client", "where"),
    *("heartbeat.epoch", "heartbeat.pid", "meta.epoch", "reader.pid", "timeout_s", "code", "bound", "found.cleared"),
    *("self._lost", "self._server.server_address[1]", "after", "sum(waiting.values())", "role"),
    *("self.path", "file", "host", "' '.join(pages)", "error.strerror", "full", "said", "others", "told", "waiting"),
    *("path", "kept", "self._path"),  # of a store
    *("away", "how_long", "_reason(error)"),
    *("__version__", "scheme"),
    "'row is left out' if handling == 'skip' else 'body is null'",
    "f' ({escaped(reader.command, WORD_CHARACTERS_MAX)})' if reader.command else ''",
    "f'Connected to {quoted(self._connection.host)}'",
    "f'Not confirmed: {sentence(error)}'",
}
"""What log messages hold besides: numbers, paths, settings and sentences of our own. Add to it only what no peer, nor
another process, has a part in."""
OF_THE_DISK_OR_SETTINGS = (
    "server/process/",
    "server/storage/",
    "server/config/",
    "server/messages/commits.py",
    "ha/members.py",
    "store/",
)
"""Where errors are ours too."""


def arguments() -> Iterator[tuple[str, str]]:
    """Where a text is logged as it is, and the expression that gives it."""
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS | {"log"}
                and ast.unparse(node.func.value).rpartition(".")[2] in LOGGERS
            ):
                continue
            place = f"{file.relative_to(SOURCES)}:{node.lineno}"
            given = (
                node.args[1:] if node.func.attr == "log" and not isinstance(node.args[0], ast.JoinedStr) else node.args
            )
            message, *rest = given
            if not (isinstance(message, ast.Constant) and isinstance(message.value, str)):
                yield place, ast.unparse(message)
                continue
            kinds = [found[3] for found in NUMBER_OR_REPR.finditer(message.value) if found[3] != "%"]
            for kind, argument in zip(kinds, rest, strict=False):
                quotes = isinstance(argument, ast.Call) and ast.unparse(argument.func) in QUOTING
                if kind == "s" and not quotes:
                    yield place, ast.unparse(argument)


def test_commands_print_by_output_and_terminal_only() -> None:
    """Which show what a terminal would obey, and take no name for markup."""
    found = []
    for directory in ("cli", "drill", "demo", "spark/report"):
        for file in sorted((SOURCES / directory).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if file.name == "output.py" and directory == "cli":
                    continue
                if called in ("typer.echo", "typer.secho", "Console") or (
                    directory == "cli" and (called == "print" or called.endswith(".add_row"))
                ):
                    found.append(f"{file.relative_to(SOURCES)}:{node.lineno}: {called}")  # type: ignore[attr-defined]
    assert not found, "use legato.cli.output and legato.terminal: " + ", ".join(found)


def test_log_messages_hold_the_words_of_others_in_quotes_only() -> None:
    found = [
        f"{place}: {said}"
        for place, said in arguments()
        if said not in OURS and not (said == "error" and place.startswith(OF_THE_DISK_OR_SETTINGS))
    ]
    assert not found, "quote these (legato.quoting.quoted), or add them to OURS:\n" + "\n".join(found)
