"""The plan of a run, drawn from its seed: length, applications, address settings, amount of trouble."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from legato.client.failover.contract import CONTRACTS
from legato.core.settings import DEFAULT_SETTINGS

TOPIC = "prices"
DURABLE = "subscription://trader/all"
SHARED = "subscription:///reds"
VISITS = "subscription:///visits"
CROWD = "volatile:///crowd"
LINE = "line"
"""A queue of messages that ask for nothing, which come many at once: they are runs."""
COLORS = ["red", "blue", "green"]
LENGTHS = (
    (0.6, (250, 600)),
    (0.25, (600, 1_500)),
    (0.12, (1_500, 4_500)),
    (0.025, (4_500, 9_000)),
    (0.005, (15_000, 30_000)),
)
"""Shares of runs, and between how many steps they have: many short ones, and some for what needs a long history."""
TROUBLES = (1, 3, 8, 20)
"""How often something bad happens in a run, about."""
TROUBLE_MOST = 0.02
TROUBLE_LEAST = 0.0005
KINDS = {
    "produce": 4,
    "consume": 6,
    "listen": 2,
    "transact": 4,
    "subscribe_alone": 2,
    "subscribe_together": 2,
    "subscribe_for_now": 1,
    "join_the_crowd": 1,
    "ask": 1,
    "answer": 2,
    "browse": 1,
}
"""What applications do, and how often there is one of them; see `applications` and `conversations`."""
LATER_KINDS = {
    "interrupt_transactions": 3,
    "interrupt_receiving": 3,
    "interrupt_sending": 1,
    "administer": 2,
    "visit": 2,
    "drain_by_ranges": 4,
    "publish_batches": 4,
    "perish": 4,
    "keep_house": 1,
}
"""Further ones, in a share of the runs; see `interrupting`, `administering`, `pipelines`, `perishing`."""
LISTENING_KINDS = ("subscribe_for_now", "join_the_crowd")
"""Those whose subscriptions last as long as they listen; see `conversations`."""
LINE_KINDS = ("pour", "sip")
"""Those who send to the line and receive from it; see `pouring`."""
FILLING_KIND = "fill"
"""Who sends in transactions to a queue that makes producers wait while it is full; see `applications`."""
TRANSACTING_KIND = "transact"
PIPELINE_KINDS = ("drain_by_ranges", "publish_batches")
ADMINISTRATOR = "administer"
COMPANIONS = ("produce", "ask", "browse")
"""What the second session of a connection is used for: nothing that receives from where the first one may."""
LATER = 0.5
"""The share of runs in which some of these take part."""
EDITION = 5
"""Of plans: 1 is what the first simulator drew, 2 has what came later, 3 closes groups, 4 pours into the topic, too, 5
fills queues in transactions, has brokers end links and administrators delete queues that are in use. A seed that found
something still stands for it with the plan of its edition."""
CONTRACT_NAMES = tuple(CONTRACTS)
CLIENTS_PER_STEP = 1 / 120
CLIENTS_BOUNDS = (3, 11)


class QueuePlan(msgspec.Struct, frozen=True):
    """A queue, or a topic for its subscriptions: its settings, and what its users do with it."""

    name: str
    settings: dict[str, Any] = {}
    selected: bool = False
    """Some consumers of it have selectors."""
    grouped: bool = False
    """Some messages are of a group."""
    ranked: bool = True
    """Messages and consumers have priorities, messages are put off."""
    repeated: bool = False
    """Messages have duplicate ids, and some are those of others."""

    @property
    def maximum_deliveries(self) -> int:
        """Deliveries before a message dies; 0: it never does."""
        return int(self.settings.get("maximum_deliveries", 0))

    @property
    def duplicate_window(self) -> int:
        """How many duplicate ids it remembers."""
        return int(self.settings.get("duplicate_window", DEFAULT_SETTINGS.duplicate_window))

    @property
    def dead_letters(self) -> str:
        """The pattern of where they go; empty: they are dropped."""
        return str(self.settings.get("dead_letter_queue", "DLQ.{address}"))

    @property
    def when_full(self) -> str:
        """What becomes of sends when it is full."""
        return str(self.settings.get("when_full", "page"))


class Plan(msgspec.Struct, frozen=True):
    """All of it; `steps` are events until the trouble ends."""

    steps: int
    trouble: float
    """How likely something bad happens at a step."""
    kinds: tuple[str, ...]
    contracts: tuple[str, ...]
    """Of the clients, in the same order: their failover contracts."""
    queues: tuple[QueuePlan, ...]
    topic: QueuePlan
    reconnect_timeout_s: float
    clocks_jump: bool
    disk_fills: bool
    bytes_late: bool = False
    """Whether the network brings things late, or closes one direction."""
    prunes: bool = False
    """Whether brokers forget what is past its retention every other second."""
    clocks_leap: bool = False
    """Whether clocks are set by days."""
    accompanied: bool = False
    """Whether some connections have a second session, which somebody else uses."""
    papers: bool = False
    """Whether brokers write what they write beside the store."""
    large: bool = False
    """Whether some messages are large, by a bound that is much lower than usual."""
    preempted: bool = False
    """Whether applications' threads run in the middle of what their I/O threads do."""
    run_min: int = 0
    """How many messages that come together are a run; 0: as many as usual."""
    silent: bool = False
    """Whether some consumers do not say what their applications have, so that they are given runs."""
    groups_close: bool = False
    """Whether some messages are the last of their group, which is another consumer's from then on."""
    showers: bool = False
    """Whether some of those that pour do so into the topic."""
    links_end: bool = False
    """Whether brokers end links by themselves, as of permissions that are withdrawn."""
    uploads: bool = False
    """Whether some of the large messages are sent out of files, piece by piece."""
    deletes: bool = False
    """Whether administrators delete queues that are in use."""

    def address(self, name: str) -> QueuePlan | None:
        """The plan of a queue or a subscription; None of dead letters and what else there is."""
        if name == LINE:
            return QueuePlan(LINE, ranked=False)
        if name in (DURABLE, SHARED, VISITS) or name.startswith("volatile://"):
            return self.topic
        return next((queue for queue in self.queues if queue.name == name), None)

    @property
    def filled(self) -> list[str]:
        """The queues that make producers wait while they are full."""
        return [queue.name for queue in self.queues if queue.when_full == "block"]

    @property
    def tables(self) -> list[dict[str, Any]]:
        """What brokers are configured with."""
        planned = [{"match": queue.name, **queue.settings} for queue in (*self.queues, self.topic)]
        return [{"match": "#", "maximum_deliveries": 0}, *planned]

    def limited(self, limits: dict[str, int]) -> list[dict[str, Any]]:
        """`tables`, with other bounds on the numbers of messages, by queue."""
        return [
            {**table, "max_messages": limits[table["match"]]} if table["match"] in limits else table
            for table in self.tables
        ]

    @property
    def dead_letters_of_listeners(self) -> str:
        """The queue of what dies in those subscriptions of the topic that end with their listeners; empty: none.

        Unlike durable ones they share it: their names, which brokers make up, are no part of its name.
        """
        return self.topic.dead_letters.format(address=TOPIC)

    @property
    def drained(self) -> list[str]:
        """Where messages may wait in the end, dead letters before what they came from is empty."""
        names = [queue.name for queue in self.queues] + [LINE for kind in self.kinds if kind == "pour"]
        for queue in self.queues:
            if queue.maximum_deliveries and queue.dead_letters:
                names.append(queue.dead_letters.format(address=queue.name))
            if queue.settings.get("expiry_queue"):
                names.append(queue.settings["expiry_queue"])
        visited = "visit" in self.kinds
        if self.topic.maximum_deliveries and self.topic.dead_letters:
            subscriptions = ["all", "reds", *(["visits"] if visited else [])]
            names += [self.topic.dead_letters.format(address=f"{TOPIC}.{name}") for name in subscriptions]
            if any(kind in LISTENING_KINDS for kind in self.kinds):
                # A subscription that does not last waits for its listener to come back, or has others: what was
                # presented to that one may die meanwhile, and lasts.
                names.append(self.dead_letters_of_listeners)
        return [*dict.fromkeys(names), SHARED, *([VISITS] if visited else [])]


