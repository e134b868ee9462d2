"""Facts of neighbours, fused into facts of runs as the broker makes them."""

from __future__ import annotations

from array import array
from itertools import accumulate

from msgspec.structs import replace

from legato.core.fact_runs import has_body, pack_ends
from legato.core.facts import AnyFact, MessageConsumed, MessagesConsumed, MessagesStored, MessageStored
from legato.core.records import Batch
from legato.store.lanes import lane_of

Single = MessageStored | MessageConsumed


def fuse(batch: Batch, count_max: int = 300) -> Batch:
    """The same batch with runs in the places of neighbouring plain facts, single ones included."""
    bodies = iter(batch.bodies)
    facts: list[AnyFact] = []
    fused_bodies: list[bytes] = []
    run: list[Single] = []
    run_bodies: list[bytes] = []

    def end_run() -> None:
        if run:
            facts.append(_fused(run, run_bodies))
            if isinstance(run[0], MessageStored):
                fused_bodies.append(b"".join(run_bodies))
            run.clear()
            run_bodies.clear()

    for fact in batch.facts:
        body = [next(bodies)] if has_body(fact) else []
        if run and (len(run) == count_max or not _joins(fact, run[-1])):
            end_run()
        if isinstance(fact, Single) and _is_plain(fact):
            run.append(fact)
            run_bodies += body
        else:
            end_run()
            facts.append(fact)
            fused_bodies += body
    end_run()
    return replace(batch, facts=facts, bodies=fused_bodies)


def _is_plain(fact: Single) -> bool:
    if isinstance(fact, MessageConsumed):
        return fact.attempt == 1 and not fact.txn
    return not fact.txn and fact.origin is None and not fact.expires_us and fact.message_id.isascii()


def _joins(fact: AnyFact, last: Single) -> bool:
    if not isinstance(fact, Single) or not _is_plain(fact) or (fact.queue, fact.seq) != (last.queue, last.seq + 1):
        return False
    if lane_of(fact.seq) != lane_of(last.seq):
        return False
    match last, fact:
        case MessageStored(), MessageStored():
            number = last.number + 1 if last.producer else 0
            same_width = len(fact.message_id) == len(last.message_id)
            return same_width and (fact.producer, fact.number) == (last.producer, number)
        case MessageConsumed(), MessageConsumed():
            return (fact.consumer, fact.delivered_us) == (last.consumer, last.delivered_us)
    return False


def _fused(run: list[Single], bodies: list[bytes]) -> AnyFact:
    first = run[0]
    if isinstance(first, MessageConsumed):
        return MessagesConsumed(first.queue, first.seq, len(run), first.consumer, first.delivered_us)
    ends = pack_ends(array("I", accumulate(map(len, bodies))))
    ids = "".join(fact.message_id for fact in run if isinstance(fact, MessageStored)).encode()
    number = first.number if first.producer else 0
    return MessagesStored(first.queue, first.seq, len(run), ends, ids, first.producer, number)
