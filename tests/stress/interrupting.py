"""Blocking calls that are interrupted once at each line they run through, and a session that is used on.

A signal handler may raise at any line: that of Ctrl-C, of an alarm, of a soft time limit. Each story is told once for
each line of its call, Python's own library included: the call raises there, and then the same session is used on and
closed. Nothing may be lost, nothing may hang, and what was told must be true.

    python -m tests.stress.interrupting --help
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    JMSConsumer,
    MessageConsumer,
    QueueRequestor,
    Session,
    TextMessage,
    Topic,
    TransactionRolledBackError,
)
from tests.support.broker import broker_pair

HANGS_AFTER_S = 60.0
COMES_S = 30.0
LOOK_S = 0.001
"""Between two looks at what says nothing by itself."""
TEXTS = ["0", "1", "2"]

_names = itertools.count(1)


class Interrupted(Exception):
    """What a handler raises; a soft time limit is an `Exception` like this one."""


class Hang(BaseException):
    """A call did not end."""


class Lines:
    """Counts the lines that this thread runs through, and raises at one of them."""

    def __init__(self, raise_at: int = 0) -> None:
        self.count = 0
        self.where = ""
        self._raise_at = raise_at

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename == __file__ or frame.f_code.co_filename.endswith("/_weakrefset.py"):
            return None  # the caller's own lines, and callbacks, whose errors Python drops
        if event == "line":
            self.count += 1
            if self.count == self._raise_at:
                self.where = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
                sys.settrace(None)
                raise Interrupted(self.where)
        return self._trace

    def run(self, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Whether the call returned, and what."""
        outer = sys.gettrace()
        sys.settrace(self._trace)
        try:
            value = call()
        except Interrupted:
            return False, None
        finally:
            sys.settrace(outer)
        return True, value


@contextmanager
def no_hang() -> Iterator[None]:
    """What hangs in the block raises."""

    def hang(*_: object) -> None:
        raise Hang(f"no end after {HANGS_AFTER_S:g} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


Telling = Generator[Callable[[], Any], tuple[bool, Any], None]
"""A story: yields the call that is to be interrupted, gets (whether it returned, what it returned), and asserts."""


class Stage:
    """What a story is told with: a queue with messages, a session over it, and another connection that looks."""

    def __init__(self, url: str, connection: Connection, other: Connection, mode: AcknowledgeMode) -> None:
        self.url = url
        self.connection = connection
        self._other = other
        self.name = f"interrupted.{next(_names)}"
        self.mode = mode

    def session(self) -> Session:
        """A session of the story's mode."""
        return self.connection.create_session(self.mode is AcknowledgeMode.SESSION_TRANSACTED, self.mode)

    def service(self) -> Session:
        """A session of the other connection."""
        return self._other.create_session()

    def consumer(self, session: Session, **options: Any) -> MessageConsumer:
        """A consumer of its queue."""
        return session.create_consumer(session.create_queue(self.name), **options)

    def fill(self, name: str = "", texts: list[str] = TEXTS) -> None:
        """Put messages into a queue."""
        with self._other.create_session() as session:
            producer = session.create_producer(session.create_queue(name or self.name))
            for text in texts:
                producer.send(TextMessage(text))

    def left(self, name: str = "") -> list[str]:
        """Take what is in a queue."""
        with self._other.create_session() as session:
            return all_of(session.create_consumer(session.create_queue(name or self.name)))

    def has_left(self, texts: list[str], name: str = "") -> None:
        """What is in a queue is this."""
        left = self.left(name)
        assert left == texts, f"left {left}, not {texts}"


def all_of(consumer: MessageConsumer) -> list[str]:
    """What can be received now."""
    return [message.body for message in iter(consumer.receive_no_wait, None)]


def acknowledged(session: Session) -> None:
    """Whatever the mode wants for it."""
    if session.transacted:
        session.commit()
    elif session.acknowledge_mode in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL):
        session.acknowledge_all()


# -- receiving ---------------------------------------------------------------------------------------------------


Way = Callable[[MessageConsumer], Callable[[], Any]]
"""A way to receive: the call whose lines count."""

WAYS: dict[str, Way] = {
    "receive": lambda consumer: lambda: consumer.receive(COMES_S),
    "receive_no_wait": lambda consumer: consumer.receive_no_wait,
    "iteration": lambda consumer: iter(consumer).__next__,
    "receive_body": lambda consumer: (lambda simplified: lambda: simplified.receive_body(str, COMES_S))(
        JMSConsumer(consumer)
    ),
    "receive_body_no_wait": lambda consumer: (lambda simplified: lambda: simplified.receive_body_no_wait(str))(
        JMSConsumer(consumer)
    ),
    "simplified receive": lambda consumer: (lambda simplified: lambda: simplified.receive(COMES_S))(
        JMSConsumer(consumer)
    ),
}


