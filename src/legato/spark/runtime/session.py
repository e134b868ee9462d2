"""The Spark session: started with the settings that matter, quietly, and with a clear error if Java is missing."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from legato.errors import ConfigError
from legato.spark.runtime import spark_files
from legato.spark.runtime.class_archive import archive_options, leaves_archive
from legato.spark.runtime.spark_errors import note_sentences
from legato.spark.runtime.spark_files import SparkFiles

JAVA_VERSION_MIN = 17

_COMPILE_THOROUGHLY = " ".join(
    (
        # Millions of messages are looked up at random: with large pages the processor finds them sooner.
        "-XX:+UseTransparentHugePages",
        # Each query brings code of its own, and to compile what of it and of Spark is merely warm cost as much as the
        # queries: methods have to be called ten times as often as by default, loops run as often before they count as
        # warm and ten times as often before they count as hot.
        "-XX:Tier3InvocationThreshold=2000",
        "-XX:Tier3MinInvocationThreshold=1000",
        "-XX:Tier3CompileThreshold=20000",
        "-XX:Tier4InvocationThreshold=50000",
        "-XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000",
        "-XX:Tier4BackEdgeThreshold=400000",
    )
)
"""Of work that takes minutes, what is worth a thorough compiler's time."""

# A JVM that compiles but once has room for a fifth of that by default, and compiles nothing more when it is full: after
# thirty audits.
_COMPILE_ONCE = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

QUERY_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # A driver that is killed while it writes its first offsets leaves what Spark would otherwise not start over.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # Segments are many and small: let a task read several.
    "spark.sql.files.openCostInBytes": str(256 << 10),
}
"""What our queries rely on, wherever they run."""

SMALL_QUERY_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark settings for tiny inputs: no adaptive re-planning, no code generation."""

_QUIET_LOGGING = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


def start_session(
    name: str = "legato",
    *,
    master: str | None = None,
    driver_memory: str = "2g",
    minutes: bool = False,
    keep_classes: bool = False,
) -> SparkSession:
    """The Spark session of this process; a running one is returned as it is.

    Errors that come through Spark end with what Legato said (`spark_errors.note_sentences`), and Spark's log and its
    temporary files are in a directory that goes with this process (`spark_files.py`).

    Args:
        name: how Spark calls the application.
        master: where to run; `SPARK_MASTER` in the environment, else all cores of this machine.
        driver_memory: the heap of Spark's JVM.
        minutes: the work takes minutes: let the JVM compile thoroughly. An audit takes seconds, and of these a third
            went into compiling.
        keep_classes: let the JVM leave its classes to those after it (`class_archive.py`), if none has. It takes some
            seconds longer and outlives this process by twenty.

    Raises:
        ConfigError: there is no usable Java.
    """
    note_sentences()
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = _require_java()
    # Spark's default is the `python3` on PATH, which need not have our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = _master(master)
    if master.startswith("local"):
        # On a cluster executors must reach the driver.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = _scratch_directory()
    logging = scratch / "log4j2.properties"
    logging.write_text(_QUIET_LOGGING)
    files = spark_files.begin(scratch) if _starts_jvm() else None
    partitions = 2 * (os.cpu_count() or 1)
    compiler = _COMPILE_THOROUGHLY if minutes else _COMPILE_ONCE
    classes = archive_options(java, write=keep_classes)
    settings = {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": " ".join(
            (
                f"-Dlog4j2.configurationFile={logging.as_uri()}",
                # So what a killed JVM leaves is found, and removed by the next one.
                *(() if files is None or _is_split(files.temporary) else (f"-Djava.io.tmpdir={files.temporary}",)),
                "-XX:+UseParallelGC",
                compiler,
                *classes,
            )
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _with_query_settings(builder.getOrCreate())
    builder = builder.master(master)
    for key, value in (settings | QUERY_SETTINGS).items():
        builder = builder.config(key, value)
    if files is None:
        return builder.getOrCreate()
    with interrupts_deferred(), _output_to(files, (1, 2) if leaves_archive(classes) else (2,)):
        return builder.getOrCreate()


def _is_split(path: Path) -> bool:
    """Whether Spark would take a path for several options of the JVM."""
    return any(character in " \t\n'\"\\" for character in str(path))


def _starts_jvm() -> bool:
    """Whether a session that is made now starts a JVM; one that ran in this process before is used again."""
    return SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ


def _scratch_directory() -> Path:
    """Where our Spark's files are that no job needs.

    Raises:
        ConfigError: it is another user's, or others may write there: they would choose what Spark's JVM does.
    """
    scratch = Path(tempfile.gettempdir()) / f"legato-spark-{os.getuid()}"
    scratch.mkdir(mode=0o700, exist_ok=True)
    found = scratch.lstat()
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or writable:
        raise ConfigError(
            f"{scratch} is another user's, or others may write there: remove it, or set TMPDIR to a directory of yours."
        )
    return scratch


def _with_query_settings(session: SparkSession) -> SparkSession:
    """A session of `spark-submit`, which was told where to run and with what: only what it was not told is added."""
    told = session.sparkContext.getConf()
    for key, value in QUERY_SETTINGS.items():
        if not told.contains(key):
            session.conf.set(key, value)
    return session


def session_like(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session on the same cluster, with the settings of another but for some.

    Settings that cannot be changed in a session stay as they are.
    """
    session = spark.newSession()
    own = session.conf.getAll
    for name, value in {**spark.conf.getAll, **settings}.items():
        # What is not Spark's is of file systems: keys and addresses.
        if own.get(name) != value and (not name.startswith("spark.") or session.conf.isModifiable(name)):
            session.conf.set(name, value)
    return session


