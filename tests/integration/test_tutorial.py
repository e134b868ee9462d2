"""The tutorial is done as it says: its files written, its commands run in order, its kills real, its output seen."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from socket import create_server

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "tutorial.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHORTER = {"2000": "200", "2001": "201", "2,001": "201", "2002": "202"}
"""A reader's machine has time for 2,000 orders; the test's shows the same with 200."""
DONE_BY_THE_TEST = ("mkdir", "python3 -m venv", "pip install", "export")
STEP_S = 120.0


@dataclass
class Reader:
    """Who does what the page says, in one directory; programs in the background until they are killed."""

    directory: Path
    ports: dict[str, str]
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    in_background: int = 0
    """The process of the last command with `&`, as the shell has it in `$!`."""
    printed: str = ""

    def own(self, text: str) -> str:
        """What the page says, with this reader's ports and numbers."""
        for shown, used in (self.ports | SHORTER).items():
            text = re.sub(rf"\b{shown}\b", used, text)
        return text

    def write(self, code: str) -> None:
        """Write a file whose name is its first line."""
        name = code.splitlines()[0].removeprefix("# ")
        (self.directory / name).write_text(self.own(code))

    def enter(self, command: str) -> None:
        """Enter a command, and see that it succeeds."""
        if "4c1f09aa" in command:
            [dead_letter] = re.findall(r"^(\w{8}) ", self.run("legato dlq list flows.Shop.sell"), re.MULTILINE)
            command = command.replace("4c1f09aa", dead_letter)
        if command.startswith(DONE_BY_THE_TEST):
            return
        if command == "kill -9 $!":
            self.kill(self.in_background)
        elif command == "kill -9 4711":
            self.kill(self.number_in_first_line("broker-0.err"))
        elif command.startswith("legato serve"):
            self.serve(self.own(command))
        elif command.endswith(" &"):
            self.begin(self.own(command.removesuffix(" &")))
            self.in_background = self.running[-1].pid
        else:
            self.printed = self.run(self.own(command))

    def run(self, command: str) -> str:
        """Run a command to its end; returns what it prints."""
        run = subprocess.run(
            command,
            shell=True,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=STEP_S,
        )
        assert run.returncode == 0, f"{command}: {run.stdout}{run.stderr}"
        return run.stdout

    def serve(self, command: str) -> None:
        """Start a broker, and see that it says what it is."""
        name = f"broker-{len(self.running)}"
        log = self.begin(f"{command} 2>{name}.err >{name}.log", f"{name}.log")
        self.until(lambda: re.search(r"^(active epoch=|backup)", log.read_text(), re.MULTILINE) is not None)

    def begin(self, command: str, log: str = "shop.log") -> Path:
        """Start a program that goes on in the background."""
        process = subprocess.Popen(f"exec {command}", shell=True, cwd=self.directory, env=self.environment)
        self.running.append(process)
        self.until(lambda: (self.directory / log).exists())
        return self.directory / log

    def kill(self, number: int) -> None:
        """SIGKILL a process by its number."""
        [process] = [process for process in self.running if process.pid == number]
        process.kill()
        process.wait(STEP_S)
        self.running.remove(process)

    def number_in_first_line(self, log: str) -> int:
        """The number of a broker's process, where its log says it."""
        [number] = re.findall(r"process (\d+)", (self.directory / log).read_text().splitlines()[0])
        return int(number)

    def expect(self, pattern: str, again: str) -> None:
        """See what the page shows; the command is repeated until then, as the page says."""
        pattern = self.own(pattern)

        def seen() -> bool:
            if fnmatchcase(self.printed.rstrip(), pattern.rstrip()):
                return True
            time.sleep(0.5)  # each look is a process
            self.printed = self.run(again)
            return False

        self.until(seen, lambda: f"{again}: {self.printed}")

    @property
    def environment(self) -> dict[str, str]:
        """With this environment's programs first, both brokers named, and a wide terminal."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        url = self.own("amqp://localhost:5672,localhost:5673")
        return os.environ | {"PATH": path, "LEGATO_URL": url, "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}

    def until(self, reached: Callable[[], bool], said: Callable[[], str] = str) -> None:
        """Wait for what happens in another process."""
        deadline = time.monotonic() + STEP_S
        while not reached():
            assert time.monotonic() < deadline, said()
            time.sleep(0.05)

    def sold(self) -> int:
        """How many orders the database has."""
        with closing(sqlite3.connect(self.directory / "shop.db")) as database:
            return int(database.execute("SELECT count(*) FROM sales").fetchone()[0])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with create_server(("localhost", 0)) as one, create_server(("localhost", 0)) as other:
        ports = {"5672": str(one.getsockname()[1]), "5673": str(other.getsockname()[1])}
    reader = Reader(tmp_path, ports)
    yield reader
    for process in reader.running:
        process.send_signal(signal.SIGTERM)
    for process in reader.running:
        process.wait(STEP_S)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_reader_of_the_tutorial_sees_what_it_says(reader: Reader) -> None:
    """Promise 1, with a database: service and primary are killed in the middle of the work."""
    last = ""
    kills = 0
    for language, text in BLOCK.findall(PAGE.read_text()):
        if language == "python":
            reader.write(text)
        elif language == "text":
            reader.expect(text, again=last)
        else:
            for command in text.splitlines():
                if command.startswith("kill -9"):
                    reader.until(lambda: reader.sold() > 1)
                    assert reader.sold() < int(reader.own("2001")), "all was done before the kill"
                    kills += 1
                reader.enter(command)
                last = reader.own(command) if not command.startswith("kill") else last
    assert kills == 2