def draw(seed: int, steps: int | None = None, *, edition: int = EDITION) -> Plan:
    """The plan of a seed.

    Args:
        steps: overrides its length, and nothing else.
        edition: what came later than that takes no part; see `EDITION`.
    """
    plan = _draw_first(seed, steps)
    if edition == 1:
        return plan
    plan = _add_later(plan, Random(f"later {seed}"))
    if edition == 2:
        return plan
    plan = msgspec.structs.replace(plan, groups_close=Random(f"groups {seed}").random() < 0.6)
    if edition == 3:
        return plan
    plan = msgspec.structs.replace(plan, showers=Random(f"showers {seed}").random() < 0.7)
    if edition == 4:
        return plan
    plan = _add_ends(_add_filling(plan, Random(f"filling {seed}")), Random(f"links {seed}"))
    plan = _add_deletions(plan, Random(f"deletions {seed}"))
    return _add_uploads(plan, Random(f"uploads {seed}"))


def _add_filling(plan: Plan, random: Random) -> Plan:
    """The plan, with clients that fill a queue in transactions where one has to wait for room."""
    if not plan.filled or random.random() < 0.2:
        return plan
    return _joined(plan, (FILLING_KIND,) * random.randint(1, 2), random)


def _add_ends(plan: Plan, random: Random) -> Plan:
    """The plan; in a share of the runs brokers end links, of transactions more often than they otherwise would."""
    if random.random() < 0.5:
        return plan
    plan = msgspec.structs.replace(plan, links_end=True)
    return _joined(plan, (TRANSACTING_KIND,) * random.randint(0, 2), random)


