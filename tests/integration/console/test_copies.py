"""Dead letters that one id does not tell apart, by `legato dlq` and in the console."""

from __future__ import annotations

import itertools
import json
import queue
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection
from typer.testing import CliRunner, Result

from legato.administration import dead_letter_editor, dead_letters
from legato.cli.main import app
from legato.client import AcknowledgeMode, ConnectionFactory, MessageConsumer, Queue, Topic
from legato.client.management import request
from legato.console import jobs
from legato.console.broker_link import BrokerLink, Unanswered
from legato.console.brokers import Brokers
from legato.console.dead_letter_index import Indexes
from legato.errors import JMSError
from legato.testing import LocalBroker, broker
from tests.integration.console.test_pages import eventually
from tests.integration.console.visitor import WAIT_S, Visitor

IDS: tuple[Any, ...] = ("one", None, None, 7, "ID:AMQP_BINARY:zz", "it's", "x" * 3000, "y" * 3000)
"""As other clients make them: Legato's spells all but one in another way than the broker compares them."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def legato_broker() -> Iterator[LocalBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def name() -> str:
    """A queue or topic of this test alone."""
    return f"prices{next(_numbers)}"


def dlq(running: LocalBroker, *arguments: str, code: int = 0) -> Result:
    """Run `legato dlq`."""
    result = CliRunner().invoke(app, ["dlq", *arguments], env={"LEGATO_URL": running.url, "COLUMNS": "250"})
    assert result.exit_code == code, (result.output, result.exception)
    return result


@contextmanager
def two_dead_copies(running: LocalBroker, topic: str) -> Iterator[list[MessageConsumer]]:
    """Two subscribers of one name refuse the same message: both copies are in one queue."""
    with ExitStack() as stack:
        consumers, sessions = [], []
        for client in ("c1", "c2"):
            factory = ConnectionFactory(running.url, client_id=f"{topic}.{client}")
            connection = stack.enter_context(factory.create_connection())
            session = stack.enter_context(connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL))
            connection.start()
            sessions.append(session)
            consumers.append(session.create_durable_subscriber(Topic(topic), "sub"))
        sessions[0].create_producer(Topic(topic)).send("tea 2.50")
        for session, consumer in zip(sessions, consumers, strict=True):
            received = consumer.receive(timeout_s=WAIT_S)
            assert received is not None
            session.reject(received, "no such price")
        yield consumers
        for consumer in consumers:
            assert consumer.receive_no_wait() is None, "there is one more"


def take(consumer: MessageConsumer) -> str:
    """What a subscriber gets."""
    received = consumer.receive(timeout_s=WAIT_S)
    assert received is not None
    received.acknowledge()
    return str(received.body)


def names(running: LocalBroker, where: str) -> list[str]:
    """Of the dead letters of a queue, as `legato dlq list --json` has them."""
    return [json.loads(line)["name"] for line in dlq(running, "list", where, "--json").stdout.splitlines()]


def bury_foreign(running: LocalBroker, where: str, ids: tuple[Any, ...] = IDS) -> None:
    """Another client sends messages, which are refused."""
    connection = BlockingConnection(running.url)
    sender = connection.create_sender(where)
    for number, id in enumerate(ids):
        sender.send(ProtonMessage(id=id, body=f"body {number}", durable=True))
    connection.close()
    with ConnectionFactory(running.url).create_connection() as legato:
        legato.start()
        with legato.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL) as session:
            consumer = session.create_consumer(Queue(where))
            for number, _ in enumerate(ids):
                message = consumer.receive(timeout_s=WAIT_S)
                assert message is not None
                session.reject(message, f"not read {number}")


def test_each_copy_of_a_message_goes_back_to_the_subscriber_whose_it_is(legato_broker: LocalBroker, name: str) -> None:
    """The first subscriber got both, and the other one none."""
    with two_dead_copies(legato_broker, name) as consumers:
        said = dlq(legato_broker, "reissue", f"DLQ.{name}.sub", "--all").stdout
        assert said == "reissued 2 dead letters\n"
        assert [take(consumer) for consumer in consumers] == ["tea 2.50", "tea 2.50"]


def test_one_of_the_copies_of_a_message_is_named(legato_broker: LocalBroker, name: str) -> None:
    """The whole id of a message was refused, because two begin with it."""
    where = f"DLQ.{name}.sub"
    with two_dead_copies(legato_broker, name) as consumers:
        in_queue = names(legato_broker, where)  # Which of them died first is not said.
        [first, second] = sorted(in_queue)
        assert f"@subscription://{name}.c1/sub#" in first
        id = first.partition("@")[0]
        ambiguous = str(dlq(legato_broker, "show", where, id, code=1).exception)
        named = ", ".join(in_queue)
        assert ambiguous == f"2 dead letters of {where} are copies with this id. Name one of {named}."
        shown = dlq(legato_broker, "list", where).stdout
        [short] = [word for word in shown.split() if "..." in word and word.endswith(second[-7:])]
        assert "tea 2.50" in dlq(legato_broker, "show", where, second).stdout
        dlq(legato_broker, "edit", where, short, "--set", "price=3", code=1)
        assert dlq(legato_broker, "reissue", where, short).stdout == "reissued 1 dead letter\n"
        assert take(consumers[1]) == "tea 2.50"
        assert dlq(legato_broker, "mute", where, first, "--reason", "test").stdout == "muted 1 dead letter\n"
        assert dlq(legato_broker, "unmute", where, first).stdout == "unmuted 1 dead letter\n"
        assert names(legato_broker, where) == [first]


def test_the_console_shows_and_moves_each_copy_of_a_message(
    legato_broker: LocalBroker, visitor: Visitor, name: str
) -> None:
    where = f"DLQ.{name}.sub"
    with two_dead_copies(legato_broker, name) as consumers:
        [first, second] = sorted(names(legato_broker, where))
        listed = visitor.see("/dead-letters/queue", queue=where)
        assert f"{name}.c1/sub" in listed
        assert f"{name}.c2/sub" in listed
        assert f"came from subscription://{name}.c2/sub" in visitor.see("/dead-letters/letter", queue=where, id=second)
        visitor.see("/dead-letters/letter", queue=where, id=first)
        visitor.send("/dead-letters/edit", queue=where, id=first, body="tea 3.00")
        assert "1 of 1 dead letters" in visitor.send("/dead-letters/reissue", queue=where, id=second)
        assert take(consumers[1]) == "tea 2.50"
        eventually(lambda: f"{name}.c1/sub" in visitor.see("/dead-letters/queue", queue=where))
        assert "1 of 1 dead letters" in visitor.send("/dead-letters/reissue", queue=where, scope="all")
        assert take(consumers[0]) == "tea 3.00"


def test_dead_letters_of_other_clients_are_shown_muted_and_reissued(legato_broker: LocalBroker, name: str) -> None:
    """None was: those with an id of another spelling, and those without one, were `gone already`."""
    bury_foreign(legato_broker, name)
    count = len(IDS)
    found = names(legato_broker, name)
    assert len(set(found)) == count
    for number, each in enumerate(found):
        assert f"body {number}" in dlq(legato_broker, "show", name, each).stdout
    dlq(legato_broker, "edit", name, found[1], "--file", "/dev/null")
    assert dlq(legato_broker, "mute", name, "--all", "--reason", "test").stdout == f"muted {count} dead letters\n"
    assert dlq(legato_broker, "unmute", name, "--all").stdout == f"unmuted {count} dead letters\n"
    assert dlq(legato_broker, "reissue", name, "--all").stdout == f"reissued {count} dead letters\n"
    assert legato_broker.waiting(name) == count


def test_the_console_shows_and_moves_dead_letters_of_other_clients(
    legato_broker: LocalBroker, visitor: Visitor, name: str
) -> None:
    where = f"DLQ.{name}"
    bury_foreign(legato_broker, name)
    visitor.see("/dead-letters/queue", queue=where)
    for number, each in enumerate(names(legato_broker, where)[:6]):
        assert f"body {number}" in visitor.see("/dead-letters/letter", queue=where, id=each)
    said = visitor.send("/dead-letters/reissue", queue=where, scope="all")
    assert f"{len(IDS)} of {len(IDS)} dead letters of {where} reissued" in said
    assert "gone" not in said
    assert legato_broker.waiting(name) == len(IDS)


def test_what_somebody_holds_is_not_said_to_be_gone(legato_broker: LocalBroker, visitor: Visitor, name: str) -> None:
    where = f"DLQ.{name}"
    bury_foreign(legato_broker, name, ("one", None))
    taken: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with ConnectionFactory(legato_broker.url).create_connection() as connection:
        session = connection.create_session(transacted=True)
        session.create_consumer(Queue(where), "JMSMessageID IS NULL", prefetch=1).message_listener = taken.put
        connection.start()
        taken.get(timeout=WAIT_S)
        said = dlq(legato_broker, "reissue", name, "--all", code=1).stdout
        held = "somebody holds it, or there is no room where it should go"
        assert said == f"reissued 1 dead letter; 1 is in {where} still: {held}\n"
        visitor.see("/dead-letters/queue", queue=where)
        said = visitor.send("/dead-letters/reissue", queue=where, scope="all")
        assert f"0 of 1 dead letters of {where} reissued; 1 are there still: somebody holds them" in said
    assert dlq(legato_broker, "reissue", name, "--all").stdout == "reissued 1 dead letter\n"


def test_an_edit_of_what_is_there_says_why_it_cannot_be_done(
    legato_broker: LocalBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that it is gone, and the record that it was edited."""
    monkeypatch.setattr(dead_letter_editor, "SELECTED_WAIT_S", 0.3)
    where = f"DLQ.{name}"
    recorded: list[str] = []
    bury_foreign(legato_broker, name, ("ID:1",))
    [letter] = dead_letters.letters(legato_broker.url, where)
    taken: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with ConnectionFactory(legato_broker.url).create_connection() as connection:
        connection.start()

        def ask(operation: str, type: str, name: str, **arguments: str) -> Any:
            recorded.extend([operation] if operation == "edit" else [])
            return request(legato_broker.url, operation, type, name, **arguments)

        def why() -> str:
            with pytest.raises(JMSError) as refused:
                dead_letter_editor.replace_in(connection, ask, letter, "new", "ann")
            return str(refused.value)

        with connection.create_session(transacted=True) as session:
            session.create_consumer(Queue(where)).message_listener = taken.put
            taken.get(timeout=WAIT_S)
            held = f"ID:1 is in {where}, but somebody else holds it: another edit, or a consumer. Nothing was changed."
            assert why() == held
        request(legato_broker.url, "pause", "queue", where)
        paused = f"ID:1 cannot be edited while {where} is paused: resume it first. Nothing was changed."
        assert why() == paused
        request(legato_broker.url, "resume", "queue", where)
        assert recorded == []
        monkeypatch.undo()
        dead_letter_editor.replace_in(connection, ask, letter, "new", "ann")
        assert recorded == ["edit"]
        monkeypatch.setattr(dead_letter_editor, "SELECTED_WAIT_S", 0.3)
        assert why() == f"ID:1 is no longer in {where}."
        assert recorded == ["edit"]


