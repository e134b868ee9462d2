"""What a server of the log says of it, and whether nothing acknowledged is missing in that."""

from typing import Any

import pytest

from legato.replication.nats.engine import _bounds

HEARD = {"name": "b", "active": 1_000_000}
SILENT = {"name": "c", "active": 9_000_000_000}


@pytest.mark.parametrize(
    ("cluster", "settled"),
    [
        ({"leader": "a", "replicas": [HEARD, SILENT]}, True),
        ({"leader": "a", "replicas": [SILENT, SILENT]}, False),
        ({"replicas": [HEARD, HEARD]}, False),
        ({"leader": "", "replicas": [HEARD, HEARD]}, False),
        ({"leader": "a"}, True),
        (None, True),
    ],
    ids=["majority", "cut off", "no leader yet", "empty leader", "one replica", "no cluster"],
)
def test_who_answers_is_settled_as_the_leader_that_hears_a_majority(
    cluster: dict[str, Any] | None, settled: bool
) -> None:
    info = {"state": {"first_seq": 1, "last_seq": 5, "messages": 5}, "cluster": cluster}
    assert _bounds(info).settled is settled
