"""Check of the machine before an installation: one sentence for each thing that is missing."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PYTHON_VERSION_MIN = (3, 11)
JAVA_VERSION_MIN = 17


def missing(for_wheels: bool = False) -> Iterator[str]:
    """What has to be installed first, one sentence each. Building wheels needs no Java."""
    if sys.version_info < PYTHON_VERSION_MIN:
        yield f"Legato needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})."
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        yield "Python's venv module is missing: install the package python3-venv."
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        yield "Python's C headers are missing (the AMQP engine is compiled on install): install python3-dev."
    if not any(shutil.which(compiler) for compiler in (os.environ.get("CC", "cc").split()[0], "cc", "gcc", "clang")):
        yield "There is no C compiler (the AMQP engine is compiled on install): install gcc or clang."
    if for_wheels:
        if not has_openssl():
            yield "pkg-config finds no OpenSSL, so the AMQP engine would lack TLS: install pkg-config and libssl-dev."
        return
    version = java_version()
    if version is None:
        yield f"Java is missing (Spark runs on it): install a JDK or JRE {JAVA_VERSION_MIN} or newer."
    elif version < JAVA_VERSION_MIN:
        yield f"Spark needs Java {JAVA_VERSION_MIN} or newer; this is {version}: set JAVA_HOME to a newer one."


def has_openssl() -> bool:
    """Whether the engine's build will find OpenSSL: it asks pkg-config, and leaves TLS out without a word if not."""
    try:
        return subprocess.run(["pkg-config", "--exists", "openssl"], check=False).returncode == 0
    except FileNotFoundError:
        return False


def java_version() -> int | None:
    """Major version of the Java that Spark would start, None if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not java or not Path(java).exists():
        return None
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for", dest="purpose", choices=("everything", "wheels"), default="everything")
    sentences = list(missing(for_wheels=parser.parse_args().purpose == "wheels"))
    for sentence in sentences:
        print(sentence, file=sys.stderr)
    sys.exit(1 if sentences else 0)
