"""The protocol `RunningService`: a service, as the workers of its stages see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from legato.client import Connection, Message, Session
    from legato.clock import Clock
    from legato.flows.model.definitions import Policy, Registry, Stage
    from legato.flows.model.envelope import Envelope, Outgoing
    from legato.flows.stages.failure_report import Failure, Whereabouts
    from legato.flows.stages.records import DatabaseTime
    from legato.flows.stages.stage_health import StageHealth
    from legato.flows.tracing import Tracing


class RunningService(Protocol):
    """A service as its workers and its introspection see it; `legato.flows.Flows` is one.

    Attributes:
        prefix: before stage ids in the names of queues.
        clock: where the time comes from.
        registry: the endpoints of the service.
        health: counts and circuits of each stage, by the stage's id.
        whereabouts: name, host and versions of the service, for dead letters.
        trace_retention_s: how long a record of each run is kept, in seconds; 0 for not at all.
        tracing: OpenTelemetry's, if the program has set it up.
        database_time: the time spent in the database, while records are kept.
    """

    prefix: str
    clock: Clock
    registry: Registry
    whereabouts: Whereabouts
    trace_retention_s: float
    tracing: Tracing | None
    database_time: DatabaseTime | None

    @property
    def health(self) -> Mapping[str, StageHealth]: ...

    def connection(self) -> Connection:
        """The connection of all workers, made when first asked for."""
        ...

    def policy_of(self, stage: Stage) -> Policy:
        """How a stage is run."""
        ...

    def check_going_on(self, envelope: Envelope) -> None:
        """Raise `FlowEndedError` if nobody may work on a flow any more."""
        ...

    def bury(self, session: Session, message: Message, failure: Failure, attempts: int) -> list[Outgoing]:
        """Make a received message a dead letter when the session commits; returns what is to be answered then."""
        ...

    def answer(self, replies: Sequence[Outgoing]) -> None:
        """Send replies to futures that are in another group of brokers, and wait for none."""
        ...
