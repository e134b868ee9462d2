"""What a login costs the broker, and what very many at once cost somebody who is logged in already."""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import hmac
import multiprocessing
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from legato.amqp.codec.types import Symbol
from legato.server.identity.keys import ITERATIONS_DEFAULT
from legato.server.identity.users_file import User, changing, make_keys
from tests.attacks.ground import P99_MS, PASSWORD, SASL_HEADER, Cost, Ground, plain_login
from tests.integration.server.test_logins import outcome
from tests.support.raw import opening
from tests.unit.amqp.test_sasl import frame

LOGINS = 100
AT_ONCE = 2000
KDF_FACTOR_MAX = 1.2
ALL_IN_WITHIN_S = 180.0
OUTCOME, OPEN = b"\x00\x53\x44", b"\x00\x53\x10"


class Logins(msgspec.Struct):
    """What was measured.

    Attributes:
        kdf_ms: processor time of one PBKDF2 with the broker's iterations.
        scram_ms, plain_ms: processor time of the broker for one login.
        crowd: what a crowd cost that logged in at once.
        let_in: how many of it were let in, after how many attempts.
    """

    kdf_ms: float
    scram_ms: float
    plain_ms: float
    crowd: Cost
    at_once: int
    let_in: int
    attempts: int
    took_s: float

    def misses(self, p99_ms: float) -> list[str]:
        """What is not as it should be."""
        found = []
        for name, cost_ms in (("SCRAM", self.scram_ms), ("PLAIN", self.plain_ms)):
            if cost_ms > KDF_FACTOR_MAX * self.kdf_ms:
                found.append(f"a login by {name} costs {cost_ms / self.kdf_ms:.2f} times its KDF")
        if self.crowd.p99_ms > p99_ms:
            found.append(f"while {self.at_once} log in, the good client's p99 is {self.crowd.p99_ms:.0f} ms")
        if self.let_in < self.at_once:
            found.append(f"only {self.let_in} of {self.at_once} were let in within {ALL_IN_WITHIN_S:.0f} s")
        return found


class ScramKeys:
    """A client's part of SCRAM-SHA-256 that runs the KDF once, for all of a user's logins."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def first(self, nonce: str) -> bytes:
        """The initial response."""
        return f"n,,n={self._user},r={nonce}".encode()

    def final(self, nonce: str, challenge: bytes) -> bytes:
        """The proof."""
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, count = base64.b64decode(said["s"]), int(said["i"])
        if (salt, count) not in self._salted:
            self._salted[salt, count] = hashlib.pbkdf2_hmac("sha256", self._password.encode(), salt, count)
        key = hmac.digest(self._salted[salt, count], b"Client Key", "sha256")
        without_proof = f"c=biws,r={said['r']}"
        told = f"n={self._user},r={nonce},{challenge.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), told, "sha256")
        proof = bytes(mine ^ theirs for mine, theirs in zip(key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def challenge_in(data: bytes) -> bytes | None:
    """The challenge in what came, if it is whole."""
    at = data.find(b"\x00\x53\x42")
    begin = data.find(b"r=", at) if at >= 0 else -1
    return data[begin:] if begin >= 0 and b",i=" in data[begin:] else None


def scram_login(port: int, keys: ScramKeys) -> None:
    """Log in, and hang up."""
    nonce = os.urandom(12).hex()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(SASL_HEADER + frame(0x41, [Symbol("SCRAM-SHA-256"), keys.first(nonce)]))
        data = b""
        while (challenge := challenge_in(data)) is None:
            data += sock.recv(4096)
        sock.sendall(frame(0x43, [keys.final(nonce, challenge)]))
        while OUTCOME not in data:
            more = sock.recv(4096)
            if not more:
                raise AssertionError("not let in")
            data += more


def plain_once(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(plain_login("ann"))
        assert outcome(sock) == 0


def cost_ms(ground: Ground, login: Callable[[], None], count: int) -> float:
    """Processor time of the broker for each of so many logins."""
    login()
    before = ground._cpu_s()
    for _ in range(count):
        login()
    return 1000 * (ground._cpu_s() - before) / count


def kdf_ms(count: int = 20) -> float:
    """Processor time of one PBKDF2."""
    began = time.process_time()
    for _ in range(count):
        hashlib.pbkdf2_hmac("sha256", b"x", b"s" * 16, ITERATIONS_DEFAULT)
    return 1000 * (time.process_time() - began) / count


def in_a_process(crowd: Crowd) -> tuple[int, int]:
    """Have a crowd come from a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def work() -> None:
        asyncio.run(crowd.run())
        theirs.send((crowd.let_in, crowd.attempts))

    process = context.Process(target=work, daemon=True)
    process.start()
    let_in, attempts = ours.recv()
    process.join()
    return int(let_in), int(attempts)


