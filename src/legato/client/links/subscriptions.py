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
    """Which consumers have which subscriptions, so that all their links have names of their own.

    Who is interrupted in any of these methods releases, and has nothing then; nobody releases what another one has.
    """

    def __init__(self) -> None:
        self._unshared: dict[str, object] = {}
        """Who has it, by its name."""
        self._sharing: dict[tuple[str, bool], set[object]] = {}
        self._made: Counter[tuple[str, bool]] = Counter()

    def take_unshared(self, name: str, owner: object) -> str:
        """A consumer of a durable subscription that it has for itself: returns the name of its link.

        Raises:
            IllegalStateError: this connection receives from it already.
        """
        if self._sharing.get((name, True)) or self._unshared.setdefault(name, owner) is not owner:
            raise in_use(name)
        return name

    def take_shared(self, name: str, owner: object, *, durable: bool, everybodys: bool) -> str:
        """One more consumer of a shared subscription: returns the name of its link.

        Raises:
            IllegalStateError: this connection has a durable subscription of that name for itself.
        """
        if durable and name in self._unshared:
            raise IllegalStateError(f"The subscription {name!r} has an active consumer that does not share it.")
        key = (name, durable)
        self._sharing.setdefault(key, set()).add(owner)
        self._made[key] += 1
        first, later = _FIRST_SUFFIXES[durable, everybodys]
        number = self._made[key]
        return f"{name}{first}" if number == 1 else f"{name}{later}{number}"

    def release(self, name: str, owner: object, *, durable: bool, shared: bool) -> None:
        """A consumer has closed, or is not made after all. May be called again, and by who has taken nothing."""
        if not shared:
            if self._unshared.get(name) is owner:
                del self._unshared[name]
            return
        key = (name, durable)
        sharing = self._sharing.get(key)
        if sharing is None:
            return
        sharing.discard(owner)
        if not sharing:
            # Only now: a name may not come twice while one of them is attached. In this order: see the class.
            self._made.pop(key, None)
            self._sharing.pop(key, None)

    def check_unused(self, name: str) -> None:
        """Before it is ended.

        Raises:
            IllegalStateError: this connection receives from it.
        """
        if name in self._unshared or self._sharing.get((name, True)):
            raise in_use(name)


def in_use(name: str) -> IllegalStateError:
    """A subscription has a consumer that is not closed."""
    return IllegalStateError(f"The subscription {name!r} has an active consumer; close that first.")
