"""A switchover of one group by a URL that names brokers of two."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

from tests.integration.groups.conftest import Groups
from tests.support.forked_process import run_legato
from tests.support.server import free_port, server


def test_the_successor_is_of_the_group_that_switches_over(tmp_path: Path) -> None:
    """The other group's primary let the command in meanwhile, and was told of as the one that serves again."""
    groups = Groups(tmp_path)
    primary, port = f'"127.0.0.1:{groups.ports["orders"]}"', free_port()
    groups.map_file.write_text(groups.map_file.read_text().replace(primary, f'{primary}, "127.0.0.1:{port}"'))
    with ExitStack() as stack:
        groups.start(stack)
        stack.enter_context(server(tmp_path / "orders", "--config", str(tmp_path / "orders.toml"), port=port))
        for _ in range(2):
            groups.brokers["rest"].kill()
            groups.brokers["rest"].start()
        assert groups.brokers["rest"].epoch == 3
        url = f"{groups.url('orders')},127.0.0.1:{groups.ports['rest']}"
        done = run_legato("switchover", "--url", url, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["listen"], told["epoch"]) == (f"127.0.0.1:{port}", 2)
