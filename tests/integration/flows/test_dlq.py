"""`legato dlq`, on dead letters of flows and of others."""

from __future__ import annotations

import json
import os
import queue
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from legato.cli.main import app
from legato.client import BytesMessage, ConnectionFactory, Message, Queue, TextMessage, Topic
from legato.client.management import rows
from legato.errors import ConfigError
from legato.flows import Context, Flows, Policy
from legato.quoting import quoted
from tests.integration.client.calling import until
from tests.integration.flows.test_service import WAIT_S
from tests.support.broker import BrokerPair

Dlq = Callable[..., Result]


@pytest.fixture
def dlq(calm_pair: BrokerPair) -> Dlq:
    """Runs `legato dlq` against the pair."""

    def run(*arguments: str, code: int = 0, env: dict[str, str] | None = None) -> Result:
        result = CliRunner().invoke(
            app, ["dlq", *arguments], env={"LEGATO_URL": calm_pair.url, "COLUMNS": "200", **(env or {})}
        )
        assert result.exit_code == code, result.output
        return result

    return run


def bury(url: str, name: str, *texts: str, reason: str = "never works", **properties: str) -> None:
    """Have messages of a queue rejected."""
    with (
        ConnectionFactory(url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        connection.start()
        producer = session.create_producer(Queue(name))
        for number, text in enumerate(texts):
            message = TextMessage(text)
            for key, value in properties.items():
                message.set_property(key, value)
            producer.send(message, duplicate_id=f"{name} {number} {text}")
        session.commit()
        consumer = session.create_consumer(Queue(name))
        for number, _ in enumerate(texts):
            received = consumer.receive(timeout_s=WAIT_S)
            assert received is not None
            session.reject(received, f"ValueError: {reason} {number}")
            session.commit()


def waiting(url: str, name: str) -> list[Any]:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        return list(session.create_browser(Queue(name)))


def test_dead_letters_of_listeners_are_grouped_by_their_exception(calm_pair: BrokerPair, dlq: Dlq) -> None:
    """A listener's failure comes with its traceback, whose first line is the same for all of them."""

    def refuse(message: Message) -> None:
        raise {"a": ValueError("no price"), "b": KeyError("customer")}[str(message.get_body(str))]

    with ConnectionFactory(calm_pair.url, listener_backoff_s=0).create_connection() as connection:
        connection.start()
        with connection.create_session() as session, connection.create_session() as sending:
            session.create_consumer(Queue("tea.heard")).message_listener = refuse
            sending.create_producer(Queue("tea.heard")).send("a")
            sending.create_producer(Queue("tea.heard")).send("b")
            until(lambda: [one["depth"] for one in listed(dlq) if one["queue"] == "DLQ.tea.heard"] == [2])
    [heard] = [one for one in listed(dlq) if one["queue"] == "DLQ.tea.heard"]
    assert {cause["reason"] for cause in heard["causes"]} == {"ValueError: no price", "KeyError: 'customer'"}
    line = next(line for line in dlq("list", "tea.heard").output.splitlines() if "KeyError: 'customer'" in line)
    shown = dlq("show", "tea.heard", line.split()[0]).output
    assert shown.startswith("KeyError: 'customer'")
    assert "stack trace\nTraceback (most recent call last):" in shown
    dlq("mute", "tea.heard", "--cause", "ValueError", "--reason", "test")
    dlq("mute", "tea.heard", "--cause", "KeyError", "--reason", "test")


def listed(dlq: Dlq) -> list[dict[str, Any]]:
    """What `legato dlq list` says of all queues."""
    found: list[dict[str, Any]] = json.loads(dlq("list", "--json").output)
    return found


def test_dead_letters_are_listed_by_cause_and_shown_whole(dlq: Dlq, calm_pair: BrokerPair, prefix: str) -> None:
    name = f"{prefix}jobs"
    bury(calm_pair.url, name, "one", "two", "three")
    [row] = [row for row in json.loads(dlq("list", "--json").stdout) if row["queue"] == f"DLQ.{name}"]
    [cause] = row["causes"]
    assert (row["depth"], cause["count"], cause["reason"]) == (3, 3, "ValueError: never works #")
    assert "ValueError: never works #" in dlq("list").stdout
    by_message = dlq("list", name, "--cause", cause["cause"]).stdout
    assert all(f"never works {number}" in by_message for number in range(3))
    shown = dlq("show", name, cause["first_id"])
    assert f"came from  {name}" in " ".join(shown.stdout.split(" " * 2)) or name in shown.stdout
    assert "one" in shown.stdout
    assert json.loads(dlq("show", name, cause["first_id"], "--json").stdout)["message"]["body"] == "one"


def test_a_reissue_moves_what_is_meant_back_with_its_id_past_the_duplicate_window(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str
) -> None:
    name = f"{prefix}jobs"
    bury(calm_pair.url, name, "one", "two", "three")
    first, *_ = [json.loads(line) for line in dlq("list", name, "--json").stdout.splitlines()]
    assert f"would go to {name}" in dlq("reissue", name, first["id"], "--dry-run").stdout
    assert waiting(calm_pair.url, name) == []
    assert "--to names no queue" in dlq("reissue", name, "--all", "--to", "", code=2).stderr
    assert waiting(calm_pair.url, name) == []
    assert dlq("reissue", name, first["id"]).stdout == "reissued 1 dead letter\n"
    [back] = waiting(calm_pair.url, name)
    assert (back.body, back.message_id, back.delivery_count) == ("one", first["id"], 1)
    assert dlq("reissue", name, "--all", "--per-second", "100").stdout == "reissued 2 dead letters\n"
    assert [message.body for message in waiting(calm_pair.url, name)] == ["one", "two", "three"]
    assert dlq("reissue", name, code=2)


def test_what_comes_back_again_and_again_is_not_reissued_without_force(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str
) -> None:
    name = f"{prefix}jobs"
    bury(calm_pair.url, name, "one")
    with (
        ConnectionFactory(calm_pair.url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        connection.start()
        for _ in range(3):
            dlq("reissue", name, "--all")
            consumer = session.create_consumer(Queue(name))
            received = consumer.receive(timeout_s=WAIT_S)
            assert received is not None
            session.reject(received, "again")
            session.commit()
            consumer.close()
    refused = dlq("reissue", name, "--all", code=1)
    assert "it has been a dead letter 4 times" in refused.stderr
    assert dlq("reissue", name, "--all", "--force").stdout == "reissued 1 dead letter\n"


def test_what_is_muted_is_in_no_list_until_it_is_unmuted(dlq: Dlq, calm_pair: BrokerPair, prefix: str) -> None:
    name = f"{prefix}jobs"
    bury(calm_pair.url, name, "one", "two")
    dlq("mute", name, "--cause", "w", "--reason", "a letter is no word", code=1)
    assert dlq("mute", name, "--cause", "works 1", "--reason", "test data").stdout == "muted 1 dead letter\n"
    assert [message.body for message in waiting(calm_pair.url, f"DLQ.{name}")] == ["one"]
    [muted] = [json.loads(line) for line in dlq("list", name, "--muted", "--json").stdout.splitlines()]
    assert muted["message"]["properties"]["legato_muted_reason"] == "test data"
    assert "muted: legato dlq list --muted" in dlq("list").stdout
    assert dlq("unmute", name, "--all").stdout == "unmuted 1 dead letter\n"
    assert [message.body for message in waiting(calm_pair.url, f"DLQ.{name}")] == ["one", "two"]


def test_the_dead_letter_of_a_subscription_goes_back_to_that_one_alone(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str
) -> None:
    topic = f"{prefix}news"
    with (
        ConnectionFactory(calm_pair.url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        connection.start()
        mail = session.create_shared_durable_consumer(Topic(topic), f"{prefix}mail")
        print_ = session.create_shared_durable_consumer(Topic(topic), f"{prefix}print")
        session.create_producer(Topic(topic)).send(TextMessage("hello"))
        session.commit()
        assert print_.receive(timeout_s=WAIT_S) is not None
        received = mail.receive(timeout_s=WAIT_S)
        assert received is not None
        session.reject(received, "no paper")
        session.commit()
        [row] = [row for row in json.loads(dlq("list", "--json").stdout) if row["queue"].startswith(f"DLQ.{topic}")]
        dlq("reissue", row["queue"], "--all")
        again = mail.receive(timeout_s=WAIT_S)
        assert again is not None
        assert again.body == "hello"
        assert print_.receive_no_wait() is None
        session.commit()


def test_a_flow_that_failed_goes_on_with_what_it_carried_edited(
    dlq: Dlq, make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, tmp_path: Path
) -> None:
    """CONTRACT D20: through an inbox, which must not take the edited message for the one that failed."""
    database = f"sqlite:///{tmp_path}/orders.db"
    flows = make_flows(database=database, policy=Policy(concurrency=1, deliveries_max=1))
    done: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    broken = {"tea", "milk"}

    @flows.terminator("Orders.store")
    def store(context: Context[None], item: str) -> None:
        context.database  # noqa: B018 - the transaction is begun
        if item in broken:
            raise ValueError(f"no {item}")
        context.after_commit(lambda: done.put((context.message_id, item)))

    flows.start()
    flows.send("Orders.store", "tea", trace_id="order:1")
    flows.send("Orders.store", "milk", trace_id="order:2")
    name = f"{prefix}Orders.store"
    until(lambda: len(waiting(calm_pair.url, f"DLQ.{name}")) == 2)
    [tea] = [json.loads(line) for line in dlq("list", name, "--trace", "order:1", "--json").stdout.splitlines()]
    editor = (
        f'{shlex.quote(sys.executable)} -c "import sys,pathlib as p; f=p.Path(sys.argv[1]); '
        "f.write_text(f.read_text().replace('tea', 'coffee'))\""
    )
    edited = dlq("edit", name, tea["id"], "--reissue", env={"EDITOR": editor, "VISUAL": editor})
    assert "reissued 1 dead letter" in edited.stdout
    message_id, item = done.get(timeout=WAIT_S)
    assert item == "coffee"
    assert message_id != tea["message"]["properties"]["legato_message_id"]
    broken.clear()
    [milk] = [json.loads(line) for line in dlq("list", name, "--json").stdout.splitlines()]
    dlq("edit", name, milk["id"], "--set", "data.size=2", code=1)
    refused = dlq("edit", name, milk["id"], "--set", "data.size", code=2)
    assert "--set wants PATH=VALUE, not data.size" in refused.output
    dlq("reissue", name, "--trace", "order:2")
    assert done.get(timeout=WAIT_S) == (milk["message"]["properties"]["legato_message_id"], "milk")


def test_all_dead_letters_are_meant_however_many_there_are(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those behind the ones that are in memory at a time."""
    monkeypatch.setattr("legato.administration.dead_letters.LOOKED_AT_MAX", 2)
    name = f"{prefix}many"
    bury(calm_pair.url, name, *"abc")
    bury(calm_pair.url, name, *"defgh", reason="is late")
    last = waiting(calm_pair.url, f"DLQ.{name}")[-1].message_id
    shown = dlq("list", name)
    assert f"DLQ.{name}: only the oldest 2 of 8 are shown" in shown.output
    assert f"DLQ.{name}: only the oldest 2 of 8 are shown" in dlq("list").output
    assert "is late" in dlq("show", name, last).stdout
    assert "is late 0" in dlq("list", name, "--cause", "is late").output
    assert "has the cause 'no such'" in str(dlq("mute", name, "--cause", "no such", "--reason", "x", code=1).exception)
    assert dlq("mute", name, "--cause", "is late", "--reason", "test", "--dry-run").output.count("would be muted") == 5
    assert dlq("mute", name, "--cause", "is late", "--reason", "test").stdout == "muted 5 dead letters\n"
    assert dlq("unmute", name, "--all", "--limit", "3").stdout == "unmuted 3 dead letters\n"
    assert dlq("unmute", name, "--all").stdout == "unmuted 2 dead letters\n"
    assert dlq("reissue", name, "--all").stdout == "reissued 8 dead letters\n"
    assert [message.body for message in waiting(calm_pair.url, name)] == list("abcdefgh")


def test_an_edit_changes_no_other_number_and_no_half_of_a_character(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str
) -> None:
    """What a float does not hold was written as another number, or as `Infinity`, which is no JSON."""
    name, rest = f"{prefix}digits", '"c": 12345678901234567.89, "d": [1e400, -0.10], "e": "\\ud83d"'
    bury(calm_pair.url, name, f'{{"b": 1, {rest}}}')
    assert "12345678901234567.89" in dlq("show", name, "ID:").stdout
    dlq("edit", name, "ID:", "--set", "b=2.50")
    [message] = waiting(calm_pair.url, f"DLQ.{name}")
    assert message.body == f'{{"b": 2.50, {rest}}}'


def test_a_body_that_is_nested_too_deeply_is_shown_as_a_text(dlq: Dlq, calm_pair: BrokerPair, prefix: str) -> None:
    name = f"{prefix}deep"
    for depth in (202, 5000):
        bury(calm_pair.url, name, text := "[" * depth + "]" * depth)
        assert text in dlq("show", name, "ID:").stdout.replace("\n", "")
        assert dlq("mute", name, "--all", "--reason", "deep").stdout == "muted 1 dead letter\n"


def test_an_edited_message_keeps_its_content_type_and_what_kind_of_json_it_is(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str, tmp_path: Path
) -> None:
    """Celery refuses a task without its content type, and the task was a dead letter again."""
    name = f"{prefix}tasks"
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        with connection.create_session(transacted=True) as session:
            for message in (TextMessage('"tea"'), BytesMessage(b"[1]")):
                message.content_type, message.content_encoding = "application/json", "utf-8"
                session.create_producer(Queue(name)).send(message)
            session.commit()
            consumer = session.create_consumer(Queue(name))
            for _ in range(2):
                received = consumer.receive(timeout_s=WAIT_S)
                assert received is not None
                session.reject(received, "never works")
            session.commit()
    letters = [json.loads(line) for line in dlq("list", name, "--json").stdout.splitlines()]
    for letter, change in zip(letters, ("milk", "[2]"), strict=True):
        file = tmp_path / "body"
        file.write_text(change)
        dlq("edit", name, letter["id"], "--file", str(file), "--reissue")
    bodies = [
        (message.body, message.content_type, message.content_encoding) for message in waiting(calm_pair.url, name)
    ]
    assert bodies == [('"milk"', "application/json", "utf-8"), (b"[2]", "application/json", "utf-8")]


def test_what_was_written_in_an_editor_is_kept_if_it_cannot_be_used(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comma too many made a text of JSON, which died again; what was refused was gone with the editor's file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name, editor = f"{prefix}orders", tmp_path / "editor"
    bury(calm_pair.url, name, '{"pounds": 1}', "tea")
    ordered, plain = [json.loads(line)["id"] for line in dlq("list", name, "--json").stdout.splitlines()]

    def edit(id: str, program: str, *options: str, code: int = 0) -> Result:
        editor.write_text(f"#!/bin/sh\n{program}\n")
        editor.chmod(0o700)
        return dlq("edit", name, id, *options, code=code, env={"EDITOR": str(editor), "VISUAL": str(editor)})

    wrong = '{"pounds": 2,}'
    for options in ((), ("--dry-run",)):
        answer = edit(ordered, f"echo '{wrong}' > $1", *options, code=1)
        assert str(answer.exception) == "Nothing was changed: the body was JSON, and the new one is not."
        found = re.search(r"What you wrote is in (\S+): --file takes it.", answer.output)
        assert found is not None, answer.output
        assert Path(found[1]).read_text().strip() == wrong
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        assert session.create_consumer(Queue(f"DLQ.{name}")).receive(timeout_s=WAIT_S) is not None
        monkeypatch.setattr("legato.administration.dead_letter_editor.SELECTED_WAIT_S", 0.1)
        answer = edit(ordered, "echo '{\"pounds\": 3}' > $1", code=1)
        assert "somebody else holds it" in str(answer.exception)
        found = re.search(r"What you wrote is in (\S+): --file takes it.", answer.output)
        assert found is not None, answer.output
        assert json.loads(Path(found[1]).read_text()) == {"pounds": 3}
    dlq("edit", name, ordered, "--file", found[1])
    assert "stays as it is" in edit(plain, "echo >> $1").stdout, "editors end a text with a newline"
    assert sorted(str(message.body) for message in waiting(calm_pair.url, f"DLQ.{name}")) == ["tea", '{"pounds": 3}']


def test_an_interrupt_in_the_editor_is_the_editors(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str, tmp_path: Path
) -> None:
    """Ctrl-C goes to both processes of a terminal: the command killed the editor, and deleted what was written."""
    name, editor = f"{prefix}interrupted", tmp_path / "editor"
    bury(calm_pair.url, name, "tea")
    editor.write_text('#!/bin/sh\nkill -INT $PPID\necho milk > "$1"\n')
    editor.chmod(0o700)
    assert "is changed" in dlq("edit", name, "ID:", env={"EDITOR": str(editor), "VISUAL": " "}).stdout
    assert [message.body for message in waiting(calm_pair.url, f"DLQ.{name}")] == ["milk"]


@pytest.mark.parametrize(("editor", "why"), [("no-such-editor", "No such file"), ("'", "No closing quotation")])
def test_an_editor_that_cannot_be_started_is_named(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str, editor: str, why: str
) -> None:
    name = f"{prefix}editors"
    bury(calm_pair.url, name, "tea")
    error = dlq("edit", name, "ID:", env={"EDITOR": editor, "VISUAL": ""}, code=1).exception
    assert isinstance(error, ConfigError)
    assert f"The editor {quoted(editor)} cannot be started: {why}" in str(error)


def test_who_has_no_name_on_the_machine_repairs_all_the_same(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs with a number: it ended with a stack trace."""
    name = f"{prefix}nameless"
    bury(calm_pair.url, name, "tea")
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_011)
    dlq("edit", name, "ID:", "--set", "a=1", code=1)
    assert dlq("mute", name, "--all", "--reason", "test").stdout == "muted 1 dead letter\n"
    assert "user 2000000011@" in dlq("list", name, "--muted", "--json").stdout


@pytest.mark.parametrize("rate", ["inf", "nan"])
def test_a_rate_that_is_no_number_is_refused(dlq: Dlq, calm_pair: BrokerPair, prefix: str, rate: str) -> None:
    name = f"{prefix}rates"
    bury(calm_pair.url, name, "tea")
    assert "no number to count with" in dlq("reissue", name, "--all", "--per-second", rate, code=2).output
    assert len(waiting(calm_pair.url, f"DLQ.{name}")) == 1


def test_an_edit_that_changes_nothing_reissues_nevertheless_and_one_that_fails_does_not(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str, tmp_path: Path
) -> None:
    name, file = f"{prefix}jobs", tmp_path / "body"
    bury(calm_pair.url, name, "one")
    [letter] = [json.loads(line) for line in dlq("list", name, "--json").stdout.splitlines()]
    edit = ("edit", name, letter["id"], "--reissue")
    file.write_bytes(b"\xff")
    assert "is no text in UTF-8" in str(dlq(*edit, "--file", str(file), code=1).exception)
    assert "not both" in dlq(*edit, "--file", str(file), "--set", "a=1", code=2).output
    assert "ended with code 1" in str(dlq(*edit, code=1, env={"EDITOR": "false", "VISUAL": "false"}).exception)
    assert waiting(calm_pair.url, name) == []
    file.write_text("one")
    assert "would go to" in dlq(*edit, "--file", str(file), "--dry-run").stdout
    said = dlq(*edit, "--file", str(file)).stdout
    assert "stays as it is" in said
    assert "reissued 1 dead letter" in said
    assert [message.body for message in waiting(calm_pair.url, name)] == ["one"]


def test_a_cause_id_or_queue_that_there_is_not_is_an_error_that_names_those_that_there_are(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str
) -> None:
    """`mute --cause` of a mistyped cause said `muted 0 dead letters`."""
    name = f"{prefix}jobs"
    bury(calm_pair.url, name, "one", "two", legato_trace_id="order:17")
    [first, second] = [json.loads(line) for line in dlq("list", name, "--json").stdout.splitlines()]
    error = str(dlq("show", name, first["cause"], code=1).exception)
    assert error.startswith(f"{first['cause']} is a cause, not an id: `legato dlq list DLQ.{name} --cause "), error
    cause = f"{first['cause']} (ValueError: never works #): 2"
    for words in (
        ["mute", name, "--reason", "test"],
        ["reissue", name],
        ["reissue", name, "--dry-run"],
        ["list", name],
        ["list", name, "--json"],
        ["list"],
    ):
        error = str(dlq(*words, "--cause", "zebra", code=1).exception)
        of_queue = f"of DLQ.{name} " if name in words else ""
        assert error.startswith(f"No dead letter {of_queue}has the cause 'zebra'. There are "), error
        assert (cause if of_queue else first["cause"]) in error
        error = str(dlq(*words, "--trace", "zebra", code=1).exception)
        assert error.startswith(f"No dead letter {of_queue}has the trace id 'zebra'. There are "), error
        assert "order:17" in error
        both = str(dlq(*words, "--cause", "zebra", "--trace", "order:17", code=1).exception)
        assert f"No dead letter {of_queue}has the cause 'zebra' and the trace id 'order:17'." in both
    for words in (["show", name], ["edit", name], ["reissue", name], ["mute", name, "--reason", "test"]):
        error = str(dlq(*words, "zebra", code=1).exception)
        expected = (
            f"No dead letter of DLQ.{name} has an id that begins with 'zebra'. There are {first['id']}, {second['id']}."
        )
        assert error == expected
    ambiguous = str(dlq("show", name, "ID:", code=1).exception)
    assert ambiguous.endswith(f"have an id that begins with 'ID:': {first['id']}, {second['id']}.")
    for words in (["show", "zebra", "1"], ["edit", "zebra", "1"], ["reissue", "zebra", "--all"], ["list", "zebra"]):
        error = str(dlq(*words, code=1).exception)
        assert error.startswith("zebra is not a dead-letter queue and has none. The dead-letter queues are: "), error
        assert f"DLQ.{name}" in error


def test_where_there_are_no_dead_letters_commands_say_so_and_create_nothing(
    dlq: Dlq, calm_pair: BrokerPair, prefix: str
) -> None:
    """`unmute`, and `list --muted`, created the queue of muted messages that they looked for."""
    name = f"{prefix}jobs"
    bury(calm_pair.url, name, "one")
    none = f"MUTED.DLQ.{name}"
    assert dlq("list", name, "--muted").stdout == f"There are no dead letters in {none}.\n"
    assert dlq("list", name, "--muted", "--json").stdout == ""
    assert dlq("unmute", name, "--all").stdout == f"unmuted 0 dead letters: there are none in {none}\n"
    assert str(dlq("unmute", name, "--cause", "x", code=1).exception) == f"There are no dead letters in {none}."
    assert none not in [row["name"] for row in rows(calm_pair.url, "queue")]
    dlq("reissue", name, "--all")
    assert dlq("reissue", name, "--all").stdout == f"reissued 0 dead letters: there are none in DLQ.{name}\n"
