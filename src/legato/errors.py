"""The tree of all errors that Legato raises.

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
├── FlowError                        what flows of stages report
│   ├── IllegalCallFlowError         calls that may not be combined, or a flow that never ends
│   ├── RefuseMessageError           a stage will never take this message: to the dead letters at once
│   ├── StateVersionError            a saved state whose version cannot be read
│   ├── FlowBackendError             an initiation failed and nothing was committed
│   ├── FlowInDoubtError             whether an initiation was committed is not known
│   ├── FlowMessageSendError         the database is committed, the messages were not sent
│   ├── FlowEndedError               its deadline has passed, or it was cancelled: no stage works on it
│   ├── FlowFailedError              the flow that was waited for ended among the dead letters, or was cancelled
│   └── FlowTimeoutError             no answer came in time
├── ConfigError                      a setting that cannot be used
├── ProtocolError                    a peer broke AMQP; its connection ends, nothing else
└── StoreError
    ├── FencedError                  a later epoch has begun: this broker must stop serving
    ├── StoreFullError               no room: producers are refused, everything else goes on
    ├── StoreFormatError             written by a version we do not know
    ├── StoreCorruptError            what we read is not what was written
    └── StoreLockedError             another process holds the store
"""

from collections.abc import Iterator


class LegatoError(Exception):
    """Root of all errors Legato raises."""


class JMSError(LegatoError):
    """Something that Jakarta Messaging reports to the application.

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
    """The transaction was rolled back: `Session.replay()` sends its sends again, its messages come again."""


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
    """A program used flows in a way that they do not allow."""


class IllegalCallFlowError(FlowError):
    """A stage combined calls that exclude each other, or called on from where nothing follows (CONTRACT D23)."""


class RefuseMessageError(FlowError):
    """Raised by a stage that will never be able to take the message: no retries (CONTRACT D21)."""


class StateVersionError(FlowError):
    """A state was saved by another version of its class, and no upcaster leads to this one."""


class FlowBackendError(FlowError):
    """The initiation failed and nothing at all was committed: it may be tried again (CONTRACT D7)."""


class FlowInDoubtError(FlowError):
    """The connection was lost for good while flows were begun: whether they begin is not known."""


class FlowMessageSendError(FlowError):
    """The database has been committed, and the messages were not sent: the flows never start (CONTRACT D7)."""


class FlowFailedError(FlowError):
    """The flow that was waited for failed: one of its messages is among the dead letters, or it was cancelled."""


class FlowEndedError(FlowError):
    """No stage works on the flow any more: its deadline has passed, or it was cancelled."""


class FlowTimeoutError(FlowError):
    """The flow that was waited for did not answer in time; it may still go on."""


class ConfigError(LegatoError):
    """A setting cannot be used; the message names it and says what is accepted."""


class ProtocolError(LegatoError):
    """A peer sent what AMQP 1.0 does not allow."""

    def __init__(self, message: str, condition: str = "amqp:connection:framing-error") -> None:
        super().__init__(message)
        self.condition = condition


class StoreError(LegatoError):
    """The store could not do what was asked."""


class FencedError(StoreError):
    """A later epoch has begun on this store; this broker no longer owns it and must stop serving."""


class StoreFullError(StoreError):
    """The store has no room left: enlarge `store.map_bytes` or free disk space; consuming still works."""


class StoreFormatError(StoreError):
    """The store was written in a format that this version does not know."""


class StoreCorruptError(StoreError):
    """The store holds bytes that no version of Legato writes."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


def tree(root: type[LegatoError] = LegatoError) -> Iterator[type[LegatoError]]:
    """All error classes, root first."""
    yield root
    for child in root.__subclasses__():
        yield from tree(child)
