"""Logins and roles in the console: whoever looks may do there what the broker lets them do elsewhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from legato.client import AcknowledgeMode, ConnectionFactory, Queue, TextMessage
from legato.console.visits import Visits
from legato.core.facts import EpochBegan, LogRecord, MessageStored, QueueCreated
from legato.server.identity.users_file import changing
from legato.spark.ledger.segments import write_segment
from tests.integration.console.test_pages import eventually
from tests.integration.console.visitor import WAIT_S, Visitor, plain, visitor_of
from tests.integration.server.test_logins import add
from tests.support.server import Server, server

ROLES = """
[[role]]
name = "owners"
members = ["owner"]
allow = [{ on = "#", may = ["send", "receive", "browse", "create", "delete"] }]
management = "administer"

[[role]]
name = "operators"
members = ["op"]
allow = [{ on = "orders", may = ["send", "browse"] }]
management = "operate"

[[role]]
name = "watchers"
members = ["eve"]
management = "view"
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Server]:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    for name in ("owner", "op", "eve", "nobody"):
        add(store / "users", name, f"{name}-password")
    config = tmp_path / "legato.toml"
    config.write_text(ROLES)
    with server(store, "--config", str(config)) as process:
        url = f"amqp://owner:owner-password@127.0.0.1:{process.port}"
        with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
            session.create_producer(Queue("orders")).send(TextMessage("a"))
            session.create_producer(Queue("salaries")).send(TextMessage("secret of the owner"))
        yield process


@pytest.fixture
def visitor(running: Server) -> Iterator[Visitor]:
    with visitor_of(f"amqp://127.0.0.1:{running.port}") as visitor:
        yield visitor


def log_in(visitor: Visitor, user: str) -> str:
    return visitor.log_in(user, f"{user}-password")


def test_nothing_is_shown_to_who_does_not_log_in(visitor: Visitor) -> None:
    for path in ("/queues", "/dead-letters", "/members", "/connections", "/story", "/flows"):
        assert "Password" in visitor.see(path)
    assert visitor.client.get("/live/queues").status_code == 204
    assert "Password" in visitor.send("/queues/purge", csrf="", name="orders", sure="1")
    assert "no such user with this password" in visitor.log_in("eve", "wrong")
    assert "lacks a permission" in log_in(visitor, "nobody")


def test_a_watcher_looks_and_changes_nothing(visitor: Visitor) -> None:
    assert "orders 1" in log_in(visitor, "eve")
    page = visitor.see("/queues/one", name="orders")
    assert "Purge" not in page
    assert "management = 'operate'" in visitor.send("/queues/purge", name="orders", kind="queue", sure="1")
    assert "management = 'administer'" in visitor.send("/members/switchover", sure="1")
    refused = visitor.client.get("/queues/messages?name=salaries")
    assert refused.status_code == 502
    assert "lacks a permission: browse" in refused.text
    assert "secret of the owner" not in refused.text


def test_an_operator_operates_and_does_not_administer(visitor: Visitor) -> None:
    log_in(visitor, "op")
    visitor.see("/queues/one", name="orders")
    assert "is paused" in visitor.send("/queues/pause", name="orders", kind="queue")
    assert "a" in visitor.see("/queues/messages", name="orders")
    assert "Switch over" not in visitor.see("/members")
    assert "management = 'administer'" in visitor.send("/members/reload")


def test_an_administrator_reads_the_configuration_again_and_is_told_that_there_is_no_backup(
    visitor: Visitor, tmp_path: Path
) -> None:
    log_in(visitor, "owner")
    visitor.see("/members")
    told = visitor.send("/members/reload", back="/members")
    assert "has read its configuration again" in told
    assert "in effect when" not in told
    with (tmp_path / "legato.toml").open("a") as config:
        config.write("[server]\nidle_timeout_ms = 9000\n")
    told = visitor.send("/members/reload", back="/members")
    assert "Changed, and in effect when the broker is started again: server.idle_timeout_ms." in told
    assert "backup" in visitor.send("/members/switchover", sure="1", back="/members")


def bury(running: Server) -> None:
    """Dead letters in DLQ.tea."""
    url = f"amqp://owner:owner-password@127.0.0.1:{running.port}"
    with (
        ConnectionFactory(url).create_connection() as connection,
        connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL) as session,
    ):
        connection.start()
        producer, consumer = session.create_producer(Queue("tea")), session.create_consumer(Queue("tea"))
        for number in range(3):
            producer.send(TextMessage(str(number)))
            received = consumer.receive(timeout_s=WAIT_S)
            assert received is not None
            session.reject(received, "no")


def test_a_job_goes_on_when_its_user_logs_out_and_is_shown_to_them_again(running: Server, visitor: Visitor) -> None:
    """It ended in the middle, and nobody was told."""
    bury(running)
    log_in(visitor, "owner")
    visitor.see("/dead-letters/queue", queue="DLQ.tea")
    assert "Begun" in visitor.send("/dead-letters/reissue", queue="DLQ.tea", scope="all", per_second="0.001")
    visitor.send("/logout")
    log_in(visitor, "eve")
    assert "reissued" not in visitor.see("/dead-letters")
    visitor.send("/logout")
    log_in(visitor, "owner")
    eventually(lambda: "1 of 3 dead letters of DLQ.tea reissued" in visitor.see("/dead-letters"))
    assert "stopped" not in visitor.see("/dead-letters")
    assert "then it was stopped" in visitor.send("/dead-letters/stop", job="1", queue="DLQ.tea")


