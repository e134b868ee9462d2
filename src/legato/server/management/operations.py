"""Management operations, by operation and type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

import msgspec

from legato import limits
from legato.core.address_prefixes import DURABLE_PREFIX, VOLATILE_PREFIX
from legato.core.broker import Broker
from legato.core.facts import Kind
from legato.core.queues import Queue
from legato.core.topics import Topic
from legato.server.access.permissions import Level, Rights
from legato.server.limits.accounts import Holdings
from legato.server.links.damaged_queues import DamagedQueues
from legato.server.links.filters import compiled
from legato.server.links.link_closing import LinkCloser
from legato.server.links.link_roles import Node
from legato.server.links.nodes import Nodes
from legato.server.links.refused import NOT_ALLOWED, NOT_FOUND, Refused
from legato.server.management import connection_views
from legato.server.management.assignments import Pipelines
from legato.server.management.authorisation import Authorisation
from legato.server.management.bulk_process import BulkProcess
from legato.server.management.requests import Pending, Rejection, Settled, Spread, number, properties, text, texts
from legato.server.management.staged_batches import Stages
from legato.server.management.views import Inspector
from legato.server.shell import Peer

PAGE_ROWS_MAX = 1000
PATTERN_CHARACTERS_MAX = 255
"""It is held against the name of every queue."""
INTERVALS = ("heartbeat_interval_s", "activation_interval_s")
"""What an update of the broker may name (CONTRACT B20)."""
_SUBSCRIPTIONS = (DURABLE_PREFIX, VOLATILE_PREFIX)


_OWN: dict[int, str] = {
    Kind.SCHEDULE: "it holds the delayed messages of all addresses until they are due.",
    Kind.ASSIGNMENT: "it holds what a pipeline has taken; `release`, of type `assignment`, gives that back.",
}
"""Kinds of queues that only the broker takes messages from, and what they hold."""


class Operations:
    """Performs the operation of a request.

    Args:
        reload: reads the configuration again and returns which changes need a restart; raises ConfigError if that
            cannot be used.
        switch_over: has a backup take over; raises Refused if there is none.
        update: changes what it is given of the broker's own settings, and returns all that it can change; raises
            ConfigError if that cannot be.
        pipelines: performs what is asked of type `assignment`.
        stages: performs what is asked of type `stage`.
        bulk: gives tickets for copies of the store.
        spread: does work in steps, some in each turn of the loop.
        peers: those that are connected.
        whereabouts: see `Membership.whereabouts`.
    """

    def __init__(
        self,
        broker: Broker,
        nodes: Nodes,
        closer: LinkCloser,
        inspector: Inspector,
        reload: Callable[[], list[str]],
        switch_over: Callable[[], dict[str, Any]],
        update: Callable[[dict[str, float]], dict[str, float]],
        pipelines: Pipelines,
        stages: Stages,
        bulk: BulkProcess,
        spread: Spread,
        peers: Set[Peer],
        damaged: DamagedQueues,
        whereabouts: Callable[[Iterable[str], Callable[[dict[str, Any]], None]], Iterator[None]],
    ) -> None:
        self._broker = broker
        self._authorisation = Authorisation(broker)
        self._nodes = nodes
        self._closer = closer
        self._inspector = inspector
        self._reload = reload
        self._spread = spread
        self._peers = peers
        self._damaged = damaged
        self._whereabouts = whereabouts
        self._update_settings = update
        self._bulk = bulk
        self._pipelines = pipelines
        self._stages = stages
        self._by_name: dict[str, Callable[[dict[str, Any]], Any]] = {
            "create": self._create,
            "delete": self._delete,
            "read": self._read,
            "query": self._query,
            "purge": self._purge,
            "move": self._move,
            "pause": lambda arguments: self._pause(arguments, True),
            "resume": lambda arguments: self._pause(arguments, False),
            "edit": self._edit,
            "reload": self._reload_settings,
            "update": self._update,
            "switchover": lambda arguments: switch_over(),
            "copy": self._copy,
        }

    def perform(
        self,
        arguments: dict[str, Any],
        rights: Rights | None = None,
        realm: str = "",
        holdings: Holdings | None = None,
    ) -> Any:
        """The result, as JSON can hold it; or a `Pending`.

        Args:
            rights: what the asking user may do; None if everything.
            realm: see `Peer.realm`.
            holdings: what counts against the asking peer's limits; None if nothing does.

        Raises:
            Rejection: the request cannot be understood.
            Refused, Refusal: it cannot be done, or is not allowed.
            ConfigError: the configuration cannot be used.
        """
        if rights is not None:
            self._authorisation.demand(rights, arguments)
        operation = arguments.get("operation")
        if arguments.get("type") == "user" and operation == "read":
            return _describe(rights)
        if arguments.get("type") == "group" and operation == "read":
            pending = Pending("", "")
            addresses = texts(arguments, "addresses", PAGE_ROWS_MAX)
            self._do_in_steps(self._whereabouts(addresses, lambda told: pending.done(told)), pending)
            return pending
        if arguments.get("type") == "assignment" and isinstance(operation, str):
            return self._pipelines.perform(operation.lower(), arguments, rights, realm)
        if arguments.get("type") == "stage" and isinstance(operation, str):
            return self._stages.perform(operation.lower(), arguments, rights, realm, holdings)
        perform = self._by_name.get(operation.lower()) if isinstance(operation, str) else None
        if perform is None:
            raise Rejection(f"operation is {operation!r}; there are {', '.join(self._by_name)}.")
        return perform(arguments)

    def _do_in_steps(self, work: Iterator[None], pending: Pending) -> None:
        self._spread(work, pending.fail, lambda: pending.is_awaited())

    # -- what is meant -------------------------------------------------------------------------------------------

    def _node(self, arguments: dict[str, Any]) -> Node:
        """The queue, topic or subscription that is named; it must be there."""
        name, kind = text(arguments, "name"), _type(arguments)
        if kind == "subscription" or name.startswith(_SUBSCRIPTIONS):
            node: Node | None = self._broker.subscriptions.find(name)
        elif kind == "topic":
            node = self._broker.directory.find_topic(name)
        else:
            node = self._broker.directory.find_queue(name)
        if node is None:
            raise Refused(NOT_FOUND, f"There is no {kind} {name!r}.")
        return node

    def _usable(self, arguments: dict[str, Any]) -> Node:
        """The same, to do something with it: the queues of delayed messages and of pipelines are the broker's own."""
        node = self._node(arguments)
        if not isinstance(node, Topic) and (why := _OWN.get(node.kind)):
            raise Refused(NOT_ALLOWED, f"{node.name!r} is the broker's own: {why}")
        return node

    def _queue(self, arguments: dict[str, Any]) -> Queue:
        node = self._usable(arguments)
        if isinstance(node, Topic):
            raise Rejection("Topics hold no messages: name a queue or a subscription.")
        return node

    # -- operations ----------------------------------------------------------------------------------------------

    def _create(self, arguments: dict[str, Any]) -> Any:
        name, kind = text(arguments, "name"), _type(arguments)
        if kind == "subscription":
            raise Rejection("Subscriptions are made by subscribing.")
        node = self._nodes.create(name, topic=kind == "topic")
        return {"name": node.address, "type": kind}

    def _delete(self, arguments: dict[str, Any]) -> Any:
        node = self._usable(arguments)
        waiting = None if isinstance(node, Topic) else node.depth
        self._closer.delete(node)
        self._damaged.forget(node.id)
        return {"name": node.address if isinstance(node, Topic) else node.name, "messages": waiting}

    def _read(self, arguments: dict[str, Any]) -> Any:
        if _type(arguments) == "broker":
            given = "count" in arguments
            return self._inspector.broker(min(number(arguments, "count", 0), PAGE_ROWS_MAX) if given else None)
        return self._inspector.describe(self._node(arguments))

    def _query(self, arguments: dict[str, Any]) -> Any:
        offset, count = number(arguments, "offset", 0), number(arguments, "count", PAGE_ROWS_MAX)
        kind = arguments.get("type")
        pending = Pending("", "")

        def answer(rows: list[Any], more: bool) -> None:
            pending.done({"results": msgspec.to_builtins(rows), "more": more})

        if kind == "connection":
            self._do_in_steps(connection_views.steps(self._peers, offset, min(count, PAGE_ROWS_MAX), answer), pending)
            return pending
        if kind is not None:
            kind = _type(arguments)
        pattern = arguments.get("match", "")
        if not isinstance(pattern, str) or len(pattern) > PATTERN_CHARACTERS_MAX:
            raise Rejection(f"match is a pattern of addresses, of at most {PATTERN_CHARACTERS_MAX} characters.")
        self._do_in_steps(self._inspector.steps(kind, pattern, offset, min(count, PAGE_ROWS_MAX), answer), pending)
        return pending

    def _purge(self, arguments: dict[str, Any]) -> Any:
        queue = self._queue(arguments)
        pending = Pending(queue.name, "purged", lambda: self._damaged.why(queue.id))
        self._broker.administration.purge(queue, pending)
        return pending

    def _move(self, arguments: dict[str, Any]) -> Any:
        queue = self._queue(arguments)
        to = self._target(text(arguments, "to"))
        if to is queue:
            raise Rejection("A queue's messages cannot be moved to itself.")
        selector = arguments.get("selector", "")
        if not isinstance(selector, str):
            raise Rejection("selector is a string.")
        limit = number(arguments, "limit", 0) or 1 << 62
        pending = Pending(queue.name, "moved", lambda: self._damaged.why(queue.id))
        matches = compiled(selector) if selector.strip() else None
        self._broker.administration.move(
            queue, to, pending, matches=matches, limit=limit, properties=properties(arguments)
        )
        return pending

    def _target(self, name: str) -> Node:
        """Target of a move: the node of that name, or an existing subscription."""
        if name.startswith(_SUBSCRIPTIONS):
            subscription = self._broker.subscriptions.find(name)
            if subscription is None:
                raise Refused(NOT_FOUND, f"There is no subscription {name!r}.")
            return subscription
        return self._nodes.find(name)

    def _pause(self, arguments: dict[str, Any], paused: bool) -> Any:
        queue = self._queue(arguments)
        self._broker.administration.pause(queue, paused)
        return {"name": queue.name, "paused": paused}

    def _update(self, arguments: dict[str, Any]) -> Any:
        if _type(arguments) != "broker":
            raise Rejection("Only the type broker can be updated; settings of addresses are in the configuration.")
        given = {name: arguments[name] for name in INTERVALS if name in arguments}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Rejection(f"{name} is a number of seconds.")
            if isinstance(value, int) and abs(value) > limits.SECONDS_MAX:  # which may be too large for a float
                raise Rejection(f"{name} is at most {limits.SECONDS_MAX} seconds.")
        return self._update_settings(given)

    def _edit(self, arguments: dict[str, Any]) -> Any:
        """Put on record that a message of a queue is edited: it is replaced by another one in a transaction."""
        queue = self._queue(arguments)
        return {"name": queue.name, "message_id": text(arguments, "message_id")}

    def _copy(self, arguments: dict[str, Any]) -> Any:
        """A ticket for a copy of the store, users included; given when the store's file has all that is committed."""
        if arguments.get("type") != "store":
            raise Rejection("Only the type store can be copied.")
        ticket = self._bulk.copy_ticket(self._bulk.holder_in(arguments))
        return Settled(lambda: self._bulk.answer("", ticket))

    def _reload_settings(self, arguments: dict[str, Any]) -> Any:
        return {"needs_restart": self._reload()}


def _describe(rights: Rights | None) -> dict[str, Any]:
    """Who asks, and what this user may do by management; anybody everything where there are no roles."""
    if rights is None:
        return {"user": "", "management": Level.ADMINISTER.name.lower()}
    level = max((role.management for role in rights.roles), default=Level.NONE)
    return {"user": rights.user, "management": level.name.lower()}


def _type(arguments: dict[str, Any]) -> str:
    kind = arguments.get("type", "queue")
    if kind not in ("queue", "topic", "subscription", "broker"):
        raise Rejection(f"type is {kind!r}; there are queue, topic, subscription and broker.")
    return str(kind)
