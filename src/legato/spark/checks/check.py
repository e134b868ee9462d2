"""What a check of the ledger is: suspects, told by SQL, and a pure function that finds offenders among them.

Nothing offends that is no suspect. So all checks of a frame are screened in one look at it, in which suspects are
counted, and only a check that has some is asked at all.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from legato.spark.ledger.fact_filter import FactFilter

Frames = Mapping[str, DataFrame]


class Says(NamedTuple):
    """What a check says: that it `holds`, or does not: of `one` row that offends, or of `many`, which are `{count}`.

    `each` is said of every row that is shown. In braces are columns, of which `auditor/descriptions.py` makes words.
    `remedy` is what to do about it.
    """

    holds: str
    one: str
    many: str
    each: str
    remedy: str = ""


class Check(NamedTuple):
    """A question to the ledger.

    `frame` names the frame in which the suspects are, and `suspects` says which rows of it these are. `find` is given
    the suspects and the frames that `others` names, in order, and answers with the offending rows: whole rows that a
    person can follow up.
    """

    name: str
    says: Says
    frame: str
    suspects: str | FactFilter
    find: Callable[..., DataFrame]
    others: tuple[str, ...] = ()


def all_of_them(*columns: str) -> Callable[[DataFrame], DataFrame]:
    """For `find`: each suspect offends, and is shown by these columns."""

    def find(suspects: DataFrame) -> DataFrame:
        return suspects.selectExpr(*columns)

    return find


def find_offenders(check: Check, frames: Frames) -> DataFrame:
    """The rows of which `check` says that they must not be."""
    return check.find(frames[check.frame].where(str(check.suspects)), *(frames[name] for name in check.others))


def count_suspects(frames: Frames, asked: Iterable[tuple[str, str, str]]) -> dict[str, int]:
    """Counts, given as name, frame and SQL: each frame is looked at once, and all of a session in one job."""
    of_frame: dict[str, list[tuple[str, str]]] = {}
    for name, frame, count in asked:
        of_frame.setdefault(frame, []).append((name, count))
    of_session: dict[SparkSession, list[DataFrame]] = {}
    for frame, counts in of_frame.items():
        look = frames[frame].agg(
            F.map_from_arrays(
                F.array(*(F.lit(name) for name, _ in counts)),
                F.array(*(F.coalesce(F.expr(count), F.lit(0)) for _, count in counts)),
            ).alias("counts")
        )
        of_session.setdefault(look.sparkSession, []).append(look)
    with ThreadPoolExecutor(len(of_session)) as pool:
        answers = list(pool.map(lambda looks: reduce(DataFrame.unionAll, looks).collect(), of_session.values()))
    return {name: count for rows in answers for row in rows for name, count in row["counts"].items()}
