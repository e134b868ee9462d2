"""Options of a drill, checked before anything starts."""

from dataclasses import dataclass, field
from pathlib import Path

from legato.client.failover.uri import FAILOVER_CONTRACTS
from legato.drill.faults import FAULTS, Fault
from legato.errors import ConfigError
from legato.failpoints import AnyPoint

BROKERS_MAX = 5


@dataclass(frozen=True)
class DrillOptions:
    """The options of one drill.

    Args:
        faults: which faults there are.
        points: where they strike; None stands for instants at random, of which there are only such if it is empty.
        minutes: how long faults go on; None: until there were `count`.
        count: how many faults there are; None: as many as the time allows.
        every_s: seconds between two faults, on average.
        rate_per_s: messages a second of each producer.
        seed: of the plan; None draws one, which is shown.
        config: settings of the drill's own brokers, beside its own store, ports and ledger.
        brokers: how many the drill starts: a primary and its backups.
        url: somebody else's brokers instead of our own.
        out: directory for store, ledger, records and logs; emptied first if an earlier drill made it.
        json_file, report_file: where to write the result, None for nowhere and for `report.html` in `out`.
        spark: whether Spark audits the ledger; without, the log of facts is audited here, which says less.
        contract: the failover contract of the Python clients.
        java: classpath with `legato.interop.DrillClients`, for Java clients beside the Python ones.
        users: whether clients are users of brokers with roles, and their administrators are others.
        spark_load: whether a Spark job streams from one queue into another beside the clients.
    """

    faults: tuple[Fault, ...] = tuple(fault for fault in Fault if not FAULTS[fault].spark_load)
    points: tuple[AnyPoint | None, ...] = ()
    minutes: float | None = 1.0
    count: int | None = None
    every_s: float = 4.0
    rate_per_s: float = 20.0
    seed: int | None = None
    config: Path | None = None
    brokers: int = 2
    url: str | None = None
    out: Path = field(default_factory=lambda: Path("drill-out"))
    json_file: Path | None = None
    report_file: Path | None = None
    spark: bool = True
    contract: str = "legato"
    java: str | None = None
    spark_load: bool = False
    users: bool = False

    def __post_init__(self) -> None:
        if self.url is not None and self.config is not None:
            raise ConfigError("--config is for brokers that the drill starts, --url for brokers that run: give one.")
        if self.url is not None and self.brokers != 2:
            raise ConfigError("--brokers says how many the drill starts; with --url it starts none.")
        if self.url is not None and self.users:
            raise ConfigError("--users is for brokers that the drill starts; with --url the URL has the user.")
        if self.url is not None and self.spark_load:
            raise ConfigError("--spark-load needs brokers that the drill starts itself: leave out --url.")
        if self.minutes is None and self.count is None:
            raise ConfigError("Say how long: --minutes, or how many faults: --count.")
        if self.contract not in FAILOVER_CONTRACTS:
            raise ConfigError(f"--contract is one of {', '.join(FAILOVER_CONTRACTS)}, not {self.contract!r}.")
        bounds: list[tuple[str, float | None, float, float]] = [
            ("--minutes", self.minutes, 0.01, 10_000),
            ("--count", self.count, 0, 100_000),
            ("--every", self.every_s, 0.1, 3600),
            ("--brokers", self.brokers, 2, BROKERS_MAX),
            ("--rate", self.rate_per_s, 0.1, 100_000),
        ]
        for name, value, low, high in bounds:
            if value is not None and not low <= value <= high:
                raise ConfigError(f"{name} is {value:g}; it takes {low:g} to {high:g}.")
