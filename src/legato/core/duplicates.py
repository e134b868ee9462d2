"""Duplicate detection: an address stores the first message with a given duplicate id (CONTRACT E15, E19).

1. An address remembers its last ids, `duplicate_window` of them, in the same commit as their messages. What becomes of
   the messages does not matter: consumed, expired or purged, their ids stay.
2. Ids are looked up in the store, one at a time; the heap has those that are on their way there. So nothing is read
   when an epoch begins, however many there are.
3. A position counts the ids of an address. What the store still has from before the window does not count.
4. An id pushes another out of the window once it is durable, and not before: its commit may find no room.
"""

from __future__ import annotations

from legato.core.commit import Commit
from legato.core.duplicate_records import DroppedDuplicate, IdKept, IdWindow, StoredOriginal
from legato.core.facts import DuplicateDropped, DuplicateIdDropped, DuplicateIdKept
from legato.core.kernel import Kernel
from legato.core.outgoing import Outgoing
from legato.core.producers import Producer
from legato.core.topics import Node


class Duplicates:
    """Remembers duplicate ids, and drops messages that repeat one."""

    __slots__ = ("_kernel", "windows")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.windows: dict[int, IdWindow] = {}
        """Of the addresses at which ids were used in this epoch, by number."""

    def counts_of(self, node: Node) -> tuple[int, int]:
        """How many ids an address remembers, and how many duplicates it has dropped since the epoch began."""
        window = self.windows.get(node.id)
        first, last = self._kernel.archive.duplicates(node.id)
        return min(last - first + 1, node.settings.duplicate_window), window.dropped if window is not None else 0

    def duplicate_id_of(self, node: Node, outgoing: Outgoing) -> bytes:
        """Duplicate id of a message; empty if it has none."""
        settings = node.settings
        if not settings.duplicate_window:
            return b""
        if outgoing.traits.duplicate_id:
            return outgoing.traits.duplicate_id
        return outgoing.message_id.encode() if settings.duplicate_detection == "message-id" else b""

    def first_of(self, node: Node, duplicate_id: bytes) -> StoredOriginal | None:
        """The message that has the id, if the address remembers it; what is not in the store yet it always does."""
        window = self.window(node)
        first = window.pending.get(duplicate_id)
        if first is not None:
            return first
        kept = self._kernel.archive.duplicate(node.id, duplicate_id)
        if kept is None or kept.position <= window.last - node.settings.duplicate_window:
            return None
        return StoredOriginal(kept.message_id, kept.producer, kept.number)

    def keep_id(self, node: Node, duplicate_id: bytes, outgoing: Outgoing) -> None:
        """From now on the message has the id."""
        window = self.window(node)
        first = window.pending[duplicate_id] = StoredOriginal(outgoing.message_id, outgoing.producer, outgoing.number)
        commit = self._kernel.gathering
        commit.facts.append(
            DuplicateIdKept(
                node.id,
                duplicate_id,
                node.settings.duplicate_window,
                outgoing.message_id,
                outgoing.producer,
                outgoing.number,
            )
        )
        commit.changes.append(IdKept(window, duplicate_id, first))

    def drop(self, node: Node, duplicate_id: bytes, outgoing: Outgoing, first: StoredOriginal) -> DroppedDuplicate:
        """A message whose id another one has is confirmed, once that one is durable, and not stored."""
        self.window(node).dropped += 1
        fact = DuplicateIdDropped(
            node.id,
            duplicate_id,
            outgoing.message_id,
            first.message_id,
            outgoing.producer,
            outgoing.number,
            outgoing.txn,
        )
        return self._pass_over(DroppedDuplicate(None if outgoing.txn else outgoing.token, fact, first, told=True))

    def drop_resent(self, node: Node, outgoing: Outgoing, producer: Producer) -> None:
        """A repeated number of a numbered producer: the same outcome as when it came first."""
        duplicate_id = self.duplicate_id_of(node, outgoing)
        first = self.first_of(node, duplicate_id) if duplicate_id else None
        if first is not None and (first.producer, first.number) == (outgoing.producer, outgoing.number):
            first = None
        fact = DuplicateDropped(producer.id, outgoing.number)
        self._pass_over(DroppedDuplicate(outgoing.token, fact, first, told=first is not None))

    def _pass_over(self, duplicate: DroppedDuplicate) -> DroppedDuplicate:
        self._kernel.record(duplicate.fact)
        self._kernel.change(duplicate)
        return duplicate

    def window(self, node: Node) -> IdWindow:
        window = self.windows.get(node.id)
        if window is None:
            window = self.windows[node.id] = IdWindow(self._kernel.archive.duplicates(node.id)[1])
        return window

    def lose_ids(self, commit: Commit) -> None:
        """The commit's messages could not be stored."""
        for change in commit.changes:
            if isinstance(change, IdKept):
                change.first.lost = True
                change.window.pending.pop(change.duplicate_id, None)
