"""The streaming source, called as Spark calls it, against a real broker that is killed."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from legato.client import ConnectionFactory, TextMessage
from legato.client.failover import uri
from legato.errors import JMSError
from legato.spark.connector.assignments import Place, Places
from legato.spark.connector.offsets import Offset
from legato.spark.connector.options import source_options
from legato.spark.connector.requests import Fenced, Requests, shared_requests
from legato.spark.connector.stream import StreamReader
from tests.support.server import Server, server

ALL = ReadAllAvailable()
READERS: list[StreamReader] = []


@pytest.fixture(autouse=True)
def _readers_stop(broker: Server) -> Iterator[None]:
    yield
    while READERS:
        READERS.pop().stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store") as running:
        yield running


def url(broker: Server) -> str:
    return f"amqp://127.0.0.1:{broker.port}"


def fill(broker: Server, *texts: str, address: str = "orders", topic: bool = False, type: str | None = None) -> None:
    """All at once: what is planned ahead meanwhile sees none of them, or all."""
    with (
        ConnectionFactory(url(broker)).create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        destination = session.create_topic(address) if topic else session.create_queue(address)
        producer = session.create_producer(destination)
        for text in texts:
            message = TextMessage(text)
            message.type = type
            producer.send(message)
        session.commit()


def delete(broker: Server, address: str, *, topic: bool = False) -> None:
    shared_requests(url(broker)).ask("delete", "topic" if topic else "queue", address)


def stream(broker: Server, *, refuses_skips: bool = False, **options: str) -> StreamReader:
    given = {"url": url(broker), "subscription": "spark", "payload": "text", "pollIntervalMs": "0"}
    if not {"topic", "topicPattern", "queues", "queuePattern"} & options.keys():
        given["queue"] = "orders"
    READERS.append(StreamReader(source_options(given | options), refuses_skips=refuses_skips))
    return READERS[-1]


def rows(reader: StreamReader, start: Offset, end: Offset) -> list[str]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [row["body"] for batch in batches for row in batch.to_pylist()]


def last_number(broker: Server, subscription: str, address: str) -> int:
    """The last number that a stream has been assigned."""
    name = f"assignment://{subscription}/{address}"
    told = shared_requests(url(broker)).ask("ticket", "assignment", name)
    return int(told["through"])


def test_batches_follow_each_other_and_what_spark_committed_is_acknowledged(broker: Server) -> None:
    fill(broker, "1", "2", "3")
    reader = stream(broker)
    start = reader.initialOffset()
    assert start == {"orders": 0}
    first = reader.latestOffset(start, ReadMaxRows(2))
    assert rows(reader, start, first) == ["1", "2"]
    second = reader.latestOffset(first, ReadMaxRows(2))
    assert rows(reader, first, second) == ["3"]
    assert reader.latestOffset(second, ReadMaxRows(2)) == second
    assert stream(broker).initialOffset() == {"orders": 3}


def test_a_stream_creates_its_queue_as_any_consumer_does(broker: Server) -> None:
    reader = stream(broker)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start == {"orders": 0}
    fill(broker, "1")
    assert rows(reader, start, reader.latestOffset(start, ALL)) == ["1"]


def test_a_batch_can_be_read_again_by_a_new_process_over_a_killed_broker(broker: Server) -> None:
    fill(broker, "1", "2", "3")
    reader = stream(broker)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2))
    assert rows(reader, start, end) == ["1", "2"]
    broker.kill()
    broker.start()
    assert rows(reader, start, end) == ["1", "2"]
    again = stream(broker)
    assert again.initialOffset() == start
    assert rows(again, start, end) == ["1", "2"]
    assert rows(again, end, again.latestOffset(end, ALL)) == ["3"]


def test_a_second_run_fences_the_first(broker: Server) -> None:
    fill(broker, "1")
    zombie = stream(broker)
    start = zombie.initialOffset()
    end = zombie.latestOffset(start, ALL)
    stream(broker).initialOffset()
    with pytest.raises(Fenced):
        zombie.latestOffset(end, ALL)


def test_latest_begins_with_what_comes_after_the_first_start(broker: Server) -> None:
    fill(broker, "old")
    reader = stream(broker, startingOffsets="latest")
    start = reader.initialOffset()
    fill(broker, "new")
    again = stream(broker, startingOffsets="latest")
    assert again.initialOffset() == start
    assert rows(again, start, again.latestOffset(start, ALL)) == ["new"]


@pytest.mark.parametrize("available_now", [False, True])
def test_latest_is_no_matter_of_queues_that_come_later(broker: Server, available_now: bool) -> None:
    """What they got before the stream looked again was never read."""
    options: dict[str, Any] = {"queuePattern": "late.*", "startingOffsets": "latest"}
    fill(broker, "old", address="late.a")
    start = stream(broker, **options).initialOffset()
    fill(broker, "b1", address="late.b")
    # A driver that died before it wrote an offset down, and one that did.
    for asked in (True, False):
        again = stream(broker, **options)
        if available_now:
            again.prepareForTriggerAvailableNow()
        begin = again.initialOffset() if asked else start
        ends = again.latestOffset(begin, ALL)
        assert rows(again, begin, ends) == ["b1"]


@pytest.mark.parametrize("available_now", [False, True])
def test_latest_is_no_matter_of_the_first_queue_of_a_pattern_that_matched_none(
    broker: Server, available_now: bool
) -> None:
    options: dict[str, Any] = {"queuePattern": "none.*", "startingOffsets": "latest"}
    start = stream(broker, **options).initialOffset()
    assert start == {}
    fill(broker, "1", address="none.yet")
    again = stream(broker, **options)
    if available_now:
        again.prepareForTriggerAvailableNow()
    ends = again.latestOffset(start, ALL)
    assert rows(again, start, ends) == ["1"]


def test_an_address_that_was_read_before_joins_a_stream_where_it_was(broker: Server) -> None:
    """`1 messages of added are gone`, at every start: they were acknowledged before the stream had it."""
    fill(broker, "old", address="added")
    former = stream(broker, queue="added")
    former.commit(former.latestOffset(former.initialOffset(), ALL))
    start = stream(broker).initialOffset()
    fill(broker, "1")
    idle = stream(broker, queues="orders,added")
    ends = idle.latestOffset(start, ALL)
    assert ends == {"added": 1, "orders": 1}
    assert rows(idle, start, ends) == ["1"]
    fill(broker, "new", address="added")
    again = stream(broker, queues="orders,added")
    ends = again.latestOffset(start, ALL)
    assert sorted(rows(again, start, ends)) == ["1", "new"]
    # A batch that is done and comes again with an older checkpoint is missed all the same.
    again.commit(ends)
    with pytest.raises(JMSError, match="1 messages of orders between 0 and 1 are gone"):
        rows(stream(broker, queues="orders,added"), start, ends)


def test_a_topic_is_consumed_through_a_durable_subscription(broker: Server) -> None:
    reader = stream(broker, topic="prices", selector="JMSType = 'wanted'")
    start = reader.initialOffset()
    fill(broker, "1", "2", address="prices", topic=True, type="wanted")
    fill(broker, "3", address="prices", topic=True, type="other")
    assert rows(reader, start, reader.latestOffset(start, ALL)) == ["1", "2"]


def test_several_queues_share_a_batch(broker: Server) -> None:
    fill(broker, *"abcdef", address="one")
    fill(broker, *"gh", address="two")
    reader = stream(broker, queues="one,two")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(4))
    assert end == {"one": 3, "two": 1}
    assert sorted(rows(reader, start, end)) == ["a", "b", "c", "g"]


def test_a_pattern_finds_queues_that_come_later(broker: Server) -> None:
    fill(broker, "1", address="orders.a")
    reader = stream(broker, queuePattern="orders.*")
    start = reader.initialOffset()
    assert start == {"orders.a": 0}
    fill(broker, "2", address="orders.b")
    end = reader.latestOffset(start, ALL)
    assert end == {"orders.a": 1, "orders.b": 1}
    assert rows(reader, start, end) == ["1", "2"]


def test_a_deleted_queue_of_a_pattern_is_the_end_of_that_address_only(
    broker: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the stream for good: with the same checkpoint it could not go on, also if the queue was created anew."""
    for name in "ab":
        fill(broker, f"{name}1", f"{name}2", address=f"dp.{name}")
    reader = stream(broker, queuePattern="dp.*")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(2))
    assert first == {"dp.a": 1, "dp.b": 1}
    delete(broker, "dp.b")
    fill(broker, "a3", address="dp.a")
    assert sorted(rows(reader, start, first)) == ["a1", "b1"]
    last = reader.latestOffset(first, ALL)
    assert "dp.b was deleted" in caplog.text
    taken = rows(reader, first, last)
    assert sorted(set(taken) - {"b2"}) == ["a2", "a3"]
    # Another run repeats the last batch, and goes on behind it.
    again = stream(broker, queuePattern="dp.*")
    again.prepareForTriggerAvailableNow()
    assert sorted(rows(again, first, last)) == sorted(taken)
    assert again.latestOffset(last, ALL) == last
    # Created anew, it is read again, by who reads now and by who comes later.
    fill(broker, "b3", address="dp.b")
    running = stream(broker, queuePattern="dp.*")
    renewed = running.latestOffset(last, ALL)
    assert rows(running, last, renewed) == ["b3"]
    delete(broker, "dp.b")
    assert running.latestOffset(renewed, ALL) == renewed
    fill(broker, "b4", address="dp.b")
    ends = running.latestOffset(renewed, ALL)
    assert rows(running, renewed, ends) == ["b4"]
    running.commit(ends)
    assert stream(broker, queuePattern="dp.*").initialOffset() == ends


