"""The trial from start to verdict."""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from flights_trial.driver import Driver
from flights_trial.sending import Sender, flights_in_order, read_alerts
from flights_trial.truth import Verdict, found_delays, judge, true_delays, window_of_alert
from legato.testing import BrokerPair, broker_pair

LOOK_EVERY_S = 0.1
EXAMPLES_MAX = 5
SHOW_EVERY_S = 3.0
STALL_S = 600.0
"""A driver takes some seconds to start; on a machine with much else to do, minutes."""


class Trial:
    """Flights, a pipeline that reads them, and who is killed when."""

    def __init__(self, pair: BrokerPair, script: Path, count: int, kills: int, seed: int, out: Path) -> None:
        self._pair = pair
        self._chance = random.Random(seed)
        self._kills = kills
        self.flights = flights_in_order(count)
        self._sender = Sender(pair.url, self.flights)
        self.driver = Driver(script, pair.url, out)
        self.killed: Counter[str] = Counter()
        self._shown, self._show_at = (0, 0, 0), 0.0

    def perform(self) -> None:
        """Send in portions; while a portion is on its way somebody is killed, after the last one nobody is."""
        self._sender.start()
        victims = (["driver", "primary"] * self._kills)[: self._kills]
        self._chance.shuffle(victims)
        count = len(self.flights)
        for number, victim in enumerate(victims):
            begins, ends = (count * each // (len(victims) + 1) for each in (number, number + 1))
            self._sender.allow(ends)
            threshold = self._chance.randint(begins, ends)
            self._wait_until(lambda threshold=threshold: self._sender.sent >= threshold)
            self._kill(victim)
        self._sender.allow(count)
        # One more than there are flights: the message that closes the windows.
        self._wait_until(lambda: self.driver.taken > count)

    def _kill(self, victim: str) -> None:
        if victim == "driver":
            before = self.driver.batches
            self._wait_until(lambda: self.driver.batches > before)
            pause_s = self._chance.uniform(0, 1)
            began = time.monotonic()
            self._wait_until(lambda: time.monotonic() - began > pause_s)
            say("SIGKILL to the driver, its JVM and its workers")
            self.driver.kill()
        else:
            name = self._pair.primary.name
            self._pair.fail_over()
            say(f"SIGKILL to {name}; {self._pair.primary.name} serves, epoch {self._pair.primary.epoch}")
        self.killed[victim] += 1

    def _wait_until(self, reached: Callable[[], bool]) -> None:
        """Keep the driver running until something is so.

        Raises:
            TimeoutError: nothing moves.
        """
        deadline, before = time.monotonic() + STALL_S, (-1, -1, -1)
        while not reached():
            self._sender.check()
            if self.driver.keep_running():
                say(f"driver {self.driver.starts} is started")
            now = (self._sender.sent, self.driver.taken, self.driver.batches)
            if now != before:
                deadline, before = time.monotonic() + STALL_S, now
            self._show(*now)
            if time.monotonic() > deadline:
                raise TimeoutError(f"Nothing moves for {STALL_S:g} s; see {self.driver.log}.")
            time.sleep(LOOK_EVERY_S)

    def _show(self, sent: int, taken: int, batches: int) -> None:
        """A line now and then, if there is news."""
        if (sent, taken, batches) != self._shown and time.monotonic() > self._show_at:
            self._shown, self._show_at = (sent, taken, batches), time.monotonic() + SHOW_EVERY_S
            print(f"  sent {sent:>7,}   taken by Spark {taken:>7,}   batches {batches:>3}", flush=True)


def say(text: str) -> None:
    """Tell of something that happened."""
    print(f"= {text}", flush=True)


def trial(script: Path, count: int, kills: int, seed: int | None, keep: Path | None) -> int:
    """Perform the trial of a pipeline; the exit code says whether everything came out exactly once.

    Args:
        script: the pipeline, that takes `--url` and `--out`.
        count: how many flights are sent.
        kills: how often somebody is killed; half of the time the driver, half of the time the primary.
        seed: decides who is killed, and about when; None draws one.
        keep: a new directory that stays; None for one that does not.
    """
    # Whoever ends the trial ends its processes too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    seed = random.SystemRandom().randrange(1, 1_000_000) if seed is None else seed
    say(f"{count:,} flights, {kills} kills, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="legato-flights-") as scratch:
        out = (keep or Path(scratch)).absolute()
        if keep is not None and keep.exists() and any(keep.iterdir()):
            say(f"{keep} is not empty")
            return 2
        out.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with broker_pair(out) as pair:
            run = Trial(pair, script, count, kills, seed, out)
            try:
                run.perform()
                code = run.driver.finish()
                batches, alerts = run.driver.batches, read_alerts(pair.url)
            finally:
                run.driver.kill()
        verdict = judge(true_delays(run.flights), found_delays(out / "delays"), [*map(window_of_alert, alerts)])
        seconds = time.monotonic() - began
    killed = ", ".join(f"{who} {times}x" for who, times in sorted(run.killed.items())) or "nobody"
    say(f"killed: {killed}; {run.driver.starts} drivers, {batches} batches, {seconds:.0f} s")
    if code:
        verdict.faults.append(f"the pipeline ended with {code}; see {run.driver.log} (with --out)")
    show_verdict(verdict, count)
    return 1 if verdict.faults else 0


def show_verdict(verdict: Verdict, count: int) -> None:
    """Tell what came out."""
    for fault in verdict.faults[:EXAMPLES_MAX]:
        print(f"✕ {fault}")
    if len(verdict.faults) > EXAMPLES_MAX:
        print(f"✕ ... and {len(verdict.faults) - EXAMPLES_MAX} more")
    print(
        f"{'✕' if verdict.faults else '✓'} {count:,} flights sent, {verdict.flights:,} counted in "
        f"{verdict.windows:,} windows; {verdict.alerts:,} alerts"
        + ("" if verdict.faults else ": everything exactly once")
    )
