"""The load of a drill: its clients, and the addresses that they send to and receive from."""

from enum import StrEnum

import msgspec


class Work(StrEnum):
    """Work of one client."""

    SEND = "send"
    """Sends and waits for each confirmation."""
    SEND_ASYNC = "send-async"
    """Sends without waiting; completion listeners hear what became of each."""
    SEND_TRANSACTED = "send-transacted"
    AUTO = "auto"
    LISTENER = "listener"
    DUPS_OK = "dups-ok"
    CLIENT = "client"
    INDIVIDUAL = "individual"
    FORWARD = "forward"
    """Receives, sends on to another queue, and commits."""
    CANCEL = "cancel"
    """Forwards, by asyncio; every third call is cancelled."""
    INTERRUPT = "interrupt"
    """Forwards, in its process's main thread; a signal handler interrupts some of its calls."""
    INTERRUPT_CLIENT = "interrupt-client"
    """Likewise, and acknowledges in CLIENT mode."""
    MOVE = "move"
    """An administrator: moves what waits in a queue to another."""
    PURGE = "purge"
    """An administrator: empties a queue that nobody receives from."""
    REISSUE = "reissue"
    """An administrator: has dead letters delivered again."""
    PICKY = "picky"
    """Receives one message in each transaction, and rolls some back: once, or until the broker gives up."""
    STAGES = "stages"
    """A service of flows: three stages, each of which writes a row into its database."""


class Trait(StrEnum):
    """Special traits of a flow's messages."""

    PLAIN = "plain"
    PRIORITIES = "priorities"
    GROUPS = "groups"
    DELAYED = "delayed"
    LARGE = "large"
    """More than a megabyte, sent in parts; one for many others."""
    THOUSANDS = "thousands"
    """Sent, received and sent on in transactions of more than a thousand."""
    COLOURED = "coloured"
    """With a property that selectors choose by."""
    STAGED = "staged"
    """JSON, which begins flows; what these send at their ends has the identity of what began them."""
    STREAMED = "streamed"
    """Goes through a Spark job, and comes out of it as it was sent."""


class Client(msgspec.Struct, frozen=True):
    """One client: a connection with one session.

    Args:
        name: of its records, and of the producer that it is.
        flow: the queue or topic that it sends to or receives from.
        process: which process it is part of.
        topic: whether that is a topic.
        subscription: of a consumer of a topic, its durable subscription.
        shared: whether others share that.
        to: the queue that a forwarder sends to.
        of: for who collects what forwarders sent, the flow that they had it from.
        sent_to: where its messages were sent to before an administrator, a flow or a Spark job moved them on.
        trait: what its messages are like.
        selector: which messages a consumer wants.
        asyncio: whether it is a client for asyncio.
    """

    name: str
    work: Work
    flow: str
    process: str
    topic: bool = False
    subscription: str = ""
    shared: bool = False
    to: str = ""
    of: str = ""
    sent_to: str = ""
    trait: Trait = Trait.PLAIN
    selector: str = ""
    asyncio: bool = False

    @property
    def sends(self) -> bool:
        """Whether it starts a flow."""
        return self.work in (Work.SEND, Work.SEND_ASYNC, Work.SEND_TRANSACTED)

    @property
    def collects(self) -> bool:
        """Whether it receives what came out of flows, or of a Spark job, with the identity of what went in."""
        return bool(self.sent_to) and self.trait in (Trait.STAGED, Trait.STREAMED)

    @property
    def receives_from(self) -> str:
        """Source of a consumer: its queue, or its topic's subscription."""
        if self.collects:
            return f"{self.sent_to}/{END_TO_END}"
        return f"{self.flow}/{self.subscription}" if self.topic else self.flow


FORWARDS = (Work.FORWARD, Work.CANCEL, Work.INTERRUPT)
ADMINISTERS = (Work.MOVE, Work.PURGE, Work.REISSUE)

END_TO_END = "end-to-end"
"""What the records call the way of a message through a forwarder to who collects its results."""
PICKY_FLOW = "picky"
STAGED_FLOW = "flows"
STREAMED_FLOW, STREAMED_TO = "spark", "spark-out"
"""From where to where the Spark job of a drill streams."""
COLOURS = ("red", "blue")


def clients_of(prefix: str, *, flows: bool = True) -> list[Client]:
    """One client of each kind, and two where they compete, in two processes then.

    Args:
        prefix: what the names of all queues, topics and subscriptions begin with.
        flows: whether services of flows can have a database here.
    """
    clients = [
        *_modes(prefix),
        *_topics(prefix),
        *_traits(prefix),
        *_asyncio(prefix),
        *_administered(prefix),
        *_interrupted(prefix),
    ]
    return [*clients, *_staged(prefix)] if flows else clients


