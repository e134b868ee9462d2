"""`legato group`: a map of groups looked at on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from legato.cli.main import app
from legato.errors import ConfigError

MAP = """
revision = {revision}
[[group]]
name = "one"
brokers = ["one.example:5672", "two.example:5672"]
[[group]]
name = "two"
brokers = ["three.example:5672"]
weight = 3
[[pin]]
match = "orders.#"
group = "{orders}"
"""


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    return write(tmp_path / "groups.toml")


def write(file: Path, revision: int = 1, orders: str = "one") -> Path:
    file.write_text(MAP.format(revision=revision, orders=orders))
    return file


def run(*arguments: object, given: str = "") -> Result:
    return CliRunner().invoke(app, ["group", *map(str, arguments)], input=given)


def test_a_map_is_described(map_file: Path) -> None:
    lines = run("check", map_file).output.splitlines()
    assert lines[0] == "revision 1: 2 groups, 1 pin"
    assert lines[1].endswith("25.0% of what is not pinned, 1 pin")
    assert lines[2].endswith("75.0% of what is not pinned, 0 pins")
    assert json.loads(run("check", map_file, "--json").output)["revision"] == 1


def test_an_address_is_looked_up(map_file: Path) -> None:
    assert run("where", map_file, "orders.new").output == "orders.new  one  pinned\n"
    found = [
        json.loads(line) for line in run("where", map_file, "-", "--json", given="orders\nq.1\n").output.split("\n")[:2]
    ]
    assert (found[0]["group"], found[0]["pinned"]) == ("one", True)
    assert not found[1]["pinned"]


def test_moves_are_listed(map_file: Path, tmp_path: Path) -> None:
    later = write(tmp_path / "later.toml", 2, "two")
    answer = run("moves", map_file, later, "-", given="orders.a\ninvoices\norders.b\n")
    assert answer.output == "orders.a  one -> two\norders.b  one -> two\n"
    assert run("moves", map_file, later, "invoices").output == "nothing moves\n"


def test_dead_letters_and_prefixed_addresses_are_looked_up_as_brokers_do(map_file: Path, tmp_path: Path) -> None:
    for address in ("DLQ.orders.new", "MUTED.DLQ.orders.new", "queue://orders.new", "topic://orders.new"):
        assert run("where", map_file, address).output == f"{address}  one  pinned\n"
    later = write(tmp_path / "later.toml", 2, "two")
    assert run("moves", map_file, later, "DLQ.orders.a").output == "DLQ.orders.a  one -> two\n"


def test_what_no_broker_would_take_is_refused(map_file: Path, tmp_path: Path) -> None:
    changed = write(tmp_path / "changed.toml", 1, "two")
    refused = run("moves", map_file, changed, "orders")
    assert isinstance(refused.exception, ConfigError)
    assert "its revision is still 1" in str(refused.exception)
    changed.write_text("revision = 1\n")
    assert isinstance(run("check", changed).exception, ConfigError)
    assert "cannot be read" in str(run("check", tmp_path / "none").exception)
