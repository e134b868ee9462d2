"""The proof that servers write to disk before they acknowledge: what each says of its own configuration.

Only the system account may ask servers for it. So that account exports the question, and the brokers' account imports
it under the name `legato.servers`. Nothing else of the system account is needed.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from nats.aio.msg import Msg

from legato.errors import LogUnavailableError, LogUnsafeError

SUBJECT = "legato.servers"
EXPORTED = "$SYS.REQ.SERVER.PING.JSZ"

UNPROVED = (
    f"the log's servers do not say whether they write to disk before they acknowledge: import the service {EXPORTED} "
    f"of the system account as {SUBJECT} into the account of the brokers, "
    "and set sync_interval: always (docs/howto/log-servers.md)"
)


class _Server(msgspec.Struct):
    name: str = ""


class _Configuration(msgspec.Struct):
    sync_always: bool = False


class _Data(msgspec.Struct):
    config: _Configuration | None = None


class _Answer(msgspec.Struct):
    server: _Server
    data: _Data | None = None


def synced_by_server(answers: Iterable[Msg]) -> dict[str, bool]:
    """For each server that answered whether it writes each record to disk before it acknowledges it."""
    found: dict[str, bool] = {}
    for message in answers:
        try:
            answer = msgspec.json.decode(message.data, type=_Answer)
        except msgspec.DecodeError:
            continue
        if answer.data is not None and answer.data.config is not None:
            found[answer.server.name] = answer.data.config.sync_always
    return found


def demand(synced: Mapping[str, bool] | None, replicas: Sequence[str]) -> None:
    """See that a majority is known to write to disk, and that none is known not to.

    A server that does not answer now may be lost; it is asked again when the state of the log is.

    Args:
        synced: of `synced_by_server`; None if nobody may be asked.
        replicas: the servers that keep the log.

    Raises:
        LogUnsafeError: it is not so.
        LogUnavailableError: too few answer.
    """
    if synced is None:
        raise LogUnsafeError(UNPROVED)
    if lazy := [name for name in replicas if synced.get(name) is False]:
        raise LogUnsafeError(lazy_sentence(lazy))
    if 2 * sum(name in synced for name in replicas) <= len(replicas):
        silent = ", ".join(name for name in replicas if name not in synced)
        raise LogUnavailableError(
            f"no majority of the log's servers says when it writes to disk: {silent} do not answer"
        )


def lazy_sentence(servers: Sequence[str]) -> str:
    """The sentence about servers that acknowledge first."""
    verb = "acknowledges records before it has" if len(servers) == 1 else "acknowledge records before they have"
    return (
        f"{', '.join(servers)} {verb} them on disk, so that a power cut loses what was confirmed: "
        "set sync_interval: always in the section jetstream of the configuration"
    )