def _modes(prefix: str) -> list[Client]:
    clients = []
    for mode, sending in (
        (Work.AUTO, Work.SEND_ASYNC),
        (Work.LISTENER, Work.SEND_ASYNC),
        (Work.DUPS_OK, Work.SEND),
        (Work.INDIVIDUAL, Work.SEND),
    ):
        clients += [
            Client(f"{mode}-producer", sending, f"{prefix}{mode}", "producers-1"),
            Client(f"{mode}-consumer", mode, f"{prefix}{mode}", "consumers-1"),
        ]
    return [
        *clients,
        Client("client-producer", Work.SEND_ASYNC, f"{prefix}client", "producers-1"),
        Client("client-consumer-1", Work.CLIENT, f"{prefix}client", "consumers-1"),
        Client("client-consumer-2", Work.CLIENT, f"{prefix}client", "consumers-2"),
        Client("transacted-producer", Work.SEND_TRANSACTED, f"{prefix}transacted", "producers-1"),
        *_forwarding(prefix, "transacted", ("forwarder-1", "forwarder-2"), "forwarded", "consumers-1"),
    ]


def _forwarding(
    prefix: str,
    flow: str,
    names: tuple[str, ...],
    to: str,
    process: str,
    *,
    asyncio: bool = False,
    work: Work = Work.FORWARD,
    trait: Trait = Trait.PLAIN,
) -> list[Client]:
    """Forwarders, and who collects what they sent, in the same process."""
    source, target = f"{prefix}{flow}", f"{prefix}{to}"
    forwarders = [Client(name, work, source, process, to=target, asyncio=asyncio, trait=trait) for name in names]
    return [*forwarders, Client(f"{to}-consumer", Work.CLIENT, target, process, of=source, asyncio=asyncio)]


def _topics(prefix: str) -> list[Client]:
    topic = f"{prefix}topic"
    return [
        Client("topic-producer", Work.SEND_ASYNC, topic, "producers-2", topic=True),
        Client("subscriber", Work.AUTO, topic, "consumers-2", topic=True, subscription="alone"),
        Client("subscriber-1", Work.CLIENT, topic, "consumers-1", topic=True, subscription="together", shared=True),
        Client("subscriber-2", Work.CLIENT, topic, "consumers-2", topic=True, subscription="together", shared=True),
    ]


def _traits(prefix: str) -> list[Client]:
    def pair(trait: Trait, sending: Work, receiving: Work) -> list[Client]:
        return [
            Client(f"{trait}-producer", sending, f"{prefix}{trait}", "producers-2", trait=trait),
            Client(f"{trait}-consumer", receiving, f"{prefix}{trait}", "consumers-2", trait=trait),
        ]

    picky, coloured = f"{prefix}{PICKY_FLOW}", f"{prefix}{Trait.COLOURED}"
    return [
        *pair(Trait.PRIORITIES, Work.SEND_ASYNC, Work.CLIENT),
        *pair(Trait.DELAYED, Work.SEND, Work.INDIVIDUAL),
        *pair(Trait.LARGE, Work.SEND, Work.INDIVIDUAL),
        *pair(Trait.GROUPS, Work.SEND_ASYNC, Work.CLIENT),
        Client("groups-consumer-1", Work.CLIENT, f"{prefix}{Trait.GROUPS}", "consumers-1", trait=Trait.GROUPS),
        Client("coloured-producer", Work.SEND_ASYNC, coloured, "producers-2", trait=Trait.COLOURED),
        *(
            Client(
                f"{colour}-consumer",
                Work.INDIVIDUAL,
                coloured,
                "consumers-2",
                trait=Trait.COLOURED,
                selector=f"colour = '{colour}'",
            )
            for colour in COLOURS
        ),
        Client("picky-producer", Work.SEND, picky, "producers-2"),
        Client("picky-consumer", Work.PICKY, picky, "consumers-2"),
        Client("thousands-producer", Work.SEND_TRANSACTED, f"{prefix}thousands", "producers-2", trait=Trait.THOUSANDS),
        *_forwarding(
            prefix,
            "thousands",
            ("thousands-forwarder",),
            "thousands-forwarded",
            "consumers-2",
            trait=Trait.THOUSANDS,
        ),
    ]


