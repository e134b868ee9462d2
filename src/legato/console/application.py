"""The console as an ASGI application: its routes, and what holds for all of its pages."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit
from weakref import WeakValueDictionary

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from legato.console.broker_link import BrokerLink
from legato.console.brokers import Brokers
from legato.console.ledger_view import Ledger
from legato.console.pages import connections, dead_letters, flows, members, queues, stories
from legato.console.rendering import CONTENT_TYPES, StaticFiles, make_environment
from legato.console.view import Action, Asked, Values, View
from legato.console.visits import LEVELS, Visit, Visits
from legato.errors import JMSError, JMSSecurityError
from legato.quoting import quoted
from legato.server.identity.back_off import BackOff

log = logging.getLogger("legato.console")
T = TypeVar("T")

LIVE_EVERY_S = 2.0
FORM_BYTES_MAX = 4 << 20
FORMS_BYTES_MAX = 2 * FORM_BYTES_MAX
"""Of all forms of one visit that are read at the same time."""
LOGIN_BYTES_MAX = 16 << 10
THREADS_OF_USER_MAX = 16
"""Pages and forms of one user that are worked on at the same time, of some 40 in all; some take long, as a look for
messages that are rare in a long queue."""
STREAMS_MAX = 32
"""Pages of one visit that are kept up to date."""
ASK_AGAIN_AFTER_S = 1.0
"""That a login is needed, or that no broker can be reached, is believed for so long: who has no visit may ask as often
as it likes."""
LOGINS_MAX = 4
"""Attempted at the same time."""
LOGINS_WAITING_MAX = 32
"""Attempted or waiting for that."""
WRONG_MAX, WRONG_IN_ALL_MAX, WRONG_FOR_S = 5, 6, 61.0
"""The broker is asked about so many wrong passwords of a user within that time: of one browser, and of all. With those
that are on their way that is less than what it allows by default (`auth.failed_logins`): it sees only the console's
address, and would listen to nobody on this machine any more."""
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
VIEWS: tuple[View, ...] = (
    *queues.VIEWS,
    *dead_letters.VIEWS,
    *connections.VIEWS,
    *members.VIEWS,
    *stories.VIEWS,
    *flows.VIEWS,
)
ACTIONS: tuple[Action, ...] = (*queues.ACTIONS, *dead_letters.ACTIONS, *members.ACTIONS)
NAVIGATION = (
    ("/queues", "Queues", "q"),
    ("/dead-letters", "Dead letters", "d"),
    ("/connections", "Connections", "c"),
    ("/members", "Members", "m"),
    ("/story", "Story", "s"),
    ("/flows", "Flows", "f"),
)


@dataclass
class Settings:
    """How a console is run.

    Attributes:
        brokers: where they are; a login in their URL is everybody's who knows the `token`.
        token: that the first address must have; empty: none is needed.
        hosts: names by which browsers may ask, without ports; empty: any.
        cookie: the name of its cookie, different for each port of a machine.
        tls: whether browsers come by HTTPS.
        ledger, store: directories, where they are at hand.
    """

    brokers: Brokers
    token: str = ""
    hosts: frozenset[str] = frozenset()
    cookie: str = "legato_console"
    tls: bool = False
    ledger: Path | None = None
    store: Path | None = None
    closing: asyncio.Event = field(default_factory=asyncio.Event)


class _LoginRefused(Exception):
    """A login that was not right, or is not looked at."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


