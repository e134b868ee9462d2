"""The page of an audit in a real browser: readable in light and dark, on a desk and in the hand, alone in the world.

`make browser` installs what this needs and runs it; with `LEGATO_PICTURES=1` it writes the pictures in `docs`.
"""

import math
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from legato.spark.report.audit_page import report_page
from legato.spark.result import (
    AuditResult,
    CheckResult,
    FlowsAudit,
    FlowsBegun,
    LatencyCell,
    LatencySummary,
    QueueAudit,
    StageAudit,
    Takeover,
    ThroughputPoint,
    Timeline,
    TopicAudit,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[2] / "docs" / "images"

pytest.importorskip("playwright", reason="playwright is not installed (`make browser` installs it)")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (`make browser` says how to get one)")

CONTRAST_MIN = 4.5
"""Of text and what it stands on (WCAG 2.2, 1.4.3)."""

TEXTS_TOO_FAINT = """
() => {
  const rgba = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const over = (top, under) => {
    const a = top[3] === undefined ? 1 : top[3];
    return [0, 1, 2].map(i => top[i] * a + under[i] * (1 - a));
  };
  const light = rgb => {
    const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    if (!element) return rgba(getComputedStyle(document.body).backgroundColor).slice(0, 3);
    const own = rgba(getComputedStyle(element).backgroundColor);
    return own[3] === 0 ? ground(element.parentElement) : over(own, ground(element.parentElement));
  };
  const found = [];
  for (const element of document.querySelectorAll('main *')) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.tagName === 'title' || element.classList.contains('on-bar') || !element.getClientRects().length)
      continue;
    const style = getComputedStyle(element), behind = ground(element);
    const ink = over(rgba(element instanceof SVGElement ? style.fill : style.color), behind);
    const [a, b] = [light(ink), light(behind)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < %s) found.push(`${element.tagName} ${element.textContent.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return found;
}
"""


def example() -> AuditResult:
    """An audit with something in each of its pictures: 40 s of two queues, two takeovers, of which one was clean."""
    chance = random.Random(1)
    begin_us, second = 1_760_000_000_000_000, 1_000_000
    gaps = ((12, 13), (27, 28))
    points, cells = [], []
    for bucket in range(200):
        if any(begin * 5 <= bucket < end * 5 - 3 for begin, end in gaps):
            continue
        for queue, rate in ((1, 2_400), (2, 2_300)):
            stored = round(rate * (1 + 0.25 * math.sin(bucket / 12)) + chance.gauss(0, 90))
            points.append(ThroughputPoint(queue, bucket, stored, stored - chance.randrange(40), 4 if queue == 1 else 0))
            after = 12 if any(end * 5 - 3 <= bucket < end * 5 for _, end in gaps) else 0
            for latency in range(48, 66):
                share = math.exp(-(((latency - 54 - after / 2) / 3.5) ** 2))
                if messages := round(stored * share / 6):
                    cells.append(LatencyCell(queue, bucket, latency, messages))
    stages = [LatencySummary(stage, 480_000, 0.4, 1.9, 4.2 + 9 * n, 400.0 + n) for n, stage in enumerate(STAGES)]
    queues = [
        QueueAudit(
            1, "flights", 480_000, 478_700, 478_700, 1_000, 300, 0, 0, 91, stages, dead_letters={"rejected": 640}
        ),
        QueueAudit(2, "departures", 478_700, 478_650, 0, 0, 0, 0, 0, 12, stages[:1], moved=50, moves={"expired": 50}),
    ]
    queues[0].dead_letters["too many deliveries"] = 360
    takeovers = [
        Takeover(2, "b:5672", "a:5672", False, begin_us + 12 * second, begin_us + 12 * second + 31_000, 31.0, 380.0),
        Takeover(3, "a:5672", "b:5672", True, begin_us + 27 * second, begin_us + 27 * second + 9_000, 9.0, 300.0),
    ]
    lines = ["2025-10-09 08:53:20.000  +0 µs  epoch 1  flights 7: stored, 256 bytes", "... consumed twice"]
    checks = [
        CheckResult("lost", "No message was lost.", 0),
        CheckResult(
            "consumed twice", "No message was consumed twice.", 1, [{"queue": 1, "seq": 7}], {"flights 7": lines}
        ),
    ]
    return AuditResult(
        facts=1_920_000,
        first_us=begin_us,
        last_us=begin_us + 40 * second - 1,
        last_position=9_417,
        queues=queues,
        takeovers=takeovers,
        checks=checks,
        timeline=Timeline(begin_us, second // 5, points, cells),
        topics=[TopicAudit(3, "topic://news", 1_000, 2_000, 10, 0)],
        seconds=4.2,
        flows=flows_example(),
    )


def flows_example() -> FlowsAudit:
    """An order's way through three stages and one that others wait for."""

    def stage(name: str, queued_ms: float, worked_ms: float) -> StageAudit:
        times = {"queueing": queued_ms, "processing": worked_ms, "end to end": queued_ms + worked_ms}
        latencies = [LatencySummary(what, 9_990, ms, 4 * ms, 11 * ms, 40 * ms) for what, ms in times.items()]
        return StageAudit(name, 10_000, 9_990, 8, 2, latencies)

    return FlowsAudit(
        stages=[
            stage("Orders.place", 3.2, 1.3),
            stage("Orders.place.stage1", 0.9, 12.0),
            stage("Prices.of", 0.4, 0.2),
            stage("(replies to futures)", 0.3, 0.02),
        ],
        begun=[
            FlowsBegun("Orders.place", 10_000, 9_990, 8, 2, 39_980, LatencySummary("flow", 9_990, 19, 88, 310, 940))
        ],
    )


STAGES = ("queueing", "processing", "end to end")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_can_be_read_and_asks_nobody_else(browser: "Browser", tmp_path: Path, scheme: str, width: int) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page(example(), None, {2: 380.0}, "An example"), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    assert page.locator("section svg").count() >= 6, "throughput, takeovers, heat map, latencies, flows, causes"
    assert page.evaluate(TEXTS_TOO_FAINT % CONTRAST_MIN) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "only tables and pictures scroll sideways"
    page.locator("summary").first.click()
    assert page.locator("details pre").first.is_visible(), "what is told of a message that offends"
    assert (asked, said) == ([file.as_uri()], [])
    if os.environ.get("LEGATO_PICTURES") and width == 1280:
        page.screenshot(path=PICTURES / f"audit-{scheme}.png", full_page=True)
    page.close()
