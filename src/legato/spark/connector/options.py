"""What may be said with `.option(...)`, checked before anything is connected; errors name the option."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from legato.errors import ConfigError

PAYLOADS = ("binary", "text")
DELIVERY_MODES = ("PERSISTENT", "NON_PERSISTENT")
READ_MODES = ("browse", "consume")
EARLIEST, LATEST = "earliest", "latest"


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is read, and how. Field names are those of the options, in Python spelling."""

    url: str
    """The broker's, as a client takes it: primary and backup, credentials, TLS."""
    queues: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    queue_pattern: str = ""
    """Queues whose name matches: `*` is one word, `#` any number of them; also those that come later."""
    topic_pattern: str = ""
    """Likewise topics."""
    subscription: str = ""
    """Under which name a stream's place is kept at the broker; another stream of that name takes its place."""
    selector: str = ""
    """Which messages a subscription is to get, or a batch to show."""
    starting_offsets: str | dict[str, int] = EARLIEST
    ending_offsets: str | dict[str, int] = LATEST
    starting_timestamp_ms: int = 0
    """Of a batch: nothing that was stored before, in milliseconds since 1970; 0 for any time."""
    ending_timestamp_ms: int = 0
    """Of a batch: nothing that was stored at that time or later."""
    max_offsets_per_trigger: int = 0
    min_offsets_per_trigger: int = 0
    """A stream waits for so many rows, but no longer than `max_trigger_delay_ms`."""
    max_trigger_delay_ms: int = 15 * 60 * 1000
    max_bytes_per_trigger: int = 0
    min_partitions: int = 0
    max_records_per_partition: int = 0
    fail_on_data_loss: bool = True
    include_properties: bool = True
    include_body: bool = True
    payload: str = "binary"
    read_mode: str = ""
    """`browse` or `consume`; by default a stream consumes and a batch browses."""
    poll_interval_ms: int = 100
    """How long a stream that found nothing waits before it asks the broker again."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The queues or topics that are named."""
        return self.queues or self.topics

    @property
    def is_topic(self) -> bool:
        """Whether topics are read."""
        return bool(self.topics or self.topic_pattern)

    @property
    def pattern(self) -> str:
        """Which queues or topics are read, if they are not named."""
        return self.queue_pattern or self.topic_pattern

    def subscription_of(self, address: str) -> str:
        """The subscription's name at an address: of several topics, each has a durable subscription of its own."""
        is_one = not self.is_topic or len(self.topics) == 1
        return self.subscription if is_one else f"{self.subscription}:{address}"


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go, and as whose."""

    url: str
    queue: str = ""
    """Where rows go that name no destination."""
    topic: str = ""
    """Likewise, of topics: then what rows name are topics too."""
    transactional_id: str = ""
    """Under which name batches are published once; the id of the stream's checkpoint by default."""
    delivery_mode: str = ""
    """`PERSISTENT` (as by default) or `NON_PERSISTENT`, for rows that do not say."""
    ignore_unknown_columns: bool = False

    @property
    def destination(self) -> str:
        """Where rows go that do not say."""
        return self.topic or self.queue


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _offsets(text: str) -> str | dict[str, int]:
    if text.strip().lower() in (EARLIEST, LATEST):
        return text.strip().lower()
    offsets = json.loads(text)
    if not isinstance(offsets, dict) or not all(isinstance(number, int) for number in offsets.values()):
        raise ValueError(text)
    return {str(name): int(number) for name, number in offsets.items()}


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def _duration_ms(text: str) -> int:
    digits = text.strip().rstrip("msh")
    return _count(digits) * _UNITS_MS[text.strip()[len(digits) :]]


