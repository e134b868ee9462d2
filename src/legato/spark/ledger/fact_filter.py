"""Row filters over facts that render both as Spark SQL and as an Arrow mask."""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from legato.spark.ledger.fact_schema import TAGS


def is_kind(*kinds: str) -> str:
    """SQL: the fact is one of these kinds. Of segments without a `tag` the texts are compared."""
    tags = ", ".join(f"{TAGS[kind]}Y" for kind in kinds)
    return f"(tag in ({tags}) or tag is null and {kind_in(*kinds)})"


def kind_in(*kinds: str) -> str:
    """SQL: what has a `kind` and no `tag`, such as a row of commits, is one of these."""
    return f"kind in ({', '.join(map(repr, kinds))})"


class FactFilter(NamedTuple):
    """A filter of facts: their kinds, and columns that must be non-null, null, false, non-zero, or equal to a text.

    `str(filter)` is its SQL, `filter.mask(table)` the same for Arrow: a test compares the two.
    """

    kinds: Sequence[str]
    not_null: Sequence[str] = ()
    null: Sequence[str] = ()
    false: Sequence[str] = ()
    nonzero: Sequence[str] = ()
    equal: Sequence[tuple[str, str]] = ()
    """Columns, and the text that each must be."""

    def __str__(self) -> str:
        return " and ".join(
            (
                is_kind(*self.kinds),
                *(f"{name} is not null" for name in self.not_null),
                *(f"{name} is null" for name in self.null),
                *(f"not {name}" for name in self.false),
                *(f"{name} <> 0" for name in self.nonzero),
                *(f"{name} = {text!r}" for name, text in self.equal),
            )
        )

    @property
    def columns(self) -> list[str]:
        """The columns that the filter looks at."""
        texts = [name for name, _ in self.equal]
        return ["tag", *self.not_null, *self.null, *self.false, *self.nonzero, *texts]

    def mask(self, facts: pa.Table) -> pa.ChunkedArray:
        """The rows that pass, of facts that have a `tag` each; a comparison with null does not pass."""
        masks = (
            pc.is_in(facts.column("tag"), pa.array([TAGS[kind] for kind in self.kinds], pa.int8())),
            *(pc.is_valid(facts.column(name)) for name in self.not_null),
            *(pc.is_null(facts.column(name)) for name in self.null),
            *(pc.invert(facts.column(name)) for name in self.false),
            *(pc.not_equal(facts.column(name), 0) for name in self.nonzero),
            *(pc.equal(facts.column(name), text) for name, text in self.equal),
        )
        return pc.fill_null(reduce(pc.and_, masks), False)


OF_QUEUES_AND_EPOCHS = FactFilter(("QueueCreated", "QueueDeleted", "QueueMarked", "EpochBegan", "ServingBegan"))
"""Facts about queues and epochs."""

SENT = FactFilter(("MessageStored", "MessagePublished"), null=("origin_seq",))
"""Messages that came from outside; given together with `txn`, `producer` or `number`, which copies do not have."""

NUMBERED = SENT._replace(not_null=("producer", "number"))
"""Messages of producers that number what they send."""

REGISTERED = FactFilter(("ProducerRegistered",))
