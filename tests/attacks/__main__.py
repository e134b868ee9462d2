"""`python -m tests.attacks`: make the attacks, and say of each what it reached and what it cost."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tests.attacks import logins
from tests.attacks.ground import P99_MS, Cost, Fell, Ground
from tests.attacks.register import Attack, all_attacks


class Result(msgspec.Struct):
    """What became of an attack.

    Attributes:
        reached: why it succeeded; empty if it did not.
    """

    number: int
    name: str
    reached: str
    cost: Cost | None = None


def make(attack: Attack, p99_ms: float) -> Result:
    """One attack on a broker of its own."""
    cost = None
    with tempfile.TemporaryDirectory(prefix="legato-attack-") as scratch:
        directory = Path(scratch)
        try:
            with Ground(directory, settings=attack.settings) as ground:
                if attack.own_ground:
                    attack.run(ground)
                else:
                    cost = ground.measure(attack.run)
                    if cost.p99_ms > p99_ms:
                        raise Fell(f"the good client's p99 was {cost.p99_ms:.0f} ms")
                    if cost.rss_growth_bytes > attack.rss_growth_max_bytes:
                        raise Fell(f"the broker took {cost.rss_growth_bytes >> 20} MiB")
                ground.see_whole()
                ground.see_it_stop()
        except AssertionError as error:
            return Result(attack.number, attack.name, str(error) or repr(error), cost)
        except Exception as error:
            return Result(attack.number, attack.name, f"not expected: {error!r}", cost)
    return Result(attack.number, attack.name, "", cost)


def told(result: Result) -> str:
    """A line of the table."""
    cost = result.cost
    figures = (
        f"{cost.trips:5} {cost.p50_ms:6.1f} {cost.p99_ms:7.1f} {cost.longest_ms:8.1f} {cost.cpu_s:6.2f} "
        f"{cost.rss_growth_bytes >> 20:5}"
        if cost is not None
        else " " * 42
    )
    return f"{result.number:3} {figures}  {'SUCCEEDS' if result.reached else 'fails   '}  {result.name}"


def chosen(attacks: Sequence[Attack], only: str) -> Iterator[Attack]:
    """Those of a number, or with a text in their names."""
    for attack in attacks:
        if not only or (only.isdecimal() and int(only) == attack.number) or only.lower() in attack.name.lower():
            yield attack


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attacks of this number, or with this in their name; logins")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--p99-ms", type=float, default=P99_MS, help="what the good client may have to wait")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    attacks = list(chosen(all_attacks(), options.only))
    if options.list:
        print("\n".join(f"{attack.number:3}  {attack.name}" for attack in attacks))
        return
    results = []
    if attacks:
        print("round trips of the good client in ms; processor time (s) and growth (MiB) of the broker")
        print("  #  trips    p50     p99  longest    cpu   MiB")
    for attack in attacks:
        result = make(attack, options.p99_ms)
        results.append(result)
        print(told(result), flush=True)
        if result.reached:
            print(f"     {result.reached[:1000]}", flush=True)
    failed = [result for result in results if result.reached]
    report: dict[str, object] = {"attacks": results}
    if not options.only or options.only == "logins":
        measured = logins.measure(lambda line: print(line, flush=True))
        report["logins"] = measured
        failed += [Result(0, "logins", why) for why in measured.misses(options.p99_ms)]
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    print(f"{len(results) - sum(bool(result.reached) for result in results)} of {len(results)} attacks fail")
    for result in failed:
        print(f"{result.number} {result.name}: {result.reached[:300]}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
