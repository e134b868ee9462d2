"""Options are checked before anything is connected, and errors name them."""

import pytest

from legato.errors import ConfigError
from legato.spark.connector.options import sink_options, source_options
from legato.spark.connector.rows import ddl
from legato.spark.connector.stream import StreamReader

URL = "amqp://one,two"


def test_options_are_read_whatever_their_case() -> None:
    options = source_options(
        {"URL": URL, "Queues": "a, b,a", "maxoffsetspertrigger": "10", "FAILONDATALOSS": "False", "payload": "text"}
    )
    assert options.queues == ("a", "b")
    assert options.max_offsets_per_trigger == 10
    assert options.fail_on_data_loss is False
    assert options.payload == "text"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "exactly one of the options queue"),
        ({"queue": "a", "topic": "b"}, "queue and topic is given"),
        ({"queue": " , "}, "option queue names nothing"),
        ({"queue": "a", "url": ""}, "option url"),
        ({"queue": "a", "url": "http://x"}, "amqp://"),
        ({"queue": "a", "maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger wants a whole number"),
        ({"queue": "a", "maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger wants"),
        ({"queue": "a", "maxOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "not both"),
        ({"queue": "a", "failOnDataLoss": "perhaps"}, "failOnDataLoss wants true or false"),
        ({"queue": "a", "startingOffsets": "first"}, "startingOffsets wants earliest, latest or JSON"),
        ({"queue": "a", "startingOffsets": '{"a": "x"}'}, "startingOffsets wants"),
        ({"queue": "a", "payload": "xml"}, "payload is binary or text"),
        ({"queue": "a", "readMode": "peek"}, "readMode is browse or consume"),
        ({"queue": "a", "selector": "x ="}, "option selector cannot be understood"),
        ({"topicPattern": "a.#", "queue": "b"}, "queue and topicPattern is given"),
        ({"queue": "a", "startingTimestamp": "today"}, "startingTimestamp wants milliseconds"),
        ({"queue": "a", "maxTriggerDelay": "15"}, "maxTriggerDelay wants a time such as 15m"),
        ({"queue": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is larger"),
        ({"queue": "a", "username": "u", "url": "amqp://v:w@x"}, "username"),
        ({"queue": "a", "subscribe": "x"}, "'subscribe' is unknown; known are"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        source_options({"url": URL} | given)


def test_credentials_go_into_the_url() -> None:
    assert (
        source_options({"url": URL, "queue": "a", "username": "me", "password": "p@ss"}).url
        == "amqp://me:p%40ss@one,two"
    )


def test_the_schema_follows_the_options() -> None:
    plain = ddl(source_options({"url": URL, "queue": "a"}))
    assert plain.endswith("properties map<string,string>, body binary")
    small = {"url": URL, "queue": "a", "includeProperties": "false", "payload": "text"}
    assert ddl(source_options(small)).endswith("group_id string, body string")
    assert "body" not in ddl(source_options({"url": URL, "queue": "a", "includeBody": "false"}))


def test_times_have_units() -> None:
    texts = {"15m": 900_000, "30s": 30_000, "500ms": 500, "1h": 3_600_000}
    options = [source_options({"url": URL, "queue": "a", "maxTriggerDelay": text}) for text in texts]
    assert [each.max_trigger_delay_ms for each in options] == list(texts.values())


def test_several_topics_have_a_subscription_each() -> None:
    given = {"url": URL, "subscription": "s"}
    assert source_options(given | {"queues": "a,b"}).subscription_of("a") == "s"
    assert source_options(given | {"topic": "a"}).subscription_of("a") == "s"
    assert source_options(given | {"topics": "a,b"}).subscription_of("a") == "s:a"
    assert source_options(given | {"topicPattern": "#"}).subscription_of("a") == "s:a"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscription": "s", "selector": "x = 1"}, "selector is for topics.*Filter its rows"),
        ({"subscription": "s", "startingTimestamp": "1"}, "startingTimestamp and endingTimestamp are for batches"),
        ({"subscription": "s", "readMode": "browse"}, "readMode = browse"),
        ({"subscription": "s", "startingOffsets": '{"a": 1}'}, "startingOffsets is earliest or latest"),
        ({}, "option subscription"),
    ],
)
def test_what_a_stream_cannot_do_is_said_at_once(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        StreamReader(source_options({"url": URL, "queue": "a"} | given))


def test_options_that_are_sparks_own_are_let_pass() -> None:
    options = sink_options({"url": URL, "queue": "a", "checkpointLocation": "/c", "queryName": "flow"})
    assert options.queue == "a"
