"""Opens, uses and frees connections and prints by how many bytes this process grew, for `test_memory`.

It is a program of its own since a process that has run other tests gives back or takes memory of theirs meanwhile.
"""

import gc
import resource
import sys
from pathlib import Path

import cproton

from legato.amqp.engine.events import Transfer
from tests.unit.amqp.pair import Pair, of


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def use(count: int) -> None:
    """Send one message over each of `count` connections, one after the other."""
    for _ in range(count):
        pair = Pair().opened()
        sender, receiver = pair.outgoing()
        sender.send(bytes(1000), b"t")
        _, events = pair.exchange()
        receiver.settle(of(events, Transfer)[0].delivery)
        pair.exchange()
        pair.free()


def growth_bytes(count: int) -> int:
    """What `count` connections leave behind, once the first few have filled the pools.

    Raises:
        AssertionError: objects of the engine are still retained.
    """
    use(200)
    gc.collect()
    retained, before = cproton.retained_count(), resident_bytes()
    use(count)
    gc.collect()
    assert cproton.retained_count() == retained
    return resident_bytes() - before


if __name__ == "__main__":
    print(growth_bytes(int(sys.argv[1])))
