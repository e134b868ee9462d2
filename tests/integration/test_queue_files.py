"""`legato queue export` and `import`, against a real broker: nothing is lost of a message, and nothing stored twice."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from legato.cli import queue_transfer
from legato.client import (
    BytesMessage,
    ConnectionFactory,
    DeliveryMode,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    Topic,
)
from legato.client.management import request
from legato.client.messages.portable import as_plain
from legato.errors import JMSError
from legato.testing import broker as local_broker
from legato.testing import broker_pair
from tests.support.forked_process import run_legato
from tests.support.server import Server, server
from tests.support.small_disk import small_disk

LARGE = bytes(range(256)) * 12_000
NAMES = (f"transfer-{number}" for number in count())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("files") / "store") as running:
        yield running


@pytest.fixture
def queue() -> str:
    return next(NAMES)


def url(broker: Server) -> str:
    return f"amqp://127.0.0.1:{broker.port}"


def legato(broker: Server, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_legato(*map(str, arguments), environment={"LEGATO_URL": url(broker), "COLUMNS": "200"})


def one_of_each() -> list[Message]:
    text = TextMessage("tea\u2028\U0001f375")
    text.properties.update({"pounds": 2, "milk": False, "half": 0.5, "who": "ann", "none": None})
    text.set_byte_property("byte", -1)
    text.set_long_property("long", 5)
    text.set_float_property("float", 0.25)
    text.correlation_id, text.reply_to, text.type = "c", Topic("answers"), "order"
    mapped = MapMessage({"name": "ann", "bytes": b"\xff", "null": None})
    mapped.set_short("short", 3)
    mapped.set_char("char", "x")
    stream = StreamMessage([True, "x", b"y", 1.5])
    stream.write_byte(7)
    grouped = TextMessage("in a group")
    grouped.properties["JMSXGroupID"] = "g"
    json_message = TextMessage('{"a": 1}')
    json_message.content_type = "application/json"
    return [
        *(text, mapped, stream, grouped, json_message, Message(), TextMessage(None), BytesMessage(b"")),
        *(BytesMessage(b"\x00\xff"), ObjectMessage({"a": [1, {"b": b"c"}]}), BytesMessage(LARGE)),
        TextMessage("long " * 300_000),
    ]


def send(broker: Server, queue: str, messages: Sequence[Message]) -> None:
    with ConnectionFactory(url(broker)).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue(queue))
        for number, message in enumerate(messages):
            mode = DeliveryMode.NON_PERSISTENT if number == 1 else DeliveryMode.PERSISTENT
            producer.send(message, priority=number % 10, delivery_mode=mode)


def browsed(broker: Server, queue: str) -> list[dict[str, object]]:
    """All that is in a queue, as far as a sender says it."""
    with ConnectionFactory(url(broker)).create_connection() as connection, connection.create_session() as session:
        connection.start()
        with session.create_browser(session.create_queue(queue)) as browser:
            plain = [as_plain(message) for message in browser]
    for each in plain:
        del each["message_id"], each["timestamp"]
    return plain


@pytest.mark.parametrize("suffix", ["arrow", "jsonl"])
def test_a_queue_comes_back_with_all_properties_types_and_bodies(
    suffix: str, broker: Server, queue: str, tmp_path: Path
) -> None:
    send(broker, queue, one_of_each())
    before = browsed(broker, queue)
    file = tmp_path / f"queue.{suffix}"
    exported = legato(broker, "queue", "export", queue, file)
    assert (exported.returncode, exported.stdout) == (0, f"exported 12 messages to {file}\n"), exported.stderr
    assert browsed(broker, queue) == before, "an export takes nothing away"
    imported = legato(broker, "queue", "import", f"{queue}-copy", file)
    assert imported.stdout == f"imported 12 messages to {queue}-copy\n", imported.stderr
    assert browsed(broker, f"{queue}-copy") == before
    assert [each for each in before if each["kind"] == "bytes"], "there are bytes"


def test_an_export_takes_the_place_of_no_device_and_no_link(broker: Server, queue: str, tmp_path: Path) -> None:
    """As root, `--overwrite` made a file of /dev/null, for all that run on the machine."""
    send(broker, queue, [TextMessage("tea")])
    pipe, link, real = tmp_path / "pipe", tmp_path / "link.jsonl", tmp_path / "real.jsonl"
    os.mkfifo(pipe)
    for options in ((), ("--overwrite",), ("--dry-run",)):
        answer = legato(broker, "queue", "export", queue, pipe, "--format", "json", *options)
        assert (answer.returncode, answer.stderr) == (2, f"legato: {pipe} is a device or a pipe: name a file.\n")
    assert pipe.is_fifo()
    link.symlink_to(real)
    assert legato(broker, "queue", "export", queue, link).returncode == 0
    assert "exists already" in legato(broker, "queue", "export", queue, link).stderr
    assert legato(broker, "queue", "export", queue, link, "--overwrite").returncode == 0
    assert link.is_symlink()
    assert json.loads(real.read_text())["body"] == "tea"


def test_an_import_that_is_repeated_stores_nothing_more(broker: Server, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "tea.jsonl"
    file.write_text("".join(f'{{"body": "tea {n}"}}\n' for n in range(3)))
    assert "imported 3 messages" in legato(broker, "queue", "import", queue, file).stdout
    again = legato(broker, "queue", "import", queue, file)
    assert again.stdout == f"imported 0 messages to {queue}\n3 messages were imported before\n"
    assert len(browsed(broker, queue)) == 3
    assert "imported 3 messages" in legato(broker, "queue", "import", f"{queue}-other", file).stdout
    assert "imported 3 messages" in legato(broker, "queue", "import", queue, file, "--again").stdout
    assert len(browsed(broker, queue)) == 6


KILLED = """
import os, signal, sys
from legato.cli import queue_transfer
from legato.cli.main import main

