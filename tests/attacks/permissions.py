"""Doing what one may not, and being somebody else."""

from __future__ import annotations

import signal
import time
from typing import Any

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, ValueBody, encode_message
from legato.amqp.codec.types import UInt
from legato.amqp.engine.events import Closed
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.amqp.engine.sasl import AMQP_HEADER
from legato.amqp.engine.terminus import Terminus
from legato.client import ConnectionFactory, Topic
from legato.ha.lock import StoreLock
from legato.server.identity.users_file import changing
from tests.attacks.ground import PASSWORD, Ground, holds
from tests.attacks.register import attack
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.raw import OPEN, beginning, frame, opening, receiving

A_BEGIN, A_CLOSE = b"\x00\x53\x11", b"\x00\x53\x18"
SOLE = "sole-connection-for-container"


def refused(peer: AmqpPeer, address: str | None, *, receives: bool = False, **options: object) -> bool:
    """Whether a link is refused."""
    try:
        if receives:
            peer.receiver(address or "", 1, **options)  # type: ignore[arg-type]
        else:
            peer.sender(address, **options)  # type: ignore[arg-type]
    except Refused:
        return True
    return False


@attack(4, "list, read, move, purge, delete and read in bulk what is another's", quick=True)
def no_permission(ground: Ground) -> None:
    """An ordinary user takes salaries, and the broker."""
    root = ground.peer("root")
    link = root.sender("salaries")
    for _ in range(5):
        holds(root.send(link, text(b"secret")) == ACCEPTED, "the owner is refused")
    peer = ground.peer()
    manager = Manager(peer)
    for options in ({}, {"mode": "copy"}):
        holds(refused(peer, "salaries", receives=True, **options), "salaries can be read")
    holds(refused(peer, "salaries") and refused(peer, "queue://salaries"), "salaries can be sent to")
    relay = peer.sender(None)
    for to in ("salaries", "queue://salaries", names.STATUS_ADDRESS):
        message = encode_message(header=Header(), properties=Properties(to=to), body=DataBody(b"x"))
        holds(isinstance(peer.send(relay, message), Rejected), f"the relay reaches {to}")
    requests: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("MOVE", "salaries", {"to": "play.mine"}),
        ("MOVE", "play.mine", {"to": "salaries"}),
        ("PURGE", "salaries", {}),
        ("DELETE", "salaries", {}),
        ("PAUSE", "salaries", {}),
        ("RESUME", "salaries", {}),
        ("CREATE", "mine", {}),
        ("TICKET", "salaries", {"type": "assignment"}),
        ("OPEN", "", {"type": "assignment", "subscription": "s", "address": "salaries"}),
        ("SWITCHOVER", "", {"type": "broker"}),
        ("RELOAD", "", {"type": "broker"}),
        ("UPDATE", "", {"type": "broker", "heartbeat_interval_s": 100.0}),
        ("FORGET", "shop%2Fnightly", {"type": "stage"}),
    )
    for operation, name, arguments in requests:
        status, _ = manager.ask(operation, name, **{"type": "queue", **arguments})
        holds(status == 403, f"{operation} of {name or 'the broker'} was answered with {status}")
    holds(Manager(root).depth("salaries") == 5, "messages are gone")


@attack(4, "publish a batch of another's sink", quick=True)
def poisoned_sink(ground: Ground) -> None:
    """With batch 10^9 of the sink `nightly-etl` published, its own batches were answered 200 and lost."""
    ann, mallory = ground.manager("ann"), ground.manager("mallory")
    mallory.ask("PUBLISH", "nightly-etl", type="stage", batch=10**9, stages="")
    mallory.ask("PUBLISH", "ann/nightly-etl", type="stage", batch=10**9, stages="")
    for batch in (0, 1):
        holds(ann.ask("PUBLISH", "nightly-etl", type="stage", batch=batch, stages="")[0] == 200, "not published")
    sinks = {row["name"]: row["last_batch"] for row in ann.ask("QUERY", type="stage")[1]["results"]}
    holds(sinks.get("ann/nightly-etl", 10**9) < 2, f"the sink's batches are others': {sinks}")


