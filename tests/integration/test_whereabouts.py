"""Commands that look for a broker where there is none say where one may be."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from typer.testing import CliRunner

from legato.cli.main import app
from legato.cli.whereabouts import UNREACHABLE, with_whereabouts
from legato.errors import JMSError
from tests.support.server import Server, server

NOWHERE = "amqp://127.0.0.1:9?connect_attempts=1"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("whereabouts") / "store") as running:
        yield running


def error_of(words: str, **environment: str) -> str:
    """The error that a command ends with."""
    answer = CliRunner().invoke(app, words.split(), env=environment)
    assert isinstance(answer.exception, JMSError), answer.output
    assert str(answer.exception).startswith(UNREACHABLE)
    return str(answer.exception)


COMMANDS = """status;connections;queues;topics;subscriptions;queue show tea;queue create tea;queue purge tea --yes
queue delete tea --yes;queue export tea tea.jsonl;queue move tea milk;topic show tea;subscription show tea;sink list
dlq list;dlq show tea 1;dlq reissue tea --all;send tea green;receive tea;browse tea;reload;intervals;switchover
flows trace order:17""".replace("\n", ";").split(";")


def test_all_commands_name_the_primary_of_the_store_that_is_here(
    broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They said nothing but that no broker is at localhost:5672, while one served ./store at another port."""
    monkeypatch.chdir(broker.store.parent)
    expected = (
        f"The primary of the store ./store is at 127.0.0.1:{broker.port}: add --url amqp://127.0.0.1:{broker.port}"
    )
    for words in COMMANDS:
        error = error_of(words, LEGATO_URL=NOWHERE)
        assert expected in error, words
        assert "The address is from LEGATO_URL; --url names another one." in error, words
    assert expected in error_of(f"status --url {NOWHERE}")
    assert "LEGATO_URL" not in error_of(f"status --url {NOWHERE}")


def test_the_store_that_is_named_goes_before_the_one_that_is_here(broker: Server, tmp_path: Path) -> None:
    error = error_of(f"status --store {broker.store} --url {NOWHERE}")
    assert f"The primary of the store {broker.store} is at 127.0.0.1:{broker.port}" in error
    assert error_of(f"status --store {tmp_path} --url {NOWHERE}").count("store") == 0


def test_a_store_that_nobody_serves_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with server(tmp_path / "store") as once:
        once.kill()
    error = error_of("queues", LEGATO_URL=NOWHERE)
    assert f"No broker serves the store ./store now (the last one was at 127.0.0.1:{once.port})" in error
    assert error.endswith("legato serve --store ./store starts one.")


def test_a_broker_that_speaks_tls_is_not_said_to_give_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "server.pem").touch(mode=0o600)
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    environment = {"LEGATO_TLS_CERTIFICATE": str(file), "LEGATO_TLS_KEY": str(file)}
    with server(tmp_path / "store", environment=environment) as speaking:
        error = error_of(f"status --url amqp://127.0.0.1:{speaking.port}?connect_attempts=1")
        assert "does not answer" not in error
        assert f"The process {speaking.pid} serves the store ./store there, with TLS: amqps://, not amqp://." in error


def test_who_named_no_address_is_told_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = with_whereabouts(JMSError(UNREACHABLE), {"url": "amqp://localhost:5672"}, url_given_by="DEFAULT")
    assert (
        "name another one with --url amqp://HOST:PORT (amqps:// for TLS), or as LEGATO_URL in the environment."
        in str(error)
    )
    assert str(error).endswith("legato serve --store ./store starts one there.")


def test_other_errors_stay_as_they_are(broker: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(broker.store.parent)
    other = JMSError("There is no queue 'tea'.")
    assert with_whereabouts(other, {"url": "amqp://localhost:5672"}, url_given_by="DEFAULT") is other
