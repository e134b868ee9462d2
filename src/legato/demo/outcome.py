"""The result of a run: what Spark found, and whether all of it holds."""

from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text


class TakeoverGap(msgspec.Struct, frozen=True):
    """A takeover: the new primary's epoch, and the longest time in milliseconds that a client could do nothing."""

    epoch: int
    gap_ms: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a run. All counts are Spark's, from the ledger of facts.

    `sent` flights were stored in the queue `flights`; `consumed` of them were acknowledged in a committed transaction;
    `forwarded` departure records were stored. `totals_equal` says that the collected records have, for each carrier,
    the count and the sums of delays that Spark computes from the source data itself, `database_equal` that the database
    of the flows' stages has.
    """

    sent: int
    consumed: int
    forwarded: int
    lost: int | None
    """None if nothing was found, and the ledger is incomplete."""
    duplicated: int | None
    dead_lettered: int
    totals_equal: bool
    database_equal: bool
    takeovers: list[TakeoverGap]
    msgs_per_s: float
    asked_for: int
    kills: int
    seed: int
    failed_checks: list[str] = []
    """The sentences of the audit's checks that do not hold."""

    @property
    def holds(self) -> bool:
        """Whether every message is accounted for, once, and every kill was followed by a takeover."""
        return not self.complaints()

    def complaints(self) -> list[str]:
        """Failures, a sentence each."""
        checks = [
            (self.sent == self.asked_for, f"{self.asked_for:,} flights should have been stored; {self.sent:,} were."),
            (self.consumed == self.asked_for, f"Only {self.consumed:,} of {self.asked_for:,} flights were consumed."),
            (self.forwarded == self.asked_for, f"{self.forwarded:,} records came of {self.asked_for:,} flights."),
            (not self.lost, f"{self.lost or 0:,} messages were lost."),
            (not self.duplicated, f"{self.duplicated or 0:,} messages were done twice."),
            (
                self.lost is not None and self.duplicated is not None,
                "What was lost or done twice cannot be told: the ledger is incomplete.",
            ),
            (self.dead_lettered == 0, f"{self.dead_lettered:,} messages were dead-lettered."),
            (self.totals_equal, "The sums of the collected records differ from those of the source data."),
            (self.database_equal, "The sums in the stages' database differ from those of the source data."),
            (
                len(self.takeovers) >= self.kills,
                f"{self.kills} kills, but clients saw {len(self.takeovers)} takeovers.",
            ),
        ]
        return [sentence for holds, sentence in checks if not holds] + self.failed_checks


def write_json(outcome: Outcome, file: Path) -> None:
    """Write the outcome as one JSON object."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=2) + b"\n")


def outcome_table(outcome: Outcome) -> Table:
    """The outcome for people."""
    table = Table(title="The run", title_justify="left", box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    good, bad = "bold green", "bold red"
    asked_for = outcome.asked_for
    for label, count in (
        ("flights stored", outcome.sent),
        ("flights consumed", outcome.consumed),
        ("records forwarded", outcome.forwarded),
    ):
        table.add_row(label, Text(f"{count:,} / {asked_for:,}", style=good if count == asked_for else bad))
    for label, found in (
        ("lost", outcome.lost),
        ("done twice", outcome.duplicated),
        ("dead-lettered", outcome.dead_lettered),
    ):
        table.add_row(label, Text("?" if found is None else f"{found:,}", style=good if found == 0 else bad))
    for label, equal in (("sums per carrier", outcome.totals_equal), ("sums in the database", outcome.database_equal)):
        table.add_row(label, Text("equal" if equal else "different", style=good if equal else bad))
    for takeover in outcome.takeovers:
        table.add_row(f"takeover, epoch {takeover.epoch}", f"{takeover.gap_ms:,.0f} ms")
    table.add_row("flights/s, kills included", f"{outcome.msgs_per_s:,.0f}")
    return table
