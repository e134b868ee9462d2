"""Calls while brokers take a new map: for a moment two groups go by different ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import cast

import pytest
from typer.testing import CliRunner

from legato.cli.main import app
from legato.client import Queue, Session, aio
from legato.client.calls import other_groups
from legato.client.links.browser_end import BrowserEnd
from legato.client.links.redirection import RedirectedLinkError
from legato.client.links.transport import Transport
from legato.errors import IllegalStateError, JMSError
from tests.integration.groups.conftest import Connect, Groups
from tests.integration.groups.test_links import taken

WAIT_S = 60.0


def reload(groups: Groups, name: str) -> None:
    """Have a group's broker read the map."""
    result = CliRunner().invoke(app, ["reload", "--url", groups.url(name)])
    assert result.exit_code == 0, result.output


def move(groups: Groups, address: str) -> None:
    """Write a map in which an address is the group `rest`'s, and have the broker of `orders` alone read it."""
    groups.write_map({"orders.#": "orders", "rest.#": "rest", address: "rest"})
    reload(groups, "orders")


def called(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """A call in a thread of its own, and what came of it."""
    came: list[object] = []

    def run() -> None:
        try:
            came.append(call())
        except JMSError as error:
            came.append(error)

    (thread := threading.Thread(target=run, daemon=True)).start()
    return thread, came


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be busy."""
    monkeypatch.setattr(other_groups, "MAPS_DIFFER_S", WAIT_S, raising=False)


def send(session: Session, address: str) -> None:
    session.create_producer(Queue(address)).send("sent")


def send_anywhere(session: Session, address: str) -> None:
    session.create_producer().send("sent", destination=Queue(address))


def receive(session: Session, address: str) -> None:
    session.create_consumer(Queue(address)).close()


def browse(session: Session, address: str) -> None:
    assert list(session.create_browser(Queue(address))) == []


@pytest.mark.parametrize("reached", ["orders", "rest"])
@pytest.mark.parametrize("transacted", [False, True])
@pytest.mark.parametrize("call", [send, send_anywhere, receive, browse])
def test_a_call_waits_until_the_maps_agree(
    groups: Groups, connect: Connect, call: Callable[[Session, str], None], transacted: bool, reached: str
) -> None:
    """It was refused by both groups, with an error."""
    connection = connect(groups.url(reached))
    session = connection.create_session(transacted=transacted)
    move(groups, "moved")
    calling, came = called(lambda: call(session, "moved"))
    calling.join(1.0)
    assert calling.is_alive(), came
    reload(groups, "rest")
    calling.join(WAIT_S)
    assert came == [None]
    if transacted:
        session.commit()
    if call in (send, send_anywhere):
        assert taken(connect(groups.url("rest")), "moved") == ["sent"]


def test_a_transaction_is_not_bound_by_a_group_that_served_nothing(groups: Groups, connect: Connect) -> None:
    """The group that it reached serves the address in the end, and the transaction is its."""
    connection = connect(groups.url("rest"))
    session = connection.create_session(transacted=True)
    producer = session.create_producer()
    move(groups, "moved")
    calling, came = called(lambda: producer.send("one", destination=Queue("moved")))
    calling.join(1.0)
    assert calling.is_alive(), came
    reload(groups, "rest")
    calling.join(WAIT_S)
    producer.send("two", destination=Queue("rest.beside"))
    session.commit()
    assert taken(connection, "moved") == ["one"]
    assert taken(connection, "rest.beside") == ["two"]


def test_a_call_that_waits_for_the_maps_keeps_its_session(groups: Groups, connect: Connect) -> None:
    """A second thread was let in meanwhile."""
    session = connect(groups.url("orders")).create_session()
    move(groups, "moved")
    calling, came = called(lambda: session.create_consumer(Queue("moved")).close())
    calling.join(1.0)
    assert calling.is_alive(), came
    for _ in range(20):
        with pytest.raises(IllegalStateError, match="Another thread or task is using this session"):
            session.create_producer(Queue("orders.home"))
    reload(groups, "rest")
    calling.join(WAIT_S)
    assert came == [None]
    send(session, "orders.home")


def test_looks_of_a_browser_before_and_after_a_move_ask_each_its_own_group(
    groups: Groups, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look asked on by the connection of the second one."""
    ask = BrowserEnd.ask

    def asked(end: BrowserEnd) -> None:
        assert cast("Transport", end.channel.transport).is_current_thread
        ask(end)

    monkeypatch.setattr(BrowserEnd, "ask", asked)
    session = connect(groups.url("orders", "?prefetch=1")).create_session()
    for number in range(3):
        session.create_producer(Queue("moved")).send(f"here {number}")
    browser = session.create_browser(Queue("moved"))
    first = iter(browser)
    assert next(first).get_body(str) == "here 0"
    move(groups, "moved")
    reload(groups, "rest")
    send(session, "moved")
    second = iter(browser)
    assert next(second).get_body(str) == "sent"
    assert [message.get_body(str) for message in first] == ["here 1", "here 2"]
    assert list(second) == []
    browser.close()


def test_a_call_of_asyncio_waits_until_the_maps_agree(groups: Groups) -> None:
    async def work() -> None:
        async with (
            await aio.ConnectionFactory(groups.url("orders")).create_connection() as connection,
            connection.create_session() as session,
        ):

            async def call() -> None:
                await (await session.create_producer(Queue("moved"))).send("sent")

            calling = asyncio.create_task(call())
            done, _ = await asyncio.wait([calling], timeout=1.0)
            assert not done
            await asyncio.to_thread(reload, groups, "rest")
            await calling

    move(groups, "moved")
    asyncio.run(asyncio.wait_for(work(), WAIT_S))


def test_a_session_that_closes_ends_the_wait(groups: Groups, connect: Connect) -> None:
    session = connect(groups.url("orders")).create_session()
    move(groups, "moved")
    calling, came = called(lambda: session.create_consumer(Queue("moved")))
    calling.join(1.0)
    assert calling.is_alive(), came
    session.close()
    calling.join(WAIT_S)
    assert [type(each) for each in came] == [IllegalStateError]


@pytest.mark.parametrize("transacted", [False, True])
def test_maps_that_do_not_agree_are_told_of(
    groups: Groups, connect: Connect, transacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_groups, "MAPS_DIFFER_S", 0.5, raising=False)
    session = connect(groups.url("orders")).create_session(transacted=transacted)
    move(groups, "moved")
    for call in (send, send_anywhere, receive):
        with pytest.raises(JMSError, match="'moved' is an address of the group 'orders'") as caught:
            call(session, "moved")
        assert type(caught.value) is RedirectedLinkError  # not that a transaction has two groups
    # What is at home goes on.
    send(session, "orders.home")
