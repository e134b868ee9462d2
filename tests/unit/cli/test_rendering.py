"""How figures look on a terminal."""

import re
from typing import Any

import pytest

from legato.cli.rendering import QUEUE_COLUMNS, age, print_nodes, print_status, replication_lines
from legato.sizes import size


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (150 * 1024, "150 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 50, "3072 TiB"),
    ],
)
def testsizes_are_short(count: int, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages_are_short(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


def test_headings_are_divided_only_where_a_terminal_is_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, heading in (("80", " flight consumers "), ("100", " in flight consumers ")):
        monkeypatch.setenv("COLUMNS", columns)
        print_nodes({"name": "name"} | QUEUE_COLUMNS, [queue("orders.eu.north.fast")])
        assert heading in capsys.readouterr().out


def queue(name: str) -> dict[str, Any]:
    """A row whose figures are as wide as any."""
    return {
        "name": name, "depth": 123_456_789, "bytes": 1023 << 30, "in_flight": 10_000, "consumers": 100,
        "head_age_s": 1e7, "stored_per_s": 12_345.0, "acknowledged_per_s": 12_345.0, "paused": False,
    }  # fmt: skip


STATUS: dict[str, Any] = {
    "role": "primary", "container_id": "legato@a-machine-with-a-long-name.example", "listen": "localhost:5672",
    "epoch": 12, "connections": 1, "since_us": 1_795_399_815_818_389, "producers_refused": "", "long_readers": [],
    "store_used_bytes": 5 << 30, "store_capacity_bytes": 1 << 40, "free_disk_bytes": 7 << 30,
    "queues": [queue("orders.eu.north.fast"), queue("orders")],
    "topics": [{"name": "prices", "subscriptions": 3}],
    "failover": {
        "cause": "crash", "detection_ms": 3.0, "takeover_ms": 17.0, "backups": ["localhost:5673"],
        "expected_crash_ms": 20.0, "expected_switchover_ms": 17.0, "silence_noticed_after_s_min": 7,
        "silence_noticed_after_s_max": 10, "self_fencing": False, "clients_return_within_ms": 0,
    },
    "members": [
        {"role": "primary", "pid": 31190, "listen": "localhost:5672", "epoch": 12, "since_us": 1_795_399_815_818_389},
        {"role": "backup", "pid": 9701, "listen": "localhost:5673", "epoch": 0, "since_us": 1_795_399_815_818_389},
    ],
}  # fmt: skip


def test_the_status_fits_eighty_columns_and_breaks_no_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_status(STATUS)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for whole in ("localhost:5673", "orders.eu.north.fast", "123,456,789", "1023 GiB", "process 31190"):
        assert whole in shown, whole
    assert "The store uses 5.0 GiB, and has room for 7.0 GiB more." in " ".join(shown.split())
    assert "1,795,399" not in shown, "times are times, not microseconds"


@pytest.mark.parametrize("columns", range(40, 120, 7))
def test_no_line_of_a_status_ends_between_a_number_and_its_unit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """`8.0 / KiB`, `56 / ms`."""
    monkeypatch.setenv("COLUMNS", str(columns))
    print_status(STATUS | {"queues": [], "topics": []})
    shown = capsys.readouterr().out
    assert not [line for line in shown.splitlines() if re.match(r"(ms|s|GiB)\b", line.strip())], shown
    assert max(map(len, shown.splitlines())) <= columns


def test_a_replicated_broker_says_in_words_how_its_log_is() -> None:
    server = {"server": "log-1", "leads": True, "current": True, "lag": 0, "synced": True}
    other = server | {"server": "log-2", "leads": False}
    well = {
        "state": "leads",
        "group": "orders",
        "sequence": 1234,
        "behind": 0,
        "commits": 1000,
        "voided": 0,
        "lease_ms": 500,
        "sure": True,
        "quorum": True,
        "log_bytes": 1 << 20,
        "servers": [server, other],
        "trouble": [],
    }
    assert replication_lines(None) == []
    ((line, _),) = replication_lines(well)
    assert "group orders, record 1,234 of the log; 2 of 2 log servers are current, log-1 leads" in line
    ill = well | {
        "sure": False,
        "quorum": False,
        "servers": [server | {"leads": False, "synced": False}, other | {"current": False}],
        "trouble": ["log-2 does not answer."],
    }
    said = [line for line, _ in replication_lines(ill)]
    assert "1 of 2 log servers are current, nobody leads" in said[0]
    assert said[1].startswith("The log has no quorum: nothing is confirmed")
    assert said[2].startswith("The log has not answered for 500 ms")
    assert said[3].startswith("log-1 confirms before it writes to disk")
    assert said[4] == "The log: log-2 does not answer."
    backup = {
        "listen": "two.example:5672",
        "state": "follows",
        "version": "1.2.3",
        "commits": 900,
        "sequence": 1234,
        "behind": 0,
        "heard_s": 1.5,
        "away": False,
        "trouble": "",
    }
    late = {"listen": "three.example:5672", "behind": 1200, "away": True, "heard_s": 300.0, "trouble": "it is gone."}
    told = replication_lines(well | {"backups": [backup, backup | late]})[1:]
    assert told == [
        ("The backup at two.example:5672 (Legato 1.2.3) has all records.", "dim"),
        (
            "The backup at three.example:5672 (Legato 1.2.3) is 1,200 records behind and was last heard 5 min ago: "
            "it is gone.",
            "yellow",
        ),
    ]
