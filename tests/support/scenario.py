"""A broker and its store on one thread: scenarios of the core read as a dialogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.effects import (
    Confirm,
    ConfirmAcknowledged,
    ConfirmDuplicates,
    Deliver,
    Discharged,
    DischargeRefused,
    Drained,
    Effect,
    Finished,
    Paced,
    Refuse,
    Room,
    ScanAgain,
    SettleSends,
    Show,
    StagePublished,
    StageRefused,
)
from legato.core.facts import AnyFact
from legato.core.invariants import violations
from legato.core.message import Message, MessageRun, RunPart
from legato.core.queues import Queue
from legato.core.settings import DEFAULT_SETTINGS, AddressSettings
from legato.core.topics import Node
from legato.core.traits import PLAIN, Traits
from legato.errors import StoreFullError
from legato.store.memory import MemoryStore
from tests.support.bodies import TextBodies


class RunTokens(tuple[Any, ...]):
    """The tokens of messages that were published as a run."""


class Scenario:
    """Commands go to the broker; what becomes visible is gathered per consumer and token."""

    def __init__(self, store: MemoryStore | None = None, *, detailed: bool = False) -> None:
        self.store = store or MemoryStore()
        self.now_us = 1_000_000
        self.settings: dict[str, AddressSettings] = {}
        self.broker = Broker(
            self.store,
            self.store.begin_epoch("test", self.now_us),
            bodies=TextBodies(),
            settings=lambda address: self.settings.get(address, DEFAULT_SETTINGS),
            detailed=detailed,
        )
        self._detailed = detailed
        self.broker.now_us = self.now_us
        self.confirmed: list[Any] = []
        self.duplicates: list[Any] = []
        """Tokens of messages that were confirmed as duplicates."""
        self.settled: dict[Any, bool] = {}
        """Tokens of transactions' sends, and whether they were duplicates."""
        self.refused: dict[Any, str] = {}
        self.discharged: list[Any] = []
        self.discharge_refused: dict[Any, str] = {}
        self.reasons: dict[Any, str] = {}
        self.drained: list[Any] = []
        self.paced: list[Consumer] = []
        self.acknowledged: list[int] = []
        self.shown: list[int] = []
        self.finished: dict[Any, int] = {}
        self.rooms: list[str] = []
        self.staged: dict[Any, int] = {}
        self.keeps_runs = False
        """Whether runs are left whole when they go out."""
        self.full = False
        """The next commit finds no room."""
        self.scans = 0
        """How often the broker asked to go on."""
        self._scan_again = False
        self.inbox: dict[Consumer, list[Message]] = {}
        self.facts: list[AnyFact] = []
        self.seen: dict[tuple[str, int], tuple[int, bool]] = {}
        """Count and flag of each message as it was when it was delivered last."""

    # -- commands ------------------------------------------------------------------------------------------------

    def publish(self, queue: str | Node, *bodies: bytes, container: str = "", **traits: Any) -> None:
        """Publish and settle everything; the body is its own token, and says its group."""
        node = self.broker.directory.queue(queue) if isinstance(queue, str) else queue
        for body in bodies:
            group, closes = TextBodies().group(body)
            said = Traits(**traits, group=group, closes_group=closes)
            self.broker.publisher.publish(node, body, body.decode(), body, PLAIN if said == PLAIN else said, container)
        self.run()

    def consumer(
        self,
        queue: str | Queue,
        credit: int,
        *,
        exact: bool = False,
        held: Sequence[int] = (),
        name: str = "c",
        wants: bytes | None = None,
        priority: int = 0,
        link: str = "",
    ) -> Consumer:
        consumer, self.elsewhere = self.broker.receivers.attach(
            self.broker.directory.queue(queue) if isinstance(queue, str) else queue,
            None,
            name,
            reports_presented=exact,
            held=held,
            matches=None if wants is None else lambda body: wants in body,
            priority=priority,
            name=link,
        )
        self.inbox[consumer] = []
        if credit:
            self.broker.receivers.flow(consumer, credit, False, self.now_us)
        self.run()
        return consumer

    def run(self) -> None:
        """Commit, and let sockets take what they are given, until nothing is left to do."""
        self.broker.dispatcher.dispatch_returned(self.now_us)
        self._perform(self.broker.take_effects())
        while self.step() or self.resume() or self.go_on():
            pass
        self.check()

    def reload(self) -> None:
        """Settings are read again, for all addresses at once."""
        for _ in self.broker.administration.apply_settings():
            pass

    def check(self) -> None:
        """Heap and store agree (`core.invariants`)."""
        if self.broker.idle:
            found = violations(self.broker, self.store)
            assert not found, "; ".join(map(str, found))

    def go_on(self) -> bool:
        """The broker goes on with what it looks through in slices; whether it asked to."""
        asked, self._scan_again = self._scan_again, False
        if asked:
            self.scans += 1
            self.broker.go_on(self.now_us)
            self._perform(self.broker.take_effects())
        return asked

    def wait(self, seconds: float) -> None:
        """Time passes, in ticks as a broker has them."""
        until_us = self.now_us + int(seconds * 1_000_000)
        while self.now_us < until_us:
            self.now_us = min(self.now_us + 100_000, until_us)
            self.broker.tick(self.now_us)
            self.run()

    def resume(self) -> bool:
        """Sockets take what they were given; whether any had been given as much as it may."""
        paced, self.paced = self.paced, []
        for consumer in paced:
            self.broker.receivers.resume(consumer, self.now_us)
        self._perform(self.broker.take_effects())
        return bool(paced)

    def step(self) -> bool:
        """One commit, if there is anything to commit."""
        batch = self.broker.take_batch(self.now_us)
        if batch is None:
            return False
        try:
            if self.full:
                self.full = False
                raise StoreFullError("no room, once")
            self.store.commit(batch)
        except StoreFullError as error:
            self.broker.failed(str(error))
        else:
            self.facts += batch.facts
            self.broker.committed(self.now_us)
        self._perform(self.broker.take_effects())
        return True

    def crash(self) -> Scenario:
        """The broker dies; another begins the next epoch on its store."""
        other = Scenario(self.store, detailed=self._detailed)
        other.now_us = other.broker.now_us = self.now_us
        other.settings.update(self.settings)
        return other

    # -- what became visible ---------------------------------------------------------------------------------------

    def received(self, consumer: Consumer) -> list[bytes]:
        """Bodies delivered to the consumer since the last call."""
        messages = self.inbox[consumer]
        self.inbox[consumer] = []
        return [message.body or b"" for message in messages]

    def in_hand(self, consumer: Consumer) -> list[Message]:
        """What the consumer has and did not settle, in order."""
        return [consumer.unsettled[seq] for seq in sorted(consumer.unsettled)]

    def present(self, consumer: Consumer, *seqs: int) -> None:
        """Its application gets these messages."""
        for seq in seqs:
            self.broker.presentations.present(consumer, consumer.unsettled[seq])

    def lose(self, consumer: Consumer, *, hold_s: float = 60.0) -> None:
        """Its connection is lost; what it had is kept for so long."""
        until_us = self.now_us + int(hold_s * 1_000_000) if hold_s else 0
        self.broker.receivers.detach(consumer, clean=False, hold_until_us=until_us)
        self.run()

    def accept(self, consumer: Consumer, *messages: Message) -> None:
        for message in messages:
            assert self.broker.settlement.acknowledge(consumer, message, confirm=False)
        self.run()

    def _sent(self, entries: list[Message | MessageRun]) -> list[Message]:
        """What goes out; of runs messages that say what the run says, unless its messages are to be told apart."""
        messages: list[Message] = []
        for entry in entries:
            if isinstance(entry, MessageRun):
                messages += entry.messages() if self.keeps_runs else entry.apart()
                if not self.keeps_runs and entry.consumer is not None:
                    assert entry.consumer.unsettled
            else:
                messages.append(entry)
        return messages

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Deliver(consumer=consumer, messages=entries):
                    messages = self._sent(entries)
                    self.inbox[consumer] += messages
                    for message in messages:
                        self.seen[message.queue.name, message.seq] = (message.count, message.flagged)
                case Paced(consumer=consumer):
                    self.paced.append(consumer)
                case Show(messages=messages):
                    self.shown += [message.seq for message in messages]
                case Confirm(tokens=tokens):
                    for token in tokens:
                        self.confirmed += token if isinstance(token, RunTokens) else [token]
                case ConfirmDuplicates(tokens=tokens):
                    self.duplicates += tokens
                case SettleSends(tokens=tokens, duplicates=duplicates):
                    self.settled |= {token: token in duplicates for token in tokens}
                case Refuse(token=token, condition=condition):
                    self.refused[token] = condition
                case ConfirmAcknowledged(messages=pairs):
                    for _, said in pairs:
                        if isinstance(said, RunPart):
                            first = said.run.seq + said.at
                            self.acknowledged += range(first, first + said.length)
                        else:
                            self.acknowledged.append(said.seq)
                case Discharged(token=token):
                    self.discharged.append(token)
                case DischargeRefused(token=token, condition=condition, description=description):
                    self.discharge_refused[token] = condition
                    self.reasons[token] = description
                case Drained(receiver=receiver):
                    self.drained.append(receiver)
                case ScanAgain():
                    self._scan_again = True
                case Room(queue=queue):
                    self.rooms.append(queue.name)
                case StagePublished(token, count):
                    self.staged[token] = count
                case StageRefused(token, description):
                    self.refused[token] = description
                case Finished(token=token, count=count, refused=refused):
                    self.finished[token] = count
                    if refused:
                        self.reasons[token] = refused
