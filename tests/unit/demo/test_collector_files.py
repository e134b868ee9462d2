"""Records get into files exactly once, whatever comes again and whenever the process died."""

from pathlib import Path

import pyarrow.parquet as parquet

from legato.client import TextMessage
from legato.demo.collector import RecordFiles
from legato.demo.records import departure_of, encode_departure, load_flights


def records(count: int) -> list[TextMessage]:
    """Messages with the departure records of the first flights."""
    messages = []
    for flight in load_flights(count):
        message = TextMessage(encode_departure(departure_of(flight)).decode())
        message.message_id = f"ID:{flight.row}"
        messages.append(message)
    return messages


def rows(directory: Path) -> list[int]:
    """The flights' rows in all files."""
    return [
        row for file in sorted(directory.glob("*.parquet")) for row in parquet.read_table(file).column("id").to_pylist()
    ]


def test_a_message_that_comes_again_is_written_once(tmp_path: Path) -> None:
    messages = records(30)
    files = RecordFiles(tmp_path)
    files.write(messages[:20])
    files.write(messages[10:])
    files.write(messages)
    assert rows(tmp_path) == list(range(30))
    assert (len(files), files.seen_again) == (30, 40)


def test_a_message_twice_in_one_batch_is_written_once(tmp_path: Path) -> None:
    messages = records(3)
    RecordFiles(tmp_path).write(messages + messages)
    assert rows(tmp_path) == [0, 1, 2]


def test_a_new_process_knows_what_the_dead_one_wrote(tmp_path: Path) -> None:
    messages = records(10)
    RecordFiles(tmp_path).write(messages[:6])
    (tmp_path / "part-000001.partial").write_bytes(b"half a fi")
    files = RecordFiles(tmp_path)
    files.write(messages)
    assert rows(tmp_path) == list(range(10))
    assert not list(tmp_path.glob("*.partial"))
