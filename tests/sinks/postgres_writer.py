"""What processes do that write to a table in Postgres, and the points at which they are killed or stopped."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psycopg

from leasehold.errors import SinkUnavailable
from leasehold.sinks.beside import record, watermarks
from leasehold.sinks.beside.set_aside import rejected
from leasehold.sinks.postgres.at_once import AtOnce
from leasehold.sinks.postgres.bookkeeping import Bookkeeping
from leasehold.sinks.postgres.concerned import Concerned
from leasehold.sinks.postgres.memory import Memory
from leasehold.sinks.postgres.merging import Merge
from leasehold.sinks.postgres.rows import BatchRows
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.postgres.staging import Staging
from leasehold.sinks.postgres.transaction import PostgresTransaction
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.row_by_row import RowWriter
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import EventId, RetryResult
from leasehold_testkit.contracts.sinks.fixtures import retried
from tests.sinks.events import E, batch, last_of_keys
from tests.sinks.postgres import FLIGHTS
from tests.sinks.processes import behind, die
from tests.waiting import NEVER

SPEC = TableSpec(name="flights", pipeline="p", keys=("tail",), sequence_by="version")
MADE = "CREATE TABLE flights (tail text PRIMARY KEY, status text CHECK (status <> 'bad'), slot integer UNIQUE)"
SIZE = 40

POINTS: dict[str, tuple[Any, str]] = {
    "claimed": (record, "order"),
    "fitted": (PostgresTransaction, "fit"),
    "watermarks locked": (Bookkeeping, "lock_watermarks"),
    "levels raised": (watermarks, "write"),
    "staging emptied": (Staging, "make"),
    "half copied": (psycopg.Copy, "write"),
    "copied": (psycopg.Copy, "__exit__"),
    "staged": (Staging, "fill"),
    "keys gathered": (Memory, "gather"),
    "keys locked": (Memory, "lock"),
    "concerned keys found": (Concerned, "set_apart"),
    "merged": (Merge, "_merge"),
    "keys remembered": (Memory, "remember_merged"),
    "rows written one by one": (Memory, "remember_apart"),
    "rejected": (rejected, "replace"),
    "order recorded": (record, "note_order"),
    "written": (PostgresTransaction, "write"),
    "none whole": (watermarks, "leave_none_whole"),
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

LAST: dict[str, tuple[Any, str]] = {
    "last rows staged": (BatchRows, "fill_last"),
    "what is known loaded": (AtOnce, "_load_known"),
    "last rows noted": (AtOnce, "_note_keys"),
    "last rows written": (AtOnce, "_write_those_that_stay"),
    "last rows merged": (PostgresTransaction, "_merged_last"),
}
"""Where one can be killed whose batch is merged by the last row of each key alone, which versions may say."""

TRYING: dict[str, tuple[Any, str]] = {
    "watermarks locked": (Bookkeeping, "lock_watermarks"),
    "rejected rows locked": (rejected, "of_events"),
    "keys locked": (Memory, "lock"),
    "rows written": (RowWriter, "write"),
    "tried keys remembered": (Memory, "remember_apart"),
    "order recorded": (record, "note_order"),
    "rejected rows removed": (rejected, "remove"),
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
    return retried(sink, mended, [EventId("h", "0", row.number) for row in rows])


def write(url: str, name: str, batches: int, keys: int, slots: bool, told: Connection) -> None:
    """Apply all batches of this writer; tells how many were given up and tried again."""
    sink, again = PostgresSink(url, SPEC, timeout=NEVER), 0
    for rows in written_by(name, batches, keys, slots=slots):
        while True:
            try:
                sink.apply(batch(rows, by_version=True))
                break
            except SinkUnavailable:
                again += 1
    told.send(again)


def apply_killed(sink: PostgresSink) -> None:
    sink.apply(killed())


def apply_plain(sink: PostgresSink) -> None:
    sink.apply(plain())


def die_in_last(url: str, point: str, by_version: bool) -> None:
    """Apply that batch, and be killed at the point."""
    at(point, die)
    PostgresSink(url, SPEC if by_version else FLIGHTS, timeout=NEVER).apply(last_of_keys(by_version=by_version))


def at(point: str, act: Callable[[], None]) -> None:
    """Act once the function of this point has returned."""
    behind(*{**TRYING, **AT_ONCE, **LAST, **POINTS}[point], act)


def die_at(url: str, point: str, act: Callable[[PostgresSink], object]) -> None:
    """Do this to the table, and be killed at the point."""
    at(point, die)
    act(PostgresSink(url, SPEC, timeout=NEVER))


def stop_at(url: str, point: str, told: Connection) -> None:
    """Apply a batch, and stop at the point until continued; tells what came of it.

    The server ends the transaction once it has heard nothing of it for a second.
    """
    stopped: list[bool] = []

    def stop() -> None:
        stopped.append(True)
        os.kill(os.getpid(), signal.SIGSTOP)

    at(point, stop)
    while True:
        sink = PostgresSink(url, SPEC, timeout=2.0)  # expires: what is too slow to come to the point begins anew
        try:
            told.send(f"applied {sink.apply(killed()).applied}")
            return
        except SinkUnavailable:
            if stopped:
                told.send("unavailable")
                return
        finally:
            sink.close()
