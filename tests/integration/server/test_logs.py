"""The log of a real broker: who connects, as lines and as JSON."""

import json
import os
import socket
from datetime import datetime
from pathlib import Path

from legato import __version__
from legato.client import ConnectionFactory
from tests.support.server import server


def test_the_log_says_who_connects_by_user_host_process_and_product(tmp_path: Path) -> None:
    with server(tmp_path / "store", "--user", "ann:secret", environment={"LEGATO_SERVER_LOG_FORMAT": "json"}) as broker:
        with ConnectionFactory(f"amqp://ann:secret@127.0.0.1:{broker.port}").create_connection():
            broker.wait_for_log("opened as")
        assert broker.stop() == 0
        lines = [json.loads(line) for line in broker.log.read_text().splitlines()]
    assert all(datetime.fromisoformat(line["time"]).utcoffset() is not None for line in lines)
    [opened] = [line["message"] for line in lines if "opened as" in line["message"]]
    for word in ("127.0.0.1:", "user ann", f"host {socket.gethostname()}", f"process {os.getpid()}", "Legato 0."):
        assert word in opened, word


def test_the_log_is_lines_of_text_unless_told_otherwise(tmp_path: Path) -> None:
    with server(tmp_path / "store") as broker:
        with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection():
            broker.wait_for_log("opened as")
        [opened] = [line for line in broker.log.read_text().splitlines() if "opened as" in line]
    time, level, logger, _ = opened.split(" ", 3)
    assert datetime.fromisoformat(time).utcoffset() is not None
    assert (level, logger) == ("INFO", "legato.opening:")
    assert ": user anonymous, host" in opened


def test_the_log_begins_with_the_version_and_the_store_and_says_where_clients_are_served(tmp_path: Path) -> None:
    """It said when an epoch began, and neither of which version, nor of which store, nor where."""
    with server(tmp_path / "store") as broker:
        broker.wait_for_log(f"clients are served at 127.0.0.1:{broker.port}, with amqp\n")
        first = broker.log.read_text().splitlines()[0]
        assert f"Legato {__version__}, process {broker.pid}, for the store {tmp_path / 'store'}" in first


def test_what_ends_a_broker_at_its_start_is_a_line_of_json_where_the_log_is(tmp_path: Path) -> None:
    """It was plain text among lines of JSON, and whoever collects these lost it."""
    file = tmp_path / "legato.toml"
    other = socket.create_server(("127.0.0.1", 0))
    taken = other.getsockname()[1]
    mistaken = '[server]\nlog_format = "json"\nlisen = "localhost:1"\n'
    for text, flags, said, code in (
        (mistaken, (), "lisen", 2),
        ('[server]\nlog_format = "json"\n', ("--http", f":{taken}"), "http.listen", 1),
    ):
        file.write_text(text)
        with server(tmp_path / "store", "--config", str(file), *flags) as broker:
            assert broker.wait() == code
            records = [json.loads(line) for line in broker.log.read_text().splitlines()]
        assert records[-1]["level"] == "CRITICAL"
        assert said in records[-1]["message"]
        broker.log.unlink()
    other.close()
    with server(tmp_path / "store", environment={"LEGATO_SERVER_LISEN": "x"}) as broker:
        broker.wait()
        assert broker.log.read_text().startswith("legato: ")
