"""One TCP connection to one broker: socket, TLS, SASL and the AMQP engine, from connecting to the end."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from legato.amqp import names
from legato.amqp.engine.connection import Connection as Engine
from legato.amqp.engine.events import Closed, Event, Opened
from legato.amqp.engine.sasl import SaslClient
from legato.amqp.engine.settings import Settings
from legato.client.failover.discovery import REDIRECT, hosts_of
from legato.client.failover.peer_problems import (
    NO_GREETING,
    NO_HANDSHAKE,
    NO_LOGIN,
    NO_OPEN,
    NO_TCP,
    UnheardError,
    answered_within,
    check_greeting,
    distrusted,
    tls_failed,
)
from legato.client.failover.uri import Host
from legato.client.mapping.conditions import error_of
from legato.errors import InvalidClientIDError, JMSError, JMSSecurityError

READ_BYTES = 1 << 18
ESTABLISHMENT_FAILED = "amqp:connection-establishment-failed"


Token = Callable[[], str]
"""Gives a bearer token."""


def token_source(token: str | Token | None, file: str | None) -> Token | None:
    """What gives a token for each login: the one that was given, or what is in a file then.

    Raises:
        NoSecretError: by what is returned: there is none.
    """
    if token is None and file is None:
        return None

    def read() -> str:
        try:
            if callable(token):
                return token()
            return token if token is not None else _content(Path(file or "")).strip()
        except Exception as error:
            raise NoSecretError(f"There is no token to log in with: {error}.", linked=error) from error

    return read


class Login(msgspec.Struct, frozen=True):
    """The login at a broker."""

    user: str | None
    password: str | None
    tls: ssl.SSLContext | None
    timeout_s: float
    named: tuple[Host, ...] = ()
    """The hosts of the connection's URI: only these may be told a password in the clear, if any may."""
    insecure_plain: bool = False
    """Whether a host of the URI may be told it over a network without TLS."""
    password_file: str | None = None
    """Has the password in its first line, if it is not given."""
    token: Token | None = None
    """Gives a bearer token for each login, which is used instead of a password."""

    def __repr__(self) -> str:
        """Without secrets: debuggers and tracebacks show it."""
        return f"Login(user={self.user!r}, tls={self.tls is not None})"

    def within(self, timeout_s_max: float) -> Login:
        """The same in less time, if that is less."""
        return self if timeout_s_max >= self.timeout_s else msgspec.structs.replace(self, timeout_s=timeout_s_max)


class NoSecretError(JMSSecurityError):
    """What is to be logged in with cannot be had now: no broker has refused anything."""


class RedirectedError(JMSError):
    """A broker that does not serve says who does; `hosts` are those of them that we can reach."""

    hosts: tuple[Host, ...] = ()


