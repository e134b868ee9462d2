"""Seed, ports and directory of a run of processes, chosen before it starts."""

import random
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

from legato.errors import ConfigError


def choose_seed() -> int:
    """A seed short enough to be typed again."""
    return random.SystemRandom().randrange(1, 1_000_000)


def choose_ports(wanted: int) -> tuple[int, int]:
    """The ports of the two brokers.

    Raises:
        ConfigError: a wanted port is in use.
    """
    with socket.socket() as first, socket.socket() as second:
        for number, probe in enumerate((first, second)):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port = wanted + number if wanted else 0
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise ConfigError(f"Port {port} is in use; give another --port, or none for free ones.") from error
        return first.getsockname()[1], second.getsockname()[1]


def prepare_directory(out: Path, command: str = "demo") -> None:
    """Make `out` an empty directory for a run of `legato COMMAND`.

    Raises:
        ConfigError: it holds files that no such run made.
    """
    marker = out / f".legato-{command}"
    if out.exists():
        if not out.is_dir():
            raise ConfigError(f"{out} is not a directory; give another --out.")
        if any(out.iterdir()) and not marker.exists():
            raise ConfigError(f"{out} holds files that no {command} run made; give another --out, or empty it.")
        shutil.rmtree(out)
    out.mkdir(parents=True)
    marker.write_text(f"Made by `legato {command}`, which empties this directory when it runs again.\n")
    (out / "logs").mkdir()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
