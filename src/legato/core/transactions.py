"""Local transactions: all or nothing, with one knowable outcome (promise 2)."""

from __future__ import annotations

from typing import Any

import msgspec

from legato import limits
from legato.core.backpressure import refusal
from legato.core.consumers import Consumer
from legato.core.duplicate_records import StoredOriginal
from legato.core.duplicates import Duplicates
from legato.core.effects import Discharged, DischargeRefused, Effect, SettleSends
from legato.core.facts import TransactionCommitted, TransactionRolledBack
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.message_states import REFUSE, enter
from legato.core.outcome import Outcome, RefusedCommit
from legato.core.outgoing import Outgoing
from legato.core.refusals import FULL
from legato.core.router import Router
from legato.core.settlement import Settlement
from legato.core.topics import Node
from legato.core.traits import PLAIN, Traits
from legato.core.transaction import Disposal, OpenTransactions, Transaction
from legato.ids import make_txn_id, txn_counter, txn_epoch, txn_group

UNKNOWN_TXN = "amqp:transaction:unknown-id"
ROLLED_BACK = "amqp:transaction:rollback"
TRANSACTION_BYTES = 1 << 10
"""What an open transaction takes in memory besides what it sends."""
MESSAGE_BYTES = 1 << 8
"""What each message that it sends or acknowledges takes, besides its body."""
DROPPED = "An acknowledgement in it is of a message that its receiver does not have any more."


