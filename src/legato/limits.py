"""All limits, with their units in their names. Configuration may change those marked default."""

MAX_FRAME_BYTES = 1 << 18
"""What we advertise as the largest AMQP frame."""
FRAME_BYTES_LEAST = 512
"""AMQP 2.7.1: every peer takes frames of this size."""
FRAME_BYTES_MOST = 4 << 20

SESSION_WINDOW_BYTES = 4 << 20
"""Bytes of unread transfers a session may hold; Proton has no window of its own (amqp.md C4)."""

LARGE_MESSAGE_BYTES = 1 << 20
"""A larger message is handed on part by part and never held as a whole; what is before its body has at most so much."""
ID_CHARACTERS_MAX = 512
"""Of a message id, in facts; the message itself keeps what it was sent with."""
LINK_NAME_BYTES_MAX = 2048
"""Facts about what went over a link have its name."""
CHUNK_BYTES = (256 << 10) - 16
"""Of a large message's body, what is stored as one: whole pages, with the header that LMDB gives them."""
CHUNKS_IN_A_COMMIT = 8
"""With more of them the senders of large messages wait for the next commit: the others' must not become long."""
MAX_MESSAGE_BYTES_DEFAULT = 1 << 30
UNFINISHED_BYTES_MAX = 100 << 20
"""Of messages of which more frames are to come, what a session holds in memory."""
MAX_LINKS_PER_SESSION = 4096
ENDED_LINKS_REMEMBERED = 64
ENDED_DELIVERIES_REMEMBERED = 4096
"""In a session whose client has transactions: of links that ended with unsettled deliveries, and of these. An outcome
that comes for one of them later cannot hold, and its transaction must not commit without it."""
SASL_FRAME_BYTES_MAX = 4 << 10
TOKEN_FRAME_BYTES_MAX = 16 << 10
"""What comes before a login; AMQP 5.3.1 asks for 512."""
DECODED_ELEMENTS_MAX = 1 << 13
"""Of lists, maps and arrays, what is decoded of one value of a peer's: it takes a few milliseconds."""
FRAME_ELEMENTS_MAX = 20_000
"""Of the lists, maps and arrays of a frame, besides a message: a client that comes back names up to 16,000 messages."""
REQUEST_BYTES_MAX = 256 << 10
"""A request to the management address."""
COORDINATOR_BYTES_MAX = 4 << 10
"""A declare or discharge."""
HANDSHAKE_TIMEOUT_S = 10.0
IDLE_TIMEOUT_MS = 60_000

PRODUCER_CREDIT = 5_000
"""Credit a producer is given; topped up when half is used."""
COORDINATOR_CREDIT = 100

WINDOW_MESSAGES = 8_192
"""Messages of a queue's head kept in the heap (promise 6: the rest waits on disk)."""
WINDOW_BYTES = 8 << 20
LOAD_BYTES = 1 << 20
"""Read of a queue in one go: the others of the broker must not wait for more, and a cache holds it."""
JOINED_BYTES_MAX = 2048
"""Neighbours of more bytes each, on average, are not copied to be one."""
FIRST_LOAD_MESSAGES = 64
"""What is read of a queue first; each further read is twice as much, up to a window."""

BATCH_FACTS_MAX = 20_000
"""A commit never holds more facts than this, nor more bytes than the next: it bounds latency and memory."""
BATCH_BYTES_MAX = 16 << 20

UNAWAITED_WAIT_S = 0.003
"""So long acknowledgements that nobody waits for may wait for something to be committed with: a commit of their own
would be in the way of the next message that somebody sends and waits for."""
UNAWAITED_FACTS_MAX = 256
"""More of their facts than this do not wait."""

SMALL_COMMIT_FACTS = 256
"""While a commit of no more facts is out, and of fewer bytes than `JOURNALED_BYTES`, what peers send may wait for its
end, to be handled together."""
SMALL_READ_BYTES = 4096
"""If it is less than this, for each peer."""
SMALL_READ_WAIT_S = 0.002
"""And no longer than this."""

DELIVERY_BYTES_IN_ONE_GO = 256 << 10
"""A consumer is given no more before its socket has taken that: the first message must not wait for the last, and
large ones must not pile up in memory."""
SHOWN_BYTES_IN_ONE_GO = 1 << 20
"""Nor is a browser shown more before others have a turn, and it is seen whether its peer takes that."""

TIME_MS_MAX = (1 << 42) - 1
"""Of an expiry or a delivery time, in milliseconds since 1970: in the year 2109. Later ones are as good as never, and a
place in the schedule has no more bits."""

SECONDS_MAX = 1_000_000_000
"""Of a setting, some 31 years: now and so long is before the end of `TIME_MS_MAX`. No timer takes an infinite time."""