class Wire:
    """An established connection. All of it belongs to the I/O thread.

    Attributes:
        broker: what the broker calls itself.
        epoch: of the broker; 0 if it has none.
        properties: of its open.
        silent: whether the connection is over because nothing was heard for too long.
    """

    def __init__(self, host: Host, sock: socket.socket, engine: Engine, opened: Opened, events: list[Event]) -> None:
        self.host = host
        self.engine = engine
        self.broker = opened.container_id
        self.properties = opened.properties
        self.silent = False
        epoch = opened.properties.get(names.EPOCH, 0)
        self.epoch = int(epoch) if isinstance(epoch, int) else 0
        self.early_events = events
        """What came together with the broker's Open."""
        self._socket = sock
        self._unsent = memoryview(b"")
        self.ended = False
        """Whether the socket reached its end, or failed."""
        sock.setblocking(False)

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait for the socket to take more."""
        return bool(self._unsent)

    def receive(self) -> list[Event]:
        """Read what is there, and say what it means."""
        try:
            data = self._socket.recv(READ_BYTES)
            # TLS may hold more than the socket says.
            while isinstance(self._socket, ssl.SSLSocket) and (pending := self._socket.pending()):
                data += self._socket.recv(pending)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return []
        except OSError:
            data = b""
        if data:
            return self.engine.receive_data(data)
        self.ended = True
        return self.engine.receive_eof()

    def flush(self) -> None:
        """Write what the engine has to say, as far as the socket takes it."""
        try:
            while not self.ended:
                if not self._unsent:
                    data = self.engine.data_to_send()
                    if not data:
                        return
                    self._unsent = memoryview(data)
                sent = self._socket.send(self._unsent)
                self._unsent = self._unsent[sent:]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            self.ended = True

    def encode(self) -> None:
        """Have the engine put into bytes what it has to say: what it is told from now on comes after that."""
        while not self.ended and (data := self.engine.data_to_send()):
            self._unsent = memoryview(b"".join((self._unsent, data)))

    def tick(self, now_ms: int) -> int:
        """Heartbeats and time-outs; returns when to call again, 0 for never."""
        was_open = not self.engine.closed
        deadline_ms = self.engine.tick(now_ms)
        self.silent = self.silent or (was_open and self.engine.closed)
        return deadline_ms

    def close(self) -> None:
        """Drop the socket and free the engine."""
        self.drop()
        self.engine.free()

    def drop(self) -> None:
        """Give this process's file descriptor of the socket back; says nothing to the broker."""
        self.ended = True
        with contextlib.suppress(OSError):
            self._socket.close()


