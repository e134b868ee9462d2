"""Count of a drill's results with pyarrow and no code of Legato: a second opinion on drill and audit.

    python tools/count_independently.py drill-out

Reads the Parquet segments of the ledger and the records of the clients. Says what it counted, and exits with 1 if
anything was lost, done twice, out of order or falsely told, or died and was not to. It imports nothing of Legato on
purpose, and decides from the columns of the segments (docs/reference/facts.md) and the words of the records alone.
"""

import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

LANE_BITS = 56
COLUMNS = (
    *("position", "ordinal", "epoch", "kind", "queue", "seq", "message_id", "producer", "number", "txn", "cause"),
    *("origin_queue", "name", "queue_kind", "topic", "to_queue", "dead_queue", "dead_seq", "to_seq", "temporary"),
    "stored",
)
DEAD_LETTERS = "DLQ."
PICKY, DIES_EVERY = ".picky", 40
"""Of the queue whose name ends so, every so many messages of a producer are to become dead letters, and no others."""
STREAMED = "-out"
"""What the name of the queue that a Spark job writes into has behind that of the one that it reads."""
EXAMPLES_MAX = 3


class Count:
    """What was counted, and what is wrong."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.wrong: list[str] = []

    def say(self, text: str) -> None:
        """A fact."""
        self.lines.append(text)

    def zero(self, what: str, found: list[Any]) -> None:
        """Something that must not be."""
        self.lines.append(f"{len(found):>9,} {what}")
        if found:
            self.wrong.append(f"{len(found):,} {what}: {', '.join(map(str, found[:EXAMPLES_MAX]))}")


def read_segments(ledger: Path) -> list[dict[str, Any]]:
    """All rows of all segments, in the order of the log."""
    rows: list[dict[str, Any]] = []
    for file in sorted(ledger.rglob("facts-*.parquet")):
        table = pq.read_table(file, columns=list(COLUMNS))
        table = table.set_column(table.schema.get_field_index("kind"), "kind", pc.cast(table["kind"], "string"))
        rows += table.to_pylist()
    rows.sort(key=lambda row: (row["position"], -1 if row["ordinal"] is None else row["ordinal"]))
    return rows


def unnumbered_flows(directory: Path) -> set[str]:
    """Names of queues whose producers do not number their messages, so that after a lost connection they may resend."""
    heads = [json.loads(file.open(errors="replace").readline() or "{}") for file in sorted(directory.glob("*.records"))]
    return {head["flow"] for head in heads if head.get("type") == "Producing" and not head.get("numbered", True)}


def count_ledger(rows: list[dict[str, Any]], unnumbered: set[str], count: Count) -> Counter[str]:
    """The log by itself; returns how many messages wait in each queue that is there in the end, by its name."""
    positions: dict[int, int] = {}
    names: dict[int, str] = {}
    deleted: set[int] = set()
    stored: Counter[tuple[int, int]] = Counter()
    left: Counter[tuple[int, int]] = Counter()
    moved: list[tuple[tuple[int, int], tuple[int, int]]] = []
    numbers: Counter[tuple[int, int]] = Counter()
    order: defaultdict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
    originals: Counter[str] = Counter()
    resent: Counter[str] = Counter()
    batches: Counter[tuple[int, int]] = Counter()
    told = in_runs = 0
    dropped: list[tuple[int, int]] = []
    ended: defaultdict[bytes, set[str]] = defaultdict(set)
    for row in rows:
        position, epoch, kind = int(row["position"]), int(row["epoch"]), row["kind"]
        positions.setdefault(position, epoch)
        queue, seq, producer, number = row["queue"], row["seq"], row["producer"], row["number"]
        place = (queue, seq)
        if kind == "QueueCreated":
            names[queue] = row["name"]
        elif kind == "QueueDeleted":
            deleted.add(queue)
        elif kind == "MessageStored":
            stored[place] += 1
        elif kind in ("MessageConsumed", "MessageDeadLettered", "MessageMoved"):
            left[place] += 1
            to = (
                (row["dead_queue"], row["dead_seq"])
                if kind == "MessageDeadLettered"
                else (row["to_queue"], row["to_seq"])
            )
            if to[0]:
                moved.append((place, to))
        elif kind == "BatchPublished":
            batches[producer, number] += 1
            told += row["stored"]
        elif kind == "RunStored":
            in_runs += row["stored"]
        elif kind == "DuplicateDropped":
            dropped.append((producer, number))
        elif kind == "TransactionCommitted":
            ended[row["txn"]].add("committed")
        elif kind == "TransactionRolledBack":
            ended[row["txn"]].add("rolled back")
        is_copy = kind == "MessageStored" and row["topic"] is not None
        if kind in ("MessageStored", "MessagePublished") and row["origin_queue"] is None and not is_copy:
            (resent if names.get(queue) in unnumbered else originals)[row["message_id"] or ""] += 1
            if producer:
                numbers[producer, number] += 1
                order[producer, queue, int(seq) >> LANE_BITS].append((seq, number))
    places = sorted(positions)
    epochs = [positions[place] for place in places]
    count.say(f"{len(rows):>9,} rows, {len(places):,} positions, {len(set(epochs))} epochs, {len(stored):,} places")
    # The first commit of a store is in its ledger: what is missing before the first segment counts as well.
    count.zero("positions missing", [p for p in range(1, places[-1] + 1) if p not in positions] if places else [])
    count.zero(
        "positions after which an older epoch wrote",
        [p for p, a, b in zip(places, epochs, epochs[1:], strict=False) if b < a],
    )
    count.zero("places given twice", [place for place, times in stored.items() if times > 1])
    count.zero("messages that left twice", [place for place, times in left.items() if times > 1])
    count.zero("messages that left and were never stored", [place for place in left if place not in stored])
    topics = {number for number, name in names.items() if name.startswith("topic:")}
    arrived = stored.keys() | {(row["queue"], row["seq"]) for row in rows if row["kind"] == "MessagePublished"}
    count.zero(
        "messages moved to a place that has none", [m for m in moved if m[1] not in arrived and m[1][0] not in topics]
    )
    count.zero("messages stored twice under one number", [key for key, times in numbers.items() if times > 1])
    count.zero("messages stored twice under one id", [key for key, times in originals.items() if key and times > 1])
    if again := sum(times - 1 for times in resent.values()):
        count.say(f"{again:>9,} messages stored again that clients without numbers resent: {', '.join(unnumbered)}")
    known = numbers.keys() | batches.keys()
    count.zero("resends dropped of a number that is not stored", [key for key in dropped if key not in known])
    count.zero("batches of sinks published twice", [key for key, times in batches.items() if times > 1])
    count.zero("transactions both committed and rolled back", [txn.hex() for txn, how in ended.items() if len(how) > 1])
    disorder: list[Any] = []
    for key, pairs in order.items():
        pairs.sort()
        disorder += [(key, a, b) for (_, a), (_, b) in pairwise(pairs) if b <= a]
    count.zero("messages of a producer out of order", disorder)
    count.say(
        f"{sum(numbers.values()):>9,} numbered messages, {len(dropped):,} resends dropped, {len(ended):,} transactions"
    )
    waiting = Counter(names.get(q, str(q)) for q, s in stored if (q, s) not in left and q not in deleted)
    if batches:
        count.say(f"{len(batches):>9,} batches of sinks, of {told:,} messages; {in_runs:,} of these are in runs")
    count_streams(names, stored, count)
    return waiting


def count_streams(names: dict[int, str], stored: Counter[tuple[int, int]], count: Count) -> None:
    """Whether of each queue that a Spark job read, as many messages came out as were stored in it."""
    by_name = Counter(names.get(queue, "") for queue, _ in stored)
    pairs = [(name, f"{name}{STREAMED}") for name in by_name if f"{name}{STREAMED}" in set(names.values())]
    for source, sink in pairs:
        count.say(f"{by_name[source]:>9,} messages in {source}, {by_name[sink]:,} in {sink}")
    count.zero("streams with more or less out than in", [(a, b) for a, b in pairs if by_name[a] != by_name[b]])


def is_to_die(flow: str, message: tuple[str, int]) -> bool:
    """Whether a message is to become a dead letter."""
    return flow.endswith(PICKY) and message[1] % DIES_EVERY == 0


def count_deaths(told: dict[str, dict[str, set[tuple[str, int]]]], waiting: Counter[str], count: Count) -> None:
    """Whether more dead letters wait than messages were sent that are to be such."""
    died = []
    for queue, letters in sorted(waiting.items()):
        if queue.startswith(DEAD_LETTERS):
            flow = queue.removeprefix(DEAD_LETTERS)
            sent = set().union(*told[flow].values()) if flow in told else set()
            planned = sum(is_to_die(flow, message) for message in sent)
            died += [(queue, letters - planned)] if letters > planned else []
    count.zero("queues with dead letters that were not to die", died)


def count_records(directory: Path, waiting: Counter[str], count: Count) -> None:
    """What the clients were told, by subscription."""
    told: dict[str, dict[str, set[tuple[str, int]]]] = defaultdict(lambda: defaultdict(set))
    numbered: dict[str, bool] = {}
    seen: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    unflagged: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    done: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    perhaps: dict[str, set[tuple[str, int]]] = defaultdict(set)
    along: Counter[str] = Counter()
    heads: dict[str, dict[str, Any]] = {}
    for file in sorted(directory.glob("*.records")):
        text = file.read_text(errors="replace")
        head_line, *lines = text[: text.rfind("\n") + 1].splitlines()
        head = json.loads(head_line)
        trying: set[tuple[str, int]] = set()
        for line in lines:
            if line.endswith("cut off"):
                continue
            words = line.split(" ")
            if head["type"] == "Producing":
                numbered[head["producer"]] = head.get("numbered", True)
                if len(words) == 2:
                    told[head["flow"]][words[0]].add((head["producer"], int(words[1])))
                continue
            name = head["subscription"]
            heads[name] = head
            if words[0] == "again":
                perhaps[name] |= trying
                trying.clear()
                along[name] += bool(head.get("takes_along"))
                continue
            message = (words[1], int(words[2]))
            if words[0] == "seen":
                seen[name][message] += 1
                unflagged[name][message] += words[3] == "0"
            elif words[0] == "trying":
                trying.add(message)
            else:
                trying.discard(message)
                if words[0] == "done":
                    done[name][message] += 1
                elif words[0] == "maybe":
                    perhaps[name].add(message)
        if head["type"] == "Consuming":
            perhaps[head["subscription"]] |= trying
    lost: list[Any] = []
    twice: list[Any] = []
    flags: list[Any] = []
    falsely: list[Any] = []
    confirmed = missing = 0
    for name, head in sorted(heads.items()):
        sent = told[str(head["flow"])]
        arrived = (done[name].keys() | perhaps[name]) if head.get("told", True) else set(seen[name])
        stored = sent["stored"]
        confirmed += len(stored)
        gone = stored - arrived
        dying = {message for message in gone if is_to_die(head["flow"], message)}
        missing += len(gone)
        # What was reissued, or has not come to its last delivery, waits in the queue itself.
        dead = waiting[f"{DEAD_LETTERS}{head['flow']}"] + (waiting[name] if dying else 0)
        if len(gone - dying) > along[name] or len(dying) > dead:
            lost += [(name, message) for message in sorted(gone)]
        exact = {message for message in seen[name] if numbered.get(message[0], True)}
        twice += [(name, message) for message in exact if done[name][message] > 1]
        flags += [(name, message) for message in exact if unflagged[name][message] > 1]
        known = stored | sent["refused"] | sent["unsure"] | sent["sending"]
        falsely += [(name, m) for m in seen[name] if m not in known or (m in sent["refused"] and m not in stored)]
    count.say(
        f"{confirmed:>9,} confirmed messages, by subscription; {missing:,} not arrived: dead letters, or taken along"
    )
    count_deaths(told, waiting, count)
    count.zero("messages lost", lost)
    count.zero("messages done twice", twice)
    count.zero("messages presented twice without the flag", flags)
    count.zero("messages that came though their producer was told they are not stored", falsely)


def main(directory: Path) -> int:
    """Count, say, and judge."""
    count = Count()
    rows = read_segments(directory)
    waiting: Counter[str] = Counter()
    if rows:
        waiting = count_ledger(rows, unnumbered_flows(directory / "records"), count)
        count.say(f"{sum(waiting.values()):>9,} messages wait: {dict(waiting)}")
    else:
        count.wrong.append(f"there are no segments of a ledger in {directory}")
    count_records(directory / "records", waiting, count)
    print("\n".join(count.lines))
    print("\n".join(f"WRONG: {text}" for text in count.wrong) or "agrees: nothing lost, twice, out of order or false")
    return 1 if count.wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