def test_who_logs_out_is_out_and_their_cookie_is_worth_nothing(visitor: Visitor) -> None:
    log_in(visitor, "eve")
    stolen = dict(visitor.client.cookies)
    visitor.see("/queues")
    assert "Password" in visitor.send("/logout")
    visitor.client.cookies.update(stolen)
    assert "Password" in visitor.see("/queues")


def test_each_login_has_a_cookie_of_its_own(visitor: Visitor) -> None:
    log_in(visitor, "eve")
    first = dict(visitor.client.cookies)
    log_in(visitor, "owner")
    assert dict(visitor.client.cookies) != first
    visitor.client.cookies.clear()
    visitor.client.cookies.update(first)
    assert "Password" in visitor.see("/queues"), "the visit before is over"


@pytest.fixture
def reader(running: Server, tmp_path: Path) -> Iterator[Visitor]:
    """Eve, who reads the story of a message in the ledger: no broker is asked for that."""
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    records = [
        LogRecord(1, 1_000_000, [EpochBegan("a:5672"), QueueCreated(1, "orders")]),
        LogRecord(1, 2_000_000, [MessageStored(1, 1, 10, message_id="ID:tea")]),
    ]
    write_segment(ledger, list(enumerate(records, 1)))
    with visitor_of(f"amqp://127.0.0.1:{running.port}", ledger=ledger) as visitor:
        log_in(visitor, "eve")
        eventually(lambda: "stored, 10 bytes" in visitor.see("/story", message="ID:tea"))
        yield visitor


def test_who_is_no_user_any_more_reads_no_ledger_and_is_asked_to_log_in(running: Server, reader: Visitor) -> None:
    """The visit went on as long as a page was open. Each look was another wrong login of the console's address."""
    with changing(running.store / "users") as users:
        del users.users["eve"]
    running.signal(signal.SIGHUP)
    eventually(lambda: "Password" in reader.client.get("/story?message=ID:tea").text)
    for _ in range(20):
        assert "Password" in reader.see("/queues")
    assert running.log.read_text().count("wrong user name or password for eve") <= 2


def test_who_has_lost_a_role_reads_no_ledger(running: Server, reader: Visitor, tmp_path: Path) -> None:
    (tmp_path / "legato.toml").write_text(ROLES.replace('"eve"', '"nobody"'))
    running.signal(signal.SIGHUP)
    eventually(lambda: reader.client.get("/story?message=ID:tea").status_code == 403)
    assert "needs a role with management = 'view'" in plain(reader.client.get("/story?message=ID:tea").text)


def test_a_console_whose_url_has_a_login_wants_its_token(running: Server) -> None:
    with visitor_of(f"amqp://eve:eve-password@127.0.0.1:{running.port}") as visitor:
        assert "its token lets you in" in visitor.see("/queues")
        assert "its token lets you in" in visitor.see("/queues", token="a guess")
        assert "eve-password" not in visitor.first
        assert "orders 1" in visitor.see(visitor.first)
        assert visitor.last is not None
        assert "token" not in str(visitor.last.url)
        assert "orders 1" in visitor.see("/queues"), "the cookie is enough then"


def test_wrong_passwords_in_the_browser_keep_nobody_on_this_machine_out(visitor: Visitor, running: Server) -> None:
    """The broker sees the console's address only: ten guesses, and no service on the machine got in as that user."""
    statuses = []
    for _ in range(12):
        said = visitor.log_in("op", "wrong")
        assert visitor.last is not None
        statuses.append(visitor.last.status_code)
    assert statuses == [401] * 5 + [429] * 7
    assert "too many wrong passwords" in said
    with ConnectionFactory(f"amqp://op:op-password@127.0.0.1:{running.port}").create_connection() as connection:
        connection.create_session().create_producer(Queue("orders")).send(TextMessage("b"))
    assert "orders 2" in log_in(visitor, "eve"), "others get in"


def test_a_login_too_many_is_told_so_and_those_before_it_are_looked_at(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console has a thread for each login that it looks at."""
    monkeypatch.setattr("legato.console.application.LOGINS_WAITING_MAX", 1)
    begun, go_on, begin = threading.Event(), threading.Event(), Visits.begin

    def begin_late(visits: Visits, *login: str) -> Any:
        begun.set()
        assert go_on.wait(WAIT_S)
        return begin(visits, *login)

    monkeypatch.setattr(Visits, "begin", begin_late)
    first = Visitor(visitor.address)
    with first.client, ThreadPoolExecutor(1) as thread:
        try:
            waiting = thread.submit(log_in, first, "owner")
            assert begun.wait(WAIT_S)
            assert "Too many logins wait to be looked at." in log_in(visitor, "op")
            assert visitor.last is not None
            assert visitor.last.status_code == 503
        finally:
            go_on.set()
        assert "orders" in waiting.result(WAIT_S)
    assert "orders" in log_in(visitor, "op")