def reader_of_a_deleted_queue(broker: Server) -> tuple[StreamReader, Offset]:
    """Of three messages it has planned the first, and the second was assigned ahead; and where the first batch ends."""
    fill(broker, "1", "2", "3", address="dp.b")
    reader = stream(broker, queuePattern="dp.*")
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    while last_number(broker, "spark", "dp.b") < 2:
        pass
    delete(broker, "dp.b")
    return reader, first


def test_what_was_taken_from_a_queue_before_it_was_deleted_is_still_done(broker: Server) -> None:
    reader, first = reader_of_a_deleted_queue(broker)
    second = reader.latestOffset(first, ReadMaxRows(1))
    assert rows(reader, first, second) == ["2"]
    assert reader.latestOffset(second, ReadMaxRows(1)) == second
    with pytest.raises(JMSError, match=r"1 messages of dp\.b between 1 and 2 are gone"):
        rows(reader, first, second)


def test_a_batch_is_read_while_the_next_one_finds_that_the_queue_is_gone(
    broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assignment goes on under a new fence, which must not end the stream that asked for it."""
    resume, resumed, begun = Places._resume, threading.Event(), threading.Event()

    def resume_slowly(places: Places, address: str) -> Place:
        place = resume(places, address)
        resumed.set()
        begun.wait(1)
        return place

    monkeypatch.setattr(Places, "_resume", resume_slowly)
    reader, first = reader_of_a_deleted_queue(broker)
    second = reader.latestOffset(first, ReadMaxRows(1))
    assert resumed.wait(60)
    parts = reader.partitions(first, second)
    begun.set()
    assert [row["body"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()] == ["2"]


def test_available_now_ends_with_what_was_taken_from_a_deleted_queue(broker: Server) -> None:
    fill(broker, "1", "2", "3", address="dp.b")
    reader = stream(broker, queuePattern="dp.*")
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    while last_number(broker, "spark", "dp.b") < 2:
        pass  # The next batch is assigned ahead.
    delete(broker, "dp.b")
    again = stream(broker, queuePattern="dp.*")
    again.prepareForTriggerAvailableNow()
    second = again.latestOffset(first, ALL)
    assert rows(again, first, second) == ["2"]
    assert again.latestOffset(second, ALL) == second


def test_a_queue_that_is_named_and_deleted_ends_the_stream_unless_losses_are_let_pass(broker: Server) -> None:
    fill(broker, "1", "2")
    reader = stream(broker)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(2))
    delete(broker, "orders")
    with pytest.raises(
        JMSError, match=r"queue of assignment://spark/orders was deleted\. Set the option failOnDataLoss"
    ):
        reader.latestOffset(first, ALL)
    fill(broker, "new")
    with pytest.raises(JMSError, match="takes from another queue"):
        stream(broker).latestOffset(first, ALL)
    patient = stream(broker, failOnDataLoss="false")
    assert rows(patient, first, patient.latestOffset(first, ALL)) == ["new"]


def test_a_topic_of_a_pattern_that_is_deleted_is_its_end(broker: Server) -> None:
    for name in "ab":
        fill(broker, address=f"prices.{name}", topic=True)
    reader = stream(broker, topicPattern="prices.*")
    start = reader.initialOffset()
    fill(broker, "b1", address="prices.b", topic=True)
    first = reader.latestOffset(start, ALL)
    delete(broker, "prices.b", topic=True)
    fill(broker, "a1", address="prices.a", topic=True)
    assert rows(reader, start, first) == ["b1"]
    last = reader.latestOffset(first, ALL)
    assert rows(reader, first, last) == ["a1"]
    assert rows(stream(broker, topicPattern="prices.*"), first, last) == ["a1"]


def test_a_checkpoint_with_a_queue_that_is_there_and_not_read_is_refused(broker: Server) -> None:
    fill(broker, "1", address="one.a")
    reader = stream(broker, queuePattern="one.*")
    ends = reader.latestOffset(reader.initialOffset(), ALL)
    with pytest.raises(JMSError, match=r"The checkpoint is of a stream that read one\.a too"):
        stream(broker, queuePattern="other.*").latestOffset(ends, ALL)


@pytest.mark.parametrize("refuses_skips", [False, True])
def test_a_checkpoint_of_another_subscription_is_refused_with_the_names_of_both(
    broker: Server, refuses_skips: bool
) -> None:
    """The broker said `assignment://other/orders has numbers up to 0, not 1.`"""
    fill(broker, "1")
    reader = stream(broker)
    ends = reader.latestOffset(reader.initialOffset(), ALL)
    with pytest.raises(JMSError, match="1 messages of orders were read, and the subscription other has given out 0"):
        stream(broker, refuses_skips=refuses_skips, subscription="other").latestOffset(ends, ALL)


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(2)])
def test_messages_of_a_batch_that_spark_skips_are_not_acknowledged(broker: Server, limit: ReadLimit) -> None:
    """A table of files whose checkpoint was deleted skips batches that it has numbers of: their messages were lost."""
    fill(broker, "1", "2")
    reader = stream(broker, refuses_skips=True)
    start = reader.initialOffset()
    skipped = reader.latestOffset(start, limit)
    with pytest.raises(JMSError, match=r"Spark skipped a batch .* they are back in their queues"):
        reader.latestOffset(skipped, limit)
    fill(broker, "3")
    again = stream(broker, refuses_skips=True)
    ends = again.latestOffset(skipped, ALL)
    assert sorted(rows(again, skipped, ends)) == ["1", "2", "3"]
    assert again.latestOffset(ends, ALL) == ends


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(1)])
def test_a_skipped_batch_behind_one_that_spark_commits_is_not_acknowledged(broker: Server, limit: ReadLimit) -> None:
    """Spark commits a batch when the next one is planned: that cleared the mark of the next, which was lost."""
    fill(broker, "1", "2")
    reader = stream(broker, refuses_skips=True)
    start = reader.initialOffset()
    read = reader.latestOffset(start, ReadMaxRows(1))
    assert rows(reader, start, read) == ["1"]
    skipped = reader.latestOffset(read, limit)
    reader.commit(read)
    with pytest.raises(JMSError, match=r"Spark skipped a batch .* they are back in their queues"):
        reader.latestOffset(skipped, limit)
    again = stream(broker, refuses_skips=True)
    ends = again.latestOffset(skipped, ALL)
    assert rows(again, skipped, ends) == ["2"]


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(1)])
def test_a_skip_before_the_end_of_a_driver_is_noticed_by_the_next(broker: Server, limit: ReadLimit) -> None:
    """Its messages were acknowledged unread: the next driver knew nothing of it."""
    fill(broker, "1", "2")
    reader = stream(broker, refuses_skips=True)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(1))
    assert rows(reader, start, first) == ["1"]
    skipped = reader.latestOffset(first, limit)
    again = stream(broker, refuses_skips=True)
    with pytest.raises(JMSError, match=r"Spark skipped a batch .* they are back in their queues"):
        again.latestOffset(skipped, limit)
    last = stream(broker, refuses_skips=True)
    ends = last.latestOffset(skipped, ALL)
    assert rows(last, skipped, ends) == ["2"]
    assert last.latestOffset(ends, ALL) == ends


def test_a_batch_that_was_read_by_a_driver_that_ended_is_done(broker: Server) -> None:
    fill(broker, "1", "2")
    reader = stream(broker, refuses_skips=True)
    start = reader.initialOffset()
    ends = reader.latestOffset(start, ReadMaxRows(1))
    assert rows(reader, start, ends) == ["1"]
    again = stream(broker, refuses_skips=True)
    more = again.latestOffset(ends, ALL)
    assert rows(again, ends, more) == ["2"]


def test_what_a_stream_of_an_earlier_version_has_done_counts_as_read(broker: Server) -> None:
    """It did not tell what it began to read."""
    fill(broker, "1", "2")
    reader = stream(broker)
    done = reader.latestOffset(reader.initialOffset(), ALL)
    ask = shared_requests(url(broker)).ask
    ask("open", "assignment", subscription="spark", address="orders", topic=False, existing=True)
    assert stream(broker, refuses_skips=True).latestOffset(done, ALL) == done


def test_who_does_not_read_a_batch_may_say_so(broker: Server) -> None:
    fill(broker, "1", "2")
    reader = stream(broker, refuses_skips=True, failOnDataLoss="false")
    skipped = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(skipped, ALL) == skipped
    assert stream(broker).initialOffset() == skipped


def test_a_repeated_batch_that_is_done_elsewhere_need_not_be_read(broker: Server) -> None:
    """As in a function of foreachBatch that knows which batches its database has."""
    fill(broker, "1", "2")
    reader = stream(broker)
    start = reader.initialOffset()
    done = reader.latestOffset(start, ALL)
    assert rows(reader, start, done) == ["1", "2"]
    again = stream(broker, refuses_skips=True)
    assert again.initialOffset() != done
    assert again.latestOffset(done, ALL) == done


def test_available_now_stops_where_it_began(broker: Server) -> None:
    fill(broker, "1", "2")
    reader = stream(broker)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    fill(broker, "3")
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == ["1", "2"]
    assert reader.latestOffset(end, ALL) == end
    assert reader.reportLatestOffset() == {"orders": 3}


def test_a_limit_of_bytes_makes_small_batches(broker: Server) -> None:
    fill(broker, *["x" * 1000] * 300)
    reader = stream(broker, maxBytesPerTrigger="1000")
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes)
    assert 0 < reader.latestOffset(start, limit)["orders"] < 300


def test_a_range_is_cut_for_parallel_tasks(broker: Server) -> None:
    fill(broker, *map(str, range(100)))
    reader = stream(broker, minPartitions="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert len(reader.partitions(start, end)) == 4
    assert rows(reader, start, end) == list(map(str, range(100)))


def test_what_is_gone_is_told_unless_that_is_not_wanted(broker: Server) -> None:
    fill(broker, "1", "2")
    reader = stream(broker)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.commit(end)
    with pytest.raises(JMSError, match="2 messages of orders between 0 and 2 are gone"):
        rows(reader, start, end)
    assert rows(stream(broker, failOnDataLoss="false"), start, end) == []


def test_a_body_that_is_too_large_does_not_end_a_stream(broker: Server) -> None:
    """What lay behind such a message was never reached."""
    fill(broker, "1", "x" * (2 << 20), "2")
    reader = stream(broker, maxBodyBytes="1000")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == ["1", None, "2"]
    skipping = stream(broker, maxBodyBytes="1000", oversizedBodies="skip")
    skipping.initialOffset()
    assert rows(skipping, start, end) == ["1", "2"]
    failing = stream(broker, maxBodyBytes="1000", oversizedBodies="fail")
    failing.initialOffset()
    with pytest.raises(JMSError, match="oversizedBodies to null or skip"):
        rows(failing, start, end)


def test_the_next_batch_is_assigned_while_spark_works_on_one(broker: Server) -> None:
    fill(broker, *map(str, range(6)))
    reader = stream(broker)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(2))
    assert first == {"orders": 2}
    while last_number(broker, "spark", "orders") < 4:
        pass
    again = stream(broker)
    again.initialOffset()
    assert again.reportLatestOffset() == {"orders": 6}
    for number in (2, 4):
        ends = again.latestOffset({"orders": number}, ReadMaxRows(2))
        assert rows(again, {"orders": number}, ends) == [str(number), str(number + 1)]


def test_what_comes_meanwhile_makes_the_next_batch_full(broker: Server) -> None:
    fill(broker, "0", "1", "2")
    reader = stream(broker)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(2))
    assert reader._ahead is not None
    assert reader._ahead.ends.result() == {"orders": 3}, "what is planned ahead is not full"
    fill(broker, "3", "4")
    assert reader.latestOffset(first, ReadMaxRows(2)) == {"orders": 4}


def test_a_fence_is_told_with_the_next_batch_at_the_latest(broker: Server) -> None:
    fill(broker, *map(str, range(8)))
    zombie = stream(broker)
    first = zombie.latestOffset(zombie.initialOffset(), ReadMaxRows(2))
    stream(broker).initialOffset()
    with pytest.raises(Fenced):
        zombie.latestOffset(zombie.latestOffset(first, ReadMaxRows(2)), ReadMaxRows(2))


def test_a_reader_can_go_to_another_process_before_it_is_asked_anything(broker: Server) -> None:
    fill(broker, "1")
    reader = stream(broker)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    copied = pickle.loads(pickle.dumps(stream(broker)))
    assert [
        row["body"] for part in reader.partitions({}, end) for one in copied.read(part) for row in one.to_pylist()
    ] == ["1"]


def test_topics_that_match_a_pattern_have_a_subscription_each(broker: Server) -> None:
    reader = stream(broker, topicPattern="prices.*")
    fill(broker, address="prices.a", topic=True)
    fill(broker, address="prices.b", topic=True)
    start = reader.initialOffset()
    fill(broker, "1", address="prices.a", topic=True)
    fill(broker, "2", address="prices.b", topic=True)
    assert sorted(rows(reader, start, reader.latestOffset(start, ALL))) == ["1", "2"]


def test_a_stream_waits_for_enough_rows_but_not_for_ever(broker: Server) -> None:
    fill(broker, "1")
    reader = stream(broker, minOffsetsPerTrigger="2", maxTriggerDelay="1h")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    fill(broker, "2")
    assert reader.latestOffset(start, ALL) == {"orders": 2}
    hasty = stream(broker, minOffsetsPerTrigger="9", maxTriggerDelay="0s")
    start = hasty.initialOffset()
    assert hasty.latestOffset(start, ALL) == start
    assert hasty.latestOffset(start, ALL) == {"orders": 2}


def test_a_request_that_waits_for_a_broker_that_is_gone_ends_when_its_reader_stops(broker: Server) -> None:
    requests = Requests(f"{url(broker)}?close_timeout_s=0.3")
    requests.ask("create", "queue", "orders")
    broker.kill()
    failures: queue.Queue[JMSError] = queue.Queue()

    def ask() -> None:
        try:
            requests.ask("create", "queue", "orders")
        except JMSError as error:
            failures.put(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    requests.close()
    assert failures.get(timeout=60)
    asking.join()
    with pytest.raises(JMSError, match="closed"):
        requests.ask("create", "queue", "orders")


def test_a_stream_that_is_restarted_during_a_takeover_waits_for_a_broker(
    broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a checkpoint, so the address is right: only a stream that begins may be told at once that it is not."""
    monkeypatch.setattr(uri, "SHORT_WAIT_S", 0.0)
    fill(broker, "a")
    reader = stream(broker)
    end = reader.latestOffset(start := reader.initialOffset(), ALL)
    broker.kill()
    with pytest.raises(JMSError, match="No broker can be reached"):
        stream(broker).initialOffset()
    found: queue.Queue[list[str] | JMSError] = queue.Queue()

    def read() -> None:
        try:
            found.put(rows(stream(broker), start, end))
        except JMSError as error:
            found.put(error)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    broker.start()
    reading.join()
    assert found.get() == ["a"]
