"""Rules about which options go together in a batch and in a stream."""

from __future__ import annotations

from legato.errors import ConfigError
from legato.spark.connector.option_parsing import ACKED, LATEST
from legato.spark.connector.options import SourceOptions

_NO_SUBSCRIPTION = (
    "Topics keep nothing by themselves: give the option subscription, the name of the durable subscription that a "
    "stream consumes or a batch browses."
)


def why_no_batch(options: SourceOptions) -> str | None:
    """Why a batch cannot read so; None if it can."""
    if options.read_mode == "consume":
        return "A batch browses; to consume, use a stream with the trigger availableNow."
    if options.is_topic and not options.has_subscription:
        return _NO_SUBSCRIPTION
    for name, offsets in (("startingOffsets", options.starting_offsets), ("endingOffsets", options.ending_offsets)):
        if offsets == ACKED:
            return f"A batch acknowledges nothing: the option {name} cannot be acked."
    return None


def why_no_stream(options: SourceOptions) -> str | None:
    """Why a stream cannot read so; None if it can."""
    if options.read_mode == "browse":
        return "A stream consumes: the option readMode = browse is for batches."
    if not options.has_subscription:
        return "A stream needs the option subscription: under that name the broker keeps its place."
    if not isinstance(options.starting_offsets, str):
        return "A stream starts where its subscription is; startingOffsets is acked, earliest or latest."
    if options.selector and not options.is_topic:
        return (
            "The option selector is for topics: a stream is the consumer of its queue, and what it left out nobody "
            "would get. Filter its rows with where(), or send to a topic and name it and a subscription here."
        )
    if options.ending_offsets != LATEST:
        return (
            "A stream has no end: the option endingOffsets is for batches. With the trigger availableNow it reads what "
            "is there when it starts."
        )
    if options.has_times or options.starting_times_strategy != LATEST:
        return (
            "The options startingTimestamp, endingTimestamp, startingOffsetsByTimestamp, endingOffsetsByTimestamp and "
            "startingOffsetsByTimestampStrategy are for batches; filter a stream's rows."
        )
    return None


def check_readable(options: SourceOptions) -> None:
    """See that a batch or a stream can read so; `load()` does not know which of them it is for.

    Raises:
        ConfigError: neither can.
    """
    no_batch, no_stream = why_no_batch(options), why_no_stream(options)
    if no_batch and no_stream:
        raise ConfigError(
            no_batch if no_batch == _NO_SUBSCRIPTION else f"As a batch: {no_batch} As a stream: {no_stream}"
        )
