"""Endpoints and their stages, as a program declares them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from legato.flows.model.levels import Transaction
from legato.flows.model.payloads import Upcaster, check_kind, check_state

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Policy:
    """How a stage is run; None leaves a choice to the endpoint, and there to the service.

    Attributes:
        transaction: what its database and its messages have in common; its name will do.
        idempotent: it may do its work twice without harm: no inbox and no outbox are kept for it (CONTRACT D10, D14).
        concurrency: how many messages each process works on at once.
        interactive_concurrency: threads kept for messages for which a person waits, 0 for none of their own.
        deliveries_max: after so many attempts the message goes to the dead letters, with what happened (CONTRACT D20);
            0 leaves that to the broker.
        batch_max: messages that wait anyway, and that one transaction may take together.
        bundle_max: calls of such a transaction to the same stage that may travel as one message, which that stage then
            takes as a batch; 1 for each by itself.
        circuit_failures: after so many failures in a row the stage of this process pauses (`circuit.Circuit`); 0 for
            never.
        circuit_pause_s, circuit_pause_max_s: the first pause, in seconds, and the longest: it doubles.
        environment_retry_s: how long a message is tried, in seconds, whose attempts are not counted because no message
            is to blame for them (`failures.is_environmental`); then it goes to the dead letters. 0: they are counted,
            as they are where a stage never pauses.
    """

    transaction: Transaction | None = None
    idempotent: bool | None = None
    concurrency: int | None = None
    interactive_concurrency: int | None = None
    deliveries_max: int | None = None
    batch_max: int | None = None
    bundle_max: int | None = None
    circuit_failures: int | None = None
    circuit_pause_s: float | None = None
    circuit_pause_max_s: float | None = None
    environment_retry_s: float | None = None

    def __post_init__(self) -> None:
        if self.transaction is not None:
            object.__setattr__(self, "transaction", Transaction(self.transaction))

    def over(self, other: Policy) -> Policy:
        """This, and what `other` says where this says nothing."""
        return Policy(
            *(
                theirs if mine is None else mine
                for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)
            )
        )


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of an endpoint.

    Attributes:
        id: `Endpoint.id` for the first, `ID.stage1` and so on for the others; also the name of its queue.
        endpoint: that it belongs to.
        function: is called with the context and what came; what it returns is awaited if it is a coroutine.
        message: the class of what comes, from the function's second annotation.
        reply: the class of what it returns, for a last stage; None for another.
        is_last: what it returns is the endpoint's reply.
        policy: what was said for this stage alone.
    """

    id: str
    endpoint: Endpoint = field(repr=False)
    function: Function = field(repr=False)
    message: Any
    reply: Any
    is_last: bool
    policy: Policy

    @property
    def next_id(self) -> str | None:
        """The stage that a reply to this one's requests goes to; None after the last."""
        stages = self.endpoint.stages
        position = stages.index(self) + 1
        return stages[position].id if position < len(stages) else None


