"""What peers call themselves, their queues and their messages is data: no command passes it on to a terminal, and it
forges no line of the log (SECURITY findings 19 and 20)."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from legato.cli.main import main
from legato.client import ConnectionFactory, TextMessage
from legato.errors import JMSError
from legato.quoting import escaped, lines, one_line, quoted
from tests.support.amqp_peer import AmqpPeer, Refused
from tests.support.server import Server, server

ESCAPE, CSI, BIDI, BELL = "\x1b[31mred\x1b]8;;http://evil\x07", "\x9b2J", "\u202egnp.exe\u2066", "\x07\x08\x7f"
HOSTILE = f"{ESCAPE}{CSI}{BIDI}{BELL}\r\nE forged [bold]x[/] [/red] [link=http://evil]y[/link] :smile: '\"\\"
PRINTABLE = "[bold]x[/] [/red] [link=http://evil]y[/link] :smile: '\"\\"
NAMES = (HOSTILE, PRINTABLE, f"zero\u200bwidth{BIDI}", "two words", "\x1b[2J")
Said = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("words")
    (directory / "legato.toml").write_text(
        '[limits]\nnames_printable = false\n[[address]]\nmatch = "#"\ndead_letter_queue = "DLQ.{address}"\n'
    )
    with server(directory / "store", "--config", str(directory / "legato.toml")) as running:
        yield running


@pytest.fixture
def legato(broker: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Run a command; returns what it printed, which a terminal takes for nothing but text."""
    monkeypatch.setenv("LEGATO_URL", f"amqp://127.0.0.1:{broker.port}")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> tuple[str, str]:
        monkeypatch.setattr("sys.argv", ["legato", *words])
        capsys.readouterr()
        with suppress(SystemExit):
            main()
        out, err = capsys.readouterr()
        for text in (out, err):
            obeyed = [character for character in text if not character.isprintable() and character != "\n"]
            assert not obeyed, f"legato {shlex.join(words)} printed {obeyed} in {text!r}"
        assert "Traceback" not in err
        return out, err

    return run


def hostile_peer(broker: Server) -> AmqpPeer:
    said = {"product": HOSTILE, "version": BIDI, "hostname": "h\x1b[2J", "pid": 7}
    for container in (HOSTILE, "two words, user root"):
        with suppress(Refused, AssertionError, OSError):
            return AmqpPeer(broker.port, container=container, properties=said)
    raise AssertionError("nobody could open")


def test_no_command_passes_on_what_a_terminal_would_obey(broker: Server, legato: Said) -> None:
    peer = hostile_peer(broker)
    made = []
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        connection.start()
        with connection.create_session() as session:
            for name in NAMES:
                # Of those that a broker refuses none can be shown.
                with suppress(JMSError):
                    message = TextMessage(HOSTILE)
                    message.correlation_id, message.type = HOSTILE, HOSTILE
                    message.set_property("reason", HOSTILE)
                    session.create_producer(session.create_queue(name)).send(message)
                    made.append(name)
                with suppress(JMSError):
                    session.create_consumer(session.create_topic(name)).close()
            assert "two words" in made
            for command in ("status", "connections", "queues", "topics", "subscriptions"):
                legato(command)
                json.loads(legato(command, "--json")[0])
            shown = legato("queues")[0]
            assert "'two words'" in shown
            if PRINTABLE in made:
                assert "[bold]x[/]" in shown, "a name is no markup"
            for name in made:
                out, _ = legato("browse", name)
                assert "\\x1b[31mred" in out
                assert json.loads(legato("browse", name, "--json")[0])["body"] == HOSTILE, "JSON is exact"
                legato("queue", "show", name)
                legato("queue", "pause", name)
                legato("queue", "resume", name)
                legato("queue", "purge", name, "--dry-run")
            legato("queue", "show", f"no such {HOSTILE}")
            legato("send", HOSTILE, HOSTILE)
            assert "\\x1b[31mred" in legato("receive", "two words")[0]
    peer.close()


def test_dead_letters_with_hostile_reasons_are_shown_as_text(broker: Server, legato: Said) -> None:
    from legato.core.dead_letters import CAUSE, DELIVERIES, EXCEPTION, HISTORY, ORIGINAL_DESTINATION

    with (
        ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection,
        connection.create_session() as session,
    ):
        message = TextMessage(HOSTILE)
        for name in (EXCEPTION, CAUSE, ORIGINAL_DESTINATION, "legato_trace_id", "legato_stack_trace", "legato_host"):
            with suppress(JMSError):
                message.set_property(name, HOSTILE)
        for name in (DELIVERIES, HISTORY):
            with suppress(JMSError):
                message.set_property(name, '[1, {"at_ms": 1e99}, 2]')
        session.create_producer(session.create_queue("DLQ.orders")).send(message)
        rejected = TextMessage(HOSTILE)
        session.create_producer(session.create_queue("orders")).send(rejected)
    for command in (["list"], ["list", "DLQ.orders"], ["show", "orders", "ID:"], ["list", "--json"]):
        legato("dlq", *command)
    for verb in ("reissue", "mute"):
        options = ["--reason", HOSTILE] if verb == "mute" else []
        legato("dlq", verb, "DLQ.orders", "--all", "--dry-run", *options)
    legato("dlq", "list", HOSTILE)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_peer_forges_no_line_of_the_log(tmp_path: Path, log_format: str) -> None:
    with server(tmp_path / "store", environment={"LEGATO_SERVER_LOG_FORMAT": log_format}) as running:
        peer = hostile_peer(running)
        with suppress(AssertionError, Refused, OSError):
            AmqpPeer(running.port, user=HOSTILE, password="x")
        peer.close()
        running.wait_for_log("closed")
        log = running.log.read_text()
    assert not [line for line in log.split("\n") if not line.isprintable()]
    if log_format == "json":
        assert [json.loads(line) for line in log.splitlines()]
    else:
        assert all(" legato" in line.partition(": ")[0] for line in log.splitlines()), log
    assert "two words, user root" not in log or "'two words, user root'" in log


def test_a_word_is_quoted_unless_it_is_one_plain_word() -> None:
    assert quoted("orders.#") == "orders.#"
    assert quoted("Zoë") == "Zoë"
    assert quoted("two words") == "'two words'"
    assert quoted("") == "''"
    assert quoted("it's") == '"it\'s"'
    assert quoted("\x1b[2J") == r"'\x1b[2J'"
    assert quoted("a\u202eb") == r"'a\u202eb'"
    assert quoted("\ud800") == r"'\ud800'"
    assert quoted("x" * 1000) == "x" * 255 + " ... and 745 characters more"
    assert escaped("a\nb", 10) == r"a\nb"
    assert lines("a\n\tb\x1b") == "a\n    b\\x1b"
    assert one_line("1\u202f000\xa0€ \U0001f468\u200d\U0001f469") == "1\u202f000\xa0€ \U0001f468\u200d\U0001f469"


@pytest.mark.parametrize("code", [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028])
def test_nothing_that_a_terminal_obeys_gets_through(code: int) -> None:
    word = f"a{chr(code)}b"
    assert quoted(word).isprintable()
    assert escaped(word).isprintable()
    assert one_line(word).isprintable()
    assert lines(word).replace("\n", "").isprintable()
