"""Facts told by what is plain to see of each, said once: to Spark in SQL, and to NumPy as a mask."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from legato.spark.ledger.fact_schema import TAGS


def is_kind(*kinds: str) -> str:
    """SQL: the fact is one of these kinds. Segments read no others, and without a `tag` compare texts."""
    tags = ", ".join(f"{TAGS[kind]}Y" for kind in kinds)
    return f"(tag in ({tags}) or tag is null and {kind_in(*kinds)})"


def kind_in(*kinds: str) -> str:
    """SQL: what has a `kind` and no `tag`, such as a row of commits, is one of these."""
    return f"kind in ({', '.join(map(repr, kinds))})"


class Those(NamedTuple):
    """Facts of some kinds of which columns are known or unknown, said not to be, numbers other than zero, or texts.

    As a string it is their SQL.
    """

    kinds: Sequence[str]
    known: Sequence[str] = ()
    unknown: Sequence[str] = ()
    denied: Sequence[str] = ()
    other_than_zero: Sequence[str] = ()
    texts: Sequence[tuple[str, str]] = ()
    """Columns, and the text that each is."""

    def __str__(self) -> str:
        return " and ".join(
            (
                is_kind(*self.kinds),
                *(f"{name} is not null" for name in self.known),
                *(f"{name} is null" for name in self.unknown),
                *(f"not {name}" for name in self.denied),
                *(f"{name} <> 0" for name in self.other_than_zero),
                *(f"{name} = {text!r}" for name, text in self.texts),
            )
        )

    @property
    def columns(self) -> list[str]:
        """What has to be read of facts to tell them."""
        texts = [name for name, _ in self.texts]
        return ["tag", *self.known, *self.unknown, *self.denied, *self.other_than_zero, *texts]

    def among(self, facts: pa.Table) -> pa.ChunkedArray:
        """Which rows they are, of facts that have a `tag` each; null is no."""
        masks = (
            pc.is_in(facts.column("tag"), pa.array([TAGS[kind] for kind in self.kinds], pa.int8())),
            *(pc.is_valid(facts.column(name)) for name in self.known),
            *(pc.is_null(facts.column(name)) for name in self.unknown),
            *(pc.invert(facts.column(name)) for name in self.denied),
            *(pc.not_equal(facts.column(name), 0) for name in self.other_than_zero),
            *(pc.equal(facts.column(name), text) for name, text in self.texts),
        )
        return pc.fill_null(reduce(pc.and_, masks), False)


OF_LANDMARKS = Those(("QueueCreated", "QueueDeleted", "QueueMarked", "EpochBegan", "ServingBegan"))
"""What is said of queues and epochs."""

SENT = Those(("MessageStored", "MessagePublished"), unknown=("origin_seq",))
"""Messages that came from outside; given together with `txn`, `producer` or `number`, which copies do not have."""

NUMBERED = SENT._replace(known=("producer", "number"))
"""Messages of producers that number what they send."""

REGISTERED = Those(("ProducerRegistered",))
