"""`legato ledger` and `legato story`: update, show and explain the ledger's tables; tell one message's life."""

import signal
import sys
import threading
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import typer

from legato.cli.commands import Commands
from legato.cli.confirmation import DryRunOption, YesOption, confirm
from legato.cli.endings import undone_if_ended
from legato.cli.options import (
    JsonOption,
    LedgerArgument,
    LedgersArgument,
    LedgerStoreOption,
    a_text,
    finite,
    ledger_of,
    one_or_groups,
)
from legato.cli.output import say, say_json, say_lines
from legato.errors import LegatoError
from legato.quoting import sentence
from legato.sizes import counted

app = Commands(
    name="ledger",
    help="The ledger of every message's life: ask it in SQL, and make tables of it for Spark and other tools.",
)

OutputFormat = Literal["table", "json", "csv", "parquet"]

TablesArgument = Annotated[Path, typer.Argument(metavar="TABLES", help="Directory of the tables.", show_default=False)]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="SPARK_MASTER",
        help="Where Spark runs: local[*] (default), spark://host:7077 ...",
        metavar="URL",
        show_default=False,
    ),
]


@app.command("run")
def run(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="[LEDGER]... TABLES",
            help="Directory of the ledger segments, which --store can name instead; directory of the tables. Several "
            "ledgers are those of groups: NAME=DIR, or a directory with broker_group=NAME for each.",
            show_default=False,
        ),
    ],
    store: LedgerStoreOption = None,
    once: Annotated[bool, typer.Option("--once", help="Process the segments that exist now, and exit.")] = False,
    every_s: Annotated[
        float,
        typer.Option(
            "--every", help="Without --once: seconds between two looks for new segments.", min=0.1, callback=finite
        ),
    ] = 10.0,
    segments: Annotated[int, typer.Option("--segments", help="Maximum number of segments in one batch.", min=1)] = 500,
    bronze: Annotated[
        bool, typer.Option("--bronze", help="Copy the facts too, so that segments may be deleted.")
    ] = False,
    table_format: Annotated[
        Literal["parquet", "delta"],
        typer.Option("--format", help="Format of the tables; delta needs the package deltalake."),
    ] = "parquet",
    master: MasterOption = None,
) -> None:
    """Bring the tables up to date with a ledger. Each segment is processed exactly once, whatever is killed.

    The exit code is 1 if segments are missing from the ledger.

    Examples: legato ledger run ./store/ledger ./tables --once; legato ledger run ./tables --store ./store
    """
    ledgers, tables = _ledgers_and_tables(places, store)
    from legato.spark.runtime.session import start_session
    from legato.spark.tables.group_tables import GroupTables
    from legato.spark.tables.ledger_tables import LedgerTables

    spark = start_session("legato-ledger", master=master, minutes=True)
    options: dict[str, Any] = {
        "segments_per_batch": segments,
        "keep_bronze": bronze,
        "table_format": table_format,
    }
    made: GroupTables | LedgerTables
    if isinstance(ledgers, dict):
        made = GroupTables(spark, ledgers, tables, **options)
    else:
        made = LedgerTables(spark, ledgers, tables, **options)
    if once:
        made.run_once()
    else:
        stop = threading.Event()

        def ask(_signal: int, _frame: FrameType | None) -> None:
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ask)
        made.run(every_s, stop.wait)
    portions = made.last_batch() + 1
    say(f"{portions} portion{'' if portions == 1 else 's'} in {tables}")
    if _complain(tables):
        raise typer.Exit(1)


def _ledgers_and_tables(places: list[str], store: Path | None) -> tuple[str | dict[str, Path], Path]:
    if (store is None and len(places) < 2) or (store is not None and len(places) != 1):
        given = "TABLES only" if store is not None else "LEDGER and TABLES"
        raise typer.BadParameter(
            f"give {given}, such as legato ledger run ./store/ledger ./tables, or legato ledger run ./tables "
            "--store ./store",
            param_hint="[LEDGER]... TABLES",
        )
    *ledgers, tables = places
    if any("://" in each for each in ledgers):
        if len(ledgers) > 1:
            raise typer.BadParameter("several ledgers are directories of this machine's", param_hint="LEDGER")
        return ledgers[0], Path(tables)
    found = one_or_groups(ledgers, store)
    return (found if isinstance(found, dict) else str(found)), Path(tables)


def _complain(tables: Path) -> bool:
    """Say so if the tables are not made of the whole log; whether that was so."""
    from legato.spark.tables.coverage import complaints_of, trimmings_of
    from legato.spark.tables.united import groups_in

    groups = groups_in(tables)
    complaints = [f"group {name!r}: {each}" for name, path in groups.items() for each in complaints_of(path)]
    complaints += [] if groups else complaints_of(tables)
    for name, path in (groups or {"": tables}).items():
        for trimming in trimmings_of(path):
            say(f"group {name!r}: {trimming}" if name else trimming, err=True, fg=typer.colors.YELLOW)
    for complaint in complaints:
        say(f"✗ {complaint}", err=True, fg=typer.colors.RED, bold=True)
    return bool(complaints)