class Endpoint:
    """An endpoint, called by name: stages that read from top to bottom like one function (CONTRACT D1).

    Args:
        id: its name everywhere, such as `Orders.place`.
        state: the class of what it remembers from stage to stage, None if nothing.
        state_version: raise it when that class changes so that older ones cannot be read.
        upcasters: by version: from the fields of that version to those of the next.
        terminator: it may not reply: a flow ends here.
        topic: it hears what is published under its name, in each process of the service.
        plain: a message with JSON that no flow has sent begins one here, too.
        policy: for its stages.
    """

    def __init__(
        self,
        id: str,
        *,
        state: Any = None,
        state_version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        terminator: bool = False,
        topic: bool = False,
        plain: bool = False,
        policy: Policy = Policy(),
    ) -> None:
        if not id or any(character.isspace() for character in id):
            raise ValueError(f"{id!r} is no name for an endpoint: it must not be empty and have no white space.")
        if state is not None:
            check_state(state, f"state of {id}")
        self.id = id
        self.state = state
        self.state_version = state_version
        self.upcasters = dict(upcasters or {})
        self.terminator = terminator
        self.topic = topic
        self.plain = plain
        self.policy = policy
        self.stages: list[Stage] = []

    def __repr__(self) -> str:
        return f"<Endpoint {self.id}, stages: {len(self.stages)}>"

    @property
    def complete(self) -> bool:
        """Whether its last stage is there."""
        return bool(self.stages) and (self.terminator or self.stages[-1].is_last)

    @overload
    def stage(self, function: F) -> F: ...
    @overload
    def stage(self, function: None = None, **policy: Any) -> Callable[[F], F]: ...
    def stage(self, function: F | None = None, **policy: Any) -> F | Callable[[F], F]:
        """Declare the next stage; a decorator, with or without arguments of `Policy`."""
        return self._declare(function, False, Policy(**policy))

    @overload
    def last_stage(self, function: F) -> F: ...
    @overload
    def last_stage(self, function: None = None, **policy: Any) -> Callable[[F], F]: ...
    def last_stage(self, function: F | None = None, **policy: Any) -> F | Callable[[F], F]:
        """Declare the last stage, which returns the reply; a decorator as `stage`."""
        return self._declare(function, True, Policy(**policy))

    def _declare(self, function: F | None, is_last: bool, policy: Policy) -> F | Callable[[F], F]:
        if function is None:
            return lambda function: self._take(function, is_last, policy)
        return self._take(function, is_last, policy)

    def _take(self, function: F, is_last: bool, policy: Policy) -> F:
        if self.complete:
            raise ValueError(f"{self.id} has its last stage already; {function.__name__} cannot follow it.")
        if is_last and self.terminator:
            raise ValueError(f"{self.id} is a terminator: it has nobody to reply to, so use `stage`.")
        number = len(self.stages)
        stage_id = f"{self.id}.stage{number}" if number else self.id
        message, reply = signature_of(function, stage_id)
        self.stages.append(Stage(stage_id, self, function, message, reply if is_last else None, is_last, policy))
        return function


def signature_of(function: Function, stage_id: str) -> tuple[Any, Any]:
    """The classes that a stage's function takes and returns, from its annotations.

    Raises:
        TypeError: it is a generator, does not take two arguments, or is not annotated with what JSON carries.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{stage_id}: {function.__name__} yields; a stage is a function or a coroutine function.")
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) != 2:
        raise TypeError(
            f"{stage_id}: {function.__name__} takes {len(parameters)} arguments; it gets (context, message)."
        )
    hints = typing.get_type_hints(function)
    message = hints.get(parameters[1].name)
    if message is None:
        raise TypeError(
            f"{stage_id}: annotate `{parameters[1].name}` of {function.__name__} with the class of its messages."
        )
    check_kind(message, f"{stage_id}, {parameters[1].name}")
    reply = hints.get("return", type(None))
    if reply is not type(None):
        check_kind(reply, f"{stage_id}, its reply")
    return message, reply


class Registry:
    """All endpoints of a program, by name."""

    def __init__(self) -> None:
        self.endpoints: dict[str, Endpoint] = {}

    def add(self, endpoint: Endpoint) -> Endpoint:
        """Take an endpoint in.

        Raises:
            ValueError: there is one of that name.
        """
        if endpoint.id in self.endpoints:
            raise ValueError(f"There is an endpoint {endpoint.id} already.")
        self.endpoints[endpoint.id] = endpoint
        return endpoint

    def stages(self) -> list[Stage]:
        """Of all endpoints.

        Raises:
            ValueError: an endpoint has no last stage.
        """
        for endpoint in self.endpoints.values():
            if not endpoint.complete:
                raise ValueError(f"{endpoint.id} has no last stage: nobody would ever get its reply.")
        return [stage for endpoint in self.endpoints.values() for stage in endpoint.stages]

    def stage(self, stage_id: str) -> Stage:
        """The stage of that id.

        Raises:
            KeyError: there is none.
        """
        for endpoint in self.endpoints.values():
            for stage in endpoint.stages:
                if stage.id == stage_id:
                    return stage
        raise KeyError(stage_id)
