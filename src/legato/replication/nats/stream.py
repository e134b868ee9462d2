"""The stream that keeps a log: its configuration, and whether one that is there may be used."""

from collections.abc import Mapping, Sequence
from typing import Any

from legato.errors import LogError, LogFormatError, LogUnsafeError
from legato.replication.nats.settings import NatsSettings
from legato.sizes import counted


def configuration(settings: NatsSettings) -> dict[str, Any]:
    """What a new stream is made with: kept by several servers on disk, nothing removed but by `trim`."""
    return {
        "name": settings.stream,
        "description": f"The replicated log of the Legato group {settings.group}",
        "subjects": [settings.subject],
        "retention": "limits",
        "storage": "file",
        "num_replicas": settings.replicas,
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "deny_delete": True,
        "allow_rollup_hdrs": False,
        "duplicate_window": 100_000_000,
    }


_UNLIMITED = ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_age")
_FILLED = ("max_msgs", "max_bytes", "max_msgs_per_subject")
"""What is full takes nothing more, as the stream is made; or forgets, if that was changed, too."""


def check(found: Mapping[str, Any], settings: NatsSettings) -> None:
    """See that a stream that is there keeps a log.

    Args:
        found: its configuration, as the servers tell it.
        settings: of this broker.

    Raises:
        LogFormatError: it is not of this group, or serves something else, too.
        LogUnsafeError: it may lose records.
    """
    name = settings.stream
    if found.get("subjects") != [settings.subject] or found.get("mirror") or found.get("sources"):
        raise LogFormatError(
            f"the stream {name} is not the log of a group: its subjects are {found.get('subjects')}; "
            "give the group another name, or remove that stream"
        )
    if found.get("storage") != "file":
        raise LogUnsafeError(f"the stream {name} is kept in memory: a power cut would lose what was confirmed")
    if found.get("persist_mode") == "async":
        raise LogUnsafeError(f"the stream {name} is written to disk late (persist_mode: async)")
    if int(found.get("num_replicas", 1)) < 3:
        raise LogUnsafeError(
            f"the stream {name} is kept by {counted(int(found.get('num_replicas', 1)), 'server')}: at least 3 are "
            f"needed, `nats stream edit {name} --replicas 3`"
        )
    if limits := _limits(found):
        raise LogUnsafeError(_forgets(name, limits))
    if found.get("sealed") or found.get("allow_rollup_hdrs") or found.get("subject_transform"):
        raise LogUnsafeError(f"the stream {name} is sealed, rolled up or transformed: it cannot be a log")


def _limits(found: Mapping[str, Any]) -> list[str]:
    limits = [f"{each}: {found[each]}" for each in _UNLIMITED if int(found.get(each) or -1) > 0]
    return limits or ([f"retention: {found.get('retention')}"] if found.get("retention") != "limits" else [])


def _forgets(name: str, limits: Sequence[str]) -> str:
    return f"the stream {name} forgets records by itself ({', '.join(limits)}): only its primary may trim a log"


def hindrances(found: Mapping[str, Any], settings: NatsSettings) -> list[str]:
    """What an administrator changed of a stream that is in use, in sentences.

    Args:
        found: its configuration, as the servers tell it.
        settings: of this broker.
    """
    said: list[str] = []
    try:
        check(found, settings)
    except LogError as error:
        said.append(str(error))
    said.extend(each for each in stops(found, settings) if each not in said)
    if found.get("deny_purge"):
        said.append(
            f"the stream {settings.stream} cannot be trimmed (deny_purge), and fills the disks of the log's servers"
        )
    return said


def stops(found: Mapping[str, Any], settings: NatsSettings) -> list[str]:
    """Those of `hindrances` for which the stream may take no record, though its servers are well."""
    name = settings.stream
    said: list[str] = []
    if found.get("discard") == "new" and any(int(found.get(each) or -1) > 0 for each in _FILLED):
        said.append(_forgets(name, _limits(found)))
    if int(found.get("max_msg_size") or -1) > 0:
        said.append(f"the stream {name} takes messages of at most {found['max_msg_size']} bytes: remove max_msg_size")
    if found.get("no_ack"):
        said.append(f"the stream {name} acknowledges nothing (no_ack), so that nothing can be confirmed: remove no_ack")
    return said
