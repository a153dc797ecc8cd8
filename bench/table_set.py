"""Several tables in one transaction: the same events into one table, and parted among four, by their keys.

Batches of 1,000 and of 50,000 rows with eight columns, upserted, in SQLite and Postgres; the sides take turns, batch by
batch, and the best of several batches is taken. What four tables cost more is what each of them has of its own: locks,
watermarks, the way of a batch to the database, and in Postgres temporary tables, which are made anew for each table
where their columns differ.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.model import EventRange
from leasehold.sinks import Sink, TableSpec, open_sink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.table_set import TableSet

sys.path.append(str(Path(__file__).parents[1]))
from tests.stores.servers import PostgresServer

Row = tuple[str, float, str, float | None, str]
_TABLES = 4
_COLUMNS = ("flight", "origin", "dest", "status", "delay", "distance", "at")


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes fewer batches."""
    rows: list[Row] = []
    batches = 4 if quick else 12
    with tempfile.TemporaryDirectory() as folder:
        rows += _measured("SQLite", lambda spec: open_sink(f"sqlite:///{folder}/t.db", spec), batches)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # Postgres' own user must get in, where this one is root
        server = PostgresServer(Path(folder))
        try:
            rows += _measured("Postgres", lambda spec: open_sink(server.url, spec), batches)
        finally:
            server.end()
    return rows


def _measured(database: str, opened: Callable[[TableSpec], Sink], batches: int) -> list[Row]:
    rows: list[Row] = []
    for events in (1_000, 50_000):
        one = opened(_spec(f"one_{events}"))
        alike = TableSet([opened(_spec(f"alike_{events}_{place}")) for place in range(_TABLES)])
        other = TableSet([opened(_spec(f"other_{events}_{place}", _COLUMNS[: place + 4])) for place in range(_TABLES)])
        taken: dict[Sink, list[float]] = {one: [], alike: [], other: []}
        for number in range(batches):
            whole = _batch(number, events)
            for sink, times in taken.items():
                batch = whole if sink is one else _parted(whole)
                begun = time.perf_counter()
                assert sink.apply(batch).applied == events
                times.append(time.perf_counter() - begun)
        best = {sink: min(times) for sink, times in taken.items()}
        name = f"{database}: {events:,} events into four tables"
        goal = "ratio >= 0.75" if events > 1_000 else ""
        rows.append((f"{name}, of one transaction", events / best[alike], "events/s", best[one] / best[alike], goal))
        rows.append((f"{name} of other columns", events / best[other], "events/s", best[one] / best[other], ""))
        for sink in taken:
            sink.close()
    return rows


def _spec(name: str, columns: tuple[str, ...] = _COLUMNS) -> TableSpec:
    return TableSpec(name=name, pipeline=name.rpartition("_")[0], keys=("id",), only_columns=("id", *columns))


def _batch(number: int, events: int) -> Batch:
    random.seed(number)
    first = number * events
    rows = pa.table(
        {
            "id": random.choices(range(events // 2), k=events),
            "flight": list(range(events)),
            "origin": random.choices(["EWR", "JFK", "LGA"], k=events),
            "dest": random.choices(["ORD", "ATL", "LAX", "BOS"], k=events),
            "status": random.choices(["scheduled", "departed", "arrived", None], k=events),
            "delay": [random.random() * 60 for _ in range(events)],
            "distance": random.choices(range(5000), k=events),
            "at": [f"2026-02-03T04:{number:02d}:00Z"] * events,
            "hub": ["h"] * events,
            "partition": ["0"] * events,
            "sequenceNumber": list(range(first, first + events)),
            "ownerLevel": [1] * events,
        }
    )
    return Batch(rows, ranges=[EventRange("h", "0", 1, first, first + events)], read=events)


def _parted(batch: Batch) -> Batch:
    """The same rows, each for one of the tables."""
    place = pc.bit_wise_and(batch.rows["id"], _TABLES - 1)
    first, *beside = (Batch(batch.rows.filter(pc.equal(place, it))) for it in range(_TABLES))
    return replace(batch, rows=first.rows, beside=tuple(beside))


if __name__ == "__main__":
    for name, figure, unit, ratio, goal in run(quick=False):
        print(f"{name:60} {figure:>10,.0f} {unit:9} {ratio or 1:5.2f} of one table  {goal}")
