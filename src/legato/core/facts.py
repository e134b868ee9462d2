"""Facts: every durable event, in one vocabulary for the store, the backup and Spark.

1. A fact is a past participle and small: no bodies (they travel beside the facts, in `Batch.bodies`).
2. Facts never change meaning. A new field goes last, with a default; a new fact takes a new tag.
3. Queues, producers and consumers are named by the numbers that `QueueCreated`, `ProducerRegistered` and
   `ConsumerAttached` gave them. A number is never given twice in the life of a store.
"""

from enum import IntEnum

import msgspec


class Kind(IntEnum):
    """Kinds of the store's numbered queues."""

    QUEUE = 0
    TOPIC = 1
    """Keeps bodies only: one for all copies in its subscriptions."""
    SUBSCRIPTION = 2
    """A queue of copies; the sequence of a copy is that of its body in the topic."""
    SCHEDULE = 3
    """What is to be delivered later; a sequence is a due time."""
    ASSIGNMENT = 4
    """What a subscription of a pipeline took from a queue, numbered without gaps; its `topic` is that queue."""


class Fact(msgspec.Struct, array_like=True, gc=False):
    """Base of all facts; encoded as a msgpack array whose first element is the tag."""


class EpochBegan(Fact, tag=1):
    """A broker became the primary. The first fact of its epoch."""

    broker: str


class ServingBegan(Fact, tag=45):
    """The primary of this epoch answers clients from here on: what lies before it since the last one is an outage.

    `cause` is how it came to serve: `start` if nobody had served just before, `crash`, or why the last primary let go.
    `detection_us` is how long before its epoch it had lost the last primary; 0 if the lock was the first sign.
    """

    at_us: int
    cause: str
    detection_us: int = 0


class EpochEnded(Fact, tag=2):
    """A primary stopped cleanly. Absent after a crash."""

    reason: str


class QueueCreated(Fact, tag=3):
    """A queue, topic or subscription came to be. `container` is whose it is: of a temporary one and of no-local."""

    queue: int
    name: str
    kind: int = 0
    topic: int = 0
    selector: str = ""
    no_local: bool = False
    container: str = ""
    temporary: bool = False
    shared: bool = False


class ProducerRegistered(Fact, tag=4):
    """A producer that numbers its messages (promise 1) was seen for the first time."""

    producer: int
    name: str


class ProducerForgotten(Fact, tag=5):
    """A numbered producer closed for good, or was not seen for the retention time."""

    producer: int
    name: str


class ConsumerAttached(Fact, tag=6):
    """A consumer began to receive from a queue; `container` is its connection's AMQP container id.

    `link` is the name of its link: an application that was cut off comes back under both names.
    """

    consumer: int
    queue: int
    container: str
    link: str = ""


class QueueDeleted(Fact, tag=7):
    """A queue, topic or subscription is gone, and with it the `waiting` messages in it."""

    queue: int
    name: str
    waiting: int = 0


class QueuePaused(Fact, tag=8):
    """Dispatching from a queue was stopped by an administrator, or goes on."""

    queue: int
    paused: bool


class QueueGrouped(Fact, tag=9):
    """The first message with a group id came: from here on the queue looks for group ids."""

    queue: int


class MessageStored(Fact, tag=10):
    """A message became part of a queue, at the place `seq`. Its body is in the batch's `bodies`.

    `producer` and `number` are 0 unless the producer numbers its messages; `txn` is empty outside transactions;
    `origin` is `(queue, seq)` where the broker itself moved it from (a dead letter), else None. `expires_us` is 0
    if it never expires. The highest byte of `seq` is the lane (`core.lanes`).
    """

    queue: int
    seq: int
    size: int
    message_id: str
    producer: int = 0
    number: int = 0
    txn: bytes = b""
    origin: tuple[int, int] | None = None
    expires_us: int = 0


class MessageConsumed(Fact, tag=11):
    """A message was acknowledged (or its transaction committed) and left its queue.

    `delivered_us` is when it was handed to the consumer's link; `attempt` counts that delivery, from 1.
    """

    queue: int
    seq: int
    consumer: int
    delivered_us: int
    attempt: int
    txn: bytes = b""


class MessagesStored(Fact, tag=48):
    """`count` messages of one sender, a run, became neighbours in a queue, from `seq` on without gaps: so many
    `MessageStored`, of which this says what differs (`core.fact_runs` takes it apart).

    Their bytes are in the batch's `bodies`, as one. `ends` has where each ends there, `ids` the message ids, which are
    ASCII and of equal length. `producer` is 0 unless it numbers its messages: the first has `number`, and each other
    the next one. None expires, is part of a transaction, or was moved here.
    """

    queue: int
    seq: int
    count: int
    ends: bytes
    """`count` big-endian u32."""
    ids: bytes
    producer: int = 0
    number: int = 0


class MessagesConsumed(Fact, tag=49):
    """`count` neighbours, from `seq` on, that one consumer was handed together at its first attempt were acknowledged
    and left their queue: so many `MessageConsumed`."""

    queue: int
    seq: int
    count: int
    consumer: int
    delivered_us: int


