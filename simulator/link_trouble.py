"""Trouble with single links: brokers end them while they are in use, and clients go on with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from legato.amqp.engine.link import Link
from legato.core.consumers import Consumer
from legato.server.access.permissions import RECEIVE, SEND, Denied, Level, Rights
from legato.server.links.link_roles import PublisherLink
from legato.server.links.refused import INTERNAL_ERROR
from legato.server.process.service import Service
from simulator.history import History
from simulator.kernel import Kernel, Process
from simulator.plan import TOPIC, Plan

WITHDRAWN_US = (1_000, 1_500_000)
"""So long a permission stays withdrawn."""
CUT_MAX = 3
"""Links that are cut at once."""


class Revocable(Rights):
    """The rights of everybody in a run: to do everything, but for what is withdrawn."""

    def __init__(self) -> None:
        super().__init__("anonymous", [])
        self.withdrawn: set[tuple[str, str]] = set()
        """Operations and addresses."""

    def may(self, operation: str, address: str, topic: bool | None = None) -> bool:
        """See `Rights.may`."""
        return (operation, address) not in self.withdrawn

    def demand(self, operation: str, address: str, topic: bool | None = None) -> None:
        """See `Rights.demand`."""
        if not self.may(operation, address, topic):
            raise Denied(f"lacks a permission: {operation} on {address!r}")

    def reaches(self, level: Level) -> bool:
        """See `Rights.reaches`."""
        return True

    def demand_level(self, level: Level) -> None:
        """See `Rights.demand_level`."""


class Machine(Protocol):
    """A machine with a broker as this trouble sees it."""

    @property
    def process(self) -> Process:
        """The broker's."""

    @property
    def service(self) -> Service | None:
        """What it runs while it is the primary, or believes so."""

    @property
    def serving(self) -> bool:
        """Whether it runs a broker."""


class LinkTrouble:
    """Has brokers end links.

    Args:
        happened: notes what goes wrong.
    """

    def __init__(
        self,
        kernel: Kernel,
        history: History,
        plan: Plan,
        rights: Revocable,
        machines: Callable[[], Sequence[Machine]],
        happened: Callable[..., None],
    ) -> None:
        self._kernel = kernel
        self._random = kernel.random
        self._history = history
        self._rights = rights
        self._machines = machines
        self._happened = happened
        names = [TOPIC, *(queue.name for queue in plan.queues)]
        # A sink takes a batch that it may not publish for one that is published later.
        operations = [RECEIVE] if "publish_batches" in plan.kinds else [RECEIVE, SEND]
        self._permissions = [(operation, name) for name in names for operation in operations]

    def end(self) -> None:
        """All is well again."""
        self._rights.withdrawn.clear()

    def withdraw(self) -> None:
        """A permission is taken away by a reload, and given back by another one."""
        permission = self._random.choice(self._permissions)
        self._happened("permissions withdrawn", *permission)
        self._rights.withdrawn.add(permission)
        self._history.ended_links.add(Denied.condition)
        self._reload()
        self._kernel.after_for(None, self._kernel.between_us(*WITHDRAWN_US), self._grant, permission)

    def _grant(self, permission: tuple[str, str]) -> None:
        self._rights.withdrawn.discard(permission)
        self._reload()

    def _reload(self) -> None:
        for machine in self._serving():
            # On its event loop, as a signal has it done.
            self._kernel.after_for(machine.process, 0, _reload, machine.service)

    def _serving(self) -> list[Machine]:
        return [machine for machine in self._machines() if machine.serving and not machine.process.paused]

    def cut(self) -> None:
        """A broker cuts some links, as of a queue that it cannot read."""
        for machine in self._serving():
            service = machine.service
            assert service is not None
            links = [
                (peer, link)
                for peer in sorted(service.peers, key=lambda peer: peer.name)
                for link in sorted(peer.links, key=lambda link: link.name)
                if _is_in_use(link)
            ]
            for peer, link in self._random.sample(links, min(len(links), self._random.randint(1, CUT_MAX))):
                self._happened("links cut", peer.container, link.name)
                self._history.ended_links.add(INTERNAL_ERROR)
                self._kernel.after_for(machine.process, 0, _cut, service, link)


def _reload(service: Service) -> None:
    if not service.stopped:
        service.reload()


def _cut(service: Service, link: Link) -> None:
    """As `Links.review_damaged` does it."""
    if not service.stopped and link.context is not None:
        service._links.closer.end(link, INTERNAL_ERROR, "it was cut")
        service.broker.dispatcher.dispatch_returned(service.broker.now_us)
        service.advance()


def _is_in_use(link: Link) -> bool:
    """Whether something is sent or received over it, to or from what stays there without it."""
    port: Any = link.context
    if isinstance(port, PublisherLink):
        return port.target is not None and not port.target.temporary
    return isinstance(port, Consumer) and not port.queue.temporary
