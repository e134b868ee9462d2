"""The site of the documentation builds without a warning, and can be read and searched in a browser.

`make site` installs what the first test needs, `make browser` what the second needs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed (`make site` installs it)")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    environment = {name: value for name, value in os.environ.items() if name != "PROJECT_URL"}
    environment["NO_MKDOCS_2_WARNING"] = "1"
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    return directory


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_site_builds_without_a_warning_and_has_api_commands_and_sources(site: Path) -> None:
    for module in ("client", "client.aio", "flows", "spark", "testing", "errors", "faststream", "kombu"):
        page = (site / "api" / f"legato.{module}.html").read_text()
        assert page.count("doc-heading") > 3, f"mkdocstrings found nothing in legato.{module}"
    assert 'id="legato.client.ConnectionFactory.create_connection"' in (site / "api" / "legato.client.html").read_text()
    assert "Directory of the store" in (site / "reference" / "cli.html").read_text()
    assert (site / "sources" / "tests" / "integration" / "client" / "test_failover.py.txt").exists()
    found = {entry["location"] for entry in json.loads((site / "search" / "search_index.json").read_text())["docs"]}
    assert {"index.html", "howto/tutorial.html", "api/legato.flows.html"} <= found


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (`make browser` says how to get one)")
def test_pages_fit_desk_and_hand_and_the_search_finds(address: str) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (`make browser` installs it)")
    complaints: list[str] = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scheme, width in (("light", 1280), ("dark", 390)):
            page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
            page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
            for path in ("index", "howto/tutorial", "reference/contract", "reference/cli", "api/legato.client"):
                page.goto(f"{address}/{path}.html")
                assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{path} at {width}"
        page = browser.new_page()
        page.goto(f"{address}/index.html")
        page.fill("[name=query]", "duplicate id")
        page.wait_for_selector(".md-search-result__item")
        browser.close()
    assert complaints == []
