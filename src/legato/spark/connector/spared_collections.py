"""Garbage collection in the workers of Spark: what a worker imported is not looked through after each task.

PySpark collects all garbage whenever a task has ended. What it looks through then is mostly modules and their
functions, some hundred thousand objects, which takes longer than reading the rows of a task.
"""

from __future__ import annotations

import gc
import sys

from legato.spark.connector.mistakes import is_spark_worker

_LATE = "pandas"
"""PySpark imports it after a worker's first task, if that writes."""
_spared: set[bool] = set()


def spare_collections() -> bool:
    """Have collections of this process, if Spark started it, leave out what is there now; done twice at most.

    Returns:
        Whether that was done just now.
    """
    has_all = _LATE in sys.modules
    if has_all in _spared or not is_spark_worker():
        return False
    _spared.add(has_all)
    # Garbage would otherwise stay for good.
    gc.collect()
    gc.freeze()
    return True
