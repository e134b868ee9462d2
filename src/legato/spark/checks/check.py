"""The type of a check: a function from frames to a frame of violations, and the words in which a report tells of it.

A check names a frame and which rows of it are *candidates*; it sees no others of that frame, so nothing else can be a
violation. That is why an audit may count the candidates of all checks in one look at each frame, and then ask only the
checks that have some (docs/decisions/0038).
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import DataFrame

from legato.spark.ledger.fact_filter import FactFilter

Frames = Mapping[str, DataFrame]
"""Frames by the names of `FRAMES`."""

FRAMES = {
    "facts": "all facts of the ledger, a row each",
    "messages": "a row for each message of a queue or subscription: how often it was stored and left, when and how",
    "commits": "a row for each commit, queue, kind and cause: how many facts",
    "records": "a row for each commit: how many facts it has, and should have",
    "epochs": "a row for each epoch: its first and last commit, and the last one of all epochs before it",
    "transactions": "a row for each transaction: what it did, what it said it did, its outcomes",
    "queues": "a row for each queue, topic and subscription that was created",
    "unknown_queues": "the numbers of queues that hold messages and were never created",
    "deletions": "a row for each deleted queue: where in the log, and how many messages waited in it",
    "marks": "a row for each high-water mark: what the broker counted, and what the facts before it come to",
    "odd_numbers": "a row for each producer, address and lane whose numbers are out of order or perhaps stored twice",
    "reregistered": "a row for each producer whose name was registered under several numbers",
    "trimmed": "one row: `through`, the last commit that was trimmed, 0 if none was",
    "waiting": "`queue`, `seq` of the messages that wait in the store; only if the store was read",
}
"""What there is for checks to look at."""


class Wording(NamedTuple):
    """What a report says of a check: that it `holds`, or of `one` violation, or of `many`, which are `{count}`.

    `each` is said of every row that is shown. In braces are columns, of which `auditor/descriptions.py` makes words.
    `remedy` is what to do about it.
    """

    holds: str
    one: str
    many: str
    each: str
    remedy: str = ""


@dataclass(frozen=True, eq=False)
class Check:
    """A question to the ledger, whose answer should be empty. To call it is to call its function."""

    name: str
    wording: Wording
    frame: str
    """The frame that holds the candidates."""
    candidates: str | FactFilter
    """SQL: which of its rows may be violations."""
    find: Callable[..., DataFrame]
    """Given the candidates, and the frames `others`: the violations, whole rows that a person can follow up."""
    others: tuple[str, ...]

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """The violations, of the candidates and the frames `others`."""
        return self.find(*frames)

    def violations(self, frames: Frames) -> DataFrame:
        """The violations in a ledger."""
        return self(frames[self.frame].where(str(self.candidates)), *(frames[name] for name in self.others))


def check(
    name: str,
    *,
    of: str,
    where: str | FactFilter = "true",
    holds: str,
    one: str,
    many: str,
    each: str,
    remedy: str = "",
) -> Callable[[Callable[..., DataFrame]], Check]:
    """Make a function a check: its first argument are the candidates, its others the frames that they are named after.

    Args:
        name: how reports call it.
        of: the frame that holds the candidates.
        where: SQL, which of its rows are candidates.
        holds: see `Wording`, as the rest.
        one: ...
        many: ...
        each: ...
        remedy: ...
    """
    assert of in FRAMES, of
    wording = Wording(holds, one, many, each, remedy)
    return lambda function: Check(name, wording, of, where, function, _further_frames(function))


def variant_of(other: Check) -> Callable[[Callable[..., DataFrame]], Check]:
    """Make a function the same check as another one, asked of other frames."""
    return lambda function: replace(other, find=function, others=_further_frames(function))


def _further_frames(function: Callable[..., DataFrame]) -> tuple[str, ...]:
    _, *others = inspect.signature(function).parameters
    assert set(others) <= FRAMES.keys(), others
    return tuple(others)