def receive_and_go_on(stage: Stage, way: Way = WAYS["receive"], **options: Any) -> Telling:
    """The next call returns what the interrupted one would have."""
    stage.fill()
    with stage.session() as session:
        consumer = stage.consumer(session, **options)
        returned, received = yield way(consumer)
        got = [received if isinstance(received, str) else received.body] if returned and received is not None else []
        got += all_of(consumer)
        assert got == TEXTS, f"received {got}"
        acknowledged(session)
    stage.has_left([])


def receive_without_prefetch(stage: Stage) -> Telling:
    """Each message is asked for."""
    yield from receive_and_go_on(stage, prefetch=0)


def receive_and_close(stage: Stage) -> Telling:
    """What was not returned comes again, with or without an acknowledgement of what was."""
    stage.fill()
    with stage.session() as session:
        consumer = stage.consumer(session)
        first = consumer.receive(COMES_S)
        assert first is not None
        returned, message = yield lambda: consumer.receive(COMES_S)
        acknowledged(session)
    got = [first.body] + ([message.body] if returned else [])
    left = stage.left()
    assert sorted(got + left) == TEXTS, f"received {got}, left {left}"


def receive_and_give_back(stage: Stage) -> Telling:
    """All comes again after `rollback()` or `recover()`."""
    stage.fill()
    with stage.session() as session:
        consumer = stage.consumer(session)
        assert consumer.receive(COMES_S) is not None
        yield lambda: consumer.receive(COMES_S)
        if session.transacted:
            session.rollback()
        else:
            session.recover()
        got = all_of(consumer)
        assert got == TEXTS, f"received {got}"
        acknowledged(session)
    stage.has_left([])


# -- sending -----------------------------------------------------------------------------------------------------


def send(stage: Stage) -> Telling:
    """What was interrupted is stored once or not at all; what comes after it is stored."""
    with stage.session() as session:
        producer = session.create_producer(session.create_queue(stage.name))
        producer.send(TextMessage("before"))
        returned, _ = yield lambda: producer.send(TextMessage("x"))
        producer.send(TextMessage("after"))
        producer.close()
        acknowledged(session)
    left = stage.left()
    without = ["before", "after"]
    assert left == ["before", "x", "after"] or (left == without and not returned), f"stored {left}"


def send_asynchronously(stage: Stage) -> Telling:
    """As many listeners are called as messages are stored, and nobody waits for others."""
    heard: list[str] = []

    def hear(message: Any, error: Exception | None) -> None:
        heard.append(message.body if error is None else f"{message.body}: {error}")

    with stage.session() as session:
        producer = session.create_producer(session.create_queue(stage.name))
        yield lambda: producer.send(TextMessage("x"), completion_listener=hear)
        producer.send(TextMessage("after"), completion_listener=hear)
        producer.flush(COMES_S)
        assert heard in (["x", "after"], ["after"]), f"heard {heard}"
        acknowledged(session)
    stage.has_left(heard)


def send_to_another_destination(stage: Stage) -> Telling:
    """The way to a destination is half open: the next send opens it."""
    with stage.session() as session:
        producer = session.create_producer()
        queue = session.create_queue(stage.name)
        returned, _ = yield lambda: producer.send(TextMessage("x"), destination=queue)
        producer.send(TextMessage("after"), destination=queue)
        acknowledged(session)
    left = stage.left()
    assert left == ["x", "after"] or (left == ["after"] and not returned), f"stored {left}"


def request(stage: Stage) -> Telling:
    """The next request gets its own reply, though that of the interrupted one comes before it."""
    with stage.service() as service, stage.session() as session:
        replies = service.create_producer()

        def answer(message: Any) -> None:
            reply = TextMessage(f"re: {message.body}")
            reply.correlation_id = message.message_id
            replies.send(reply, destination=message.reply_to)

        stage.consumer(service).message_listener = answer
        with QueueRequestor(session, session.create_queue(stage.name)) as requestor:
            yield lambda: requestor.request(TextMessage("1"), COMES_S)
            reply = requestor.request(TextMessage("2"), COMES_S)
            assert reply is not None, "no reply came"
            assert reply.body == "re: 2", f"got {reply.body}"