@app.command("show")
def show(
    tables: TablesArgument,
    name: Annotated[str, typer.Argument(metavar="TABLE", help="Which of them.")] = "audit",
    rows: Annotated[int, typer.Option("--rows", help="Show at most N rows.", min=1)] = 50,
    master: MasterOption = None,
) -> None:
    """Show one of the tables for reports that `legato ledger run` makes.

    There are audit, latencies, failovers, causes, actions, duplicates and transactions.

    Example: legato ledger show ./tables failovers
    """
    from legato.spark.runtime.session import start_session
    from legato.spark.tables.gold_tables import read_table

    shown = read_table(start_session("legato-ledger", master=master), tables, name)
    _complain(tables)
    with redirect_stdout(StringIO()) as text:
        shown.show(rows, truncate=False)
    say_lines(text.getvalue().rstrip("\n"))


@app.command("query")
def query(
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="The question, or - to read it from standard input.", show_default=False),
    ] = None,
    ledgers: LedgersArgument = None,
    store: LedgerStoreOption = None,
    tables: Annotated[bool, typer.Option("--tables", help="List the tables and their columns instead.")] = False,
    output_format: Annotated[
        OutputFormat | None,
        typer.Option(
            "--format",
            help="Default: by the name of the output file, or else table. json is an object on each line.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the answer to this file.", metavar="FILE", show_default=False),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", help="Show at most N rows of a table; 0: all.", min=0)] = 100,
) -> None:
    """Ask a ledger in SQL, with DuckDB: no Java, no broker; or the tables that `legato ledger run` keeps.

    What a broker writes meanwhile is in the next answer. Install it with pip install 'legato[query]'.

    Examples: legato ledger query --tables ./store/ledger;
    legato ledger query "select destination, state, count(*) from messages group by all" ./store/ledger;
    legato ledger query "from messages" -o messages.parquet;
    legato ledger query "from silver where open" ./tables;
    legato ledger query "select broker_group, count(*) from messages group by all" orders=/srv/one rest=/srv/two
    """
    from legato.cli.query_output import say_tables, write_answer
    from legato.spark.query.ledger_query import LedgerQuery

    places = ledgers or []
    if tables:
        places, sql = [*([sql] if sql else []), *places], None
    elif sql is None:
        raise typer.BadParameter("give SQL, or --tables to see what there is to ask", param_hint="SQL")
    elif len(places) == 1 and Path(sql).is_dir() and not Path(places[0]).exists():
        places, sql = [sql], places[0]
    found = one_or_groups(places, store)
    if sql == "-":
        sql = sys.stdin.read()
    with undone_if_ended(), LedgerQuery(found) as opened:
        for place in found.values() if isinstance(found, dict) else [found]:
            _warn_of_gaps(place)
            _warn_of_tables(place)
        if sql is None:
            say_tables(opened.tables(), as_json=output_format == "json")
        else:
            write_answer(*opened.batches(sql), output_format, output, rows)


