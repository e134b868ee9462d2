"""The commands that administer a broker, against a real one."""

import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType
from typer.testing import CliRunner

from legato.cli.main import app
from legato.cli.management import missing_queue
from legato.client import ConnectionFactory
from legato.spark.connector.options import sink_options
from legato.spark.connector.sink import StreamSink
from tests.support.forked_process import run_legato
from tests.support.server import Server, server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("cli")
    (directory / "legato.toml").write_text("")
    with server(directory / "store", "--config", str(directory / "legato.toml")) as running:
        yield running


def legato(broker: Server, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"LEGATO_URL": f"amqp://127.0.0.1:{broker.port}", "COLUMNS": "200"}
    return run_legato(*arguments, stdin=stdin, environment=environment)


def test_a_queue_from_its_creation_to_its_end(broker: Server) -> None:
    assert legato(broker, "queue", "create", "orders").stdout == "queue orders is there\n"
    legato(broker, "send", "orders", "-", stdin="tea\ncoffee\nmilk\n")
    listed = json.loads(legato(broker, "queues", "orders", "--json").stdout)
    assert [(row["name"], row["depth"]) for row in listed] == [("orders", 3)]
    assert "orders" in legato(broker, "queues").stdout
    some = ("queue", "move", "orders", "later", "--limit", "1")
    would = "would move at most 1 of the 3 messages of queue orders to later\n"
    assert legato(broker, *some, "--dry-run").stdout == would
    moved = legato(broker, *some)
    assert moved.stdout == "moved 1 message from orders to later\n"
    assert legato(broker, "queue", "purge", "orders", "--yes").stdout == "dropped 2 messages of orders\n"
    assert legato(broker, "queue", "delete", "later", "-y").stdout == "deleted queue later and 1 message\n"
    gone = legato(broker, "queue", "show", "later")
    assert gone.returncode == 1
    assert "There is no queue 'later'" in gone.stderr


def test_a_name_that_there_is_not_comes_with_those_that_are_like_it(broker: Server) -> None:
    for type, name in (("queue", "invoices.new"), ("topic", "weather.tea")):
        legato(broker, type, "create", name)
        for operation in ("show", "delete"):
            words = [type, operation, name[:-1], *(["--yes"] if operation == "delete" else [])]
            assert f"There is no {type} {name[:-1]!r}. Did you mean {name}?" in legato(broker, *words).stderr
        legato(broker, type, "delete", name, "--yes")
    unlike = legato(broker, "subscription", "pause", "zebra").stderr
    assert "There is no subscription 'zebra'. legato subscriptions lists those that there are." in unlike


@pytest.mark.parametrize(
    ("words", "would"),
    [
        (["queue", "purge", "kept"], "drop 2 messages of kept"),
        (["queue", "delete", "kept"], "delete queue kept and the 2 messages in it"),
        (["topic", "delete", "kept"], "delete topic kept and its 0 subscriptions"),
    ],
)
def test_what_destroys_says_so_and_does_nothing_unless_it_is_confirmed(
    broker: Server, words: list[str], would: str
) -> None:
    """USERS S13."""
    if words[0] == "queue" and not json.loads(legato(broker, "queues", "kept", "--json").stdout):
        legato(broker, "send", "kept", "-", stdin="tea\ncoffee\n")
    if words[0] == "topic":
        legato(broker, "topic", "create", "kept")
    assert legato(broker, *words, "--dry-run").stdout == f"would {would}\n"
    refused = legato(broker, *words)
    assert refused.returncode == 2
    assert f"This would {would}: add --yes" in refused.stderr
    if words[0] == "topic":
        assert legato(broker, *words, "--yes").stdout == "deleted topic kept\n"
    if words[0] == "queue":
        assert json.loads(legato(broker, "queue", "show", "kept", "--json").stdout)["depth"] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["movable", "elsewhere", "--selector", "customer ="],
        ["movable", "movable"],
        ["movable", "subscription://nobody/nothing"],
    ],
)
def test_a_trial_run_of_a_move_refuses_what_the_move_would(broker: Server, words: list[str]) -> None:
    legato(broker, "queue", "create", "movable")
    refused, tried = legato(broker, "queue", "move", *words), legato(broker, "queue", "move", *words, "--dry-run")
    assert refused.returncode == 1
    assert (tried.returncode, tried.stdout) == (1, "")
    assert tried.stderr.startswith(refused.stderr.rstrip())


