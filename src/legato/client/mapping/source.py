"""Sources of receivers: a queue or a subscription, and its AMQP source (amqp.md A3). Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.amqp import names
from legato.amqp.codec.types import Described, Int, ULong
from legato.amqp.engine.terminus import Terminus
from legato.client.messages.destinations import Destination, Queue
from legato.errors import InvalidDestinationError, InvalidSelectorError, JMSError
from legato.quoting import is_unicode

SELECTOR_KEY = "jms-selector"
NO_LOCAL_KEY = "no-local"
_SELECTOR = ULong(0x0000468C00000004)
_NO_LOCAL = ULong(0x0000468C00000003)
_UNSETTLED_STATE = 2
_OUTCOMES = ["amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list"]
ATTACH_BYTES = 512
"""What the attach of a link takes besides its texts and its claims, at most."""
PRIORITY_MAX = 2**31 - 1
PREFETCH_MAX = 1_000_000
COMES_BACK_S = 3600
"""How long a broker is asked to keep, for a client that was cut off, what is not durable; it keeps that no longer than
its own `reconnect_timeout_s`."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, or a subscription to a topic."""

    destination: Destination
    selector: str | None = None
    no_local: bool = False
    durable: bool = False
    """It is a durable subscription."""
    shared: bool = False
    everybodys: bool = False
    """It is shared by clients without an id."""
    browsed: bool = False
    """Messages are only looked at."""
    priority: int = 0
    """Consumers of higher priority come first."""

    def terminus(self) -> Terminus:
        """The source to attach with."""
        return Terminus(
            address=self.destination.name,
            durable=_UNSETTLED_STATE if self.durable else 0,
            expiry_policy="never" if self.durable else "link-detach",
            timeout_s=0 if self.durable or isinstance(self.destination, Queue) else COMES_BACK_S,
            # Qpid JMS gives durable subscriptions this mode too, and a subscription is to be the same for both.
            distribution_mode="copy" if self.browsed or self.durable else None,
            capabilities=self._capabilities(),
            filters=self._filters(),
            outcomes=_OUTCOMES,
        )

    def _capabilities(self) -> list[str]:
        shared = ["shared"] if self.shared else []
        return [self.destination.capability, *shared, *(["global"] if self.everybodys else [])]

    def _filters(self) -> dict[str, Any]:
        filters: dict[str, Any] = {}
        if self.no_local:
            filters[NO_LOCAL_KEY] = Described(_NO_LOCAL, "NoLocalFilter{}")
        if self.selector:
            filters[SELECTOR_KEY] = Described(_SELECTOR, self.selector)
        return filters

    def properties(self) -> dict[str, object]:
        """Properties of the link."""
        return {names.CONSUMER_PRIORITY: Int(self.priority)} if self.priority else {}

    def check_answer(self, remote: Terminus) -> None:
        """Compare with what the broker says it gives.

        Raises:
            JMSError: it does not apply the selector.
        """
        if self.selector and SELECTOR_KEY not in remote.filters:
            raise JMSError(f"The broker does not apply selectors to {self.destination.name}.", code="NO_SELECTOR")


def checked_selector(selector: object) -> str | None:
    """`selector`, if it can be sent; None if there is none.

    Raises:
        InvalidSelectorError: it is no text.
    """
    if selector is None or selector == "":
        return None
    if not isinstance(selector, str) or not is_unicode(selector):
        raise InvalidSelectorError(f"A selector is Unicode text, such as \"color = 'red'\"; not {selector!r}.")
    return selector


def checked_priority(priority: object) -> int:
    """`priority`, if a consumer can have it.

    Raises:
        JMSError: it cannot.
    """
    if not isinstance(priority, int) or not -PRIORITY_MAX - 1 <= priority <= PRIORITY_MAX:
        raise JMSError(f"The priority of a consumer is a whole number of 32 bits, not {priority!r:.80}.")
    return priority


def checked_prefetch(prefetch: object) -> int:
    """`prefetch`, if a consumer can have it; 0 if it is negative.

    Raises:
        JMSError: it cannot.
    """
    if not isinstance(prefetch, int) or prefetch > PREFETCH_MAX:
        raise JMSError(f"prefetch is a whole number up to {PREFETCH_MAX:,}, not {prefetch!r:.80}.")
    return max(prefetch, 0)


def checked_name(name: object) -> str:
    """`name`, if a subscription can have it.

    Raises:
        InvalidDestinationError: it cannot; the bar separates the parts of such a subscription's names on the wire.
    """
    if not isinstance(name, str) or not name or "|" in name or not is_unicode(name):
        raise InvalidDestinationError(f"A subscription's name is a text without '|', not {name!r}.")
    return name
