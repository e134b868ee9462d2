"""`legato dlq`: list, show, edit, reissue and mute dead letters."""

from __future__ import annotations

import getpass
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from legato.cli.commands import Commands
from legato.cli.contents import content
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption, a_text, finite
from legato.cli.output import say, say_lines
from legato.errors import ConfigError, JMSError
from legato.groups.dead_letters import MUTED_PREFIX
from legato.quoting import quoted, sentence

if TYPE_CHECKING:
    from legato.administration.dead_letters import Letter

REISSUES_MAX = 3
"""As `legato.administration.dead_letters` has it, which is imported where it is needed only."""

app = Commands(
    name="dlq",
    help="Dead letters: list them by cause, show, edit, reissue and mute them.",
    epilog="Begin with `legato dlq list`. QUEUE is a dead-letter queue, such as DLQ.orders, or the queue its messages "
    "came from, such as orders. ID is a message id, the unique beginning of one, or its beginning and end as the "
    "list shows them. Copies of one message are told apart as ID@ORIGIN#SEQUENCE.",
)

LettersArgument = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help="Dead-letter queue, or the queue that its messages came from.",
        show_default=False,
        callback=a_text,
    ),
]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Message ids, or unique beginnings of them.", show_default=False),
]
NameArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The message id, or a unique beginning of it.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All dead letters of the queue.")]
CauseOption = Annotated[
    str,
    typer.Option(
        "--cause",
        help="All with this cause: its short name from the list, or whole words of its text.",
        metavar="CAUSE",
        show_default=False,
    ),
]
TraceOption = Annotated[
    str, typer.Option("--trace", help="All with this trace id.", metavar="TRACE_ID", show_default=False)
]
LimitOption = Annotated[int, typer.Option("--limit", help="At most N, oldest first; 0: all.", min=0)]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would happen, and change nothing.")]