TRANSACTION_BYTES_MAX = 256 << 20
"""What a transaction may send: it is kept in memory until it commits."""
TRANSACTION_MESSAGES_MAX = 50_000
"""So many it may send and acknowledge: its end is one piece of work, of about 1 us each."""
OPEN_TRANSACTIONS_MAX = 4096
"""Of a connection."""
OUTCOMES_KEPT = 1_000_000
"""So many outcomes of transactions are kept, however old: only what is beyond is forgotten."""
OUTCOME_RETENTION_S = 24 * 3600
"""By the steady clock (`core.steady`), as the next one."""
PRODUCER_RETENTION_S = 24 * 3600
PRODUCERS_KEPT = 100_000
"""So many numbered producers are remembered, however long ago they were used: only what is beyond is forgotten."""
PRODUCER_NUMBER_MAX = (1 << 32) - 2
"""Each numbered producer has a number that is never given again; the store's keys have 32 bits for it."""
NODE_NUMBER_MAX = (1 << 32) - 2
"""The same of queues, topics and subscriptions, temporary ones too."""
NODE_NUMBERS_RESERVED = 1 << 16
"""The last of these are for what the broker itself cannot do without, such as queues of dead letters."""
SINKS_MAX = 10_000
"""Sinks are remembered until somebody has them forgotten; with so many no further one can begin."""
BATCHES_KEPT = 100
"""Of a sink's batches so many are known by their rows, should they come again."""
REFUSED_NUMBERS_KEPT = 16_384
"""Of the refused numbers of a producer those are remembered that are no further behind its last one."""
PRODUCERS_REVIEWED = 1_000
"""Producers that are looked at in one go to find those to forget."""
STORE_MAP_BYTES_DEFAULT = 1 << 40
STORE_FULL_SHARE = 0.95
"""Of the map so much may be used when a message is stored; the rest is for commits that store none, as consuming."""
LOG_SHARE = 0.25
"""Of the map the log may take so much before facts go that no ledger has, also where `store.log_bytes` is more."""
LOG_BYTES_DEFAULT = 4 << 30
CHECKPOINT_MS_DEFAULT = 100
JOURNAL_BYTES_DEFAULT = 8 << 20
JOURNALED_BYTES = 32 << 10
"""A commit that stores so many bytes of messages is in the store's file at once: they share what a second flush costs,
and a record of them would cost more."""
FREE_DISK_RESERVE_BYTES = 64 << 20
"""Below this producers are refused, so that consumers, who also need pages, can still empty queues."""

assert SESSION_WINDOW_BYTES >= 2 * MAX_FRAME_BYTES
assert REFUSED_NUMBERS_KEPT > 2 * PRODUCER_CREDIT
LOG_TRIM_RECORDS = 2_000
"""Records of the log forgotten in one go: each is a page or so, and the writer waits meanwhile."""
HISTORY_ATTEMPTS = 10
"""Failed deliveries of a message that are remembered one by one."""
STAGE_RETENTION_S = 7 * 24 * 3600
"""Rows that were staged and neither published nor given up are kept for so long."""
TAKEN_MESSAGES = 10_000
"""Of a queue's messages that left after a redelivery, so many are remembered with who took them (promise 5)."""
GROUPS_MAX = 65_536
"""Message groups of a queue whose receiver is remembered; beyond, the oldest without anything in flight goes."""
RETURNED_MIN = 64
"""So few messages that came back are not worth a look for those that wait no more."""
SCAN_MESSAGES = 500
"""Messages looked at for a selector in one go: the others of the broker must not wait for more."""
SCAN_FIRST_MESSAGES = 32
"""Of these so many are read first: mostly one is wanted, and not far away."""
SCAN_MS = 10
"""Nor longer, however long each of them takes."""
SETTINGS_IN_ONE_GO = 100
"""Addresses, or links of producers, to which settings that were read again are applied in one step."""
SELECTOR_CHARACTERS_MAX = 4096
"""A longer one would take too long to be read."""
STORED_SELECTOR_CHARACTERS_MAX = 1 << 15
"""In a durable subscription: so much was allowed once."""
LIKE_STEPS_MAX = 1 << 22
"""Of searches for a selector's patterns in the texts of one message."""
RECONNECT_TIMEOUT_S = 60
"""What a client has, whose connection or broker was lost, is kept so long for it."""
RETURN_WINDOW_MS_MIN = 100
"""Clients that fit into so short a time need not be spread."""
RETURN_WINDOW_MS_MAX = 15_000
"""Over so long the return of a broker's clients is spread at most: what is kept for them is not kept for ever."""
FLOW_STACK_FRAMES_MAX = 35
"""More who wait for a reply than this is a flow that calls itself (CONTRACT D21)."""
FLOW_CALLS_MAX = 200
"""A flow that has made more calls than this, replies aside, does not end by itself (CONTRACT D21).

One that is undone may make as many more."""
