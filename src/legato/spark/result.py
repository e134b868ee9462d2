"""The result of an audit, as plain data that can be printed, drawn and stored as JSON."""

from datetime import UTC, datetime
from typing import Any

import msgspec

QUEUEING, PROCESSING, BOTH = STAGES = ("queueing", "processing", "end to end")
"""What lengths of time are of: stored to delivered, to consumed, and both."""


class LatencySummary(msgspec.Struct, frozen=True):
    """Percentiles of a stage of messages' lives in milliseconds."""

    stage: str
    messages: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class QueueAudit(msgspec.Struct, frozen=True):
    """The account of one queue or subscription: messages stored, consumed, moved, waiting, lost.

    `dead_lettered` and `moved` are told apart by cause in `dead_letters` and `moves` (expired, dropped, purged,
    delayed, due, moved). `deleted` are the messages that waited in a queue when it was deleted.
    """

    queue: int
    name: str
    stored: int
    consumed: int
    forwarded: int
    dead_lettered: int
    waiting: int
    lost: int
    duplicated: int
    redelivered: int
    latencies: list[LatencySummary] = []
    moved: int = 0
    deleted: int = 0
    dead_letters: dict[str, int] = {}
    moves: dict[str, int] = {}


class TopicAudit(msgspec.Struct, frozen=True):
    """What was published to a topic: `unheard` had no subscription, `duplicated` came twice.

    Its copies are messages of their subscriptions.
    """

    topic: int
    name: str
    published: int
    copies: int
    unheard: int
    duplicated: int


class Takeover(msgspec.Struct, frozen=True):
    """One broker took over from another.

    `former_last_us` is when the former one had last served, for all that is known: when it ended, or when its successor
    lost it. If neither is on record it is its last commit, and what is counted from there is `at_most` so long.
    `duration_ms` is from then to the next epoch, `served_ms` to when clients were answered again. `how` the former one
    ended: `switchover`, `stop`, `crash` ...
    """

    epoch: int
    broker: str
    former_broker: str
    clean: bool
    former_last_us: int
    began_us: int
    duration_ms: float
    served_ms: float | None
    how: str = ""
    at_most: bool = False


class CheckResult(msgspec.Struct, frozen=True):
    """Whether a check's sentence holds: `count` rows offend, a few of them are `examples`.

    If it does not hold, `complaint` says what does, in words and names, `remedy` what to do about it, and `told` each
    of the examples.
    """

    name: str
    sentence: str
    count: int
    examples: list[dict[str, Any]] = []
    stories: dict[str, list[str]] = {}
    """What the ledger says of the messages and transactions that the examples name."""
    complaint: str = ""
    remedy: str = ""
    told: list[str] = []


POSITIONS_MISSING, RECORDS_TORN = OF_THE_WHOLE = ("positions missing", "records torn")
"""The names of the checks without which nothing else is proof: whether the ledger is complete."""


class ThroughputPoint(msgspec.Struct, frozen=True):
    """Messages of one queue in one bucket of time."""

    queue: int
    bucket: int
    stored: int
    consumed: int
    dead_lettered: int


class LatencyCell(msgspec.Struct, frozen=True):
    """Messages of a queue consumed in a bucket of time after a logarithmic bucket of microseconds, end to end."""

    queue: int
    bucket: int
    latency: int
    messages: int


class Timeline(msgspec.Struct, frozen=True):
    """Buckets of `bucket_us` microseconds from `start_us` on, and what happened in them."""

    start_us: int
    bucket_us: int
    throughput: list[ThroughputPoint] = []
    latency: list[LatencyCell] = []


class StageAudit(msgspec.Struct, frozen=True):
    """The calls of flows to a stage: how many, and how long they waited (queueing) and were worked on (processing)."""

    stage: str
    calls: int
    consumed: int
    dead_lettered: int
    waiting: int
    latencies: list[LatencySummary] = []


class FlowsBegun(msgspec.Struct, frozen=True):
    """The flows whose first call was for a stage: `failed` are those with a dead letter, `waiting` are on their way.

    `latency` is of those that ended: from the first call's arrival to the end of the last one.
    """

    stage: str
    begun: int
    ended: int
    failed: int
    waiting: int
    calls: int
    latency: LatencySummary | None = None


class FlowsAudit(msgspec.Struct, frozen=True):
    """The flows of a ledger: by called stage, and by the stage at which they began."""

    stages: list[StageAudit]
    begun: list[FlowsBegun]


class Action(msgspec.Struct, frozen=True):
    """What somebody did, or was denied, as the audit trail has it; `count` times in a row, at last at `time_us`."""

    time_us: int
    user: str
    origin: str
    operation: str
    object: str
    decision: str
    to: str = ""
    reason: str = ""
    type: str = ""
    epoch: int = 0
    count: int = 1
    message_id: str = ""


class Actions(msgspec.Struct, frozen=True):
    """Who did what.

    Attributes:
        latest: what changed something, or was refused; the latest first.
        total: how many facts there are of all; `latest` has only so many.
        omitted: denials that were not recorded, because there were too many.
    """

    latest: list[Action]
    total: int
    omitted: int = 0