class Forgetful(BrokerLink):
    """Loses the first answers to what changes something, as in takeovers."""

    lost = 2

    def request(self, operation: str, type: str, name: str = "", **arguments: str | float) -> Any:
        answer = super().request(operation, type, name, **arguments)
        if operation == "move" and self.lost:
            self.lost -= 1
            raise Unanswered("The broker did not answer within 60 s.")
        return answer


def test_a_job_asks_again_what_was_not_answered(
    legato_broker: LocalBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A takeover ended it, and the rest stayed dead letters."""
    monkeypatch.setattr(jobs, "AGAIN_AFTER_S", 0.0)
    bury_foreign(legato_broker, name, tuple(range(5)))
    link = Forgetful(Brokers(legato_broker.url))
    try:
        [row] = [row for row in link.rows("queue") if row["name"] == f"DLQ.{name}"]
        index = Indexes(link).of(f"DLQ.{name}")
        index.look(row, WAIT_S)
        job = jobs.MoveJob(link, index, index.entries(), "reissued", per_second=1000.0)
        job.start()
        job.wait(WAIT_S)
        assert job.sentence == f"5 of 5 dead letters of DLQ.{name} reissued"
        assert index.entries() == []
    finally:
        link.close()
    assert legato_broker.waiting(name) == 5