queue_transfer._CHUNK_MESSAGES = 7
kept, left = queue_transfer._Import._send, int(sys.argv.pop(1))

def send(self, chunk, done):
    global left
    left -= 1
    if not left:
        # After the messages and before their commit.
        self._session.commit = lambda: os.kill(os.getpid(), signal.SIGKILL)
    return kept(self, chunk, done)

queue_transfer._Import._send = send
main()
"""


def test_an_import_that_is_killed_goes_on_where_it_was(broker: Server, queue: str, tmp_path: Path) -> None:
    """Before a commit, twice: what it had not committed is sent again, the rest is not."""
    file = tmp_path / "tea.jsonl"
    file.write_text("".join(json.dumps({"body": f"tea {n}"}) + "\n" for n in range(40)))
    for kill_at in (3, 2):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(kill_at), "queue", "import", queue, str(file), "--url", url(broker)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert killed.returncode == -9, killed.stderr
    finished = legato(broker, "queue", "import", queue, file)
    assert finished.stdout == f"imported 19 messages to {queue}\n21 messages were imported before\n", finished.stderr
    assert [each["body"] for each in browsed(broker, queue)] == [f"tea {n}" for n in range(40)]


def test_an_import_into_a_full_queue_says_so_and_goes_on_when_there_is_room(
    queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that another import was under way, and lost how far it was: --again stored the first messages twice."""
    monkeypatch.setattr(queue_transfer, "_CHUNK_MESSAGES", 2)
    monkeypatch.setattr(queue_transfer, "_MARKER_WAIT_S", 1.0)
    file = tmp_path / "tea.jsonl"
    file.write_text("".join(json.dumps({"body": f"tea {n}"}) + "\n" for n in range(6)))
    with local_broker(addresses=[{"match": queue, "max_messages": 3, "when_full": "fail"}]) as full:
        import_id = queue_transfer.import_id_of(file, queue)

        def import_all() -> queue_transfer.Imported:
            return queue_transfer.import_queue(full.url, queue, file, "json", 6, import_id)

        for _ in range(5):
            with pytest.raises(JMSError, match=r"^2 messages .* has room for 1 more"):
                import_all()
        bodies = [message.body for message in full.messages(queue)]
        request(full.url, "purge", "queue", queue)
        with pytest.raises(JMSError, match=r"^4 messages "):
            import_all()
        bodies += [message.body for message in full.messages(queue)]
        request(full.url, "purge", "queue", queue)
        assert import_all() == queue_transfer.Imported(2, 4, 0, 0)
        bodies += [message.body for message in full.messages(queue)]
        assert bodies == [f"tea {n}" for n in range(6)]


