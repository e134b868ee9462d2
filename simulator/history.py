"""The promises made to applications, compared with the durable history; a contradiction is a violation at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from legato.client.links.deliveries import Delivery
from legato.core.consumers import Consumer
from legato.core.dead_letters import HISTORY
from legato.core.effects import Deliver
from legato.core.message import Message, MessageRun
from legato.errors import InvalidDestinationError, JMSError, JMSSecurityError
from legato.server.access.permissions import Denied
from legato.server.links.refused import INTERNAL_ERROR, RESOURCE_DELETED
from simulator.durable import Durable, burial_name, number_of
from simulator.plan import DURABLE, Plan
from simulator.record import Copy, text_of

CALM_AFTER_US = 15_000_000
"""So long what was stopped or held back may stay so."""
SERVED_WITHIN_US = 20_000_000
"""A log that is slow does not keep everybody from committing for so long."""
SLOW_FOR_US = 1_000_000
"""So long what waited for a slow log may wait for what came before it."""

ENDINGS: dict[str, type[JMSError]] = {
    Denied.condition: JMSSecurityError,
    INTERNAL_ERROR: JMSError,
    RESOURCE_DELETED: InvalidDestinationError,
}
"""The conditions of links that brokers end by themselves, and the errors that applications get of them."""


class History(Durable):
    """Follows one run.

    Attributes:
        groups: of messages that have one, by number.
        closing: the numbers of messages that are the last of their group.
    """

    def __init__(self, now_us: Callable[[], int], wants: Callable[[str, int], bool], plan: Plan) -> None:
        super().__init__(now_us, wants, plan)
        self.groups: dict[int, str] = {}
        self.closing: set[int] = set()
        self._given_in_step: dict[tuple[str, str], list[tuple[Consumer, bool]]] = {}
        """By queue and group: who was given a message of it in this step, and whether that closes it."""
        self.dispatched: dict[tuple[str, int, str], tuple[int, int]] = {}
        """By copy and container: when it was last put on a link, in which epoch; 0 if that was over already."""
        self.owners: dict[tuple[str, str], Consumer] = {}
        """Who was given something of an exclusive queue or of a group last."""
        self.last_seen: dict[tuple[str, str, str, str], int] = {}
        """By queue, consumer, sender and group: the number that came last, where order is promised."""
        self.confirmed: set[str] = set()
        self.announced: dict[int, list[Delivery]] = {}
        """By number: deliveries that the broker was told to count, and that no application has seen yet."""
        self.silent: set[tuple[str, str]] = set()
        """Consumers that do not say what their applications have, by container and link."""
        self.unsure: set[tuple[str, int, str]] = set()
        """By copy and container: what was given to one of them, for which brokers count as they must for such."""
        self.given_to: dict[tuple[str, int], set[str]] = {}
        """By copy: the containers that it was put on a link to."""
        self.overflowed: set[tuple[str, int]] = set()
        """Queue and place of what a full address gave up."""
        self.came_again: set[tuple[str, int]] = set()
        """Copies that were given up so, and came again behind what had followed them: the broker had died before it
        was durable that they are gone."""

    # -- the wire ------------------------------------------------------------------------------------------------

    def dispatching(self, epoch: int, effect: Deliver) -> None:
        """A broker hands messages to a consumer."""
        consumer = effect.consumer
        if consumer.port.settled:
            return
        self._check_claims(effect)
        messages = _messages(effect)
        queue = messages[0].queue
        if queue.name in self.paused and epoch == self.epoch:
            fresh = [message for message in messages if not (message.presented or message.count or message.flagged)]
            if fresh:
                raise self.broken(f"{queue.name} is paused, and {fresh} went to consumer {consumer.id}")
        for message in messages:
            assert message.body is not None
            self.note("dispatched:", number_of(message.body), message, "to", consumer.container)
            name = self.copy_name(message.queue.name, message.seq)
            key = (name, number_of(message.body), consumer.container)
            if (message.queue.name, message.seq) in self.overflowed:
                self.came_again.add(key[:2])
            holder = self.seen_by.get((message.queue.id, message.seq))
            if holder is not None and epoch == self.epoch and self.containers[holder] != consumer.container:
                raise self.broken(f"B21: message {key[1]} of {key[0]} is consumer {holder}'s and went to {consumer.id}")
            self.dispatched[key] = (self.now_us(), epoch if epoch == self.epoch else 0)
            self.given_to.setdefault(key[:2], set()).add(consumer.container)
            if not consumer.reports_presented:
                self.unsure.add(key)
        self.counts["runs given"] += sum(isinstance(entry, MessageRun) for entry in effect.messages)

    def is_dropped(self, message: Message) -> None:
        """A full address gives up a message; what follows it may be delivered before that is durable."""
        self.overflowed.add((message.queue.name, message.seq))

    def was_given_back(self, message: Message, consumer: Consumer) -> None:
        """A consumer's client releases a message: another may get it."""
        self.seen_by.pop((message.queue.id, message.seq), None)
        key = message.queue.id, message.seq, consumer.id
        self.outdated[key] = self.recorded[key]

    def is_recorded(self, message: Message, consumer: Consumer) -> None:
        """A broker records that a message was presented; it is durable later."""
        self.recorded[message.queue.id, message.seq, consumer.id] += 1

    def _check_claims(self, effect: Deliver) -> None:
        """Exclusive queues and groups are one consumer's as long as that is there.

        What an application had before a takeover comes to it once more, although another may have what follows.
        """
        queue, consumer = effect.messages[0].queue, effect.consumer
        address = self.plan.address(queue.name)
        given = [message for message in _messages(effect) if not message.presented]
        if address is None or not given:
            return
        if address.settings.get("exclusive"):
            self._claim((queue.name, ""), consumer)
        if address.grouped:
            for number in (number_of(message.body or b"") for message in given):
                if number in self.groups:
                    self._claim((queue.name, self.groups[number]), consumer, closes=number in self.closing)

    def _claim(self, key: tuple[str, str], consumer: Consumer, *, closes: bool = False) -> None:
        there = consumer.queue.consumers
        if self.owners.get(key) not in there:
            self.owners.pop(key, None)
        if self.closing and key[1]:
            former = self._given_in_step.get(key, [])
            self._given_in_step[key] = [*((who, last) for who, last in former if who in there), (consumer, closes)]
            return
        owner = self.owners.setdefault(key, consumer)
        if owner is not consumer:
            raise self.broken(f"{key[0]} {key[1]} is consumer {owner.id}'s and went to {consumer.id}")

    def check_step(self) -> None:
        """Groups went from one consumer to another only where they were closed.

        One dispatch tells what it gave consumer by consumer, not in the order in which it gave it: whoever had the
        group at first must have closed it if others got it, and one of all can have it in the end.
        """
        for key, given in self._given_in_step.items():
            owner = self.owners.pop(key, None)
            got = {who.id: who for who, _ in given}
            closed = {who.id for who, closes in given if closes}
            if owner is not None and owner.id not in closed and got.keys() - {owner.id}:
                raise self.broken(f"{key[0]} {key[1]} is consumer {owner.id}'s and went to {[*got]}")
            # Of each consumer only its last one says whether it has the group afterwards.
            keeping = [who for who, closes in {who.id: (who, closes) for who, closes in given}.values() if not closes]
            if len(keeping) > 1:
                raise self.broken(f"{key[0]} {key[1]} went to consumers {[who.id for who in keeping]} at once")
            if keeping:
                self.owners[key] = keeping[0]
        self._given_in_step.clear()

    # -- applications --------------------------------------------------------------------------------------------

    def was_confirmed(self, message: Any) -> None:
        """A sender was told that its message is stored."""
        name = message.message_id
        self.note("confirmed:", name, text_of(message), "as a duplicate" if message.duplicate else "")
        self._check_stored("P1: a sender was told", message)
        self.counts["confirmed"] += 1

    def _check_stored(self, what: str, message: Any, *, resolved: bool = False) -> None:
        """A message is stored, once, or its sender knows that it is a duplicate.

        Args:
            resolved: it may be of a commit that was cut off: that has its true outcome, of which no more is told.
        """
        name = message.message_id
        unsure = name in self.resent_late
        if message.duplicate:
            if self.originals[name] and not unsure:
                raise self.broken(f"{what} and {name} is stored, not a duplicate")
            self.counts["duplicates told"] += 1
            return
        if name in self.dropped and (resolved or unsure):
            self.counts["duplicates unheard"] += 1
            return
        if self.originals[name] != 1:
            raise self.broken(f"{what} and {name} is not stored")
        self.confirmed.add(name)

    def was_refused(self, message: Any) -> None:
        """A sender was told that its message is not stored."""
        name = message.message_id
        self.note("refused:", name, text_of(message))
        if self.originals[name]:
            raise self.broken(f"P1: {name} was refused and is stored")
        self.void.add(name)
        self.counts["refused"] += 1

    def was_presented(self, name: str, message: Any, container: str, *, in_order: bool = False) -> int:
        """An application was given a message from the queue or subscription `name`; returns its number.

        Args:
            in_order: what the application gave back, if anything, was in order, too.
        """
        number = number_of(text_of(message).encode())
        now_us = self.now_us()
        self.note(f"presented: {number} of {name} to {container}, count {message.delivery_count}", message.redelivered)
        self.counts["presented"] += 1
        copy = self.copies.get((name, number))
        if copy is None:
            raise self.broken(f"message {number} of {name} was presented and never stored there")
        dispatched_us, epoch = self.dispatched.get((name, number, container), (now_us, 0))
        earlier = [at_us for at_us in copy.presented_us if at_us < dispatched_us]
        if earlier and not message.redelivered and epoch:
            raise self.broken(f"P4: message {number} of {name} came again to {container} and is not flagged")
        announced = self.announced.get(number, [])
        if message._delivery in announced:
            announced.remove(message._delivery)
        certain = (name, number, container) not in self.unsure
        if certain and message.delivery_count - 1 > len(copy.presented_us) + len(announced):
            raise self.broken(
                f"P4: message {number} of {name} says delivery {message.delivery_count} after "
                f"{len(copy.presented_us)} presentations and {len(announced)} announced ones"
            )
        if message.delivery_count <= copy.sure:
            raise self.broken(
                f"P4: message {number} of {name} says delivery {message.delivery_count}; {copy.sure} have died of it"
            )
        if copy.acknowledged_us and copy.acknowledged_us < dispatched_us and epoch:
            raise self.broken(f"P5: message {number} of {name} came to {container} after it was acknowledged")
        if in_order and self._is_in_order(name, number, copy, flagged=message.redelivered):
            self._check_order(name, number, container, message.properties.get("sender"))
        copy.presented_us.append(now_us)
        copy.holders.append(container)
        return number

    def is_announced(self, delivery: Delivery) -> None:
        """The broker is told that an application is about to have a message, which it may not live to see."""
        announced = self.announced.setdefault(number_of(delivery.data), [])
        if delivery not in announced:
            announced.append(delivery)

    def _is_in_order(self, name: str, number: int, copy: Copy, *, flagged: bool) -> bool:
        """Whether a message comes to an application as if for the first time.

        What others were given may have come back; and so may what has been presented, or announced.
        """
        if (name, number) in self.came_again:
            return False
        if self._is_for_one(name) and not flagged:
            return True
        return not copy.presented_us and not copy.returned and len(self.given_to.get((name, number), ())) == 1

    def _is_for_one(self, name: str) -> bool:
        """Whether there is one consumer at a time, and it wants all."""
        address = self.plan.address(name)
        return name == DURABLE or (
            address is not None and bool(address.settings.get("exclusive")) and not address.selected
        )

    def _check_order(self, name: str, number: int, container: str, sender: str | None) -> None:
        """What one producer sends to one consumer comes in order (Jakarta Messaging 6.2.10).

        Not where there are selectors: what one consumer of a client did not want another one wants later.
        """
        address = self.plan.address(name)
        if sender is None or address is None or address.ranked or address.selected or number in self.moved:
            return
        key = (name, container, sender, self.groups.get(number, ""))
        last = self.last_seen.get(key, 0)
        if number < last:
            raise self.broken(f"message {number} of {name} came to {container} after {last} of the same sender")
        self.last_seen[key] = number
        self.counts["in order"] += 1

    def volatile(self, prefix: str, message: Any) -> str:
        """The name of the subscription that begins so and has had a message; brokers make names up."""
        number = number_of(text_of(message).encode())
        return next((name for name in self.temporary if name.startswith(prefix) and (name, number) in self.copies), "")

    def buried(self, name: str, message: Any) -> str:
        """The name under which `copies` has a message of the queue `name`: a dead letter says whose consumer had it."""
        if name != self.plan.dead_letters_of_listeners:
            return name
        consumer = json.loads(message.properties[HISTORY])[-1]["consumer"]
        return burial_name(name, self.receives_from[consumer])

    def was_browsed(self, name: str, messages: list[Any]) -> None:
        """An application looked at a queue and saw these, in one look."""
        numbers = [number_of(text_of(message).encode()) for message in messages]
        self.note(f"browsed: {numbers} in {name}")
        self.counts["browsed"] += len(numbers)
        for number in numbers:
            if (name, number) not in self.copies:
                raise self.broken(f"message {number} was seen in {name} and never stored there")
        if len(set(numbers)) < len(numbers):
            raise self.broken(f"a message was seen twice in one look at {name}: {numbers}")

    def was_acknowledged(self, name: str, numbers: list[int], container: str) -> None:
        """An application was told that its acknowledgements of messages of `name` count."""
        self.note(f"acknowledged: {numbers} of {name} by {container}")
        for number in numbers:
            copy = self.copies[name, number]
            if copy.ended == "deleted" and self.asked_for["delete", name]:
                # It went with its queue, and comes to nobody again.
                continue
            if copy.ended != "consumed":
                state = copy.ended or "still there"
                raise self.broken(f"P5: message {number} of {name} was acknowledged by {container} and is {state}")
            holder = self.containers[copy.consumer]
            if holder != container:
                raise self.broken(f"P5: {container} acknowledged message {number} of {name}, but {holder} had it")
            copy.acknowledged_us = self.now_us()
            self.counts["acknowledged"] += 1

    def went_elsewhere(self, name: str, numbers: list[int], container: str, *, unsure: bool = False) -> None:
        """An application was told that another receiver has or had one of these messages.

        Args:
            unsure: the connection was lost meanwhile: who must not attach the link again cannot hear what became of it.
        """
        self.counts["elsewhere"] += 1
        if unsure and self.ended_links:
            return
        copies = [self.copies[name, number] for number in numbers]
        # What came twice was lost by its first delivery, though it has been consumed by its second.
        if all(
            copy.ended == "consumed"
            and self.containers[copy.consumer] == container
            and copy.holders.count(container) == 1
            for copy in copies
        ):
            raise self.broken(f"P5: {container} was told that others had {numbers} of {name}: it has consumed them")

    def was_committed(self, sent: list[Any], received: list[tuple[str, int]], container: str) -> None:
        """`commit()` returned."""
        self.note("commit() returned:", [text_of(message) for message in sent], received, container)
        self.counts["commit() returned"] += 1
        for message in sent:
            self._check_stored("P2: commit() returned", message, resolved=True)
        for name, number in received:
            self.was_acknowledged(name, [number], container)

    def was_rolled_back(self, sent: list[Any], received: list[tuple[str, int]], container: str) -> None:
        """`commit()` raised, or `rollback()` returned."""
        self.note("rolled back:", [text_of(message) for message in sent], received, container)
        self.counts["rolled back"] += 1
        for message in sent:
            if self.originals[message.message_id]:
                raise self.broken(f"P2: {message.message_id} is stored by a transaction that was rolled back")
            self.void.add(message.message_id)
        for name, number in received:
            copy = self.copies[name, number]
            if copy.ended == "consumed" and self.containers[copy.consumer] == container:
                raise self.broken(f"P2: message {number} of {name} is consumed by what was rolled back")

    def will_replay(self, sent: list[Any]) -> None:
        """Messages of a transaction that was rolled back are sent again."""
        self.counts["replayed"] += len(sent)
        for message in sent:
            self.void.discard(message.message_id)

    def was_not_replayed(self, sent: list[Any]) -> None:
        """`replay()` raised: nothing was sent again."""
        self.counts["replayed"] -= len(sent)
        self.void.update(message.message_id for message in sent)

    def has_ended(self, error: JMSError) -> bool:
        """Whether a call raised because a broker has ended its link by itself, or does not let anybody attach one."""
        kind = ENDINGS.get(error.code or "")
        if kind is None or error.code not in self.ended_links:
            return False
        if type(error) is not kind:
            raise self.broken(f"a link that ended with {error.code} raised {error!r}, not a {kind.__name__}")
        self.counts["calls whose link was ended"] += 1
        return True

    # -- who dies ------------------------------------------------------------------------------------------------

    def was_calm(self, since_us: int) -> bool:
        """Whether no trouble has been made that might keep what is said since then from the broker."""
        return self.stalled_us < since_us - CALM_AFTER_US and self.slow_us < since_us - SLOW_FOR_US

    def was_slow(self, within_us: int) -> bool:
        """Whether the log that brokers share was slow within that time, and somebody served all the same."""
        now_us = self.now_us()
        return bool(self.slow_us) and now_us - self.slow_us < within_us and now_us - self.durable_us < SERVED_WITHIN_US

    def surely_presented(self, name: str, number: int) -> None:
        """An application has had a message for so long that the broker knows, and dies of it."""
        self.counts["died of a message"] += 1
        self.copies[name, number].sure += 1

    def was_deleted(self, name: str) -> None:
        """`delete()` of a temporary queue returned."""
        self.counts["temporary queues deleted"] += 1
        if name in self.temporary and not self.done["delete", name]:
            raise self.broken(f"delete() returned, and {name} is there")

    # -- administrators and pipelines ----------------------------------------------------------------------------

    def may_be_purged(self, name: str) -> int:
        """Somebody asks to have a queue purged; returns how many messages that took from it so far."""
        self.asked_for["purge", name] += 1
        return self.done["purged", name]

    def was_purged(self, name: str, before: int, count: int) -> None:
        """An administrator was told how many messages its purge took."""
        if self.done["purged", name] - before < count:
            raise self.broken(f"a purge of {name} told of {count} messages, and less are durably gone")

    def will_pause(self, name: str) -> None:
        """Somebody asks to have a queue paused."""
        self.ever_paused.add(name)

    def was_paused(self, name: str) -> None:
        """An administrator was told that a queue is paused; another one may have resumed it before that arrived."""
        if not self.resumes[name] and name in self.durably_paused:
            self.paused.add(name)

    def will_resume(self, name: str) -> None:
        """Somebody asks to have a queue resumed."""
        self.resumes[name] += 1
        self.paused.discard(name)

    def was_resumed(self, name: str) -> None:
        """An administrator was told that it is."""
        self.resumes[name] -= 1

    def will_delete(self, name: str) -> int:
        """Somebody deletes a queue that others use; returns how often that happened so far."""
        self.asked_for["delete", name] += 1
        self.ended_links.add(RESOURCE_DELETED)
        return self.done["delete", name]

    def queue_was_deleted(self, name: str, before: int) -> None:
        """An administrator was told that a queue is deleted."""
        self.counts["queues deleted"] += 1
        if self.done["delete", name] == before:
            raise self.broken(f"{name} is said to be deleted, and was not")

    def will_unsubscribe(self, name: str) -> int:
        """Somebody ends a durable subscription; returns how often that happened so far."""
        self.asked_for["unsubscribe", name] += 1
        return self.done["unsubscribe", name]

    def was_unsubscribed(self, name: str, before: int) -> None:
        """`unsubscribe()` returned."""
        self.counts["subscriptions ended"] += 1
        if self.done["unsubscribe", name] == before and any(self.names[queue] == name for queue in self.topics):
            raise self.broken(f"unsubscribe() returned, and {name} is there")

    def was_read(self, name: str, fence: int, read: list[tuple[int, int]], after: int, through: int) -> None:
        """A pipeline read the numbers of an assignment above `after`, up to `through`."""
        if self.fences[name] != fence:
            return  # A later run of it has the assignment by now, and may be done with these.
        self.counts["rows read"] += len(read)
        if [seq for seq, _ in read] != [*range(after + 1, through + 1)]:
            raise self.broken(f"a pipeline read {read} of {name} above {after}, up to {through}")
        for seq, number in read:
            if self.ranges.get((name, seq)) != number:
                raise self.broken(f"number {seq} of {name} is another message than before")
            self.copies[name, number].presented_us.append(self.now_us())

    def was_done_with(self, name: str, through: int) -> None:
        """A pipeline was told that its acknowledgement counts."""
        left = [seq for queue, seq in self.places if self.names[queue] == name and seq <= through]
        if left:
            raise self.broken(f"P5: {left} of {name} were acknowledged and are there")

    def batch_was_published(self, marks: list[str]) -> None:
        """A sink was told that its batch is published: each row is stored, once."""
        self.counts["batches published"] += 1
        missing = [mark for mark in marks if self.rows[number_of(mark.encode())] != 1]
        if missing:
            raise self.broken(f"P1: a batch is said to be published, and rows {missing} are not stored once")

    # -- the end -------------------------------------------------------------------------------------------------

    def check_end(self) -> None:
        """Everybody is gone and everything was drained."""
        if self.places:
            raise self.broken(f"not drained: {len(self.places)} messages wait, such as {min(self.places)}")
        for (name, number), copy in self.copies.items():
            if copy.ended == "consumed" and not copy.presented_us:
                raise self.broken(f"P5: message {number} of {name} is consumed and nobody had it")
            if copy.ended == "dead: maximum deliveries":
                self._check_death(name, number, copy)
            if copy.ended in self._losses(name):
                raise self.broken(f"message {number} of {name} is lost: {copy.ended or 'it is nowhere'}")
        for name in self.confirmed:
            if self.originals[name] != 1:
                raise self.broken(f"P1: {name} was confirmed and is stored {self.originals[name]} times")

    def _check_death(self, name: str, number: int, copy: Copy) -> None:
        address = self.plan.address(name)
        allowed = address.maximum_deliveries if address is not None else 0
        if not allowed or len(copy.presented_us) + len(self.announced.get(number, [])) < allowed:
            raise self.broken(f"P4: message {number} of {name} died of {len(copy.presented_us)} presentations")

    def _losses(self, name: str) -> set[str]:
        """Ways to leave an address that none of its messages may go."""
        losses = {"", "delayed", "dropped", "purged", "deleted"}
        if self.done["delete", name] or self.done["unsubscribe", name]:
            # What waits for its redelivery when its subscription goes has nowhere to return to.
            losses -= {"deleted", "delayed"}
        if self.asked_for["purge", name]:
            losses.remove("purged")
        address = self.plan.address(name)
        if address is not None and address.when_full == "drop-oldest":
            losses.remove("dropped")
        return losses


def _messages(effect: Deliver) -> list[Message]:
    """The messages of an effect, those of runs too."""
    found: list[Message] = []
    for entry in effect.messages:
        found += entry.messages() if isinstance(entry, MessageRun) else [entry]
    return found
