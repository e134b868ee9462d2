"""`legato ledger query`: SQL over the segments of a ledger, with DuckDB. No Spark, no JVM."""

import csv
import json
import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from legato.cli.main import app
from legato.core.facts import Kind, LogRecord, MessageStored, QueueCreated
from legato.errors import ConfigError, StoreCorruptError
from legato.spark.ledger.segments import segments_of, write_segment
from legato.spark.query.ledger_query import LedgerQuery
from legato.spark.query.views import VIEWS
from legato.spark.summaries.message_summary_numpy import add_up, messages_of, read_segment
from tests.spark.history import history, news_history
from tests.support.flipped_bits import flipped_bits

COUNTS = ("stored_count", "consumed_count", "dead_count", "moved_count", "left_count", "returned_count")
SILVER = ("queue", "seq", *COUNTS, "presented_count", "first_epoch", "last_epoch", "attempt")


def ledger_of(records: list[LogRecord], directory: Path, cut: int = 5) -> Path:
    """A ledger of two segments, or more."""
    directory.mkdir(exist_ok=True)
    numbered = list(enumerate(records, 1))
    for begin in range(0, len(numbered), cut):
        write_segment(directory, numbered[begin : begin + cut])
    return directory


def asked(ledger: Path, sql: str) -> list[dict[str, object]]:
    with LedgerQuery(ledger) as query:
        rows: list[dict[str, object]] = query.table(sql).to_pylist()
        return rows


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["ledger", "query", *map(str, arguments)])


@pytest.mark.parametrize("records", [history(), news_history()], ids=["queues", "topics"])
def test_the_messages_are_those_of_silver(records: list[LogRecord], tmp_path: Path) -> None:
    ledger = ledger_of(records, tmp_path)
    pieces = [piece for segment in segments_of(ledger) for piece in read_segment(segment)]
    silver = messages_of(add_up(pieces)).select(list(SILVER)).to_pylist()
    assert asked(ledger, f"select {', '.join(SILVER)} from messages order by queue, seq") == silver


def test_a_message_has_its_names_and_what_became_of_it(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path)
    columns = "message_id, state, producer, client, waited_ms, worked_ms, priority"
    assert asked(ledger, f"select {columns} from messages where destination = 'orders' order by seq")[:1] == [
        {
            "message_id": "ID:1",
            "state": "consumed",
            "producer": "shop",
            "client": "w",
            "waited_ms": 5.0,
            "worked_ms": 5.0,
            "priority": 4,
        }
    ]
    states = asked(ledger, "select state, count(*) as n from messages group by state order by state")
    assert states == [{"state": "consumed", "n": 8}, {"state": "dead letter", "n": 1}, {"state": "waiting", "n": 2}]


def test_a_copy_of_a_publication_has_the_publication_s_id(tmp_path: Path) -> None:
    ledger = ledger_of(news_history(), tmp_path)
    published = asked(ledger, "select count(*) as n from facts where kind = 'MessagePublished' and stored > 0")
    ids = asked(
        ledger,
        "select count(distinct message_id) as n from messages join queues using (queue) where type = 'subscription'",
    )
    assert ids[0]["n"]
    assert published[0]["n"]
    assert not asked(
        ledger, "from messages join queues using (queue) where type = 'subscription' and message_id is null"
    )


def test_a_takeover_says_how_the_epoch_before_it_ended(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path)
    assert asked(ledger, "select epoch, former_broker, how, nobody_served_ms from takeovers where epoch > 1") == [
        {"epoch": 2, "former_broker": "a", "how": "crash", "nobody_served_ms": 200.0}
    ]


def test_every_view_can_be_asked_and_is_listed_with_its_columns(tmp_path: Path) -> None:
    ledger = ledger_of(news_history(), tmp_path)
    listed = run("--tables", ledger)
    assert listed.exit_code == 0
    with LedgerQuery(ledger) as query:
        for view in VIEWS:
            query.table(f"from {view.name}")
            assert f"{view.name}: " in listed.stdout
    tables = json.loads(run("--tables", ledger, "--format", "json").stdout)
    assert [table["name"] for table in tables] == ["facts", *(view.name for view in VIEWS)]
    assert tables[0]["columns"]["message_id"] == "varchar"


def test_no_column_needs_quotes(tmp_path: Path) -> None:
    """DuckDB takes `at` for a word of its own, and `user` for who asks."""
    with LedgerQuery(ledger_of(news_history(), tmp_path)) as query:
        for table, _, columns in query.tables():
            names = [name for name, _ in columns]
            quoted = ", ".join(f'"{name}"' for name in names)
            plain = query.table(f"select {', '.join(names)} from {table} where false")
            assert plain.schema == query.table(f"select {quoted} from {table} where false").schema
            assert query.table(f"select {', '.join(names)} from {table}").column_names == names


