"""A busy loop of blocking calls that a signal interrupts at random instants, and an account of its own.

A handler that raises interrupts whatever the loop does: as Ctrl-C does, or a soft time limit. The loop goes on with the
same session. In the end nothing may be lost, nothing done twice, and nothing may have hung. In AUTO and DUPS_OK what a
call has returned is acknowledged: the loop asks, as applications have to, whether its variable was set.

    python -m tests.stress.signalling --messages 20000 --interruptions 500
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    MessageConsumer,
    MessageProducer,
    Session,
    TextMessage,
    TransactionRolledBackError,
)
from tests.support.broker import broker_pair

COMES_S = 30.0
HANGS_AFTER_S = 60.0
LUMP = 10
_MEAN_S = {AcknowledgeMode.AUTO: 0.0003, AcknowledgeMode.DUPS_OK: 0.0003}
"""Between two interruptions; where nothing waits for the broker they come thicker."""


class Interrupted(Exception):
    """What the handler raises."""


class _Nothing:
    """No value."""


NOTHING = _Nothing()


class Alarm:
    """Interrupts calls at random instants; if nothing is left to do so for too long, something hangs."""

    def __init__(self, interruptions: int, mean_s: float, seed: int) -> None:
        self.left = interruptions
        self.inside = 0
        """Of them where a call of the client's had not returned."""
        self._armed = False
        self._is_over = False
        self._mean_s = mean_s
        self._random = random.Random(seed)

    def call(self, function: Callable[[], Any]) -> Any:
        """What the function returned, or `NOTHING` if it was interrupted before."""
        value: Any = NOTHING
        if not self.left:
            self.set()
        try:
            self._armed = True
            value = function()
            self._armed = False
        except Interrupted:
            self.inside += value is NOTHING
        return value

    def insist(self, function: Callable[[], Any]) -> None:
        """Call until the call is not interrupted."""
        while self.call(function) is NOTHING:
            pass

    def _ring(self, *_: object) -> None:
        if self._is_over:
            return
        if not self.left:
            raise SystemExit(f"a call hangs: no end after {HANGS_AFTER_S:g} s")
        armed, self._armed = self._armed, False
        self.left -= armed
        self.set()
        if armed:
            raise Interrupted

    def set(self) -> None:
        """Ring soon."""
        soon_s = self._random.expovariate(1 / self._mean_s) + 1e-5
        signal.setitimer(signal.ITIMER_REAL, soon_s if self.left else HANGS_AFTER_S)

    @contextmanager
    def ringing(self) -> Iterator[None]:
        """Interrupt the calls of the block."""
        before = signal.signal(signal.SIGALRM, self._ring)
        self.set()
        try:
            yield
        finally:
            # A ring between these lines would set the alarm again, for the handler of before: that of a limit of time.
            self._is_over = True
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


class Loop:
    """Receives all messages of a queue, whatever interrupts, and says what it has done with each."""

    def __init__(self, session: Session, source: str, target: str, alarm: Alarm) -> None:
        self.session = session
        self.alarm = alarm
        self.consumer: MessageConsumer = session.create_consumer(session.create_queue(source))
        self.producer: MessageProducer = session.create_producer(session.create_queue(target))
        self.done: Counter[str] = Counter()
        self._pending: list[str] = []

    def turn(self) -> bool:
        """Receive one message and do what is to be done; False if none came."""
        message = self.alarm.call(lambda: self.consumer.receive(COMES_S))
        if message is NOTHING:
            return True
        if message is None:
            return False
        mode = self.session.acknowledge_mode
        if mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK):
            self.done[message.body] += 1
            return True
        self._pending.append(message.body)
        if self.session.transacted and self.alarm.call(lambda: self._send(message.body)) is NOTHING:
            # Whether it was sent is not known: start over.
            self.alarm.insist(self._roll_back)
            self._pending.clear()
        elif len(self._pending) == LUMP or message.body == "last":
            self._end()
        return True

    def _send(self, body: str) -> None:
        self.producer.send(TextMessage(body))

    def _roll_back(self) -> None:
        self.session.rollback()

    def _end(self) -> None:
        try:
            self.alarm.insist(self.session.commit if self.session.transacted else self.session.acknowledge_all)
        except TransactionRolledBackError:
            self._pending.clear()
        self.done.update(self._pending)
        self._pending.clear()


def stress(
    url: str, mode: AcknowledgeMode, messages: int, interruptions: int, seed: int = 1
) -> tuple[list[str], Alarm]:
    """Receive so many messages with so many interruptions; returns what was wrong."""
    source, target = f"in.{mode.name}.{seed}", f"out.{mode.name}.{seed}"
    with ConnectionFactory(url).create_connection() as connection:
        connection.start()
        expected = _fill(connection, source, messages)
        session = connection.create_session(mode is AcknowledgeMode.SESSION_TRANSACTED, mode)
        alarm = Alarm(interruptions, _MEAN_S.get(mode, 0.004), seed)
        loop = Loop(session, source, target, alarm)
        with alarm.ringing():
            while len(loop.done) < len(expected) and loop.turn():
                pass
        session.close()
        done = loop.done if mode is not AcknowledgeMode.SESSION_TRANSACTED else _drained(connection, target)
        left = _drained(connection, source)
    wrong = [f"{body} was lost" for body in expected if not done[body] and not left[body]]
    wrong += [f"{body} was done {times} times" for body, times in done.items() if times > 1]
    wrong += [f"{body} is left over" for body in left]
    return wrong, alarm


def _fill(connection: Connection, name: str, messages: int) -> list[str]:
    bodies = [*map(str, range(messages - 1)), "last"]
    with connection.create_session(transacted=True) as session:
        producer = session.create_producer(session.create_queue(name))
        for number, body in enumerate(bodies, 1):
            producer.send(TextMessage(body))
            if not number % 500:
                session.commit()
        session.commit()
    return bodies


def _drained(connection: Connection, name: str) -> Counter[str]:
    with connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(name))
        return Counter(message.body for message in iter(consumer.receive_no_wait, None))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--interruptions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as directory, broker_pair(Path(directory)) as pair:
        for mode in (
            AcknowledgeMode.AUTO,
            AcknowledgeMode.DUPS_OK,
            AcknowledgeMode.CLIENT,
            AcknowledgeMode.SESSION_TRANSACTED,
        ):
            wrong, alarm = stress(pair.url, mode, arguments.messages, arguments.interruptions, arguments.seed)
            failed = failed or bool(wrong)
            done = arguments.interruptions - alarm.left
            print(f"{mode.name}: {done} interruptions, {alarm.inside} of them inside calls, {len(wrong)} wrong")
            print(*wrong[:10], sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
