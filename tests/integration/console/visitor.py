"""A visitor of a console, as a browser without a screen."""

from __future__ import annotations

import html
import queue
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx

from legato.console.serve import Options, prepare

WAIT_S = 60.0


@contextmanager
def console(options: Options) -> Iterator[str]:
    """The address of a console that runs in this process."""
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    server, listening = prepare(options, told.put)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="console")
    thread.start()
    try:
        yield told.get(timeout=WAIT_S)
    finally:
        server.end()
        thread.join(WAIT_S)
        listening.close()
        assert not thread.is_alive(), "the console does not end"


class Visitor:
    """Asks for pages and sends their forms."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.address, self.first = f"{parts.scheme}://{parts.netloc}", f"{parts.path}?{parts.query}"
        self.client = httpx.Client(base_url=self.address, follow_redirects=True, timeout=WAIT_S)
        self.last: httpx.Response | None = None
        self.csrf = ""

    def see(self, path: str, **values: str) -> str:
        """A page as text, without tags; its status must be 200."""
        answer = self.client.get(f"{path}?{urlencode(values)}" if values else path)
        assert answer.status_code == 200, answer.text
        return self._keep(answer)

    def send(self, path: str, *, csrf: str | None = None, **values: str | list[str]) -> str:
        """A form, as the page that was seen last has it; returns the text of the page that follows."""
        if csrf is None:
            csrf = self.csrf
        answer = self.client.post(
            path,
            content=urlencode({"csrf": csrf, **values}, doseq=True),
            headers={"Content-Type": "application/x-www-form-urlencoded", "Origin": self.address},
        )
        return self._keep(answer)

    def _keep(self, answer: httpx.Response) -> str:
        self.last = answer
        found = re.search(r'name="csrf" value="([^"]+)"', answer.text)
        self.csrf = found[1] if found is not None else self.csrf
        return plain(answer.text)

    def log_in(self, user: str, password: str) -> str:
        """Log in; returns the text of the page that follows."""
        return self.send("/login", csrf="", user=user, password=password)


@contextmanager
def visitor_of(url: str, **options: Any) -> Iterator[Visitor]:
    """A visitor of a console for the brokers at a URL."""
    with console(Options(url, **options)) as address:
        visitor = Visitor(address)
        with visitor.client:
            yield visitor


def plain(page: str) -> str:
    """The text of a page."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())