# -- ending and acknowledging ------------------------------------------------------------------------------------


def _moved(stage: Stage, session: Session) -> tuple[MessageConsumer, str]:
    stage.fill()
    consumer = stage.consumer(session)
    message = consumer.receive(COMES_S)
    assert message is not None
    target = f"{stage.name}.out"
    session.create_producer(session.create_queue(target)).send(TextMessage(message.body))
    return consumer, target


def commit_again(stage: Stage) -> Telling:
    """Called again it returns when all is committed, once."""
    with stage.session() as session:
        consumer, target = _moved(stage, session)
        yield session.commit
        session.commit()
        assert all_of(consumer) == ["1", "2"]
        session.commit()
    stage.has_left([])
    stage.has_left(["0"], target)


def commit_and_go_on(stage: Stage) -> Telling:
    """What is received next is not what was committed."""
    with stage.session() as session:
        consumer, target = _moved(stage, session)
        yield session.commit
        assert all_of(consumer) == ["1", "2"]
        session.commit()
    stage.has_left([])
    stage.has_left(["0"], target)


def rollback_again(stage: Stage) -> Telling:
    """Called again it returns when all is rolled back."""
    with stage.session() as session:
        consumer, target = _moved(stage, session)
        yield session.rollback
        session.rollback()
        assert all_of(consumer) == TEXTS
        session.commit()
    stage.has_left([])
    stage.has_left([], target)


def rollback_and_go_on(stage: Stage) -> Telling:
    """What it had received comes again, or it had not begun and nothing has changed."""
    with stage.session() as session:
        consumer, target = _moved(stage, session)
        returned, _ = yield session.rollback
        got = all_of(consumer)
        session.commit()
    sent = stage.left(target)
    assert (got, sent) == (TEXTS, []) or ((got, sent) == (["1", "2"], ["0"]) and not returned), f"{got}, {sent}"
    stage.has_left([])


def replay_again(stage: Stage) -> Telling:
    """Called again it sends the rest of what the lost transaction had sent, and the commit has each message once."""
    with stage.session() as session:
        producer = session.create_producer(session.create_queue(stage.name))
        for text in TEXTS:
            producer.send(TextMessage(text))
        transport = stage.connection._transport
        wire = transport.wire
        assert wire is not None
        transport.post(wire._socket.shutdown, socket.SHUT_RDWR)
        transport.hurry()
        while not session.transaction_doomed:
            time.sleep(LOOK_S)
        with contextlib.suppress(TransactionRolledBackError):
            session.commit()
        returned, count = yield session.replay
        rest = session.replay()
        assert rest <= len(TEXTS), f"{rest} messages were sent again"
        assert not returned or (count, rest) == (len(TEXTS), 0)
        session.commit()
    stage.has_left(TEXTS)


def acknowledge_again(stage: Stage) -> Telling:
    """Called again it returns when all is acknowledged."""
    stage.fill()
    with stage.session() as session:
        consumer = stage.consumer(session)
        consumer.receive(COMES_S)
        message = consumer.receive(COMES_S)
        assert message is not None
        yield message.acknowledge
        message.acknowledge()
        if session.acknowledge_mode is AcknowledgeMode.INDIVIDUAL:
            session.acknowledge_all()
    stage.has_left(["2"])


def recover_again(stage: Stage) -> Telling:
    """Called again it returns when all comes again; what comes again can be acknowledged."""
    stage.fill()
    with stage.session() as session:
        consumer = stage.consumer(session)
        consumer.receive(COMES_S)
        consumer.receive(COMES_S)
        yield session.recover
        session.recover()
        assert all_of(consumer) == TEXTS
        acknowledged(session)
    stage.has_left([])


# -- making and closing ------------------------------------------------------------------------------------------


def create_consumer(stage: Stage) -> Telling:
    """A consumer that nobody has keeps no message from the next one."""
    stage.fill()
    with stage.session() as session:
        returned, consumer = yield lambda: stage.consumer(session)
        if not returned:
            consumer = stage.consumer(session)
        got: list[str] = []
        while len(got) < len(TEXTS):
            message = consumer.receive(COMES_S)
            assert message is not None, f"only {got} came"
            got.append(message.body)
        assert sorted(got) == TEXTS
        acknowledged(session)
    stage.has_left([])


SUBSCRIPTION = "s"

Subscribe = Callable[[Session, Topic], MessageConsumer]

