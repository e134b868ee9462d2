"""A claim on an engine: one append in flight, repeated with the same bytes until its outcome is known."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event, Lock

from legato.clock import elapsed_s
from legato.errors import FencedError, LegatoError, LogDamagedError, LogError, LogFormatError, LogUnavailableError
from legato.replication.engine import AppendRefused, Engine
from legato.replication.envelopes import CLAIM_BYTES, seal, unseal
from legato.replication.gapless import CHECK_PAUSE_S, CHECKS, altered, missing
from legato.replication.log import Appended, Position
from legato.replication.patience import Patience

RECORD_BYTES_MAX = 512 << 20
"""Whoever reads a record has it in memory, and nobody else appends while it is on its way."""
FIRST_ANSWER_S = 0.2
"""The first attempt of an append waits this long for its answer, each further one twice as long as the one before. A
moved leader of JetStream drops the append that is in flight, and a primary whose lease ends stops serving; an append
that was stored all the same is found by its bytes."""


class ChainedClaim:
    """The right to append, until somebody else claims the log.

    Args:
        engine: the log's servers.
        key: the group's, of `envelopes.group_key`.
        last: the sequence of the last message, void or not.
        tip: the position behind the last valid message.
        left: set when the log is closed.
    """

    def __init__(self, engine: Engine, key: bytes, last: int, tip: Position, left: Event) -> None:
        self._engine = engine
        self._key = key
        self._last = last
        self._digest = tip.digest
        self._id = os.urandom(CLAIM_BYTES)
        self._closed = Event()
        self._left = left
        self._one_at_a_time = Lock()
        self._ended: LegatoError | None = None
        self._began = Appended(tip, 0.0)
        self._position = tip
        self._held_s = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="legato-append")

    @property
    def began(self) -> Appended:
        """As `Claim.began`."""
        return self._began

    @property
    def position(self) -> Position:
        """As `Claim.position`."""
        return self._position

    @property
    def held_s(self) -> float:
        """As `Claim.held_s`."""
        return self._held_s

    def begin(self, record: bytes, timeout_s: float) -> None:
        """Append the claim's first record.

        Raises:
            FencedError: something was appended meanwhile.
            LogUnavailableError: the time is over; whether it is stored is not known.
        """
        try:
            with self._one_at_a_time:
                self._began = self._append(record, Patience(timeout_s, self._closed, self._left))
        except BaseException:
            self.close()
            raise

    def append(self, record: bytes) -> Appended:
        """As `Claim.append`."""
        self._take_turn()
        return self._append_in_turn(record)

    def submit(self, record: bytes) -> Future[Appended]:
        """As `Claim.submit`."""
        self._take_turn()
        try:
            return self._thread.submit(self._append_in_turn, record)
        except RuntimeError:  # the claim was closed, and its thread with it
            self._one_at_a_time.release()
            failed: Future[Appended] = Future()
            failed.set_exception(LogUnavailableError("the claim on the log is closed"))
            return failed

    def close(self) -> None:
        """As `Claim.close`."""
        self._closed.set()
        self._thread.shutdown(wait=False)

    def _take_turn(self) -> None:
        if not self._one_at_a_time.acquire(blocking=False):
            raise LogError("an append of this claim is in flight: wait for it before the next")

    def _append_in_turn(self, record: bytes) -> Appended:
        try:
            return self._append(record, Patience(None, self._closed, self._left))
        finally:
            self._one_at_a_time.release()

    def _append(self, record: bytes, patience: Patience) -> Appended:
        if self._ended is not None:
            raise self._ended
        if len(record) > RECORD_BYTES_MAX:
            raise LogError(f"a record of {len(record)} bytes is larger than the {RECORD_BYTES_MAX} that a log takes")
        try:
            for message, digest in seal(self._key, self._id, record, self._digest, self._engine.message_bytes_max):
                sent_s = elapsed_s()
                self._store(message, patience)
                self._last, self._digest, self._held_s = self._last + 1, digest, sent_s
        except LegatoError as error:  # what is in doubt, too: what comes behind could not be told from it
            self._ended = error
            raise
        self._position = Position(self._last, self._digest)
        return Appended(self._position, self._held_s)

    def _store(self, message: bytes, patience: Patience) -> None:
        """Append a message behind the last, however often it has to be tried: always these bytes, on this condition."""
        lacks = 0
        answer_s = FIRST_ANSWER_S
        while True:
            attempt_s = min(patience.attempt_s(), answer_s)
            try:
                stored = self._engine.append(message, self._last, attempt_s)
                if stored != self._last + 1:
                    raise LogDamagedError(
                        f"the log's servers stored a record as {stored} that was to follow {self._last}", self._last + 1
                    )
                return
            except LogUnavailableError as reason:
                patience.spent_by(reason)
                patience.pause()
                answer_s *= 2
                continue
            except AppendRefused:
                pass
            bounds = patience.insist(self._engine.bounds)
            if bounds.last <= self._last:  # of an append that was refused for one not yet stored, or by an old leader
                patience.pause()
                continue
            if bounds.first > self._last + 1:
                raise self._fenced()
            there = patience.insist(partial(self._engine.get, self._last + 1))
            if there == message:
                return
            if there is not None:
                if self._is_damaged(there):  # it may be ours, or another's
                    raise altered(self._engine, self._last + 1)
                raise self._fenced()
            lacks += bounds.settled
            if lacks > CHECKS:
                raise missing(self._engine, self._last + 1)
            patience.pause(CHECK_PAUSE_S)

    def _is_damaged(self, message: bytes) -> bool:
        """Whether a message of a log was altered; what no broker wrote is somebody else's."""
        try:
            return not unseal(self._key, message).intact
        except LogFormatError:
            return False

    def _fenced(self) -> FencedError:
        return FencedError(f"another broker claimed the log behind record {self._last}: this one must stop serving")
