"""The tree of all errors that Legato raises.

```text
LegatoError
├── JMSError                         what applications see, named as in Jakarta Messaging
│   ├── IllegalStateError
│   ├── TransactionRolledBackError
│   ├── TransactionInProgressError
│   ├── InvalidDestinationError
│   ├── InvalidSelectorError
│   ├── InvalidClientIDError
│   ├── JMSSecurityError
│   ├── MessageFormatError
│   ├── MessageEOFError
│   ├── MessageNotReadableError
│   ├── MessageNotWriteableError
│   ├── ResourceAllocationError
│   └── SpaceLostError
├── FlowError                        what flows report
│   ├── IllegalCallFlowError         calls that may not be combined, or a flow that never ends
│   ├── RefuseMessageError           a stage can never process this message: a dead letter at once
│   ├── StateVersionError            a saved state whose version cannot be read
│   ├── FlowBackendError             an initiation failed and nothing was committed
│   ├── FlowInDoubtError             whether an initiation was committed is not known
│   ├── FlowMessageSendError         the database is committed, the messages were not sent
│   ├── FlowEndedError               the flow's deadline has passed, or it was cancelled
│   ├── FlowFailedError              the awaited flow became a dead letter, or was cancelled
│   └── FlowTimeoutError             the awaited flow did not reply in time
├── ConfigError                      a setting that cannot be used
├── ProtocolError                    a peer broke AMQP; its connection ends, nothing else
├── StoreError
│   ├── FencedError                  a later epoch has begun: this broker must stop serving
│   ├── StoreFullError               no room: producers are refused, everything else goes on
│   │   └── CommitTooLargeError      what was sent at once is more than a replicated log takes in a commit
│   ├── StoreFormatError             a former format that is to be migrated, or an unknown one
│   ├── StoreCorruptError            damaged: not what was written
│   └── StoreLockedError             another process holds the store
└── LogError                         of the replicated log
    ├── LogUnavailableError          no answer in time: no quorum, no leader, no network
    │   └── LogAccessError           the log's servers refuse the credentials, or the permissions do not suffice
    ├── LogDamagedError              records are missing or altered; another leader of the log may have them
    ├── LogTrimmedError              the records behind a position are trimmed: seed the replica anew
    ├── LogDivergedError             a position is not on this log: one of both is another's, or has lost records
    ├── LogFormatError               the log holds records of another group or of an unknown format
    └── LogUnsafeError               the log's servers do not promise what a confirmation promises
```
"""

from collections.abc import Iterator


class LegatoError(Exception):
    """Root of all errors Legato raises."""


class JMSError(LegatoError):
    """An error that Jakarta Messaging reports to the application.

    Args:
        message: a sentence a user can act on.
        code: a short machine-readable reason (`UNBLOCKED`, an AMQP condition ...), Jakarta's `errorCode`.
        linked: the error that caused this one, Jakarta's `linkedException`.
        transaction_id: the transaction that failed or is in doubt, for `Session.commit_outcome()`; None if there is
            none, or if no broker ever knew it.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        linked: BaseException | None = None,
        transaction_id: bytes | None = None,
    ) -> None:
        super().__init__(message or (self.__doc__ or "").split("\n")[0])
        self.code = code
        self.linked = linked
        self.transaction_id = transaction_id


class IllegalStateError(JMSError):
    """The call does not fit the state of the object; the message says which state."""


class TransactionRolledBackError(JMSError):
    """The transaction was rolled back. `Session.replay()` repeats its sends; its messages are delivered again."""


class TransactionInProgressError(JMSError):
    """The call cannot be made while a transaction is in progress."""


class InvalidDestinationError(JMSError):
    """The destination does not exist or may not be used in this way."""


class InvalidSelectorError(JMSError):
    """The selector does not follow the syntax of Jakarta Messaging 3.8.1."""


class InvalidClientIDError(JMSError):
    """The client id is in use by another connection, or not acceptable."""


class JMSSecurityError(JMSError):
    """The broker refused the user name, the password or the permission."""


class MessageFormatError(JMSError):
    """The value cannot be converted to the type asked for."""


class MessageEOFError(JMSError):
    """The body ended before the value was complete."""


class MessageNotReadableError(JMSError):
    """The message is in write mode; call `reset()` before reading."""


class MessageNotWriteableError(JMSError):
    """The message is in read mode; call `clear_body()` before writing."""


class ResourceAllocationError(JMSError):
    """The broker has no room or capacity for this now; free some, or try later."""


class SpaceLostError(JMSError):
    """A failover aborted a transaction (GigaSpaces' notice to exception listeners, CONTRACT A12, A21).

    Args:
        session: the session whose transaction that was.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        linked: BaseException | None = None,
        session: object = None,
    ) -> None:
        super().__init__(message, code=code, linked=linked)
        self.session = session


