"""Options are checked before anything is connected, and errors name them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from legato.client.failover.uri import parse_uri
from legato.errors import ConfigError
from legato.spark.connector.batch import LAST, BatchReader, bounds_of
from legato.spark.connector.options import sink_options, source_options
from legato.spark.connector.requests import Patience
from legato.spark.connector.rows import ddl, spark_types
from legato.spark.connector.stream import StreamReader
from pyspark_legato.source import LegatoDataSource

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
        ({"queue": "a", "topic": "b"}, "queue and topic are given"),
        ({"queue": " , "}, "option queue names nothing"),
        ({"queue": "a", "url": ""}, r"^Give the option url, such as amqp://localhost:5672,localhost:5673\.$"),
        ({"queue": "a", "url": "http://x"}, "amqp://"),
        ({"queue": "a", "maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger wants a whole number"),
        ({"queue": "a", "maxOffsetsPerTrigger": "-1"}, "maxOffsetsPerTrigger wants"),
        ({"queue": "a", "maxOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "not both"),
        ({"queue": "a", "failOnDataLoss": "perhaps"}, "failOnDataLoss wants true or false"),
        ({"queue": "a", "startingOffsets": "first"}, "startingOffsets wants earliest, latest, acked or JSON"),
        ({"queue": "a", "startingOffsets": '{"a": "x"}'}, "startingOffsets wants"),
        ({"queue": "a", "payload": "xml"}, "payload is binary or text"),
        ({"queue": "a", "properties": "json"}, "properties is map or variant"),
        ({"queue": "a", "oversizedBodies": "drop"}, "oversizedBodies is null or skip or fail"),
        ({"queue": "a", "maxBodyBytes": "0"}, "maxBodyBytes wants a whole number, more than 0"),
        ({"queue": "a", "maxBodyBytes": "300000000"}, "maxBodyBytes is 268435456 at most"),
        ({"queue": "a", "readMode": "peek"}, "readMode is browse or consume"),
        ({"queue": "a", "selector": "x ="}, "option selector cannot be understood"),
        ({"topicPattern": "a.#", "queue": "b"}, "queue and topicPattern are given"),
        ({"queue": "a", "startingTimestamp": "today"}, "startingTimestamp wants milliseconds"),
        ({"queue": "a", "startingTimestamp": "1700000000"}, "wants milliseconds since 1970; 1700000000 looks like sec"),
        ({"queue": "a", "endingTimestamp": "1700000000000000"}, "looks like microseconds"),
        ({"queue": "a", "startingOffsetsByTimestamp": '{"a": 1700000000}'}, "looks like seconds"),
        ({"queue": "a", "maxTriggerDelay": "15"}, "maxTriggerDelay wants a time such as 15m"),
        ({"queue": "a", "maxTriggerDelay": "2 fortnights"}, "maxTriggerDelay wants a time such as 15m"),
        ({"queue": "a", "maxTriggerDelay": "-1s"}, "maxTriggerDelay wants a time such as 15m"),
        ({"queue": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is larger"),
        ({"queue": "a", "username": "u", "url": "amqp://v:w@x"}, "a user name already"),
        ({"queue": "a", "user": "u", "url": "amqp://v:w@x"}, "a user name already"),
        ({"queue": "a", "user": "u", "username": "u"}, "user and username mean the same"),
        ({"queue": "a", "password": "p"}, "option password goes with the option user"),
        ({"queue": "a", "password": "p", "url": "amqp://u@x"}, "option password goes with the option user"),
        ({"queue": "a", "tls.ca": "x"}, "did you mean tls.ca_file"),
        ({"subscribe": "x"}, "'subscribe' is unknown: use queue or topic"),
        ({"Subscribe": "x"}, "'Subscribe' is unknown: use queue or topic"),
        ({"subscribepattern": "x"}, "'subscribePattern' is unknown: use queuePattern or topicPattern"),
        ({"queue": "a", "kafka.bootstrap.servers": "x"}, "'kafka.bootstrap.servers' is unknown: use url"),
        ({"queue": "a", "kafka.security.protocol": "x"}, "options of the client begin with jms."),
        ({"queue": "a", "maxOffsetPerTriger": "1"}, "unknown; did you mean maxOffsetsPerTrigger?"),
        ({"queue": "a", "transactionalId": "x"}, "'transactionalId' is unknown to a source: it is one of the sink"),
        ({"queue": "a", "xyzzy": "1"}, "'xyzzy' is unknown; known are url, queue"),
        ({"subscribe": "x", "qeue": "a"}, "use queue or topic.*'qeue' is unknown; did you mean queue"),
        ({"queue": "a", "queues": "b"}, "queue and queues mean the same"),
        ({"queue": "a", "maxOffsetsPerTrigger": "1", "maxMessagesPerTrigger": "2"}, "mean the same: give one"),
        (
            {"queue": "a", "subscription": "s", "subscriptionPrefix": "p"},
            "subscription and subscriptionPrefix, not both",
        ),
        ({"queue": "a", "fetchOffset.numRetries": "-1"}, "fetchOffset.numRetries wants a whole number"),
        ({"queue": "a", "fetchOffset.retryIntervalMs": "1s"}, "fetchOffset.retryIntervalMs wants milliseconds"),
        ({"queue": "a", "pollTimeoutMs": "0"}, "pollTimeoutMs wants milliseconds, more than 0"),
        ({"queue": "a", "tailProbeCacheMs": "x"}, "tailProbeCacheMs wants milliseconds"),
        ({"queue": "a", "startingOffsets": '{"a": -3}'}, "startingOffsets wants"),
        ({"queues": "a,b", "startingOffsets": '{"b": 3, "c": 4}'}, "startingOffsets names 'c'; this reads a, b"),
        ({"queue": "a", "endingOffsetsByTimestamp": '{"A": 3}'}, "endingOffsetsByTimestamp names 'A'; this reads a"),
        ({"queue": "a", "startingOffsetsByTimestamp": '{"a": -1}'}, "startingOffsetsByTimestamp wants JSON"),
        (
            {"queue": "a", "startingOffsetsByTimestampStrategy": "earliest"},
            "startingOffsetsByTimestampStrategy is latest or error",
        ),
        ({"queue": "a", "endingOffsetsByTimestamp": "7"}, "endingOffsetsByTimestamp wants JSON"),
        ({"queue": "a", "columns": "seq,size"}, "columns names 'size'; there are message_id, destination"),
        ({"queue": "a", "columns": "body", "includeBody": "false"}, "columns names 'body'"),
        ({"queue": "a", "jms.prefetch": "few"}, "prefetch"),
        ({"queue": "a", "jms.colour": "red"}, "colour"),
        ({"queue": "a", "jms.client_id": "me"}, "a client id is for one connection: leave client_id out"),
        ({"queue": "a", "url": f"{URL}?client_id=me"}, "a client id is for one connection: leave client_id out"),
        ({"queue": "a", "minPartitions": "-1"}, "minPartitions wants a whole number, 0 or more, not '-1'"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        source_options({"url": URL} | given)


def test_the_columns_are_of_the_types_that_the_reference_says() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "spark.md").read_text()
    table = page.partition("| Column | Type |")[2].partition("\n\n")[0]
    told = [
        (name, kind)
        for names, kind in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `([\w<>, ]+)`", table, re.MULTILINE)
        for name in re.findall(r"\w+", names)
    ]
    types = spark_types(source_options({"url": URL, "queue": "a"}))
    assert told == [(name, kind.lower()) for name, kind in types.items()]


def test_options_for_tls_are_the_clients() -> None:
    given = {"url": "amqps://one", "queue": "a", "tls.ca_file": "/ca", "tls.cert_file": "/c", "tls.key_file": "/k"}
    options = parse_uri(source_options(given | {"tls.verify": "false"}).url).options
    assert (options.tls_ca_file, options.tls_cert_file, options.tls_key_file) == ("/ca", "/c", "/k")
    assert not options.tls_verify


def test_credentials_go_into_the_url() -> None:
    assert source_options({"url": URL, "queue": "a", "user": "me", "password": "x"}).url == "amqp://me:x@one,two"
    assert (
        source_options({"url": URL, "queue": "a", "username": "me", "password": "p@ss"}).url
        == "amqp://me:p%40ss@one,two"
    )


def test_options_of_the_client_go_into_the_url() -> None:
    for url in (URL, f"{URL}?connect_attempts=3"):
        options = source_options({"url": url, "queue": "a", "jms.reconnect_attempts": "7", "jms.password_file": "a&b"})
        told = parse_uri(options.url).options
        assert (told.reconnect_attempts, told.password_file) == (7, "a&b")


def test_how_long_the_broker_is_tried_is_said_for_all_that_asks_it() -> None:
    given = {"pollTimeoutMs": "2500", "fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "10"}
    assert source_options({"url": URL, "queue": "a"} | given).patience == Patience(2.5, 3, 0.01)
    assert source_options({"url": URL, "queue": "a"}).patience == Patience()
    assert source_options({"url": URL, "queue": "a", "tailProbeCacheMs": "5"}).poll_interval_ms == 5


def test_the_schema_follows_the_options() -> None:
    plain = ddl(source_options({"url": URL, "queue": "a"}))
    assert plain.endswith("properties map<string,string>, body binary, omitted_body_bytes bigint")
    small = {"url": URL, "queue": "a", "includeProperties": "false", "payload": "text"}
    assert ddl(source_options(small)).endswith("group_id string, body string, omitted_body_bytes bigint")
    assert "body" not in ddl(source_options({"url": URL, "queue": "a", "includeBody": "false"}))
    assert ddl(source_options({"url": URL, "queue": "a", "columns": "body, seq"})) == "body binary, seq bigint"


def test_messages_are_fetched_unless_all_that_is_wanted_is_known_without() -> None:
    bare = {"url": URL, "queue": "a", "columns": "seq,redelivered"}
    assert source_options(bare).is_bare
    assert not source_options(bare | {"selector": "x = 1"}).is_bare
    assert not source_options(bare | {"columns": "seq,timestamp"}).is_bare
    assert not source_options({"url": URL, "queue": "a"}).is_bare


def test_times_have_units() -> None:
    texts = {
        "15m": 900_000,
        "30s": 30_000,
        "500ms": 500,
        "1h": 3_600_000,
        "1 minute": 60_000,
        "10 minutes": 600_000,
        "10min": 600_000,
        "1 Hour 30 Minutes": 5_400_000,
        "interval 2 seconds": 2000,
        "1 day": 86_400_000,
    }
    options = [source_options({"url": URL, "queue": "a", "maxTriggerDelay": text}) for text in texts]
    assert [each.max_trigger_delay_ms for each in options] == list(texts.values())


@pytest.mark.parametrize("pattern", ["or*", "orders-#", "orders.*s", r"orders\.paid", "orders.+.*.x*"])
@pytest.mark.parametrize("name", ["queuePattern", "topicPattern"])
def test_a_glob_or_regular_expression_is_refused_as_a_pattern(name: str, pattern: str) -> None:
    """It matched nothing, in silence."""
    with pytest.raises(ConfigError, match=f"option {name} is .*it is no regular expression"):
        source_options({"url": URL, name: pattern})


@pytest.mark.parametrize("pattern", ["#", "*", "orders.*", "orders.#.eu", "orders", "*.*"])
def test_words_and_their_wildcards_are_a_pattern(pattern: str) -> None:
    assert source_options({"url": URL, "queuePattern": pattern}).pattern == pattern


def test_a_user_without_a_password_option_has_it_from_the_file_of_the_client() -> None:
    """The empty password that was put into the URL came first."""
    options = source_options({"url": URL, "queue": "a", "user": "a b", "jms.password_file": "/run/password"})
    assert options.url == "amqp://a%20b@one,two?password_file=%2Frun%2Fpassword"
    assert source_options({"url": URL, "queue": "a", "user": "ann", "password": ""}).url == "amqp://ann:@one,two"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kafka.ssl.truststore.location", "For TLS use tls.ca_file"),
        ("kafka.sasl.jaas.config", "For logins use user and password"),
    ],
)
def test_options_of_kafka_for_logins_and_tls_are_told_what_they_are_called(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        source_options({"url": URL, "queue": "a", name: "x"})


def test_several_topics_have_a_subscription_each() -> None:
    given = {"url": URL, "subscription": "s"}
    assert source_options(given | {"queues": "a,b"}).subscription_of("a") == "s"
    assert source_options(given | {"topic": "a"}).subscription_of("a") == "s"
    assert source_options(given | {"topics": "a,b"}).subscription_of("a") == "s:a"
    assert source_options(given | {"topicPattern": "#"}).subscription_of("a") == "s:a"


def test_with_a_prefix_each_address_has_its_own_subscription_whatever_others_there_are() -> None:
    given = {"url": URL, "subscriptionPrefix": "s"}
    for more in ({"queue": "a"}, {"topic": "a"}, {"topics": "a,b"}, {"queuePattern": "#"}):
        assert source_options(given | more).subscription_of("a") == "s:a"
    StreamReader(source_options(given | {"queue": "a"}))


def test_a_place_may_be_the_first_or_the_last_there_is() -> None:
    def bounds(**given: str) -> tuple[int, int]:
        return bounds_of(source_options({"url": URL, "queues": "a,b"} | given), "a")

    assert bounds() == bounds(startingOffsets='{"b": 3}', endingOffsets='{"a": -1}') == (0, LAST)
    assert bounds(startingOffsets="latest") == bounds(startingOffsets='{"a": -1}') == (LAST, LAST)
    assert bounds(startingOffsets='{"a": 3}', endingOffsets='{"a": 7}') == (3, 7)
    assert bounds(startingOffsets='{"a": -2}') == (0, LAST)


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_a_batch_has_acknowledged_nothing(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be acked"):
        BatchReader(source_options({"url": URL, "queue": "a", name: "acked"}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscription": "s", "selector": "x = 1"}, "selector is for topics.*Filter its rows"),
        ({"subscription": "s", "startingTimestamp": "1"}, "startingTimestamp, endingTimestamp, .* are for batches"),
        ({"subscription": "s", "startingOffsetsByTimestamp": '{"a": 1}'}, "startingOffsetsByTimestamp, ending"),
        ({"subscription": "s", "endingOffsets": '{"a": 1}'}, "has no end: the option endingOffsets is for batches"),
        ({"subscription": "s", "startingOffsetsByTimestampStrategy": "error"}, "ByTimestampStrategy are for batches"),
        ({"subscription": "s", "readMode": "browse"}, "readMode = browse"),
        ({"subscription": "s", "startingOffsets": '{"a": 1}'}, "startingOffsets is acked, earliest or latest"),
        ({}, "option subscription"),
    ],
)
def test_what_a_stream_cannot_do_is_said_at_once(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        StreamReader(source_options({"url": URL, "queue": "a"} | given))


def test_what_is_wrong_with_a_stream_is_said_when_spark_asks_not_when_the_reader_is_made() -> None:
    """Raised by `streamReader()`, it came to the user as `UnboundLocalError`, with PySpark's name for its reader."""
    source = LegatoDataSource({"url": URL, "queue": "a"})
    reader = source.streamReader(StructType())
    reader.stop()
    for ask in (
        lambda: reader.initialOffset(),
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: reader.getDefaultReadLimit(),
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(ConfigError, match="needs the option subscription"):
            ask()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "a"}, "Topics keep nothing by themselves: give the option subscription"),
        ({"queue": "a", "readMode": "consume"}, "As a batch: A batch browses.* As a stream: A stream needs"),
        (
            {"queue": "a", "subscription": "s", "startingOffsets": "acked", "startingTimestamp": "1"},
            "As a batch: .* cannot be acked. As a stream: .*for batches",
        ),
    ],
)
def test_what_neither_a_batch_nor_a_stream_can_do_is_said_by_load(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LegatoDataSource({"url": URL} | given).schema()


def test_options_of_the_source_are_not_those_of_the_sink() -> None:
    with pytest.raises(ConfigError, match="'queuePattern' is unknown to a sink: it is one of the source"):
        sink_options({"url": URL, "queuePattern": "a"})
    with pytest.raises(ConfigError, match="'topik' is unknown; did you mean topic"):
        sink_options({"url": URL, "topik": "a"})


def test_options_that_are_sparks_own_are_let_pass() -> None:
    options = sink_options({"url": URL, "queue": "a", "checkpointLocation": "/c", "queryName": "flow"})
    assert options.queue == "a"


def test_a_name_given_to_load_is_an_option() -> None:
    with pytest.raises(ConfigError, match=r"""say \.option\("queue", 'orders'\)\.load\(\)"""):
        source_options({"url": URL, "path": "orders"})


def test_a_mistake_in_an_option_comes_without_a_page_of_stack_trace() -> None:
    """Spark prints the whole trace above the one sentence that helps."""
    schema = StructType().add("body", "string")
    mistakes: tuple[tuple[dict[str, str], Callable[[LegatoDataSource], object]], ...] = (
        ({"url": URL, "subscribe": "orders"}, lambda source: source.schema()),
        ({"url": URL, "queu": "orders"}, lambda source: source.reader(schema)),
        ({"url": URL, "queue": "orders"}, lambda source: source.writer(schema, True)),
        ({"url": URL, "queue": "orders", "key": "x"}, lambda source: source.streamWriter(schema, False)),
    )
    for given, call in mistakes:
        with pytest.raises(ConfigError) as told:
            call(LegatoDataSource(given))
        assert len(told.traceback) <= 3, "the test, its lambda, and the source"
        assert told.value.__suppress_context__


def test_a_sink_without_a_url_may_be_a_table_whose_options_spark_forgot() -> None:
    with pytest.raises(ConfigError, match=r"INSERT INTO name WITH \(url = \.\.\., queue = \.\.\.\)\.$"):
        sink_options({"queue": "a"})
