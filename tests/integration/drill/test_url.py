"""A drill of brokers that run already: over TLS, with a login, and nothing of it is left behind."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from legato.cli.main import app
from legato.drill.management import delete_all, names
from legato.errors import JMSError
from tests.support.server import Server, free_port

SETTINGS = """
[server]
reconnect_timeout_s = 1
[tls]
certificate = "{0}/certificate.pem"
key = "{0}/key.pem"
[auth]
anonymous = false
users = {{ ann = "pw" }}
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    (tmp_path / "legato.toml").touch(mode=0o600)
    (tmp_path / "legato.toml").write_text(SETTINGS.format(tmp_path))
    server = Server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")).start()
    yield server
    server.kill()


def test_brokers_that_are_not_there_are_told_at_once_and_the_last_drill_stays(tmp_path: Path) -> None:
    """Its clients connect to relays: after a minute of silence these did not begin."""
    (out := tmp_path / "out").mkdir()
    (out / ".legato-drill").touch()
    (out / "result.json").touch()
    done = CliRunner().invoke(app, ["drill", "--url", f"amqp://127.0.0.1:{free_port()}", "--out", str(out)])
    assert isinstance(done.exception, JMSError)
    assert str(done.exception).startswith("No broker can be reached")
    assert (out / "result.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_somebody_elses_brokers_are_left_as_they_were_found(broker: Server, tmp_path: Path) -> None:
    url = f"amqps://ann:pw@127.0.0.1:{broker.port}?tls_ca_file={tmp_path / 'certificate.pem'}"
    arguments = ["--count", "2", "--faults", "cut,kill-client", "--every", "0.5", "--rate", "20", "--seed", "3"]
    files = ["--out", str(tmp_path / "out"), "--json", str(tmp_path / "result.json")]
    done = CliRunner().invoke(app, ["drill", "--url", url, *arguments, *files])
    assert (tmp_path / "result.json").exists(), f"{done.output}\n{done.exception!r}"
    result = json.loads((tmp_path / "result.json").read_text())
    assert done.exit_code == 0, result["complaints"]
    assert (result["faults"], result["clients_killed"], result["lost"]) == (2, 1, 0)
    assert names(url, "queue", "#") == []
    assert names(url, "topic", "#") == []
    assert delete_all(url, "drill.3.") == []
