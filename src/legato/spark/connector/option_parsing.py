"""Parsing of options: names, what their texts mean, and errors for texts that mean nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from legato.errors import ConfigError
from legato.likeness import meant

PAYLOADS = ("binary", "text")
PROPERTIES = ("map", "variant")
DELIVERY_MODES = ("PERSISTENT", "NON_PERSISTENT")
OVERSIZED = ("null", "skip", "fail")
READ_MODES = ("browse", "consume")
EARLIEST, LATEST, ACKED = "earliest", "latest", "acked"
ERROR = "error"
TIMES_STRATEGIES = (LATEST, ERROR)
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
"""What those are where a number is wanted."""
CLIENT_PREFIX = "jms."
"""Options of the client begin so."""
TLS_PREFIX = "tls."
TLS_OPTIONS = {
    "tls.ca_file": "tls_ca_file",
    "tls.cert_file": "tls_cert_file",
    "tls.key_file": "tls_key_file",
    "tls.verify": "tls_verify",
}
"""Options for TLS, and what the client calls them."""
_FOREIGN = ("path", "checkpointlocation", "queryname")
"""Spark's own options that reach sources and sinks; `queryName` comes from declarative pipelines."""


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
    if text.strip().lower() in (EARLIEST, LATEST, ACKED):
        return text.strip().lower()
    return _numbers(text, EARLIEST_NUMBER)


def _times(text: str) -> dict[str, int]:
    return {address: _as_ms(time_ms) for address, time_ms in _numbers(text, 0).items()}


def _numbers(text: str, least: int) -> dict[str, int]:
    numbers = json.loads(text)
    if not isinstance(numbers, dict):
        raise ValueError(text)
    for number in numbers.values():
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(text)
    return {str(name): number for name, number in numbers.items()}


def _positive(text: str) -> int:
    number = int(text)
    if number <= 0:
        raise ValueError(text)
    return number


_SECONDS = range(10**8, 10**11)
"""Seconds of 1973 to 5138: taken for milliseconds they are of the first months of 1970, before any message."""
_MICROSECONDS_MIN = 10**14


def _time(text: str) -> int:
    return _as_ms(_count(text))


def _as_ms(time_ms: int) -> int:
    if time_ms in _SECONDS or time_ms >= _MICROSECONDS_MIN:
        raise _OtherUnitError("seconds" if time_ms in _SECONDS else "microseconds or nanoseconds")
    return time_ms


class _OtherUnitError(ValueError):
    """What is meant is in another unit than is wanted."""


_UNITS_MS = {
    unit: length_ms
    for units, length_ms in {
        "ms millisecond milliseconds": 1,
        "s sec secs second seconds": 1000,
        "m min mins minute minutes": 60_000,
        "h hr hrs hour hours": 3_600_000,
        "d day days": 86_400_000,
    }.items()
    for unit in units.split()
}
"""As Spark spells them in settings (`10min`) and in intervals (`10 minutes`)."""
_DURATION = re.compile(r"(?:interval\s+)?((?:\d+\s*[a-z]+\s*)+)")
_DURATION_PART = re.compile(r"(\d+)\s*([a-z]+)")


def _duration_ms(text: str) -> int:
    whole = _DURATION.fullmatch(text.strip().lower())
    if whole is None:
        raise ValueError(text)
    return sum(int(digits) * _UNITS_MS[unit] for digits, unit in _DURATION_PART.findall(whole[1]))