@app.command("compact")
def compact(
    ledger: LedgerArgument = None,
    store: LedgerStoreOption = None,
    rows: Annotated[int, typer.Option("--rows", help="At most N facts in a segment.", min=1)] = 250_000,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Make few large segments of many small ones. They say the same; broker, audits and queries may go on.

    Files go when no audit or query of this machine reads them. May be killed at any moment, and run again.

    Example: legato ledger compact ./store/ledger --dry-run
    """
    from legato.spark.ledger import compaction
    from legato.spark.ledger.segments import segments_of

    ledger = ledger_of(ledger, store)
    _warn_of_gaps(ledger)
    merges = compaction.merges_of(ledger, rows)
    count = sum(len(merge.sources) for merge in merges)
    if not merges:
        say(f"nothing to do: {counted(len(segments_of(ledger)), 'segment')} in {ledger}")
        return
    size = sum(merge.bytes for merge in merges)
    what = f"make {counted(len(merges), 'segment')} of {count:,} in {ledger} ({size:,} bytes)"
    if confirm(what, yes=yes, dry_run=dry_run):
        done = compaction.compact(ledger, rows, tell=lambda line: say(line, err=True))
        say(
            f"{counted(done.files_before, 'segment')} became {done.files_after:,}: {done.bytes_before:,} bytes before, "
            f"{done.bytes_after:,} now"
        )


@app.command("trim")
def trim(
    keep: Annotated[
        str, typer.Option("--keep", help="How much to keep: 30d, 12h, 90m, 2w.", metavar="TIME", show_default=False)
    ],
    ledger: LedgerArgument = None,
    store: LedgerStoreOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Delete facts that are older than --keep. What waited then stays, and an audit says from when on it can speak.

    Whole segments go, so a little more is kept. Bring tables up to date before (`legato ledger run`), and copy what you
    may need again: what is trimmed cannot be brought back. Broker, audits and queries may go on.

    Example: legato ledger trim ./store/ledger --keep 30d --dry-run
    """
    from datetime import UTC, datetime

    from legato.spark.ledger import trimming

    ledger = ledger_of(ledger, store)
    before_us = time.time_ns() // 1000 - round(seconds_of(keep) * 1e6)
    wanted = trimming.trim_of(ledger, before_us)
    if wanted is None:
        say(f"nothing to do: nothing in {ledger} but its last segment is older than {keep}")
        return
    until = datetime.fromtimestamp(wanted.us / 1e6, UTC)
    what = f"delete {wanted.rows:,} facts until {until:%Y-%m-%d %H:%M:%S} UTC from {ledger}"
    if wanted.first > 1:
        say(
            f"{ledger} begins with commit {wanted.first}, as that of a broker whose store is a copy of another's does. "
            f"If segments of the commits 1-{wanted.first - 1} were lost, bring them back before: afterwards they tell "
            "nothing.",
            err=True,
        )
    if confirm(f"{what} ({counted(len(wanted.sources), 'segment')}, {wanted.bytes:,} bytes)", yes=yes, dry_run=dry_run):
        trimming.trim(ledger, before_us, tell=lambda line: say(line, err=True))
        say(f"deleted {wanted.rows:,} facts until {until:%Y-%m-%d %H:%M:%S} UTC; what waited then is kept")


def seconds_of(text: str) -> float:
    """A length of time such as `30d`.

    Raises:
        typer.BadParameter: it is none.
    """
    from legato.server.config import units

    seconds = units.seconds_of(text)
    if seconds is None:
        raise typer.BadParameter(f"{text!r} is no length of time, such as 30d, 12h or 90m", param_hint="--keep")
    return seconds


def _warn_of_gaps(ledger: Path) -> None:
    from legato.spark.ledger.segments import why_incomplete

    if why := why_incomplete(ledger):
        say(f"Incomplete: {why}", err=True)


def _warn_of_tables(tables: Path) -> None:
    from legato.spark.query.made_tables import facts_not_kept, is_made
    from legato.spark.tables.coverage import missing_commits, trimmings_of

    if not is_made(tables):
        return
    if why := facts_not_kept(tables):
        say(f"Incomplete: {why}", err=True)
    for trimming in trimmings_of(tables):
        say(f"Incomplete: {trimming}", err=True)
    if missing := ", ".join(f"{span.first}-{span.last}" for span in missing_commits(tables)):
        say(
            f"Incomplete: {tables} was made without commits {missing}, whose segments were missing: bring them back "
            "from a copy, and let legato ledger run go on.",
            err=True,
        )


@app.command("sql")
def sql() -> None:
    """Print the SQL by which `legato ledger run` makes its tables, step by step.

    `{facts}` and the like are the tables that a step reads.
    """
    from textwrap import dedent

    from legato.spark.tables.gold import BRONZE, gold_steps

    for step in (BRONZE, *gold_steps()):
        say_lines(f"-- {step.name}: {step.sentence}\n{dedent(step.sql).strip()};\n")


def story(
    message: Annotated[
        str,
        typer.Argument(
            metavar="MESSAGE",
            help="A message id, or QUEUE/SEQ: a queue's name, or its number as an audit prints it.",
            show_default=False,
            callback=a_text,
        ),
    ],
    ledger: LedgerArgument = None,
    store: LedgerStoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell the story of one message: where it was stored, who received it, why it came back, where it went.

    It reads the ledger with pyarrow: pip install 'legato[ledger]'; no Spark, no Java.

    Examples: legato story ID:1f0c-7; legato story orders/12; legato story ID:1f0c-7 --store /var/lib/legato/store
    """
    import msgspec

    from legato.console.ledger_view import StorySearch, find_story
    from legato.spark.auditor.story_words import Story
    from legato.spark.ledger.segments import being_read, segments_of

    ledger = ledger_of(ledger, store)
    segments_of(ledger)
    _warn_of_gaps(ledger)
    search = StorySearch(message)
    with being_read(ledger):
        find_story(ledger, search)
    if search.error:
        raise LegatoError(search.error)
    told = Story(search.message_id, search.chapters)
    if as_json:
        say_json(msgspec.to_builtins(told))
        return
    for line in (told.message_id, *told.lines()):
        say(sentence(line))
