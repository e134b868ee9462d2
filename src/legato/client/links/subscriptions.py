"""Subscriptions of a connection's consumers, and the names of their links (amqp.md A3). Pure."""

from __future__ import annotations

from collections import Counter

from legato.errors import IllegalStateError

_FIRST_SUFFIXES = {
    # (durable, everybody's): what tells the first link's name from the subscription's, and the numbered ones.
    (True, False): ("", "|"),
    (True, True): ("|global", "|global"),
    (False, False): ("|volatile1", "|volatile"),
    (False, True): ("|global-volatile1", "|global-volatile"),
}


class Subscriptions:
    """Counts the links of each shared subscription, so that all have names of their own."""

    def __init__(self) -> None:
        self._unshared: set[str] = set()
        self._active: Counter[tuple[str, bool]] = Counter()
        self._made: Counter[tuple[str, bool]] = Counter()

    def take_unshared(self, name: str) -> str:
        """A consumer of a durable subscription that it has for itself: returns the name of its link.

        Raises:
            IllegalStateError: this connection receives from it already.
        """
        if name in self._unshared or self._active[name, True]:
            raise IllegalStateError(f"The subscription {name!r} has an active consumer; close that first.")
        self._unshared.add(name)
        return name

    def take_shared(self, name: str, *, durable: bool, everybodys: bool) -> str:
        """One more consumer of a shared subscription: returns the name of its link.

        Raises:
            IllegalStateError: this connection has a durable subscription of that name for itself.
        """
        if durable and name in self._unshared:
            raise IllegalStateError(f"The subscription {name!r} has an active consumer that does not share it.")
        key = (name, durable)
        self._active[key] += 1
        self._made[key] += 1
        first, later = _FIRST_SUFFIXES[durable, everybodys]
        number = self._made[key]
        return f"{name}{first}" if number == 1 else f"{name}{later}{number}"

    def release(self, name: str, *, durable: bool, shared: bool) -> None:
        """A consumer has closed."""
        if not shared:
            self._unshared.discard(name)
            return
        key = (name, durable)
        self._active[key] -= 1
        if not self._active[key]:
            # Only now: a name may not come twice while one of them is attached.
            del self._active[key]
            del self._made[key]

    def check_unused(self, name: str) -> None:
        """Before it is ended.

        Raises:
            IllegalStateError: this connection receives from it.
        """
        if name in self._unshared or self._active[name, True]:
            raise IllegalStateError(f"The subscription {name!r} has an active consumer; close that first.")