def test_a_segment_of_a_former_version_lacks_columns_and_is_read(tmp_path: Path) -> None:
    """Columns only get added."""
    ledger = ledger_of(history(), tmp_path, cut=100)
    (segment,) = segments_of(ledger)
    table = pq.read_table(segment)
    pq.write_table(table.select(table.column_names[: table.column_names.index("group_id")]), segment)
    assert len(asked(ledger, "from messages")) == 11
    assert asked(ledger, "from actions") == []


def test_a_ledger_that_grows_is_asked_as_of_the_moment_of_opening(tmp_path: Path) -> None:
    records = list(enumerate(history(), 1))
    write_segment(tmp_path, records[:6])
    with LedgerQuery(tmp_path) as query:
        before = query.table("select count(*) as n from facts").to_pylist()
        write_segment(tmp_path, records[6:])
        assert query.table("select count(*) as n from facts").to_pylist() == before
    assert asked(tmp_path, "select max(position) as last from facts") == [{"last": len(records)}]


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("selec", "syntax error"),
        ("from msgs", 'Did you mean "messages"?'),
        ("select queu from messages", "queu"),
        ("select cast(state as int) from messages", "Could not convert"),
    ],
)
def test_a_mistake_in_the_sql_is_a_sentence(sql: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)The query cannot be answered\..*legato ledger query --tables"
    ) as raised:
        asked(ledger_of(history(), tmp_path), sql)
    assert hint in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_segment_in_which_a_disk_has_changed_something_is_named(tmp_path: Path) -> None:
    """DuckDB says what it stumbled over, which may be anything; the checksums of the pages say where."""
    first, second = segments_of(ledger_of(history(), tmp_path))[:2]
    content = bytearray(second.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:footer] = bytes(footer - 4)
    second.write_bytes(content)
    with pytest.raises(StoreCorruptError, match="Bring it back from a copy") as raised:
        asked(tmp_path, "from facts")
    assert str(second) in str(raised.value)
    assert str(first) not in str(raised.value)


def test_a_directory_that_is_called_like_a_url_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file:x", "s3:y"):
        ledger = ledger_of(history(), tmp_path / name)
        assert asked(Path(name), "select count(*) as n from messages") == asked(
            ledger, "select count(*) as n from messages"
        )


@pytest.mark.slow
def test_no_flipped_bit_changes_an_answer(tmp_path: Path) -> None:
    sql = "select destination, message_id, state, producer, stored_at from messages order by all"
    segment = segments_of(ledger_of(history(), tmp_path, cut=100))[0]
    whole, expected = segment.read_bytes(), asked(tmp_path, sql)
    refused = []
    for changed in flipped_bits(whole, 60):
        segment.write_bytes(changed)
        try:
            assert asked(tmp_path, sql) == expected
        except StoreCorruptError as error:
            refused.append(str(error))
    assert refused
    assert all(str(segment) in sentence for sentence in refused)


def test_an_empty_question_has_an_empty_answer(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path)
    for sql in ("", " ", "create table t (a int)", "from messages where false"):
        answer = run(sql, ledger, "--format", "json")
        assert (answer.exit_code, answer.stdout) == (0, "")