class Crowd:
    """Clients that all log in at once; who is sent away comes again, as clients do."""

    def __init__(self, port: int, size: int, keys: list[ScramKeys]) -> None:
        self._port = port
        self._size = size
        self._keys = keys
        self._chance = Random()
        self.let_in = 0
        self.attempts = 0

    async def run(self) -> None:
        """Return when all are in, or the time is up."""
        tasks = [asyncio.create_task(self._one(number)) for number in range(self._size)]
        _, late = await asyncio.wait(tasks, timeout=ALL_IN_WITHIN_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and task.exception() is None:
                task.result().close()

    async def _one(self, number: int) -> asyncio.StreamWriter:
        wait_s = 0.5
        while True:
            self.attempts += 1
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, EOFError):
                writer = await self._try(number)
                self.let_in += 1
                return writer
            # At random, as clients do: else all come again at once.
            await asyncio.sleep(self._chance.uniform(0, wait_s))
            wait_s = min(2 * wait_s, 16.0)

    async def _try(self, number: int) -> asyncio.StreamWriter:
        keys = self._keys[number % len(self._keys)]
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            nonce = os.urandom(12).hex()
            writer.write(SASL_HEADER + frame(0x41, [Symbol("SCRAM-SHA-256"), keys.first(nonce)]))
            data = b""
            while (challenge := challenge_in(data)) is None:
                data += await _some(reader)
            writer.write(frame(0x43, [keys.final(nonce, challenge)]))
            while OUTCOME not in data:
                data += await _some(reader)
            writer.write(opening(f"crowd-{number}"))
            while OPEN not in data:
                data += await _some(reader)
        except BaseException:
            writer.close()
            raise
        return writer


async def _some(reader: asyncio.StreamReader) -> bytes:
    data = await reader.read(4096)
    if not data:
        raise EOFError
    return data


def measure(say: Callable[[str], None], at_once: int = AT_ONCE) -> Logins:
    """Measure both on a broker of its own, whose users have as many rounds as `legato user add` gives them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    users = [f"crowd{number}" for number in range(20)]
    with tempfile.TemporaryDirectory(prefix="legato-logins-") as scratch:
        ground = Ground(Path(scratch))
        with changing(ground.store / "users") as content:
            keys = make_keys(PASSWORD)
            for name in ("ann", "good", *users):
                content.users[name] = User(name, (), keys)
        with ground:
            kdf = kdf_ms()
            ann = ScramKeys("ann", PASSWORD)
            scram = cost_ms(ground, lambda: scram_login(ground.port, ann), LOGINS)
            plain = cost_ms(ground, lambda: plain_once(ground.port), LOGINS // 2)
            kdf = (kdf + kdf_ms()) / 2
            say(
                f"one KDF {kdf:.1f} ms; a login by SCRAM {scram:.1f} ms ({scram / kdf:.2f} of it), "
                f"by PLAIN {plain:.1f} ms ({plain / kdf:.2f})"
            )
            crowd = Crowd(ground.port, at_once, [ScramKeys(name, PASSWORD) for name in users])
            took = 0.0

            def run(ground: Ground) -> None:
                nonlocal took
                began = time.monotonic()
                crowd.let_in, crowd.attempts = in_a_process(crowd)
                took = time.monotonic() - began

            cost = ground.measure(run)
    say(
        f"{crowd.let_in} of {at_once} let in after {took:.1f} s and {crowd.attempts} attempts; the good client's "
        f"p50 {cost.p50_ms} ms, p99 {cost.p99_ms} ms, longest {cost.longest_ms} ms; the broker took {cost.cpu_s} s"
    )
    return Logins(kdf, scram, plain, cost, at_once, crowd.let_in, crowd.attempts, took)


def main() -> None:
    """The command: `make bench-logins`; its last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="how many log in at once")
    parser.add_argument("--p99-ms", type=float, default=P99_MS, help="what the good client may have to wait")
    options = parser.parse_args()
    measured = measure(lambda line: print(line, flush=True), options.at_once)
    print(msgspec.json.encode(measured).decode())
    for why in (misses := measured.misses(options.p99_ms)):
        print(why, file=sys.stderr)
    sys.exit(1 if misses else 0)


if __name__ == "__main__":
    main()
