"""Names of Legato's extensions to AMQP and its JMS mapping."""

PRODUCER_ID = "legato:producer-id"
"""Link property of a sender (string): it numbers its messages by 8-byte big-endian delivery tags 1, 2, 3 ...

The broker stores each number once (promise 1). Its attach answers with `LAST_NUMBER`. Transactional transfers are not
numbered against it. Closing the link (detach with closed=true) forgets the numbers.
"""

LAST_NUMBER = "legato:last-number"
"""Link property in the broker's attach (ulong): the last number stored for this producer, 0 if none."""

REPORTS_PRESENTED = "legato:reports-presented"
"""Link property of a receiver (boolean): it sends the state `received` when a message is handed to the application,
so only such messages count as delivery attempts (promise 4)."""

HELD = "legato:held"
"""Link property of a receiver on re-attach (array of ulong): sequence numbers that its application still holds.

Those still available are assigned to this link and come first, in order; the others went elsewhere.
"""

QUEUE = "legato:queue"
"""Link property in the broker's answer to a receiver (ulong): the number of its queue or subscription, which one of
the same name that is made after that was deleted does not have. The receiver says it with `HELD`: sequence numbers are
those of that one."""

HELD_COUNT = "legato:held-count"
"""Link property in the broker's answer to `HELD` (ulong): so many of them come first on this link."""

ELSEWHERE = "legato:elsewhere"
"""Link property in the broker's answer to `HELD` (array of ulong): those that another receiver has or had.
What is in neither was acknowledged (by us: an acknowledgement whose confirmation was cut off)."""

REDELIVERED = "x-opt-legato-redelivered"
"""Delivery annotation (boolean true) towards receivers that report presentations: the message may have been seen,
although the header's delivery-count does not say so. Other receivers get delivery-count >= 1 instead."""

EPOCH = "legato:epoch"
"""Property of the broker's open (ulong)."""

GROUP = "legato:group"
"""Property of the broker's open (string): the group of brokers that it belongs to; not there if there are no groups."""

LINK_REDIRECT = "amqp:link:redirect"
"""Condition of a Detach; its info says where the address is (AMQP 2.8.17). To clients it is also the code of the error
that a transaction cannot span two groups of brokers."""

BROKERS = "legato:brokers"
"""In the info of a coordinator's rejection with `amqp:transaction:unknown-id` (string): the brokers of the group that
`hostname` names, whose transaction it is: `host:port`, with commas between."""

RECONNECT_TIMEOUT = "legato:reconnect-timeout-s"
"""Property of the broker's open (double): so long it keeps what a client had whose connection was lost, in seconds."""

FAREWELL = "legato:farewell"
"""In the info of a broker's Close with `amqp:connection:forced` (string): `shutdown`, or `switchover` if another one
serves from now on."""

RETURN_WINDOW = "legato:return-window-ms"
"""Property of the broker's open, and in the info of its Close (uint): a client that lost this broker comes back at a
random time within so many milliseconds, so that not all come at once; 0 if they are few."""

STATUS_ADDRESS = "$status"
"""A receiver attached here gets one message whose data section is the broker's status as JSON, per credit."""

HEARTBEAT_ADDRESS = "$heartbeat"
"""A receiver attached here gets a small message at once, and again every `ha.heartbeat_interval_s`."""

UNRECORDED = "legato:unrecorded"
"""Link property of a receiver on `HEARTBEAT_ADDRESS` (string): where a backup would listen that could not record itself
among the members of the store, as on a full disk."""

MANAGEMENT_ADDRESS = "$management"
"""A node that takes requests: messages with the application properties `operation`, `type` and `name`."""

TEMPORARY_NAME = "legato:temporary-name"
"""Link property of an attach to a dynamic node (string): the address that this temporary destination had before its
client lost the broker. The node gets the same name, and keeps what is in it if it is still there."""

CONSUMER_PRIORITY = "priority"
"""Link property of a receiver (integer, 0 by default): a consumer of lower priority gets messages only while none of a
higher one can take them. The name is Apache Artemis'."""

DUPLICATE_ID = "_AMQ_DUPL_ID"
"""Application property of a message, or message annotation (string or binary): its sender's name for it.

An address stores one message of each name that it remembers, and drops the others (CONTRACT E15). The name is that of
Apache Artemis.
"""

DUPLICATE_NOTICE = "legato:duplicate-notice"
"""Link property of a sender (boolean): it wants to be told of duplicates.

The outcome of one that was dropped is then `modified` with the annotation `DUPLICATE`, else `accepted`. In a
transaction a message with a duplicate id is accepted at once, and settled when the transaction ends: then it is known.
"""

DUPLICATE = "x-opt-legato-duplicate"
"""Message annotation in the broker's outcome `modified` (boolean true): the message was not stored, because one with
the same duplicate id was. To its sender that is a success."""

EXCEPTION = "x-opt-legato-exception"
"""Message annotation in a receiver's outcome `modified` (string): what its application raised. A dead letter shows it;
of `rejected` the error's description is shown."""

REJECTED_BY_APPLICATION = "legato:rejected"
"""Condition in a receiver's outcome `rejected`: its application found the message to be at fault. The texts and whole
numbers of the error's info map become properties of the dead letter."""

CAUSE = "legato:cause"
"""In the info of the error with which a commit is refused (string): the condition that a send outside of a transaction
would have been refused with. The error's own condition is one of AMQP's for transactions (4.8)."""

# Deliveries of the broker carry an 8-byte big-endian tag: the message's sequence number in its queue.
# A disposition `accepted` that is not settled asks for a confirmation: the broker settles when it is durable,
# with state accepted, or with `rejected` and one of these conditions where that is so.
ALREADY_ACKNOWLEDGED = "legato:already-acknowledged"
WENT_ELSEWHERE = "legato:went-elsewhere"

# Application properties of a flow's message, from which the broker makes `MessageOfFlow` facts.
FLOW_ID = "legato_flow_id"
"""The flow (string)."""

FLOW_TRACE_ID = "legato_trace_id"
"""What its initiator calls the flow (string)."""

FLOW_STAGE = "legato_stage"
"""The stage that is called (string): who has none is no flow's message."""

FLOW_BUNDLE = "legato_bundle"
"""How many calls it carries, if several (int): then only the stage is told. 1 says that it did not do to work on it
together with others."""

FLOW_CALL = "legato_call"
"""How: `send`, `request`, `reply` ... (string)."""

FLOW_CALL_NUMBER = "legato_call_number"
"""Which call of its flow it is, from 1 (int)."""
