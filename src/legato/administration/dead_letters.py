"""Dead letters: found, their causes read, and moved exactly once."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from legato.administration.exact_json import read_json
from legato.administration.letter_names import Identified, batches, name_of, selector_of
from legato.administration.other_groups import left_behind, refuse_left_behind, where_to_ask
from legato.client import BytesMessage, Connection, ConnectionFactory, Message, Queue, TextMessage
from legato.client.failover.uri import short_wait
from legato.client.management import request, rows
from legato.core.dead_letters import (
    CAUSE,
    DEAD_LETTER_COUNT,
    DEAD_LETTERED_AT_MS,
    DELIVERIES,
    EXCEPTION,
    HISTORY,
    ORIGINAL_DESTINATION,
    ORIGINAL_SEQUENCE,
    ORIGINAL_SUBSCRIPTION,
)
from legato.errors import JMSError
from legato.groups.dead_letters import MUTED_PREFIX
from legato.quoting import quoted, sentence

MUTED_REASON = "legato_muted_reason"
MUTED_BY = "legato_muted_by"
MUTED_AT_MS = "legato_muted_at_ms"
UNDONE = "legato_undone"
TRACE_ID = "legato_trace_id"
STACK_TRACE = "legato_stack_trace"

ELLIPSIS = "..."
"""Stands for the middle of an id that is shown cut."""

FRAME = re.compile(r' +File ".*", line \d+')
"""A line of a Python traceback that names a place."""

LOOKED_AT_MAX = 10_000
"""Dead letters of a queue that are looked at at once: with all that they say they are in memory."""
MOVED_AT_ONCE_MAX = 50
"""Messages that one request names; the broker looks through the queue for each request once."""
TOLD_MAX = 5
"""Causes or ids that an error names."""
REASON_CHARACTERS_MAX = 60
"""Of each cause in an error."""
REISSUES_MAX = 3
"""Who was a dead letter more often is not sent back without being told to."""


@dataclass(frozen=True)
class Letter:
    """One dead letter.

    Attributes:
        queue: that it is in.
        message: itself.
        properties: its properties, as plain values.
    """

    queue: str
    message: Message
    properties: dict[str, Any] = field(repr=False)

    @property
    def id(self) -> str:
        """The message's id; empty if it has none."""
        return self.message.message_id or ""

    @property
    def name(self) -> str:
        """What tells it from all others of its queue, copies of the same message among them; see `name_of`."""
        return name_of(self)

    @property
    def called(self) -> str:
        """What it is called where others need not be told apart: its id, or its name if it has none."""
        return self.id or self.name

    @property
    def reason(self) -> str:
        """The exception without its traceback, or if nobody told of one what the broker says."""
        told = str(self.properties.get(EXCEPTION) or "")
        return (exception_of(told) if told else str(self.properties.get(CAUSE) or "")) or "unknown"

    @property
    def summary(self) -> str:
        """The reason in one line."""
        return summary_of(self.reason)

    @property
    def stack_trace(self) -> str:
        """The traceback: a stage of a flow sends it, and a listener as its exception; empty if there is none."""
        told = str(self.properties.get(EXCEPTION) or "")
        whole = self.properties.get(STACK_TRACE) or (told if exception_of(told) != told else "")
        return str(whole).rstrip()

    @property
    def cause(self) -> str:
        """A short name of the reason, the same for all that differ in numbers, ids and quoted texts only."""
        return hashlib.blake2b(general(self.reason).encode(), digest_size=3).hexdigest()

    @property
    def origin(self) -> str:
        """Origin: a queue, `topic://NAME` or a subscription; empty if unknown."""
        return str(self.properties.get(ORIGINAL_SUBSCRIPTION) or self.properties.get(ORIGINAL_DESTINATION) or "")

    @property
    def sequence(self) -> int:
        """Its sequence where it came from; -1 if unknown."""
        value = self.properties.get(ORIGINAL_SEQUENCE)
        return int(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else -1

    @property
    def times(self) -> int:
        """How often it has been a dead letter."""
        return _number(self.properties.get(DEAD_LETTER_COUNT)) or 1

    @property
    def attempts(self) -> int:
        """Deliveries that failed before it became one."""
        return _number(self.properties.get(DELIVERIES))

    @property
    def trace_id(self) -> str:
        """Of the flow that it belongs to, if any."""
        return str(self.properties.get(TRACE_ID) or "")

    @property
    def undone(self) -> bool:
        """Whether what its flow did is being undone, because it failed here."""
        return bool(self.properties.get(UNDONE))

    @property
    def dead_since_ms(self) -> int:
        """Milliseconds since 1970; 0 if nobody knows."""
        return _number(self.properties.get(DEAD_LETTERED_AT_MS))

    @property
    def history(self) -> list[dict[str, Any]]:
        """Its last deliveries."""
        try:
            found = json.loads(self.properties.get(HISTORY) or "[]")
        except (TypeError, ValueError, RecursionError):
            return []
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _number(value: object) -> int:
    """A property that the broker sets to a number; a client may have set it to anything."""
    return value if isinstance(value, int) else 0


def exception_of(told: str) -> str:
    """The exception that a traceback ends with, as `ValueError: no`; any other text as it is.

    A long traceback may have lost its beginning.
    """
    rest = told.splitlines()
    frames = [number for number, line in enumerate(rest) if FRAME.match(line)]
    if not frames:
        return told
    after = frames[-1] + 1
    while after < len(rest) and (not rest[after] or rest[after].startswith(" ")):
        after += 1
    return "\n".join(rest[after:]).rstrip() or told


def summary_of(reason: str) -> str:
    """The first line of a reason; of a body that pydantic refused, with the first field and what is wrong with it."""
    first, *rest = reason.splitlines() or [""]
    if " validation error" in first and len(rest) > 1 and rest[1].startswith("  "):
        return f"{first}: {rest[0]}: {rest[1].strip().partition(' [type=')[0]}"
    return first


def general(reason: str) -> str:
    """A reason without what differs from message to message."""
    first = re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", summary_of(reason))
    return re.sub(r"\b[0-9a-fA-F-]{8,}\b|\d+", "#", first)


def dead_letter_queues(url: str, *, muted: bool = False) -> list[dict[str, Any]]:
    """Rows of the queues that hold dead letters, by name; those of muted ones if these are asked for.

    Those that a move left behind are without: nobody can read them here.
    """
    there = _all_dead_letter_queues(url, muted=muted)
    _, elsewhere = left_behind(partial(request, url), [str(row["name"]) for row in there])
    return [row for row in there if row["name"] not in elsewhere]


def left_behind_queues(url: str, *, muted: bool = False) -> tuple[str, dict[str, str]]:
    """See `left_behind`, of the queues that hold dead letters."""
    return left_behind(partial(request, url), [str(row["name"]) for row in _all_dead_letter_queues(url, muted=muted)])


def _all_dead_letter_queues(url: str, *, muted: bool) -> list[dict[str, Any]]:
    found = [row for row in rows(url, "queue") if (row["name"].startswith(MUTED_PREFIX) if muted else is_dead(row))]
    return sorted((row for row in found if row["depth"]), key=lambda row: str(row["name"]))


def muted_count(url: str) -> int:
    """How many dead letters are muted."""
    return sum(int(row["depth"]) for row in dead_letter_queues(url, muted=True))


def is_dead(row: dict[str, Any]) -> bool:
    """Whether a queue holds dead letters."""
    return bool(row.get("dead_letters"))


def find_queue(url: str, name: str) -> str:
    """The queue that is meant by its own name, or by that of the queue whose dead letters it holds.

    Raises:
        JMSError: there is none, or another group of brokers serves it.
    """
    names = [str(row["name"]) for row in rows(url, "queue") if is_dead(row)]
    for candidate in (name, f"DLQ.{name}"):
        if candidate in names:
            refuse_left_behind(partial(request, url), candidate)
            return candidate
    if elsewhere := where_to_ask(url, name):
        raise JMSError(f"There are no dead letters of {name} here. {elsewhere}")
    there = ", ".join(sorted(names)) or "none"
    raise JMSError(f"{name} is not a dead-letter queue and has none. The dead-letter queues are: {there}.")


def letters(url: str, queue: str, limit: int | None = None) -> Iterator[Letter]:
    """The dead letters of a queue, the oldest first.

    Args:
        limit: at most so many; by default `LOOKED_AT_MAX`.
    """
    limit = LOOKED_AT_MAX if limit is None else limit
    with ConnectionFactory(url, **short_wait(url)).create_connection() as connection:
        connection.start()
        yield from letters_of(connection, queue, limit)


def letters_if_any(url: str, queue: str) -> Iterator[Letter]:
    """As `letters`, of a queue that may not exist: looking into one creates it."""
    return letters(url, queue) if depth_of(url, queue) else iter(())


def depth_of(url: str, queue: str) -> int:
    """How many messages a queue has; 0 if there is none of that name."""
    return next((int(row["depth"]) for row in rows(url, "queue") if row["name"] == queue), 0)


def lots(url: str, queue: str, cause: str = "", trace: str = "", limit: int = 0) -> Iterator[list[Letter]]:
    """All dead letters of a queue that match, in lots, each of which may be moved before the next one is looked for.

    What dies again meanwhile comes behind those that were there, and is not looked at.

    Args:
        cause, trace: see `matching`.
        limit: at most so many; 0 for all.

    Raises:
        JMSError: none has that cause or trace id.
    """
    found = letters(url, queue, depth) if (depth := depth_of(url, queue)) else iter(())
    first: list[Letter] = []
    count = 0
    while lot := list(itertools.islice(found, LOOKED_AT_MAX)):
        first = first or lot
        selected = matching(lot, cause, trace)[: limit - count if limit else None]
        count += len(selected)
        if selected:
            yield selected
        if limit and count == limit:
            return
    if (cause or trace) and not count:
        raise JMSError(none_matches(first, queue, cause, trace))


def named(url: str, queue: str, names: Sequence[str], cause: str = "", trace: str = "") -> list[Letter]:
    """The dead letters of a queue with these names, wherever they are in it; see `chosen`.

    Raises:
        JMSError: as `chosen`.
    """
    depth = depth_of(url, queue)
    meant = (
        [letter for letter in letters(url, queue, depth) if any(_is_called(letter, name) for name in names)]
        if depth
        else []
    )
    # If there is none, the error is to say which there are.
    return chosen(meant or letters_if_any(url, queue), queue, names, cause, trace)


def letters_of(connection: Connection, queue: str, limit: int, selector: str = "") -> Iterator[Letter]:
    """As `letters`, by a connection that was started; only those that the selector selects."""
    with connection.create_session() as session, session.create_browser(Queue(queue), selector) as messages:
        for number, message in enumerate(messages):
            if number == limit:
                return
            yield Letter(queue, message, dict(message.properties))


def matching(found: Iterable[Letter], cause: str = "", trace: str = "") -> list[Letter]:
    """The dead letters with a cause and a trace id.

    Args:
        cause: a cause's short name, or whole words of the reason, in either case; empty for any.
        trace: a trace id; empty for any.
    """
    # Whole words: `x` is not meant to name what died of `maximum deliveries`.
    words = re.compile(rf"(?<!\w){re.escape(cause)}(?!\w)", re.IGNORECASE)
    return [
        letter
        for letter in found
        if (not cause or letter.cause == cause or words.search(letter.reason))
        and (not trace or letter.trace_id == trace)
    ]


def chosen(
    found: Iterable[Letter],
    queue: str,
    names: Sequence[str] = (),
    cause: str = "",
    trace: str = "",
    limit: int = 0,
) -> list[Letter]:
    """Select dead letters.

    Args:
        queue: whose they are, for errors.
        names: ids or names, what only one of them begins with, or its beginning and end with ELLIPSIS between; empty
            for all.
        cause, trace: see `matching`.
        limit: at most so many; 0 for all.

    Raises:
        JMSError: none has that cause or trace id, a name is nobody's, or several ids begin with it.
    """
    everything = list(found)
    selected = matching(everything, cause, trace)
    if (cause or trace) and not selected:
        raise JMSError(none_matches(everything, queue, cause, trace))
    if names:
        selected = list({id(letter): letter for letter in (_named(selected, name, queue) for name in names)}.values())
    return selected[:limit] if limit else selected


def none_matches(found: Sequence[Letter], queue: str, cause: str, trace: str) -> str:
    """That no dead letter has a cause or trace id, and which there are."""
    of_queue = f"of {queue} " if queue else ""
    if not found:
        return f"There are no dead letters {f'in {queue}' if queue else 'at all'}."
    if trace and (not cause or not matching(found, "", trace)):
        ids = list(dict.fromkeys(quoted(letter.trace_id) for letter in found if letter.trace_id))
        there = f"There are {_some(ids)}." if ids else "None has any."
        return f"No dead letter {of_queue}has the trace id {trace!r}. {there}"
    counts = Counter(letter.cause for letter in found)
    reasons = {letter.cause: general(letter.reason) for letter in found}
    told = [f"{each} ({_cut(sentence(reasons[each]))}): {count}" for each, count in counts.most_common()]
    both = f" and the trace id {trace!r}" if trace else ""
    return f"No dead letter {of_queue}has the cause {cause!r}{both}. There are {_some(told)}."


def _named(found: Sequence[Letter], name: str, queue: str) -> Letter:
    plain = name.removeprefix("ID:")
    matched = [letter for letter in found if _is_called(letter, name)]
    exact = [letter for letter in matched if plain in (letter.id.removeprefix("ID:"), letter.name.removeprefix("ID:"))]
    if len(exact or matched) == 1:
        return (exact or matched)[0]
    if matched and len({letter.id for letter in matched}) == 1:
        names = _some([quoted(letter.name) for letter in matched])
        raise JMSError(f"{len(matched)} dead letters of {queue} are copies with this id. Name one of {names}.")
    if matched:
        ids = _some([quoted(letter.called) for letter in matched])
        raise JMSError(f"{len(matched)} dead letters of {queue} have an id that begins with {name!r}: {ids}.")
    if any(letter.cause == name for letter in found):
        raise JMSError(f"{name} is a cause, not an id: `legato dlq list {queue} --cause {name}` lists the ids.")
    ids = f"There are {_some([quoted(letter.called) for letter in found])}." if found else "There is none at all."
    raise JMSError(f"No dead letter of {queue} has an id that begins with {name!r}. {ids}")


def _is_called(letter: Letter, name: str) -> bool:
    begins, cut, ends = name.removeprefix("ID:").partition(ELLIPSIS)
    both = (letter.id.removeprefix("ID:"), letter.name.removeprefix("ID:"))
    return any(each.startswith(begins) and (not cut or each.endswith(ends)) for each in both)


def _some(told: Sequence[str]) -> str:
    """A list that is not too long for an error."""
    more = len(told) - TOLD_MAX
    return ", ".join(told[:TOLD_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _cut(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[: REASON_CHARACTERS_MAX - 1]}…"


class Moved(NamedTuple):
    """What a request moved.

    Attributes:
        moved: so many.
        gone: that somebody took away before.
        there: that are there still: somebody holds them, or there is no room where they should go.
    """

    moved: int
    gone: int
    there: int


def move(
    url: str,
    found: Sequence[Letter],
    *,
    to: str = "",
    per_second: float = 0.0,
    properties: dict[str, str | int] | None = None,
) -> Iterator[Moved]:
    """Move dead letters, each in one step of the broker's: it is here or there, never both and never nowhere.

    They keep their ids and all else; a duplicate id of theirs is not looked at. What somebody else took away meanwhile
    is left out.

    Args:
        to: where all go; else each goes back to where it came from.
        per_second: at most so many; 0 for as many as can be.
        properties: that they get.

    Yields:
        What each request moved.
    """
    at_once = MOVED_AT_ONCE_MAX if not per_second else max(1, min(MOVED_AT_ONCE_MAX, int(per_second)))
    arguments = {"properties": json.dumps(properties)} if properties else {}
    begun_s, asked = time.monotonic(), 0
    for queue, target, group in _lots(found, to, at_once):
        if per_second:
            time.sleep(max(begun_s + asked / per_second - time.monotonic(), 0.0))
        done = request(
            url, "move", "queue", queue, to=target, selector=selector_of(group), limit=len(group), **arguments
        )
        asked += len(group)
        moved = int(done["moved"])
        there = len(_still_there(url, queue, group)) if moved < len(group) else 0
        yield Moved(moved, max(len(group) - moved - there, 0), there)


def _still_there(url: str, queue: str, group: Sequence[Letter]) -> set[str]:
    with ConnectionFactory(url, **short_wait(url)).create_connection() as connection:
        connection.start()
        return still_there(connection, queue, group)


def still_there(connection: Connection, queue: str, meant: Sequence[Identified]) -> set[str]:
    """The names of those dead letters that a queue has, in somebody's hands or not."""
    names = {name_of(letter) for letter in meant}
    there: set[str] = set()
    for batch in batches(meant, len(meant)):
        found = letters_of(connection, queue, len(batch), selector_of(batch))
        there |= {letter.name for letter in found} & names
    return there


def obstacle(letter: Letter, to: str = "") -> str:
    """Why a dead letter should not be sent to where it came from, or to `to`; empty if it may be."""
    if not (to or letter.origin):
        return "its origin is unknown"
    if letter.times > REISSUES_MAX:
        return f"it has been a dead letter {letter.times} times"
    return "its flow was undone since" if letter.undone else ""


def _lots(found: Sequence[Letter], to: str, at_once: int) -> Iterator[tuple[str, str, list[Letter]]]:
    places: dict[tuple[str, str], list[Letter]] = {}
    for letter in found:
        places.setdefault((letter.queue, to or letter.origin), []).append(letter)
    for (queue, target), group in places.items():
        for batch in batches(group, at_once):
            yield queue, target, batch


def body_of(message: Message) -> Any:
    """A body as JSON has it, if it is JSON or a text.

    Raises:
        JMSError: it is neither, and cannot be edited therefore.
    """
    if not isinstance(message, TextMessage | BytesMessage):
        raise JMSError(f"A {type(message).__name__} cannot be edited here.")
    body = message.body
    if isinstance(body, bytes):
        try:
            body = body.decode()
        except UnicodeDecodeError:
            raise JMSError("The body is bytes that are no text: it cannot be edited here.") from None
    try:
        return read_json(body or "")
    except ValueError:
        return body or ""


def is_flow(letter: Letter) -> bool:
    """Whether it is a message of a flow."""
    return "legato_flow_id" in letter.properties and isinstance(letter.message, TextMessage)
