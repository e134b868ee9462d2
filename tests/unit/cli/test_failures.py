"""Mistakes of users become a sentence and an exit code; bugs of ours stay visible."""

import ast
import logging
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import legato
from legato.cli.failures import EXIT_FAILED, EXIT_USAGE, EXTRA_OF_MODULE, explain, hide_interrupted_calls, require
from legato.cli.fatal_log import wants_json
from legato.errors import ConfigError, JMSSecurityError, tree

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def test_every_error_has_something_to_say() -> None:
    """Of those that are loaded: which these are depends on the other tests of a worker."""
    for kind in tree():
        if kind.__init__ is Exception.__init__:
            explanation = explain(kind())
            assert explanation is not None
            assert len(explanation[0]) > 10


def test_a_setting_is_a_mistake_of_use_and_a_refusal_is_not() -> None:
    assert explain(ConfigError("listen what?")) == ("listen what?", EXIT_USAGE)
    assert explain(JMSSecurityError("wrong password")) == ("wrong password", EXIT_FAILED)


def test_a_configuration_that_is_nested_too_deep_asks_for_no_format_of_the_log(tmp_path: Path) -> None:
    file = tmp_path / "legato.toml"
    file.write_text(f"x = {'[' * 5000}{']' * 5000}\n")
    assert wants_json(file) is False


def test_a_missing_package_names_the_extra_that_brings_it() -> None:
    explanation = explain(ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"))
    assert explanation is not None
    assert "pip install 'legato[spark]'" in explanation[0]
    explanation = explain(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow"))
    assert explanation is not None
    assert "pip install 'legato[ledger]'" in explanation[0], "not half a gigabyte of Spark, to write Arrow"


def imported() -> Iterator[tuple[str, Path]]:
    """What Legato imports that neither Python nor Legato's own dependencies bring."""
    always = {re.split(r"[<>=;\[ ]", each)[0] for each in PROJECT["dependencies"]}
    brought = {name for name, owners in metadata.packages_distributions().items() if always & set(owners)}
    for path in Path(legato.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            for name in {each.partition(".")[0] for each in names} - sys.stdlib_module_names - brought - {"legato"}:
                yield name, path


@pytest.mark.slow
def test_every_package_of_an_extra_is_known_so_that_none_that_is_missing_is_a_stack_trace() -> None:
    """`fastapi` and `pytest` are imported only by who has them."""
    found = dict(imported())
    assert len(found) > 15
    unknown = {name: path for name, path in found.items() if name not in EXTRA_OF_MODULE}
    assert unknown.keys() <= {"fastapi", "pytest"}, unknown
    assert set(EXTRA_OF_MODULE.values()) <= PROJECT["optional-dependencies"].keys()


def test_a_command_that_needs_much_names_all_that_is_missing_and_one_extra() -> None:
    require("demo", "json", "sys")
    with pytest.raises(ImportError) as raised:
        require("demo", "json", "legatto", "legatissimo")
    assert explain(raised.value) == (
        "This needs legatto, legatissimo: pip install 'legato[demo]'.",
        EXIT_USAGE,
    )


def test_a_file_that_is_not_there_is_named() -> None:
    assert explain(FileNotFoundError(2, "No such file or directory", "tea.txt")) == (
        "tea.txt: No such file or directory.",
        EXIT_FAILED,
    )


@pytest.mark.parametrize(
    ("package", "program", "extra"),
    [
        ("faststream", "import legato.faststream", "faststream"),
        ("kombu", "import legato.kombu", "celery"),
        ("pyspark", "from legato.spark import start_session", "spark"),
        ("pyarrow", "from legato.spark import LedgerQuery", "query"),
    ],
)
def test_a_program_without_the_package_of_an_extra_is_told_which_to_install(
    package: str, program: str, extra: str
) -> None:
    """It was a bare ModuleNotFoundError."""
    blocked = f"import sys; sys.modules['{package}'] = None; {program}"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert last.endswith(f" needs {package}: pip install 'legato[{extra}]'.")


@pytest.mark.parametrize("program", ["import kombu, legato.kombu", "import celery, legato.kombu"])
def test_a_program_that_has_imported_kombu_gets_its_transport(program: str) -> None:
    """kombu replaces its module by one that has no `__spec__`: to ask whether it can be found is an error then."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("bug", [ValueError("x"), ModuleNotFoundError("No module named 'legatto'", name="legatto")])
def test_a_bug_is_not_explained_away(bug: Exception) -> None:
    assert explain(bug) is None


def test_what_py4j_logs_of_interrupted_calls_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    before = list(root.filters)
    try:
        hide_interrupted_calls()
        exec(compile("import logging; logging.error('lost')", "site-packages/py4j/java_gateway.py", "exec"))
        logging.error("found")
        assert caplog.messages == ["found"]
    finally:
        root.filters[:] = before
