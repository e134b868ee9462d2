"""Pages and forms of the console, of a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.client import AcknowledgeMode, ConnectionFactory, Message, Queue, TextMessage, Topic
from legato.testing import LocalBroker, broker
from tests.integration.console.visitor import Visitor, visitor_of
from tests.support.server import free_port

WAIT_S = 60.0


@pytest.fixture
def legato_broker() -> Iterator[LocalBroker]:
    with broker() as running:
        yield running


def send(running: LocalBroker, queue: str, *bodies: str) -> list[str]:
    """Send messages; returns their ids."""
    with ConnectionFactory(running.url).create_connection() as connection, connection.create_session() as session:
        messages: list[Message] = [TextMessage(body) for body in bodies]
        with session.create_producer(Queue(queue)) as producer:
            for message in messages:
                producer.send(message)
        return [message.message_id or "" for message in messages]


def bury(running: LocalBroker, queue: str, count: int, why: str = "no such customer") -> list[str]:
    """Send messages and reject them; returns their ids."""
    ids = send(running, queue, *(json.dumps({"order": n}) for n in range(count)))
    with ConnectionFactory(running.url).create_connection() as connection:
        connection.start()
        with connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL) as session:
            consumer = session.create_consumer(Queue(queue))
            for _ in range(count):
                message = consumer.receive(timeout_s=WAIT_S)
                assert message is not None
                session.reject(message, why)
    return ids


def eventually(look: Callable[[], Any]) -> Any:
    """What `look` finds, as soon as it finds something."""
    until_s = time.monotonic() + WAIT_S
    while not (found := look()):
        assert time.monotonic() < until_s, "it did not come"
        time.sleep(0.02)
    return found


def test_queues_topics_and_subscriptions_are_listed(legato_broker: LocalBroker, visitor: Visitor) -> None:
    send(legato_broker, "orders", "a", "b", "c")
    send(legato_broker, "invoices", "d")
    with ConnectionFactory(legato_broker.url, client_id="ann").create_connection() as connection:
        connection.create_session().create_durable_subscriber(Topic("prices"), "all")
        shown = visitor.see("/queues")
        assert "orders 3" in shown
        assert shown.index("orders 3") < shown.index("invoices 1"), "the longest first"
        assert "invoices" not in visitor.see("/queues", match="orD").split("Queues Topics Subscriptions")[1]
        assert "prices" in visitor.see("/queues", kind="topic")
        assert "of prices" in visitor.see("/queues", kind="subscription")
        assert "ann" in visitor.see("/connections")


def test_a_long_list_comes_in_pages(legato_broker: LocalBroker, visitor: Visitor) -> None:
    with ConnectionFactory(legato_broker.url).create_connection() as connection, connection.create_session() as session:
        for number in range(60):
            session.create_producer(Queue(f"q{number:02}"))
    assert "1 of 2" in visitor.see("/queues", sort="name", order="asc")
    last = visitor.see("/queues", sort="name", order="asc", page="2")
    assert "q59" in last
    assert "q00" not in last


def test_a_queue_is_paused_purged_and_deleted_by_who_says_it_twice(
    legato_broker: LocalBroker, visitor: Visitor
) -> None:
    send(legato_broker, "orders", "a", "b")
    visitor.see("/queues/one", name="orders")
    assert "is paused" in visitor.send("/queues/pause", name="orders", kind="queue")
    assert "delivers again" in visitor.send("/queues/resume", name="orders", kind="queue")
    assert "Nothing was dropped" in visitor.send("/queues/purge", name="orders", kind="queue", back="/queues")
    assert "Dropped 2 messages of orders" in visitor.send("/queues/purge", name="orders", kind="queue", sure="1")
    assert "orders is deleted" in visitor.send("/queues/delete", name="orders", kind="queue", sure="1")


def test_the_first_messages_of_a_queue_are_shown_and_stay(legato_broker: LocalBroker, visitor: Visitor) -> None:
    [id] = send(legato_broker, "orders", '{"tea": 2}')
    assert '{ "tea": 2 }' in visitor.see("/queues/messages", name="orders")
    assert '"tea": 2' in visitor.see("/queues/message", name="orders", id=id)
    assert legato_broker.waiting("orders") == 1
    assert "No message waits here" in visitor.see("/queues/messages", name="orders", selector="JMSPriority = 9")


def test_words_of_peers_are_text_on_every_page(legato_broker: LocalBroker, visitor: Visitor) -> None:
    evil = "<img src=x onerror=alert(1)>\"'{{7*7}}"
    bury(legato_broker, "orders", 1, why=evil)
    send(legato_broker, "mail", evil)
    [letter] = legato_broker.dead_letters("orders")
    for path, values in (
        ("/dead-letters", {}),
        ("/dead-letters/queue", {"queue": "DLQ.orders"}),
        ("/dead-letters/letter", {"queue": "DLQ.orders", "id": letter.message_id or ""}),
        ("/queues/messages", {"name": "mail"}),
        ("/queues", {"match": evil}),
        ("/story", {"message": evil}),
    ):
        visitor.see(path, **values)
        assert visitor.last is not None
        assert "<img src=x" not in visitor.last.text, path
        assert "{{7*7}}" in visitor.last.text or "onerror" not in visitor.last.text


def test_dead_letters_are_shown_by_cause_and_one_by_one(legato_broker: LocalBroker, visitor: Visitor) -> None:
    bury(legato_broker, "orders", 3, "ConnectionError: no route to payments after 17 tries")
    [odd] = bury(legato_broker, "invoices", 1, "KeyError: 'Ann'")
    shown = eventually(lambda: visitor.see("/dead-letters") if "KeyError" in visitor.see("/dead-letters") else "")
    assert "4 dead letters in 2 queues" in shown
    assert "3 ConnectionError: no route to payments after 17 tries" in shown
    listed = visitor.see("/dead-letters/queue", queue="DLQ.invoices")
    assert odd in listed
    one = visitor.see("/dead-letters/letter", queue="DLQ.invoices", id=odd)
    assert "came from invoices" in one
    assert '"order": 0' in one


def test_dead_letters_are_sent_back_where_they_came_from(legato_broker: LocalBroker, visitor: Visitor) -> None:
    ids = bury(legato_broker, "orders", 5)
    visitor.see("/dead-letters/queue", queue="DLQ.orders")
    said = visitor.send("/dead-letters/reissue", queue="DLQ.orders", scope="ticked", id=ids[:2])
    assert "2 of 2 dead letters of DLQ.orders reissued" in said
    assert legato_broker.waiting("orders") == 2
    assert [letter.message_id for letter in legato_broker.dead_letters("orders")] == ids[2:]
    said = visitor.send("/dead-letters/reissue", queue="DLQ.orders", scope="all", to="elsewhere")
    assert "3 of 3 dead letters of DLQ.orders reissued" in said
    assert legato_broker.waiting("elsewhere") == 3


def test_a_reissue_at_a_rate_goes_on_in_the_background_and_can_be_stopped(
    legato_broker: LocalBroker, visitor: Visitor
) -> None:
    bury(legato_broker, "orders", 5)
    visitor.see("/dead-letters/queue", queue="DLQ.orders")
    said = visitor.send("/dead-letters/reissue", queue="DLQ.orders", scope="all", per_second="0.01")
    assert "Begun: 5 dead letters" in said
    assert "of 5 dead letters of DLQ.orders reissued" in said
    eventually(lambda: legato_broker.waiting("orders") == 1)
    stopped = visitor.send("/dead-letters/stop", job="1", queue="DLQ.orders")
    assert "then it was stopped" in stopped
    assert legato_broker.waiting("orders") == 1


def test_muted_dead_letters_are_put_aside_with_a_reason_and_come_back(
    legato_broker: LocalBroker, visitor: Visitor
) -> None:
    ids = bury(legato_broker, "orders", 2)
    visitor.see("/dead-letters/queue", queue="DLQ.orders")
    assert "Give a reason" in visitor.send("/dead-letters/mute", queue="DLQ.orders", scope="all")
    visitor.see("/dead-letters/queue", queue="DLQ.orders")
    assert "2 of 2" in visitor.send("/dead-letters/mute", queue="DLQ.orders", scope="all", reason="test data")
    assert "There are no dead letters" in visitor.see("/dead-letters")
    assert "test data" in visitor.see("/dead-letters/queue", queue="MUTED.DLQ.orders")
    visitor.send("/dead-letters/unmute", queue="MUTED.DLQ.orders", scope="ticked", id=ids[:1])
    assert [letter.message_id for letter in legato_broker.dead_letters("orders")] == ids[:1]


def test_dead_letters_that_come_back_are_seen_though_others_died_after_them(
    legato_broker: LocalBroker, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They keep the time of their death, and only those as young as the youngest were looked for."""
    monkeypatch.setattr("legato.console.dead_letter_index.LOOK_AGAIN_S", 0.0)
    ids = bury(legato_broker, "orders", 2)
    dead_ms = int(time.time() * 1000)
    eventually(lambda: int(time.time() * 1000) > dead_ms)
    ids += bury(legato_broker, "orders", 1)
    visitor.see("/dead-letters/queue", queue="DLQ.orders")
    visitor.send("/dead-letters/mute", queue="DLQ.orders", id=ids[:2], reason="test data")
    for where in ("DLQ.orders", "DLQ.orders", "MUTED.DLQ.orders"):
        visitor.see("/dead-letters/queue", queue=where)
    for id in ids[1::-1]:
        visitor.send("/dead-letters/unmute", queue="MUTED.DLQ.orders", id=id)
    eventually(lambda: ids[0] in visitor.see("/dead-letters/queue", queue="DLQ.orders"))
    assert ids[1] in visitor.see("/dead-letters/queue", queue="DLQ.orders")


