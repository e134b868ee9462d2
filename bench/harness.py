"""Frame of every benchmark: describes the machine, prints a table, saves the result, ends with JSON."""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from bench.figures import Goal, Pair, spread, summary

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
PACKAGES = ["python-qpid-proton", "lmdb", "uvloop", "msgspec", "aio-pika"]


def options(description: str | None, *, count: int) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks share; `count` is the default number of messages in a run."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--pairs", type=int, default=5, help="how often each side runs, alternating")
    parser.add_argument("--count", type=int, default=count, help="messages in a run")
    parser.add_argument("--size", type=int, default=256, help="bytes of data in a message")
    return parser


def _first_line(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(key):
            return line.split(":", 1)[1].strip()
    return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def surroundings() -> dict[str, Any]:
    """The machine, how busy it already is, the commit, and the versions of what matters for speed."""
    dirty = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "bench/*.py")
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _first_line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": (_git("rev-parse", "--short", "HEAD") or "unknown") + ("+changes" if dirty else ""),
        "versions": {package: _version(package) for package in PACKAGES},
    }


@contextmanager
def temporary_store() -> Iterator[Path]:
    """A directory on a real disk (under `BENCH_STORE`, else /var/tmp), removed afterwards.

    Raises:
        SystemExit: that directory is memory, where an fsync costs nothing.
    """
    base = Path(os.environ.get("BENCH_STORE", "/var/tmp"))
    kind = subprocess.run(
        ["stat", "--file-system", "--format", "%T", str(base)], capture_output=True, text=True, check=True
    ).stdout.strip()
    if kind in {"tmpfs", "ramfs"}:
        sys.exit(f"{base} is a {kind}: set BENCH_STORE to a directory on a disk, or every fsync is free.")
    # A benchmark that is told to end takes its brokers and its stores with it.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    path = Path(mkdtemp(prefix="legato-bench-", dir=base))
    try:
        yield path
    finally:
        rmtree(path, ignore_errors=True)


def note(text: str) -> None:
    """Tell the person who waits what is going on; never on the last line of standard output."""
    print(text, flush=True)


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A plain table, numbers to the right."""
    cells = [list(headings), *[[_cell(value) for value in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    lines = []
    for number, row in enumerate(cells):
        first, *others = (
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 0.01 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def pairs_table(subject: str, peer: str, unit: str, pairs: Sequence[Pair]) -> str:
    """Every pair, then minimum, median and maximum of both sides and of the ratio."""
    rows: list[list[object]] = [[f"pair {n}", p.figure, p.peer, p.ratio] for n, p in enumerate(pairs, 1)]
    figures, peers = spread([p.figure for p in pairs]), spread([p.peer for p in pairs])
    ratios = spread([p.ratio for p in pairs])
    rows.append(["minimum", figures.minimum, peers.minimum, ratios.minimum])
    rows.append(["median", figures.median, peers.median, ratios.median])
    rows.append(["maximum", figures.maximum, peers.maximum, ratios.maximum])
    return table([unit, subject, peer, "ratio"], rows)


def finish(name: str, question: str, text: str, result: Mapping[str, Any], *, runs: Sequence[Any]) -> None:
    """Print the table, append the dated entry to `bench/results/<name>.json`, and end with the one JSON line.

    `result` has `figure`, `peer`, `ratio`, the spread `min`, `median`, `max`, and `goal` and `met`; `runs` are the
    single measurements, kept but not printed.
    """
    where = surroundings()
    note(f"\n{name}: {question}")
    note(
        f"{where['cores']} x {where['cpu']}, {where['memory_gib']} GiB, Linux {where['kernel']}, "
        f"load {where['load_average']}"
    )
    versions = ", ".join(f"{package} {number}" for package, number in where["versions"].items())
    note(f"commit {where['commit']}, Python {where['python']}, {versions}\n")
    note(text + "\n")
    RESULTS.mkdir(parents=True, exist_ok=True)
    kept = RESULTS / f"{name}.json"
    entries = json.loads(kept.read_text()) if kept.exists() else []
    entries.append({**where, "question": question, **result, "runs": list(runs), "table": text.splitlines()})
    kept.write_text(json.dumps(entries, indent=1) + "\n")
    print(json.dumps({"benchmark": name, **result}), flush=True)


def finish_pairs(
    name: str,
    question: str,
    sides: tuple[str, str],
    pairs: Sequence[Pair],
    goal: Goal | None,
    *,
    unit: str,
    remark: str = "",
    **details: Any,
) -> None:
    """`finish` for the usual case: two sides that ran alternately, and a goal on the median of their ratios."""
    text = pairs_table(*sides, unit, pairs) + (f"\n\n{remark}" if remark else "")
    runs = [{"figure": round(p.figure, 3), "peer": round(p.peer, 3), "ratio": round(p.ratio, 3)} for p in pairs]
    named = {"unit": unit, "sides": list(sides)}
    finish(name, question, text, summary(pairs, goal) | named | details, runs=runs)
