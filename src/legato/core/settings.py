"""Address settings: redelivery, dead letters, expiry, limits (the shell matches wildcards)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from legato import limits

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=limits.SECONDS_MAX)]

Blocking = Literal["none", "queue", "consumer", "group"]
DuplicateDetection = Literal["id", "message-id"]
WhenFull = Literal["page", "block", "fail", "drop-oldest"]


class AddressSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one address, a queue's or a topic's (for all its subscriptions)."""

    maximum_deliveries: Count = 10
    """Deliveries before a message goes to the dead letters; 0: never. ActiveMQ's 1 + 6 is 7 (CONTRACT D15)."""
    acknowledgement_timeout_s: Seconds = 0.0
    """A delivery that is not acknowledged for so long is taken back, and counts as failed; 0: never."""
    transaction_timeout_s: Seconds = 0.0
    """A transaction that uses the address and is open for so long is rolled back; 0: never."""
    redelivery_delay_s: Seconds = 0.0
    redelivery_multiplier: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 1.0
    """Each further delay is so many times the last."""
    redelivery_delay_max_s: Seconds = 300.0
    redelivery_jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """A delay is shortened or lengthened by up to this share of it, at random."""
    redelivery_blocking: Blocking = "none"
    """What waits with a message that waits for its redelivery: nothing, its queue, its last consumer, its group."""
    dead_letter_queue: str = "DLQ.{address}"
    """`{address}` is where the message was; empty: dead letters are dropped, which the log of facts records."""
    expiry_queue: str = ""
    """Where expired messages go; empty: they are dropped, which the log of facts records."""
    max_messages: Count = 0
    """0: no limit."""
    max_bytes: Count = 0
    """0: no limit."""
    when_full: WhenFull = "page"
    """`page`: goes on on disk, limits are ignored; `block`: producers get no credit; `fail`: sends are refused;
    `drop-oldest`: the oldest message goes."""
    exclusive: bool = False
    """Only the consumer that came first receives, until it leaves."""
    auto_create: bool = True
    """Whether using an address that there is not makes it."""
    duplicate_window: Count = 20_000
    """So many duplicate ids are remembered, the last ones; 0: they mean nothing. As many as Artemis' (CONTRACT E19)."""
    duplicate_detection: DuplicateDetection = "id"
    """What is a duplicate id: only what its sender says is one, or, failing that, the JMS message id."""


DEFAULT_SETTINGS = AddressSettings()