Reader = Callable[[str], Any]
SOURCE_READERS: dict[str, tuple[str, Reader, str]] = {
    "url": ("url", str, "a broker's URL"),
    "queue": ("queues", _names, "a name"),
    "queues": ("queues", _names, "names with commas between them"),
    "topic": ("topics", _names, "a name"),
    "topics": ("topics", _names, "names with commas between them"),
    "queuepattern": ("queue_pattern", str, "a pattern such as orders.#"),
    "topicpattern": ("topic_pattern", str, "a pattern such as prices.#"),
    "subscription": ("subscription", str, "a name"),
    "subscriptionprefix": ("subscription_prefix", str, "a name"),
    "selector": ("selector", str, "a message selector"),
    "startingoffsets": ("starting_offsets", _offsets, 'earliest, latest, acked or JSON such as {"orders": 12}'),
    "endingoffsets": ("ending_offsets", _offsets, 'latest or JSON such as {"orders": 12}'),
    "startingtimestamp": ("starting_timestamp_ms", _time, "milliseconds since 1970"),
    "endingtimestamp": ("ending_timestamp_ms", _time, "milliseconds since 1970"),
    "startingoffsetsbytimestamp": ("starting_times_ms", _times, 'JSON such as {"orders": 1700000000000}'),
    "endingoffsetsbytimestamp": ("ending_times_ms", _times, 'JSON such as {"orders": 1700000000000}'),
    "startingoffsetsbytimestampstrategy": ("starting_times_strategy", str, " or ".join(TIMES_STRATEGIES)),
    "maxoffsetspertrigger": ("max_offsets_per_trigger", _count, "a whole number, 0 for no limit"),
    "maxmessagespertrigger": ("max_offsets_per_trigger", _count, "a whole number, 0 for no limit"),
    "minoffsetspertrigger": ("min_offsets_per_trigger", _count, "a whole number, 0 or more"),
    "maxtriggerdelay": ("max_trigger_delay_ms", _duration_ms, "a time such as 15m, 10 minutes, 30s or 500ms"),
    "maxbytespertrigger": ("max_bytes_per_trigger", _count, "a whole number, 0 for no limit"),
    "minpartitions": ("min_partitions", _count, "a whole number, 0 or more"),
    "maxrecordsperpartition": ("max_records_per_partition", _count, "a whole number, 0 for no limit"),
    "failondataloss": ("fail_on_data_loss", _boolean, "true or false"),
    "includeproperties": ("include_properties", _boolean, "true or false"),
    "properties": ("properties", str, " or ".join(PROPERTIES)),
    "includebody": ("include_body", _boolean, "true or false"),
    "oversizedbodies": ("oversized_bodies", str, " or ".join(OVERSIZED)),
    "maxbodybytes": ("max_body_bytes", _positive, "a whole number, more than 0"),
    "payload": ("payload", str, " or ".join(PAYLOADS)),
    "readmode": ("read_mode", str, " or ".join(READ_MODES)),
    "columns": ("columns", _names, "names with commas between them"),
    "pollintervalms": ("poll_interval_ms", _count, "milliseconds"),
    "tailprobecachems": ("poll_interval_ms", _count, "milliseconds"),
    "polltimeoutms": ("poll_timeout_ms", _positive, "milliseconds, more than 0"),
    "fetchoffset.numretries": ("retries", _count, "a whole number, 0 or more"),
    "fetchoffset.retryintervalms": ("retry_interval_ms", _count, "milliseconds"),
}
_SPELLING = {
    name.lower(): name
    for name in (
        *("queuePattern", "topicPattern", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
        *("maxOffsetsPerTrigger", "maxMessagesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
        *("maxBytesPerTrigger", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeProperties"),
        *("oversizedBodies", "maxBodyBytes"),
        *("includeBody", "readMode", "pollIntervalMs", "tailProbeCacheMs", "pollTimeoutMs", "fetchOffset.numRetries"),
        *("fetchOffset.retryIntervalMs", "subscriptionPrefix", "startingOffsetsByTimestamp"),
        *("startingOffsetsByTimestampStrategy", "endingOffsetsByTimestamp"),
        *("transactionalId", "deliveryMode", "ignoreUnknownColumns", "verifyRepeatedBatches"),
    )
}
"""Names as they are documented; Spark hands them over in lower case."""
SINK_READERS: dict[str, tuple[str, Reader, str]] = {
    "url": ("url", str, "a broker's URL"),
    "queue": ("queue", str, "a name"),
    "topic": ("topic", str, "a name"),
    "transactionalid": ("transactional_id", str, "a name"),
    "deliverymode": ("delivery_mode", str, " or ".join(DELIVERY_MODES)),
    "ignoreunknowncolumns": ("ignore_unknown_columns", _boolean, "true or false"),
    "verifyrepeatedbatches": ("verify_repeated_batches", _boolean, "true or false"),
}


_ADVICE = {
    "subscribe": "use queue or topic; queues or topics for several, with commas between their names",
    "subscribepattern": "use queuePattern or topicPattern, such as orders.* or orders.#",
    "assign": "use queue or topic; they have no partitions to choose from",
    "kafka.bootstrap.servers": "use url, such as amqp://localhost:5672",
    "kafka.group.id": "use subscription",
    "groupidprefix": "use subscriptionPrefix",
    "includeheaders": "use includeProperties",
    "kafkaconsumer.polltimeoutms": "use pollTimeoutMs",
    "host": "use url, such as amqp://localhost:5672",
    "port": "use url, such as amqp://localhost:5672",
    "destination": "use queue or topic",
    "queuename": "use queue",
    "topicname": "use topic",
}
"""What those do not find who are used to other connectors."""
_ADVICE_SPELLING = {
    name.lower(): name
    for name in ("subscribePattern", "groupIdPrefix", "includeHeaders", "kafkaConsumer.pollTimeoutMs")
}
_KAFKA_PREFIX = "kafka."


def check_known(names: Iterable[str], readers: Mapping[str, tuple[str, Reader, str]]) -> None:
    """See that options exist.

    Args:
        names: in any case; they are repeated as they are, or as they are documented.
        readers: those of the source or of the sink.

    Raises:
        ConfigError: some do not. It says of each what might be meant.
    """
    unknown = [name for name in names if not _is_common(name.lower()) and name.lower() not in readers]
    if unknown:
        raise ConfigError(" ".join(_unknown(name, readers) for name in unknown))


def _is_common(name: str) -> bool:
    if name.startswith(TLS_PREFIX):
        return name in TLS_OPTIONS
    return name in ("user", "username", "password", *_FOREIGN) or name.startswith(CLIENT_PREFIX)


def _unknown(name: str, readers: Mapping[str, tuple[str, Reader, str]]) -> str:
    """A sentence about an option that is unknown."""
    lower = name.lower()
    shown = name if name != lower else _ADVICE_SPELLING.get(lower, _SPELLING.get(lower, lower))
    said = f"The option {shown!r} is unknown"
    here, there, others = ("source", "sink", SINK_READERS)
    if readers is SINK_READERS:
        here, there, others = ("sink", "source", SOURCE_READERS)
    if lower in others:
        return f"{said} to a {here}: it is one of the {there}."
    if advice := _ADVICE.get(lower):
        return f"{said}: {advice}."
    if lower.startswith(_KAFKA_PREFIX):
        hint = " For logins use user and password." if lower.startswith("kafka.sasl.") else ""
        hint = f" For TLS use {', '.join(TLS_OPTIONS)}, with files in PEM." if "ssl" in lower else hint
        return f"{said}: options of the client begin with {CLIENT_PREFIX}, such as jms.tls_ca_file.{hint}"
    if like := meant(lower, [*readers, *TLS_OPTIONS, "user", "username", "password"], count_max=1):
        return f"{said}; did you mean {_SPELLING.get(like[0], like[0])}?"
    return f"{said}; known are {', '.join(_SPELLING.get(each, each) for each in readers)}."


def read_options(texts: Mapping[str, str], readers: Mapping[str, tuple[str, Reader, str]]) -> dict[str, Any]:
    """The values of options, by the names of the fields that they are for.

    Args:
        texts: by the options' names, in any case.

    Raises:
        ConfigError: an option is unknown, said twice, or cannot be used.
    """
    check_known(texts, readers)
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    for name, text in ((name.lower(), text) for name, text in texts.items()):
        if _is_common(name):
            continue
        field, read, wanted = readers[name]
        if field in said:
            both = f"{_SPELLING.get(said[field], said[field])} and {_SPELLING.get(name, name)}"
            raise ConfigError(f"The options {both} mean the same: give one of them.")
        said[field] = name
        try:
            values[field] = read(text)
        except _OtherUnitError as error:
            shown = _SPELLING.get(name, name)
            raise ConfigError(f"The option {shown} wants {wanted}; {text} looks like {error}.") from None
        except (ValueError, KeyError):
            raise ConfigError(f"The option {_SPELLING.get(name, name)} wants {wanted}, not {text!r}.") from None
    return values
