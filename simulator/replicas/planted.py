"""Planted faults of runs with replicas: as `simulator.planted`, some in several places at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from legato.replication.arbiter import LogArbiter
from legato.replication.chain import Chain
from legato.replication.chained_claim import ChainedClaim
from legato.replication.chained_log import ChainedLog
from legato.replication.commits import ReplicatedCommits
from legato.replication.replica import Replica
from legato.store import memory
from legato.store.memory import MemoryStore
from simulator.replicas import mistakes
from simulator.replicas.log_server import LogServer
from simulator.replicas.log_servers import SimulatedEngine


class ReplicaFault:
    """One of them: functions in the places of others; `reached` says whether anybody called the first one yet."""

    def __init__(self, *places: tuple[Any, str, Callable[..., Any]]) -> None:
        self.places = places
        self.owner, self.name, _ = places[0]
        self.reached = False

    @property
    def title(self) -> str:
        """What it is called on the command line."""
        return self.places[0][2].__name__.replace("_", "-")

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The fault is there for a while."""
        (owner, name, first), *others = self.places

        @wraps(first)
        def reached(*arguments: Any, **options: Any) -> Any:
            self.reached = True
            return first(*arguments, **options)

        with ExitStack() as stack:
            for place in ((owner, name, reached), *others):
                stack.enter_context(patch.object(*place))
            yield


FAULTS = [
    ReplicaFault((LogServer, "_acknowledge", mistakes.acknowledge_before_quorum)),
    ReplicaFault(
        (ChainedClaim, "_append", mistakes.append_without_waiting),
        (ChainedClaim, "_take_turn", mistakes.take_no_turn),
        (ChainedClaim, "_append_in_turn", mistakes.append_in_turn),
        (ReplicatedCommits, "_beat", mistakes.beat_beside_commits),
    ),
    ReplicaFault((SimulatedEngine, "append", mistakes.take_an_error_for_success)),
    ReplicaFault((ChainedClaim, "_append", mistakes.append_again_behind_what_is_there)),
    ReplicaFault(
        (Chain, "feed", mistakes.apply_whatever_comes), (memory, "refuse_unless_next", mistakes.refuse_nothing)
    ),
    ReplicaFault((ChainedLog, "claim", mistakes.claim_undrained)),
    ReplicaFault((ChainedClaim, "_append", mistakes.lease_from_receipt)),
    ReplicaFault((LogArbiter, "_may_claim", mistakes.claim_at_once)),
    ReplicaFault((ReplicatedCommits, "commit", mistakes.commit_before_the_log)),
    ReplicaFault((MemoryStore, "prune", mistakes.prune_by_the_own_clock)),
    ReplicaFault((Replica, "finish", mistakes.finish_with_the_place_before)),
    ReplicaFault((Replica, "apply", mistakes.pass_over_what_has_no_room)),
    ReplicaFault((LogArbiter, "sure_for_s", mistakes.always_sure)),
]
