"""Seed, ports and directory of a run of processes, chosen before it starts."""

import contextlib
import random
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

from legato.errors import ConfigError

_LISTENING = range(20_000, 32_768)
_given: set[int] = set()
"""Who got one of them may listen there later, or again after a while: it is nobody else's meanwhile."""


def choose_seed() -> int:
    """A seed short enough to be typed again."""
    return random.SystemRandom().randrange(1, 1_000_000)


def choose_ports(wanted: int, count: int = 2) -> tuple[int, ...]:
    """The ports of brokers: `wanted` and those after it, or free ones if it is 0.

    Raises:
        ConfigError: a wanted port is in use.
    """
    if not wanted:
        return tuple(free_ports(count))
    for port in range(wanted, wanted + count):
        with socket.socket() as probe:
            try:
                _bind(probe, port)
            except OSError as error:
                raise ConfigError(f"Port {port} is in use; give another --port, or none for free ones.") from error
    return tuple(range(wanted, wanted + count))


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now, all different, and none that this process was given lately.

    No outgoing connection takes one of them before it is used: systems choose theirs from 32768 upwards.
    """
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            probe = stack.enter_context(socket.socket())
            if 2 * len(_given) > len(_LISTENING):
                _given.clear()
            port = random.SystemRandom().choice(_LISTENING)
            if port in _given:
                continue
            with contextlib.suppress(OSError):
                _bind(probe, port)
                found.append(port)
                _given.add(port)
        return found


def _bind(probe: socket.socket, port: int) -> None:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", port))
    probe.listen()


def see_writable(option: str, file: Path | None) -> None:
    """See that what is known at the end of a long run can be written then; makes the directories above it.

    Raises:
        ConfigError: it cannot.
    """
    if file is None or (file.exists() and not file.is_file() and not file.is_dir()):
        return  # A device, or a pipe, whose reader may come later.
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        is_new = not file.exists()
        with file.open("ab"):
            pass
        if is_new:
            file.unlink()
    except OSError as error:
        raise ConfigError(f"{option} {file} cannot be written: {error.strerror}.") from None


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
