"""Planted faults: production functions with a mistake in them, which the simulator must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from legato.client.calls.undertakings import Undertakings
from legato.client.failover.wire import Wire
from legato.client.links.channel import Channel
from legato.client.links.coordinator_end import CoordinatorEnd
from legato.client.links.deliveries import AckBatch, Incoming
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import Outgoing
from legato.client.links.temporaries import TemporaryEnd
from legato.client.links.transaction_outcome import Query
from legato.core import router
from legato.core.assignments import Assignments
from legato.core.backpressure import Backpressure
from legato.core.broker import Broker
from legato.core.commit import Commit
from legato.core.dead_letters import DeadLetters
from legato.core.dispatch_modes import DispatchModes
from legato.core.duplicates import Duplicates
from legato.core.groups import Groups
from legato.core.lanes import Lane
from legato.core.numbered_producers import NumberedProducers
from legato.core.producers import Producer
from legato.core.publishing import Publisher
from legato.core.queues import Queue
from legato.core.receivers import Receivers
from legato.core.redelivery import Redelivery
from legato.core.reservations import Reservations
from legato.core.router import Router
from legato.core.schedule import Schedule
from legato.core.settlement import Settlement
from legato.core.staged_batches import Stage
from legato.core.steady import SteadyClock
from legato.core.transactions import Transactions
from legato.ha.flock import LockFile
from legato.ha.members import Membership
from legato.server.links.consumers import Consumers
from legato.server.links.link_closing import LinkCloser
from legato.server.links.subscriptions import SubscriptionLinks
from legato.server.messages import executor
from legato.server.messages.commits import Commits
from legato.store.memory import MemoryStore
from simulator import (
    mistakes,
    mistakes_at_addresses,
    mistakes_of_clients,
    mistakes_of_pipelines,
    mistakes_of_retention,
    mistakes_of_runs,
)


class Fault:
    """One of them: `replacement` in the place of `owner.name`; `reached` says whether anybody called that yet."""

    def __init__(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        self.owner = owner
        self.name = name
        self.replacement = replacement
        self.reached = False

    @property
    def title(self) -> str:
        """What it is called on the command line."""
        return self.replacement.__name__.replace("_", "-")

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The fault is there for a while."""

        @wraps(self.replacement)
        def reached(*arguments: Any, **options: Any) -> Any:
            self.reached = True
            return self.replacement(*arguments, **options)

        with ExitStack() as stack:
            stack.enter_context(patch.object(self.owner, self.name, reached))
            yield