def _administered(prefix: str) -> list[Client]:
    source, target, purged, picky = (f"{prefix}{flow}" for flow in ("moved", "moved-to", "purged", PICKY_FLOW))
    return [
        Client("moved-producer", Work.SEND_ASYNC, source, "producers-1"),
        Client("mover", Work.MOVE, source, "administrators", to=target),
        Client("moved-consumer", Work.INDIVIDUAL, target, "consumers-1", sent_to=source),
        Client("purged-producer", Work.SEND_ASYNC, purged, "producers-1"),
        Client("purger", Work.PURGE, purged, "administrators"),
        Client("reissuer", Work.REISSUE, picky, "administrators"),
    ]


def _staged(prefix: str) -> list[Client]:
    source, target = f"{prefix}{STAGED_FLOW}", f"{prefix}{STAGED_FLOW}-ended"
    return [
        Client("flows-producer", Work.SEND, source, "producers-2", trait=Trait.STAGED),
        Client("flows-service", Work.STAGES, source, "flows-1", to=target),
        Client("flows-consumer", Work.CLIENT, target, "consumers-2", sent_to=source, trait=Trait.STAGED),
    ]


def _interrupted(prefix: str) -> list[Client]:
    """Clients that are interrupted, each in a process of its own: signal handlers run in the main thread only."""
    forwarding = _forwarding(
        prefix, "interrupted", ("interrupted-forwarder",), "interrupted-forwarded", "interrupted", work=Work.INTERRUPT
    )
    return [
        Client("interrupted-producer", Work.SEND_TRANSACTED, f"{prefix}interrupted", "producers-1"),
        *forwarding,
        Client("interrupted-client-producer", Work.SEND_ASYNC, f"{prefix}interrupted-client", "producers-1"),
        Client(
            "interrupted-client-consumer", Work.INTERRUPT_CLIENT, f"{prefix}interrupted-client", "interrupted-client"
        ),
    ]


def _asyncio(prefix: str) -> list[Client]:
    clients = []
    for mode, sending in ((Work.AUTO, Work.SEND), (Work.CLIENT, Work.SEND_ASYNC)):
        flow = f"{prefix}asyncio-{mode}"
        clients += [
            Client(f"asyncio-{mode}-producer", sending, flow, "producers-2", asyncio=True),
            Client(f"asyncio-{mode}-consumer", mode, flow, "consumers-2", asyncio=True),
        ]
    flow = "asyncio-transacted"
    return [
        *clients,
        Client(f"{flow}-producer", Work.SEND_TRANSACTED, f"{prefix}{flow}", "producers-2", asyncio=True),
        *_forwarding(prefix, flow, ("asyncio-forwarder",), "asyncio-forwarded", "consumers-2", asyncio=True),
        Client("cancelled-producer", Work.SEND_TRANSACTED, f"{prefix}cancelled", "producers-2", asyncio=True),
        *_forwarding(
            prefix,
            "cancelled",
            ("cancelling-forwarder",),
            "cancelled-forwarded",
            "consumers-2",
            asyncio=True,
            work=Work.CANCEL,
        ),
    ]


def spark_clients_of(prefix: str) -> list[Client]:
    """Producer to the Spark job, and consumer of its results."""
    source, target = f"{prefix}{STREAMED_FLOW}", f"{prefix}{STREAMED_TO}"
    return [
        Client("spark-producer", Work.SEND_ASYNC, source, "producers-1", trait=Trait.STREAMED),
        Client("spark-transacted-producer", Work.SEND_TRANSACTED, source, "producers-2", trait=Trait.STREAMED),
        Client("spark-consumer", Work.CLIENT, target, "consumers-1", sent_to=source, trait=Trait.STREAMED),
    ]


def java_clients_of(prefix: str) -> tuple[list[Client], list[str]]:
    """Python clients at the other ends of Java's, and the works of `legato.interop.DrillClients`."""
    clients = [
        Client("to-java-producer", Work.SEND_ASYNC, f"{prefix}to-java", "producers-1"),
        Client("to-java-transacted-producer", Work.SEND_ASYNC, f"{prefix}to-java-transacted", "producers-1"),
        Client("from-java-consumer", Work.AUTO, f"{prefix}from-java", "consumers-1"),
    ]
    works = [
        f"client:java-client:{prefix}to-java",
        f"transacted:java-transacted:{prefix}to-java-transacted",
        f"subscribe:java:{prefix}topic",
        f"send:java-producer:{prefix}from-java",
    ]
    return clients, works