def test_a_dead_letter_is_edited_and_sent_back(legato_broker: LocalBroker, visitor: Visitor) -> None:
    [id] = bury(legato_broker, "orders", 1)
    visitor.see("/dead-letters/letter", queue="DLQ.orders", id=id)
    wrong = visitor.send("/dead-letters/edit", queue="DLQ.orders", id=id, body="{", back="/dead-letters")
    assert "the body was JSON, and what you wrote is not" in wrong
    said = visitor.send("/dead-letters/edit", queue="DLQ.orders", id=id, body='{"order": 7}', reissue="1")
    assert "Sent to orders" in said
    [message] = legato_broker.messages("orders")
    assert json.loads(message.body) == {"order": 7}
    assert message.message_id != id
    assert legato_broker.waiting("DLQ.orders") == 0


def test_a_body_with_half_a_character_or_a_long_number_is_shown_and_edited(
    legato_broker: LocalBroker, visitor: Visitor
) -> None:
    """Its page failed: whoever may send could keep it from being looked at."""
    body = '{"name": "\\ud83d", "amount": 12345678901234567.89}'
    [id] = send(legato_broker, "DLQ.orders", body)
    assert "12345678901234567.89" in visitor.see("/dead-letters/letter", queue="DLQ.orders", id=id)
    changed = body.replace("name", "called")
    assert "is changed" in visitor.send("/dead-letters/edit", queue="DLQ.orders", id=id, body=changed)
    [message] = legato_broker.messages("DLQ.orders")
    assert message.body == changed