@pytest.mark.parametrize(
    "words",
    [["queue", "create", ""], ["queue", "purge", "", "--yes"], ["topic", "show", ""], ["queue", "move", "a", ""]],
)
def test_an_empty_name_is_a_mistake_of_use(broker: Server, words: list[str]) -> None:
    """As of a variable of the shell that is not set."""
    answer = legato(broker, *words)
    assert answer.returncode == 2
    assert "it is empty" in answer.stderr


def test_who_asks_whether_a_queue_is_there_leaves_no_session_behind(broker: Server) -> None:
    url = f"amqp://127.0.0.1:{broker.port}"
    with ConnectionFactory(url).create_connection() as connection:
        connection.start()
        assert missing_queue(connection, url, "never.there") is not None
        assert "session" not in repr(connection)


def test_without_a_terminal_no_editor_is_opened_for_a_dead_letter(broker: Server) -> None:
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session()
        session.create_producer(session.create_queue("DLQ.edited")).send(session.create_text_message("tea"))
    environment = {"LEGATO_URL": f"amqp://127.0.0.1:{broker.port}", "VISUAL": "", "EDITOR": ""}
    answer = run_legato("dlq", "edit", "DLQ.edited", "ID:", environment=environment)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "give the new body with --set or --file" in answer.stderr


def test_whoever_names_a_muted_dead_letter_is_told_that_it_is(broker: Server) -> None:
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session()
        session.create_producer(session.create_queue("DLQ.aside")).send(session.create_text_message("tea"))
    assert legato(broker, "dlq", "mute", "aside", "ID:", "--reason", "test data").stdout == "muted 1 dead letter\n"
    for verb in ("show", "reissue"):
        answer = legato(broker, "dlq", verb, "aside", "ID:")
        assert answer.returncode == 1
        assert "ID: is muted: legato dlq unmute DLQ.aside ID: brings it back." in answer.stderr
    assert "muted" not in legato(broker, "dlq", "show", "aside", "nonsense").stderr
    assert legato(broker, "dlq", "unmute", "aside", "ID:").stdout == "unmuted 1 dead letter\n"


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(broker: Server) -> None:
    legato(broker, "queue", "create", "exported")
    answer = legato(broker, "queue", "export", "exported", "/proc/tea.jsonl")
    assert (answer.returncode, answer.stderr) == (
        2,
        "legato: /proc/tea.jsonl cannot be written: No such file or directory.\n",
    )


def test_on_a_terminal_the_question_is_asked_and_no_is_the_default(broker: Server) -> None:
    legato(broker, "queue", "create", "asked")
    for answer, told in ((b"\n", b"nothing was changed"), (b"y\n", b"deleted queue asked")):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "legato.cli", "queue", "delete", "asked"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            env=os.environ | {"LEGATO_URL": f"amqp://127.0.0.1:{broker.port}"},
        )
        os.write(ours, answer)
        shown, _ = process.communicate(timeout=60)
        assert told in shown
        os.close(ours)
        os.close(theirs)


def test_connections_are_listed_with_who_they_are(broker: Server) -> None:
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}?client_id=till-7").create_connection() as connection:
        session = connection.create_session()
        session.create_consumer(session.create_queue("tills"))
        session.create_producer(session.create_queue("tills"))
        found = json.loads(legato(broker, "connections", "--json").stdout)
        [till] = [row for row in found if row["client_id"] == "till-7"]
        assert till["pid"] == os.getpid()
        assert till["hostname"] == socket.gethostname()
        assert (till["product"], till["user"], till["consumers"], till["producers"]) == ("Legato", "anonymous", 1, 1)
        assert f"till-7  anonymous, host {socket.gethostname()}, process {os.getpid()}, Legato" in (
            legato(broker, "connections").stdout
        )


def test_a_pattern_that_nothing_matches_says_so(broker: Server) -> None:
    assert legato(broker, "queues", "none.such").stdout == "nothing matches none.such; * is a whole word\n"


def test_a_paused_queue_gives_nothing_until_it_is_resumed(broker: Server) -> None:
    legato(broker, "send", "paused", "tea")
    assert legato(broker, "queue", "pause", "paused").returncode == 0
    assert legato(broker, "receive", "paused", "--wait", "0.3").returncode == 1
    assert legato(broker, "queue", "resume", "paused").returncode == 0
    assert legato(broker, "receive", "paused", "--wait", "60").stdout == "tea\n"


