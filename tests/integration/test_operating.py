"""The page on operating a broker: its commands do what it says, from top to bottom, on a pair that serves."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, TextMessage
from legato.store import backup
from tests.support.broker import broker_pair

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "operate.md"


@pytest.mark.slow
def test_the_commands_of_the_page_work_from_top_to_bottom(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    assert [words[:3] for words in commands if words[1] == "store"] == [
        ["legato", "store", "backup"],
        ["legato", "store", "verify"],
        ["legato", "store", "backup"],
        ["legato", "store", "restore"],
        ["legato", "store", "verify"],
        ["legato", "store", "restore"],
    ]
    shown: dict[str, str] = {}
    with broker_pair(tmp_path) as pair:
        with ConnectionFactory(pair.url).create_connection() as connection, connection.create_session() as session:
            session.create_producer(session.create_queue("orders")).send(TextMessage("tea"))
        # The store is of the present format: what a migration would have kept is made here.
        backup.take(pair.store, pair.store / "before-format-3")
        here = {"/backup/legato-1": "legato-1"}
        for named in commands:
            words = [pair.url if word.startswith("amqps://") else here.get(word, word) for word in named]
            run = subprocess.run(
                [sys.executable, "-m", "legato.cli", *words[1:]],
                cwd=tmp_path,
                env=os.environ | {"LEGATO_URL": pair.url, "COLUMNS": "80"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert run.returncode == 0, (words, run.stderr)
            shown[" ".join(words[1:3])] = run.stdout
    assert "backup: process" in shown["status --store"]
    assert max(map(len, shown["status --store"].splitlines())) <= 80
    assert "1 message of" in shown["store verify"]
    assert "epoch 2 began" in shown["switchover"]
    assert (tmp_path / "legato-1" / "data.mdb").exists()
    assert (tmp_path / "store-2" / "data.mdb").exists()
    assert (tmp_path / "store-old" / "data.mdb").exists()


def test_the_page_says_of_each_file_to_deploy_what_was_checked_and_what_was_not() -> None:
    said = PAGE.read_text().partition("## What was checked of the files in deploy")[2]
    for file in (ROOT / "deploy").rglob("*"):
        if file.is_file():
            assert f"{file.name}`" in said, f"{file.name} is not in the table"
