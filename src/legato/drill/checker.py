"""The verdict over the clients' records: messages lost, done twice, flagged wrongly or reported falsely."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from legato.drill.letters import DeadLetter
from legato.drill.records import (
    DONE,
    MAYBE,
    REFUSED,
    STORED,
    TRYING,
    AgainLine,
    Consuming,
    Identity,
    Line,
    Producing,
    SeenLine,
    SentLine,
    SettledLine,
    read_records,
)

EXAMPLES_MAX = 5


@dataclass
class SentRecords:
    """Outcomes of the sends to one flow, as its producers were told."""

    stored: set[Identity] = field(default_factory=set)
    refused: set[Identity] = field(default_factory=set)
    unsure: set[Identity] = field(default_factory=set)
    resending: set[str] = field(default_factory=set)
    """Producers that do not number their messages: after a failover some come twice, and rightly so."""


@dataclass
class ReceivedRecords:
    """Messages and outcomes that the consumers of one subscription saw."""

    flow: str
    told: bool
    exactly_once: bool
    seen: Counter[Identity] = field(default_factory=Counter)
    unflagged: Counter[Identity] = field(default_factory=Counter)
    """Presentations that did not say that the message may have been seen before."""
    done: Counter[Identity] = field(default_factory=Counter)
    maybe: set[Identity] = field(default_factory=set)
    kills: list[Identity | None] = field(default_factory=list)
    """For each kill of a client that takes a message along: the furthest message that it had been given."""

    @property
    def arrived(self) -> set[Identity]:
        """Messages that need not come again."""
        return (self.done.keys() | self.maybe) if self.told else set(self.seen)


@dataclass
class Finding:
    """The violations of one subscription; all counts are of messages.

    Args:
        flow: the queue or topic that producers sent to.
        exactly_once: whether its consumers work in transactions.
        lost: the producer was told that they are stored, and nobody received them, or none who did could acknowledge.
        duplicated: acknowledged more than once, each time with success.
        wrong_flags: came again without saying so (promise 4).
        falsely_told: the producer was told that they are not stored, and they came; or nobody had sent them.
        again: came again, and said so, as they may.
        died: wait in a dead-letter queue, and no consumer had refused them.
        dead_lettered: wait in a dead-letter queue because consumers refused them, as they were to.
        taken_along: a client was killed while `receive()` returned them, acknowledged, as it does in AUTO and DUPS_OK.
    """

    subscription: str
    sent: int = 0
    received: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong_flags: int = 0
    falsely_told: int = 0
    died: int = 0
    again: int = 0
    dead_lettered: int = 0
    taken_along: int = 0
    exactly_once: bool = False
    flow: str = ""
    examples: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.duplicated or self.wrong_flags or self.falsely_told or self.died)


def judge_records(directory: Path, dead: frozenset[DeadLetter] = frozenset()) -> list[Finding]:
    """Verdict over all records of a directory, by subscription.

    Args:
        dead: messages that wait in dead-letter queues. One that was not to die is a complaint, of a finding of its own
            where nobody has records of that subscription.

    Raises:
        ValueError: a file is no record.
    """
    sent = sent_by_flow(directory)
    received: dict[str, ReceivedRecords] = {}
    for file in sorted(directory.glob("*.records")):
        head, lines = read_records(file)
        if isinstance(head, Consuming):
            found = received.setdefault(head.subscription, ReceivedRecords(head.flow, head.told, head.exactly_once))
            _add_received(found, head, lines)
    findings = {name: _judge(name, sent[found.flow], found, dead) for name, found in sorted(received.items())}
    for letter in sorted((letter for letter in dead if not letter.is_planned), key=str):
        _add_death(findings.setdefault(letter.subscription, Finding(letter.subscription, flow=letter.flow)), letter)
    return list(findings.values())


def sent_by_flow(directory: Path) -> defaultdict[str, SentRecords]:
    """Outcomes of sends by flow, from all records of a directory.

    Raises:
        ValueError: a file is no record.
    """
    sent: defaultdict[str, SentRecords] = defaultdict(SentRecords)
    for file in sorted(directory.glob("*.records")):
        head, lines = read_records(file)
        if isinstance(head, Producing):
            _add_sent(sent[head.flow], head, lines)
    return sent


def _add_sent(sent: SentRecords, head: Producing, lines: Iterable[Line]) -> None:
    """Add a producer's sends; one without an outcome may have arrived, as its producer was killed."""
    sets = {STORED: sent.stored, REFUSED: sent.refused}
    for line in lines:
        if isinstance(line, SentLine):
            sets.get(line.outcome, sent.unsure).add(Identity(head.producer, line.number))
    if not head.numbered:
        sent.resending.add(head.producer)


