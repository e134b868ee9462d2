"""Servers of a replicated log for a test, with their directory."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from legato.processes.log_servers import Login, LogServers


@contextmanager
def log_servers(
    nodes: int = 3,
    *,
    sync_interval: str = "always",
    proof: bool = True,
    login: Login | None = None,
    accounts: str | None = None,
    start: bool = True,
) -> Iterator[LogServers]:
    """Servers of a replicated log, in processes of their own and a directory that is removed afterwards.

    They are running, unless `start` is False: a `LogNetwork` is put between them before they start.

    Args:
        nodes: how many.
        sync_interval: when they write to disk: `always`, or a time such as `2m`.
        proof: whether brokers may ask them when they do.
        login: what clients need; nothing if it is None.
        accounts: the part of the configuration that says who may log in, instead of what `proof` and `login` make.
        start: whether they are started.

    Raises:
        ConfigError: there is no `nats-server`.
        ProcessError: a server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="legato-log-") as directory:
        servers = LogServers(
            Path(directory) / "log",
            nodes=nodes,
            sync_interval=sync_interval,
            proof=proof,
            login=login,
            accounts=accounts,
        )
        try:
            if start:
                servers.start()
            yield servers
        finally:
            for server in servers.servers:
                server.kill()