SUBSCRIBES: dict[str, Subscribe] = {
    "durable": lambda session, topic: session.create_durable_consumer(topic, SUBSCRIPTION),
    "shared durable": lambda session, topic: session.create_shared_durable_consumer(topic, SUBSCRIPTION),
    "shared": lambda session, topic: session.create_shared_consumer(topic, SUBSCRIPTION),
}


@contextmanager
def identified(stage: Stage) -> Iterator[tuple[Session, Topic]]:
    """A session of a connection with a client id."""
    with ConnectionFactory(stage.url, client_id=stage.name).create_connection() as connection:
        connection.start()
        stage.connection = connection
        with stage.session() as session:
            yield session, Topic(stage.name)


def create_subscriber(stage: Stage, subscribe: Subscribe) -> Telling:
    """A consumer that nobody has keeps nobody from its subscription."""
    with identified(stage) as (session, topic):
        returned, consumer = yield lambda: subscribe(session, topic)
        if not returned:
            consumer = subscribe(session, topic)
        session.create_producer(topic).send(TextMessage("x"))
        acknowledged(session)
        message = consumer.receive(COMES_S)
        assert message is not None, "nothing came"
        acknowledged(session)


def create_subscriber_and_unsubscribe(stage: Stage, subscribe: Subscribe) -> Telling:
    """A consumer that nobody has keeps nobody from ending its subscription."""
    with identified(stage) as (session, topic):
        subscribe(session, topic).close()
        returned, consumer = yield lambda: subscribe(session, topic)
        if returned:
            consumer.close()
        session.unsubscribe(SUBSCRIPTION)


def close_subscriber(stage: Stage, subscribe: Subscribe) -> Telling:
    """Closed again it is closed, and its subscription can be ended."""
    with identified(stage) as (session, topic):
        consumer = subscribe(session, topic)
        yield consumer.close
        consumer.close()
        session.unsubscribe(SUBSCRIPTION)


def create_producer(stage: Stage) -> Telling:
    """A producer can be created again."""
    with stage.session() as session:
        queue = session.create_queue(stage.name)
        returned, producer = yield lambda: session.create_producer(queue)
        if not returned:
            producer = session.create_producer(queue)
        producer.send(TextMessage("x"))
        acknowledged(session)
    stage.has_left(["x"])


def close_consumer(stage: Stage) -> Telling:
    """Closed again it is closed, and others get the rest."""
    stage.fill()
    with stage.session() as session:
        consumer = stage.consumer(session)
        consumer.receive(COMES_S)
        acknowledged(session)
        yield consumer.close
        consumer.close()
        stage.has_left(["1", "2"])


def close_producer(stage: Stage) -> Telling:
    """Closed again it is closed, and what was sent is stored."""
    with stage.session() as session:
        producer = session.create_producer(session.create_queue(stage.name))
        producer.send(TextMessage("x"), completion_listener=lambda *_: None)
        yield producer.close
        producer.close()
        acknowledged(session)
    stage.has_left(["x"])


def close_session(stage: Stage) -> Telling:
    """Closed again it is closed, and others get the rest."""
    stage.fill()
    session = stage.session()
    consumer = stage.consumer(session)
    consumer.receive(COMES_S)
    acknowledged(session)
    yield session.close
    session.close()
    assert session not in stage.connection._sessions, "its connection still has it"
    stage.has_left(["1", "2"])


def close_connection(stage: Stage) -> Telling:
    """Closed again it is closed, its thread has ended, and others get the rest."""
    stage.fill()
    connection = ConnectionFactory(stage.url).create_connection()
    connection.start()
    stage.connection = connection
    session = stage.session()
    consumer = stage.consumer(session)
    consumer.receive(COMES_S)
    acknowledged(session)
    yield connection.close
    connection.close()
    # It has said that it ends, and may want a processor for that.
    connection._transport._thread.join(COMES_S)
    assert not connection._transport._thread.is_alive()
    stage.has_left(["1", "2"])


AUTO, DUPS_OK = AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK
CLIENT, INDIVIDUAL = AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL
TRANSACTED = AcknowledgeMode.SESSION_TRANSACTED
EVERY = (AUTO, DUPS_OK, CLIENT, INDIVIDUAL, TRANSACTED)

Story = Callable[[Stage], Telling]


def _by(way: str) -> Story:
    return lambda stage: receive_and_go_on(stage, WAYS[way])


def _of(story: Callable[[Stage, Subscribe], Telling], how: str) -> Story:
    return lambda stage: story(stage, SUBSCRIBES[how])


LASTING = ("durable", "shared durable")

