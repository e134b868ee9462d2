"""The scope of an audit: messages stored in a span of time, or of one destination."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
from pyspark.sql import DataFrame

from legato.errors import ConfigError
from legato.spark.ledger.fact_filter import is_kind, kind_in


class Scope(msgspec.Struct, frozen=True):
    """What is asked for; by default everything.

    The whole ledger is looked at all the same: what became of a message may be said long after the span of time.
    """

    from_us: int | None = None
    """Messages stored at this time or later, in microseconds since 1970."""
    to_us: int | None = None
    """... and before this one."""
    destination: str | None = None
    """A queue's, topic's or subscription's name; a topic stands for its subscriptions too."""

    def __post_init__(self) -> None:
        """Refuse a span of time in which nothing can be.

        Raises:
            ConfigError: it ends before it begins.
        """
        if self.from_us is not None and self.to_us is not None and self.to_us <= self.from_us:
            begin, end = (datetime.fromtimestamp(time_us / 1e6, UTC) for time_us in (self.from_us, self.to_us))
            raise ConfigError(f"The span of time begins at {begin:%F %T} and ends at {end:%F %T}: nothing is in it.")

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == Scope()

    def during(self, time_us: str) -> str:
        """SQL: the time lies in the span."""
        bounds = [f"{time_us} >= {self.from_us}L"] if self.from_us is not None else []
        bounds += [f"{time_us} < {self.to_us}L"] if self.to_us is not None else []
        return " and ".join(bounds) or "true"

    def queues(self, facts: DataFrame) -> str:
        """SQL: the row's `queue` is of the destination.

        Raises:
            ConfigError: the ledger knows no such destination.
        """
        if self.destination is None:
            return "true"
        created = facts.where(is_kind("QueueCreated")).select("queue", "name", "queue_kind", "topic").collect()
        plain = {row["queue"]: row["name"].rpartition("://")[2] for row in created}
        meant = {row["queue"] for row in created if self.destination in (row["name"], plain[row["queue"]])}
        meant |= {row["queue"] for row in created if row["topic"] in meant}
        if not meant:
            raise ConfigError(f"the ledger knows no destination {self.destination}")
        return f"queue in ({', '.join(map(str, sorted(meant)))})"


EVERYTHING = Scope()


class ScopedFrames:
    """The part of a ledger's frames that a scope asks for."""

    def __init__(self, scope: Scope, frames: Mapping[str, DataFrame]) -> None:
        self._all = scope.is_all
        self._timed = scope.during("time_us") != "true"
        self._of_queue = scope.queues(frames["queue_and_epoch_facts"])
        self._frames = frames
        self._scope = scope

    def lifecycle(self) -> DataFrame:
        """The messages that are asked for."""
        if self._all:
            return self._frames["messages"]
        return self._frames["messages"].where(f"{self._of_queue} and {self._scope.during('stored_us')}")

    def facts(self) -> DataFrame:
        """What happened in the span of time, with the destination and with none."""
        return self._happened("facts", is_kind)

    def commits(self) -> DataFrame:
        """Commits of the span of time, as far as they are about the destination or about none."""
        return self._happened("commits", kind_in)

    def frames(self) -> Mapping[str, DataFrame]:
        """All frames, of which those that have parts are cut down to what is asked for."""
        if self._all:
            return self._frames
        return {**self._frames, "facts": self.facts(), "commits": self.commits(), "messages": self.lifecycle()}

    def _happened(self, name: str, is_one_of: Callable[..., str]) -> DataFrame:
        if self._all:
            return self._frames[name]
        created, timeless = is_one_of("QueueCreated"), is_one_of("QueueCreated", "QueueDeleted", "EpochBegan")
        return self._frames[name].where(
            f"(queue is null or {self._of_queue} or {created}) and ({self._scope.during('time_us')} or {timeless})"
        )

    def of(self, found: DataFrame) -> DataFrame:
        """Those of a check's findings that are asked for; what names no time, such as a transaction, always is."""
        if self._all:
            return found
        columns = set(found.columns)
        if "queue" in columns:
            found = found.where(self._of_queue)
        if not self._timed:
            return found
        if "position" in columns:
            during = self._frames["commits"].where(self._scope.during("time_us"))
            ends = during.selectExpr("min(position) as first", "max(position) as last").first()
            assert ends is not None, "an aggregate has one row"
            return found.where(f"position between {ends['first'] or 0} and {ends['last'] or -1}")
        if {"queue", "seq"} <= columns:
            return found.join(self.lifecycle().select("queue", "seq"), ["queue", "seq"], "left_semi")
        return found
