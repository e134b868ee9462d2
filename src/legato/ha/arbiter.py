"""The interface of what decides which process is the primary: a lock on a store, or the claim on a replicated log."""

from collections.abc import Callable
from typing import Protocol

from legato.ha.lock import Holder


class Arbiter(Protocol):
    """Gives the right to begin an epoch to one process at a time. `StoreLock` is one; docstrings there say more."""

    predecessor: Holder | None
    is_on_new_file: bool

    @property
    def held(self) -> bool:
        """True from acquiring to releasing."""

    def try_acquire(self) -> bool:
        """Take the right if that is possible without waiting; True if it is ours now."""

    def acquire_blocking(self) -> bool:
        """Wait until it is ours; False if `cancel` was called."""

    def cancel(self) -> None:
        """End the waiting, from any thread."""

    def retry(self) -> None:
        """Look again whether what is waited for is the right thing; from any thread."""

    def listen_to(self, silence_ms: Callable[[], int]) -> None:
        """Know for how long no heartbeat of the primary has come: who hears them does not take over."""

    def still_mine(self) -> bool:
        """False if it is another's by now, as far as can be told without waiting."""

    def describe(self, epoch: int, listen: str, token: str = "", connections: int = 0) -> None:
        """Let others know who has it."""

    def refresh(self) -> bool:
        """Say again what could not be said; returns whether nothing is left to be said."""

    def holder(self) -> Holder | None:
        """What the last one who had it said of itself."""

    def release(self, why: str = "") -> None:
        """Let go, if it is ours, and say why."""

    def give_back(self) -> None:
        """Let go without having served: who is next still hears of a primary that was killed or crashed."""
