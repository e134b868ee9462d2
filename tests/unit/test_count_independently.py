"""The independent count agrees with a right history, and finds each fault that is put into it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tools.count_independently import COLUMNS, main

Row = dict[str, Any]
FLOW = "drill.1.picky"
INTEGERS = set(COLUMNS) - {"kind", "message_id", "txn", "cause", "name", "temporary"}


def fact(position: int, kind: str, epoch: int = 1, **columns: Any) -> Row:
    return {**dict.fromkeys(COLUMNS), "position": position, "ordinal": 0, "epoch": epoch, "kind": kind, **columns}


def history() -> list[Row]:
    """Three messages of one producer; two are consumed, one in a later epoch, and one is a dead letter."""
    sent = [
        fact(n + 1, "MessageStored", queue=1, seq=n, message_id=f"ID:{n}", producer=1, number=n) for n in range(1, 4)
    ]
    return [
        fact(1, "QueueCreated", queue=1, name=FLOW),
        *sent,
        fact(5, "QueueCreated", queue=2, name=f"DLQ.{FLOW}"),
        fact(6, "MessageConsumed", queue=1, seq=1),
        fact(7, "DuplicateDropped", epoch=2, producer=1, number=2),
        fact(8, "MessageConsumed", epoch=2, queue=1, seq=2, txn=b"t"),
        fact(9, "TransactionCommitted", epoch=2, txn=b"t"),
        fact(10, "MessageDeadLettered", epoch=2, queue=1, seq=3, dead_queue=2, dead_seq=1),
        fact(11, "MessageStored", epoch=2, queue=2, seq=1, message_id="ID:3", origin_queue=1, origin_seq=3),
    ]


SENT = "".join(f"sending {n}\nstored {n}\n" for n in (1, 2, 40))
RECEIVED = "seen p 1 0\ntrying p 1\ndone p 1\nseen p 2 0\nseen p 2 1\ntrying p 2\ndone p 2\n"


def write(directory: Path, rows: list[Row], sent: str = SENT, received: str = RECEIVED) -> Path:
    types = [(name, pa.int64() if name in INTEGERS else None) for name in COLUMNS]
    columns = {name: pa.array([row[name] for row in rows], type) for name, type in types}
    (directory / "store" / "ledger").mkdir(parents=True)
    pq.write_table(pa.table(columns), directory / "store" / "ledger" / "facts-1-11.parquet")
    records = directory / "records"
    records.mkdir()
    head: Row = {"type": "Producing", "producer": "p", "flow": FLOW}
    (records / "p.records").write_text(f"{json.dumps(head)}\n{sent}")
    head = {"type": "Consuming", "subscription": FLOW, "flow": FLOW, "told": True}
    (records / "c.records").write_text(f"{json.dumps(head)}\n{received}")
    return directory


@pytest.mark.parametrize("numbered", [True, False])
def test_only_who_does_not_number_may_resend(
    numbered: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Qpid JMS sends again what it has no answer to, and nobody can tell (promise 1 is for those who number)."""
    again = [
        fact(12, "MessageStored", epoch=2, queue=1, seq=4, message_id="ID:1"),
        fact(13, "MessageConsumed", epoch=2, queue=1, seq=4),
    ]
    directory = write(tmp_path, [*history(), *again])
    head: Row = {"type": "Producing", "producer": "p", "flow": FLOW, "numbered": numbered}
    (directory / "records" / "p.records").write_text(f"{json.dumps(head)}\n{SENT}")
    assert main(directory) == int(numbered)
    assert ("1 messages stored again" in capsys.readouterr().out) is not numbered


def test_a_right_history_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(write(tmp_path, history())) == 0
    assert "agrees" in capsys.readouterr().out


def without(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] != kind]


