"""A survey of servers of NATS: which groups have a log there, and how each of these is."""

import contextlib
import dataclasses
from collections.abc import Mapping

from legato.errors import ConfigError, LogUnavailableError
from legato.replication.group_names import check_group
from legato.replication.log import LogHealth
from legato.replication.nats import answers
from legato.replication.nats.connection import Connection
from legato.replication.nats.engine import NatsEngine
from legato.replication.nats.settings import STREAM_PREFIX, NatsSettings


def survey(settings: NatsSettings, timeout_s: float) -> Mapping[str, LogHealth | LogUnavailableError]:
    """The health of the logs on these servers, by group; for a log that does not answer, why.

    Args:
        settings: the servers and the login; its group does not matter.
        timeout_s: wait so long for each answer.

    Raises:
        LogUnavailableError: no server answers.
        LogAccessError: the servers refuse the credentials.
    """
    connection = Connection(settings)
    try:
        connection.wait_for_first(timeout_s)
        names = connection.call(lambda: _groups(connection, timeout_s), timeout_s)
        return {name: _health(connection, dataclasses.replace(settings, group=name), timeout_s) for name in names}
    finally:
        connection.close()


def _health(connection: Connection, settings: NatsSettings, timeout_s: float) -> LogHealth | LogUnavailableError:
    try:
        health = NatsEngine(connection, settings).health(timeout_s)
    except LogUnavailableError as error:
        return error
    return LogHealth(health.replicas, *health.bounds.kept(), health.kept_bytes, 0, tuple(health.trouble))


async def _groups(connection: Connection, timeout_s: float) -> list[str]:
    answer = await connection.request("$JS.API.STREAM.NAMES", b"", timeout_s)
    try:
        streams = answers.result(answer.data).get("streams") or []
    except answers.Refusal as refusal:
        raise refusal.as_trouble() from None
    found: list[str] = []
    for stream in streams:
        with contextlib.suppress(ConfigError):
            if stream.startswith(STREAM_PREFIX):
                found.append(check_group(stream.removeprefix(STREAM_PREFIX)))
    return sorted(found)
