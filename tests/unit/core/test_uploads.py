"""Large messages on their way into the broker."""

from legato.amqp.codec.stubs import Stub, make_stub
from legato.core.traits import Traits
from tests.support.scenario import Scenario

FULL = "amqp:resource-limit-exceeded"


def stub(large: int) -> bytes:
    return make_stub(b"", Stub(large, 3))


def upload(s: Scenario, *, parts: int = 3) -> int:
    """A large message all parts of which came; no message stands for it yet."""
    large = s.broker.uploads.begin()
    for index in range(parts):
        s.broker.uploads.add_chunk(large, index, b"part")
    return large


def is_kept(s: Scenario, large: int) -> bool:
    """Whether its parts are in the store after everything is committed that was asked."""
    s.run()
    while s.store.prune(s.now_us):
        pass
    return s.store.chunk(large, 0) is not None


def publish(s: Scenario, large: int, deliver_us: int = 0) -> None:
    s.broker.publisher.publish(s.broker.directory.queue("q"), stub(large), "", large, Traits(deliver_us=deliver_us))
    s.broker.uploads.end(large)


def test_parts_stay_while_a_message_stands_for_them() -> None:
    s = Scenario()
    large = upload(s)
    publish(s, large)
    assert is_kept(s, large)
    assert s.confirmed == [large]
    consumer = s.consumer("q", 1)
    s.accept(consumer, *s.in_hand(consumer))
    assert not is_kept(s, large)


def test_an_upload_that_is_given_up_leaves_nothing() -> None:
    s = Scenario()
    large = upload(s)
    s.run()
    assert is_kept(s, large)
    s.broker.uploads.end(large)
    assert not is_kept(s, large)


def test_a_message_nobody_subscribed_to_leaves_nothing() -> None:
    s = Scenario()
    large = upload(s)
    s.broker.publisher.publish(s.broker.directory.topic("t"), stub(large), "", large)
    s.broker.uploads.end(large)
    assert not is_kept(s, large)
    assert s.confirmed == [large]


def test_it_waits_for_its_time_like_any_other() -> None:
    s = Scenario()
    large = upload(s)
    publish(s, large, deliver_us=s.now_us + 2_000_000)
    s.wait(1)
    assert is_kept(s, large)
    consumer = s.consumer("q", 1)
    assert s.in_hand(consumer) == []
    s.wait(2)
    assert is_kept(s, large)
    assert len(s.in_hand(consumer)) == 1


def test_the_commit_of_its_transaction_decides() -> None:
    """Promise 2."""
    s = Scenario()
    kept, lost = upload(s), upload(s)
    for large, fails in ((kept, False), (lost, True)):
        transaction = s.broker.transactions.find(s.broker.transactions.declare("owner"), "owner")
        assert transaction is not None
        s.broker.transactions.publish(transaction, s.broker.directory.queue("q"), stub(large), "")
        s.broker.uploads.end(large, transaction)
        assert is_kept(s, large)
        s.broker.transactions.discharge(transaction.id, "owner", fail=fails, token=large)
        s.run()
    assert is_kept(s, kept)
    assert not is_kept(s, lost)


def test_the_parts_go_with_the_connection_that_did_not_commit() -> None:
    s = Scenario()
    large = upload(s)
    transaction = s.broker.transactions.find(s.broker.transactions.declare("owner"), "owner")
    assert transaction is not None
    s.broker.transactions.publish(transaction, s.broker.directory.queue("q"), stub(large), "")
    s.broker.uploads.end(large, transaction)
    s.broker.transactions.disconnect("owner")
    assert not is_kept(s, large)


def test_parts_that_find_no_room_spoil_their_upload() -> None:
    """Promise 5: what could not be stored as a whole is not stored."""
    s = Scenario()
    large = s.broker.uploads.begin()
    s.broker.uploads.add_chunk(large, 0, b"part")
    s.full = True
    s.run()
    assert s.broker.uploads.is_spoilt(large)
    s.broker.uploads.add_chunk(large, 1, b"part")
    s.broker.uploads.end(large)
    assert not is_kept(s, large)
    assert s.store.chunk(large, 1) is None


def test_a_message_published_while_its_parts_find_no_room_is_refused() -> None:
    """Promise 5."""
    s = Scenario()
    large = upload(s)
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None
    publish(s, large)
    s.broker.failed("no room")
    s.run()
    assert s.refused == {large: FULL}
    assert s.broker.directory.queue("q").depth == 0
    assert not is_kept(s, large)


def test_a_transaction_whose_parts_found_no_room_rolls_back() -> None:
    """Promise 2."""
    s = Scenario()
    large = upload(s)
    transaction = s.broker.transactions.find(s.broker.transactions.declare("owner"), "owner")
    assert transaction is not None
    s.broker.transactions.publish(transaction, s.broker.directory.queue("q"), stub(large), "")
    s.broker.uploads.end(large, transaction)
    s.full = True
    s.run()
    s.broker.transactions.discharge(transaction.id, "owner", fail=False, token="commit")
    s.run()
    assert list(s.discharge_refused) == ["commit"]
    assert not is_kept(s, large)


def test_who_asks_again_for_a_commit_that_found_no_room_is_told_so() -> None:
    """Promise 2."""
    s = Scenario()
    large = upload(s)
    transaction = s.broker.transactions.find(s.broker.transactions.declare("owner"), "owner")
    assert transaction is not None
    s.broker.transactions.publish(transaction, s.broker.directory.queue("q"), stub(large), "")
    s.broker.uploads.end(large, transaction)
    s.broker.transactions.discharge(transaction.id, "owner", fail=False, token="commit")
    assert s.broker.take_batch(s.now_us) is not None
    s.broker.transactions.discharge(transaction.id, "another", fail=False, token="again")
    s.broker.failed("no room")
    s.run()
    assert sorted(s.discharge_refused) == ["again", "commit"]
    assert s.discharged == []


def test_the_next_epoch_removes_what_was_being_uploaded() -> None:
    s = Scenario()
    large, other = upload(s), upload(s)
    publish(s, large)
    s.run()
    after = s.crash()
    assert after.broker.uploads.has_larges
    assert is_kept(after, large)
    assert not is_kept(after, other)


def test_nobody_need_look_for_large_messages_when_all_are_gone() -> None:
    s = Scenario()
    assert not s.broker.uploads.has_larges
    large = upload(s)
    s.broker.uploads.review()
    assert s.broker.uploads.has_larges, "its parts are not committed"
    s.run()
    s.broker.uploads.review()
    assert s.broker.uploads.has_larges, "more may come"
    publish(s, large)
    s.run()
    s.broker.uploads.review()
    assert s.broker.uploads.has_larges, "it waits"
    consumer = s.consumer("q", 1)
    s.accept(consumer, *s.in_hand(consumer))
    assert not is_kept(s, large)
    s.broker.uploads.review()
    assert not s.broker.uploads.has_larges
    assert s.broker.uploads.begin()
    s.broker.uploads.review()
    assert s.broker.uploads.has_larges, "one is coming"
