"""Node of an address: a queue or a topic, by capability, by prefix, or by what exists."""

from __future__ import annotations

from collections.abc import Iterable

from legato.core.address_prefixes import OWN_PREFIXES, QUEUE_PREFIX, TEMPORARY_PREFIXES, TOPIC_PREFIX, UNFIT_PREFIXES
from legato.core.broker import Broker
from legato.core.topics import Topic
from legato.server.access.permissions import CREATE
from legato.server.limits.accounts import Holdings
from legato.server.limits.names import Names
from legato.server.links.link_roles import Node
from legato.server.links.membership import Membership
from legato.server.links.refused import NOT_ALLOWED, NOT_FOUND, Refused
from legato.server.shell import Rights

_TOPIC_CAPABILITIES = {"topic", "temporary-topic"}
_QUEUE_CAPABILITIES = {"queue", "temporary-queue"}


class Nodes:
    """Finds the node of an address, or creates it where that is allowed."""

    def __init__(self, broker: Broker, names: Names, membership: Membership) -> None:
        self._broker = broker
        self._membership = membership
        self._names = names

    def find(
        self,
        address: str,
        capabilities: Iterable[str] = (),
        rights: Rights | None = None,
        operation: str = "",
        holdings: Holdings | None = None,
    ) -> Node:
        """The node of `address`.

        With `rights`, what its owner wants to do there must be allowed, and also to create it if it is not there. With
        `holdings`, what is created counts for whoever has them.

        A capability says which kind is meant; so does a prefix `topic://` or `queue://`, for clients that cannot give
        capabilities. Without either it is what there is under that name, and else a queue (amqp.md A14).

        Raises:
            Refused: the name is the broker's own, or a temporary destination that is gone.
            Elsewhere: another group of brokers serves it.
            UnfitName: there is no such node yet, and none can have that name.
            LimitExceeded: there is no such node yet, and whose holdings these are made too many.
            Refusal: the core has no such node and makes none, or it is not allowed.
        """
        topic = wants_topic(capabilities)
        if address.startswith(TOPIC_PREFIX):
            address, topic = address.removeprefix(TOPIC_PREFIX), True
        elif address.startswith(QUEUE_PREFIX):
            address, topic = address.removeprefix(QUEUE_PREFIX), False
        if not address:
            raise Refused(NOT_FOUND, "The address is empty.")
        if address.startswith((TOPIC_PREFIX, QUEUE_PREFIX)):
            # A queue of such a name would have the record of a topic in the store.
            raise Refused(NOT_ALLOWED, f"{address!r} is no name for a queue or topic.")
        if address.startswith(OWN_PREFIXES):
            raise Refused(NOT_ALLOWED, f"{address!r} is a name of the broker's own.")
        if rights is not None:
            self._demand(rights, operation, address, topic)
        node: Node | None
        if address.startswith(TEMPORARY_PREFIXES):
            node = self._broker.directory.lookup(address)
            if node is None:
                self._membership.demand_temporary(address)
                raise Refused(NOT_FOUND, f"The temporary destination {address!r} is gone.")
            return node
        self._membership.demand(address)
        directory = self._broker.directory
        if topic is None:
            node = directory.lookup(address)
        else:
            node = directory.find_topic(address) if topic else directory.find_queue(address)
        if node is not None:
            return node
        self._names.check(address, "a topic" if topic else "a queue")
        if holdings is not None:
            holdings.create()
        return directory.topic(address) if topic else directory.queue(address)

    def _demand(self, rights: Rights, operation: str, address: str, topic: bool | None) -> None:
        directory = self._broker.directory
        if topic is None:
            node = directory.lookup(address)
            topic = isinstance(node, Topic)
            if not rights.may(operation, address, topic):
                # What is there is not told to who may do nothing with it.
                rights.demand(operation, address)
        else:
            node = directory.find_topic(address) if topic else directory.find_queue(address)
        rights.demand(operation, address, topic)
        if node is None and not address.startswith(TEMPORARY_PREFIXES):
            rights.demand(CREATE, address, topic)

    def create(self, address: str, *, topic: bool) -> Node:
        """The queue or topic of that name, made if there is none, whatever its settings say.

        Raises:
            Refused: the name is one that the broker gives.
            Elsewhere: another group of brokers serves it.
            UnfitName: there is no such node yet, and none can have that name.
        """
        if not address or address.startswith(UNFIT_PREFIXES):
            raise Refused(NOT_ALLOWED, f"{address!r} is no name for a queue or topic.")
        self._membership.demand(address)
        directory = self._broker.directory
        node = directory.find_topic(address) if topic else directory.find_queue(address)
        if node is not None:
            return node
        self._names.check(address, "a topic" if topic else "a queue")
        return directory.create_topic(address) if topic else directory.create_queue(address)


def wants_topic(capabilities: Iterable[str]) -> bool | None:
    """Kind of node that capabilities name: a topic, a queue, or (None) neither."""
    given = set(capabilities)
    if given & _TOPIC_CAPABILITIES:
        return True
    return False if given & _QUEUE_CAPABILITIES else None
