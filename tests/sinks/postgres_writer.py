"""A writer as a process of its own: `python -m tests.sinks.postgres_writer URL COMMAND …`. It says how it went.

write NAME BATCHES KEYS SLOTS   applies batches of its partition NAME to the table `flights` by version, on hot keys
die POINT …                     applies the batch of `killed`, and is killed at the point; a process for each point
die-staged POINT …              the same, where tasks have staged the rows of that batch
die-at-once POINT …             the same, with the batch of `plain`, which goes the short way
die-trying POINT …              the same, where it tries the rejected events of that batch again
stop POINT                      the same, and stops there until it is continued; says what came of it then
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import psycopg

from leasehold.errors import SinkUnavailable
from leasehold.sinks.batch import Batch
from leasehold.sinks.postgres import rejected, rejected_rows
from leasehold.sinks.postgres.at_once import AtOnce
from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.concerned import Concerned
from leasehold.sinks.postgres.memory import Memory
from leasehold.sinks.postgres.merging import Merge
from leasehold.sinks.postgres.rejected_rows import _Retry
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.postgres.staged import stager
from leasehold.sinks.postgres.staged.rows import StagedRows
from leasehold.sinks.postgres.staged.stager import PostgresStager
from leasehold.sinks.postgres.staged.table import LeftBehind
from leasehold.sinks.postgres.staging import Staging
from leasehold.sinks.postgres.transaction import PostgresTransaction
from leasehold.sinks.set_aside import EventId, RetryResult
from leasehold.sinks.table import TableSpec
from leasehold.sinks.writing import RowWriter
from tests.sinks.events import E, batch
from tests.sinks.staged.staging import StagedSink

SPEC = TableSpec(name="flights", pipeline="p", keys=("tail",), sequence_by="version")
SIZE = 40

POINTS: dict[str, tuple[Any, str]] = {
    "claimed": (Bookkeeping, "recorded_order"),
    "fitted": (PostgresTransaction, "fit"),
    "watermarks locked": (Bookkeeping, "lock_watermarks"),
    "levels raised": (Bookkeeping, "set_watermarks"),
    "staging emptied": (Staging, "make"),
    "staged": (Staging, "fill"),
    "keys gathered": (Memory, "gather"),
    "keys locked": (Memory, "lock"),
    "concerned keys found": (Concerned, "set_apart"),
    "merged": (Merge, "_merge"),
    "keys remembered": (Memory, "remember_merged"),
    "rows written one by one": (Memory, "remember_apart"),
    "rejected": (rejected, "replace"),
    "order recorded": (Bookkeeping, "record_order"),
    "written": (PostgresTransaction, "write"),
    "none whole": (Bookkeeping, "leave_none_whole"),
    "committed": (PostgresSink, "_committed"),
}
"""Where a writer can be killed: behind the function that is named."""

AT_ONCE: dict[str, tuple[Any, str]] = {
    "keys noted at once": (AtOnce, "_note_keys"),
    "older rows found": (AtOnce, "_set_lost_apart"),
    "rows that stay written": (AtOnce, "_write_those_that_stay"),
    "rows that change written": (AtOnce, "_write_those_that_change"),
    "all written at once": (AtOnce, "write"),
}
"""Where one can be killed whose batch goes the short way."""

IN_TASK: dict[str, tuple[Any, str]] = {
    "columns known": (stager, "stored_columns"),
    "rows readied": (stager, "staged_piece"),
    "connected": (stager, "_prepare"),
    "half copied": (psycopg.Copy, "write"),
    "copied": (psycopg.Copy, "__exit__"),
    "piece committed": (PostgresStager, "_copy"),
    "receipt given": (PostgresStager, "stage"),
}
"""Where a task that stages rows can be killed."""

STAGED: dict[str, tuple[Any, str]] = {
    "stager made": (PostgresSink, "stager"),
    **IN_TASK,
    **{name: POINTS[name] for name in ("fitted", "watermarks locked", "levels raised", "staging emptied")},
    "staged rows counted": (StagedRows, "_check"),
    "staged rows filled": (StagedRows, "fill"),
    **{name: POINTS[name] for name in ("keys locked", "concerned keys found", "merged", "keys remembered")},
    "staged rows set aside": (StagedRows, "rejected"),
    "staged rows deleted": (StagedRows, "end"),
    **{name: POINTS[name] for name in ("rejected", "written", "none whole")},
    "merge committed": (PostgresSink, "_apply_arranged"),
    "left cleared": (LeftBehind, "clear"),
}
"""Where an instance can be killed whose tasks stage its batch, in the order of the batch."""

TRYING: dict[str, tuple[Any, str]] = {
    "watermarks locked": (Bookkeeping, "lock_watermarks"),
    "rejected rows locked": (_Retry, "found"),
    "keys locked": (Memory, "lock"),
    "rows written": (RowWriter, "write"),
    "tried keys remembered": (Memory, "remember_apart"),
    "order recorded": (Bookkeeping, "record_order"),
    "rejected rows removed": (rejected_rows, "remove"),
    "set aside again": (rejected, "insert"),
    "committed": (PostgresSink, "_committed"),
}
"""Where one who tries rejected events again can be killed."""


def written_by(name: str, batches: int, keys: int, *, slots: bool) -> list[list[E]]:
    """The events of a writer: hot keys, each event with a version that nothing orders by arrival.

    About every other batch has each key once.
    """
    chance = random.Random(name)
    written: list[list[E]] = []
    for first in range(0, batches * SIZE, SIZE):
        some = chance.sample(range(keys), SIZE) if chance.random() < 0.5 else chance.choices(range(keys), k=SIZE)
        written.append(
            [
                E(
                    f"k{key}",
                    slot=chance.randrange(keys) if slots else None,
                    partition=name,
                    number=first + place,
                    version=chance.randrange(10**6),
                )
                for place, key in enumerate(some)
            ]
        )
    return written


def killed() -> Batch:
    """A batch with everything in it: rows to merge, keys that share a value, a delete, rows to reject."""
    rows = [E("a", slot=1), E("b", slot=2), E("c", slot=1), E("d", status="bad"), E("e"), E("e", gone=True), E("g")]
    numbered = [row._replace(number=number, version=number) for number, row in enumerate(rows, 1)]
    return batch(numbered, by_version=True, deletes=True, rejected=[E("?", number=9)])


def plain() -> Batch:
    """A batch that goes the short way behind that of `killed`: rows that stay, change and are older, and a delete."""
    rows = [E("a", "x", 1), E("b", slot=7), E("g", gone=True), E("h", slot=8), E("old", "x")]
    numbered = [row._replace(number=number, version=number) for number, row in enumerate(rows[:-1], 20)]
    return batch([*numbered, rows[-1]._replace(number=24, version=-1)], by_version=True, deletes=True)


def try_again(sink: PostgresSink) -> RetryResult:
    """Try what `killed` has left rejected: one fits now, one was a delete, one is as bad as before."""
    rows = [
        E("c", slot=3, number=3, version=3),
        E("d", "bad", number=4, version=4),
        E("a", number=9, version=9, gone=True),
    ]
    mended = batch(rows, by_version=True, deletes=True)
    return sink.rejected_rows.retry(mended, [EventId("h", "0", row.number) for row in rows])


def at(point: str, act: Callable[[], None]) -> None:
    """Act once the function of this point has returned."""
    owner, name = {**TRYING, **STAGED, **AT_ONCE, **POINTS}[point]
    before = getattr(owner, name)

    def then(*given: Any, **named: Any) -> Any:
        result = before(*given, **named)
        act()
        return result

    setattr(owner, name, then)


def write(sink: PostgresSink, name: str, batches: int, keys: int, slots: int) -> str:
    """Apply all batches of this writer; how many were given up and tried again."""
    again = 0
    for rows in written_by(name, batches, keys, slots=bool(slots)):
        while True:
            try:
                sink.apply(batch(rows, by_version=True))
                break
            except SinkUnavailable:
                again += 1
    return f"done, {again} again"


def main(url: str, command: str, *words: str) -> None:
    """Run one command."""
    kind = StagedSink if command == "die-staged" else PostgresSink
    sink = kind(url, SPEC, timeout=60.0 if command != "stop" else 4.0)
    if command == "write":
        said = write(sink, words[0], *map(int, words[1:]))
    elif command in ("die", "die-staged", "die-at-once", "die-trying"):
        for point in words:  # each in a process of its own, which has everything imported
            sys.stdin.readline()
            child = os.fork()
            if not child:
                at(point, lambda: os.kill(os.getpid(), signal.SIGKILL))
                if command == "die-trying":
                    try_again(sink)
                else:
                    sink.apply(plain() if command == "die-at-once" else killed())
                os._exit(0)
            _, status = os.waitpid(child, 0)
            print("killed" if os.WIFSIGNALED(status) else f"not killed: {status}", flush=True)
        return
    else:
        sink.watermarks("h")
        at(words[0], lambda: os.kill(os.getpid(), signal.SIGSTOP))
        try:
            said = f"applied {sink.apply(killed()).applied}"
        except SinkUnavailable:
            said = "unavailable"
    sink.close()
    print(said, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
