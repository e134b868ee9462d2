"""The ledger process: a child that writes ledger segments, off the broker's loop."""

import asyncio
import importlib.util
import logging
import os
import sys
from pathlib import Path

from legato.store.segment_names import exported_through

log = logging.getLogger("legato.ledger")

START_DELAY_S = 2.0
"""After a takeover clients come first: starting an exporter costs a second of processor time."""
START_AGAIN_MAX_S = 60.0
"""The longest pause before an exporter that ended by itself is started again; each is twice the last one."""
STOPPING_GRACE_S = 1.0
"""So long after an exporter has ended this broker may be told to stop, before that is told and it is started again."""
FINAL_EXPORT_TIMEOUT_S = 20.0
_ENVIRONMENT = {
    # NumPy's linear algebra, which nobody needs here, starts a thread a core: a tenth of a second of processor time.
    "OPENBLAS_NUM_THREADS": "1",
    # Beside that of Python and NumPy, Arrow's own allocator keeps some 30 MB, and fills pages with zeroes for them.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Of an exporter, unless the broker's own says otherwise."""


class LedgerProcess:
    """Keeps an exporter running while the broker is active; it ends when our end of its input closes.

    Only when it is told to finish does it write the last facts: should we die, our successor's exporter goes on.
    """

    def __init__(self, store: Path, ledger: Path) -> None:
        self._store = store
        self._ledger = ledger
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._lines: asyncio.Task[None] | None = None
        self._report: asyncio.Task[None] | None = None
        self._is_ours = False
        """Whether an exporter has seen that what is in the ledger is of this store."""

    def exported_through(self) -> int:
        """The last position of the store's log that the ledger has; 0 if what is there may be of another store."""
        return exported_through(self._ledger) if self._is_ours else 0

    @staticmethod
    def available() -> bool:
        """Whether what the exporter needs is installed."""
        return importlib.util.find_spec("pyarrow") is not None

    def start(self) -> None:
        """Begin to export, and go on should the exporter die."""
        self._watch = asyncio.get_running_loop().create_task(self._keep_running())

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = START_DELAY_S
        while True:
            await asyncio.sleep(pause_s)
            began_s = loop.time()
            try:
                self._process = await self._spawn()
            except OSError as error:
                log.error("! the ledger's exporter cannot be started: %s", error)
                continue
            code = await self._process.wait()
            # Who ends all processes of a broker at once, as systemd does, ends this one before we have come to stop it.
            await asyncio.sleep(STOPPING_GRACE_S)
            lasted = loop.time() - began_s > START_AGAIN_MAX_S
            pause_s = START_DELAY_S if lasted else min(2 * pause_s, START_AGAIN_MAX_S)
            log.error("! the ledger's exporter ended with code %s; it starts again in %g s", code, pause_s)

    async def _spawn(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "legato.spark.exporter"),
            *("--store", str(self._store), "--ledger", str(self._ledger)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_ENVIRONMENT | os.environ,
            # Ctrl-C at a terminal is for the broker, which has this one write the last facts and end.
            start_new_session=True,
        )
        assert process.stderr is not None
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        self._lines = loop.create_task(_log_lines(process.stderr))
        self._report = loop.create_task(self._note_begun(process.stdout))
        return process

    async def _note_begun(self, stream: asyncio.StreamReader) -> None:
        """Wait for the one line that an exporter writes when it has seen whose the ledger is."""
        if await stream.readline():
            self._is_ours = True

    async def abandon(self) -> None:
        """Let the exporter end without more ado: that of the next primary goes on."""
        if self._watch is not None:
            self._watch.cancel()
        process = self._process
        if process is not None and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            await self._end(process)

    async def stop(self) -> None:
        """Let the exporter write what is left, and end."""
        if self._watch is not None:
            self._watch.cancel()
        process = self._process
        try:
            if process is None or process.returncode is not None:
                process = await self._spawn()
            if await self._finish(process) < 0:
                # Whoever ends all processes at once had ended it, and we had not heard of that yet.
                await self._finish(await self._spawn())
        except OSError as error:
            log.error("! the ledger's exporter cannot be asked for the last facts: %s", error)

    async def _finish(self, process: asyncio.subprocess.Process) -> int:
        """Have an exporter write the last facts; returns its exit code, negative if a signal ended it."""
        assert process.stdin is not None
        process.stdin.write(b"finish\n")
        process.stdin.close()
        return await self._end(process)

    async def _end(self, process: asyncio.subprocess.Process) -> int:
        """Wait for an exporter's end; returns its exit code, 0 if it did not end in time."""
        try:
            return await asyncio.wait_for(process.wait(), FINAL_EXPORT_TIMEOUT_S)
        except TimeoutError:
            log.error("! the ledger's exporter did not end; its next run continues where it was")
            process.kill()
            return 0


async def _log_lines(stream: asyncio.StreamReader) -> None:
    """What an exporter says, in the log and its format: it was in the midst of lines of JSON."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # Longer than the stream's buffer, which was emptied.
            continue
        if not line:
            return
        if said := line.decode(errors="replace").rstrip():
            log.warning("! %s", said)
