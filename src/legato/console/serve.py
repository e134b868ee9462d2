"""Process of a console: serves its pages until it is stopped, for `legato console` or as a child beside a broker."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from legato.client.failover.uri import parse_uri
from legato.console.application import Console, Settings, new_token
from legato.console.brokers import Brokers
from legato.console.peers import Listening, PatientProtocol
from legato.errors import ConfigError, LegatoError
from legato.hosts import PORT_MAX, port_of, wrong_host
from legato.quoting import sentence
from legato.server.config.secret_files import refuse_readable

log = logging.getLogger("legato.console")

LISTEN_DEFAULT = "127.0.0.1:0"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SHUTDOWN_S = 2
LOOK_AT_CERTIFICATE_EVERY_S = 10.0


@dataclass
class Options:
    """How a console is started.

    Attributes:
        url: where the brokers are.
        listen: `HOST:PORT`; port 0 for any that is free.
        ledger, store: directories on this machine, if there are any.
        certificate, key: files for HTTPS.
        hosts: further names by which browsers may ask.
        members: whether brokers are found among the members of the store, too.
        pinned: file with the certificate that brokers show; empty: as the URL says.
        insecure: whether strangers may reach it, or see what goes over the network.
    """

    url: str
    listen: str = LISTEN_DEFAULT
    ledger: Path | None = None
    store: Path | None = None
    certificate: str = ""
    key: str = ""
    hosts: tuple[str, ...] = ()
    members: bool = False
    pinned: str = ""
    insecure: bool = False


class Server(uvicorn.Server):
    """As uvicorn's, but it says when it serves, ends streams of events at once, and takes a renewed certificate."""

    def __init__(self, config: uvicorn.Config, settings: Settings, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._brokers, self._closing = settings.brokers, settings.closing
        self._tell = started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.config.ssl is not None:
            seen = _content_of(str(self.config.ssl_certfile), str(self.config.ssl_keyfile))
            self._looking = self._loop.create_task(self._look_at_certificate(self.config.ssl, seen))
        self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        self._closing.set()
        if self._looking is not None:
            self._looking.cancel()
        await super().shutdown(sockets)

    async def _look_at_certificate(self, context: ssl.SSLContext, seen: tuple[bytes, ...]) -> None:
        """Show a renewed certificate to who comes from then on; one that cannot be used, when it can."""
        told = seen
        while True:
            await asyncio.sleep(LOOK_AT_CERTIFICATE_EVERY_S)
            certificate, key = str(self.config.ssl_certfile), str(self.config.ssl_keyfile)
            found = _content_of(certificate, key)
            if found == seen:
                continue
            try:
                # Without a password for the key nobody is asked for one.
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password="")
                context.load_cert_chain(certificate, key, password="")
            except OSError as error:
                if found != told:
                    log.warning("! the certificate has changed and cannot be used: %s", sentence(str(error)))
                told = found
                continue
            seen = found
            log.info("= the console has its certificate anew")

    def renew(self, pinned: str, certificate: str = "", key: str = "") -> None:
        """Certificates are in other files from now on; from any thread.

        Args:
            pinned: as `Options` has it.
            certificate, key: likewise; empty: they are where they were.
        """
        self._brokers.pinned = pinned
        if certificate and key:
            self.config.ssl_certfile, self.config.ssl_keyfile = certificate, key

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See uvicorn; but a signal that ended it is not raised once more: it was obeyed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See uvicorn."""
        super().handle_exit(sig, frame)  # First: asked for twice, it leaves without more ado.
        self.end()

    def end(self) -> None:
        """Stop soon; from any thread."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._closing.set)


def _content_of(*files: str) -> tuple[bytes, ...]:
    """What tells files from others; empty if they cannot be read."""
    try:
        return tuple(hashlib.sha256(Path(file).read_bytes()).digest() for file in files)
    except OSError:
        return ()