class AuditResult(msgspec.Struct, frozen=True):
    """The result of an audit."""

    facts: int
    first_us: int
    last_us: int
    last_position: int
    queues: list[QueueAudit]
    takeovers: list[Takeover]
    checks: list[CheckResult]
    timeline: Timeline
    topics: list[TopicAudit] = []
    seconds: float = 0.0
    """What the audit itself took, the start of Spark aside."""
    flows: FlowsAudit | None = None
    """What it says of flows; None if there are none."""
    actions: Actions | None = None
    """Who did what; None if nobody did anything."""
    trimmed_us: int = 0
    """Until when the ledger was trimmed, in microseconds since 1970; 0 if it was not."""

    @property
    def since(self) -> str:
        """From when on the audit can speak, in a sentence; empty if it speaks of all."""
        if not self.trimmed_us:
            return ""
        until = datetime.fromtimestamp(self.trimmed_us / 1e6, UTC)
        return (
            f"The ledger was trimmed: this audit speaks of what happened after {until:%Y-%m-%d %H:%M:%S} UTC, "
            "and of messages that waited then."
        )

    @property
    def passes(self) -> bool:
        """True if every check's sentence holds."""
        return not self.failed

    @property
    def failed(self) -> list[CheckResult]:
        """The checks that do not hold; first those that say that the ledger is incomplete."""
        failed = [check for check in self.checks if check.count]
        return sorted(failed, key=lambda check: check.name not in OF_THE_WHOLE)

    @property
    def complete(self) -> bool:
        """True if the ledger holds all that the broker wrote: otherwise that nothing was found is no proof."""
        return not any(check.name in OF_THE_WHOLE for check in self.failed)

    @property
    def is_empty(self) -> bool:
        """True if nothing was stored or published where the audit looked: then it passes, and shows nothing."""
        return not self.total("stored") and not any(topic.published for topic in self.topics)

    @property
    def verdict(self) -> str:
        """All of it in a sentence."""
        if not self.complete:
            return "The ledger is incomplete: what was lost or done twice cannot be told."
        if not self.passes:
            return f"{len(self.failed)} of {len(self.checks)} checks do not hold."
        if self.is_empty:
            return "No message was stored in the audited time and queues: there is nothing to account for."
        return "Every message is accounted for."

    def proven(self, column: str) -> int | None:
        """`total`, of what was lost or done twice; None if nothing was found in a ledger that is incomplete."""
        return self.total(column) or (0 if self.complete else None)

    def total(self, column: str) -> int:
        """The sum of a column of the queues' account; what was published twice to topics counts as duplicated."""
        published_twice = sum(topic.duplicated for topic in self.topics) if column == "duplicated" else 0
        total: int = sum(getattr(queue, column) for queue in self.queues)
        return total + published_twice

    def queue(self, name: str) -> QueueAudit:
        """The account of the queue of that name.

        Raises:
            KeyError: the ledger knows no such queue.
        """
        for queue in self.queues:
            if queue.name == name:
                return queue
        raise KeyError(name)

    def to_json(self) -> bytes:
        """The result as JSON for people and programs, with its verdict.

        In a ledger that is incomplete `lost` and `duplicated` are null where nothing was found.
        """
        return msgspec.json.format(msgspec.json.encode(self.document()), indent=2)

    def document(self) -> dict[str, Any]:
        """See `to_json`."""
        summary = {"passes": self.passes, "complete": self.complete, "verdict": self.verdict}
        complaints = {"complaints": [f"{check.complaint} {check.remedy}".strip() for check in self.failed]}
        document = {**summary, **complaints, **msgspec.to_builtins(self)}
        for account in () if self.complete else (*document["queues"], *document["topics"]):
            for column in ("lost", "duplicated"):
                if account.get(column) == 0:
                    account[column] = None
        return document


class GroupAudits(msgspec.Struct, frozen=True):
    """The results of the audits of several groups."""

    groups: dict[str, AuditResult]
    """By the name of the group."""
    seconds: float = 0.0

    @property
    def passes(self) -> bool:
        """True if each group's does."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The groups whose audit does not pass."""
        return [name for name, result in self.groups.items() if not result.passes]

    @property
    def verdict(self) -> str:
        """All of it in a sentence."""
        count = len(self.groups)
        if self.failed:
            few = ", ".join(self.failed[:_NAMED_MAX]) + (", ..." if len(self.failed) > _NAMED_MAX else "")
            return f"Of {count:,} groups {len(self.failed):,} do not pass: {few}."
        if all(result.is_empty for result in self.groups.values()):
            return "No message was stored in the audited time and queues: there is nothing to account for."
        return f"Every message of {count:,} groups is accounted for."

    def total(self, column: str) -> int:
        """The sum of a column of all queues' accounts."""
        return sum(result.total(column) for result in self.groups.values())

    def to_json(self) -> bytes:
        """The results as JSON, with one verdict; in `groups` what `AuditResult.to_json` writes of each."""
        document = {
            "passes": self.passes,
            "complete": all(result.complete for result in self.groups.values()),
            "verdict": self.verdict,
            "groups": {name: result.document() for name, result in self.groups.items()},
            "seconds": self.seconds,
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2)


_NAMED_MAX = 5