def test_a_queue_is_shown_with_its_settings(broker: Server) -> None:
    legato(broker, "queue", "create", "shown")
    shown = legato(broker, "queue", "show", "shown").stdout
    assert "maximum_deliveries" in shown
    assert json.loads(legato(broker, "queue", "show", "shown", "--json").stdout)["settings"]["exclusive"] is False


def test_topics_are_listed(broker: Server) -> None:
    assert legato(broker, "topic", "create", "prices").stdout == "topic prices is there\n"
    assert [row["name"] for row in json.loads(legato(broker, "topics", "--json").stdout)] == ["prices"]
    assert json.loads(legato(broker, "subscriptions", "--json").stdout) == []
    assert legato(broker, "topic", "delete", "prices", "--yes").stdout == "deleted topic prices\n"


def test_settings_are_read_again_or_refused_with_the_reason(broker: Server) -> None:
    file = broker.store.parent / "legato.toml"
    file.write_text('[[address]]\nmatch = "live"\nmax_messages = 7\n')
    assert legato(broker, "reload").returncode == 0
    legato(broker, "queue", "create", "live")
    told = json.loads(legato(broker, "queue", "show", "live", "--json").stdout)
    assert told["settings"]["max_messages"] == 7
    file.write_text('[[address]]\nmatch = "live"\nmax_mesages = 8\n')
    refused = legato(broker, "reload")
    assert refused.returncode == 1
    assert f"{file}, line 3: the [[address]] 'live': there is no setting 'max_mesages'. Did you" in refused.stderr
    file.write_text('[[role]]\nname = "billing"\nmanagement = "operat"\n')
    refused = legato(broker, "reload")
    said = "the [[role]] 'billing': management: 'operat' is none of view, operate, administer."
    assert f"{file}, line 3: {said}" in refused.stderr
    told = json.loads(legato(broker, "queue", "show", "live", "--json").stdout)
    assert told["settings"]["max_messages"] == 7


@pytest.mark.parametrize("command", ["queue", "topic", "subscription", "reload", "queues"])
def test_every_command_explains_itself(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0
    assert "Usage" in shown.output


def test_the_examples_in_the_help_are_real_commands() -> None:
    source = Path(__file__).parents[2] / "src" / "legato" / "cli"
    examples = [
        line.split()[2:4]
        for name in ("queue", "topic", "subscription")
        for line in (source / f"{name}.py").read_text().splitlines()
        if line.strip().startswith("Example: legato")
    ]
    assert len(examples) > 10
    for words in examples:
        assert CliRunner().invoke(app, [*[word for word in words if word[0].isalpha()][:2], "--help"]).exit_code == 0


def test_sinks_that_are_remembered_are_listed_and_forgotten(broker: Server) -> None:
    writer = StreamSink(
        sink_options({"url": f"amqp://127.0.0.1:{broker.port}", "queue": "sunk", "transactionalId": "bills"}),
        StructType().add("body", StringType()),
    )
    rows = pa.RecordBatch.from_pydict({"body": ["1", "2"]})
    writer.commit([writer._stage(iter([rows]), "bills", 0)], 0)
    assert legato(broker, "sink", "list").stdout == "bills  last batch 0, 2 rows\n"
    assert json.loads(legato(broker, "sink", "list", "--json").stdout) == [
        {"name": "bills", "last_batch": 0, "rows": 2}
    ]
    unknown = legato(broker, "sink", "forget", "bill", "--dry-run")
    assert (unknown.returncode, "There is no sink 'bill'. There are bills." in unknown.stderr) == (1, True)
    would = "forget which batches the sink bills has published"
    assert legato(broker, "sink", "forget", "bills", "--dry-run").stdout == f"would {would}\n"
    assert f"This would {would}: add --yes" in legato(broker, "sink", "forget", "bills").stderr
    assert legato(broker, "sink", "forget", "bills", "--yes").stdout == "forgot the sink bills\n"
    assert legato(broker, "sink", "list").stdout == "There are no sinks.\n"
    gone = legato(broker, "sink", "forget", "bills", "--yes")
    assert (gone.returncode, "There is no sink 'bills'" in gone.stderr) == (1, True)
