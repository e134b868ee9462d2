"""The tree of all commands is built once in a process: Typer builds it at each call, which takes longer than most
commands, and more than half of what a broker's start costs."""

import functools

import typer.main


def build_commands_once() -> None:
    """Keep what `typer.main.get_command` makes. To be called before somebody imports that function by its name."""
    if not hasattr(typer.main.get_command, "cache_info"):
        typer.main.get_command = functools.cache(typer.main.get_command)
