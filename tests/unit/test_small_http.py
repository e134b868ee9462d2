"""The small HTTP server: who says nothing, little by little, or reads nothing keeps nobody else from an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from legato import small_http
from legato.small_http import REQUESTS_MAX, SmallHandler, SmallServer

WAIT_S = 60.0
LARGE = b"x" * (16 << 20)
"""More than sockets take while nobody reads."""


class Handler(SmallHandler):
    def answer(self, path: str, query: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/broken":
            raise RuntimeError("secret of the program")
        return HTTPStatus.OK, "text/plain", LARGE if path == "/large" else b"here"


@pytest.fixture
def port() -> Iterator[int]:
    server = SmallServer(socket.AF_INET, ("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(WAIT_S)


def ask(port: int, path: str = "/", host: str = "") -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as peer:
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\n\r\n".encode())
        answer = b""
        while more := peer.recv(1 << 16):
            answer += more
    return answer


def is_hung_up_on(peer: socket.socket) -> bool:
    try:
        while peer.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nX: ", b"GET /large HTTP/1.1\r\n\r\n"])
def test_whoever_holds_all_threads_makes_room_for_who_asks(port: int, said: bytes) -> None:
    """A probe was hung up on, as long as others held all threads with requests that never ended."""
    holding = [socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) for _ in range(REQUESTS_MAX)]
    try:
        for peer in holding:
            peer.sendall(said)
        for _ in range(3):
            assert ask(port).endswith(b"here")
    finally:
        for peer in holding:
            peer.close()


def test_a_request_that_never_ends_is_cut_off_while_bytes_of_it_come(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time-out was that of each byte: one now and then held a thread for days."""
    monkeypatch.setattr(small_http, "PEER_TIMEOUT_S", 0.3)
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as peer:
        ended = threading.Event()

        def trickle() -> None:
            try:
                peer.sendall(b"GET / HTTP/1.1\r\n")
                while not ended.wait(0.02):
                    peer.sendall(b"a")
            except OSError:
                pass

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert is_hung_up_on(peer)
        finally:
            ended.set()
            thread.join(WAIT_S)


def test_an_answer_that_nobody_reads_is_cut_off(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_http, "PEER_TIMEOUT_S", 0.3)
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as peer:
        peer.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert peer.recv(1, socket.MSG_PEEK)
        for thread in threading.enumerate():
            if "process_request_thread" in thread.name:
                thread.join(WAIT_S)
        assert threading.active_count() <= before


def test_a_thread_that_cannot_be_started_costs_no_room(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many there was none left, for good."""
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("no more threads")))
        for _ in range(2 * REQUESTS_MAX):
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as peer:
                assert is_hung_up_on(peer)
    assert ask(port).endswith(b"here")


def test_a_name_of_somebody_else_that_leads_here_is_refused(port: int) -> None:
    """A page of a stranger whose name leads to this machine (DNS rebinding) could read what is here."""
    for host in (f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"[::1:{port}"):
        assert b" 403 " in ask(port, host=host).split(b"\r\n")[0]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "proxied.example", "proxied.example:443"):
        assert ask(port, host=host).endswith(b"here")


def test_an_answer_says_what_browsers_must_not_do_with_it(port: int) -> None:
    head = ask(port).decode()
    for line in (
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "Cache-Control: no-store",
        "default-src 'none'",
    ):
        assert line in head


def test_a_page_that_fails_is_answered_without_its_secrets(port: int, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(port, "/broken")
    assert b" 500 " in answer.split(b"\r\n")[0]
    assert b"secret" not in answer
    assert "secret of the program" in caplog.text
