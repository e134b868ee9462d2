"""P15: what permissions cost: P1 and P2 with users whose roles are asked at each link, against nobody asked.

The raw client and Legato's own one, each in pairs of its own; the worse of the two counts.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from unittest.mock import patch

from bench.engine import USER_VARIABLE
from bench.figures import Goal, interleave, spread
from bench.harness import finish_pairs, note, options, table, temporary_store
from bench.processes import LEGATO, RAW, broker, send_and_receive
from legato.server.identity.users_file import User, changing, make_keys

WARM_UP = 20_000
CLIENTS = {"P1, raw client": RAW, "P2, Legato's client": "bench.legatoclient"}
USER, PASSWORD, ITERATIONS = "bench", "bench-password", 4096
OTHER_ROLES = 50
"""Roles with patterns of other addresses, which are looked at first."""


def settings() -> str:
    """A configuration in which the user may send, receive and create, by the last of many permissions."""
    others = "".join(f'{{ on = "area{number}.#", may = ["send", "receive"] }}, ' for number in range(OTHER_ROLES))
    return f'[[role]]\nname = "worker"\nallow = [{others}{{ on = "bench", may = ["send", "receive", "create"] }}]\n'


def measure(module: str, count: int, size: int, *, roles: bool) -> float:
    """Messages a second at once through a fresh broker on an empty store."""
    with temporary_store() as path:
        command, variables = list(LEGATO), dict(os.environ)
        store = path / "store"
        store.mkdir(mode=0o700)
        if roles:
            command += ["--config", str(_secure(path, store))]
            variables[USER_VARIABLE] = f"{USER}:{PASSWORD}"
        with patch.dict(os.environ, variables), broker(command, store) as running:
            send_and_receive(running.port, WARM_UP, size, module=module)
            rate = send_and_receive(running.port, count, size, module=module)
    note(f"{module} {'with roles' if roles else 'without'}: {rate:,.0f} msg/s")
    return rate


def _secure(path: Path, store: Path) -> Path:
    with changing(store / "users") as content:
        content.users[USER] = User(USER, ("worker",), make_keys(PASSWORD, ITERATIONS))
    config = path / "legato.toml"
    config.write_text(settings())
    return config


def main() -> None:
    """Command line."""
    given = options(__doc__, count=200_000).parse_args()
    found = {}
    for name, module in CLIENTS.items():
        run = partial(measure, module, given.count, given.size)
        found[name] = interleave(partial(run, roles=True), partial(run, roles=False), given.pairs)
    medians = {name: spread([pair.ratio for pair in pairs]).median for name, pairs in found.items()}
    worst = min(medians, key=lambda name: medians[name])
    finish_pairs(
        "P15",
        f"durable send + receive of {given.size} bytes with users and roles, and without: {worst}",
        ("with roles", "without"),
        found[worst],
        Goal(0.97, at_least=True),
        unit="msg/s",
        remark=table(["", "median of ratios"], [[name, median] for name, median in medians.items()]),
    )


if __name__ == "__main__":
    main()