STORIES: dict[str, tuple[Story, tuple[AcknowledgeMode, ...]]] = {
    **{f"{way}, then go on": (_by(way), EVERY) for way in WAYS},
    "receive without prefetch": (receive_without_prefetch, EVERY),
    "receive, then close": (receive_and_close, EVERY),
    "receive, then give back": (receive_and_give_back, (CLIENT, INDIVIDUAL, TRANSACTED)),
    "send": (send, (AUTO, TRANSACTED)),
    "send asynchronously": (send_asynchronously, (AUTO, TRANSACTED)),
    "send to another destination": (send_to_another_destination, (AUTO, TRANSACTED)),
    "request": (request, (AUTO,)),
    "commit, then again": (commit_again, (TRANSACTED,)),
    "commit, then go on": (commit_and_go_on, (TRANSACTED,)),
    "rollback, then again": (rollback_again, (TRANSACTED,)),
    "rollback, then go on": (rollback_and_go_on, (TRANSACTED,)),
    "replay, then again": (replay_again, (TRANSACTED,)),
    "acknowledge": (acknowledge_again, (CLIENT, INDIVIDUAL)),
    "recover": (recover_again, (CLIENT, INDIVIDUAL)),
    "create a consumer": (create_consumer, (AUTO, TRANSACTED)),
    **{f"create a {how} consumer": (_of(create_subscriber, how), (AUTO, TRANSACTED)) for how in SUBSCRIBES},
    **{f"create a {how} consumer, then end": (_of(create_subscriber_and_unsubscribe, how), (AUTO,)) for how in LASTING},
    **{f"close a {how} consumer": (_of(close_subscriber, how), (AUTO,)) for how in LASTING},
    "create a producer": (create_producer, (AUTO, TRANSACTED)),
    "close a consumer": (close_consumer, EVERY),
    "close a producer": (close_producer, (AUTO, TRANSACTED)),
    "close a session": (close_session, EVERY),
    "close a connection": (close_connection, (AUTO, TRANSACTED)),
}


def tell(story: Story, stage: Stage, raise_at: int) -> Lines:
    """Tell a story whose call raises at its so-manieth line; 0 for none."""
    lines = Lines(raise_at)
    telling = story(stage)
    call = next(telling)
    with no_hang():
        try:
            telling.send(lines.run(call))
        except StopIteration:
            return lines
        except BaseException as error:
            error.add_note(f"interrupted at line {raise_at}, {lines.where}")
            raise
    raise AssertionError("a story has one call")


def tell_each(
    url: str, name: str, mode: AcknowledgeMode, every: int = 1, begin: int = 1, *, keep_going: bool = False
) -> tuple[int, list[str]]:
    """Tell a story once for every so-manieth line of its call; returns how often, and what went wrong."""
    story, _ = STORIES[name]
    told, wrong = 0, []
    connections = _connections(url)
    raise_at = begin
    while True:
        stage = Stage(url, *connections, mode)
        try:
            lines = tell(story, stage, raise_at)
        except BaseException as error:
            if not keep_going or isinstance(error, KeyboardInterrupt):
                raise
            notes = "; ".join(getattr(error, "__notes__", []))
            wrong.append(f"{name}, {mode.name}: {type(error).__name__} {error} ({notes})")
            for connection in connections:
                connection._transport.give_up()
            connections = _connections(url)
            told += 1
            raise_at += every
            continue
        if lines.count < raise_at:
            break  # the call has no such line
        told += 1
        raise_at += every
    for connection in connections:
        connection.close()
    return told, wrong


def _connections(url: str) -> tuple[Connection, Connection]:
    connections = ConnectionFactory(url).create_connection(), ConnectionFactory(url).create_connection()
    for connection in connections:
        connection.start()
    return connections


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="interrupt at every so-manieth line only")
    parser.add_argument("--story", help="only stories with this in their name")
    arguments = parser.parse_args()
    total, wrong = 0, []
    with tempfile.TemporaryDirectory() as directory, broker_pair(Path(directory)) as pair:
        for name, (_, modes) in STORIES.items():
            if arguments.story and arguments.story not in name:
                continue
            for mode in modes:
                told, problems = tell_each(pair.url, name, mode, arguments.every, keep_going=True)
                total += told
                wrong += problems
                print(
                    f"{name}, {mode.name}: {told} interruptions, {len(problems)} wrong",
                    *problems,
                    sep="\n  ",
                    flush=True,
                )
    print(f"{total} interruptions, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