class MessageReturned(Fact, tag=12):
    """A message went back to its place with a delivery count that must be remembered.

    `count` is the number of failed deliveries so far; `flagged` says that it may have been seen although
    the count does not say so. `cause` is one of `rollback`, `modified`, `disconnect`; these also enter the message's
    delivery history. It is `carried` for a count that a moved message brings along, and `claimed` when an application
    that still has the message came back for it: the delivery that a disconnect or a takeover had ended goes on.
    """

    queue: int
    seq: int
    count: int
    flagged: bool
    consumer: int
    cause: str
    txn: bytes = b""


class MessagePresented(Fact, tag=13):
    """A consumer that reports presentations handed the message to its application and has not settled it yet."""

    queue: int
    seq: int
    consumer: int


class MessageDeadLettered(Fact, tag=14):
    """A message left its queue for the dead letters. The `MessageStored` with this origin follows in the same batch.

    `deliveries_max` is the setting that it died of, if the cause is `maximum deliveries`; 0 if it is not known.
    """

    queue: int
    seq: int
    consumer: int
    cause: str
    dead_queue: int
    dead_seq: int
    deliveries_max: int = 0


class DispatchMarked(Fact, tag=15):
    """From now on any message of `queue` up to `seq` may have been delivered: after a crash it is flagged."""

    queue: int
    seq: int


class NumberRefused(Fact, tag=16):
    """The message `number` of a numbered producer was refused: a resend of it is not a duplicate."""

    producer: int
    number: int


class DuplicateDropped(Fact, tag=17):
    """A numbered message came again and was confirmed without being stored again."""

    producer: int
    number: int


class MessagePublished(Fact, tag=18):
    """A message was published to a topic: each of `subscriptions` has a copy at `seq`.

    Its body is in the batch's `bodies`, once, unless nobody subscribes: then none is, and nothing is stored.
    """

    topic: int
    seq: int
    size: int
    message_id: str
    subscriptions: list[int]
    producer: int = 0
    number: int = 0
    txn: bytes = b""
    origin: tuple[int, int] | None = None
    expires_us: int = 0


class MessageMoved(Fact, tag=19):
    """A message left its queue for another place, or for none (`to_queue` 0), without having been consumed.

    `cause`: `delayed` (to the schedule, for redelivery), `due` (from it), `expired`, `dropped` (a full queue),
    `purged`, `moved` (by an administrator). The `MessageStored` or `MessagePublished` with this origin follows in the
    same batch. `expired_us` is the broker's clock when it saw that the message had expired; 0 if it is not known.
    """

    queue: int
    seq: int
    cause: str
    to_queue: int = 0
    to_seq: int = 0
    expired_us: int = 0


class TransactionCommitted(Fact, tag=20):
    """A transaction that did work was committed; its outcome is kept (promise 2)."""

    txn: bytes
    received: int
    sent: int


class TransactionRolledBack(Fact, tag=21):
    """A transaction that did work was rolled back. `cause`: `client`, `disconnect`, `failed`, `superseded`."""

    txn: bytes
    received: int
    sent: int
    cause: str


class DuplicateIdKept(Fact, tag=24):
    """A message that its sender gave a duplicate id was stored: another one of that id at the same address is dropped.

    The address remembers its `window` last ids. In the same batch as the message, whose `MessageStored` or
    `MessagePublished` follows.
    """

    queue: int
    id: bytes
    window: int
    message_id: str = ""
    producer: int = 0
    number: int = 0


class DuplicateIdDropped(Fact, tag=25):
    """A message with a duplicate id that its address remembers was confirmed and not stored.

    `first_message_id` is that of the message which was stored; `txn` the transaction that sent this one, or empty.
    """

    queue: int
    id: bytes
    message_id: str
    first_message_id: str
    producer: int = 0
    number: int = 0
    txn: bytes = b""


class MessageOfFlow(Fact, tag=44):
    """The message stored at this place carries a call of a flow, or `count` calls of flows that it does not tell apart.

    It follows the `MessageStored` or `MessagePublished` in the same batch, also when the broker itself moved the
    message to this place, unless to the dead letters. `stage` is who is called, `call` how, `number` the call's in its
    flow, from 1: of several, flow, trace and call are empty and the number is 0. The store keeps none of it.
    """

    queue: int
    seq: int
    flow_id: str
    trace_id: str
    stage: str
    call: str
    number: int
    count: int = 1


class MessageTaken(Fact, tag=26):
    """A message that others had had left its queue: `link` of `container` took it; both empty if nobody consumed it.

    It follows or precedes, in the same batch, what made the message leave. A late acknowledgement is told the truth by
    it (promise 5), also in a later epoch.
    """

    queue: int
    seq: int
    container: str
    link: str


class MessageDelivered(Fact, tag=27):
    """A message was handed to a consumer's link. Logged at the ledger's detail `all` only; the store keeps none of it.

    `attempt` counts this delivery, from 1; `flagged` says that it went out as redelivered. `delivered_us` is when: the
    fact is committed with what comes next. `group` is the message's, if its queue looks for groups.
    """

    queue: int
    seq: int
    consumer: int
    attempt: int
    flagged: bool
    delivered_us: int
    group: str = ""