@attack(5, "number messages as another's producer", quick=True)
def poisoned_producer(ground: Ground) -> None:
    """Number 2^61, and the producer's next messages were accepted and dropped."""
    ann, bob = ground.peer("ann"), ground.peer("bob")
    hers = ann.sender("shop.q", properties={names.PRODUCER_ID: "flow"})
    ann.send(hers, text(b"1"), tag=(1).to_bytes(8, "big"))
    for name in ("flow", "ann/flow"):
        his = bob.sender("shop.q", properties={names.PRODUCER_ID: name})
        bob.send(his, text(b"poison"), tag=(1 << 61).to_bytes(8, "big"))
    for number in range(2, 6):
        ann.send(hers, text(b"%d" % number), tag=number.to_bytes(8, "big"))
    holds(Manager(ann).depth("shop.q") == 7, "messages that were accepted are not there")


@attack(5, "open another's container, and end its subscription", quick=True)
def stolen_container(ground: Ground) -> None:
    """With close-existing the other was cut off, and its durable subscription was the thief's."""
    factory = ConnectionFactory(f"amqp://127.0.0.1:{ground.port}", client_id="shop")
    with factory.create_connection("ann", PASSWORD) as ann:
        session = ann.create_session()
        session.create_durable_consumer(Topic("shop.news"), "mine").close()
        thief = ground.logged_in("bob")
        policy = {"sole-connection-enforcement-policy": UInt(1)}
        thief.send(opening("shop", *[None] * 6, [SOLE], policy))
        thief.hear_until(b"\x00\x53\x11")
        thief.close()
        with factory.create_connection("bob", PASSWORD) as bob:
            other = bob.create_session()
            other.create_durable_consumer(Topic("shop.news"), "mine").close()
            other.unsubscribe("mine")
        session.create_producer(Topic("shop.news")).send(session.create_text_message("for ann"))
        holds(not ann.failovers, "ann was cut off")
        ann.start()
        holds(session.create_durable_consumer(Topic("shop.news"), "mine").receive(10), "the subscription is gone")


@attack(15, "everything as a backup", quick=True)
def backup(ground: Ground) -> None:
    """What is looked at is the end of a link that the peer does not choose."""
    holder = StoreLock(ground.store).holder()
    assert holder is not None
    peer = AmqpPeer(ground.port, user="$backup", password=holder.token)
    source = Terminus(address=names.HEARTBEAT_ADDRESS, kind="source")
    for target in ("play.q", None, names.MANAGEMENT_ADDRESS):
        link = peer.session.sender(f"to {target}", source=source, target=Terminus(address=target, kind="target"))
        try:
            peer._attached(link)
        except Refused:
            continue
        holds(False, f"a backup sends to {target}")
    for address in ("good", names.STATUS_ADDRESS, names.MANAGEMENT_ADDRESS):
        holds(refused(peer, address, receives=True), f"a backup receives from {address}")
    holds(not refused(peer, names.HEARTBEAT_ADDRESS, receives=True), "a backup cannot do what it is to do")
    peer.drop()


@attack(16, "stay after the user was removed", quick=True)
def removed(ground: Ground) -> None:
    """Users are read again without bob: he is disconnected within a second."""
    bob, ann = ground.peer("bob"), ground.peer("ann")
    link = bob.sender("shop.q")
    with changing(ground.store / "users") as content:
        gone = content.users.pop("bob")
    try:
        ground.server.signal(signal.SIGHUP)
        began = time.monotonic()
        closed = bob.expect(Closed)
        took_s = time.monotonic() - began
        holds(closed.condition == "amqp:unauthorized-access", f"closed with {closed.condition}")
        holds(took_s < 30, f"it took {took_s:.1f} s")
        holds(ann.send(ann.sender("shop.q"), text(b"x")) == ACCEPTED, "ann was thrown out too")
        try:
            ground.peer("bob")
        except Refused:
            pass
        else:
            holds(False, "bob can log in")
        del link
    finally:
        with changing(ground.store / "users") as content:
            content.users["bob"] = gone
        before = ground.log.count("were read again")
        ground.server.signal(signal.SIGHUP)
        while ground.log.count("were read again") == before:
            time.sleep(0.02)


