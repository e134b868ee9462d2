"""Mistyped commands and options: what is suggested can be entered, and helps."""

from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from legato.cli.commands import OTHER_WORDS
from legato.cli.main import app


def error_of(words: str) -> str:
    """What is printed of a mistake, on one line."""
    answer = CliRunner().invoke(app, words.split(), env={"COLUMNS": "200", "TERM": "dumb"})
    assert answer.exit_code == 2, answer.output
    return " ".join(answer.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("receive tea --timeout 3", "No such option: --timeout. Did you mean --wait?"),
        ("receive tea --cuont 3", "No such option: --cuont. Did you mean --count?"),
        ("receive tea --zebra 3", "No such option: --zebra. There are --count, --wait, --json, --url."),
        ("receive tea -n 3", "No such option: -n. Did you mean --count?"),
        ("serve --no-ledgr", "No such option: --no-ledgr. Did you mean --no-ledger?"),
        ("queue list --jsn", "No such option: --jsn. Did you mean --json?"),
        ("--url amqp://x queues", "No such option: --url. Options go behind the command: legato COMMAND --url."),
        ("queue --url x list", "No such option: --url. Options go behind the command: legato queue COMMAND --url."),
        ("--zebra", "No such option: --zebra. ╰"),
        ("quues", "No such command 'quues'. Did you mean queues?"),
        ("dql", "No such command 'dql'. Did you mean dlq?"),
        ("zebra", "No such command 'zebra'. ╰"),
        ("publish tea", "No such command 'publish'. Did you mean send?"),
        ("purge tea", "No such command 'purge'. Did you mean legato queue purge or legato subscription purge?"),
        ("backup", "No such command 'backup'. Did you mean legato store backup?"),
        ("check legato.toml", "No such command 'check'. Did you mean serve --check?"),
        ("completion", "No such command 'completion'. Did you mean --install-completion?"),
        ("queue purg tea", "No such command 'purg'. Did you mean purge?"),
        ("dlq zebra", "No such command 'zebra'. There are list, show, edit, reissue, mute, unmute."),
    ],
)
def test_what_is_suggested_helps_or_nothing_is(words: str, said: str) -> None:
    """`--timeout` suggested `--count`."""
    assert said in error_of(words)


@pytest.mark.parametrize(
    "words",
    [
        "browse tea --count 9223372036854775808",
        "receive tea --count 9223372036854775808",
        "ledger query sql --rows 9223372036854775808",
        "drill --seed -9223372036854775808",
    ],
)
def test_whole_numbers_have_at_most_64_bits(words: str) -> None:
    """`islice` ended the commands with a stack trace."""
    assert "it has more than 64 bits" in error_of(words)


@pytest.mark.parametrize(
    "words",
    [
        "send {} tea",
        "receive {}",
        "browse {}",
        "queue show {}",
        "queues {}",
        "dlq show {} ID:1",
        "story {}",
        "queue move a b --selector {}",
        "send a tea --property x={}",
    ],
)
def test_bytes_that_are_no_text_name_nothing(words: str) -> None:
    """They ended the client library's thread with a stack trace."""
    assert "it is no text in UTF-8" in error_of(words.format("\udcff"))


def test_every_group_of_commands_suggests_in_the_same_way() -> None:
    """`typer.Typer(...)` without `cls` would suggest as Typer does."""
    [root, *below] = groups(get_command(app))
    assert len(below) > 8
    for group in (root, *below):
        assert type(group).resolve_command is not TyperGroup.resolve_command, group.name


def groups(command: Any) -> list[TyperGroup]:
    """A group and those in it."""
    if not isinstance(command, TyperGroup):
        return []
    return [command, *(group for inner in command.commands.values() for group in groups(inner))]


def test_words_from_elsewhere_lead_to_commands_and_options_that_there_are() -> None:
    there = {"--version", "--install-completion"}
    for group in groups(get_command(app)):
        for name, command in group.commands.items():
            there.add(name)
            there.update(option for parameter in command.params for option in parameter.opts)
    assert {part for words in OTHER_WORDS.values() for word in words for part in word.split()} <= there
