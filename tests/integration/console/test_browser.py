"""The console in a real browser: no errors, nothing in anybody's way, live, by keys, in light and dark, in the hand.

`make browser` installs what this needs and runs it; with `LEGATO_PICTURES=1` it writes the pictures in `docs`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tools.get_axe import AXE

from legato.client import AcknowledgeMode, ConnectionFactory, Queue, TextMessage, Topic
from legato.console.serve import Options
from legato.testing import LocalBroker, broker
from tests.integration.console.visitor import console

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[3] / "docs" / "images"
VIEWS = {
    "queues": "/queues",
    "topics": "/queues?kind=topic",
    "subscriptions": "/queues?kind=subscription",
    "queue": "/queues/one?name=orders",
    "messages": "/queues/messages?name=orders",
    "dead-letters": "/dead-letters",
    "letters": "/dead-letters/queue?queue=DLQ.orders",
    "connections": "/connections",
    "members": "/members",
    "story": "/story",
    "flows": "/flows",
}
WAITING = {"orders": 12, "invoices": 3, "mail": 40, "shipments": 17, "stock.changes": 8, "audit": 25}
WAITING |= {"flows.Orders.place": 2, "flows.Prices.of": 1}
PICTURED = (("queues", "light"), ("letters", "dark"))
WAIT_MS = 60_000

pytest.importorskip("playwright", reason="playwright is not installed (`make browser` installs it)")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (`make browser` says how to get one)")


@pytest.fixture(scope="module")
def running() -> Iterator[LocalBroker]:
    """A broker with something on each page."""
    with broker() as started, ConnectionFactory(started.url, client_id="ann").create_connection() as connection:
        connection.start()
        with connection.create_session() as session:
            session.create_durable_subscriber(Topic("prices"), "all").close()
            for name, count in WAITING.items():
                producer = session.create_producer(Queue(name))
                for number in range(count):
                    producer.send(TextMessage(json.dumps({"order": number, "item": "tea"})))
        with connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL) as session:
            consumer = session.create_consumer(Queue("orders"))
            for number in range(9):
                message = consumer.receive(timeout_s=60)
                assert message is not None
                session.reject(message, "ValueError: quantity <b>must</b> be positive" if number % 3 else "no route")
        yield started


@pytest.fixture(scope="module")
def address(running: LocalBroker) -> Iterator[str]:
    with console(Options(running.url)) as served:
        yield served.rstrip("/")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that is to have no complaint."""
    context = browser.new_context(viewport={"width": 1280, "height": 850}, base_url=address)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    complaints = listen(page, address)
    yield page
    context.close()
    assert complaints == []


def listen(page: Page, address: str) -> list[str]:
    """What the browser complains about, and whom else the page asks."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type != "debug" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: complaints.append(asked.url) if not asked.url.startswith(address) else None)
    page.on("response", lambda got: complaints.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    return complaints


def obstacles(page: Page) -> list[str]:
    """What axe-core finds: contrast, labels, names, roles."""
    # As a debugger does, which the policy of the page does not bind: it allows no script but the console's own.
    page.evaluate(AXE.read_text())
    found: dict[str, Any] = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for each in found["violations"]
        for node in each["nodes"][:3]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_in_any_view_is_in_anybodys_way(browser: Browser, address: str, scheme: Any, width: int) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not there (`make browser` gets it)")
    context = browser.new_context(viewport={"width": width, "height": 850}, base_url=address, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    complaints = listen(page, address)
    for name, path in VIEWS.items():
        page.goto(path)
        if name == "dead-letters":
            page.locator("table").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} scrolls sideways"
        assert obstacles(page) == [], name
        if os.environ.get("LEGATO_PICTURES") and width == 1280 and (name, scheme) in PICTURED:
            page.screenshot(path=PICTURES / f"console-{name}.png")
    page.goto(VIEWS["letters"])
    page.locator("[data-row]").first.click()
    page.get_by_role("heading", name="Body").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert obstacles(page) == []
    context.close()
    assert complaints == []


def test_a_page_changes_without_being_loaded_again(page: Page, running: LocalBroker) -> None:
    page.goto("/queues?match=invoices")
    row = page.get_by_role("row", name="invoices")
    row.get_by_text("3", exact=True).first.wait_for()
    with ConnectionFactory(running.url).create_connection() as connection, connection.create_session() as session:
        session.create_producer(Queue("invoices")).send(TextMessage("new"))
    row.get_by_text("4", exact=True).first.wait_for()


def test_who_stops_the_updates_is_left_alone(page: Page) -> None:
    page.goto("/queues")
    live = page.get_by_role("button", name="Live")
    live.wait_for()
    page.keyboard.press("l")
    page.get_by_role("button", name="Stopped").wait_for()


def test_keys_lead_everywhere(page: Page) -> None:
    page.goto("/queues")
    for key, heading in (
        ("d", "Dead letters"),
        ("c", "Connections"),
        ("m", "Members"),
        ("f", "Flows"),
        ("q", "Queues"),
    ):
        page.keyboard.press(key)
        page.get_by_role("heading", level=1, name=heading).wait_for()
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.hasAttribute('data-row')")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("invoi")
    page.get_by_role("row", name="invoices").wait_for()
    page.wait_for_url("**match=invoi**")
    page.get_by_role("row", name="orders").first.wait_for(state="hidden")


def test_dead_letters_are_ticked_and_sent_back_with_a_mouse(page: Page, running: LocalBroker) -> None:
    before = running.waiting("DLQ.orders")
    page.goto("/dead-letters")
    page.get_by_role("link", name="no route").click()
    page.get_by_label("Tick all on this page").check()
    page.get_by_role("button", name="Reissue").click()
    page.get_by_role("status").get_by_text("reissued").wait_for()
    until_s = time.monotonic() + 20
    while running.waiting("DLQ.orders") == before:
        assert time.monotonic() < until_s
    assert page.url.endswith("cause=") or "cause=" in page.url


def test_words_of_peers_are_no_markup_in_the_browser(page: Page) -> None:
    page.goto("/dead-letters")
    page.get_by_text("quantity <b>must</b> be positive").first.wait_for()
    assert page.locator("main b").count() == 0
