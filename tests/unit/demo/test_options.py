"""A run is refused with a sentence before anything is started or removed."""

import socket
from pathlib import Path

import pytest

from legato.demo.options import FLIGHTS_ALL, DemoOptions
from legato.demo.records import FLIGHTS_TOTAL
from legato.errors import ConfigError
from legato.processes.scratch import choose_ports, prepare_directory, see_writable


@pytest.mark.parametrize(
    ("name", "value"), [("flights", 0), ("flights", FLIGHTS_ALL + 1), ("kills", -1), ("workers", 0), ("port", 70_000)]
)
def test_a_number_out_of_range_is_named(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"--{name} is {value}"):
        DemoOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("machines", [0, 2, 4, 6])
def test_as_many_machines_as_no_majority_outlives_are_refused(machines: int) -> None:
    with pytest.raises(ConfigError, match=f"--machines is {machines}"):
        DemoOptions(machines=machines)


def test_all_flights_is_what_the_data_has() -> None:
    assert FLIGHTS_ALL == FLIGHTS_TOTAL


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="--out"):
        prepare_directory(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_directory_of_an_earlier_run_is_emptied(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare_directory(out)
    (out / "store").mkdir()
    prepare_directory(out)
    assert not (out / "store").exists()


@pytest.mark.parametrize("file", [".", "file/result.json", "/proc/nowhere/result.json"])
def test_a_result_that_cannot_be_written_is_refused_at_the_beginning(tmp_path: Path, file: str) -> None:
    """It was at the end of the run, and the result was gone."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"--json {tmp_path / file} cannot be written"):
        see_writable("--json", tmp_path / file)


def test_looking_whether_a_result_can_be_written_leaves_files_as_they_are(tmp_path: Path) -> None:
    (old := tmp_path / "old.json").write_text("{}")
    for file in (None, Path("/dev/stdout"), old, tmp_path / "new" / "result.json"):
        see_writable("--json", file)
    assert old.read_text() == "{}"
    assert list((tmp_path / "new").iterdir()) == []


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=str(port)):
            choose_ports(port)


def test_two_free_ports_differ() -> None:
    first, second = choose_ports(0)
    assert first != second
