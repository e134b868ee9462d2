"""Open files: how many the system lets this process have, of which each connection takes one."""

from __future__ import annotations

import resource

from legato.errors import ConfigError

LEAST = 64
"""A broker without connections has about half as many, and a few more for moments."""
FEW = 1024
HOW = "LimitNOFILE=65536 in the unit of systemd, or ulimit -n, gives it more"


def see_open_files() -> list[str]:
    """See that a broker can run with as many open files as this process may have.

    Returns:
        What the log is to say.

    Raises:
        ConfigError: they are too few.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY or most >= FEW:
        return []
    told = f"this process may have {most} open files, and each connection takes one"
    if most < LEAST:
        raise ConfigError(f"{told}: a broker needs {LEAST} at least. {HOW}.")
    return [f"{told}: {HOW}"]
