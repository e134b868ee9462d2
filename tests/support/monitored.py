"""Reads a broker's HTTP endpoint, for tests."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

WAIT_S = 60.0
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


def fetch(port: int, path: str) -> tuple[int, str]:
    """Status and body of `GET path`, as Prometheus asks."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": OPEN_METRICS})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def fetch_json(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of `GET path`."""
    status, body = fetch(port, path)
    return status, json.loads(body)


class Samples:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
        self.families = {family.name for family in families}
        """The names of metrics; of histograms and counters the samples have longer ones."""
        self._values = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    def names(self) -> set[str]:
        """Every name."""
        return {name for name, _ in self._values}

    def get(self, name: str, **labels: str) -> float | None:
        """A value, or None if there is none."""
        return self._values.get((name, tuple(sorted(labels.items()))))


def scrape(port: int) -> Samples:
    """All metrics now."""
    status, text = fetch(port, "/metrics")
    assert status == 200, text
    return Samples(text)


def scrape_until(port: int, holds: Callable[[Samples], bool]) -> Samples:
    """Scrape until `holds`: the text of a scrape is up to half a second old."""
    found: list[Samples] = []

    def look() -> bool:
        found.append(scrape(port))
        return holds(found[-1])

    until(look)
    return found[-1]


def until(holds: Callable[[], bool]) -> None:
    """Ask again and again until it `holds`."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never held"
        time.sleep(0.05)