def test_an_import_outlives_a_takeover_at_its_first_commit(queue: str, tmp_path: Path) -> None:
    file = tmp_path / "tea.jsonl"
    file.write_text('{"body": "tea"}\n')
    with broker_pair() as pair:
        place, import_id = pair.url, queue_transfer.import_id_of(file, queue)
        with pair.failing_over_at("before-commit"):
            done = queue_transfer.import_queue(place, queue, file, "json", 1, import_id)
        assert done == queue_transfer.Imported(1, 0, 0, 0)
        assert request(pair.url, "read", "queue", queue)["depth"] == 1


def test_a_dry_run_says_what_would_happen_and_changes_nothing(broker: Server, queue: str, tmp_path: Path) -> None:
    send(broker, queue, [TextMessage("a"), TextMessage("b")])
    file = tmp_path / "queue.jsonl"
    assert legato(broker, "queue", "export", queue, file, "--dry-run").stdout == f"would export 2 messages of {queue}\n"
    assert list(tmp_path.iterdir()) == []
    legato(broker, "queue", "export", queue, file)
    told = legato(broker, "queue", "import", queue, file, "--dry-run").stdout
    assert told == f"would import 2 messages to {queue}; 0 were imported before\n"
    assert len(browsed(broker, queue)) == 2


def test_a_selector_chooses_what_is_exported(broker: Server, queue: str, tmp_path: Path) -> None:
    messages = [TextMessage(str(number)) for number in range(4)]
    for number, message in enumerate(messages):
        message.properties["number"] = number
    send(broker, queue, messages)
    legato(broker, "queue", "export", queue, tmp_path / "q.arrow", "--selector", "number > 1")
    with pa.ipc.open_file(tmp_path / "q.arrow") as file:
        assert file.read_all().column("text").to_pylist() == ["3", "2"], "by priority"


def test_messages_that_the_queue_remembers_are_counted(broker: Server, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"body": "x", "properties": {"_AMQ_DUPL_ID": "one"}}\n{"body": "y"}\n')
    legato(broker, "queue", "import", queue, file)
    again = legato(broker, "queue", "import", queue, file, "--again").stdout
    assert again == (f"imported 1 message to {queue}\n1 message was not stored: duplicate id remembered by the queue\n")
    assert [each["body"] for each in browsed(broker, queue)] == ["x", "y", "y"]


