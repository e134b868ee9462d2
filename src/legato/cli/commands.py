"""Groups of commands, which say what may have been meant by a command or option that there is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from inspect import cleandoc
from typing import Any, TypeVar

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from legato.likeness import meant
from legato.quoting import one_line

_EXAMPLES = re.compile(r"(?:^|(?<= ))Examples?: ")
_BETWEEN_EXAMPLES = re.compile(r"; (?=(?:legato|seq|echo) )")
F = TypeVar("F", bound=Callable[..., Any])

_COMMANDS_LISTED_MAX = 12
_INTEGER_MOST = (1 << 63) - 1
_OF_ALL = ("--version", "--install-completion")
"""Options of `legato` itself."""

OTHER_WORDS = {
    "broker": ["serve"],
    "check": ["serve --check"],
    "clients": ["connections"],
    "completion": ["--install-completion"],
    "config": ["serve --check"],
    "configtest": ["serve --check"],
    "consume": ["receive"],
    "dead-letters": ["dlq"],
    "deadletters": ["dlq"],
    "get": ["receive"],
    "ls": ["queues", "list"],
    "peek": ["browse"],
    "produce": ["send"],
    "publish": ["send"],
    "put": ["send"],
    "rm": ["delete", "remove"],
    "start": ["serve"],
    "version": ["--version"],
    "broker-url": ["--url"],
    "follow": ["--count", "--wait"],
    "host": ["--url"],
    "number": ["--count", "--limit"],
    "server": ["--url"],
    "timeout": ["--wait"],
    "where": ["--selector"],
    "filter": ["--selector"],
    "n": ["--count", "--limit", "--rows"],
}
"""What commands and options are called elsewhere."""


class CommandGroup(TyperGroup):
    """A group of commands. A mistake in their names, or in the names of their options, costs one look at the error."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See `TyperGroup`."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command {name!r}. {_instead_of_command(self, ctx.command_path, name)}".rstrip())
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `TyperGroup`."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter.__base__ as error:  # type: ignore[misc]
            _explain_option(error, self, ctx.command_path)
            raise

    def invoke(self, ctx: Any) -> Any:
        """See `TyperGroup`."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter.__base__ as error:  # type: ignore[misc]
            command = getattr(getattr(error, "ctx", None), "command", None)
            if command is not None and not isinstance(command, TyperGroup):
                _explain_option(error, command, error.ctx.command_path)
            raise


class _Command(TyperCommand):
    """A command whose usage names required arguments as they are entered: `QUEUE`, not `{QUEUE}`; its whole numbers
    have at most 64 bits, as those of wires, files and iterators."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `TyperCommand`."""
        rest = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(parameter.name)
            if isinstance(value, int) and abs(value) > _INTEGER_MOST:
                raise typer.BadParameter("it has more than 64 bits", ctx=ctx, param=parameter)
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """See `TyperCommand`."""
        pieces = super().collect_usage_pieces(ctx)
        return [piece[1:-1] if piece[:1] == "{" and piece[-1:] == "}" else piece for piece in pieces]


class Commands(typer.Typer):
    """Commands, or a noun with its commands.

    Args:
        cls: what the commands are gathered in.
        epilog: the end of the help, as plain text.
        settings: see `typer.Typer`.
    """

    def __init__(self, *, cls: type[CommandGroup] = CommandGroup, epilog: str | None = None, **settings: Any) -> None:
        super().__init__(
            cls=cls,
            no_args_is_help=True,
            context_settings={"help_option_names": ["-h", "--help"]},
            epilog=None if epilog is None else escape(epilog),  # As in `help_of`.
            **settings,
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """See `typer.Typer`. The help is the docstring; its paragraphs are wrapped, and each example has a line."""

        def register(function: F) -> F:
            given: dict[str, Any] = {"cls": _Command, "help": help_of(function.__doc__ or "")} | settings
            return super(Commands, self).command(name, **given)(function)

        return register


def help_of(docstring: str) -> str:
    """A docstring as the text of a help."""
    paragraphs = []
    for paragraph in cleandoc(docstring).split("\n\n"):
        text, *examples = _EXAMPLES.split(" ".join(paragraph.split()), maxsplit=1)
        if text:
            paragraphs.append(text.strip())
        if examples:
            commands = _BETWEEN_EXAMPLES.split(examples[0])
            paragraphs.append("\n".join(["Example:" if len(commands) == 1 else "Examples:", *commands]))
    # Rich would take `[ha]` for markup.
    return escape("\n\n".join(paragraphs))


def _instead_of_command(group: TyperGroup, path: str, name: str) -> str:
    there = [known for known, command in group.commands.items() if not command.hidden]
    other = [word for word in OTHER_WORDS.get(name.lower(), ()) if word.split()[0] in (*there, *_OF_ALL)]
    below = [
        f"{path} {known} {name}"
        for known, command in group.commands.items()
        if isinstance(command, TyperGroup) and name in command.commands
    ]
    if found := other or meant(name, there) or below:
        return f"Did you mean {_either(found)}?"
    return f"There are {', '.join(there)}." if len(there) <= _COMMANDS_LISTED_MAX else ""


def _explain_option(error: Any, command: Any, path: str) -> None:
    """Say in an error about an unknown option what may have been meant."""
    option = getattr(error, "option_name", "")
    if type(error).__name__ != "NoSuchOption" or not hasattr(error, "possibilities"):
        return
    error.possibilities = None
    known = [name for name in _options_of(command) if name.startswith("--")]
    other = [word for word in OTHER_WORDS.get(option.strip("-").lower(), ()) if word in known]
    if found := other or meant(option, known):
        hint = f"Did you mean {_either(found)}?"
    elif isinstance(command, TyperGroup) and _is_below(command, option):
        hint = f"Options go behind the command: {path} COMMAND {option}."
    elif isinstance(command, TyperGroup):
        hint = ""
    else:
        hint = f"There are {', '.join(known)}." if known else f"{path} has no options."
    error.message = f"No such option: {one_line(option)}. {hint}".rstrip()


def _options_of(command: Any) -> Iterator[str]:
    for parameter in command.params:
        if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False):
            yield from (*parameter.opts, *parameter.secondary_opts)


def _is_below(group: TyperGroup, option: str) -> bool:
    """Whether a command of a group, or of a group in it, has an option."""
    return any(
        _is_below(command, option) if isinstance(command, TyperGroup) else option in _options_of(command)
        for command in group.commands.values()
    )


def _either(names: Iterable[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} or {last}" if rest else last
