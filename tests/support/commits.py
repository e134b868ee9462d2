"""Commits that end, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Collection

from legato.core.commit import Commit
from legato.core.effects import Effect
from legato.core.facts import AnyFact
from legato.core.outcome import Change, Outcome, RefusedCommit
from legato.core.producers import Producer
from legato.core.queues import Queue


class Numbers:
    """Numbered producers that note what is refused."""

    def __init__(self) -> None:
        self.lost: list[tuple[int, int]] = []
        self.refused: list[tuple[Producer, int]] = []

    def lose(self, producer: int, number: int) -> None:
        self.lost.append((producer, number))

    def refuse_number(self, producer: Producer, number: int) -> None:
        self.refused.append((producer, number))


class Refusal:
    """A refused commit of these facts, and what it leads to."""

    def __init__(
        self,
        facts: Collection[AnyFact] = (),
        *,
        queues: Collection[Queue] = (),
        lost: Collection[tuple[int, int]] = (),
        rolled_back: dict[bytes, Change] | None = None,
        detailed: bool = False,
    ) -> None:
        self.effects: list[Effect] = []
        self.next = Commit()
        self.producers = Numbers()
        self.commit = RefusedCommit(
            list(facts),
            queues,
            set(lost),
            rolled_back or {},
            "no room",
            retry=self.next,
            effects=self.effects,
            producers=self.producers,
            detailed=detailed,
        )


class _Change:
    def __init__(self, durable: Callable[[Outcome], None]) -> None:
        self._durable = durable

    def durable(self, outcome: Outcome) -> None:
        self._durable(outcome)

    def refused(self, refusal: RefusedCommit) -> None:
        """Nothing."""


def change_of(*, durable: Callable[[Outcome], None] = lambda outcome: None) -> Change:
    """A change that does this once it is durable, and nothing if it is refused."""
    return _Change(durable)
