"""Put a fleet through its paces: `python -m simulator.fleet [--groups N] [--machines N] ... [--json]`."""

from __future__ import annotations

import argparse
import sys

import msgspec

from simulator.fleet.fleet import IMBALANCE_MAX, MOVED_MAX, Fleet, Plan, Report

_HELP = {
    "groups": "groups of brokers",
    "machines": "machines",
    "racks": "racks that the machines are in",
    "members": "brokers of a group",
    "backup_load": "what a backup costs its machine, over what the primary does",
    "addresses": "queues and topics",
    "clients": "clients of all groups",
    "cores": "processor cores of a machine",
    "returns_per_s": "setting of each broker",
    "login_s": "processor time of a broker to let a client in",
    "serves_s": "time from the loss of a primary until a backup serves",
    "outage_s": "for so long there is no broker at all, in one of the trials",
    "added": "share of machines and groups that are added",
    "seed": "of what is left to chance",
}


def main(arguments: list[str] | None = None) -> int:
    """Print what was found; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m simulator.fleet", description=__doc__)
    defaults = Plan()
    for name, text in _HELP.items():
        default = getattr(defaults, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"{text}; {default:,}"
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    report = Fleet(Plan(**given)).run()
    if as_json:
        print(msgspec.json.encode({"plan": given, "report": report, "misses": report.misses()}).decode())
    else:
        print("\n".join(lines(report)))
    return 1 if report.misses() else 0


def lines(report: Report) -> list[str]:
    """The report for people."""
    told = [f"Spread, over the mean (goal: p99 at most {IMBALANCE_MAX:g})"]
    told += [
        f"  {name:32} median {each.median:.3f}, p99 {each.p99:.3f}, most {each.most:.3f}"
        for name, each in report.spreads.items()
    ]
    told.append(f"Moves (goal: at most {MOVED_MAX:g} of the least possible)")
    told += [
        f"  {name:32} {each.moved:,}, the least is {each.least:,.0f}: {each.ratio:.3f}"
        for name, each in report.moves.items()
    ]
    told.append(f"  primaries that change places when machines are added: {report.switchovers:,}")
    told.append("Clients back")
    told += [
        f"  {name:32} {each.clients:,} within {each.last_s:.1f} s (spread over {each.window_s:.1f} s), "
        f"{each.tries_each:.2f} logins each, at most {each.waiting_max:,} waiting at a broker"
        for name, each in report.returns.items()
    ]
    return told + [f"MISSED: {each}" for each in report.misses()]


if __name__ == "__main__":
    sys.exit(main())
