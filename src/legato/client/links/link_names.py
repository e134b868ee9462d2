"""Names of links: a connection attaches one link under a name at a time. Runs in the I/O thread."""

from __future__ import annotations

from typing import Any

from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.subscriptions import in_use
from legato.client.links.unsubscribe_end import UnsubscribeEnd

Named = ReceiverEnd | UnsubscribeEnd


class LinkNames:
    """Who has a name, and who waits for it, first come first served.

    A call that was interrupted leaves its link behind: still to be attached, to be answered, or to be closed. The
    application may ask for the same subscription again at once, and a broker that sees a name twice ends the
    connection. So the next link of a name waits here until the one before it is closed, over failovers too.

    Names of other links than those that receive from a subscription or end one are never used again.
    """

    def __init__(self) -> None:
        self._ends: dict[str, list[Named]] = {}

    def take(self, end: Named) -> None:
        """Give `end` its name, now or when those before it are closed.

        Raises:
            IllegalStateError: a consumer has the name, or is to have it, that does not close.
        """
        before = self._ends.setdefault(end.name, [])
        if any(isinstance(other, ReceiverEnd) and not other.closing for other in before):
            raise in_use(end.name)
        before.append(end)

    def lets(self, end: Any) -> bool:
        """Whether `end` may be attached now."""
        return not isinstance(end, Named) or end in self._ends.get(end.name, [])[:1]

    def give_back(self, end: Named) -> Named | None:
        """Its link is closed, or never will be attached; returns whose turn it is now, if anybody waited for that."""
        ends = self._ends.get(end.name, [])
        if end not in ends:
            return None
        had_it = ends[0] is end
        ends.remove(end)
        if not ends:
            del self._ends[end.name]
            return None
        following = ends[0]
        if isinstance(end, UnsubscribeEnd) and isinstance(following, UnsubscribeEnd):
            following.found = following.found or end.found
        return following if had_it else None