class MessageSeen(Fact, tag=28):
    """A consumer said that its application has the message now. Logged at detail `all` only."""

    queue: int
    seq: int
    consumer: int


class MessageReleased(Fact, tag=29):
    """A message went back to its place without its delivery counting. Logged at detail `all` only.

    `flagged` says that its next delivery goes out as redelivered all the same.
    """

    queue: int
    seq: int
    consumer: int
    flagged: bool


class MessagesAssigned(Fact, tag=40):
    """`count` neighbours of a queue, from `seq` on without gaps, became those of an assignment from `to_seq` on."""

    queue: int
    seq: int
    count: int
    size: int
    to_queue: int
    to_seq: int


class AssignmentAcknowledged(Fact, tag=41):
    """A pipeline is done with all of an assignment up to `through`: the last `count` numbers up to there left it.

    Where others had left it before there is one for each run of neighbours, and one with a count of 0 if the last
    number is not there; former versions said but one, so that its numbers are not known then.
    """

    queue: int
    through: int
    count: int


class AssignmentFenced(Fact, tag=42):
    """A run of a pipeline began to use an assignment: from here on only who names this `fence` may.

    `floors` are places of its queue, one in each lane, up to which nothing is to be assigned. `source` is the queue
    that it takes from since then, if that is another one: the former was deleted.
    """

    queue: int
    fence: int
    floors: list[int] = []
    source: int = 0


class RunStored(Fact, tag=43):
    """`count` messages, `size` bytes together, became neighbours in a queue, from `seq` on without gaps.

    Their blocks are in the batch's `runs`. `producer` and `number` say whose batch they were part of, as of a message.
    """

    queue: int
    seq: int
    count: int
    size: int
    producer: int
    number: int


class BatchPublished(Fact, tag=46):
    """All of a sink's batch was published: what was stored of it is in the same commit.

    `number` is the producer's. `digest` tells its `count` rows from others, in no order, and is empty if it is not
    known; `stages` tells the stages in which they were. By these a batch that comes again is known, or is not.
    """

    producer: int
    number: int
    count: int = 0
    digest: bytes = b""
    stages: bytes = b""


class ActionAudited(Fact, tag=47):
    """Somebody did something that the audit trail keeps, or wanted to: the texts are as the trail has them, cut.

    `event` is `management`, `denial`, `disconnection` or `login`; `decision` is `allowed`, `denied` (a permission is
    missing) or `refused`. `object` is what it was about, of type `object_type`; `to` is where it was to go,
    `message_id` which message. `origin` is the address of the client, `client` its container id. `omitted` is how many
    denials before it were not recorded: there were too many.
    """

    event: str
    operation: str = ""
    object: str = ""
    decision: str = ""
    user: str = ""
    origin: str = ""
    client: str = ""
    mechanism: str = ""
    object_type: str = ""
    to: str = ""
    reason: str = ""
    message_id: str = ""
    omitted: int = 0


class QueueMarked(Fact, tag=30):
    """High-water marks of a queue, so that an audit sees a lost tail: what a gap check cannot see."""

    queue: int
    last_seq: int
    stored: int
    consumed: int


AnyFact = (
    EpochBegan
    | ServingBegan
    | EpochEnded
    | QueueCreated
    | QueueDeleted
    | QueuePaused
    | QueueGrouped
    | ProducerRegistered
    | ProducerForgotten
    | ConsumerAttached
    | MessageStored
    | MessagesStored
    | MessageConsumed
    | MessagesConsumed
    | MessageReturned
    | MessagePresented
    | MessageDeadLettered
    | MessagePublished
    | MessageMoved
    | DispatchMarked
    | NumberRefused
    | DuplicateDropped
    | DuplicateIdKept
    | DuplicateIdDropped
    | TransactionCommitted
    | TransactionRolledBack
    | MessageTaken
    | MessageOfFlow
    | MessageDelivered
    | MessageSeen
    | MessageReleased
    | MessagesAssigned
    | AssignmentAcknowledged
    | AssignmentFenced
    | RunStored
    | BatchPublished
    | QueueMarked
    | ActionAudited
)


class LogRecord(msgspec.Struct, array_like=True, gc=False):
    """Record of one commit in the log. Its position is its key: 1, 2, 3 ... without gaps."""

    epoch: int
    time_us: int
    facts: list[AnyFact]


def plain(value: object) -> object:
    """A text or number without a type of its own, as AMQP's are: what a peer says must never make a commit fail.

    Raises:
        NotImplementedError: it is something else.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be stored")


_encoder = msgspec.msgpack.Encoder(enc_hook=plain)
_decoder = msgspec.msgpack.Decoder(LogRecord)


def encode_record(record: LogRecord) -> bytes:
    """The bytes of a log record, as the store keeps them."""
    return _encoder.encode(record)


def decode_record(data: bytes | memoryview) -> LogRecord:
    """A log record from its bytes.

    Raises:
        msgspec.DecodeError: `data` is not a record that this version knows.
    """
    return _decoder.decode(data)
