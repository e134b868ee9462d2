"""`legato.spark`: the names that users import, and nothing else that docs and examples need."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import legato.spark

ROOT = Path(__file__).parents[3]
DOCUMENTED_MODULES = {"legato.spark", "legato.spark.lag"}


@pytest.mark.parametrize("name", legato.spark.__all__)
def test_each_public_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(legato.spark, name)
    assert isinstance(value, str | legato.spark.Step) or value.__doc__
    assert name in dir(legato.spark)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = legato.spark.nothing_like_it  # type: ignore[attr-defined, unused-ignore]


def test_the_reference_names_each_public_name() -> None:
    page = (ROOT / "docs" / "reference" / "spark.md").read_text()
    assert [name for name in legato.spark.__all__ if not re.search(rf"`{name}\b", page)] == []


def test_docs_and_examples_import_the_public_surface_only() -> None:
    texts = [path.read_text() for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]]
    imported = {module for text in texts for module in re.findall(r"(?:from|import) (legato\.spark[\w.]*)", text)}
    assert imported <= DOCUMENTED_MODULES


def test_importing_it_needs_no_spark() -> None:
    """The process beside a broker that exports the ledger imports the package, and must be small."""
    code = "import sys, legato.spark, legato.spark.exporter; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_audit_stays_a_function_whatever_else_is_imported() -> None:
    """A package of the same name would take its place."""
    import legato.spark.auditor.audit
    import legato.spark.job

    assert callable(legato.spark.audit)
    assert legato.spark.audit is legato.spark.auditor.audit.audit
