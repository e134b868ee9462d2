"""The console process: a child with pages for people, beside a broker that is primary or backup."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import sys

from legato.errors import ConfigError
from legato.quoting import sentence
from legato.server.config.configuration import Config
from legato.server.identity.origin import is_loopback

log = logging.getLogger("legato.console")

RESTART_DELAY_S = 5.0
END_S = 3.0
"""A console that has not ended after so long is killed: its port is for the next one."""
LOOK_AGAIN_S = 2.0
"""So often is seen whether a reload has named other files."""
NEEDED = ("starlette", "jinja2", "uvicorn")


class ConsoleProcess:
    """Keeps a console running while the broker process lives; it ends when our end of its input closes.

    It is a client of the brokers like any other, finds them by the members of the store, and follows the primary. It
    has a session of its own, so that Ctrl-C in a terminal is for the broker alone, which ends the console with itself.

    Raises:
        ConfigError: what it needs is not installed, or nobody could log in.
    """

    def __init__(self, config: Config) -> None:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(f"http.console needs {', '.join(missing)}: pip install 'legato[console]'.")
        if config.tls.client_ca and config.tls.client_certificates == "required":
            raise ConfigError(
                'http.console: visitors log in by passwords, but tls.client_certificates is "required". Run legato '
                "console with a certificate in its --url instead."
            )
        self._config = config
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, and go on should it die."""
        self._watch = asyncio.get_running_loop().create_task(self._keep_running())

    async def _keep_running(self) -> None:
        while True:
            try:
                files = self._files()
                process = self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "legato.console.serve", *self._options()),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
                assert process.stdout is not None
                address = (await process.stdout.readline()).decode(errors="replace").strip()
                if address:
                    log.info("= console at %s", sentence(address))
                code = await self._follow(process, files)
                log.error("! the console ended with code %s; it starts again", code)
            except OSError as error:
                log.error("! the console cannot be started: %s", error)
            await asyncio.sleep(RESTART_DELAY_S)

    async def _follow(self, process: asyncio.subprocess.Process, files: dict[str, str]) -> int:
        """Tell it of other files of certificates while it runs; returns its code when it has ended."""
        ending = asyncio.ensure_future(process.wait())
        while not (await asyncio.wait([ending], timeout=LOOK_AGAIN_S))[0]:
            found = self._files()
            if found != files and process.stdin is not None:
                files = found
                process.stdin.write(json.dumps(found).encode() + b"\n")
        return ending.result()

    def _files(self) -> dict[str, str]:
        """Those of certificates, as `legato.console.serve` takes them; a reload may name others."""
        tls = self._config.tls
        return {"pinned": tls.certificate} | (
            {"certificate": tls.certificate, "key": tls.key} if self._is_https else {}
        )

    @property
    def _is_https(self) -> bool:
        host, _ = self._config.console_address
        return bool(self._config.tls.certificate) and not is_loopback(host) and host != "localhost"

    def _options(self) -> list[str]:
        config = self._config
        host, port = config.console_address
        options = ["--listen", f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
        own_host, own_port = config.host_and_port
        tls = bool(config.tls.certificate)
        shown = f"[{own_host}]" if ":" in own_host else own_host
        options += [
            "--url",
            f"amqp{'s' * tls}://{shown}:{own_port}",
            "--store",
            str(config.store_directory),
            "--members",
        ]
        if config.ledger.enabled:
            options += ["--ledger", str(config.ledger_directory)]
        if tls:
            for name, file in self._files().items():
                options += [f"--{name}", file]
        if config.server.insecure:
            options.append("--insecure")
        return options

    async def stop(self) -> None:
        """End it, and wait for that."""
        if self._watch is not None:
            self._watch.cancel()
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), END_S)
        except TimeoutError:
            log.warning("! the console has not ended within %g s and is killed", END_S)
            process.kill()
            await process.wait()
