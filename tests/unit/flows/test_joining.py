"""Worker of joins: an answer, or an alarm, whose join is not there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from legato.flows.model.envelope import Compensation, Envelope, Outgoing, Reach
from legato.flows.model.payloads import to_json
from legato.flows.stages.join_worker import JoinWorker
from tests.unit.flows.making import NOW_US, envelope_to


class Nothing:
    """What a worker looks for joins with, and finds none."""

    def create_consumer(self, *_: Any, **__: Any) -> Nothing:
        return self

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def receive_no_wait(self) -> None: ...


class Service:
    """What a worker asks of its service."""

    prefix = "flows."

    @property
    def clock(self) -> Service:
        return self

    def now_us(self) -> int:
        return NOW_US


def looks_for(envelope: Envelope) -> tuple[list[int], list[Outgoing]]:
    """After which delays a worker looks for the join again, and what it sends at last."""
    worker, session, service = JoinWorker.__new__(JoinWorker), Nothing(), Service()
    vars(worker).update(_flows=service, _stage_id="A.stage1")
    delays: list[int] = []
    sent: list[Outgoing] = worker._answered(session, envelope)  # type: ignore[arg-type]
    while sent and sent[0].reach is Reach.ANSWERS:
        (again,) = sent
        delays.append(again.delay_ms)
        sent = worker._answered(session, again.envelope)  # type: ignore[arg-type]
    return delays, sent


@pytest.mark.parametrize("key", ["", "tea"])
def test_a_join_that_is_not_there_is_looked_for_a_few_times_within_two_minutes(key: str) -> None:
    """It was sixty times, for each alarm of a join that was complete."""
    delays, sent = looks_for(msgspec.structs.replace(envelope_to("A.stage1"), join="j", key=key))
    assert len(delays) < 10
    assert sum(delays) >= 120_000
    assert sent == []


def test_at_last_what_its_branch_did_is_undone() -> None:
    undo = Compensation("Undo", to_json(1))
    envelope = envelope_to("A.stage1")
    _, sent = looks_for(msgspec.structs.replace(envelope, join="j", key="tea", compensations=(undo,), before=0))
    assert [one.envelope.to for one in sent] == ["Undo"]