def _add_received(received: ReceivedRecords, head: Consuming, lines: Iterable[Line]) -> None:
    trying: set[Identity] = set()
    last: Identity | None = None
    for line in lines:
        match line:
            case SeenLine(message=message, redelivered=redelivered):
                if last is None or last.producer != message.producer or last.number < message.number:
                    last = message
                received.seen[message] += 1
                received.unflagged[message] += not redelivered
            case SettledLine(word=word, message=message):
                if word == TRYING:
                    trying.add(message)
                    continue
                trying.discard(message)
                if word == DONE:
                    received.done[message] += 1
                elif word == MAYBE:
                    received.maybe.add(message)
            case AgainLine():
                received.maybe |= trying
                trying.clear()
                if head.takes_along:
                    received.kills.append(last)
    received.maybe |= trying


def _taken_along(lost: set[Identity], sent: SentRecords, kills: Iterable[Identity | None]) -> set[Identity]:
    """Of the lost messages, those that a killed client took along: for each kill the one that it was to be given next.

    Messages of a producer come in order, so that is the first stored one behind the furthest that the client had been
    given. Any other loss is a loss.
    """
    taken: set[Identity] = set()
    for last in kills:
        producers = {last.producer} if last is not None else {message.producer for message in sent.stored}
        for producer in producers:
            after = last.number if last is not None else 0
            behind = {each for each in sent.stored if each.producer == producer and each.number > after} - taken
            if behind and (next_one := min(behind)) in lost:
                taken.add(next_one)
                break
    return taken


def _add_death(finding: Finding, letter: DeadLetter) -> None:
    finding.died += 1
    if finding.died <= EXAMPLES_MAX:
        identity = letter.identity
        what = f"message {identity.number} of {identity.producer}" if identity else "a message that is no producer's"
        finding.examples.append(
            f"died: {what} in {letter.subscription} is a dead letter ({letter.why}), and no consumer was to refuse it"
        )


def _judge(subscription: str, sent: SentRecords, received: ReceivedRecords, letters: frozenset[DeadLetter]) -> Finding:
    # What dies in the queue that producers send to cannot come out at the other end of its way.
    places = {subscription, received.flow}
    dead = {letter.identity for letter in letters if letter.subscription in places and letter.identity is not None}
    planned = {letter.identity for letter in letters if letter.subscription == subscription and letter.is_planned}
    seen = received.seen.keys()
    exact = {message for message in seen if message.producer not in sent.resending}
    known = sent.stored | sent.refused | sent.unsure
    wrong = {
        "lost": sent.stored - received.arrived - dead,
        "duplicated": {message for message in exact if received.done[message] > 1},
        "wrong_flags": {message for message in exact if received.unflagged[message] > 1},
        "falsely_told": (seen & sent.refused) | (seen - known),
    }
    finding = Finding(subscription, len(sent.stored), len(seen), exactly_once=received.exactly_once, flow=received.flow)
    finding.dead_lettered = len((sent.stored & planned) - received.arrived)
    finding.again = sum(times > 1 for times in received.seen.values())
    taken_along = _taken_along(wrong["lost"], sent, received.kills)
    wrong["lost"] -= taken_along
    finding.taken_along = len(taken_along)
    for what, messages in wrong.items():
        setattr(finding, what, len(messages))
        for message in sorted(messages)[:EXAMPLES_MAX]:
            finding.examples.append(
                f"{what.replace('_', ' ')}: message {message.number} of {message.producer} in {subscription} "
                f"(presented {received.seen[message]} times, {received.unflagged[message]} of them without the flag, "
                f"acknowledged {received.done[message]} times)"
            )
    return finding
