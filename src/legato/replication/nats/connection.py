"""A connection to the servers of NATS that is always there or being made, in a thread with a loop of its own.

Each loss makes a new client: it begins with new credentials, and no request of before is sent late.
"""

import asyncio
import contextlib
import random
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg
from nats.errors import Error, InvalidUserCredentialsError, MaxPayloadError, NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nkeys import NkeysError

from legato.errors import LogAccessError, LogUnavailableError
from legato.quoting import quoted
from legato.replication.nats.answers import is_unavailable
from legato.replication.nats.settings import NatsSettings

CONNECT_S = 2.0
NEXT_S = 0.25
"""If a server has not answered by then another one is tried beside it: a machine that is gone refuses nothing."""
PING_INTERVAL_S = 1
PINGS_UNANSWERED_MAX = 2
"""A server that is stopped, or behind a cut network, is left after three seconds."""
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
MESSAGE_BYTES_MIN = 16 << 10
"""Of the largest message that a server takes. A record is split into no more than `envelopes.PARTS_MAX`."""
DENIALS_MAX = 100
"""Some are of subjects with random names."""
LEADERLESS_S = 5.0
"""A server by which no leader is reached for so long is left for another: it may be cut off from the rest. Elections
take as long, and to connect anew meanwhile costs little: a machine that is gone delays it by `NEXT_S`."""
UNRELATED_S = 2 * LEADERLESS_S
"""Failures so far apart are not of one trouble."""
CLOSE_S = 5.0
CLIENT_CLOSE_S = 0.3

_REFUSALS = ("authorization", "authentication", "permissions", "account")
_OF_CREDENTIALS = (InvalidUserCredentialsError, NkeysError, ValueError)
_OF_STRANGE_ANSWERS = (LookupError, TypeError, ValueError, AttributeError)
_T = TypeVar("_T")


class _SmallMessages(Exception):
    """The server takes none that are large enough."""


class _NoTls(Error):
    """A server would go on without the TLS that it was asked with."""


class _Client(Client):
    """A client that tells its login to nobody without the TLS that it was given.

    NATS' own goes on in plain text with a server, or somebody between, that does not ask for TLS.
    """

    def _connect_command(self) -> bytes:
        if self.options.get("tls") is not None and not self._server_info.get("tls_required"):
            raise _NoTls
        return super()._connect_command()


class _Connected(NamedTuple):
    address: str
    client: Client
    closed: asyncio.Event