@attack(23, "a message that says it is another's", quick=True)
def forged_user(ground: Ground) -> None:
    """JMSXUserID of somebody else, in messages of any size, on links, over the relay and in transactions."""
    bob = ground.peer("bob")
    for relay in (False, True):
        link = bob.sender(None if relay else "shop.q")
        coordinator = bob.coordinator()
        for size in (10, 2_000_000):
            properties = Properties(message_id="m", user_id=b"ann", to="shop.q" if relay else None)
            message = encode_message(header=Header(durable=True), properties=properties, body=DataBody(b"x" * size))
            outcome = bob.send(link, message)
            holds(isinstance(outcome, Rejected), f"a message of {size} bytes that says it is ann's: {outcome}")
        txn_id = bob.declare(coordinator)
        bob.send(link, message, txn_id=txn_id)
        holds(isinstance(bob.discharge(coordinator, txn_id), Rejected), "a transaction with it commits")


@attack(27, "answers of the management address to any address", quick=True)
def deputy(ground: Ground) -> None:
    """The broker's own answers go only where who asks may send."""
    mallory, root = ground.peer(), ground.peer("root")
    root.sender("salaries")
    request = encode_message(
        header=Header(),
        properties=Properties(message_id="1", reply_to="salaries"),
        application_properties={"operation": "QUERY"},
        body=ValueBody(None),
    )
    owner = Manager(root)
    before = owner.depth("salaries")
    mallory.send(mallory.sender(names.MANAGEMENT_ADDRESS), request)
    Manager(mallory).ask("QUERY")
    holds(owner.depth("salaries") == before, "an answer was written to where its asker may not send")


@attack(27, "queues that nobody can consume from, containers without a name", quick=True)
def cut_names(ground: Ground) -> None:
    """A NUL ends an address on a link, and not in a message; a container id was cut there, and an empty one taken."""
    mallory = ground.peer()
    relay = mallory.sender(None)
    for to in ("play.\0", "\0", "play.q\0x"):
        message = encode_message(header=Header(), properties=Properties(to=to), body=DataBody(b"x"))
        holds(isinstance(mallory.send(relay, message), Rejected), f"a queue is called {to!r}")
    for container in (None, "", "abc\0def"):
        raw = ground.logged_in()
        raw.send(AMQP_HEADER, frame(OPEN, [container, None]), beginning())
        heard = raw.hear_until(A_CLOSE, A_BEGIN)
        holds(A_CLOSE in heard, f"the container id {container!r} is taken")


@attack(27, "$status and $heartbeat for everybody", quick=True)
def open_views(ground: Ground) -> None:
    """Who may look at the broker is a permission."""
    good = ground.peer("good")
    for address in (names.STATUS_ADDRESS, names.HEARTBEAT_ADDRESS):
        holds(refused(good, address, receives=True), f"{address} answers who may not look")
    holds(Manager(good).ask("READ", type="broker")[0] == 403, "the management address does")
    raw = ground.logged_in("good")
    raw.send(opening(ground.container()), receiving(0, names.STATUS_ADDRESS))
    holds(b"unauthorized-access" in raw.hear_until(b"\x00\x53\x16"), "a raw attach does")


@attack(27, "take over what another user's name begins with", quick=True)
def another_realm(ground: Ground) -> None:
    """`ann/shop`, typed by bob, is a container of bob's; ann's temporary queue is hers."""
    ann = ground.peer("ann", "shop")
    source = Terminus(address="topic://shop.news", kind="source", durable=2, expiry_policy="never")
    link = ann.session.receiver("own", source=source)
    ann._attached(link)
    for container in ("ann/shop", "ann%2Fshop", "shop"):
        bob = ground.peer("bob", container)
        lookup = bob.session.receiver("own", source=Terminus(kind="none"))
        try:
            bob._attached(lookup)
        except Refused:
            continue
        holds(False, f"bob found ann's subscription as {container}")
