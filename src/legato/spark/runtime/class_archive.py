"""An archive of Spark's loaded classes (JVM class data sharing), which lets later JVMs start seconds sooner.

Before it has done anything for us, Spark reads, checks and links ten thousand classes out of 280 jars: a third of what
a first audit costs. A JVM that ends can leave an archive of those it loaded (`-XX:ArchiveClassesAtExit`), which the
next one takes as it is (`-XX:SharedArchiveFile`). It is a cache: a JVM does without one that is not of its own version,
options and jars, and whoever deletes it loses some seconds, once.
"""

import hashlib
import os
import shutil
import time
from pathlib import Path

import pyspark

_HEADER_BYTES = 4
_ROOM_BYTES = 2 << 30
"""A disk with less to spare is left alone: an archive takes 180 MB."""
_UNUSED_S = 30 * 86400
_ABANDONED_S = 3600

# An archive that does not fit is no news to a user; and the standard output is theirs.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


def cache_directory() -> Path:
    """Where archives are: `legato` in the user's own cache (`XDG_CACHE_HOME`)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "legato"


def archive_options(java: str, *, write: bool, directory: Path | None = None) -> list[str]:
    """The options of a JVM that takes classes from the archive if there is one, and else may leave one when it ends.

    Args:
        java: what `java -version` says.
        write: whether to leave one. That takes the JVM eight seconds more, and twenty after its last query.
        directory: where archives are, if not in `cache_directory`.
    """
    directory = directory or cache_directory()
    stem = f"spark-{_key(java)}"
    if any(character in " \t\n'\"\\" for character in str(directory)):
        return []
    try:
        archive = _find(directory, stem)
        if archive is not None:
            os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}", *_QUIET]
        if not write:
            return []
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(directory).free < _ROOM_BYTES:
            return []
    except OSError:
        return []
    return [f"-XX:ArchiveClassesAtExit={directory / f'{stem}.{os.getpid()}.new'}", *_QUIET]


def leaves_archive(options: list[str]) -> bool:
    """Whether a JVM with these options writes an archive, for which it outlives its last query."""
    return any("ArchiveClassesAtExit" in option for option in options)


def _key(java: str) -> str:
    """Changes with the JVM and with Spark's jars, as far as is seen at once; the JVM itself looks at all of them."""
    jars = Path(pyspark.__file__).parent / "jars"
    changed_ns = jars.stat().st_mtime_ns if jars.exists() else 0
    return hashlib.sha256(repr((java, pyspark.__version__, str(jars), changed_ns)).encode()).hexdigest()[:16]


def _find(directory: Path, stem: str) -> Path | None:
    """The archive there is, after what a JVM has left complete was taken over, and what is of no use removed.

    A JVM writes the head of an archive last. Of one that is cut off it dies: the length is part of the name.
    """
    now = time.time()
    for candidate in directory.glob(f"{stem}.*.new"):
        if _is_complete(candidate):
            candidate.replace(directory / f"{stem}-{candidate.stat().st_size}.jsa")
        elif now - candidate.stat().st_mtime > _ABANDONED_S:
            candidate.unlink(missing_ok=True)
    found = None
    for archive in directory.glob("spark-*.jsa"):
        there = archive.stat()
        if archive.stem == f"{stem}-{there.st_size}":
            found = archive
        elif archive.name.startswith(stem) or now - there.st_mtime > _UNUSED_S:
            archive.unlink(missing_ok=True)
    return found


def _is_complete(candidate: Path) -> bool:
    with candidate.open("rb") as file:
        if not any(file.read(_HEADER_BYTES)):
            return False
        os.fsync(file.fileno())
    return True
