"""The Java part: Maven builds it once, then plain Java runs it."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

JAVA = Path(__file__).parent / "java"
TARGET = JAVA / "target"
OWN_JAR = TARGET / "legato-interop-1-joram.jar"
JVM_OPTIONS = ("-Xmx1g", "-XX:+ExitOnOutOfMemoryError", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
POM_NAMESPACE = {"pom": "http://maven.apache.org/POM/4.0.0"}


@dataclass(frozen=True)
class Build:
    """What there is to run."""

    classpath: tuple[str, ...]

    def command(self, main: str, *arguments: str, first: Sequence[Path] = (), options: Sequence[str] = ()) -> list[str]:
        """A command line that runs a main class; `first` goes in front of the classpath."""
        entries = [*map(str, first), *self.classpath]
        return ["java", *JVM_OPTIONS, *options, "-cp", ":".join(entries), main, *arguments]

    def find(self, artifact: str) -> Path:
        """The jar of a dependency."""
        return next(Path(entry) for entry in self.classpath if Path(entry).name.startswith(f"{artifact}-"))


def build(profile: str = "") -> Build:
    """Compile the Java part, and resolve what it needs, where that has changed.

    Args:
        profile: a profile of the POM that adds dependencies.

    Raises:
        RuntimeError: Maven failed; the text is its own.
    """
    listing = TARGET / f"classpath-{profile or 'base'}.txt"
    sources = [JAVA / "pom.xml", *(JAVA / "src").rglob("*.*")]
    newest = max(source.stat().st_mtime for source in sources)
    if not listing.exists() or not OWN_JAR.exists() or min(listing.stat().st_mtime, OWN_JAR.stat().st_mtime) < newest:
        command = ["mvn", "-q", "-B", *([f"-P{profile}"] if profile else [])]
        command += ["package", "dependency:build-classpath", f"-Dclasspath.file={listing}"]
        done = subprocess.run(command, cwd=JAVA, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"mvn failed:\n{done.stdout.strip()}")
    return Build((str(OWN_JAR), *listing.read_text().strip().split(":")))


def pom_version(name: str) -> str:
    """A version that the POM names, such as `qpid-jms` of `qpid-jms.version`."""
    found = ElementTree.parse(JAVA / "pom.xml").find(f"pom:properties/pom:{name}.version", POM_NAMESPACE)
    assert found is not None, f"the POM has no property {name}.version"
    assert found.text is not None
    return found.text