def test_columns_of_one_name_hide_none_and_json_has_no_numbers_that_are_none(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path / "ledger")
    sql = "select 1 a, 2 a, 3 a_1, 4 a, 'nan'::double b, ['inf'::double, 1.5] c"
    answer = run(sql, ledger, "--format", "json")
    told = json.loads(answer.stdout, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert told == {"a": 1, "a_2": 2, "a_1": 3, "a_3": 4, "b": None, "c": [None, 1.5]}
    assert asked(ledger, "select 1 a, 2 a where true") == [{"a": 1, "a_1": 2}]
    assert run(sql, ledger, "-o", tmp_path / "a.parquet").exit_code == 0
    assert pq.read_table(tmp_path / "a.parquet").column_names == ["a", "a_2", "a_1", "a_3", "b", "c"]


def test_the_answer_is_written_as_the_file_is_called(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path / "ledger")
    sql = (
        "select message_id, stored_at, waited_ms, sent_txn is null as alone from messages where queue = 1 order by seq"
    )
    for name in ("a.parquet", "a.csv", "a.json"):
        answer = run(sql, ledger, "--output", tmp_path / name)
        assert answer.exit_code == 0, answer.output
    assert [row["message_id"] for row in pq.read_table(tmp_path / "a.parquet").to_pylist()][:2] == ["ID:1", "ID:2"]
    rows = list(csv.DictReader((tmp_path / "a.csv").open(newline="")))
    assert rows[0] == {
        "message_id": "ID:1",
        "stored_at": "1970-01-01T00:16:40.010000Z",
        "waited_ms": "5",
        "alone": "true",
    }
    lines = [json.loads(line) for line in (tmp_path / "a.json").read_text().splitlines()]
    assert lines[0] == {
        "message_id": "ID:1",
        "stored_at": "1970-01-01T00:16:40.010000Z",
        "waited_ms": 5.0,
        "alone": True,
    }
    assert len(lines) == len(rows) == 6
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.csv", "a.json", "a.parquet", "ledger"]


def test_an_answer_takes_the_place_of_no_device_and_no_link(tmp_path: Path) -> None:
    """As root, `--output /dev/stdout` took it from all that run on the machine."""
    ledger = ledger_of(history(), tmp_path / "ledger")
    pipe, link = tmp_path / "pipe", tmp_path / "link.json"
    os.mkfifo(pipe)
    link.symlink_to("real.json")
    answer = run("select 1 a", ledger, "--format", "json", "--output", pipe)
    assert f"{pipe} is a device or a pipe: name a file." in str(answer.exception)
    assert pipe.is_fifo()
    assert run("select 1 a", ledger, "--output", link).exit_code == 0
    assert link.is_symlink()
    assert (tmp_path / "real.json").read_text() == '{"a": 1}\n'


def test_the_difference_of_two_times_is_a_duration(tmp_path: Path) -> None:
    """DuckDB's is months, days and nanoseconds, three numbers in an answer; and Parquet has nothing of the kind."""
    ledger = ledger_of(history(), tmp_path / "ledger")
    sql = "select max(delivered_at - stored_at) as longest from messages where destination = 'orders'"
    assert asked(ledger, sql) == [{"longest": timedelta(milliseconds=295)}]
    assert "0:00:00.295000" in run(sql, ledger).stdout
    assert json.loads(run(sql, ledger, "--format", "json").stdout) == {"longest": "0:00:00.295000"}
    answer = tmp_path / "answer.parquet"
    assert run(sql, ledger, "--output", answer).exit_code == 0
    assert pq.read_table(answer).to_pylist() == asked(ledger, sql)


def test_durations_may_be_long_negative_or_missing(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path)
    sql = """
        select * from (values (1, interval '1 month 2 days 3 seconds'), (2, null), (3, interval '-1 microseconds'))
        as t(place, length) where place > $1 order by place
    """
    lengths = [timedelta(days=32, seconds=3), None, timedelta(microseconds=-1)]
    for first in range(3):
        found = [row["length"] for row in asked(ledger, sql.replace("$1", str(first)))]
        assert found == lengths[first:]
    assert asked(ledger, "select interval '1 day' as length where false") == []


def test_a_file_whose_name_says_no_format_is_refused(tmp_path: Path) -> None:
    """`-o messages.xlsx` was a table of text under that name."""
    ledger = ledger_of(history(), tmp_path / "ledger")
    answer = run("from messages", ledger, "--output", tmp_path / "messages.xlsx")
    assert isinstance(answer.exception, ConfigError)
    assert "name it .parquet, .csv, .json or .txt, or add --format" in str(answer.exception)
    assert run("from messages", ledger, "-o", tmp_path / "answer", "--format", "csv").exit_code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["answer", "ledger"]


def test_a_failed_query_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path / "ledger")
    (tmp_path / "a.csv").write_text("before")
    answer = run("select error('no') from messages", ledger, "-o", tmp_path / "a.csv")
    assert isinstance(answer.exception, ConfigError)
    assert (tmp_path / "a.csv").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_table_shows_as_many_rows_as_are_wanted_and_says_so(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path)
    answer = run("select seq from messages order by seq", ledger, "--rows", 3)
    assert len(answer.stdout.splitlines()) == 4
    assert "--rows 0 shows all, 3 are shown" in answer.stderr
    assert len(run("select seq from messages", ledger, "--rows", 0).stdout.splitlines()) == 12


def test_no_word_of_a_peer_is_obeyed_by_a_terminal(tmp_path: Path) -> None:
    name = "evil\x1b[31m\u202e\n[red]x"
    write_segment(
        tmp_path,
        [
            (1, LogRecord(1, 1, [QueueCreated(1, name, Kind.QUEUE)])),
            (2, LogRecord(1, 2, [MessageStored(1, 1, 10, "ID:\x1b]0;x\x07")])),
        ],
    )
    shown = run("select destination, message_id from messages", tmp_path).stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "evil\\x1b[31m\\u202e\\n[red]x" in shown
    exact = run("select destination from messages", tmp_path, "--format", "json").stdout
    assert json.loads(exact) == {"destination": name}
    assert exact.isascii()
    assert "\x1b" not in run('select 1 as "\x1b[31m"', tmp_path).stdout


def test_the_two_arguments_may_be_in_either_order_and_tables_need_no_sql(tmp_path: Path) -> None:
    ledger = ledger_of(history(), tmp_path)
    assert run(ledger, "select 1 as one").stdout.split() == ["one", "1"]
    assert "facts: " in run("--tables", ledger).stdout


def test_parquet_needs_a_file(tmp_path: Path) -> None:
    answer = run("from messages", ledger_of(history(), tmp_path), "--format", "parquet")
    assert "Parquet needs a file" in str(answer.exception)


def test_a_long_answer_is_not_held_in_memory(tmp_path: Path) -> None:
    with LedgerQuery(ledger_of(history(), tmp_path)) as query:
        schema, batches = query.batches("select * from range(1000000) t(n)")
        assert schema.names == ["n"]
        first = next(batches)
        assert isinstance(first, pa.RecordBatch)
        assert 0 < len(first) <= 10_000
