"""Compares the audits of two versions of Legato: fifty ledgers, and each `AuditResult` field by field.

    python -m tools.compare_audits write ledgers
    PYTHONPATH=../before/src python tools/compare_audits.py audit ledgers before.json
    python tools/compare_audits.py audit ledgers after.json
    python tools/compare_audits.py compare before.json after.json

`write` writes the same ledgers each time: random histories of a real broker, such histories spoiled at random, and
logs of all faults with which the tests show what each check finds. `audit` needs nothing but the audit, so that it runs
with the sources of another commit; that an audit fails is a result, too. `compare` exits with 1 if any field differs.
How long an audit took is no part of its result.
"""

import json
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

RANDOM, SPOILED, PLANTED, LARGE = 24, 14, 9, 3
"""Random histories as they are and spoiled at random, logs of ten planted faults each, and logs of twenty histories."""

STEPS = 140
SEGMENTS_MAX = 3
LARGE_SEGMENTS = 12
DIFFERENCES_SHOWN = 40

WAITING = "_waiting.json"
"""What waits in the store at the end, beside the segments: every second audit is told."""


def write(directory: Path) -> None:
    """Write the ledgers; the same ones each time."""
    from tests.spark.history import NEWS_WAITING, QUEUES_EACH, history, news_history, one_log
    from tests.spark.history import WAITING as HISTORY_WAITING
    from tests.spark.test_checks import FAULTS, FURTHER_FAULTS, NEWS_FAULTS
    from tests.unit.core.test_random import History

    from legato.core.facts import LogRecord
    from legato.spark.ledger.segments import write_segment
    from legato.spark.ledger.waiting import waiting_in

    Waiting = list[tuple[int, int]]

    def random_history(seed: int, steps: int) -> tuple[list[LogRecord], Waiting]:
        made = History(seed, detailed=seed % 3 == 0)
        made.run(steps)
        if seed % 2:
            made.heal()
        store = made.s.store
        records = [LogRecord(each.epoch, each.time_us, list(each.facts)) for _, each in store.log(0, 1 << 40)]
        return records, [(row["queue"], row["seq"]) for row in waiting_in(store).to_pylist()]

    def spoil(records: list[LogRecord], chance: random.Random) -> None:
        """Facts are missing, come twice or elsewhere, and sometimes a whole commit is missing."""
        for _ in range(4):
            of = chance.choice([each for each in records if each.facts]).facts
            of.pop(chance.randrange(len(of)))
        for _ in range(3):
            of = chance.choice([each for each in records if each.facts]).facts
            chance.choice(records).facts.append(chance.choice(of))
        if chance.random() < 0.3:
            del records[chance.randrange(len(records))]

    def together(parts: list[tuple[list[LogRecord], Waiting]]) -> tuple[list[LogRecord], Waiting]:
        waiting = [(queue + QUEUES_EACH * n, seq) for n, (_, waits) in enumerate(parts) for queue, seq in waits]
        return one_log([records for records, _ in parts]), waiting

    def save(name: str, records: list[LogRecord], waiting: Waiting, segments: int, missing: int | None = None) -> None:
        ledger = directory / name
        ledger.mkdir(parents=True)
        numbered = list(enumerate(records, 1))
        size = -(-len(numbered) // segments)
        for n, begin in enumerate(range(0, len(numbered), size)):
            if n != missing:
                write_segment(ledger, numbered[begin : begin + size])
        (ledger / WAITING).write_text(json.dumps(waiting))

    for seed in range(RANDOM + SPOILED):
        records, waiting = random_history(1000 + seed, STEPS)
        if seed >= RANDOM:
            spoil(records, random.Random(seed))
        # A segment is missing from every fourth of those that are spoiled.
        missing = 1 if seed >= RANDOM and seed % 4 == 2 else None
        save(f"random-{seed:02}", records, waiting, 1 + seed % SEGMENTS_MAX if missing is None else 3, missing)
    faults = [
        *((fault(history()), HISTORY_WAITING) for fault in FAULTS.values()),
        *((fault(history()), HISTORY_WAITING) for _, fault in FURTHER_FAULTS),
        *((fault(news_history()), NEWS_WAITING) for _, fault in NEWS_FAULTS),
    ]
    each = -(-len(faults) // PLANTED)
    for n in range(PLANTED):
        save(f"planted-{n}", *together(faults[n * each : (n + 1) * each]), 1 + n % SEGMENTS_MAX)
    for n in range(LARGE):
        parts = [random_history(5000 + 100 * n + seed, 300) for seed in range(20)]
        if n == 1:
            for seed, (records, _) in enumerate(parts[::5]):
                spoil(records, random.Random(seed))
        save(f"large-{n}", *together(parts), LARGE_SEGMENTS)


def audit(directory: Path, results: Path) -> None:
    """Audit each ledger with the version of Legato that is imported; write the results."""
    from legato.spark import audit

    # Before the package had names of its own, this was the module.
    audit = getattr(audit, "audit", audit)
    try:
        from legato.spark import start_session
    except ImportError:
        start_session = import_module("legato.spark.session").start_session
    spark = start_session("compare-audits", master="local[2]", driver_memory="2g")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    found: dict[str, Any] = {}
    for n, ledger in enumerate(sorted(directory.iterdir())):
        waits = [tuple(place) for place in json.loads((ledger / WAITING).read_text())]
        waiting = spark.createDataFrame(waits, "queue int, seq bigint") if n % 2 else None
        try:
            found[ledger.name] = json.loads(audit(ledger, spark, waiting=waiting).to_json())
        except Exception as error:
            # That it fails is a result, too, and to be seen.
            found[ledger.name] = {"facts": 0, "checks": [], "error": repr(error), "seconds": 0}
        del found[ledger.name]["seconds"]
        print(ledger.name, file=sys.stderr, flush=True)
    spark.stop()
    results.write_text(json.dumps(found, indent=1))


def compare(before: Path, after: Path) -> int:
    """Print the fields that differ; returns how many ledgers have any."""
    old, new = (json.loads(path.read_text()) for path in (before, after))
    differing = 0
    by_field: dict[str, list[str]] = {}
    for name in sorted(old.keys() | new.keys()):
        differences = list(_differences(old.get(name), new.get(name), ""))
        differing += bool(differences)
        for field, difference in differences:
            by_field.setdefault(field, []).append(f"{name}: {difference}")
    for field, examples in sorted(by_field.items())[:DIFFERENCES_SHOWN]:
        print(f"{field or 'ledger'}: {len(examples)} times, as in {examples[0]}")
    failed = [check["name"] for result in new.values() for check in result["checks"] if check["count"]]
    passed = sum(bool(each["checks"]) and not any(check["count"] for check in each["checks"]) for each in new.values())
    checks = {check["name"] for result in new.values() for check in result["checks"]}
    for name, result in new.items():
        if "error" in result:
            print(f"{name} cannot be audited: {result['error']}")
    print(f"{len(new)} ledgers, {sum(result['facts'] for result in new.values()):,} facts; {passed} pass every check")
    print(f"{len(set(failed))} of {len(checks)} checks fail somewhere; never: {sorted(checks - set(failed))}")
    print(f"{differing} ledgers differ, in {len(by_field)} fields")
    return differing


def _differences(old: Any, new: Any, field: str) -> Iterator[tuple[str, str]]:
    """Each field that differs, with both values; what has a name is compared with what has the same."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), f"{field}.{key}" if field else str(key))
    elif isinstance(old, list) and isinstance(new, list) and _named(old) and _named(new):
        mine, others = ({each["name"]: each for each in of} for of in (old, new))
        for name in {**mine, **others}:
            inner = f"{field}[{name}]" if field == "checks" else f"{field}[]"
            yield from _differences(mine.get(name, {}), others.get(name, {}), inner)
    elif old != new:
        yield field, f"{str(old)[:100]} -> {str(new)[:100]}"


def _named(values: list[Any]) -> bool:
    names = [each.get("name") if isinstance(each, dict) else None for each in values]
    return None not in names and len(set(names)) == len(names)


def main() -> int:
    """Command line."""
    match sys.argv[1:]:
        case ["write", directory]:
            write(Path(directory))
        case ["audit", directory, results]:
            audit(Path(directory), Path(results))
        case ["compare", before, after]:
            return min(1, compare(Path(before), Path(after)))
        case _:
            raise SystemExit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
