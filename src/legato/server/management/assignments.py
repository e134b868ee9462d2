"""Management of assignments (type `assignment`): take ranges, acknowledge them, and get tickets to read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from legato.bulk.tickets import BODY_BYTES_MAX
from legato.core.assignments import Assigned, Assignment
from legato.core.broker import Broker
from legato.core.facts import Kind
from legato.core.queues import Queue
from legato.core.topics import Topic
from legato.server.access.permissions import Rights
from legato.server.limits.names import Names
from legato.server.links.filters import compiled
from legato.server.links.nodes import Nodes
from legato.server.links.refused import NOT_FOUND, Refused
from legato.server.links.stream_subscriptions import demand_unread
from legato.server.links.subscription_names import assignment_name, durable_of_all
from legato.server.management.bulk_process import BulkProcess
from legato.server.management.requests import Pending, Rejection, Settled, flag, number, text

ASSIGN_MESSAGES_MAX = 100_000
"""So many messages become assigned by one request, so that others have their turn."""
ASSIGN_BYTES_MAX = 256 << 20


class Pipelines:
    """Performs operations of type `assignment`."""

    def __init__(self, broker: Broker, nodes: Nodes, bulk: BulkProcess, names: Names) -> None:
        self._broker = broker
        self._names = names
        self._nodes = nodes
        self._bulk = bulk
        self.by_name: dict[str, Callable[[dict[str, Any]], Any]] = {
            "open": self._open,
            "resume": self._resume,
            "assign": self._assign,
            "begin": self._begin,
            "acknowledge": self._acknowledge,
            "release": self._release,
            "delete": self._delete,
            "ticket": self._ticket,
        }

    def perform(self, operation: str, arguments: dict[str, Any], rights: Rights | None = None, realm: str = "") -> Any:
        """See `Operations.perform`."""
        perform = self.by_name.get(operation)
        if perform is None:
            raise Rejection(f"operation is {operation!r}; of assignments there are {', '.join(self.by_name)}.")
        return perform(arguments)

    def _open(self, arguments: dict[str, Any]) -> Any:
        """The assignment of `subscription` to the queue or topic `address`; only the answered `fence` counts now.

        With `existing`, a queue or topic that is not there is not created. With `renew`, the assignment takes from the
        queue that is there now if the former one was deleted. With `tells`, the run will tell by `begin` what it reads.
        """
        subscription, address = text(arguments, "subscription"), text(arguments, "address")
        selector = arguments.get("selector", "")
        if not isinstance(selector, str):
            raise Rejection("selector is a string.")
        selector = str(selector)
        if selector.strip():
            compiled(selector)
        topic = flag(arguments, "topic")
        if flag(arguments, "existing") and not (
            self._broker.directory.find_topic(address) if topic else self._broker.directory.find_queue(address)
        ):
            raise Refused(NOT_FOUND, f"There is no {'topic' if topic else 'queue'} {address!r}.")
        source = self._source(subscription, address, selector, topic=topic)
        name = assignment_name(subscription, source.name)
        self._names.check(subscription, "a pipeline", lambda: self._broker.assignments.find(name) is not None)
        assignment = self._broker.assignments.open(
            name,
            source,
            latest=flag(arguments, "latest"),
            renew=flag(arguments, "renew"),
            tells=flag(arguments, "tells"),
        )
        return {"name": name, "source": source.name} | _shown(self._broker.assignments.stand(assignment))

    def _resume(self, arguments: dict[str, Any]) -> Any:
        """The assignment of `subscription` to `address`, whose queue was deleted: what it took is still to be done.

        If its queue is there, `source` names it, and nothing has happened.
        """
        subscription, address = text(arguments, "subscription"), text(arguments, "address")
        source = durable_of_all(subscription) if flag(arguments, "topic") else address
        assignment = self._assignment({"name": assignment_name(subscription, source)})
        if self._broker.assignments.has_source(assignment):
            return {"name": assignment.queue.name, "source": source} | _shown(
                self._broker.assignments.stand(assignment)
            )
        self._broker.assignments.resume(assignment)
        return {"name": assignment.queue.name, "source": ""} | _shown(self._broker.assignments.stand(assignment))

    def _source(self, subscription: str, address: str, selector: str, *, topic: bool) -> Queue:
        node = self._nodes.find(address, ["topic"] if topic else ["queue"])
        if isinstance(node, Topic):
            stored = durable_of_all(subscription)
            self._names.check(
                subscription, "a subscription", lambda: self._broker.subscriptions.find(stored) is not None
            )
            demand_unread(self._broker, subscription, node, selector)
            return self._broker.subscriptions.subscribe(
                node,
                stored,
                container="",
                selector=selector,
                no_local=False,
                durable=True,
                shared=True,
            )
        if selector.strip():
            raise Rejection("selector is for topics only: a queue's messages that it excludes would never be consumed.")
        return node

    def _assign(self, arguments: dict[str, Any]) -> Any:
        limit = min(number(arguments, "limit", ASSIGN_MESSAGES_MAX), ASSIGN_MESSAGES_MAX)
        limit_bytes = min(number(arguments, "limit_bytes", ASSIGN_BYTES_MAX), ASSIGN_BYTES_MAX)
        assignment = self._assignment(arguments)
        return _shown(self._broker.assignments.assign(assignment, number(arguments, "fence", 0), limit, limit_bytes))

    def _begin(self, arguments: dict[str, Any]) -> Any:
        """The pipeline begins to read all numbers up to `through`; the next run is told, while this broker serves."""
        assignment = self._assignment(arguments)
        self._broker.assignments.begin_reading(
            assignment, number(arguments, "fence", 0), number(arguments, "through", 0)
        )
        return _shown(self._broker.assignments.stand(assignment))

    def _acknowledge(self, arguments: dict[str, Any]) -> Any:
        assignment = self._assignment(arguments)
        self._broker.assignments.acknowledge_through(
            assignment, number(arguments, "fence", 0), number(arguments, "through", 0)
        )
        return _shown(self._broker.assignments.stand(assignment))

    def _release(self, arguments: dict[str, Any]) -> Any:
        assignment = self._assignment(arguments)
        pending = Pending(assignment.queue.name, "released")
        self._broker.assignments.release(assignment, pending)
        return pending

    def _delete(self, arguments: dict[str, Any]) -> Any:
        assignment = self._assignment(arguments)
        self._broker.assignments.delete(assignment)
        return {"name": assignment.queue.name}

    def _ticket(self, arguments: dict[str, Any]) -> Any:
        """A ticket for a range of an assignment, or of a queue or subscription to be browsed; all of it by default.

        It is given when the process that it is for can see all of the range. With `bare` it is for what is known of
        messages without a look into them; of large messages, larger bodies than `body_bytes_max` are left out.
        """
        queue = self._readable(text(arguments, "name"))
        last = max(lane.visible_seq for lane in queue.order)
        after, through = number(arguments, "after", 0), number(arguments, "through", last)
        body_bytes_max = number(arguments, "body_bytes_max", BODY_BYTES_MAX)
        ticket = self._bulk.ticket(
            *(queue.id, after, through),
            bare=flag(arguments, "bare"),
            body_bytes_max=body_bytes_max,
            holder=self._bulk.holder_in(arguments),
        )
        return Settled(lambda: self._bulk.answer(queue.name, ticket, through=through))

    def _readable(self, name: str) -> Queue:
        queue = self._broker.directory.find_queue(name)
        if queue is None or queue.kind not in (Kind.QUEUE, Kind.SUBSCRIPTION, Kind.ASSIGNMENT):
            raise Refused(NOT_FOUND, f"There is no queue, subscription or assignment {name!r}.")
        return queue

    def _assignment(self, arguments: dict[str, Any]) -> Assignment:
        name = text(arguments, "name")
        assignment = self._broker.assignments.find(name)
        if assignment is None:
            raise Refused(NOT_FOUND, f"There is no assignment {name!r}.")
        return assignment


def _shown(stand: Assigned) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(stand)
    return shown