FAULTS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "positions missing": lambda rows: rows[:2] + rows[3:],
    "positions after which an older epoch wrote": lambda rows: [*rows[:-1], {**rows[-1], "epoch": 1}],
    "places given twice": lambda rows: [*rows, fact(12, "MessageStored", 2, queue=1, seq=1, origin_queue=9)],
    "messages that left twice": lambda rows: [*rows, fact(12, "MessageConsumed", 2, queue=1, seq=1)],
    "messages that left and were never stored": lambda rows: [*rows, fact(12, "MessageConsumed", 2, queue=1, seq=9)],
    "messages moved to a place that has none": lambda rows: rows[:-1],
    "messages stored twice under one number": lambda rows: [
        *rows,
        fact(12, "MessageStored", 2, queue=1, seq=9, message_id="ID:9", producer=1, number=1),
        fact(13, "MessageConsumed", 2, queue=1, seq=9),
    ],
    "messages stored twice under one id": lambda rows: [
        *rows,
        fact(12, "MessageStored", 2, queue=1, seq=9, message_id="ID:1", producer=7, number=1),
        fact(13, "MessageConsumed", 2, queue=1, seq=9),
    ],
    "resends dropped of a number that is not stored": lambda rows: [
        *rows,
        fact(12, "DuplicateDropped", 2, producer=1, number=9),
    ],
    "transactions both committed and rolled back": lambda rows: [
        *rows,
        fact(12, "TransactionRolledBack", 2, txn=b"t"),
    ],
    "messages of a producer out of order": lambda rows: [
        {**row, "number": {1: 2, 2: 1}.get(row["number"], row["number"])} for row in rows
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_ledger_is_found(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(write(tmp_path, FAULTS[fault](history()))) == 1
    assert f" {fault}: " in capsys.readouterr().out


def test_a_ledger_without_its_beginning_is_not_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was counted from the first position that was there."""
    assert main(write(tmp_path, history()[1:])) == 1
    assert "1 positions missing: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fault", "sent", "received"),
    [
        ("messages lost", SENT, RECEIVED.replace("done p 1\n", "undone p 1\n")),
        ("messages done twice", SENT, RECEIVED + "done p 2\n"),
        ("messages presented twice without the flag", SENT, RECEIVED.replace("seen p 2 1", "seen p 2 0")),
        ("messages that came though", SENT.replace("stored 1", "refused 1"), RECEIVED),
    ],
)
def test_a_fault_in_what_clients_were_told_is_found(
    fault: str, sent: str, received: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(write(tmp_path, history(), sent, received)) == 1
    assert fault in capsys.readouterr().out.partition("WRONG")[2]


@pytest.mark.parametrize(
    ("flow", "sent"),
    [(FLOW, SENT.replace("40", "39")), ("drill.1.auto", SENT)],
    ids=["a message that is not to", "a queue in which none is to"],
)
def test_only_what_is_to_die_may(flow: str, sent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "name": row["name"] and row["name"].replace(FLOW, flow)} for row in history()]
    directory = write(tmp_path, rows, sent)
    for file in (directory / "records").iterdir():
        file.write_text(file.read_text().replace(FLOW, flow))
    assert main(directory) == 1
    wrong = capsys.readouterr().out.partition("WRONG")[2]
    assert "dead letters that were not to die" in wrong
    assert "1 messages lost" in wrong


def test_what_is_to_die_and_waits_for_its_last_delivery_is_not_lost(tmp_path: Path) -> None:
    waits = [row for row in history() if (row["kind"] != "MessageDeadLettered" and row["queue"] != 2) or row["name"]]
    assert main(write(tmp_path / "waits", waits)) == 0
    gone = [*waits, fact(10, "MessageConsumed", epoch=2, queue=1, seq=3)]
    assert main(write(tmp_path / "gone", gone)) == 1


def test_what_died_though_a_consumer_was_done_with_it_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(write(tmp_path, history(), SENT.replace("40", "2"))) == 1
    assert f"1 queues with dead letters that were not to die: ('DLQ.{FLOW}', 1)" in capsys.readouterr().out
