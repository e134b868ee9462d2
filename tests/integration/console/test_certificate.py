"""HTTPS of a console whose certificate is renewed while it runs."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from legato.console import serve
from legato.console.serve import Options, Server, prepare

WAIT_S = 60.0


@contextmanager
def running(options: Options) -> Iterator[tuple[Server, int]]:
    """A console and its port; no broker is asked before somebody looks at a page."""
    started = threading.Event()
    server, listening = prepare(options, lambda address: started.set())
    with listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            assert started.wait(WAIT_S)
            yield server, listening.getsockname()[1]
        finally:
            server.end()
            thread.join(WAIT_S)


@contextmanager
def console(certificate: Path, key: Path) -> Iterator[int]:
    """The port of a console with a certificate."""
    with running(Options("amqp://localhost:1", certificate=str(certificate), key=str(key))) as (_, port):
        yield port


def eventually(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_a_renewed_certificate_is_shown_and_one_that_cannot_be_used_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The console showed the former one until it was started again, also after a reload of its broker."""
    monkeypatch.setattr(serve, "LOOK_AT_CERTIFICATE_EVERY_S", 0.01)
    caplog.set_level(logging.INFO, "legato.console")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"

    def issue() -> trustme.LeafCert:
        return trustme.CA().issue_cert("localhost")

    def put(file: Path, *blobs: trustme.Blob) -> None:
        whole = file.with_suffix(".new")
        whole.touch(mode=0o600)
        whole.write_bytes(b"".join(each.bytes() for each in blobs))
        whole.rename(file)

    first, second = issue(), issue()
    put(certificate, *first.cert_chain_pems)
    put(key, first.private_key_pem)
    with console(certificate, key) as port:

        def shown() -> str:
            return ssl.get_server_certificate(("127.0.0.1", port))

        before = shown()
        put(certificate, *second.cert_chain_pems)
        eventually(lambda: "has changed and cannot be used" in caplog.text)
        assert shown() == before, "its key is another one's"
        put(key, second.private_key_pem)
        eventually(lambda: shown() != before)
        assert shown().strip() == second.cert_chain_pems[0].bytes().decode().strip()
    assert caplog.text.count("cannot be used") == 1


def test_a_certificate_in_another_file_is_shown_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload of the broker that named other files left the console with the former ones."""
    monkeypatch.setattr(serve, "LOOK_AT_CERTIFICATE_EVERY_S", 0.01)
    files = []
    for name in ("first", "second"):
        issued = trustme.CA().issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        key = tmp_path / f"{name}-key.pem"
        key.touch(mode=0o600)
        issued.private_key_pem.write_to_path(key)
        files.append((str(tmp_path / f"{name}.pem"), str(tmp_path / f"{name}-key.pem")))
    options = Options("amqp://localhost:1", certificate=files[0][0], key=files[0][1])
    with running(options) as (server, port):
        server.renew("", *files[1])
        wanted = Path(files[1][0]).read_text().strip()
        eventually(lambda: ssl.get_server_certificate(("127.0.0.1", port)).strip() == wanted)