def is_for_small_queries(spark: SparkSession) -> bool:
    """Whether a session has the settings `SMALL_QUERY_SETTINGS`."""
    return all(spark.conf.get(name) == value for name, value in SMALL_QUERY_SETTINGS.items())


@contextmanager
def staying_active(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one again after a block that makes frames in other sessions."""
    try:
        yield
    finally:
        spark.createDataFrame([], "nothing int")


def runs_here(master: str | None) -> bool:
    """Whether the tasks of `start_session` with this master will run on this machine, as far as that can be told."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return is_local(running)
    return "PYSPARK_GATEWAY_PORT" not in os.environ and _master(master).startswith("local")


def _master(master: str | None) -> str:
    return master or os.environ.get("SPARK_MASTER", "local[*]")


def is_local(spark: SparkSession) -> bool:
    """Whether its tasks run on this machine, and know its files."""
    return str(spark.sparkContext.master).startswith("local")


def on(spark: SparkSession) -> Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]:
    """How to call a function with each of some values in a task of its own; the answers come in their order."""

    def run(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        answers: list[Any] = spark.sparkContext.parallelize(values, len(values)).map(function).collect()
        return answers

    return run


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let Ctrl-C take effect after the block, if this is the main thread.

    A JVM ends when the standard input ends that its starter holds, but not before it has started; if the starter ends
    sooner it finds no file to write its port to, and stays for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        asked.append(number)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        # Spark, once started, has a handler of its own.
        if signal.getsignal(signal.SIGINT) is remember:
            signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


@contextmanager
def _output_to(files: SparkFiles, descriptors: Sequence[int]) -> Iterator[None]:
    """What the JVM that is started meanwhile has to say, in its log: it warns of modules that Spark itself asks for.

    Who reads our standard output to its end must not wait for a JVM that outlives us: then that one goes there too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    own = [(descriptor, os.dup(descriptor)) for descriptor in descriptors]
    with files.open_log() as file:
        for descriptor in descriptors:
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    except Exception as error:
        error.add_note(f"Spark's own words are in {files.fail()}")
        raise
    finally:
        for descriptor, copy in own:
            os.dup2(copy, descriptor)
            os.close(copy)


def _require_java() -> str:
    """What Java says of its version."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"Spark needs Java {JAVA_VERSION_MIN} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
    if home and not Path(home, "bin", "java").exists():
        raise ConfigError(
            f"JAVA_HOME is {home}, which has no bin/java: correct it, or unset it for the java on PATH. {advice}."
        )
    if java is None:
        raise ConfigError(f"no java was found on PATH, and JAVA_HOME is not set: {advice}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        shown = found[1] if found else "that does not say its version"
        raise ConfigError(f"{java} is Java {shown}: {advice}")
    return answer.stderr
