"""Entry point of `legato serve`: logging, event loop, runtime."""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable

import uvloop

from legato import __version__
from legato.amqp.engine import batch
from legato.quoting import quoted
from legato.server.config.configuration import Config
from legato.server.process.log_format import formatter
from legato.server.process.open_files import see_open_files
from legato.server.process.runtime import Runtime

log = logging.getLogger("legato.run")


def run(config: Config, read_config: Callable[[], Config], warnings: Iterable[str] = ()) -> None:
    """Serve until stopped by SIGTERM or SIGINT; on SIGHUP, read the settings of addresses and users again.

    Args:
        warnings: sentences for the log, first of all.

    Raises:
        LegatoError: serving is not possible, or no longer; the message says why.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(config.server.log_format))
    logging.basicConfig(level=config.server.log_level, handlers=[handler])
    way = "many at once, by the compiled module" if batch.available else "one by one, in Python"
    directory = config.store_directory.absolute()
    log.info("= Legato %s, process %d, for the store %s", __version__, os.getpid(), quoted(directory))
    for said in [*warnings, *see_open_files()]:
        log.warning("! %s", said)
    log.debug("deliveries go through the engine %s", way)
    # The hot path makes no cycles; scanning the window of waiting messages again and again would cost time for nothing.
    # The store, the ledger, and what processes of ours write: nobody else's to read.
    os.umask(0o077)
    gc.collect()
    gc.freeze()
    # The youngest are few enough that looking at them takes a part of a turn.
    gc.set_threshold(20_000, 50, 100)
    # The writer's thread holds the interpreter for a fraction of a commit; waiting 5 ms for it showed in the latency.
    sys.setswitchinterval(0.0005)

    async def main() -> None:
        await Runtime(config, read_config).run()

    uvloop.run(main())