@app.command("list")
def list_letters(
    queue: Annotated[
        str, typer.Argument(metavar="[QUEUE]", help="List the messages of this queue.", show_default=False)
    ] = "",
    muted: Annotated[bool, typer.Option("--muted", help="List muted messages, and why they were muted.")] = False,
    cause: CauseOption = "",
    trace: TraceOption = "",
    as_json: JsonOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """List dead-letter queues with the causes of their messages, or the messages of one queue.

    Examples: legato dlq list; legato dlq list orders; legato dlq list --muted
    """
    from legato.administration import dead_letters
    from legato.administration.other_groups import what_is_left
    from legato.cli import dead_letter_rendering

    if queue:
        name = dead_letters.find_queue(url, queue)
        if muted:
            name = MUTED_PREFIX + name
        most = dead_letters.LOOKED_AT_MAX
        found = [letter for lot in dead_letters.lots(url, name, cause, trace, limit=most) for letter in lot]
        if not found:
            say(f"There are no dead letters in {quoted(name)}.", err=as_json)
        else:
            dead_letter_rendering.print_letters(found, as_json=as_json)
        if len(found) == most:
            _say_unseen(name, dead_letters.depth_of(url, name))
        return
    here, elsewhere = dead_letters.left_behind_queues(url, muted=muted)
    for name, group in elsewhere.items():
        say(f"{what_is_left(name, here, group)} It is not listed here.", err=True)
    everything = [
        (row, list(dead_letters.letters(url, str(row["name"]))))
        for row in dead_letters.dead_letter_queues(url, muted=muted)
    ]
    groups = [(row, dead_letters.matching(found, cause, trace)) for row, found in everything]
    if (cause or trace) and not any(found for _, found in groups):
        each = [letter for _, found in everything for letter in found]
        raise JMSError(dead_letters.none_matches(each, "", cause, trace))
    dead_letter_rendering.print_causes([(row, found) for row, found in groups if found], as_json=as_json)
    for row, _ in groups:
        _say_unseen(str(row["name"]), int(row["depth"]))
    if not muted and not as_json and (count := dead_letters.muted_count(url)):
        say(f"{_letters(count)} {'is' if count == 1 else 'are'} muted: legato dlq list --muted")


def _say_unseen(queue: str, depth: int) -> None:
    from legato.administration import dead_letters

    if depth > dead_letters.LOOKED_AT_MAX:
        say(f"{quoted(queue)}: only the oldest {dead_letters.LOOKED_AT_MAX:,} of {depth:,} are shown", err=True)


@app.command("show")
def show(queue: LettersArgument, name: NameArgument, as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """Show one dead letter: cause, origin, deliveries, stack trace, properties, body.

    Example: legato dlq show orders ID:4c1
    """
    from legato.administration import dead_letters
    from legato.cli import dead_letter_rendering

    source = dead_letters.find_queue(url, queue)
    [letter] = _named(url, source, [name])
    dead_letter_rendering.print_letter(letter, as_json=as_json)


@app.command("edit")
def edit(
    queue: LettersArgument,
    name: NameArgument,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Set PATH to VALUE, which is JSON or else text; may be repeated.", metavar="PATH=VALUE"
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Read the new body from this file.", metavar="FILE", show_default=False),
    ] = None,
    reissue_it: Annotated[bool, typer.Option("--reissue", help="Then send it back to where it came from.")] = False,
    dry_run: DryRunOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Change the body of a dead letter: with --set, with --file, or in $EDITOR. It stays a dead letter.

    A flow's message is an envelope: `data` has the request or reply, `state.data` the state of the stage.

    Examples: legato dlq edit orders ID:4c1; legato dlq edit orders ID:4c1 --set data.quantity=2 --reissue
    """
    from legato.administration import dead_letters
    from legato.administration.dead_letter_editor import with_changes

    if file is not None and changes:
        raise typer.BadParameter("give --set or --file, not both")
    for change in changes or ():
        if not change.partition("=")[0] or "=" not in change:
            raise typer.BadParameter(f"--set wants PATH=VALUE, not {quoted(change)}")
    source = dead_letters.find_queue(url, queue)
    [letter] = _named(url, source, [name])
    body = dead_letters.body_of(letter.message)
    if file is not None:
        new: Any = _read(file)
    elif changes:
        new = with_changes(body, changes)
    else:
        new = _in_editor(body)
    with _kept(new) if file is None and not changes and new != body else nullcontext():
        now_called = _replaced(url, letter, body, new, dry_run=dry_run)
    if new == body:
        say(f"{quoted(letter.called)} stays as it is")
        if reissue_it:
            reissue(queue, [letter.name], dry_run=dry_run, url=url)
        return
    if dry_run:
        say_lines(_pretty(new))
        return
    say(f"{quoted(letter.called)} is changed; it is {quoted(now_called)} now")
    if reissue_it:
        reissue(queue, [now_called], url=url)


def _replaced(url: str, letter: Letter, body: Any, new: Any, *, dry_run: bool) -> str:
    """Put another body in the place of a dead letter's; returns its new id, empty if there is nothing to do.

    Raises:
        JMSError: it cannot be, or the body was JSON and would be none.
    """
    from legato.administration import dead_letter_editor

    if isinstance(body, dict | list) and isinstance(new, str):
        raise JMSError("Nothing was changed: the body was JSON, and the new one is not.")
    if dry_run or new == body:
        return ""
    return dead_letter_editor.replace(url, letter, new, _who())


@app.command("reissue")
def reissue(
    queue: LettersArgument,
    names: NamesArgument = None,
    all_of_them: AllOption = False,
    cause: CauseOption = "",
    trace: TraceOption = "",
    limit: LimitOption = 0,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Send them here instead of where they came from: a queue, or topic://NAME.",
            metavar="ADDRESS",
            show_default=False,
        ),
    ] = None,
    per_second: Annotated[
        float,
        typer.Option("--per-second", help="At most N messages a second; 0: no limit.", min=0, callback=finite),
    ] = 0.0,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help=f"Also messages that were dead letters more than {REISSUES_MAX} times, or whose flow was undone.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Send dead letters back to where they came from. Each move is atomic: no crash loses or duplicates a message.

    Messages keep their ids, so an inbox drops those whose work is done.

    Examples: legato dlq reissue orders ID:4c1; legato dlq reissue orders --cause ConnectionError --per-second 20
    """
    from legato.administration import dead_letters

    _check_some(names, all_of_them, cause, trace)
    if to == "":
        raise typer.BadParameter("--to names no queue; leave it away to send them back to where they came from")
    destination = to or ""
    source = dead_letters.find_queue(url, queue)
    moved = gone = there = 0
    found = stays = False
    for lot in _lots(url, source, names, cause, trace, limit):
        found = True
        going, staying = _partition(lot, destination, force=force)
        stays = stays or bool(staying)
        for letter, why in staying:
            say(f"{quoted(letter.called)} stays: {why}", err=True)
        if dry_run:
            for letter in going:
                say(f"{quoted(letter.called)} would go to {destination or quoted(letter.origin)}: {_reason(letter)}")
            continue
        for done in dead_letters.move(url, going, to=destination, per_second=per_second):
            moved, gone, there = moved + done.moved, gone + done.gone, there + done.there
    if dry_run:
        return
    none = "" if found else f": there are none in {quoted(source)}"
    say(f"reissued {_letters(moved)}{none}{_left(source, gone, there)}")
    if stays or there:
        raise typer.Exit(1)


@app.command("mute")
def mute(
    queue: LettersArgument,
    reason: Annotated[
        str, typer.Option("--reason", help="Why nobody needs to look at them.", metavar="TEXT", show_default=False)
    ],
    names: NamesArgument = None,
    all_of_them: AllOption = False,
    cause: CauseOption = "",
    trace: TraceOption = "",
    limit: LimitOption = 0,
    dry_run: DryRunOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Put dead letters aside, with a reason: lists and counts of dead letters leave them out until they are unmuted.

    They are kept in MUTED.QUEUE. Example: legato dlq mute orders --cause 'no such customer' --reason 'test data'
    """
    from legato.administration import dead_letters

    _check_some(names, all_of_them, cause, trace)
    name = dead_letters.find_queue(url, queue)
    found = _lots(url, name, names, cause, trace, limit)
    said: dict[str, str | int] = {
        dead_letters.MUTED_REASON: reason,
        dead_letters.MUTED_BY: _who(),
        dead_letters.MUTED_AT_MS: int(time.time() * 1000),
    }
    _move(url, found, name, MUTED_PREFIX + name, said, "muted", dry_run=dry_run)


@app.command("unmute")
def unmute(
    queue: LettersArgument,
    names: NamesArgument = None,
    all_of_them: AllOption = False,
    cause: CauseOption = "",
    trace: TraceOption = "",
    limit: LimitOption = 0,
    dry_run: DryRunOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Put muted dead letters back into the dead-letter queue.

    Example: legato dlq unmute orders --all
    """
    from legato.administration import dead_letters

    _check_some(names, all_of_them, cause, trace)
    name = dead_letters.find_queue(url, queue)
    source = MUTED_PREFIX + name
    found = _lots(url, source, names, cause, trace, limit)
    _move(url, found, source, name, {dead_letters.MUTED_REASON: ""}, "unmuted", dry_run=dry_run)


def _lots(url: str, queue: str, names: list[str] | None, cause: str, trace: str, limit: int) -> Iterator[list[Letter]]:
    """The dead letters that are meant, in lots."""
    from legato.administration import dead_letters

    if not names:
        return dead_letters.lots(url, queue, cause, trace, limit)
    found = _named(url, queue, names, cause, trace)
    return iter([found[:limit] if limit else found])


def _named(url: str, queue: str, names: list[str], cause: str = "", trace: str = "") -> list[Letter]:
    """See `dead_letters.named`; whoever names a letter that is muted is told so.

    Raises:
        JMSError: as there.
    """
    from legato.administration import dead_letters

    try:
        return dead_letters.named(url, queue, names, cause, trace)
    except JMSError as error:
        muted = "" if queue.startswith(MUTED_PREFIX) else _first_muted(url, queue, names)
        if not muted:
            raise
        told = f"{error} {quoted(muted)} is muted: legato dlq unmute {quoted(queue)} {quoted(muted)} brings it back."
        raise JMSError(told) from None


def _first_muted(url: str, queue: str, names: list[str]) -> str:
    """The first of these names that is one of a muted dead letter of a queue; empty if there is none."""
    from legato.administration import dead_letters

    for name in names:
        with suppress(JMSError):
            dead_letters.named(url, MUTED_PREFIX + queue, [name])
            return name
    return ""


def _move(
    url: str,
    lots: Iterable[list[Letter]],
    source: str,
    to: str,
    said: dict[str, str | int],
    verb: str,
    *,
    dry_run: bool,
) -> None:
    from legato.administration import dead_letters

    moved = gone = there = 0
    found = False
    for lot in lots:
        found = True
        if dry_run:
            for letter in lot:
                say(f"{quoted(letter.called)} would be {verb}: {_reason(letter)}")
        else:
            for done in dead_letters.move(url, lot, to=to, properties=said):
                moved, gone, there = moved + done.moved, gone + done.gone, there + done.there
    if not found:
        say(f"{verb} {_letters(0)}: there are none in {quoted(source)}")
    elif not dry_run:
        say(f"{verb} {_letters(moved)}{_left(source, gone, there)}")
    if there:
        raise typer.Exit(1)


def _left(source: str, gone: int, there: int) -> str:
    """What became of those that were not moved."""
    told = f"; {gone} {'was' if gone == 1 else 'were'} gone already" if gone else ""
    if there:
        told += f"; {there} {'is' if there == 1 else 'are'} in {quoted(source)} still: somebody holds "
        told += (
            f"{'it' if there == 1 else 'them'}, or there is no room where {'it' if there == 1 else 'they'} should go"
        )
    return told


def _reason(letter: Letter) -> str:
    return sentence(letter.reason)


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count} dead letters"


def _check_some(names: list[str] | None, all_of_them: bool, cause: str, trace: str) -> None:
    if not (names or all_of_them or cause or trace):
        raise typer.BadParameter("name the dead letters: by ids, --cause, --trace or --all")


def _partition(found: list[Letter], to: str, *, force: bool) -> tuple[list[Letter], list[tuple[Letter, str]]]:
    """Dead letters that may be moved, and the others with their reasons."""
    from legato.administration import dead_letters

    going, staying = [], []
    for letter in found:
        why = dead_letters.obstacle(letter, to)
        if why and not (to or letter.origin):
            staying.append((letter, f"{why}; name a destination with --to"))
        elif why and not force:
            staying.append((letter, f"{why}; --force sends it anyway"))
        else:
            going.append(letter)
    return going, staying


def _who() -> str:
    """Who does it, for the record."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # The system has no name for it, as in containers that run with a number.
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _in_editor(body: Any) -> Any:
    [*editors] = filter(str.strip, (os.environ.get(name, "") for name in ("VISUAL", "EDITOR")))
    if not editors and not sys.stdin.isatty():
        raise ConfigError("There is no terminal for an editor: give the new body with --set or --file.")
    editor = editors[0] if editors else "vi"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "body.json"
        path.write_text(_pretty(body), encoding="utf-8")
        try:
            with _interrupts_are_the_editors():
                code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"The editor {quoted(editor)} cannot be started: {why}. Name another one in VISUAL or EDITOR, or give "
                "the new body with --set or --file."
            ) from None
        if code:
            raise JMSError(f"{editor} ended with code {code}: nothing was changed.")
        new = _read(path)
    if isinstance(body, str) and isinstance(new, str) and not body.endswith("\n"):
        return new.removesuffix("\n")  # Editors end a text with one.
    return new


@contextmanager
def _interrupts_are_the_editors() -> Iterator[None]:
    """Ctrl-C in an editor goes to this process too: it would kill the editor, and delete what is written there."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _kept(written: Any) -> Iterator[None]:
    """What somebody wrote is not lost with what was to be done with it: it is told where it is."""
    try:
        yield
    except BaseException:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="legato-", suffix=".json", delete=False) as file:
            file.write(_pretty(written))
        say(f"What you wrote is in {file.name}: --file takes it.", err=True)
        raise


def _pretty(body: Any) -> str:
    from legato.administration.exact_json import write_json

    return body if isinstance(body, str) else write_json(body, indent=2)


def _read(file: Path) -> Any:
    from legato.administration.exact_json import read_json

    try:
        text = content(file).decode()
    except UnicodeDecodeError:
        raise JMSError(f"{quoted(file)} is no text in UTF-8: it cannot be a body here.") from None
    try:
        return read_json(text)
    except ValueError:
        return text
