"""Options of the source and the sink, checked before anything is connected; errors name the option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from legato.bulk.tickets import BODY_BYTES_MAX
from legato.errors import ConfigError
from legato.spark.connector.option_parsing import (
    CLIENT_PREFIX,
    DELIVERY_MODES,
    EARLIEST,
    LATEST,
    OVERSIZED,
    PAYLOADS,
    PROPERTIES,
    READ_MODES,
    SINK_READERS,
    SOURCE_READERS,
    TIMES_STRATEGIES,
    TLS_OPTIONS,
    read_options,
)
from legato.spark.connector.requests import Patience

BARE_COLUMNS = ("destination", "seq", "redelivered", "delivery_count")
"""What is known of a message without a look into it."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the source. Field names are those of the options, in Python spelling."""

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
    subscription_prefix: str = ""
    """Instead of it: each address has the subscription `PREFIX:ADDRESS`, also if it is the only one."""
    selector: str = ""
    """Which messages a subscription is to get, or a batch to show."""
    starting_offsets: str | dict[str, int] = EARLIEST
    ending_offsets: str | dict[str, int] = LATEST
    starting_timestamp_ms: int = 0
    """Of a batch: nothing that was stored before, in milliseconds since 1970; 0 for any time."""
    ending_timestamp_ms: int = 0
    """Of a batch: nothing that was stored at that time or later."""
    starting_times_ms: dict[str, int] = {}
    """Likewise of a batch, by address."""
    ending_times_ms: dict[str, int] = {}
    starting_times_strategy: str = LATEST
    """Of a batch, where nothing was stored at those times or later: `latest`, no rows, or `error`."""
    max_offsets_per_trigger: int = 0
    min_offsets_per_trigger: int = 0
    """A stream waits for so many rows, but no longer than `max_trigger_delay_ms`."""
    max_trigger_delay_ms: int = 15 * 60 * 1000
    max_bytes_per_trigger: int = 0
    min_partitions: int = 0
    max_records_per_partition: int = 0
    fail_on_data_loss: bool = True
    include_properties: bool = True
    properties: str = "map"
    """`map`, of texts, or `variant`, with the types they were sent with."""
    include_body: bool = True
    oversized_bodies: str = "null"
    """What becomes of a message whose body is larger than `max_body_bytes`: its body is `null`, and its size beside it;
    `skip`, it is left out; `fail`, as does who reads it."""
    max_body_bytes: int = BODY_BYTES_MAX
    payload: str = "binary"
    read_mode: str = ""
    """`browse` or `consume`; by default a stream consumes and a batch browses."""
    poll_interval_ms: int = 100
    """How long a stream that found nothing waits before it asks the broker again."""
    columns: tuple[str, ...] = ()
    """Which columns there are; all of them by default."""
    poll_timeout_ms: int = 10_000
    """How long an answer of the broker is awaited before it is asked again."""
    retries: int = 60
    """How often the broker is asked again, and an interrupted range is read on, before that fails."""
    retry_interval_ms: int = 500

    @property
    def patience(self) -> Patience:
        """How long the broker is tried."""
        return Patience(self.poll_timeout_ms / 1000, self.retries, self.retry_interval_ms / 1000)

    @property
    def has_times(self) -> bool:
        """Whether it is said when messages have to be stored."""
        one_for_all = self.starting_timestamp_ms or self.ending_timestamp_ms
        return bool(one_for_all or self.starting_times_ms or self.ending_times_ms)

    def starting_ms(self, address: str) -> int:
        """From when on messages of an address are read, in milliseconds since 1970; 0 for any time."""
        return self.starting_times_ms.get(address, self.starting_timestamp_ms)

    def ending_ms(self, address: str) -> int:
        """Likewise, before when; 0 for any time."""
        return self.ending_times_ms.get(address, self.ending_timestamp_ms)

    @property
    def is_bare(self) -> bool:
        """Whether nothing is wanted that has to be looked for in messages: then they are not fetched."""
        return bool(self.columns) and not self.selector and set(self.columns) <= set(BARE_COLUMNS)

    @property
    def has_subscription(self) -> bool:
        """Whether a subscription is named, in one way or the other."""
        return bool(self.subscription or self.subscription_prefix)

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
        if self.subscription_prefix:
            return f"{self.subscription_prefix}:{address}"
        is_one = not self.is_topic or len(self.topics) == 1
        return self.subscription if is_one else f"{self.subscription}:{address}"


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the sink."""

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
    verify_repeated_batches: bool = True
    """Whether a batch that comes again has to have the rows with which it was published."""

    @property
    def destination(self) -> str:
        """Where rows go that do not say."""
        return self.topic or self.queue


_FORGOTTEN = (
    " Spark forgets the options of a table that is created with columns: say them again, with INSERT INTO name WITH "
    "(url = ..., queue = ...)."
)
_ADDRESSES = ("queue", "queues", "topic", "topics", "queuePattern", "topicPattern")


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a source.

    Args:
        given: as Spark hands them over: names in any case, values as text.

    Raises:
        ConfigError: an option is unknown, missing or cannot be used.
    """
    texts = {name.lower(): value for name, value in given.items()}
    values = read_options(given, SOURCE_READERS)
    named = [name for name in _ADDRESSES if name.lower() in texts]
    if not named and (path := texts.get("path")):
        raise ConfigError(f'load() takes no name here: say .option("queue", {path!r}).load(), or topic.')
    if len(named) != 1:
        raise ConfigError(
            f"Give exactly one of the options {', '.join(_ADDRESSES)}; "
            f"{' and '.join(named) + ' are' if named else 'none is'} given."
        )
    _check_url(values, texts)
    options = SourceOptions(**values)
    if not (options.addresses or options.pattern):
        raise ConfigError(f"The option {named[0]} names nothing.")
    if options.pattern:
        _check_pattern(named[0], options.pattern)
    if options.payload not in PAYLOADS:
        raise ConfigError(f"The option payload is {' or '.join(PAYLOADS)}, not {options.payload!r}.")
    if options.properties not in PROPERTIES:
        raise ConfigError(f"The option properties is {' or '.join(PROPERTIES)}, not {options.properties!r}.")
    if options.oversized_bodies not in OVERSIZED:
        raise ConfigError(f"The option oversizedBodies is {' or '.join(OVERSIZED)}, not {options.oversized_bodies!r}.")
    if options.max_body_bytes > BODY_BYTES_MAX:
        raise ConfigError(f"The option maxBodyBytes is {BODY_BYTES_MAX} at most, which is its default.")
    if options.read_mode and options.read_mode not in READ_MODES:
        raise ConfigError(f"The option readMode is {' or '.join(READ_MODES)}, not {options.read_mode!r}.")
    if options.starting_times_strategy not in TIMES_STRATEGIES:
        raise ConfigError(
            f"The option startingOffsetsByTimestampStrategy is {' or '.join(TIMES_STRATEGIES)}, not "
            f"{options.starting_times_strategy!r}."
        )
    if options.selector:
        _check_selector(options.selector)
    if 0 < options.max_offsets_per_trigger < options.min_offsets_per_trigger:
        raise ConfigError("The option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger.")
    if options.max_offsets_per_trigger and options.max_bytes_per_trigger:
        raise ConfigError("Give one of the options maxOffsetsPerTrigger and maxBytesPerTrigger, not both.")
    if options.subscription and options.subscription_prefix:
        raise ConfigError("Give one of the options subscription and subscriptionPrefix, not both.")
    _check_named(options)
    if options.columns:
        check_columns(options)
    return options


