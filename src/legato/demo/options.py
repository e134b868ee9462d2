"""Options of a demo run, checked before anything starts."""

from dataclasses import dataclass, field
from pathlib import Path

from legato.errors import ConfigError

FLIGHTS_ALL = 336_776
"""`records.FLIGHTS_TOTAL`, which is not imported here because it needs the extra `spark`."""
FLIGHTS_ON_MACHINES = 60_000
"""By default, where each message is written to three disks that are one."""
MACHINES = (1, 3, 5)
FLIGHTS_QUEUE = "flights"
DEPARTURES_QUEUE = "departures"


@dataclass(frozen=True)
class DemoOptions:
    """The options of one run.

    Args:
        flights: how many of the flights to send, 1 to 336,776.
        kills: how often the current primary gets SIGKILL, or its machine is lost.
        machines: 1, where primary and backup share a directory, or 3 or 5 that share nothing but a replicated log.
        seed: of the kill instants; None draws one, which is shown.
        json_file: where to write the result as JSON, None for nowhere.
        report_file: where to write the HTML page, None for `report.html` in the output directory.
        out: directory for store, ledger, records and logs; emptied first if an earlier run made it.
        producers: producer processes.
        workers: worker processes, each with `sessions_per_worker` threads for a stage.
        flights_per_commit: the most flights that a stage takes into one transaction.
        port: port of the first broker, the second has the next one; 0 picks free ones.
    """

    flights: int = FLIGHTS_ALL
    kills: int = 2
    machines: int = 1
    seed: int | None = None
    json_file: Path | None = None
    report_file: Path | None = None
    out: Path = field(default_factory=lambda: Path("demo-out"))
    producers: int = 2
    workers: int = 2
    sessions_per_worker: int = 2
    flights_per_commit: int = 200
    port: int = 0

    def __post_init__(self) -> None:
        bounds = [
            ("--flights", self.flights, 1, FLIGHTS_ALL),
            ("--kills", self.kills, 0, 100),
            ("--producers", self.producers, 1, 32),
            ("--workers", self.workers, 1, 32),
            ("--batch", self.flights_per_commit, 1, 1000),
            ("--port", self.port, 0, 65_534),
        ]
        for name, value, low, high in bounds:
            if not low <= value <= high:
                raise ConfigError(f"{name} is {value}; it takes {low} to {high}.")
        if self.machines not in MACHINES:
            raise ConfigError(
                f"--machines is {self.machines}; it takes 1, 3 or 5: a majority of them has to outlive the loss of one."
            )

    @property
    def losses(self) -> str:
        """What is lost again and again, as a word."""
        return "kills" if self.machines == 1 else "machines lost"