def _add_deletions(plan: Plan, random: Random) -> Plan:
    """The plan, in a share of the runs with an administrator who deletes queues; not with pipelines, which own some."""
    if random.random() < 0.7 or any(kind in PIPELINE_KINDS for kind in plan.kinds):
        return plan
    plan = msgspec.structs.replace(plan, deletes=True)
    if ADMINISTRATOR in plan.kinds:
        return plan
    return msgspec.structs.replace(
        plan, kinds=(*plan.kinds, ADMINISTRATOR), contracts=(*plan.contracts, CONTRACT_NAMES[0])
    )


def _add_uploads(plan: Plan, random: Random) -> Plan:
    """The plan, with large messages out of files in a share of the runs, also where it had no large ones."""
    large = plan.large or random.random() < 0.15
    return msgspec.structs.replace(plan, large=large, uploads=large and random.random() < 0.8)


def _joined(plan: Plan, kinds: tuple[str, ...], random: Random) -> Plan:
    """The plan, with further clients."""
    mixed = any(contract != CONTRACT_NAMES[0] for contract in plan.contracts)
    contracts = (random.choice(CONTRACT_NAMES) if mixed else CONTRACT_NAMES[0] for _ in kinds)
    return msgspec.structs.replace(plan, kinds=(*plan.kinds, *kinds), contracts=(*plan.contracts, *contracts))


def _add_later(plan: Plan, random: Random) -> Plan:
    """The plan, and what the first simulator did not know."""
    kinds: list[str] = []
    if random.random() < LATER:
        kinds = random.choices(list(LATER_KINDS), weights=list(LATER_KINDS.values()), k=random.randint(1, 4))
        while kinds.count("administer") > 1:
            kinds.remove("administer")
    remembers = "publish_batches" in kinds  # what a sink has published, for good
    papers = random.random() < 0.15
    bytes_late, prunes = random.random() < 0.25, random.random() < (0.6 if remembers else 0.35)
    later = msgspec.structs.replace(
        plan,
        kinds=(*plan.kinds, *kinds),
        # What is promised to who interrupts is said of this contract only.
        contracts=(*plan.contracts, *(CONTRACT_NAMES[0] for _ in kinds)),
        bytes_late=bytes_late,
        prunes=prunes,
        clocks_leap=prunes and random.random() < (0.8 if remembers else 0.5),
        accompanied=random.random() < 0.25,
        large=random.random() < 0.2,
        papers=papers,
        disk_fills=plan.disk_fills or (papers and random.random() < 0.6),
    )
    line = random.choices(LINE_KINDS, k=random.randint(0, 1)) if random.random() < 0.35 else None
    line_kinds = () if line is None else (*LINE_KINDS, *line)
    return msgspec.structs.replace(
        later,
        kinds=(*later.kinds, *line_kinds),
        contracts=(*later.contracts, *(CONTRACT_NAMES[0] for _ in line_kinds)),
        preempted=random.random() < 0.5,
        run_min=random.choice([1, 2]) if random.random() < 0.35 else 0,
        silent=random.random() < (0.3 if line is None else 0.7),
    )


