"""Container registry: one connection for a container id that asks for it (AMQP sole-connection; amqp.md A1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from legato.amqp import names
from legato.amqp.codec.types import Symbol, UInt
from legato.amqp.engine.events import Opened
from legato.quoting import escaped, quoted, sentence
from legato.server.client_description import ClientDescription
from legato.server.limits.accounts import LimitExceeded
from legato.server.limits.names import Names, UnfitName
from legato.server.shell import Peer

log = logging.getLogger("legato.opening")

CONNECTION_REDIRECT = "amqp:connection:redirect"
SOLE_CONNECTION = "sole-connection-for-container"
_POLICY = "sole-connection-enforcement-policy"
_DETECTION = "sole-connection-detection-policy"
_REFUSE, _CLOSE_EXISTING = 0, 1
_STRONG = 0
"""Who may be the only connection of its container id knows of all others: one process serves."""


class ContainerRegistry:
    """Answers a connection's open.

    Args:
        return_window_ms: over which time clients are to spread their return, should they lose the broker now.
        give_way: has a peer give way to another one, and says whether that is done; it is asked again until it is.
        names: which container ids there may be.
        redirection: for the hostname of an open, why and where to send its peer, if another group is meant.
    """

    def __init__(
        self,
        return_window_ms: Callable[[], int],
        give_way: Callable[[Peer, int], bool],
        names: Names,
        redirection: Callable[[str | None], tuple[str, dict[str, Any]] | None],
    ) -> None:
        self._return_window_ms = return_window_ms
        self._give_way = give_way
        self._names = names
        self._redirection = redirection
        self._by_container: dict[str, set[Peer]] = {}

    def open(self, peer: Peer, event: Opened, deadline_ms: int) -> bool:
        """A peer opened: answer, or refuse it if it wants to be the only one of its container id and is not.

        Nothing of another one that gives way is left when it is answered: that is taken from the broker in slices.

        Returns:
            False if it is to be asked again, as the time is up.
        """
        if (elsewhere := self._redirection(event.hostname)) is not None:
            why, where = elsewhere
            log.info("- %s is sent to another group: %s", peer.name, quoted(event.hostname or ""))
            peer.amqp.refuse(CONNECTION_REDIRECT, why, where)
            return True
        try:
            self._names.check(event.container_id, "a container")
        except UnfitName as unfit:
            log.warning("! %s refused: %s", peer.name, sentence(unfit))
            peer.amqp.refuse(unfit.condition, str(unfit), {"invalid-field": Symbol("container-id")})
            return True
        if not event.container_id:
            # All that have none would be one: they would take each other's links over, and a durable subscription of
            # theirs would be everybody's.
            log.warning("! %s refused: its container id is empty", peer.name)
            peer.amqp.refuse(
                "amqp:invalid-field",
                "The container id is empty: give each client one of its own (in Jakarta Messaging the client id).",
                {"invalid-field": Symbol("container-id")},
            )
            return True
        # Another user's container of the same id is another one: it is not taken over, nor is what it keeps.
        container = peer.realm + event.container_id
        others = self._by_container.get(container, set()) - {peer}
        if SOLE_CONNECTION in event.desired_capabilities:
            policy = _CLOSE_EXISTING if event.properties.get(_POLICY) == _CLOSE_EXISTING else _REFUSE
            stated = {_DETECTION: UInt(_STRONG), _POLICY: UInt(policy)}
            peer.amqp.settings.properties = peer.amqp.settings.properties | stated
        if others and SOLE_CONNECTION in event.desired_capabilities:
            if event.properties.get(_POLICY) != _CLOSE_EXISTING:
                log.warning("! %s refused: %s is connected already", peer.name, quoted(container))
                peer.amqp.refuse(
                    "amqp:invalid-field",
                    f"The client id {event.container_id!r} is in use by another connection.",
                    {"invalid-field": Symbol("container-id")},
                )
                return True
            for other in others:
                if not other.is_cut_off:
                    log.info("- %s gives way: %s opened as %s too", other.name, peer.name, quoted(container))
                if not self._give_way(other, deadline_ms):
                    return False
        try:
            peer.begin_holdings()
        except LimitExceeded as exceeded:
            peer.amqp.refuse(exceeded.condition, str(exceeded))
            return True
        peer.container = container
        product = event.properties.get("product")
        peer.product = product if isinstance(product, str) else ""
        peer.client = ClientDescription.of(event.properties)
        self._by_container.setdefault(container, set()).add(peer)
        peer.established()
        settings = peer.amqp.settings
        settings.properties = settings.properties | {names.RETURN_WINDOW: UInt(self._return_window_ms())}
        peer.amqp.open()
        user = f"user {quoted(peer.user)}" if peer.user else "no user"
        client = escaped(", ".join(filter(None, (user, str(peer.client)))))
        log.info("< %s opened as %s: %s", peer.name, quoted(container), client)
        return True

    def is_connected(self, container: str) -> bool:
        """Whether there is a connection of that container."""
        return container in self._by_container

    def closed(self, peer: Peer) -> None:
        """A peer's connection is over."""
        peers = self._by_container.get(peer.container)
        if peers is not None:
            peers.discard(peer)
            if not peers:
                del self._by_container[peer.container]