_Reader = Callable[[str], Any]
_READERS: dict[str, tuple[str, _Reader, str]] = {
    "url": ("url", str, "a broker's URL"),
    "queue": ("queues", _names, "a name"),
    "queues": ("queues", _names, "names with commas between them"),
    "topic": ("topics", _names, "a name"),
    "topics": ("topics", _names, "names with commas between them"),
    "queuepattern": ("queue_pattern", str, "a pattern such as orders.#"),
    "topicpattern": ("topic_pattern", str, "a pattern such as prices.#"),
    "subscription": ("subscription", str, "a name"),
    "selector": ("selector", str, "a message selector"),
    "startingoffsets": ("starting_offsets", _offsets, 'earliest, latest or JSON such as {"orders": 12}'),
    "endingoffsets": ("ending_offsets", _offsets, 'latest or JSON such as {"orders": 12}'),
    "startingtimestamp": ("starting_timestamp_ms", _count, "milliseconds since 1970"),
    "endingtimestamp": ("ending_timestamp_ms", _count, "milliseconds since 1970"),
    "maxoffsetspertrigger": ("max_offsets_per_trigger", _count, "a whole number, 0 for no limit"),
    "maxmessagespertrigger": ("max_offsets_per_trigger", _count, "a whole number, 0 for no limit"),
    "minoffsetspertrigger": ("min_offsets_per_trigger", _count, "a whole number"),
    "maxtriggerdelay": ("max_trigger_delay_ms", _duration_ms, "a time such as 15m, 30s or 500ms"),
    "maxbytespertrigger": ("max_bytes_per_trigger", _count, "a whole number, 0 for no limit"),
    "minpartitions": ("min_partitions", _count, "a whole number"),
    "maxrecordsperpartition": ("max_records_per_partition", _count, "a whole number, 0 for no limit"),
    "failondataloss": ("fail_on_data_loss", _boolean, "true or false"),
    "includeproperties": ("include_properties", _boolean, "true or false"),
    "includebody": ("include_body", _boolean, "true or false"),
    "payload": ("payload", str, " or ".join(PAYLOADS)),
    "readmode": ("read_mode", str, " or ".join(READ_MODES)),
    "pollintervalms": ("poll_interval_ms", _count, "milliseconds"),
}
_SPELLING = {
    name.lower(): name
    for name in (
        *("queuePattern", "topicPattern", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
        *("maxOffsetsPerTrigger", "maxMessagesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("maxBytesPerTrigger", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeProperties"),
        *("includeBody", "readMode", "pollIntervalMs", "transactionalId", "deliveryMode", "ignoreUnknownColumns"),
    )
}
"""Names as they are documented; Spark hands them over in lower case."""
_SINK_READERS: dict[str, tuple[str, _Reader, str]] = {
    "url": ("url", str, "a broker's URL"),
    "queue": ("queue", str, "a name"),
    "topic": ("topic", str, "a name"),
    "transactionalid": ("transactional_id", str, "a name"),
    "deliverymode": ("delivery_mode", str, " or ".join(DELIVERY_MODES)),
    "ignoreunknowncolumns": ("ignore_unknown_columns", _boolean, "true or false"),
}
_ADDRESSES = ("queue", "queues", "topic", "topics", "queuePattern", "topicPattern")
_FOREIGN = ("path", "checkpointlocation", "queryname")
"""Spark's own options that reach sources and sinks; `queryName` comes from declarative pipelines."""


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a source.

    Args:
        given: as Spark hands them over: names in any case, values as text.

    Raises:
        ConfigError: an option is unknown, missing or cannot be used.
    """
    texts = {name.lower(): value for name, value in given.items()}
    values = _read(texts, _READERS)
    named = [name for name in _ADDRESSES if name.lower() in texts]
    if len(named) != 1:
        raise ConfigError(
            f"Give exactly one of the options {', '.join(_ADDRESSES)}; {' and '.join(named) or 'none'} is given."
        )
    _check_url(values, texts)
    options = SourceOptions(**values)
    if not (options.addresses or options.pattern):
        raise ConfigError(f"The option {named[0]} names nothing.")
    if options.payload not in PAYLOADS:
        raise ConfigError(f"The option payload is {' or '.join(PAYLOADS)}, not {options.payload!r}.")
    if options.read_mode and options.read_mode not in READ_MODES:
        raise ConfigError(f"The option readMode is {' or '.join(READ_MODES)}, not {options.read_mode!r}.")
    if options.selector:
        _check_selector(options.selector)
    if 0 < options.max_offsets_per_trigger < options.min_offsets_per_trigger:
        raise ConfigError("The option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger.")
    if options.max_offsets_per_trigger and options.max_bytes_per_trigger:
        raise ConfigError("Give one of the options maxOffsetsPerTrigger and maxBytesPerTrigger, not both.")
    return options


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a sink.

    Args:
        given: as Spark hands them over: names in any case, values as text.

    Raises:
        ConfigError: an option is unknown, missing or cannot be used.
    """
    texts = {name.lower(): value for name, value in given.items()}
    values = _read(texts, _SINK_READERS)
    _check_url(values, texts)
    options = SinkOptions(**values)
    if options.queue and options.topic:
        raise ConfigError("Give one of the options queue and topic, not both.")
    if options.delivery_mode not in ("", *DELIVERY_MODES):
        raise ConfigError(f"The option deliveryMode is {' or '.join(DELIVERY_MODES)}, not {options.delivery_mode!r}.")
    return options


def _read(texts: Mapping[str, str], readers: Mapping[str, tuple[str, _Reader, str]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name in ("username", "password", *_FOREIGN):
            continue
        if name not in readers:
            known = ", ".join(_SPELLING.get(reader, reader) for reader in readers)
            raise ConfigError(f"The option {name!r} is unknown; known are {known}.")
        field, read, wanted = readers[name]
        try:
            values[field] = read(text)
        except (ValueError, KeyError):
            raise ConfigError(f"The option {_SPELLING.get(name, name)} wants {wanted}, not {text!r}.") from None
    return values


def _check_selector(selector: str) -> None:
    from legato.amqp.filters import matcher
    from legato.errors import InvalidSelectorError

    try:
        matcher(selector)
    except InvalidSelectorError as error:
        raise ConfigError(f"The option selector cannot be understood: {error}") from None


def _check_url(values: dict[str, Any], texts: Mapping[str, str]) -> None:
    """Put user name and password into the URL, and see that it can be used."""
    from urllib.parse import quote

    from legato.client.uri import parse_uri

    url = values.get("url", "")
    if not url:
        raise ConfigError(
            "Give the option url, such as amqp://localhost:5672,localhost:5673. Spark forgets the options of a table "
            "that is created with columns: say them again, with INSERT INTO name WITH (url = ..., queue = ...)."
        )
    if user := texts.get("username"):
        scheme, _, rest = url.partition("://")
        if "@" in rest:
            raise ConfigError("The option url has a user name already: leave out the option username.")
        url = f"{scheme}://{quote(user, safe='')}:{quote(texts.get('password', ''), safe='')}@{rest}"
    parse_uri(url)
    values["url"] = url