class Transactions:
    """Transactions over publishing and consuming (AMQP 4).

    Args:
        open_transactions: where those are kept that are not discharged.
        group: digest of the name of the group of brokers whose they are; empty if there are no groups.

    Attributes:
        committing: ids of those whose commits are not durable yet.
    """

    __slots__ = (
        "_duplicates",
        "_group",
        "_kernel",
        "_last",
        "_open",
        "_open_transactions",
        "_router",
        "_settlement",
        "committing",
    )

    def __init__(
        self,
        kernel: Kernel,
        open_transactions: OpenTransactions,
        router: Router,
        duplicates: Duplicates,
        settlement: Settlement,
        group: bytes = b"",
    ) -> None:
        self._kernel = kernel
        self._open_transactions = open_transactions
        self._open = open_transactions.by_id
        self._router = router
        self._duplicates = duplicates
        self._settlement = settlement
        self._group = group
        self._last = 0
        """The counter of the last one."""
        self.committing: set[bytes] = set()

    def declare(self, owner: Any, realm: str = "") -> bytes:
        """A new transaction of the connection `owner` (AMQP 4.2).

        Args:
            realm: whose it is: another connection of the same may ask for its outcome, and end it so.
        """
        # A counter that is a time tells for how long the outcome is known: by the clock that outcomes are kept by.
        self._last = max(self._last + 1, self._kernel.steady.now_us)
        txn_id = make_txn_id(self._kernel.epoch, self._last, self._group)
        self._open_transactions.add(Transaction(txn_id, owner, realm, self._kernel.now_us))
        return txn_id

    def of(self, owner: Any) -> list[Transaction]:
        """The open ones of a connection, the first that was declared first."""
        return list(self._open_transactions.of(owner).by_id.values())

    def count(self, owner: Any) -> int:
        """How many of a connection are open."""
        return len(self._open_transactions.of(owner).by_id)

    def held_bytes(self, owner: Any) -> int:
        """What the open ones of a connection take in memory, about."""
        own = self._open_transactions.of(owner)
        return own.bytes + TRANSACTION_BYTES * len(own.by_id)

    def find(self, txn_id: bytes, owner: Any) -> Transaction | None:
        """The live transaction of that id, if `owner` declared it."""
        found = self._open.get(txn_id)
        return found if found is not None and found.owner is owner else None

    def publish(
        self,
        transaction: Transaction,
        node: Node,
        body: bytes,
        message_id: str,
        traits: Traits = PLAIN,
        container: str = "",
        token: Any = None,
    ) -> bool:
        """Publish at commit.

        Args:
            token: of a sender that wants to be told if the message is a duplicate, else None.

        Returns:
            Whether that is known at the end of the transaction only: `SettleSends` will carry `token` then.
        """
        self._open_transactions.grow(transaction, len(body) + MESSAGE_BYTES)
        if why_not := _excess(transaction, coming=1):
            transaction.failed = why_not
            transaction.sends.clear()
            return False
        outgoing = Outgoing(body, message_id, None, traits, container, txn=transaction.id)
        has_id = (node.special or traits is not PLAIN) and bool(self._duplicates.duplicate_id_of(node, outgoing))
        if node.special and (why := refusal(node)) and not (has_id and self._is_stored(node, outgoing)):
            transaction.failed = why[1]
            return False
        transaction.sends.append((node, outgoing))
        if has_id:
            transaction.has_ids = True
            if token is not None:
                outgoing.token = token
                transaction.unsettled.append(token)
                return True
        return False

    def _is_stored(self, node: Node, outgoing: Outgoing) -> bool:
        """Whether an address has the message already, by its duplicate id: it needs no room."""
        if node.deleted:
            return False
        return self._duplicates.first_of(node, self._duplicates.duplicate_id_of(node, outgoing)) is not None

    def acknowledge(
        self, transaction: Transaction, consumer: Consumer, message: Message, disposal: Disposal | None = None
    ) -> bool:
        """Consume at commit, or do with it what `disposal` says; until then the message is the transaction's.

        If the consumer does not have the message any more, the transaction can only roll back (AMQP 4.3).
        """
        if message.consumer is not consumer or message.seq not in consumer.unsettled:
            if not message.queue.deleted:
                transaction.failed = DROPPED
            return False
        self._settlement.enlist(consumer, message)
        transaction.consumed.append((consumer, message))
        self._open_transactions.grow(transaction, MESSAGE_BYTES)
        transaction.failed = transaction.failed or _excess(transaction)
        self._open_transactions.consuming[transaction.id] = transaction
        if disposal is not None:
            transaction.disposals[message] = disposal
        return True

    def discharge(self, txn_id: bytes, owner: Any, *, fail: bool, token: Any, realm: str = "") -> None:
        """End a transaction; `Discharged` or `DischargeRefused` will carry `token`.

        A client whose commit was cut off discharges again, on another connection, to learn the outcome (promise 2):
        a transaction that is not committing by then is rolled back, so the answer stays true.
        """
        transaction = self._open.get(txn_id)
        if transaction is None:
            self._discharge_again(txn_id, fail, token)
        elif transaction.realm != realm:
            # Ids can be guessed; nobody rolls back what is another user's.
            self._kernel.emit(DischargeRefused(token, UNKNOWN_TXN, "this user declared no such transaction"))
        elif transaction.owner is not owner:
            self.roll_back(transaction, "superseded")
            self._kernel.emit(DischargeRefused(token, ROLLED_BACK, "rolled back when its connection was lost"))
        elif fail:
            self.roll_back(transaction, "client", token)
        elif reason := transaction.failed or self._hindrance(transaction):
            self.roll_back(transaction, "failed")
            self._kernel.emit(DischargeRefused(token, ROLLED_BACK, reason))
        else:
            self._commit(transaction, token)

    def _sort_out(self, transaction: Transaction) -> None:
        """Part duplicates of other messages, or of one another, from what a transaction sends."""
        sends: list[tuple[Node, Outgoing]] = []
        own: dict[tuple[int, bytes], StoredOriginal] = {}
        for node, outgoing in transaction.sends:
            duplicate_id = b"" if node.deleted else self._duplicates.duplicate_id_of(node, outgoing)
            first = None
            if duplicate_id:
                first = own.get((node.id, duplicate_id)) or self._duplicates.first_of(node, duplicate_id)
            if first is not None:
                transaction.repeats.append((node, outgoing, duplicate_id, first))
                continue
            if duplicate_id:
                own[node.id, duplicate_id] = StoredOriginal(outgoing.message_id, 0, 0)
            sends.append((node, outgoing))
        transaction.sends = sends

    def _hindrance(self, transaction: Transaction) -> str | None:
        """Why what the transaction sends cannot be stored, all of it but duplicates."""
        if transaction.has_ids:
            self._sort_out(transaction)
        wanted: dict[Node, list[int]] = {}
        for node, outgoing in transaction.sends:
            if node.special:
                wanted.setdefault(node, []).append(len(outgoing.body))
        for node, sizes in wanted.items():
            if node.deleted:
                return f"{node.address}, to which it sends, was deleted"
            if node.settings.when_full != "fail":
                continue
            count, size = len(sizes), sum(sizes)
            if (room := node.room_messages) is not None and room < count:
                return f"{node.address} has room for {room} more messages; it sends {count} there (when_full = fail)"
            # Its last message may go past the limit, as one that comes by itself does.
            if (room := node.room_bytes) is not None and (not room or room <= size - sizes[-1]):
                return f"{node.address} has room for {room} more bytes; it sends {size} there (when_full = fail)"
        return None

    def _discharge_again(self, txn_id: bytes, fail: bool, token: Any) -> None:
        committed = txn_id in self.committing or self._kernel.archive.outcome(txn_id)
        if committed and not fail:
            # If its batch is still on its way, this answer must not overtake it: it rides on the next one.
            self._answer(token, Transaction(txn_id, None), commits=True)
        elif committed:
            self._kernel.emit(DischargeRefused(token, ROLLED_BACK, "already committed"))
        elif txn_epoch(txn_id) is None:
            self._kernel.emit(DischargeRefused(token, UNKNOWN_TXN, "no broker of this store made this id"))
        elif txn_group(txn_id) != self._group:
            self._kernel.emit(DischargeRefused(token, UNKNOWN_TXN, "no broker of this group made this id"))
        elif txn_counter(txn_id) <= self._kernel.archive.outcomes_forgotten_us():
            self._kernel.emit(DischargeRefused(token, UNKNOWN_TXN, "it is too old for its outcome to be known"))
        elif fail:
            self._kernel.emit(Discharged(token))
        else:
            self._kernel.emit(DischargeRefused(token, ROLLED_BACK, "rolled back"))

    def _commit(self, transaction: Transaction, token: Any) -> None:
        self._open_transactions.remove(transaction)
        commit = self._kernel.gathering
        txn = transaction.id
        did_work = transaction.did_work
        # What was in a queue that is gone went with it.
        transaction.consumed = [pair for pair in transaction.consumed if not pair[1].queue.deleted]
        if transaction.disposals:
            self._dispose(transaction)
        for consumer, message in transaction.consumed:
            self._settlement.consume(consumer, message, txn, commit)
        for node, outgoing in transaction.sends:
            if transaction.has_ids:
                outgoing.token = None
                if duplicate_id := self._duplicates.duplicate_id_of(node, outgoing):
                    self._duplicates.keep_id(node, duplicate_id, outgoing)
            self._router.enqueue(node, outgoing)
        for node, outgoing, duplicate_id, first in transaction.repeats:
            transaction.duplicates.append(self._duplicates.drop(node, duplicate_id, outgoing, first))
            if outgoing.token is not None:
                transaction.told.append(outgoing.token)
        commit.ended += transaction.larges
        if did_work:
            commit.facts.append(TransactionCommitted(txn, len(transaction.consumed), len(transaction.sends)))
            self.committing.add(txn)
        self._answer(token, transaction, commits=True)

    def _dispose(self, transaction: Transaction) -> None:
        """Do what the transaction wants done with what it received and does not consume."""
        kept = []
        for consumer, message in _by_place(transaction.consumed):
            disposal = transaction.disposals.get(message)
            if disposal is None:
                kept.append((consumer, message))
                continue
            if disposal.rejected:
                transaction.buries = True
                message.consumer = None
                message.presented = False
                self._settlement.bury(consumer, message, disposal.text, dict(disposal.properties))
            elif disposal.failed:
                self._settlement.fail(consumer, message, "modified", transaction.id, disposal.text)
            else:
                self._settlement.put_back(consumer, message)
        transaction.consumed = kept

    def roll_back(self, transaction: Transaction, cause: str, token: Any = None) -> None:
        """Undo a transaction: what it received returns to its place and counts, what it sent is gone."""
        self._open_transactions.remove(transaction)
        self.give_up(transaction, cause)
        if token is not None:
            self._answer(token, transaction, commits=False)

    def _answer(self, token: Any, transaction: Transaction, *, commits: bool) -> None:
        """Tell who discharged it when the next commit is durable."""
        self._kernel.gathering.awaited = True
        self._kernel.change(Discharge(self, token, transaction, commits))

    def give_up(self, transaction: Transaction, cause: str) -> None:
        """Undo one that is not open any more."""
        self._kernel.gathering.ended += transaction.larges
        self._kernel.effects += sends_settled(transaction, [])
        for consumer, message in _by_place(transaction.consumed):
            self._settlement.fail(consumer, message, "rollback", transaction.id)
        if transaction.did_work:
            self._kernel.record(
                TransactionRolledBack(transaction.id, len(transaction.consumed), len(transaction.sends), cause)
            )

    def undo(self, transaction: Transaction) -> None:
        """There was no room for its commit: what it consumed, it did not."""
        self.committing.discard(transaction.id)
        for _, message in transaction.consumed:
            enter(message, REFUSE)
            message.queue.consumed -= 1
            message.queue.bytes += message.size
        self.give_up(transaction, "failed")

    def spoil(self, larges: set[int], description: str) -> None:
        """Parts of large messages could not be stored: who sends them in a transaction can only roll back."""
        for transaction in self._open.values():
            if not larges.isdisjoint(transaction.larges):
                transaction.failed = description

    def roll_back_all(self, cause: str) -> None:
        """The broker stops."""
        for transaction in list(self._open.values()):
            self.roll_back(transaction, cause)

    def disconnect(self, owner: Any) -> None:
        """The connection `owner` is gone: its transactions are rolled back (CONTRACT A5)."""
        for transaction in self.of(owner):
            self.roll_back(transaction, "disconnect")