def _draw_first(seed: int, steps: int | None) -> Plan:
    random = Random(f"plan {seed}")
    drawn = _length(random)
    random = Random(f"rest {seed}")
    queues = tuple(_queue(random, f"q{number}") for number in range(random.choice([1, 1, 2, 3])))
    length = steps or drawn
    low, high = CLIENTS_BOUNDS
    clients = min(max(int(length * CLIENTS_PER_STEP), low), high)
    kinds = _kinds(random, random.randint(low, clients))
    mixed = random.random() < 0.45
    contracts = tuple(random.choice(CONTRACT_NAMES) if mixed else CONTRACT_NAMES[0] for _ in kinds)
    trouble = min(max(random.choice(TROUBLES) / length, TROUBLE_LEAST), TROUBLE_MOST)
    topic = _topic(random)
    reconnect_timeout_s = random.choice([0, 0, 1, 5, 60])
    if any(queue.when_full == "block" for queue in queues):
        # What is kept for the dead for as long as close() waits for a confirmation keeps a queue full for too long.
        reconnect_timeout_s = min(reconnect_timeout_s, 5)
    return Plan(
        steps=length,
        trouble=trouble,
        kinds=kinds,
        contracts=contracts,
        queues=queues,
        topic=topic,
        reconnect_timeout_s=reconnect_timeout_s,
        clocks_jump=random.random() < 0.2,
        disk_fills=random.random() < 0.2,
    )


def _length(random: Random) -> int:
    chance = random.random()
    for share, (low, high) in LENGTHS:
        if chance < share:
            return random.randint(low, high)
        chance -= share
    return LENGTHS[0][1][0]


def _kinds(random: Random, number: int) -> tuple[str, ...]:
    """Somebody sends and somebody receives, in every run."""
    first = [random.choice(["produce", "transact"]), random.choice(["consume", "consume", "listen", "transact"])]
    rest = random.choices(list(KINDS), weights=list(KINDS.values()), k=max(number - 2, 0))
    alone = "subscribe_alone"
    while rest.count(alone) > 1:
        rest.remove(alone)
    return (*first, *rest)


def _queue(random: Random, name: str) -> QueuePlan:
    settings = _redelivery(random, 0.55)
    if random.random() < 0.15:
        settings["expiry_queue"] = f"EXP.{name}"
    if random.random() < 0.2:
        settings["exclusive"] = True
    if random.random() < 0.25:
        settings["max_messages"] = random.choice([1, 3, 10])
        settings["when_full"] = random.choice(["block", "block", "fail", "fail", "drop-oldest", "page"])
    selected, grouped, ranked = random.random() < 0.25, random.random() < 0.25, random.random() < 0.6
    repeated = random.random() < 0.4
    if random.random() < 0.3:
        settings["duplicate_window"] = random.choice([0, 1, 4])
    if random.random() < 0.1:
        settings["duplicate_detection"] = "message-id"
    return QueuePlan(name, settings, selected, grouped, ranked, repeated)


def _topic(random: Random) -> QueuePlan:
    settings = _redelivery(random, 0.3)
    if settings.get("dead_letter_queue") == "DLQ":
        # The copies of two subscriptions could not be told apart where both died.
        settings["dead_letter_queue"] = "DLQ.{address}"
    return QueuePlan(TOPIC, settings, ranked=random.random() < 0.6)


def _redelivery(random: Random, probability: float) -> dict[str, Any]:
    settings: dict[str, Any] = {"maximum_deliveries": 0}
    if random.random() < probability:
        settings["maximum_deliveries"] = random.choice([1, 2, 3, 3, 5])
        settings["dead_letter_queue"] = random.choice(["DLQ.{address}", "DLQ.{address}", "DLQ", ""])
    if random.random() < probability / 2:
        settings["redelivery_delay_s"] = random.choice([0.001, 0.2, 0.5])
        settings["redelivery_jitter"] = random.choice([0.0, 0.5])
        settings["redelivery_multiplier"] = random.choice([1.0, 2.0])
        settings["redelivery_delay_max_s"] = 4.0
        settings["redelivery_blocking"] = random.choice(["none", "none", "queue", "consumer", "group"])
    return settings
