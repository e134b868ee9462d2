"""Memory of the machine, or of the process's control groups."""

from __future__ import annotations

import os
from pathlib import Path

from legato.server.config.units import bytes_of

_CGROUPS = Path("/sys/fs/cgroup")


def memory_of_machine() -> int:
    """The bytes that this process may use at most: what the machine has, or the lowest limit of its control groups."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits_of_groups(_CGROUPS, Path("/proc/self/cgroup"))])


def _limits_of_groups(root: Path, own: Path) -> list[int]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            base, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = base / path.lstrip("/")
        for directory in (group, *group.parents):
            limit = _number(directory / name)
            if limit is not None:
                found.append(limit)
            if directory == base:
                break
    return found


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def share_of_memory(memory: str | int, machine_bytes: int) -> int:
    """Bytes of a setting: a number of them, with or without a unit, or a percentage of what the machine has.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(memory, int):
        bytes_ = memory
    elif memory.endswith("%"):
        share = float(memory[:-1])
        if not 0 <= share <= 100:
            raise ValueError(memory)
        bytes_ = int(machine_bytes * share / 100)
    else:
        in_unit = bytes_of(memory)
        bytes_ = int(memory) if in_unit is None else in_unit
    if bytes_ < 0:
        raise ValueError(memory)
    return bytes_