def test_what_did_not_come_from_the_consoles_own_form_changes_nothing(
    legato_broker: LocalBroker, visitor: Visitor
) -> None:
    send(legato_broker, "orders", "a")
    visitor.see("/queues/one", name="orders")
    mine = visitor.csrf
    assert "not from this visit" in visitor.send("/queues/purge", csrf="", name="orders", sure="1")
    form = {"csrf": mine, "name": "orders", "sure": "1"}
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert visitor.client.post("/queues/purge", data=form, headers=headers).status_code == 403
    assert legato_broker.waiting("orders") == 1


def test_a_page_under_a_strangers_name_is_not_answered(legato_broker: LocalBroker) -> None:
    with visitor_of(legato_broker.url) as visitor:
        assert visitor.client.get("/queues", headers={"Host": "evil.example:8080"}).status_code == 403
        assert visitor.client.get("/queues", headers={"Host": "localhost:8080"}).status_code == 200


@pytest.mark.parametrize("options", [{}, {"listen": "0.0.0.0:0", "insecure": True}], ids=["here", "everywhere"])
def test_what_no_browser_sends_is_refused_and_is_no_failure(
    legato_broker: LocalBroker, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody could fill the console's log with stack traces."""
    with visitor_of(legato_broker.url, **options) as visitor:
        for headers in ({"Host": "["}, {"Origin": "http://["}):
            assert visitor.client.post("/login", headers=headers).status_code == 403
        assert visitor.client.get("/queues", headers={"Host": "["}).status_code == 403
        visitor.see("/queues")
        assert visitor.send("/logout", csrf="é")
        assert visitor.last is not None
        assert visitor.last.status_code == 200
    assert not [record for record in caplog.records if record.exc_info]


def test_a_page_of_members_that_cannot_be_read_says_so_once(legato_broker: LocalBroker, tmp_path: Path) -> None:
    """Each look of an open page was kept for the next page, which had the sentence by the thousand."""
    (tmp_path / "members").write_text("no directory")
    sentence = f"The members of {tmp_path} cannot be read"
    with visitor_of(legato_broker.url, store=tmp_path) as visitor:
        assert visitor.see("/members").count(sentence) == 1
        with visitor.client.stream("GET", "/live/members") as events:
            assert "event: view" in next(events.iter_lines())
        assert sentence not in visitor.see("/queues")


def test_pages_say_to_browsers_what_they_may_do_with_them(visitor: Visitor) -> None:
    visitor.see("/queues")
    assert visitor.last is not None
    headers, page = visitor.last.headers, visitor.last.text
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in page
    assert " style=" not in page
    assert " onclick=" not in page


def test_the_cookie_is_for_this_site_and_not_for_scripts(legato_broker: LocalBroker) -> None:
    with visitor_of(legato_broker.url) as visitor:
        said = visitor.client.get("/queues").headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=strict" in said


def test_a_page_that_is_open_is_sent_what_has_changed(legato_broker: LocalBroker, visitor: Visitor) -> None:
    send(legato_broker, "orders", "a")
    visitor.see("/queues")
    with visitor.client.stream("GET", "/live/queues") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == "event: view"
        send(legato_broker, "orders", "b")
        told = (line for line in lines if 'data-label="Waiting"' in line)
        assert ">1<" in next(told)
        assert ">2<" in next(told)
    visitor.client.cookies.clear()
    assert visitor.client.get("/live/queues").status_code == 204


def test_a_console_says_that_no_broker_can_be_reached_and_goes_on_when_one_can() -> None:
    with visitor_of(f"amqp://127.0.0.1:{free_port()}") as visitor:
        answer = visitor.client.get("/queues")
        assert answer.status_code == 503
        assert "No broker" in answer.text


def test_without_a_ledger_pages_say_so(visitor: Visitor) -> None:
    assert "has no ledger" in visitor.see("/story", message="ID:1")
    assert "which this console has not" in visitor.see("/members")
