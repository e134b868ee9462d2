"""Authorisation of management requests: what each operation demands of who asks for it."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from legato.core.address_prefixes import (
    ASSIGNMENT_PREFIX,
    DURABLE_PREFIX,
    QUEUE_PREFIX,
    TOPIC_PREFIX,
    VOLATILE_PREFIX,
)
from legato.core.broker import Broker
from legato.server.access.permissions import BROWSE, BULK, CREATE, DELETE, RECEIVE, SEND, Level, Rights
from legato.server.links.subscription_names import (
    assignment_name,
    durable_of_all,
)

_VIEWING = ("read", "query")
_ADMINISTERING = ("reload", "switchover", "update", "copy")
_OPERATING = ("purge", "pause", "resume")


class Authorisation:
    """Demands permissions for requests, before they are looked at any further."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def demand(self, rights: Rights, arguments: dict[str, Any]) -> None:
        """See that a request is allowed; one that makes no sense is left to who performs it.

        Raises:
            Denied: it is not; the message names the permission that is missing.
        """
        operation = arguments.get("operation")
        operation = operation.lower() if isinstance(operation, str) else ""
        kind = str(arguments.get("type"))
        if kind == "group" and operation == "read":
            return  # Links tell everybody where an address is.
        if kind == "assignment":
            self._demand_for_assignment(rights, operation, arguments)
        elif kind == "stage":
            self._demand_for_stage(rights, operation)
        elif operation in _VIEWING:
            rights.demand_level(Level.VIEW)
        elif operation in ("create", "delete"):
            # Whoever operates the broker may, and so may who has the permission on the address.
            if not rights.reaches(Level.OPERATE):
                address, topic = self._address_of(arguments.get("name"), kind == "topic")
                rights.demand(CREATE if operation == "create" else DELETE, address, topic)
        elif operation == "move":
            self._demand_for_move(rights, arguments)
        elif operation in _OPERATING:
            rights.demand_level(Level.OPERATE)
        elif operation == "edit":
            # Whoever may take messages and send others in their place.
            address, topic = self._address_of(arguments.get("name"), False)
            rights.demand(RECEIVE, address, topic)
            rights.demand(SEND, address, topic)
        elif operation in _ADMINISTERING:
            rights.demand_level(Level.ADMINISTER)
        else:
            rights.demand_level(Level.VIEW)

    def _demand_for_move(self, rights: Rights, arguments: dict[str, Any]) -> None:
        """Who moves messages can read them then: that takes as much as to read them where they are."""
        rights.demand_level(Level.OPERATE)
        address, topic = self._address_of(arguments.get("name"), str(arguments.get("type")) == "topic")
        if not rights.may(BROWSE, address, topic):
            rights.demand(RECEIVE, address, topic)
        to, to_topic = self._address_of(arguments.get("to"), None)
        rights.demand(SEND, to, to_topic)
        if self._broker.directory.lookup(to) is None and not rights.reaches(Level.OPERATE):
            rights.demand(CREATE, to, to_topic)

    def _demand_for_assignment(self, rights: Rights, operation: str, arguments: dict[str, Any]) -> None:
        if operation in ("open", "resume"):
            address, topic = str(arguments.get("address", "")), arguments.get("topic") is True
            rights.demand(BULK, address, topic)
            if topic or address.startswith(TOPIC_PREFIX):
                self._demand_for_source(rights, str(arguments.get("subscription", "")))
            there = self._broker.directory.find_topic if topic else self._broker.directory.find_queue
            if operation == "open" and there(address) is None:
                rights.demand(CREATE, address, topic)
        else:
            rights.demand(BULK, *self._address_of(arguments.get("name"), False))

    def _demand_for_source(self, rights: Rights, name: str) -> None:
        """Under another address a subscription is replaced; and it is what says which topic an assignment is of."""
        source = durable_of_all(name)
        subscription = self._broker.subscriptions.find(source)
        if subscription is not None:
            rights.demand(BULK, subscription.address, True)
            return
        left = self._broker.assignments.find(assignment_name(name, source))
        if left is not None and left.last > left.acknowledged:
            # What it took and still has is of a topic that nobody knows any more.
            rights.demand(BULK, source, True)

    def _demand_for_stage(self, rights: Rights, operation: str) -> None:
        """Where its rows go is looked at when a batch is published, as that is when it is known."""
        if operation == "query":
            rights.demand_level(Level.VIEW)
        elif operation == "forget":
            rights.demand_level(Level.OPERATE)
        elif not any(BULK in grant.may for role in rights.roles for grant in role.grants):
            rights.demand(BULK, "#")

    def _address_of(self, name: object, topic: bool | None) -> tuple[str, bool | None]:
        """The address that a request is about: of a subscription its topic's, of an assignment its source's."""
        text = name if isinstance(name, str) else ""
        if text.startswith(ASSIGNMENT_PREFIX):
            text = unquote(text.removeprefix(ASSIGNMENT_PREFIX).partition("/")[2])
            topic = False
        if text.startswith((DURABLE_PREFIX, VOLATILE_PREFIX)):
            subscription = self._broker.subscriptions.find(text)
            return (subscription.address if subscription is not None else text), True
        if text.startswith(TOPIC_PREFIX):
            return text.removeprefix(TOPIC_PREFIX), True
        if text.startswith(QUEUE_PREFIX):
            return text.removeprefix(QUEUE_PREFIX), False
        return text, topic