def establish(host: Host, login: Login, settings: Settings) -> Wire:
    """Connect, negotiate TLS and SASL, and open the AMQP connection.

    Raises:
        JMSSecurityError: the broker refused the login, or its certificate is not trusted.
        WrongProtocolError: the peer speaks another protocol, or TLS where none is asked for, or none where it is.
        InvalidClientIDError: the client id is in use.
        JMSError: the broker closed the connection with another reason.
        OSError: there is no broker, or it did not answer in time.
    """
    deadline = time.monotonic() + login.timeout_s
    with answered_within(login.timeout_s, NO_TCP):
        sock: socket.socket = socket.create_connection((host.name, host.port), timeout=login.timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if login.tls is not None:
            with answered_within(login.timeout_s, NO_HANDSHAKE):
                sock = _secure(sock, host, login.tls)
        leftover = _authenticate(sock, host, login, deadline)
        with answered_within(login.timeout_s, NO_OPEN):
            return _open(sock, host, settings, leftover, deadline)
    except ssl.SSLError as error:
        sock.close()
        raise tls_failed(host, error) from error
    except BaseException:
        sock.close()
        raise


def _secure(sock: socket.socket, host: Host, tls: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(sock, server_hostname=host.name)
    except ssl.SSLCertVerificationError as error:
        raise distrusted(host, error) from error
    except ConnectionError as error:
        raise UnheardError("it closed the connection during the TLS handshake") from error


def _authenticate(sock: socket.socket, host: Host, login: Login, deadline: float) -> bytes:
    sasl = SaslClient(
        login.user,
        _password(login),
        secret_may_be_shown=_may_show_secret(sock, host, login),
        token=login.token,
        certificate=login.tls is not None,
    )
    greeted = False
    while True:
        if data := sasl.data_to_send():
            sock.sendall(data)
        if sasl.done:
            return sasl.leftover
        if sasl.failed is not None:
            reason = f"{host} refused the login: {sasl.failed}."
            if sasl.failed_temporarily:
                raise JMSError(reason)
            if login.user is not None and sasl.failed.endswith("but ANONYMOUS"):
                raise JMSSecurityError(
                    f"{reason} It asks for no password: leave user and password out of the connection URI, or give it "
                    "users (legato user add)."
                )
            raise JMSSecurityError(f"{reason} {_remedy(host, login)}")
        with answered_within(login.timeout_s, NO_LOGIN if greeted else NO_GREETING):
            data = _read(sock, deadline) if greeted else _read_greeting(sock, deadline)
        greeted = True
        sasl.receive_data(data)


def _read_greeting(sock: socket.socket, deadline: float) -> bytes:
    try:
        data = _read(sock, deadline)
    except ConnectionError as error:
        raise UnheardError("it took the connection and closed it without a word") from error
    check_greeting(data)
    return data


def _password(login: Login) -> str | None:
    if login.password is not None or login.password_file is None:
        return login.password
    try:
        return _content(Path(login.password_file)).split("\n")[0].removesuffix("\r")
    except (OSError, ValueError) as error:
        raise NoSecretError(f"The password file cannot be read: {error}.", linked=error) from error


def _content(file: Path) -> str:
    """The text of a file that somebody may be writing just now."""
    text = file.read_text(encoding="utf-8")
    if not text:
        raise ValueError(f"{file} is empty")
    return text


def _may_show_secret(sock: socket.socket, host: Host, login: Login) -> bool:
    """Whether this host may be told the password itself, by a mechanism such as PLAIN.

    A host that nobody but another broker has named may so only if its certificate was checked. One of the URI's may so
    over TLS, on this machine, or if `allow_insecure_plain` says so.
    """
    if isinstance(sock, ssl.SSLSocket):
        return host in login.named or sock.context.verify_mode is ssl.CERT_REQUIRED
    if host not in login.named:
        return False
    return login.insecure_plain or ipaddress.ip_address(sock.getpeername()[0].partition("%")[0]).is_loopback


def _remedy(host: Host, login: Login) -> str:
    if login.token is not None:
        return "Check the token, and that it is for this broker; it goes only over TLS, or to this machine."
    if login.user is None:
        return "Give a user and password in the connection URI, or to the factory."
    if login.tls is None and host not in login.named:
        return f"{host} was named by another broker: use amqps:// to let such hosts have passwords."
    if login.tls is None:
        return "Check the user and password of the connection URI; use amqps:// if the broker speaks only PLAIN."
    return "Check the user and password of the connection URI."


def _open(sock: socket.socket, host: Host, settings: Settings, leftover: bytes, deadline: float) -> Wire:
    engine = Engine(server=False, settings=settings)
    try:
        engine.open()
        events = engine.receive_data(leftover) if leftover else []
        while True:
            sock.sendall(engine.data_to_send())
            closed = next((event for event in events if isinstance(event, Closed)), None)
            if closed is not None:
                raise refusal(host, closed, tls=isinstance(sock, ssl.SSLSocket))
            opened = next((event for event in events if isinstance(event, Opened)), None)
            # A broker that refuses says so in its Open, and why in the Close that follows (amqp.md A1.7).
            if opened is not None and not opened.properties.get(ESTABLISHMENT_FAILED):
                events.remove(opened)
                return Wire(host, sock, engine, opened, events)
            events = events + engine.receive_data(_read(sock, deadline))
    except BaseException:
        engine.free()
        raise


def refusal(host: Host, closed: Closed, *, tls: bool = False) -> JMSError:
    """Why a broker does not let us in."""
    if closed.condition == REDIRECT:
        redirected = RedirectedError(f"{host} does not serve", code=closed.condition)
        redirected.hosts = hosts_of(closed.info, tls=tls)
        return redirected
    if closed.condition == "amqp:invalid-field" and "container-id" in map(str, closed.info.values()):
        reason = closed.description.rstrip(".") or "It is in use by another connection"
        return InvalidClientIDError(
            f"{host} refused the client id: {reason}. Choose another one.", code=closed.condition
        )
    return error_of(closed.condition, closed.description, f"{host} refused the connection")


def _read(sock: socket.socket, deadline: float) -> bytes:
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError("no answer in time")
    sock.settimeout(remaining_s)
    data = sock.recv(READ_BYTES)
    if not data:
        raise ConnectionResetError("the broker closed the connection")
    return data
