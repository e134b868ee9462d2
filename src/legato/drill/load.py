"""The load of a drill: which clients there are, and what they send and receive."""

from enum import StrEnum

import msgspec


class Work(StrEnum):
    """What one client does."""

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


class Client(msgspec.Struct, frozen=True):
    """One client: a connection with one session.

    Args:
        name: of its records, and of the producer that it is.
        flow: the queue or topic that it sends to or receives from.
        topic: whether that is a topic.
        subscription: of a consumer of a topic, its durable subscription.
        shared: whether others share that.
        to: the queue that a forwarder sends to.
    """

    name: str
    work: Work
    flow: str
    topic: bool = False
    subscription: str = ""
    shared: bool = False
    to: str = ""

    @property
    def sends(self) -> bool:
        """Whether it starts a flow."""
        return self.work in (Work.SEND, Work.SEND_ASYNC, Work.SEND_TRANSACTED)


def clients_of(prefix: str) -> list[Client]:
    """One client of each kind, and two where they compete.

    Args:
        prefix: what the names of all queues, topics and subscriptions begin with.
    """

    def named(name: str, work: Work, flow: str, **more: object) -> Client:
        values = {"name": name, "work": work, "flow": prefix + flow, **more}
        return msgspec.convert(values, Client)

    return [
        named("auto-producer", Work.SEND_ASYNC, "auto"),
        named("auto-consumer", Work.AUTO, "auto"),
        named("listener-producer", Work.SEND_ASYNC, "listener"),
        named("listener-consumer", Work.LISTENER, "listener"),
        named("dups-ok-producer", Work.SEND, "dups-ok"),
        named("dups-ok-consumer", Work.DUPS_OK, "dups-ok"),
        named("client-producer", Work.SEND_ASYNC, "client"),
        named("client-consumer-1", Work.CLIENT, "client"),
        named("client-consumer-2", Work.CLIENT, "client"),
        named("individual-producer", Work.SEND, "individual"),
        named("individual-consumer", Work.INDIVIDUAL, "individual"),
        named("transacted-producer", Work.SEND_TRANSACTED, "transacted"),
        named("forwarder-1", Work.FORWARD, "transacted", to=f"{prefix}forwarded"),
        named("forwarder-2", Work.FORWARD, "transacted", to=f"{prefix}forwarded"),
        named("forwarded-consumer", Work.CLIENT, "forwarded"),
        named("topic-producer", Work.SEND_ASYNC, "topic", topic=True),
        named("subscriber", Work.AUTO, "topic", topic=True, subscription="alone"),
        named("subscriber-1", Work.CLIENT, "topic", topic=True, subscription="together", shared=True),
        named("subscriber-2", Work.CLIENT, "topic", topic=True, subscription="together", shared=True),
    ]


def java_clients_of(prefix: str) -> tuple[list[Client], list[str]]:
    """Python clients at the other ends of Java's, and the works of `legato.interop.DrillClients`."""
    clients = [
        Client("to-java-producer", Work.SEND_ASYNC, f"{prefix}to-java"),
        Client("to-java-transacted-producer", Work.SEND_ASYNC, f"{prefix}to-java-transacted"),
        Client("from-java-consumer", Work.AUTO, f"{prefix}from-java"),
    ]
    works = [
        f"client:java-client:{prefix}to-java",
        f"transacted:java-transacted:{prefix}to-java-transacted",
        f"subscribe:java:{prefix}topic",
        f"send:java-producer:{prefix}from-java",
    ]
    return clients, works
