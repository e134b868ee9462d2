"""The four failover contracts: what happens where the documents disagree. Pure."""

from __future__ import annotations

import msgspec

from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError


class FailoverContract(msgspec.Struct, frozen=True):
    """One column of the table in docs/howto/failover.md: a field for each row in which the columns differ.

    In all of them a transaction with work is rolled back, `commit()` says so and the session goes on (B18, E13); a
    `commit()` without work succeeds (B17); sends of a session that is not transacted are outside any transaction (A8).
    """

    releases_blocked_calls: bool = False
    """Whether a call that waits for the broker raises `UNBLOCKED` when the connection is lost, instead of going on
    with the next one (E11)."""
    keeps_unacknowledged: bool = True
    """Whether a CLIENT session keeps what it received and did not acknowledge; otherwise that is presented again,
    flagged (B7, A15)."""
    abort_raises: bool = False
    """Whether unacknowledged messages count as a transaction, which a failover aborts, and whether the next
    `receive()` or `acknowledge()` of a session whose transaction was aborted raises (A6, A10, A11)."""
    late_acknowledgement: type[JMSError] | None = IllegalStateError
    """What `acknowledge()` raises if another receiver got a message (B12); None for nothing (E17)."""
    resolves_calls: bool = True
    """Whether a `commit()` or `acknowledge()` that was in flight tells its true outcome; otherwise it raises, and that
    of a commit can be asked for (E12, E14, A10)."""
    resends: bool = True
    """Whether a `send()` that was in flight goes on and is stored once; otherwise it raises `UNBLOCKED` (E11, E17)."""
    exception_on_failover: bool = False
    """Whether the exception listener is told of every failover (B5, E18)."""
    space_lost_error: bool = False
    """Whether the exception listener gets a `SpaceLostError` if a transaction was aborted (A12, A13)."""
    redelivers_on_listener_error: bool = False
    """Whether a message comes again whose listener raised, in AUTO and DUPS_OK (Jakarta Messaging 8.7), or is done with
    (C6)."""
    failover_on_server_shutdown: bool = True
    """Whether clients fail over from a broker that closes in good order (E7)."""
    failover_on_initial_connection: bool = True
    """Whether the first connection tries every host (E9)."""


CONTRACTS: dict[str, FailoverContract] = {
    "legato": FailoverContract(redelivers_on_listener_error=True),
    "ems": FailoverContract(keeps_unacknowledged=False),
    "hornetq": FailoverContract(
        releases_blocked_calls=True,
        keeps_unacknowledged=False,
        late_acknowledgement=None,
        resolves_calls=False,
        resends=False,
        exception_on_failover=True,
        failover_on_server_shutdown=False,
        failover_on_initial_connection=False,
    ),
    "gigaspaces": FailoverContract(
        keeps_unacknowledged=False,
        abort_raises=True,
        late_acknowledgement=TransactionRolledBackError,
        resolves_calls=False,
        space_lost_error=True,
    ),
}
"""The values of the connection option `failover_contract`."""