class FlowError(LegatoError):
    """A program used flows in a way that is not allowed."""


class IllegalCallFlowError(FlowError):
    """A stage combined calls that exclude each other, or made a call after its last one (CONTRACT D23)."""


class RefuseMessageError(FlowError):
    """Raised by a stage that can never process the message: it becomes a dead letter without retries (CONTRACT D21)."""


class StateVersionError(FlowError):
    """A state was saved by another version of its class, and no upcaster leads to this one."""


class FlowBackendError(FlowError):
    """The initiation failed and nothing was committed: it may be tried again (CONTRACT D7)."""


class FlowInDoubtError(FlowError):
    """The connection was lost for good during an initiation: whether its flows begin is not known."""


class FlowMessageSendError(FlowError):
    """The database was committed, but the messages were not sent: the flows never begin (CONTRACT D7)."""


class FlowFailedError(FlowError):
    """The awaited flow failed: one of its messages became a dead letter, or it was cancelled."""


class FlowEndedError(FlowError):
    """The flow has ended: its deadline has passed, or it was cancelled."""


class FlowTimeoutError(FlowError):
    """The awaited flow did not reply in time; it may still go on."""


class ConfigError(LegatoError):
    """A setting cannot be used; the message names it and says what is accepted."""


class ListenError(ConfigError):
    """An address cannot be listened on now; it may be free later, so that starting again may help."""


class ProtocolError(LegatoError):
    """A peer sent what AMQP 1.0 does not allow."""

    def __init__(self, message: str, condition: str = "amqp:connection:framing-error") -> None:
        super().__init__(message)
        self.condition = condition


class StoreError(LegatoError):
    """An operation of the store failed."""


class FencedError(StoreError):
    """A later epoch has begun on this store; this broker no longer owns it and must stop serving."""


class StoreFullError(StoreError):
    """The store has no room left: enlarge `store.map_bytes` or free disk space; consuming still works."""


class CommitTooLargeError(StoreFullError):
    """A commit is larger than the replicated log takes: send less at once. Nothing of it was stored."""


class StoreFormatError(StoreError):
    """The store has a format that this version of Legato does not serve as it is.

    Attributes:
        former: the store's format if this version migrates stores of it; 0 if it does not.
    """

    def __init__(self, message: str, former: int = 0) -> None:
        super().__init__(message)
        self.former = former


class StoreCorruptError(StoreError):
    """The store holds bytes that no version of Legato writes."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


class LogError(LegatoError):
    """An operation of the replicated log failed."""


class LogUnavailableError(LogError):
    """The replicated log did not answer in time; whether a record that was being appended is stored is not known."""


class LogAccessError(LogUnavailableError):
    """The log's servers refuse the credentials, or the credentials do not permit what a broker needs.

    Credentials can be renewed while a broker runs: appends wait for that, as for servers that do not answer.
    """


class LogDamagedError(LogError):
    """Records of the replicated log are missing or altered; another of its servers may have them intact.

    Attributes:
        sequence: the first record that is missing or altered.
        leader: the server that led the log when that was seen; None if it is not known.
    """

    def __init__(self, message: str, sequence: int, leader: str | None = None) -> None:
        super().__init__(message)
        self.sequence = sequence
        self.leader = leader


class LogTrimmedError(LogError):
    """The records behind a replica's position have been trimmed from the replicated log: seed the replica anew."""


class LogDivergedError(LogError):
    """A replica's position is not on this replicated log: one of both is another group's, or has lost records."""


class LogFormatError(LogError):
    """The replicated log holds records of another group, or of a format that this version does not read."""


class LogUnsafeError(LogError):
    """The log's servers do not keep records as a confirmation promises, or it cannot be proved that they do."""


def tree(root: type[LegatoError] = LegatoError) -> Iterator[type[LegatoError]]:
    """All error classes, root first."""
    yield root
    for child in root.__subclasses__():
        yield from tree(child)
