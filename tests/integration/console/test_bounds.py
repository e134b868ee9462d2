"""What one peer can hold of a console, with a login or without: connections, threads, visits, and the brokers' time."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from legato.administration import exact_json
from legato.client import BytesMessage, Connection, ConnectionFactory, Queue, TextMessage
from legato.console import application, dead_letter_index, ledger_view, message_view, peers, visits
from legato.console.broker_link import BrokerLink
from legato.console.brokers import Brokers
from legato.console.dead_letter_index import Indexes
from legato.console.ledger_view import Ledger
from legato.console.pages import flows
from legato.console.peers import Listening
from legato.console.rendering import StaticFiles
from legato.console.serve import Options, prepare
from legato.console.visits import Visit, Visits
from legato.core.facts import EpochBegan, LogRecord, MessageStored, QueueCreated
from legato.errors import JMSError
from legato.spark.ledger.segments import write_segment
from legato.store.segment_locks import alone_with
from tests.integration.console.test_pages import eventually
from tests.integration.console.test_roles import bury, log_in, running, visitor
from tests.integration.console.visitor import WAIT_S, Visitor, console, visitor_of
from tests.support.server import Server

__all__ = ["running", "visitor"]


@contextmanager
def listening() -> Iterator[tuple[Listening, int]]:
    """A console that has no broker, by its socket and port."""
    started = threading.Event()
    server, found = prepare(Options("amqp://localhost:1"), lambda address: started.set())
    assert isinstance(found, Listening)
    with found:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [found]})
        thread.start()
        try:
            assert started.wait(WAIT_S)
            yield found, found.getsockname()[1]
        finally:
            server.end()
            thread.join(WAIT_S)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def ends(peer: socket.socket) -> bool:
    """Whether a connection is ended; fails if that takes too long."""
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


# -- without a login -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"GET /login HTTP/1.1\r\nX-Y: ", b"POST /login HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_request_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """Such connections were kept for ever: a thousand of them, and nobody could reach the console."""
    monkeypatch.setattr(peers, "REQUEST_S", 0.2)
    with listening() as (_, port), connect(port) as peer:
        peer.sendall(said)
        assert ends(peer)


def test_a_second_request_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "REQUEST_S", 0.2)
    with listening() as (_, port), connect(port) as peer:
        peer.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\nGET /")
        assert ends(peer)


def test_a_form_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "BODY_S", 0.2)
    with listening() as (_, port), connect(port) as peer:
        peer.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nuser=")
        assert ends(peer)


def test_who_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "UNREAD_S", 0.2)
    with listening() as (found, port), connect(port) as peer:
        peer.setblocking(False)
        asked = b"GET /static/htmx.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
        peer.send(asked)
        eventually(lambda: not found.open)


def test_who_reads_slowly_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the console does not wait for another request any more."""
    monkeypatch.setattr(peers, "REQUEST_S", 0.05)
    monkeypatch.setattr(peers, "UNREAD_S", 0.5)
    times = 200
    with listening() as (_, port), socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", port))
        peer.settimeout(WAIT_S)
        asked = b"GET /static/htmx.min.js HTTP/1.1\r\nHost: localhost\r\n"
        peer.sendall((asked + b"\r\n") * (times - 1) + asked + b"Connection: close\r\n\r\n")
        answers = bytearray()
        while more := peer.recv(1 << 20):
            answers += more
    assert answers.count(b"HTTP/1.1 200") == times
    assert answers.rstrip().endswith(StaticFiles().files["htmx.min.js"].rstrip())


def test_one_address_has_so_many_connections_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "CONNECTIONS_OF_ONE_MAX", 2)
    with listening() as (found, port):
        with connect(port) as one, connect(port), connect(port) as third:
            assert ends(third)
            one.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 200")
        eventually(lambda: not found.open)
        assert httpx.get(f"http://127.0.0.1:{port}/login", timeout=WAIT_S).status_code == 200


def test_a_login_form_is_short(visitor: Visitor) -> None:
    """Four megabytes were read of each, from whoever came."""
    told = visitor.log_in("eve", "x" * application.LOGIN_BYTES_MAX)
    assert "Give a user and a password" in told