class Console:
    """Answers requests.

    Args:
        settings: how it is run.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._static = StaticFiles()
        self._templates = make_environment(self._static)
        for name in self._templates.list_templates():
            self._templates.get_template(name)  # Compiled now: the first page comes as soon as the others.
        self._visits = Visits(lambda user, password: BrokerLink(settings.brokers, user, password))
        self._ledger = Ledger(settings.ledger) if settings.ledger is not None else None
        self._logins = asyncio.Semaphore(LOGINS_MAX)
        self._logins_waiting = 0
        self._beginning = asyncio.Lock()
        self._not_begun: tuple[float, JMSError] | None = None
        """When and why there was no visit without a login."""
        self._streams: Counter[Visit] = Counter()
        self._threads: WeakValueDictionary[tuple[bool, str], asyncio.Semaphore] = WeakValueDictionary()
        """What a user's visits wait for."""
        self._forms: Counter[Visit] = Counter()
        """Bytes of forms that are being read."""
        self._back_off = BackOff(0.0, WRONG_MAX, WRONG_FOR_S)
        self._back_off_in_all = BackOff(0.0, WRONG_IN_ALL_MAX, WRONG_FOR_S)

    def application(self) -> ASGIApp:
        """As a server runs it."""
        routes = [
            Route("/", lambda request: RedirectResponse("/queues", 303)),
            Route("/static/{name}", self._file),
            Route("/login", self._show_login, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
        ]
        for view in VIEWS:
            routes.append(Route(view.path, self._page(view), methods=["GET"]))
            if view.live:
                routes.append(Route(f"/live{view.path}", self._live(view), methods=["GET"]))
        routes += [Route(action.path, self._act(action), methods=["POST"]) for action in ACTIONS]
        handlers = {404: self._not_found, 500: self._failed}
        inner = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)
        return Guard(inner, self._settings)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(self._visits.close)

    # -- who it is ---------------------------------------------------------------------------------------------

    async def _visit(self, request: Request) -> tuple[Visit | None, str]:
        """The visit that a request belongs to, and the secret that its browser is to keep if it is a new one.

        Raises:
            JMSError: no broker can be reached.
        """
        visit = await run_in_threadpool(self._visits.find, request.cookies.get(self._settings.cookie, ""))
        if visit is not None:
            return visit, ""
        if self._settings.token and not hmac.compare_digest(
            request.query_params.get("token", "").encode(), self._settings.token.encode()
        ):
            return None, ""
        try:
            secret, visit = await self._begin_common()
        except JMSSecurityError:
            if self._settings.token:
                raise
            return None, ""
        return visit, secret

    async def _begin_common(self) -> tuple[str, Visit]:
        """A visit without a login of its own. Brokers are asked for one at a time, whoever comes meanwhile.

        Raises:
            JMSError: as `Visits.begin_common`.
        """
        async with self._beginning:
            if self._not_begun is not None and time.monotonic() - self._not_begun[0] < ASK_AGAIN_AFTER_S:
                raise self._not_begun[1].with_traceback(None)
            try:
                begun = await run_in_threadpool(self._visits.begin_common)
            except JMSError as error:
                self._not_begun = time.monotonic(), error
                raise
            self._not_begun = None
            return begun

    def _keep(self, response: Response, secret: str) -> None:
        response.set_cookie(
            self._settings.cookie, secret, httponly=True, samesite="strict", secure=self._settings.tls, path="/"
        )

    async def _show_login(self, request: Request) -> Response:
        return self._login_page("")

    def _login_page(self, why: str, status: int = 200) -> Response:
        return self._html("login.html", {"why": why, "by_address": bool(self._settings.token)}, status)

    async def _log_in(self, request: Request) -> Response:
        values, _ = await read_form(request, LOGIN_BYTES_MAX)
        user = values.get("user", "").strip()
        if self._settings.token or not user:
            return self._login_page("Give a user and a password." if not self._settings.token else "", 401)
        if self._logins_waiting >= LOGINS_WAITING_MAX:
            return self._login_page("Too many logins wait to be looked at. Try again in a while.", 503)
        self._logins_waiting += 1
        try:
            async with self._logins:
                secret = await self._begin(request.client.host if request.client else "", user, values)
        except _LoginRefused as refused:
            return self._login_page(str(refused), refused.status)
        finally:
            self._logins_waiting -= 1
        old = request.cookies.get(self._settings.cookie, "")
        await run_in_threadpool(self._visits.end, old)
        response = RedirectResponse("/queues", 303)
        self._keep(response, secret)
        return response

    async def _begin(self, address: str, user: str, values: Mapping[str, str]) -> str:
        """Have the broker look at a login from a browser's address; returns the secret of its visit.

        Raises:
            _LoginRefused: it was not right, or is not looked at.
        """
        now_s = time.monotonic()
        if self._back_off.is_blocked(address, user, now_s) or self._back_off_in_all.is_blocked("", user, now_s):
            raise _LoginRefused("There were too many wrong passwords. Try again in a minute.", 429)
        try:
            secret, _visit = await run_in_threadpool(self._visits.begin, user, values.get("password", ""))
        except JMSSecurityError as error:
            if isinstance(error.linked, ssl.SSLError):
                # No password was sent.
                raise _LoginRefused(str(error), 503) from None
            now_s = time.monotonic()
            self._back_off.fail(address, user, now_s)
            self._back_off_in_all.fail("", user, now_s)
            raise _LoginRefused("The broker knows no such user with this password.", 401) from None
        except JMSError as error:
            raise _LoginRefused(str(error), 403) from None
        now_s = time.monotonic()
        self._back_off.succeed(address, user, now_s)
        self._back_off_in_all.succeed("", user, now_s)
        return secret

    async def _log_out(self, request: Request) -> Response:
        secret = request.cookies.get(self._settings.cookie, "")
        visit = await run_in_threadpool(self._visits.find, secret)
        values, _ = await read_form(request, LOGIN_BYTES_MAX)
        if visit is not None and hmac.compare_digest(values.get("csrf", "").encode(), visit.csrf.encode()):
            await run_in_threadpool(self._visits.end, secret)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self._settings.cookie, path="/")
        return response

    # -- pages ---------------------------------------------------------------------------------------------------

    def _page(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            try:
                visit, secret = await self._visit(request)
            except JMSError as error:
                return self._html("trouble.html", {"why": str(error)}, 503)
            if visit is None:
                return RedirectResponse("/login", 303)
            if "token" in request.query_params:
                response: Response = RedirectResponse(request.url.path, 303)
            else:
                response = await self._work(visit, self._render_page, view, self._asked(visit, request), request)
            if secret:
                self._keep(response, secret)
            return response

        return page

    async def _work(self, visit: Visit, work: Callable[..., T], *arguments: Any) -> T:
        """Have a thread do what a visit asked for; nobody's visits have all threads."""
        threads = self._threads.get(visit.whose)
        if threads is None:
            threads = self._threads[visit.whose] = asyncio.Semaphore(THREADS_OF_USER_MAX)
        async with threads:
            return await run_in_threadpool(work, *arguments)

    def _asked(self, visit: Visit, request: Request) -> Asked:
        lists: dict[str, list[str]] = {}
        for name, value in request.query_params.multi_items():
            lists.setdefault(name, []).append(value)
        values = Values({name: given[0] for name, given in lists.items()})
        return Asked(visit, values, lists, self._ledger, self._settings.store)

    def _render_page(self, view: View, asked: Asked, request: Request) -> Response:
        content, status = self._render(view, asked)
        visit = asked.visit
        around: dict[str, Any] = {}
        if status == 200:
            try:
                around = view.around(asked)
            except JMSError as error:
                visit.say(str(error), good=False)
                around = {"failed": True}
        return self._html(
            view.page,
            {
                "title": view.title,
                "path": view.path,
                "content": content,
                "live": f"/live{request.url.path}{'?' + request.url.query if request.url.query else ''}"
                if view.live
                else "",
                "navigation": NAVIGATION,
                "visit": visit,
                "values": asked.values,
                "level": visit.broker.level,
                "may": visit.broker.may,
                "said": visit.heard(),
                "failed": status != 200,
                **around,
            },
            status,
        )

    def _render(self, view: View, asked: Asked) -> tuple[str, int]:
        """What a page shows, and its status; a sentence if it cannot."""
        asked.visit.broker.renew()
        if not asked.visit.broker.may(view.needs):
            return self._trouble(f"This page needs a role with management = {view.needs!r}."), 403
        try:
            context = view.context(asked)
            template = self._templates.get_template(view.template)
            common = {"visit": asked.visit, "may": asked.visit.broker.may, "values": asked.values}
            return str(template.render(common | context)), 200
        except JMSError as error:
            return self._trouble(str(error)), 502

    def _trouble(self, why: str) -> str:
        return str(self._templates.get_template("_trouble.html").render(why=why))

    def _html(self, template: str, context: Mapping[str, Any], status: int = 200) -> Response:
        return Response(self._templates.get_template(template).render(context), status, media_type="text/html")

    def _live(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def stream(request: Request) -> Response:
            visit = await run_in_threadpool(self._visits.find, request.cookies.get(self._settings.cookie, ""))
            if visit is None:
                return Response("", 204)  # An EventSource asks no more then.
            if self._streams[visit] >= STREAMS_MAX:
                return Response("", 503)
            return StreamingResponse(
                self._events(view, self._asked(visit, request), request), media_type="text/event-stream"
            )

        return stream

    async def _events(self, view: View, asked: Asked, request: Request) -> AsyncIterator[str]:
        """What a page shows, again and again, when it has changed."""
        secret = request.cookies.get(self._settings.cookie, "")
        shown = ""
        closing = self._settings.closing
        if self._streams[asked.visit] >= STREAMS_MAX:
            return
        self._streams[asked.visit] += 1
        try:
            while not closing.is_set():
                visit = await run_in_threadpool(self._visits.find, secret)
                if visit is not asked.visit:
                    return
                content, _status = await self._work(asked.visit, self._render, view, asked)
                if content != shown:
                    shown = content
                    yield "event: view\n" + "".join(f"data: {line}\n" for line in content.splitlines()) + "\n"
                else:
                    yield ": nothing new\n\n"
                try:
                    await asyncio.wait_for(closing.wait(), LIVE_EVERY_S)
                except TimeoutError:
                    continue
        finally:
            self._streams[asked.visit] -= 1
            if not self._streams[asked.visit]:
                del self._streams[asked.visit]

    def _act(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def act(request: Request) -> Response:
            visit = await run_in_threadpool(self._visits.find, request.cookies.get(self._settings.cookie, ""))
            if visit is None:
                return RedirectResponse("/login", 303)
            values, lists = await self._read_form(visit, request)
            if not hmac.compare_digest(values.get("csrf", "").encode(), visit.csrf.encode()):
                return self._html(
                    "trouble.html", {"why": "This form is not from this visit: load its page again."}, 403
                )
            asked = Asked(visit, values, lists, self._ledger, self._settings.store)
            return RedirectResponse(await self._work(visit, self._perform, action, asked), 303)

        return act

    async def _read_form(self, visit: Visit, request: Request) -> tuple[dict[str, str], dict[str, list[str]]]:
        """A form of a visit; nothing of it if the visit sends too much at once."""
        read = 0

        def take(count: int) -> bool:
            nonlocal read
            read += count
            self._forms[visit] += count
            return self._forms[visit] <= FORMS_BYTES_MAX

        try:
            return await read_form(request, FORM_BYTES_MAX, take)
        finally:
            self._forms[visit] -= read
            if not self._forms[visit]:
                del self._forms[visit]

    def _perform(self, action: Action, asked: Asked) -> str:
        visit = asked.visit
        if not visit.broker.may(action.needs):
            visit.say(f"This needs a role with management = {action.needs!r}.", good=False)
            return "/queues"
        try:
            return action.perform(asked)
        except JMSError as error:
            visit.say(str(error), good=False)
            back = asked.text("back")
            return back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/queues"
        finally:
            visit.broker.recent.forget()

    async def _not_found(self, request: Request, error: Exception) -> Response:
        return self._html("trouble.html", {"why": "There is no such page."}, 404)

    async def _failed(self, request: Request, error: Exception) -> Response:
        log.error("! %s could not be shown", quoted(request.url.path), exc_info=error)
        return self._html("trouble.html", {"why": "This page failed; the console's log says why."}, 500)

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        data = self._static.files.get(name)
        if data is None:
            return Response("", 404)
        content_type = CONTENT_TYPES.get(Path(name).suffix, "application/octet-stream")
        return Response(data, headers={"Content-Type": content_type, "Cache-Control": "max-age=31536000, immutable"})


class Guard:
    """Refuses what no page of the console asks for, and adds to each answer what browsers need to know.

    A request must name the console by a name of its own: a page of a stranger whose name leads here (DNS rebinding)
    does not. What changes something must come from one of the console's own pages.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                if "Cache-Control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            refused = self._refusal(scope["method"], headers)
        except ValueError:  # Such as an address with half of its brackets.
            refused = "This names neither the console nor a page."
        if refused:
            await Response(refused + "\n", 403, media_type="text/plain")(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Mapping[str, str]) -> str:
        """Why a request is not answered; empty if it is.

        Raises:
            ValueError: it names a host that none can have.
        """
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname
        if self._settings.hosts and name not in self._settings.hosts:
            return "The console does not answer under this name; see legato console --help, --host."
        if method in ("GET", "HEAD"):
            # Pictures, scripts and frames of a stranger's page come without the cookie: each would begin a visit.
            is_page = headers.get("sec-fetch-mode", "navigate") == "navigate"
            is_page = is_page and headers.get("sec-fetch-dest", "document") == "document"
            is_own = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
            return "" if is_page or is_own else "This comes from a page of somebody else."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return "This comes from a page of somebody else."
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "This comes from a page of somebody else."
        return ""


async def read_form(
    request: Request, bytes_max: int, take: Callable[[int], bool] = lambda count: True
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The values of a form: the first of each name, and all; none if it is too long.

    Args:
        take: is told how many bytes came, and whether they may be kept.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if not take(len(chunk)) or len(body) > bytes_max:
            return {}, {}
    try:
        lists = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=10_000)
    except ValueError:
        return {}, {}
    return Values({name: given[0] for name, given in lists.items()}), lists


def new_token() -> str:
    """A secret for the console's first address."""
    return secrets.token_urlsafe(24)


__all__ = ["LEVELS", "Console", "Settings", "new_token"]
