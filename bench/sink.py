"""How fast batches go into an entity table, against a plain executemany of the same rows.

Both write to a SQLite file with `synchronous = FULL`, one transaction a batch of 50,000 events with 8
columns; the plain one gets its rows as ready Python tuples and knows no watermark, no order and no memory
of keys. The best of several batches is taken, since other work on the machine only ever adds time.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table import TableSpec
from leasehold.sinks.sqlite.sink import SqliteSink

Row = tuple[str, float, str, float | None, str]
"""Name, figure, unit, ratio to the plain executemany, goal."""

_EVENTS = 50_000
_KEYS = 4_000
_PARTITIONS = 4
_COLUMNS = ("tail", "flight", "origin", "dest", "status", "delay", "distance", "at")


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes fewer batches."""
    batches = 3 if quick else 8
    rows: list[Row] = []
    for mode, goal in (("upsert", "200,000"), ("append", "200,000"), ("upsert by time", "")):
        with tempfile.TemporaryDirectory() as folder:
            plain = _plain(Path(folder) / "plain.db", append=mode == "append", batches=batches)
            ours = _sink(Path(folder) / "sink.db", mode, batches)
        rows.append(
            (
                f"sink: {mode}, {_KEYS:,} keys" if mode != "append" else "sink: append",
                ours,
                "events/s",
                ours / plain,
                goal,
            )
        )
    return rows


def _events(number: int) -> pa.Table:
    """Events as a DataFrame of a source holds them: its partitions one after the other, in order."""
    random.seed(number)
    each = _EVENTS // _PARTITIONS
    first = number * each
    tails = [random.randrange(_KEYS // _PARTITIONS) * _PARTITIONS + p for p in range(_PARTITIONS) for _ in range(each)]
    at = pa.array([1_700_000_000_000_000 + (first + i % each) * 1_000_000 for i in range(_EVENTS)], pa.int64())
    return pa.table(
        {
            "tail": [f"N{tail:05d}" for tail in tails],
            "flight": list(range(_EVENTS)),
            "origin": random.choices(["EWR", "JFK", "LGA"], k=_EVENTS),
            "dest": random.choices(["ORD", "ATL", "LAX", "BOS"], k=_EVENTS),
            "status": random.choices(["scheduled", "departed", "arrived", None], k=_EVENTS),
            "delay": [random.random() * 60 for _ in range(_EVENTS)],
            "distance": random.choices(range(5000), k=_EVENTS),
            "at": at.cast(pa.timestamp("us", tz="UTC")),
            "hub": ["6f1b6a1e-6c2f-4b7e-9f0c-0c9d1b0f6a3e"] * _EVENTS,
            "partition": [str(p) for p in range(_PARTITIONS) for _ in range(each)],
            "sequenceNumber": [first + i % each for i in range(_EVENTS)],
            "ownerLevel": pa.array([1] * _EVENTS, pa.int64()),
        }
    )


def _sink(path: Path, mode: str, batches: int) -> float:
    kind = mode.partition(" ")[0]
    spec = TableSpec(name="flights", pipeline="bench", mode=kind, keys=("tail",) if kind == "upsert" else ())
    sink = SqliteSink(path, spec)

    def write(table: pa.Table) -> None:
        order = table["at"] if mode == "upsert by time" else None
        assert sink.apply(Batch(table, sequence_by=order)).applied == _EVENTS

    figure = _fastest(write, [_events(number) for number in range(batches)])
    sink.close()
    return figure


def _plain(path: Path, *, append: bool, batches: int) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    key = "" if append else " NOT NULL PRIMARY KEY"
    connection.execute(
        f"CREATE TABLE flights (tail TEXT{key}, flight INTEGER, origin TEXT, dest TEXT, status TEXT, delay REAL, "
        "distance INTEGER, at TEXT)"
    )
    insert = f"INSERT INTO flights VALUES ({', '.join('?' * len(_COLUMNS))})"
    if not append:
        updates = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
        insert += f" ON CONFLICT (tail) DO UPDATE SET {updates}"

    def write(rows: list[tuple[Any, ...]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, rows)
        connection.execute("COMMIT")

    prepared = []
    for number in range(batches):
        table = _events(number).select(list(_COLUMNS))
        columns = [table[name].to_pylist() for name in _COLUMNS[:-1]]
        columns.append([f"{text.replace(' ', 'T')}" for text in table["at"].cast(pa.string()).to_pylist()])
        prepared.append(list(zip(*columns, strict=True)))
    figure = _fastest(write, prepared)
    connection.close()
    return figure


def _fastest(write: Callable[[Any], None], batches: list[Any]) -> float:
    times = []
    for batch in batches:
        start = time.perf_counter()
        write(batch)
        times.append(time.perf_counter() - start)
    return _EVENTS / min(times)


if __name__ == "__main__":
    for name, figure, unit, ratio, goal in run(quick=False):
        against = f"{ratio:.2f} of plain" if ratio is not None else ""
        print(f"{name:32} {figure:>10,.0f} {unit:9} {against:14} {f'goal {goal}' if goal else ''}")
