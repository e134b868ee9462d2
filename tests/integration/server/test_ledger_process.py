"""The process that writes the ledger: what it says when it cannot, and what of that is in the broker's log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from legato.core.facts import MessageStored, QueueCreated
from legato.core.records import Batch
from legato.server.storage.ledger_process import LedgerProcess
from legato.spark.ledger.segments import exported_through
from legato.store.lmdb import LmdbStore
from tests.support.monitored import until
from tests.support.server import Server, server
from tests.support.small_disk import small_disk

EXPORTER = (sys.executable, "-m", "legato.spark.exporter")


def fill_log(path: Path) -> int:
    """A store with a few facts; returns the position of the last."""
    store = LmdbStore(path)
    store.begin_epoch("broker", 1)
    store.commit(Batch(1, 2, [QueueCreated(1, "q")], []))
    position = 0
    for seq in range(1, 6):
        position = store.commit(Batch(1, 10 * seq, [MessageStored(1, seq, 4, f"ID:{seq}")], [b"body"]))
    store.close()
    return position


def test_a_ledger_on_a_full_disk_costs_one_line_of_the_log_and_is_written_when_there_is_room(tmp_path: Path) -> None:
    """The log had a page of calls every few seconds."""
    last = fill_log(tmp_path / "store")
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        ledger = disk.path / "ledger"
        ledger.mkdir(mode=0o700)
        disk.fill()
        command = (*EXPORTER, "--store", tmp_path / "store", "--ledger", ledger, "--segment-s", "0.1")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as exporter:
            assert exporter.stderr is not None
            assert exporter.stderr.readline() == (
                f"the ledger {ledger} cannot be written: No space left on device. "
                "The store keeps the facts meanwhile, up to store.log_bytes\n"
            )
            disk.empty()
            assert exporter.stderr.readline() == f"the ledger {ledger} is written again\n"
            _, rest = exporter.communicate("finish\n", timeout=60)
        assert rest == ""
        assert exporter.returncode == 0
        assert exported_through(ledger) == last
        assert not list(ledger.glob(".writing-*")), "halves of segments are left"


def test_a_backup_takes_over_though_the_ledger_cannot_be_read_and_writes_it_when_it_can(tmp_path: Path) -> None:
    """It ended, as did each one after it: the ledger's disk did not answer."""
    ledger = tmp_path / "ledger"
    (tmp_path / "legato.toml").write_text(f'[ledger]\ndirectory = "{ledger}"\n')
    flags = ("--ledger", "--config", str(tmp_path / "legato.toml"))
    with server(tmp_path / "store", *flags) as primary, server(tmp_path / "store", *flags) as backup:
        backup.wait_for_log("heartbeats of epoch")
        ledger.rename(tmp_path / "elsewhere")
        ledger.write_text("in its place")
        primary.kill()
        backup.wait_for_role("active")
        backup.wait_for_log(f"the ledger in {ledger} cannot be read: Not a directory\n")
        ledger.unlink()
        (tmp_path / "elsewhere").rename(ledger)
        until(lambda: exported_through(ledger) > 0)


def test_a_ledger_that_is_not_of_this_store_is_one_sentence(tmp_path: Path) -> None:
    fill_log(tmp_path / "store")
    command = (*EXPORTER, "--store", tmp_path / "store", "--ledger", tmp_path / "ledger", "--once")
    subprocess.run(command, check=True)
    LmdbStore(tmp_path / "new").close()
    done = subprocess.run(
        (*EXPORTER, "--store", tmp_path / "new", "--ledger", tmp_path / "ledger", "--once"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert (
        done.stderr == f"ledger {tmp_path / 'ledger'} is ahead of the store's log: it was written from another store\n"
    )


def test_a_store_trims_nothing_beside_a_ledger_that_may_be_of_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a restored store had done since would be gone from its log before anybody could look."""
    monkeypatch.setattr("legato.server.storage.ledger_process.START_DELAY_S", 0.0)
    store, ledger = tmp_path / "store", tmp_path / "ledger"
    last = fill_log(store)
    command = (*EXPORTER, "--store", store, "--ledger", ledger, "--once")
    subprocess.run(command, check=True)

    async def story() -> None:
        process = LedgerProcess(store, ledger)
        assert process.exported_through() == 0
        process.start()
        await asyncio.to_thread(until, lambda: process.exported_through() > 0)
        assert process.exported_through() == last
        await process.abandon()

    asyncio.run(story())


def test_what_the_ledger_process_says_is_in_the_brokers_log_in_its_format(tmp_path: Path) -> None:
    """It wrote lines of text, and pages of calls, among lines of JSON."""
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        ledger = disk.path / "ledger"
        ledger.mkdir(mode=0o700)
        disk.fill()
        environment = {"LEGATO_SERVER_LOG_FORMAT": "json", "LEGATO_LEDGER_DIRECTORY": str(ledger)}
        with server(tmp_path / "store", "--ledger", environment=environment) as broker:
            broker.wait_for_log("cannot be written: No space left on device")
            records = [json.loads(line) for line in broker.log.read_text().splitlines()]
            [said] = [record for record in records if "cannot be written" in record["message"]]
            assert (said["level"], said["logger"]) == ("WARNING", "legato.ledger")
            disk.empty()
            broker.wait_for_log("is written again")


def exporter_of(broker: Server) -> int:
    """The process that writes its ledger, once there is one."""
    found: list[int] = []

    def look() -> bool:
        for children in Path(f"/proc/{broker.pid}/task").glob("*/children"):
            for pid in map(int, children.read_text().split()):
                if b"legato.spark.exporter" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return bool(found)

    until(look)
    return found[-1]


def test_a_broker_whose_processes_are_all_told_to_end_ends_without_a_complaint(tmp_path: Path) -> None:
    """systemd tells all at once; the ledger's, which had not begun to listen for that, was an ERROR of the log."""
    with server(tmp_path / "store", "--ledger") as broker:
        exporter = exporter_of(broker)
        os.kill(exporter, signal.SIGKILL)  # as one that has not come to handle the signal ends
        assert broker.stop() == 0
        assert "exporter ended" not in broker.log.read_text()
        assert exported_through(tmp_path / "store" / "ledger") > 0, "another one has written the last facts"


def test_the_ledgers_process_has_no_threads_for_linear_algebra_and_one_allocator(tmp_path: Path) -> None:
    """NumPy's library spun in one for each further core, a third of the start; Arrow's allocator kept 30 MB."""
    with server(tmp_path / "store", "--ledger") as broker:
        environment = Path(f"/proc/{exporter_of(broker)}/environ").read_bytes().split(b"\0")
        assert {b"OPENBLAS_NUM_THREADS=1", b"ARROW_DEFAULT_MEMORY_POOL=system"} <= {*environment}
        assert any(each.startswith(b"PATH=") for each in environment), "the broker's own is lost"


def test_ctrl_c_at_a_terminal_is_not_for_the_ledgers_process(tmp_path: Path) -> None:
    """Soon after the start it had not come to handle it, and wrote a stack trace to the log."""
    with server(tmp_path / "store", "--ledger") as broker:
        assert os.getpgid(exporter_of(broker)) != os.getpgid(broker.pid)
