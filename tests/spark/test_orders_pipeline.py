"""The script of docs/howto/pipeline.md, as a newcomer copies it: it runs, and goes on where it was."""

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.server import server

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_whole_script() -> None:
    script = (ROOT / "examples" / "orders_pipeline.py").read_text()
    assert f"```py\n{script}```\n" in (ROOT / "docs" / "howto" / "pipeline.md").read_text()


@pytest.mark.slow
def test_the_script_counts_each_order_once_however_often_it_is_run(spark: SparkSession, tmp_path: Path) -> None:
    with server(tmp_path / "store") as broker:
        main = runpy.run_path(str(ROOT / "examples" / "orders_pipeline.py"))["main"]
        url = f"amqp://127.0.0.1:{broker.port}"
        assert main(url, tmp_path / "out", 1000) == (1000, 50)
        assert main(url, tmp_path / "out", 1000) == (2000, 100)
