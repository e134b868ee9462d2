"""Clients' records: a file for each client, with a line before each call and a line for its outcome.

A client that is killed leaves what it wrote: what it was about to do, it may have done. `FLOW` is where messages go: a
queue or a topic; `SUBSCRIPTION` is where they come from: the queue itself, or one of the topic's subscriptions.
Producers and numbers say which message it is.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec


class Identity(NamedTuple):
    """Identity of a message: the producer's name and the message's number, from 1."""

    producer: str
    number: int


class Producing(msgspec.Struct, tag=True):
    """The head of a producer's file. `numbered`: it promises that its resends are not stored twice (promise 1)."""

    producer: str
    flow: str
    numbered: bool = True


class Consuming(msgspec.Struct, tag=True):
    """The head of a consumer's file.

    Args:
        told: it puts on record for which messages its acknowledgement succeeded.
        takes_along: a message that `receive()` is about to return is acknowledged already: if the client is killed
            then, it is gone.
        exactly_once: whether it consumes in transactions, or collects what was made in transactions.
    """

    subscription: str
    flow: str
    told: bool = True
    takes_along: bool = False
    exactly_once: bool = False


Head = Producing | Consuming

SENDING, STORED, REFUSED, UNSURE = "sending", "stored", "refused", "unsure"
"""A message is about to be sent, and what became of that, as the producer was told: with certainty, or not."""
SEEN, TRYING, DONE, MAYBE, UNDONE = "seen", "trying", "done", "maybe", "undone"
"""A message was presented; its acknowledgement or its transaction is tried, and succeeded, or perhaps, or did not."""
AGAIN = "again"
"""The client was killed, and started again."""
CUT_OFF = "cut off"

_decode_head = msgspec.json.Decoder(Head).decode


class RecordWriter:
    """Writes one client's file; what a method has written survives the process, and the next one goes on from there."""

    def __init__(self, directory: Path, name: str, head: Head) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{name}.records"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        size = os.fstat(self._file).st_size
        if size == 0:
            os.write(self._file, msgspec.json.encode(head) + b"\n")
        else:
            cut_off = os.pread(self._file, 1, size - 1) != b"\n"
            os.write(self._file, (f" {CUT_OFF}\n{AGAIN}\n" if cut_off else f"{AGAIN}\n").encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    @property
    def last_number(self) -> int:
        """The highest number that the producer has put on record, in all its lives."""
        return max((line.number for line in read_records(self.path)[1] if isinstance(line, SentLine)), default=0)

    def sent(self, outcome: str, numbers: Sequence[int]) -> None:
        """Record a send (SENDING) or its outcome: STORED, REFUSED or UNSURE."""
        os.write(self._file, "".join(f"{outcome} {number}\n" for number in numbers).encode())

    def seen(self, message: Identity, redelivered: bool) -> None:
        """The application got a message."""
        os.write(self._file, f"{SEEN} {message.producer} {message.number} {int(redelivered)}\n".encode())

    def trying(self, messages: Sequence[Identity]) -> None:
        """The application is about to acknowledge these, or to commit what it did with them."""
        self._settled(TRYING, messages)

    def done(self, messages: Sequence[Identity], *, surely: bool = True) -> None:
        """The application was told that these are acknowledged; not `surely`: that not all of them are."""
        self._settled(DONE if surely else MAYBE, messages)

    def undone(self, messages: Sequence[Identity]) -> None:
        """The application was told that these are not acknowledged: its transaction was rolled back."""
        self._settled(UNDONE, messages)

    def _settled(self, word: str, messages: Sequence[Identity]) -> None:
        os.write(self._file, "".join(f"{word} {each.producer} {each.number}\n" for each in messages).encode())


class SentLine(NamedTuple):
    """One line of a producer's file."""

    outcome: str
    number: int


class SeenLine(NamedTuple):
    """A message was presented."""

    message: Identity
    redelivered: bool


class SettledLine(NamedTuple):
    """A consumer's call or its outcome: TRYING, DONE, MAYBE or UNDONE."""

    word: str
    message: Identity


class AgainLine(NamedTuple):
    """The client was started again; what follows is its next life."""


Line = SentLine | SeenLine | SettledLine | AgainLine


def read_head(file: Path) -> Head:
    """The head of one client's file.

    Raises:
        msgspec.DecodeError: the file has no head.
    """
    with file.open("rb") as lines:
        head: Head = _decode_head(lines.readline())
        return head


def read_records(file: Path) -> tuple[Head, Iterator[Line]]:
    """The head and the lines of one client's file; lines that were cut off are left out.

    Raises:
        msgspec.DecodeError: the file has no head.
        ValueError: a line is none of those above.
    """
    head = read_head(file)
    return head, (line for line, _ in read_lines(file, 0))


def read_lines(file: Path, after: int) -> Iterator[tuple[Line, int]]:
    """The lines of one client's file from a place on, each with the place behind it.

    Args:
        after: such a place; 0 for the first line behind the head.

    Raises:
        ValueError: a line is none of those above.
    """
    with file.open("rb") as lines:
        lines.seek(after)
        if after == 0:
            after += len(lines.readline())
        for text in lines:
            if not text.endswith(b"\n"):
                return
            after += len(text)
            line = text.decode().rstrip("\n")
            if not line.endswith(CUT_OFF):
                yield read_line(line), after


def read_line(text: str) -> Line:
    """One line, without its end.

    Raises:
        ValueError: it is none of those above.
    """
    match text.split(" "):
        case [("sending" | "stored" | "refused" | "unsure") as outcome, number]:
            return SentLine(outcome, int(number))
        case ["seen", producer, number, redelivered]:
            return SeenLine(Identity(producer, int(number)), redelivered == "1")
        case [("trying" | "done" | "maybe" | "undone") as word, producer, number]:
            return SettledLine(word, Identity(producer, int(number)))
        case ["again"]:
            return AgainLine()
    raise ValueError(f"no line of a client's record: {text!r}")