def test_brokers_are_asked_once_whether_they_want_a_login(running: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page that somebody without a visit asked for was a connection to the broker, and a thread."""
    monkeypatch.setattr(application, "ASK_AGAIN_AFTER_S", WAIT_S)
    asked, begin = [], Visits.begin_common

    def counted(self: Visits) -> tuple[str, Visit]:
        asked.append(threading.current_thread())
        return begin(self)

    monkeypatch.setattr(Visits, "begin_common", counted)
    with visitor_of(f"amqp://127.0.0.1:{running.port}") as visitor, ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: httpx.get(f"{visitor.address}/queues", timeout=WAIT_S), range(20)))
        assert {answer.headers["location"] for answer in answers} == {"/login"}
        assert len(asked) == 1
        assert "orders 1" in log_in(visitor, "eve")


def test_parts_of_a_strangers_page_begin_no_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pictures at the console's address logged out everybody else."""
    with console(Options("amqp://localhost:1")) as address:
        for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")):
            head = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
            assert httpx.get(f"{address}queues", headers=head, timeout=WAIT_S).status_code == 403
        head = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert httpx.get(f"{address}login", headers=head, timeout=WAIT_S).status_code == 200, "a link to it"


# -- with a login --------------------------------------------------------------------------------------------------


@pytest.fixture
def open_visits(running: Server) -> Iterator[Visits]:
    brokers = Brokers(f"amqp://127.0.0.1:{running.port}")
    found = Visits(lambda user, password: BrokerLink(brokers, user, password))
    try:
        yield found
    finally:
        found.close()


def test_who_logs_in_again_and_again_sends_nobody_else_away(
    open_visits: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred logins of one user, and all others were logged out."""
    monkeypatch.setattr(visits, "VISITS_MAX", 4)
    owner, _ = open_visits.begin("owner", "owner-password")
    eves = [open_visits.begin("eve", "eve-password")[0] for _ in range(5)]
    op, _ = open_visits.begin("op", "op-password")
    assert open_visits.find(owner) is not None
    assert open_visits.find(op) is not None
    assert [open_visits.find(secret) is not None for secret in eves] == [False, False, False, True, True]
    monkeypatch.setattr(visits, "VISITS_OF_USER_MAX", 1)
    last, _ = open_visits.begin("eve", "eve-password")
    assert [open_visits.find(secret) is not None for secret in [*eves, last, owner]] == [False] * 5 + [True] * 2


def test_a_visit_has_so_many_pages_that_are_kept_up_to_date(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a page every two seconds."""
    monkeypatch.setattr(application, "STREAMS_MAX", 1)
    log_in(visitor, "eve")
    with visitor.client.stream("GET", "/live/queues") as one:
        texts = one.iter_text()  # It is ended with this.
        assert next(texts).startswith("event: view")
        assert visitor.client.get("/live/queues").status_code == 503
    eventually(lambda: can_begin(visitor))


def can_begin(visitor: Visitor) -> bool:
    with visitor.client.stream("GET", "/live/queues") as stream:
        return stream.status_code == 200


def test_pages_of_one_user_that_take_long_keep_nobody_else_waiting(
    running: Server, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty looks for what is rare in a long queue, and the console answered nobody."""
    begun, go_on = threading.Semaphore(0), threading.Event()

    def first_messages(*_: object) -> list[object]:
        begun.release()
        assert go_on.wait(WAIT_S)
        return []

    monkeypatch.setattr("legato.console.pages.queues.first_messages", first_messages)
    log_in(visitor, "owner")
    other = Visitor(visitor.address)
    with ThreadPoolExecutor(50) as threads, other.client:
        try:
            looks = [threads.submit(visitor.client.get, "/queues/messages?name=orders") for _ in range(50)]
            for _ in range(application.THREADS_OF_USER_MAX):
                assert begun.acquire(timeout=WAIT_S)
            assert "orders 1" in log_in(other, "eve")
        finally:
            go_on.set()
        assert {look.result(WAIT_S).status_code for look in looks} == {200}


def test_who_logs_out_and_in_while_a_job_goes_on_leaves_no_connections(
    running: Server, visitor: Visitor, open_visits: Visits
) -> None:
    """Each of those visits was kept with its connections until the job was over."""
    bury(running)
    log_in(visitor, "owner")
    visitor.see("/dead-letters/queue", queue="DLQ.tea")
    assert "Begun" in visitor.send("/dead-letters/reissue", queue="DLQ.tea", scope="all", per_second="0.001")
    visitor.send("/logout")
    _, watching = open_visits.begin("eve", "eve-password")

    def connections() -> int:
        return sum(row["user"] == "owner" for row in watching.broker.link.rows("connection"))

    before = connections()
    for _ in range(3):
        log_in(visitor, "owner")
        assert "reissued" in visitor.see("/dead-letters")
        visitor.send("/logout")
    eventually(lambda: connections() == before)
    log_in(visitor, "owner")
    assert "then it was stopped" in visitor.send("/dead-letters/stop", job="1", queue="DLQ.tea")


def test_a_message_of_any_size_is_shown_as_far_as_a_page_goes(
    running: Server, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may send had the console take a gigabyte, and seconds, for each 15 MB that somebody looked at."""
    read = exact_json.read_json

    def read_json(text: str) -> Any:
        assert len(text) <= message_view.JSON_CHARACTERS_MAX
        return read(text)

    monkeypatch.setattr(message_view, "read_json", read_json)
    nested = "[" + "[]," * 1_000_000 + "[]]"
    url = f"amqp://owner:owner-password@127.0.0.1:{running.port}"
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        messages = [
            TextMessage(nested[-900_000:]),
            TextMessage(nested),
            BytesMessage(nested.encode()),
            TextMessage("[1]"),
        ]
        for message in messages:
            session.create_producer(Queue("boxes")).send(message)
        # A service's record of a run is small.
        session.create_producer(Queue("flows.trace.0")).send(TextMessage(nested))
    monkeypatch.setattr(flows, "decode_record", lambda text: pytest.fail("it is read as a whole"))
    log_in(visitor, "owner")
    assert "[ 1 ]" in visitor.see("/queues/messages", name="boxes")
    visitor.see("/flows")
    shown = [visitor.see("/queues/message", name="boxes", id=str(message.message_id)) for message in messages]
    assert f"{900_000 - message_view.BODY_CHARACTERS_MAX:,} characters more are not shown" in shown[0]
    assert "characters more are not shown" in shown[1]
    assert "[]" not in shown[1]
    assert "2,900,004 characters more are not shown" in shown[2]
    assert "[[],[]," in shown[2]
    assert "[ 1 ]" in shown[3]


class Waiting(BrokerLink):
    """A link to brokers that do not answer until they are let."""

    def __init__(self) -> None:
        super().__init__(Brokers("amqp://localhost:1"))
        self.go_on = threading.Event()

    def connection(self) -> Connection:
        assert self.go_on.wait(WAIT_S)
        raise JMSError("They are gone.")


def threads_called(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


def test_dead_letters_are_looked_for_by_a_few_threads_whoever_asks() -> None:
    """Each id that somebody made up was a thread, and each queue with dead letters another one."""
    link = Waiting()
    indexes = Indexes(link)
    try:
        for number in range(dead_letter_index.FETCHES_WAITING_MAX):
            assert indexes.of("DLQ.tea").letter(f"ID:{number}", 0.0) is None
        more = itertools.count()
        eventually(lambda: refuses(lambda: indexes.of("DLQ.tea").letter(f"ID:more {next(more)}", 0.0)))
        assert next(more) <= dead_letter_index.FETCHES_MAX + 1
        assert threads_called("read a dead letter") <= dead_letter_index.FETCHES_MAX
        looked = [indexes.of(f"DLQ.{number}") for number in range(40)]
        for index in looked:
            index.look({"stored": 1, "consumed": 0, "depth": 1})
        assert threads_called("look through dead letters") == dead_letter_index.LOOKS_MAX
        assert all(index.is_looking for index in looked)
        link.go_on.set()
        eventually(lambda: all(index.error == "They are gone." for index in looked))
    finally:
        link.go_on.set()


def refuses(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except JMSError as error:
        return "Too many dead letters are being looked for" in str(error)
    return False


def test_stories_are_searched_by_a_few_threads_and_not_while_segments_are_removed(tmp_path: Path) -> None:
    """Each message id that somebody made up was a thread that read the whole ledger, which a compaction took away."""
    records = [
        LogRecord(1, 1_000_000, [EpochBegan("a:5672"), QueueCreated(1, "orders")]),
        LogRecord(1, 2_000_000, [MessageStored(1, 1, 10, message_id="ID:tea")]),
    ]
    write_segment(tmp_path, list(enumerate(records, 1)))
    ledger = Ledger(tmp_path)
    assert [epoch.broker for epoch in ledger.epochs(WAIT_S)] == ["a:5672"]
    with alone_with(tmp_path, lambda told: None):
        first = ledger.story("ID:tea", 0.5)
        assert not first.is_over
        others = [ledger.story(f"ID:{number}", 0.0) for number in range(40)]
        assert threads_called("search a story") == ledger_view.SEARCHES_MAX
        refused = [search for search in others if search.is_over]
        assert len(refused) >= 40 - ledger_view.SEARCHES_MAX - ledger_view.SEARCHES_WAITING_MAX
        assert {search.error for search in refused} == {
            "Too many stories are being searched. Load the page again in a while."
        }
    eventually(lambda: first.is_over)
    assert len(first.chapters) == 1
