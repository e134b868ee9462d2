"""Declarations of endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from legato.flows.model.definitions import Endpoint, Function, Policy, Registry
from legato.flows.model.levels import Transaction
from legato.flows.model.payloads import Upcaster

F = TypeVar("F", bound=Function)


class Declarations:
    """The endpoints of a service.

    Attributes:
        registry: all of them.
    """

    def __init__(self) -> None:
        self.registry = Registry()

    def endpoint(
        self,
        id: str,
        *,
        state: Any = None,
        state_version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        plain: bool = False,
        **policy: Any,
    ) -> Endpoint:
        """Declare an endpoint; its stages are added by `@endpoint.stage` and `@endpoint.last_stage` (CONTRACT D23).

        Args:
            state: the class of its memory, with a default for every field.
            state_version, upcasters, plain: see `Endpoint`.
            policy: fields of `Policy`.
        """
        endpoint = Endpoint(
            id,
            state=state,
            state_version=state_version,
            upcasters=upcasters,
            plain=plain,
            policy=Policy(**policy),
        )
        return self.registry.add(endpoint)

    def single(self, id: str, **policy: Any) -> Callable[[F], F]:
        """Declare an endpoint of one stage, which returns the reply; a decorator with arguments of `endpoint`."""
        endpoint = self.endpoint(id, **policy)
        return lambda function: endpoint.last_stage(function)

    def terminator(self, id: str, *, state: Any = None, state_version: int = 1, **policy: Any) -> Callable[[F], F]:
        """Declare where flows end: one stage that does not reply; a decorator."""
        endpoint = Endpoint(id, state=state, state_version=state_version, terminator=True, policy=Policy(**policy))
        return self.registry.add(endpoint).stage

    def subscription_terminator(self, id: str, *, state: Any = None, **policy: Any) -> Callable[[F], F]:
        """Declare what each process does with what is published under a name; a decorator."""
        policy = {"transaction": Transaction.MESSAGING, **policy, "concurrency": 1}
        endpoint = Endpoint(id, state=state, terminator=True, topic=True, policy=Policy(**policy))
        return self.registry.add(endpoint).stage