def test_what_expired_meanwhile_is_not_imported(broker: Server, queue: str, tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"body": "old", "expiration": 1000}\n{"body": "new", "expiration": 99999999999999}\n')
    assert legato(broker, "queue", "import", queue, file).stdout == (
        f"imported 1 message to {queue}\n1 message was not stored: time to live over\n"
    )
    assert [each["body"] for each in browsed(broker, queue)] == ["new"]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("write", "name", "hint"),
    [
        (None, "nothing.jsonl", "There is no file"),
        (lambda file: file.write_text("{"), "q.jsonl", "line 1 of"),
        (lambda file: file.write_text('{"body": "x"}\n[1]\n'), "q.jsonl", "line 2 of"),
        (lambda file: file.write_text('{"body": "x"}\n{"boddy": "y"}\n'), "q.jsonl", "'boddy': known are"),
        (lambda file: file.write_text('{"kind": "bytes", "parts": 2}\n{"part": ""}\n'), "q.jsonl", "is not whole"),
        (lambda file: file.write_text('{"part": ""}\n'), "q.jsonl", "is a part of a body"),
        (lambda file: file.write_bytes(b"\xff\xfe"), "q.jsonl", "is not text"),
        (lambda file: file.write_text("{}"), "q.arrow", "cannot be read as an Arrow file"),
        (lambda file: file.write_text("{}"), "q.xml", "name it .arrow or .jsonl, or add --format"),
    ],
)
def test_a_file_that_cannot_be_imported_is_a_sentence_and_nothing_is_sent(
    write: Callable[[Path], object] | None, name: str, hint: str, broker: Server, queue: str, tmp_path: Path
) -> None:
    if write is not None:
        write(tmp_path / name)
    answer = legato(broker, "queue", "import", queue, tmp_path / name)
    assert answer.returncode == 2, answer.stderr
    assert hint in answer.stderr
    assert "Traceback" not in answer.stderr
    assert f'"{queue}"' not in legato(broker, "queues", "--json").stdout


def test_an_export_needs_a_queue_and_a_new_file(broker: Server, queue: str, tmp_path: Path) -> None:
    nothing = legato(broker, "queue", "export", queue, tmp_path / "q.jsonl")
    assert nothing.returncode == 1
    assert f"There is no queue '{queue}'" in nothing.stderr
    assert list(tmp_path.iterdir()) == []
    send(broker, queue, [TextMessage("a")])
    (tmp_path / "q.jsonl").write_text("mine")
    refused = legato(broker, "queue", "export", queue, tmp_path / "q.jsonl")
    assert refused.returncode == 2
    assert "exists already: choose another name, or add --overwrite" in refused.stderr
    assert (tmp_path / "q.jsonl").read_text() == "mine"
    assert legato(broker, "queue", "export", queue, tmp_path / "q.jsonl", "--overwrite").returncode == 0


def test_an_export_without_room_names_its_file_and_leaves_none(broker: Server, queue: str, tmp_path: Path) -> None:
    """`legato: No space left on device.` was all that it said."""
    send(broker, queue, [TextMessage("tea" * 1000)])
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        disk.fill()
        file = disk.path / "tea.jsonl"
        run = legato(broker, "queue", "export", queue, file)
        assert (run.returncode, run.stderr) == (2, f"legato: {file} cannot be written: No space left on device.\n")
        assert not list(disk.path.glob("*tea*"))


def test_an_import_beside_another_one_of_the_same_file_says_so(
    broker: Server, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"body": "x"}\n')
    import_id = queue_transfer.import_id_of(file, queue)
    with ConnectionFactory(url(broker)).create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        markers = session.create_queue(queue_transfer.PROGRESS_QUEUE)
        first = queue_transfer._Import(session, session.create_queue(queue), import_id)
        first._mark(0, duplicate_id=import_id)
        session.commit()
        consumer = session.create_consumer(markers, f"import_id = '{import_id}'")
        assert consumer.receive(timeout_s=60)
        monkeypatch.setattr(queue_transfer, "_MARKER_WAIT_S", 0.01)
        with pytest.raises(Exception, match="Another import of this file is under way"):
            queue_transfer.import_queue(url(broker), queue, file, "json", 1, import_id)
        session.rollback()
        consumer.close()
    assert legato(broker, "queue", "import", queue, file).stdout == f"imported 1 message to {queue}\n"


def test_no_part_of_a_large_body_is_left_behind(broker: Server, queue: str, tmp_path: Path) -> None:
    send(broker, queue, [BytesMessage(LARGE)])
    file = tmp_path / "q.jsonl"
    legato(broker, "queue", "export", queue, file)
    lines = file.read_text().splitlines()
    assert json.loads(lines[0])["parts"] == len(lines) - 1 == 3
    cut(file)
    answer = legato(broker, "queue", "import", f"{queue}-copy", file)
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr
