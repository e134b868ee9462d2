"""The ledger as pages need it: the takeovers there were, and the story of one message, read beside the brokers."""

from __future__ import annotations

import importlib.util
import re
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from legato.console.background import Background
from legato.errors import LegatoError
from legato.store.segment_locks import being_read
from legato.store.segment_names import spans

LOOK_AGAIN_S = 3.0
STORIES_MAX = 32
SEARCHES_MAX, SEARCHES_WAITING_MAX = 2, 8
"""Searches for a story at the same time, and those that wait for that; each reads the whole ledger."""
FILES_AT_ONCE = 64
HOPS_MAX = 20
WITHOUT_IDS = "What Spark's sink published has no ids there: name it by its place, QUEUE/SEQUENCE."


class Epoch(msgspec.Struct):
    """One epoch: who was the primary, from when until when; times in microseconds since 1970, 0 if not known."""

    epoch: int
    broker: str = ""
    began_us: int = 0
    serving_us: int = 0
    last_us: int = 0
    ended_us: int = 0
    cause: str = ""
    detection_us: int = 0
    ended: str = ""


class StorySearch:
    """The search for one message's story.

    Attributes:
        done, total: segments that were read, and that are to be.
        lines: the story, when it is found.
        error: why there is none.
    """

    def __init__(self, message: str) -> None:
        self.message = message
        self.done = self.total = 0
        self.chapters: list[Any] = []
        self.message_id = ""
        self.error = ""
        self.is_over = False


class Ledger:
    """Reads segments of one ledger in the background.

    Args:
        directory: where they are.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._epochs: dict[int, Epoch] = {}
        self._read: set[str] = set()
        self._reading: threading.Thread | None = None
        self._looked_s = -LOOK_AGAIN_S
        self._stories: dict[str, StorySearch] = {}
        self._searching = Background("search a story", SEARCHES_MAX, SEARCHES_WAITING_MAX)
        self.error = ""
        # What reads it takes a second to load: before the first page wants it.
        threading.Thread(target=self.prepare, name="load pyarrow", daemon=True).start()
        self.left = 0
        """Segments that are still to be read for the time line."""

    def prepare(self) -> None:
        """Load what reads segments, and look at the takeovers."""
        if not self.obstacle():
            self.epochs(0.0)

    def obstacle(self) -> str:
        """Why it cannot be read; empty if it can."""
        if importlib.util.find_spec("pyarrow") is None:
            return "The ledger is read with pyarrow, which is not installed: pip install 'legato[ledger]'."
        try:
            there = any(True for _ in spans(self.directory))
        except OSError as error:
            return f"The ledger in {self.directory} cannot be read: {error.strerror}."
        return "" if there else f"There are no segments of a ledger in {self.directory} yet."

    # -- takeovers -----------------------------------------------------------------------------------------------

    def epochs(self, wait_s: float = 0.5) -> list[Epoch]:
        """The epochs that are known so far, the first one first; further segments are read in the background."""
        with self._lock:
            thread = self._reading
            if thread is None and time.monotonic() - self._looked_s > LOOK_AGAIN_S:
                thread = self._reading = threading.Thread(target=self._look, name="read the ledger", daemon=True)
                thread.start()
        if thread is not None:
            thread.join(wait_s)
        with self._lock:
            return [self._epochs[number] for number in sorted(self._epochs)]

    def _look(self) -> None:
        try:
            # What a compaction has put together must not be removed between the listing and the reading.
            with being_read(self.directory):
                names = sorted(span.file_name for span in spans(self.directory) if span.file_name not in self._read)
                self.left = len(names)
                for name in names:
                    self._take(self.directory / name)
                    self._read.add(name)
                    self.left -= 1
            self.error = ""
        except (OSError, ValueError, LegatoError) as error:
            self.error = f"The ledger cannot be read: {error}"
        finally:
            with self._lock:
                self._looked_s, self._reading = time.monotonic(), None

    def _take(self, path: Path) -> None:
        kinds = ("EpochBegan", "ServingBegan", "EpochEnded")
        columns = ["tag", "kind", "epoch", "time_us", "name", "at_us", "cause", "detection_us"]
        with self._lock:
            for row in rows_of([path], columns, kinds=kinds):
                known = self._epochs.setdefault(row["epoch"], Epoch(row["epoch"]))
                match row["kind"]:
                    case "EpochBegan":
                        known.broker, known.began_us = row["name"] or "", row["time_us"]
                    case "ServingBegan":
                        known.serving_us = row["at_us"] or row["time_us"]
                        known.cause, known.detection_us = row["cause"] or "", row["detection_us"] or 0
                    case "EpochEnded":
                        known.ended_us, known.ended = row["time_us"], row["cause"] or ""
            for epoch, last_us in last_times(path).items():
                known = self._epochs.setdefault(epoch, Epoch(epoch))
                known.last_us = max(known.last_us, last_us)

    # -- stories -------------------------------------------------------------------------------------------------

    def story(self, message: str, wait_s: float = 0.5) -> StorySearch:
        """The search for a message's story; it goes on in the background if it takes longer."""
        begun = None
        with self._lock:
            search = self._stories.get(message)
            if search is None:
                search = StorySearch(message)
                begun = self._searching.begin(partial(find_story, self.directory, search))
                if begun is None:
                    search.error = "Too many stories are being searched. Load the page again in a while."
                    search.is_over = True
                    return search
                self._stories[message] = search
                over = [name for name, each in self._stories.items() if each.is_over]
                for name in over[: max(0, len(self._stories) - STORIES_MAX)]:
                    del self._stories[name]
        if begun is not None:
            begun.wait(wait_s)
        return search

    def forget_story(self, message: str) -> None:
        """The next one who asks has it searched again: more may have happened."""
        with self._lock:
            search = self._stories.get(message)
            if search is not None and search.is_over:
                del self._stories[message]


def find_story(directory: Path, search: StorySearch) -> None:
    """Search a ledger for a message's story; what comes of it is in `search`."""
    from legato.spark.auditor import story_words as words
    from legato.spark.ledger.segments import refuse_damaged

    paths: list[Path] = []
    reading = ExitStack()
    try:
        reading.enter_context(being_read(directory))
        paths = [directory / span.file_name for span in sorted(spans(directory))]
        search.total = len(paths)
        found: dict[Any, dict[str, Any]] = {}
        places = words.named_by_numbers(search.message) or _named_by_queue(search, paths)
        if not places:
            found = {words.key_of(row): row for row in _scan(search, paths, message_id=search.message)}
            places = {place for row in found.values() for place in words.places_of(row)}
        known: set[words.Place] = set()
        for _ in range(HOPS_MAX):
            if places <= known:
                break
            known |= places
            found |= {words.key_of(row): row for row in _scan(search, paths, places=sorted(known))}
            places = {place for row in found.values() for place in words.places_of(row)}
        if found:
            wanted = words.numbers_in(found.values())
            names = words.Names(_scan(search, paths, named=wanted))
            ids = [row["message_id"] for row in found.values() if row["message_id"]]
            search.message_id = ids[0] if ids else search.message
            told = [row for row in found.values() if row["kind"] in words.TOLD]
            search.chapters = words.chapters(told, names)
        else:
            search.error = f"The ledger knows no message {search.message}."
            if not re.search(r"/\d+$", search.message):
                search.error += f" {WITHOUT_IDS}"
    except (OSError, ValueError, LegatoError) as error:
        search.error = f"The ledger cannot be read: {error}"
        try:
            # Arrow does not say in which file.
            refuse_damaged(paths)
        except LegatoError as named:
            search.error = str(named)
    finally:
        reading.close()
        search.is_over = True


def _named_by_queue(search: StorySearch, paths: Sequence[Path]) -> set[tuple[int, int]]:
    """The place that `NAME/SEQ` names, in the last queue of that name; none if there was none."""
    from legato.spark.auditor.story_words import is_number

    queue, slash, seq = search.message.rpartition("/")
    if not (queue and slash and is_number(seq)):
        return set()
    created = _scan(search, paths, queue=queue)
    return {(max(row["queue"] for row in created), int(seq))} if created else set()


def _scan(
    search: StorySearch,
    paths: Sequence[Path],
    *,
    message_id: str = "",
    queue: str = "",
    places: Sequence[tuple[int, int]] = (),
    named: dict[str, set[int]] | None = None,
) -> list[dict[str, Any]]:
    from legato.spark.auditor.story_words import KNOWN_BY, LIVES

    search.done = 0
    found: list[dict[str, Any]] = []
    for begin in range(0, len(paths), FILES_AT_ONCE):
        batch = paths[begin : begin + FILES_AT_ONCE]
        if message_id:
            found += rows_of(batch, None, condition=_is("message_id", [message_id]))
        elif queue:
            found += rows_of(batch, None, kinds=("QueueCreated",), condition=_is("name", [queue]))
        elif places:
            found += rows_of(batch, None, kinds=LIVES, condition=_at(places))
        else:
            for kind, column in KNOWN_BY.items():
                if named and named.get(column):
                    found += rows_of(batch, None, kinds=(kind,), condition=_is(column, sorted(named[column])))
        search.done = begin + len(batch)
    return found


def _is(column: str, values: Sequence[Any]) -> Any:
    import pyarrow.compute as pc

    return pc.field(column).isin(list(values))


def _at(places: Sequence[tuple[int, int]]) -> Any:
    """Facts about the messages at these places, about their copies, and about where they came from."""
    import pyarrow.compute as pc

    condition = None
    for queue, seq in places:
        for of_queue, of_seq in (("queue", "seq"), ("topic", "seq"), ("origin_queue", "origin_seq")):
            here = (pc.field(of_queue) == queue) & (pc.field(of_seq) == seq)
            condition = here if condition is None else condition | here
    return condition


def rows_of(
    paths: Sequence[Path], columns: list[str] | None, *, kinds: Sequence[str] = (), condition: Any = None
) -> list[dict[str, Any]]:
    """Facts of some segments that meet a condition; of other segments and columns as little as can be is read.

    Args:
        columns: which; None for all.
        kinds: of facts; empty for all.
        condition: an expression of Arrow's; None: all.
    """
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from legato.spark.ledger.fact_schema import SCHEMA, TAGS

    wanted = condition
    if kinds:
        # Segments of former versions have no tag: their facts are told apart below.
        of_kinds = pc.field("tag").isin([TAGS[kind] for kind in kinds]) | pc.field("tag").is_null()
        wanted = of_kinds if wanted is None else of_kinds & wanted
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=options)
    dataset = ds.dataset([str(path) for path in paths], schema=SCHEMA, format=form)
    rows: list[dict[str, Any]] = dataset.to_table(columns=columns, filter=wanted).to_pylist()
    return [row for row in rows if not kinds or row["kind"] in kinds]


def last_times(path: Path) -> dict[int, int]:
    """For each epoch in a segment the last time in it; mostly from what the file says of its row groups."""
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    names = {metadata.schema.column(index).name: index for index in range(metadata.num_columns)}
    found: dict[int, int] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        epochs = group.column(names["epoch"]).statistics
        times = group.column(names["time_us"]).statistics
        if epochs is None or times is None or not epochs.has_min_max or not times.has_min_max:
            continue
        if epochs.min == epochs.max:
            found[epochs.max] = max(found.get(epochs.max, 0), times.max)
            continue
        both = pq.ParquetFile(path).read_row_group(number, columns=["epoch", "time_us"])
        for each in both.group_by("epoch").aggregate([("time_us", "max")]).to_pylist():
            found[each["epoch"]] = max(found.get(each["epoch"], 0), each["time_us_max"])
    return found