class Discharge(msgspec.Struct, gc=False):
    """A transaction ends, and `token` is of who asked for that: it, or one that asks for its outcome."""

    transactions: Transactions
    token: Any
    transaction: Transaction
    commits: bool

    def needs_room(self, lost: set[tuple[int, int]]) -> bool:
        """Whether the transaction publishes, or repeats what is lost: if there is no room it can only roll back."""
        transaction = self.transaction
        if not self.commits:
            return False
        repeats_lost = any(duplicate.is_lost(lost) for duplicate in transaction.duplicates)
        return bool(transaction.sends) or transaction.buries or repeats_lost

    def durable(self, outcome: Outcome) -> None:
        """Its outcome is known."""
        self.transactions.committing.discard(self.transaction.id)
        outcome.answers += sends_settled(self.transaction, self.transaction.told)
        outcome.answers.append(Discharged(self.token))

    def refused(self, refusal: RefusedCommit) -> None:
        """It is rolled back if it publishes; what only consumes needs no room."""
        rolled_back = refusal.rolled_back.get(self.transaction.id)
        if rolled_back is None:
            refusal.await_end()
            refusal.retry(self)
        elif rolled_back is self:
            self.transactions.undo(self.transaction)
            refusal.emit(DischargeRefused(self.token, FULL, refusal.description))
        else:
            refusal.emit(DischargeRefused(self.token, ROLLED_BACK, refusal.description))


def _excess(transaction: Transaction, coming: int = 0) -> str | None:
    """Why a transaction is too large, or will be with so many messages more; None if it is not."""
    if transaction.bytes > limits.TRANSACTION_BYTES_MAX:
        return f"it sends more than {limits.TRANSACTION_BYTES_MAX >> 20} MiB; commit more often"
    if len(transaction.sends) + len(transaction.consumed) + coming > limits.TRANSACTION_MESSAGES_MAX:
        return f"it has more than {limits.TRANSACTION_MESSAGES_MAX:,} messages; commit more often"
    return None


def sends_settled(transaction: Transaction, duplicates: list[Any]) -> list[Effect]:
    """Those senders hear of it that waited for the end of the transaction."""
    unsettled, transaction.unsettled = transaction.unsettled, []
    return [SettleSends(transaction.id, unsettled, duplicates)] if unsettled else []


def _by_place(consumed: list[tuple[Consumer, Message]]) -> list[tuple[Consumer, Message]]:
    """Messages that a transaction received, by place: clients state them in any order, dead letters keep theirs."""
    return sorted(consumed, key=lambda pair: (pair[1].queue.id, pair[1].seq))