def serve(options: Options, announce: Callable[[str], None], *, while_input: bool = False) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        announce: is told the address when the console answers there.
        while_input: whether to end when standard input does.

    Raises:
        ConfigError: an option cannot be used.
    """
    server, listening = prepare(options, announce)
    if while_input:
        threading.Thread(target=_follow_input, args=(server,), name="watch input", daemon=True).start()
    with listening:
        server.run(sockets=[listening])


def prepare(options: Options, announce: Callable[[str], None]) -> tuple[Server, socket.socket]:
    """A server that is to be run, and the socket that it listens on; as `serve`."""
    uri = parse_uri(options.url)
    host, port = address_of(options.listen)
    is_loopback = host in LOOPBACK
    if not is_loopback and not options.certificate and not options.insecure:
        raise ConfigError(
            f"Other machines can reach {options.listen}, and passwords would go over the network in the clear: give "
            "--certificate and --key, or say that this is meant: --insecure."
        )
    own = uri.options
    has_login = bool(uri.user or own.password_file or own.token_file or own.tls_cert_file)
    if not is_loopback and not has_login:
        log.debug("whoever reaches the console has what the broker gives to those who do not log in")
    _see_readable(options.certificate, options.key)
    listening = bind(host, port)
    port = listening.getsockname()[1]
    tls = bool(options.certificate)
    settings = Settings(
        brokers=Brokers(options.url, options.store if options.members else None, options.pinned),
        # Who can reach the port of a console that has a login in its URL must not have what that login may.
        token=new_token() if has_login else "",
        hosts=LOOPBACK | {host, *options.hosts} if is_loopback or options.hosts else frozenset(),
        cookie=f"legato_console_{port}",
        tls=tls,
        ledger=options.ledger,
        store=options.store,
    )
    config = uvicorn.Config(
        Console(settings).application(),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ssl_certfile=options.certificate or None,
        ssl_keyfile=options.key or None,
        ws="none",
        # Whatever else is installed: what peers can hold is bounded with these.
        http=PatientProtocol,
        loop="asyncio",
    )
    try:
        config.load()
    except OSError as error:
        listening.close()
        files = " and ".join(filter(None, (options.certificate, options.key)))
        raise ConfigError(
            f"--certificate and --key: no certificate in PEM with its private key in {files} ({error})."
        ) from None
    shown = f"[{host}]" if ":" in host else host
    query = f"?token={settings.token}" if settings.token else ""
    address = (
        f"http{'s' if tls else ''}://{shown}:{port}/queues{query}" if query else f"http{'s' * tls}://{shown}:{port}/"
    )
    return Server(config, settings, lambda: announce(address)), listening


def _see_readable(certificate: str, key: str) -> None:
    if key and not certificate:
        raise ConfigError("--key is that of a certificate: give --certificate too.")
    for option, file in (("--certificate", certificate), ("--key", key)):
        try:
            if file:
                Path(file).read_bytes()
        except OSError as error:
            raise ConfigError(f"Cannot read {option} {file}: {error.strerror}.") from None
    if key:
        refuse_readable(Path(key), "The private key")


def _follow_input(server: Server) -> None:
    """Each line names files; see `Server.renew`. The parent's end of our input closes when it ends, however it does."""
    # Without a buffer, whose lock this thread would have when the process ends.
    with open(0, "rb", buffering=0, closefd=False) as lines:
        for line in lines:
            server.renew(**json.loads(line))
    server.end()


def address_of(listen: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        ConfigError: it is not of that form.
    """
    host, colon, digits = listen.rpartition(":")
    port = port_of(digits)
    if not colon or port is None or port > PORT_MAX:
        raise ConfigError(
            f"--listen is {listen!r:.255}: give HOST:PORT, such as 127.0.0.1:8080; port 0 is any that is free."
        )
    if wrong := wrong_host(host):
        raise ConfigError(f"--listen is {listen!r:.255}: {wrong}.")
    return host.strip("[]") or "127.0.0.1", port


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        ConfigError: it cannot.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = Listening(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        raise ConfigError(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from None
    return listening


def main() -> None:
    """Run as the child of a broker: options as arguments, the address on standard output."""
    parser = argparse.ArgumentParser()
    for name in ("url", "listen", "ledger", "store", "certificate", "key", "pinned"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--host", action="append", default=[])
    for name in ("members", "insecure"):
        parser.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    options = Options(
        url=given.url,
        listen=given.listen or LISTEN_DEFAULT,
        ledger=Path(given.ledger) if given.ledger else None,
        store=Path(given.store) if given.store else None,
        certificate=given.certificate,
        key=given.key,
        hosts=tuple(given.host),
        members=given.members,
        pinned=given.pinned,
        insecure=given.insecure,
    )
    try:
        serve(options, lambda address: print(address, flush=True), while_input=True)
    except LegatoError as error:
        print(f"legato: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