FAULTS = [
    Fault(MemoryStore, "commit", mistakes.commit_in_any_epoch),
    Fault(Broker, "take_batch", mistakes.confirm_before_commit),
    Fault(Broker, "take_batch", mistakes.deliver_before_commit),
    Fault(Producer, "is_duplicate", mistakes.is_never_a_duplicate),
    Fault(Lane, "restored", mistakes.restored_unflagged),
    Fault(executor, "_redelivered", mistakes.without_header),
    Fault(Receivers, "detach", mistakes.detach_counting_all),
    Fault(Redelivery, "fail", mistakes.fail_twice),
    Fault(Receivers, "attach", mistakes.attach_hiding_who_has_it),
    Fault(Settlement, "acknowledge", mistakes.acknowledge_nothing),
    Fault(DispatchModes, "_begin_selecting", mistakes.begin_selecting_forgetful),
    Fault(Lane, "claim", mistakes.claim_all_that_is_read),
    Fault(Commit, "give_back", mistakes.give_nothing_back),
    Fault(Transactions, "give_up", mistakes.give_up_and_consume),
    Fault(Transactions, "give_up", mistakes.give_up_and_publish),
    Fault(Transactions, "_commit", mistakes.commit_all_but_the_first),
    Fault(MemoryStore, "outcome", mistakes.no_outcome),
    Fault(Transactions, "_discharge_again", mistakes.always_committed),
    Fault(router, "matching_subscriptions", mistakes.takers_but_one),
    Fault(Schedule, "due", mistakes.nothing_due),
    Fault(Outgoing, "connection_lost", mistakes_of_clients.resend_as_new),
    Fault(Outgoing, "connection_lost", mistakes_of_clients.resend_nothing),
    Fault(Outgoing, "connection_lost", mistakes_of_clients.resend_the_last_first),
    Fault(Incoming, "take_unseen", mistakes_of_clients.forget_the_oldest_first),
    Fault(Lane, "tell_apart", mistakes_of_runs.apart_from_the_last),
    Fault(Lane, "_returned_first", mistakes_of_runs.window_before_what_came_back),
    Fault(Lane, "put_back", mistakes_of_runs.last_back_first),
    Fault(Wire, "encode", mistakes_of_clients.credit_before_what_goes_back),
    Fault(Incoming, "claims_answered", mistakes_of_clients.none_elsewhere),
    Fault(AckBatch, "outcome", mistakes_of_clients.all_accepted),
    Fault(Query, "answer", mistakes_of_clients.never_committed),
    Fault(Channel, "_report_abort", mistakes_of_clients.no_abort),
    Fault(Groups, "may_have", mistakes_at_addresses.all_may_have_a_group),
    Fault(Groups, "give", mistakes_at_addresses.close_all_groups),
    Fault(Groups, "release", mistakes_at_addresses.groups_for_good),
    Fault(Queue, "review_turn", mistakes_at_addresses.refresh_all),
    Fault(Publisher, "publish_closely", mistakes_at_addresses.refuse_and_store),
    Fault(Backpressure, "room", mistakes_at_addresses.room_and_no_word),
    Fault(Router, "expire", mistakes_at_addresses.expire_into_nothing),
    Fault(DeadLetters, "bury", mistakes_at_addresses.dead_letter_dropped),
    Fault(Receivers, "detach", mistakes_at_addresses.detach_keeping_nothing),
    Fault(Reservations, "release_overdue", mistakes_at_addresses.keep_for_ever),
    Fault(MemoryStore, "taken", mistakes_at_addresses.nobody_took),
    Fault(Reservations, "take_back", mistakes_at_addresses.take_nothing_back),
    Fault(Duplicates, "first_of", mistakes_at_addresses.no_duplicates),
    Fault(MemoryStore, "duplicate", mistakes_at_addresses.no_duplicates_on_disk),
    Fault(Duplicates, "lose_ids", mistakes_at_addresses.duplicates_of_the_lost),
    Fault(Transactions, "_sort_out", mistakes_at_addresses.sort_nothing_out),
    Fault(Duplicates, "_pass_over", mistakes_at_addresses.duplicates_untold),
    Fault(Duplicates, "drop_resent", mistakes_at_addresses.resent_untold),
    Fault(MemoryStore, "prune", mistakes_of_retention.prune_the_attached),
    Fault(SteadyClock, "tick", mistakes_of_retention.clock_that_jumps),
    Fault(Membership, "refresh", mistakes_of_retention.members_must_be_written),
    Fault(LockFile, "write", mistakes_of_retention.notes_must_be_written),
    Fault(Undertakings, "hear", mistakes_of_clients.hear_nothing),
    Fault(ReceiverEnd, "look", mistakes_of_clients.lazy_and_silent),
    Fault(SenderEnd, "_drop_done", mistakes_of_clients.commit_behind_what_is_gone),
    Fault(CoordinatorEnd, "give_up", mistakes_of_clients.commit_without_what_came_back),
    Fault(Outgoing, "decided", mistakes_of_clients.last_words_twice),
    Fault(ReceiverEnd, "on_attached", mistakes_of_clients.claims_of_any_queue),
    Fault(Consumers, "detach", mistakes_at_addresses.cut_and_unflagged),
    Fault(LinkCloser, "end", mistakes_at_addresses.end_before_the_answers),
    Fault(TemporaryEnd, "connection_lost", mistakes_of_clients.deletion_forgotten),
    Fault(Assignments, "_extents_of", mistakes_of_pipelines.bytes_for_good),
    Fault(Lane, "pass_over", mistakes_of_pipelines.floors_passed_over),
    Fault(Stage, "durable", mistakes_of_pipelines.batches_passed_over),
    Fault(NumberedProducers, "forget_unused", mistakes_of_pipelines.sinks_forgotten),
    Fault(DispatchModes, "_begin_selecting", mistakes_of_pipelines.claimed_for_good),
    Fault(Commits, "when_durable", mistakes_of_pipelines.answer_at_once),
    Fault(SubscriptionLinks, "end_found", mistakes_of_pipelines.end_or_not),
]