class Connection:
    """The servers, for calls from any thread.

    Args:
        settings: which servers, and how to log in.
    """

    def __init__(self, settings: NatsSettings) -> None:
        self.settings = settings
        self._addresses = settings.addresses()
        self._tls = settings.tls()
        self._client: Client | None = None
        self._trouble: LogUnavailableError = LogUnavailableError(f"no server of the log answers: {self._named()}")
        self._closing = False
        self._random = random.Random()
        self._loop = asyncio.new_event_loop()
        self._changed: asyncio.Condition
        self._passes = 0
        self._said: dict[str, LogAccessError | str] = {}
        """What each server said, or why it said nothing, in this pass over all of them."""
        self._denied: dict[str, LogAccessError] = {}
        """What the server that is connected does not let this login do, by its words."""
        self._leaderless_since_s: float | None = None
        """Since when no leader is reached by the present client, by the loop's clock; None if one is."""
        self._missed_s = 0.0
        """When none was reached last."""
        self._connected_to = self._left = ""
        """The address of the present client, and that of the one that was left."""
        self._asking: set[asyncio.Future[Msg]] = set()
        self._leaving: set[asyncio.Future[None]] = set()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="legato-log", daemon=True)
        self._thread.start()
        ready.wait()

    def call(self, work: Callable[[], Coroutine[Any, Any, _T]], timeout_s: float) -> _T:
        """The result of a coroutine in the connection's loop.

        Raises:
            LogUnavailableError: no answer in time, or none of JetStream's.
        """
        if self._closing:
            raise LogUnavailableError("the log was left")
        future = asyncio.run_coroutine_threadsafe(_within(work(), timeout_s), self._loop)
        try:
            return future.result(timeout_s + CLOSE_S)
        except (FutureTimeoutError, CancelledError):
            future.cancel()
            raise self.unanswered() from None
        except _OF_STRANGE_ANSWERS as error:  # as where another client of the account answers requests, too
            raise LogUnavailableError(
                f"the log's servers answered something that is not JetStream's: {error!r}"
            ) from error

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        """Let a coroutine run in the loop; what is returned ends it."""
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)

        def end() -> None:
            future.cancel()

        return end

    def soon(self, call: Callable[[], None]) -> None:
        """Let the loop call a function."""
        with contextlib.suppress(RuntimeError):  # the log was left
            self._loop.call_soon_threadsafe(call)

    def wait_for_first(self, timeout_s: float, *, patient: bool = True) -> None:
        """Wait until a server is connected.

        Args:
            timeout_s: how long.
            patient: wait on if none of them answered; else that is said as soon as all were asked once.

        Raises:
            LogAccessError: a server refuses the credentials.
            LogUnavailableError: none answered; it says why of each.
        """

        def is_known() -> bool:
            hopeless = not patient or isinstance(self._trouble, LogAccessError)
            return self._client is not None or (self._passes > 0 and hopeless)

        async def first() -> None:
            async with self._changed:
                await self._changed.wait_for(is_known)
            if self._client is None:
                raise self._trouble

        self.call(first, timeout_s)

    async def client(self) -> Client:
        """The client that is connected; waits for one."""
        if self._client is not None:
            return self._client
        async with self._changed:
            await self._changed.wait_for(lambda: self._client is not None)
            assert self._client is not None
            return self._client

    async def lost(self, client: Client) -> None:
        """Wait until a client is no longer the one that is connected."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._client is not client)

    async def request(
        self, subject: str, payload: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """The answer to a request.

        Raises:
            LogUnavailableError: there was none.
        """
        client = await self.client()
        asking = asyncio.ensure_future(client.request(subject, payload, timeout=timeout_s, headers=headers))
        self._asking.add(asking)
        asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        try:
            # No time-out cancels it: the client subscribes to answers with its first request, or is deaf ever after.
            answer = await asyncio.shield(asking)
            if is_unavailable(answer.data):
                self._miss_leader(client)
            self._denied = {said: error for said, error in self._denied.items() if not _is_of(subject, said)}
            return answer
        except asyncio.CancelledError:
            if client is self._client:  # else the connection was lost, and nobody will answer
                self._refuse_denied(subject)
                self._miss_leader(client)
                raise
            raise self.unanswered() from None
        except NoRespondersError:
            self._miss_leader(client)
            raise LogUnavailableError(
                f"nobody leads the log {self.settings.group} now: an election, or no quorum"
            ) from None
        except MaxPayloadError:
            self._leave(client)
            raise LogUnavailableError(
                f"a server of the log takes messages of at most {client.max_payload} bytes, others took more: "
                "set max_payload alike on all"
            ) from None
        except (TimeoutError, Error, OSError):
            self._refuse_denied(subject)
            self._miss_leader(client)
            raise self.unanswered() from None
        finally:
            self._asking.discard(asking)

    def _refuse_denied(self, subject: str) -> None:
        """Raise what a server said of a request that was not answered, if it said that it may not be made."""
        for said, error in self._denied.items():
            if _is_of(subject, said):
                raise type(error)(str(error))

    def reach(self, *, leader: bool) -> None:
        """Note whether the log's leader was reached by the present client: one that was deposed may answer, too."""
        if leader:
            self._leaderless_since_s = None
        elif self._client is not None:
            self._miss_leader(self._client)

    def _miss_leader(self, client: Client) -> None:
        """Leave a server by which no leader was reached for too long."""
        now_s = self._loop.time()
        if client is not self._client:
            return
        missed_s, self._missed_s = self._missed_s, now_s
        if self._leaderless_since_s is None or now_s - missed_s > UNRELATED_S:
            self._leaderless_since_s = now_s
        elif now_s - self._leaderless_since_s > LEADERLESS_S:
            self._leaderless_since_s = None
            self._leave(client)

    def _leave(self, client: Client) -> None:
        """Have a client closed, so that another server is looked for, and this one tried last."""
        self._left = self._connected_to
        self._close_soon(client)

    def _close_soon(self, client: Client) -> None:
        leaving = asyncio.ensure_future(_close(client))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def gather(self, subject: str, wanted: int, timeout_s: float, minority_s: float) -> list[Msg] | None:
        """The answers of several servers to one request; fewer than wanted when the time is over.

        None if nobody serves the subject.

        Args:
            subject: of the request.
            wanted: how many servers are to answer.
            timeout_s: how long they may take.
            minority_s: how long those that are left may take once more than half have answered.
        """
        client = await self.client()
        inbox = client.new_inbox()
        answers: list[Msg] = []
        try:
            subscription = await client.subscribe(inbox)
            try:
                await client.publish(subject, reply=inbox)
                with contextlib.suppress(NatsTimeoutError, asyncio.TimeoutError):
                    until_s = self._loop.time() + timeout_s
                    while len(answers) < wanted and (left_s := until_s - self._loop.time()) > 0:
                        answer = await subscription.next_msg(timeout=left_s)
                        if not answer.data:
                            return None
                        answers.append(answer)
                        if 2 * len(answers) > wanted:
                            until_s = min(until_s, self._loop.time() + minority_s)
            finally:  # The client and the server keep it until then.
                await subscription.unsubscribe()
        except (Error, OSError):
            raise self.unanswered() from None
        return answers

    def message_bytes_max(self) -> int:
        """What the connected server takes as one message."""
        client = self._client
        return 1 << 20 if client is None else client.max_payload

    def unanswered(self) -> LogUnavailableError:
        """The error that says why nothing was answered."""
        if self._client is not None:
            return LogUnavailableError(
                f"the log {self.settings.group} did not answer in time: an election, no quorum, or a slow network"
            )
        return type(self._trouble)(str(self._trouble))

    def close(self) -> None:
        """Leave the servers, and end the thread."""
        if self._closing:
            return
        self._closing = True
        self._loop.call_soon_threadsafe(self._supervisor.cancel)
        self._thread.join(CLOSE_S)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._changed = asyncio.Condition()
        self._supervisor = self._loop.create_task(self._stay_connected())
        self._loop.call_soon(ready.set)
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._supervisor)
        rest = asyncio.all_tasks(self._loop)
        for task in rest:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _stay_connected(self) -> None:
        client: Client | None = None
        try:
            while True:
                client, closed = await self._connect()
                await self._set_client(client)
                await _until_closed(client, closed)
                await self._set_client(None)
        finally:
            if client is not None:
                await _close(client)

    async def _set_client(self, client: Client | None) -> None:
        async with self._changed:
            self._client = client
            self._leaderless_since_s = None
            self._changed.notify_all()
        if client is None:
            self._denied.clear()
        for asking in list(self._asking):
            asking.cancel()

    async def _connect(self) -> tuple[Client, asyncio.Event]:
        """A client of one of the servers, whichever is there first, and what is set when it is closed."""
        attempt = 0
        while True:
            self._said = {}
            others = [address for address in self._addresses if address != self._left]
            self._random.shuffle(others)
            for addresses in (others, [self._left] if self._left else []):
                if found := await self._first_of(addresses):
                    self._connected_to, self._left = found.address, ""
                    return found.client, found.closed
            self._trouble = self._summary()
            self._passes += 1
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)] * self._random.uniform(0.5, 1.0))
            attempt += 1

    async def _first_of(self, addresses: list[str]) -> _Connected | None:
        """The first server that lets a client in; each is tried `NEXT_S` after the one before, or when that failed."""
        left, trying = [*addresses], set[asyncio.Task[_Connected | None]]()
        found: _Connected | None = None
        try:
            while found is None and (left or trying):
                if left:
                    trying.add(asyncio.ensure_future(self._try(left.pop(0))))
                done, trying = await asyncio.wait(
                    trying, timeout=NEXT_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for connected in filter(None, [task.result() for task in done]):
                    if found is None:
                        found = connected
                    else:
                        self._close_soon(connected.client)
        finally:
            for task in trying:
                task.add_done_callback(self._close_late)
                task.cancel()
        return found

    def _close_late(self, task: asyncio.Task[_Connected | None]) -> None:
        """Python 3.11 takes what has come rather than that it was cancelled."""
        if not task.cancelled() and (late := task.result()) is not None:
            self._close_soon(late.client)

    async def _try(self, address: str) -> _Connected | None:
        connected = _Connected(address, _Client(), asyncio.Event())
        try:
            await asyncio.wait_for(self._connect_to(connected.client, address, connected.closed), 2 * CONNECT_S)
        except BaseException as error:  # Whatever it is, the log is nobody's without this thread.
            self._close_soon(connected.client)
            if not isinstance(error, Exception):
                raise
            if address not in self._said:  # else why was told before
                self._said[address] = self._explained(address, error)
            return None
        return connected

    async def _connect_to(self, client: Client, address: str, closed: asyncio.Event) -> None:
        settings = self.settings

        async def on_closed() -> None:
            closed.set()

        async def on_error(error: Exception) -> None:
            self._said[address] = said = self._explained(address, error)
            if isinstance(said, LogAccessError):
                self._trouble = said
                if len(self._denied) < DENIALS_MAX:
                    self._denied[str(error).lower()] = said

        password, token = settings.secrets()
        await client.connect(
            servers=address,
            name=f"legato {settings.group}",
            user=settings.user,
            password=password,
            token=token,
            user_credentials=None if settings.credentials_file is None else _credentials(settings.credentials_file),
            tls=self._tls,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=int(CONNECT_S),
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_UNANSWERED_MAX,
            closed_cb=on_closed,
            error_cb=on_error,
            pending_size=0,
        )
        if client.max_payload < MESSAGE_BYTES_MIN:
            raise _SmallMessages(
                f"takes messages of at most {client.max_payload} bytes: set max_payload, at least {MESSAGE_BYTES_MIN}"
            )

    def _summary(self) -> LogUnavailableError:
        """Why none of the servers is connected, each of which was asked."""
        refusal = next((said for said in self._said.values() if isinstance(said, LogAccessError)), None)
        if refusal is not None:
            return refusal
        each = ", ".join(f"{urlsplit(address).netloc} ({self._said[address]})" for address in self._addresses)
        return LogUnavailableError(f"no server of the log answers: {each}")

    def _explained(self, address: str, error: BaseException) -> LogAccessError | str:
        """What an error of the client means: a sentence about access, or words about the server."""
        if isinstance(error, LogAccessError):
            return error
        if isinstance(error, _SmallMessages):
            return str(error)
        host = urlsplit(address).netloc
        text = str(error).removeprefix("nats: ").strip("' ")
        if isinstance(error, _NoTls):
            return LogAccessError(
                f"the log's server {host} does not require TLS, which is asked for by tls:// or a file of authorities: "
                "it was told nothing"
            )
        if isinstance(error, ssl.SSLCertVerificationError):
            return LogAccessError(
                f"the certificate of the log's server {host} cannot be verified: {error.verify_message}"
            )
        if isinstance(error, ssl.SSLError):
            return LogAccessError(
                f"the log's server {host} does not agree on TLS: {error.reason or 'the handshake failed'}"
            )
        if any(word in text.lower() for word in _REFUSALS):
            expired = " (it may have expired)" if self.settings.credentials_file or "expired" in text.lower() else ""
            return LogAccessError(f"the log's server {host} refuses {self._login()}{expired}: {quoted(text)}")
        if self.settings.credentials_file is not None and isinstance(error, _OF_CREDENTIALS):
            return LogAccessError(
                f"{self._login()} cannot be used: a JWT and its key, as nsc writes them, are expected"
            )
        if isinstance(error, ConnectionRefusedError):
            return "refuses connections"
        if isinstance(error, socket.gaierror):
            return "its name is not known"
        if isinstance(error, (TimeoutError, NatsTimeoutError)):
            return "does not answer"
        if not isinstance(error, (Error, NkeysError, OSError, ValueError)):
            return f"an unforeseen error: {error!r}"
        return error.strerror.lower() if isinstance(error, OSError) and error.strerror else "does not answer"

    def _login(self) -> str:
        settings = self.settings
        if settings.credentials_file is not None:
            return f"the credentials in {settings.credentials_file}"
        if settings.user is not None:
            return f"the user {settings.user}"
        has_token = settings.token is not None or settings.token_file is not None
        return "the token" if has_token else "a login without user, token or credentials"

    def _named(self) -> str:
        return ", ".join(urlsplit(address).netloc for address in self._addresses)


def _credentials(file: Path) -> RawCredentials:
    """What is in a file with credentials. The client would look for ever for what is not in it."""
    text = file.read_text(encoding="utf-8")
    if not all(f"BEGIN {part}-----\n" in text for part in ("NATS USER JWT", "USER NKEY SEED")):
        raise ValueError("no credentials")
    return RawCredentials(text)


def _is_of(subject: str, said: str) -> bool:
    """Whether a server says something of a subject."""
    return f'"{subject.lower()}"' in said


async def _until_closed(client: Client, closed: asyncio.Event) -> None:
    """Wait until a client is closed.

    It is looked at as well: a client whose last bytes cannot be written, as a server leaves it, calls nobody.
    """
    while not client.is_closed:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PING_INTERVAL_S):
                await closed.wait()


async def _close(client: Client) -> None:
    """Close a client, which hangs if its handshake failed."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(client.close(), CLIENT_CLOSE_S)


async def _within(work: Awaitable[_T], timeout_s: float) -> _T:
    async with asyncio.timeout(timeout_s):  # no task of its own, as `wait_for` has
        return await work
