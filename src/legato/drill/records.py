"""What clients put on record: a line for each thing that they were told, in a file for each of them.

A client that dies leaves what it wrote. `FLOW` is where messages go: a queue or a topic; `SUBSCRIPTION` is where they
come from: the queue itself, or one of the topic's subscriptions. Producers and numbers say which message it is.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec


class Identity(NamedTuple):
    """Which message: the producer's name and the number that it gave the message, from 1."""

    producer: str
    number: int


class Producing(msgspec.Struct, tag=True):
    """The head of a producer's file. `numbered`: it promises that its resends are not stored twice (promise 1)."""

    producer: str
    flow: str
    numbered: bool = True


class Consuming(msgspec.Struct, tag=True):
    """The head of a consumer's file. `told`: it puts on record for which messages its acknowledgement succeeded."""

    subscription: str
    flow: str
    told: bool = True


Head = Producing | Consuming

STORED, REFUSED, UNSURE = "stored", "refused", "unsure"
"""What became of a send, as the producer was told: with certainty, or not."""
SEEN, DONE, MAYBE = "seen", "done", "maybe"
"""A message was presented to the application; its acknowledgement, or its transaction, succeeded, or perhaps not."""

_decode_head = msgspec.json.Decoder(Head).decode


class RecordWriter:
    """Writes one client's file; what a method has written survives the process."""

    def __init__(self, directory: Path, name: str, head: Head) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(directory / f"{name}.records", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if os.fstat(self._file).st_size == 0:
            os.write(self._file, msgspec.json.encode(head) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    def sent(self, outcome: str, numbers: Sequence[int]) -> None:
        """What the producer was told of its messages: STORED, REFUSED or UNSURE."""
        os.write(self._file, "".join(f"{outcome} {number}\n" for number in numbers).encode())

    def seen(self, message: Identity, redelivered: bool) -> None:
        """The application got a message."""
        os.write(self._file, f"{SEEN} {message.producer} {message.number} {int(redelivered)}\n".encode())

    def done(self, messages: Sequence[Identity], *, surely: bool = True) -> None:
        """The application was told that these are acknowledged; not `surely`: that not all of them are."""
        word = DONE if surely else MAYBE
        os.write(self._file, "".join(f"{word} {each.producer} {each.number}\n" for each in messages).encode())


class SentLine(NamedTuple):
    """One line of a producer's file."""

    outcome: str
    number: int


class SeenLine(NamedTuple):
    """A message was presented."""

    message: Identity
    redelivered: bool


class DoneLine(NamedTuple):
    """A message was acknowledged; not `surely`: perhaps."""

    message: Identity
    surely: bool


def read_records(file: Path) -> tuple[Head, Iterator[SentLine | SeenLine | DoneLine]]:
    """The head and the lines of one client's file; a last line that was cut off is left out.

    Raises:
        msgspec.DecodeError: the file has no head.
        ValueError: a line is none of those above.
    """
    head, *lines = file.read_text().split("\n")[:-1] or [""]
    return _decode_head(head), map(_read_line, lines)


def _read_line(line: str) -> SentLine | SeenLine | DoneLine:
    match line.split(" "):
        case [("stored" | "refused" | "unsure") as outcome, number]:
            return SentLine(outcome, int(number))
        case ["seen", producer, number, redelivered]:
            return SeenLine(Identity(producer, int(number)), redelivered == "1")
        case [("done" | "maybe") as word, producer, number]:
            return DoneLine(Identity(producer, int(number)), word == DONE)
    raise ValueError(f"no line of a client's record: {line!r}")