def _check_named(options: SourceOptions) -> None:
    """Refuse offsets and times of an address that is not read: with a name misspelt, all of the address would be."""
    if options.pattern:
        return
    by_address = {
        "startingOffsets": options.starting_offsets,
        "endingOffsets": options.ending_offsets,
        "startingOffsetsByTimestamp": options.starting_times_ms,
        "endingOffsetsByTimestamp": options.ending_times_ms,
    }
    for name, said in by_address.items():
        if isinstance(said, dict) and (others := [address for address in said if address not in options.addresses]):
            raise ConfigError(
                f"The option {name} names {', '.join(map(repr, others))}; this reads {', '.join(options.addresses)}."
            )


def check_columns(options: SourceOptions) -> None:
    """See that there are the columns that are wanted.

    Raises:
        ConfigError: there is none of that name.
    """
    from legato.spark.connector.rows import fields

    known = fields(msgspec.structs.replace(options, columns=()))
    for name in options.columns:
        if name not in known:
            raise ConfigError(f"The option columns names {name!r}; there are {', '.join(known)}.")


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a sink.

    Args:
        given: as Spark hands them over: names in any case, values as text.

    Raises:
        ConfigError: an option is unknown, missing or cannot be used.
    """
    texts = {name.lower(): value for name, value in given.items()}
    values = read_options(given, SINK_READERS)
    _check_url(values, texts, _FORGOTTEN)
    options = SinkOptions(**values)
    if options.queue and options.topic:
        raise ConfigError("Give one of the options queue and topic, not both.")
    if options.delivery_mode not in ("", *DELIVERY_MODES):
        raise ConfigError(f"The option deliveryMode is {' or '.join(DELIVERY_MODES)}, not {options.delivery_mode!r}.")
    return options


def _check_pattern(name: str, pattern: str) -> None:
    """Refuse globs and regular expressions: they would match nothing, in silence."""
    words = pattern.split(".")
    if any(("*" in word and word != "*") or ("#" in word and word != "#") for word in words) or "\\." in pattern:
        raise ConfigError(
            f"The option {name} is {pattern!r}, which matches nothing: it is no regular expression. Names are words "
            "with dots between them; * stands for one whole word, # for any number of them, as in orders.* or "
            "orders.#."
        )


def _check_selector(selector: str) -> None:
    from legato.amqp.codec.selection import matcher
    from legato.errors import InvalidSelectorError

    try:
        matcher(selector)
    except InvalidSelectorError as error:
        raise ConfigError(f"The option selector cannot be understood: {error}") from None


def _check_url(values: dict[str, Any], texts: Mapping[str, str], otherwise: str = "") -> None:
    """Put user name, password and the client's options into the URL, and see that it can be used.

    Args:
        otherwise: what else is told if there is no URL.
    """
    from urllib.parse import quote, urlencode

    from legato.client.failover.uri import parse_uri

    url = values.get("url", "")
    if not url:
        raise ConfigError(f"Give the option url, such as amqp://localhost:5672,localhost:5673.{otherwise}")
    if "user" in texts and "username" in texts:
        raise ConfigError("The options user and username mean the same: give one of them.")
    user = texts.get("user") or texts.get("username")
    if "password" in texts and not user:
        raise ConfigError("The option password goes with the option user: give both, or a login in the url alone.")
    if user:
        scheme, _, rest = url.partition("://")
        if "@" in rest:
            raise ConfigError("The option url has a user name already: leave out the option user.")
        # An empty password would be one, and no file or prompt be asked.
        password = f":{quote(texts['password'], safe='')}" if "password" in texts else ""
        url = f"{scheme}://{quote(user, safe='')}{password}@{rest}"
    said = {name.removeprefix(CLIENT_PREFIX): text for name, text in texts.items() if name.startswith(CLIENT_PREFIX)}
    said |= {TLS_OPTIONS[name]: text for name, text in texts.items() if name in TLS_OPTIONS}
    if said:
        url += ("&" if "?" in url else "?") + urlencode(said)
    if parse_uri(url).options.client_id is not None:
        raise ConfigError(
            "Driver and tasks connect by themselves, and a client id is for one connection: leave client_id out."
        )
    values["url"] = url
