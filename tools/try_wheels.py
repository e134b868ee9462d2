"""The wheels in `dist/`, tried with the Python that runs this: `python3.14 tools/try_wheels.py`.

They are installed in a new environment, without a compiler: first what a client needs, then what a broker needs. The
lines of the README run while a primary is killed and its backup takes over. With `--tests` all extras are installed
that have wheels for this Python, and the quick tests run against the installed wheels, with warnings as errors.

Only the standard library is needed, and a package index: for a Python of another machine, of a container or of a root
directory, run it in a copy of the sources with their `dist/`. `make wheels` does it with each Python that is here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGINE = "python-qpid-proton"
EXTRAS = "broker,query,flows,postgresql,oauth,tracing,console,celery,faststream"
"""All but Spark's, which needs Java, and what is for looking at things."""
FOR_TESTS = (
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "trustme",
    "httpx",
    "fastapi",
    "opentelemetry-sdk",
)
TESTS = (
    *("core", "amqp", "client", "selectors", "server", "store", "ha", "flows", "kombu", "bulk"),
    *("test_failpoints.py", "test_likeness.py", "test_missing_engine.py", "test_sizes.py", "test_terminal.py"),
)
"""Below tests/unit, besides tests/conformance."""

CLIENT = """
import subprocess, sys
from pathlib import Path
from legato.client import ConnectionFactory

done = subprocess.run([Path(sys.executable).with_name("legato"), "serve"], capture_output=True, text=True)
assert done.returncode == 2 and "pip install 'legato[broker]'" in done.stderr, done
"""

BROKER = """
import logging, subprocess, sys, threading, warnings
from pathlib import Path

logging.getLogger("legato").setLevel(logging.ERROR)  # that a connection is lost is what is tried
warnings.filterwarnings("error", module="legato")
from proton import SSL
from legato.amqp.engine import batch
from legato.client import ConnectionFactory, TextMessage
from legato.testing import broker_pair

assert batch.available, "the compiled module is not in the wheel"
assert SSL.present(), "the engine was built without OpenSSL"
with broker_pair(Path(sys.argv[1])) as pair:
    with ConnectionFactory(pair.url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        queue = session.create_queue("wheels")
        session.create_producer(queue).send(TextMessage("rolls"))
        pair.fail_over()
        message = session.create_consumer(queue).receive(TextMessage, timeout_s=30)
        assert message and message.text == "rolls"
    readme = Path(sys.argv[2]).read_text().replace("amqp://localhost:5672,localhost:5673", pair.url)
    done = subprocess.run([sys.executable, "-I", "-c", readme], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{number} tea" for number in range(1, 101)], done
subprocess.run([Path(sys.executable).with_name("legato"), "--version"], check=True)
"""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", metavar="DIR", help="(default dist)")
    version = ".".join(map(str, sys.version_info[:2]))
    parser.add_argument(
        "--environment",
        type=Path,
        default=ROOT / "build" / "wheels" / f"python{version}",
        metavar="DIR",
        help="of the new environment, which replaces what is there (default build/wheels/pythonX.Y)",
    )
    parser.add_argument("--tests", action="store_true", help="also run the quick tests, some minutes")
    given = parser.parse_args()
    wheels = sorted(given.wheels.glob("*.whl"))
    if not any(wheel.name.startswith("legato-") for wheel in wheels):
        raise SystemExit(f"There are no wheels of Legato in {given.wheels}: run make wheels.")
    try_out(given.wheels, given.environment)
    if given.tests:
        run_tests(given.wheels, given.environment)
    print(f"= Python {sys.version.split()[0]}: {'tests passed' if given.tests else 'client, broker and takeover work'}")


def try_out(wheels: Path, place: Path) -> None:
    """Install the wheels in a new environment, and have a pair of brokers serve, and one of them taken over."""
    shutil.rmtree(place, ignore_errors=True)
    run(sys.executable, "-m", "venv", place)
    python = place / "bin" / "python"
    install(python, wheels, "legato", ENGINE)
    run(python, "-I", "-c", CLIENT)
    install(python, wheels, "legato[broker]")
    installed = next(place.glob("lib*/python*/site-packages/legato"))
    run(python, "-W", "error", "-m", "compileall", "-q", "-f", installed)
    lines = place / "readme.py"
    lines.write_text(lines_of_readme())
    run(python, "-I", "-c", BROKER, place / "stores", lines)
    for sdist in wheels.glob("legato-*.tar.gz"):
        with tarfile.open(sdist) as archive:
            assert any(name.endswith("src/legato/amqp/_batch.c") for name in archive.getnames())


def run_tests(wheels: Path, place: Path) -> None:
    """The quick tests, of the sources here against the installed wheels."""
    python = place / "bin" / "python"
    install(python, wheels, f"legato[{EXTRAS}]", *FOR_TESTS)
    tests = [f"tests/unit/{name}" for name in TESTS]
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "tests/conformance", cwd=ROOT)


def lines_of_readme() -> str:
    """The first Python block of the README."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def install(python: Path, wheels: Path, *requirements: str) -> None:
    """Install without a compiler."""
    run(
        *(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--only-binary", ":all:", "--find-links", wheels, *requirements),
        CC="/bin/false",
        CXX="/bin/false",
    )


def run(*command: object, cwd: Path | None = None, **variables: str) -> None:
    """Run a command; without the variables that would lead Python to other modules."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([str(part) for part in command], env=inherited | variables, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command[:4]))} ... failed with {done.returncode}")


if __name__ == "__main__":
    main()
