"""Watch on the memory that connections hold: reading stops for those who hold most, above the mark."""

from __future__ import annotations

from collections.abc import Callable

from legato.clock import Clock
from legato.server.limits.accounts import Accounts
from legato.server.limits.memory_mark import HeldMemory, MemoryMark
from legato.server.shell import Peer, Shell

GROWTH_REVIEWED = 1.02
"""Between two ticks there is a review when so much more is held than at the last one."""
EXCEEDED = "amqp:resource-limit-exceeded"


class MemoryWatch:
    """Applies the decisions of a mark to connections.

    Args:
        expel: closes a connection, and says why, with a condition.
    """

    def __init__(
        self,
        shell: Shell,
        accounts: Accounts,
        mark: MemoryMark[Peer],
        clock: Clock,
        expel: Callable[[Peer, str, str], None],
    ) -> None:
        self.mark = mark
        self._shell = shell
        self._accounts = accounts
        self._clock = clock
        self._expel = expel
        self._reviewed_bytes = 0.0

    @property
    def used_bytes(self) -> int:
        """What connections hold together."""
        return self._accounts.memory_bytes

    def describe(self) -> HeldMemory:
        """What is held, for a status."""
        mark = self.mark
        return HeldMemory(self.used_bytes, mark.mark_bytes, len(mark.stopped), self._accounts.refusals)

    def tick(self) -> None:
        """Time passed: what those hold that are not read from may be less by now."""
        if self.mark.is_above:
            for peer in list(self.mark.stopped):
                peer.measure()
        self._review()

    def grown(self) -> None:
        """A connection holds more than before."""
        used_bytes = self._accounts.memory_bytes
        if self.mark.mark_bytes and used_bytes > max(self.mark.mark_bytes, self._reviewed_bytes * GROWTH_REVIEWED):
            self._review()

    def _review(self) -> None:
        self._reviewed_bytes = self._accounts.memory_bytes
        measures = self.mark.review(self._accounts.memory_bytes, self.holders, self._clock.monotonic_ms() / 1000)
        for peer in measures.stop:
            peer.hold_back(True)
        for peer in measures.go_on:
            peer.hold_back(False)
        if measures.cut_off is not None:
            self.cut_off(measures.cut_off)

    def cut_off(self, peer: Peer) -> None:
        """End the connection of who holds most; one that is over already, and still holds most, at once."""
        if peer.ended:
            peer.drop()
            return
        self._expel(
            peer,
            "it holds most of what all may hold in memory together (limits.memory), and there is no relief",
            EXCEEDED,
        )

    def holders(self) -> list[tuple[Peer, int]]:
        """Connections with what each of them holds, also those that are over and have not taken what was written."""
        return [(peer, peer.holdings.memory_bytes) for peer in self._shell.peers]
