"""Copies of a batch's publications: subscriptions that get the same messages share one packed block."""

from collections.abc import Collection, Sequence
from functools import cached_property
from operator import attrgetter

from legato.core.facts import MessagePublished
from legato.store.block_writer import Packed, new_reference_blocks
from legato.store.blocks import Entry
from legato.store.changes import Changes
from legato.store.lanes import last_of_lanes


class References:
    """The copies of a subscription; subscriptions with the same copies share the object.

    Args:
        topic: who keeps the bodies.
        facts: what was published, by sequence.
        early: those of the sequences that have left the subscription again.
    """

    def __init__(self, topic: int, facts: Sequence[MessagePublished], early: Collection[int] = ()) -> None:
        self.topic = topic
        self.stored = len(facts)
        self.last_seqs = last_of_lanes([fact.seq for fact in facts])
        kept = [fact for fact in facts if fact.seq not in early] if early else facts
        self.seqs = [fact.seq for fact in kept]
        self.sizes = [fact.size for fact in kept]
        self._expiries = [fact.expires_us for fact in kept]
        self._blocks: Packed | None = None

    @cached_property
    def size(self) -> int:
        """The size of all of them."""
        return sum(self.sizes)

    def blocks(self, stored_us: int) -> Packed:
        """They as new blocks; asking again costs nothing."""
        if self._blocks is None:
            self._blocks = new_reference_blocks(self.seqs, self.sizes, self.topic, stored_us, self._expiries)
        return self._blocks

    def entries(self) -> list[Entry]:
        """They as messages apart."""
        fields = zip(self.seqs, self.sizes, self._expiries, strict=True)
        return [Entry(seq, size, b"", expires_us, self.topic) for seq, size, expires_us in fields]


class Publication:
    """A batch's messages for one topic."""

    def __init__(self, topic: int, published: Sequence[MessagePublished]) -> None:
        self.topic = topic
        self._facts = sorted(published, key=attrgetter("seq"))
        self.seqs = [fact.seq for fact in self._facts]
        self.counts = {fact.seq: len(fact.subscriptions) for fact in self._facts}
        """How many copies there are of each; less by those that have gone already once they are distributed."""

    def distribute(self, changes: Changes, copies: dict[int, list[References]]) -> None:
        """Add to `copies` what each subscription gets. What leaves one in the same batch is not stored there at all."""
        for facts, subscriptions in self._groups():
            references = References(self.topic, facts)
            for subscription in subscriptions:
                if subscription in changes.deleted:
                    self._count_down(references.seqs)
                    continue
                removed = changes.queue(subscription).removed
                early = removed.intersection(references.seqs)
                if early:
                    removed -= early
                    self._count_down(early)
                    copies.setdefault(subscription, []).append(References(self.topic, facts, early))
                else:
                    copies.setdefault(subscription, []).append(references)

    def _groups(self) -> list[tuple[Sequence[MessagePublished], Sequence[int]]]:
        """Messages, and the subscriptions that get those and no others."""
        first = self._facts[0].subscriptions
        if all(fact.subscriptions == first for fact in self._facts):
            return [(self._facts, first)]
        by_subscription: dict[int, list[MessagePublished]] = {}
        for fact in self._facts:
            for subscription in fact.subscriptions:
                by_subscription.setdefault(subscription, []).append(fact)
        return [(facts, [subscription]) for subscription, facts in by_subscription.items()]

    def _count_down(self, seqs: Collection[int]) -> None:
        for seq in seqs:
            self.counts[seq] -= 1
