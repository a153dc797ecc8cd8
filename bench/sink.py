"""How fast batches go into an entity table, against what a user would write without any promise, of the same rows.

One transaction a batch of 50,000 events with 8 columns, which both sides get as an Arrow table. In SQLite, with
`synchronous = FULL`, beside an `executemany` of all rows; in Postgres, on the same two cores, beside a COPY of all rows
into a temporary table, and one statement that merges the last of each key, or a COPY into the table. The plain sides
know no watermark, no order and no memory of keys. The sides take turns, batch by batch, and the best of several batches
is taken, since other work on the machine only ever adds time. CPU seconds are those of this process and of the server.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg
import pyarrow as pa
from pyarrow import csv

from cpu_times import served
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.rules.batch import Batch

sys.path.append(str(Path(__file__).parents[1]))
from tests.stores.servers import PostgresServer

Row = tuple[str, float, str, float | None, str]
"""Name, figure, unit, ratio to the plain executemany, goal."""

_EVENTS = 50_000
_PARTITIONS = 4
_DISTINCT = 200_000
_COLUMNS = ("tail", "flight", "origin", "dest", "status", "delay", "distance", "at")
_IN_POSTGRES = (
    "tail text{}, flight bigint, origin text, dest text, status text, delay double precision, distance bigint, "
    "at timestamptz"
)


@dataclass(frozen=True)
class Work:
    """What is done to a table of `keys`; of none, every event counts. With `distinct` a batch has each key once."""

    name: str
    keys: int
    distinct: bool = False
    by_time: bool = False


WORK = (
    Work("upsert, three events a key", _EVENTS // 3),
    Work("upsert by time, three events a key", _EVENTS // 3, by_time=True),
    Work("upsert, distinct keys in random order", _DISTINCT, distinct=True),
    Work("append", 0),
)


Write = Callable[[pa.Table], None]
"""Takes a batch into a table."""


class Taken(NamedTuple):
    """Seconds that a batch takes, and CPU seconds."""

    wall: float
    cpu: float


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes fewer batches."""
    batches = 3 if quick else 8
    rows: list[Row] = []
    for work in WORK:
        with (
            tempfile.TemporaryDirectory() as folder,
            _plain(Path(folder) / "plain.db", work) as plain,
            _sink(f"sqlite:///{folder}/sink.db", work) as ours,
        ):
            rows += _rows(f"SQLite: {work.name}", _fastest(plain, ours, work, batches), "200,000, ratio >= 0.75")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # Postgres' own user must get in, where this one is root
        server = PostgresServer(Path(folder))
        servers = [psutil.Process(server.facts()["pid"])]
        try:
            for number, work in enumerate(WORK):
                with _plain_postgres(server.url, work) as plain, _sink(server.url, work, f"flights_{number}") as ours:
                    taken = _fastest(plain, ours, work, batches, servers)
                rows += _rows(f"Postgres: {work.name}", taken, "ratio >= 0.75")
        finally:
            server.end()
    return rows


def _rows(name: str, taken: tuple[Taken, Taken], goal: str) -> list[Row]:
    """The rows of a table: its speed, and its CPU seconds, each with what the plain side has of it."""
    plain, ours = taken
    return [
        (f"sink, {name}", _EVENTS / ours.wall, "events/s", plain.wall / ours.wall, goal),
        (f"sink, {name}: CPU", 100_000 * ours.cpu / _EVENTS, "s/100,000", plain.cpu / ours.cpu, "ratio >= 0.75"),
    ]


def _events(number: int, work: Work) -> pa.Table:
    """Events as a DataFrame of a source holds them: its partitions one after the other, in order."""
    random.seed(number)
    each = _EVENTS // _PARTITIONS
    first = number * each
    pick = random.sample if work.distinct else random.choices
    keys = range((work.keys or _DISTINCT) // _PARTITIONS)
    tails = [tail * _PARTITIONS + p for p in range(_PARTITIONS) for tail in pick(keys, k=each)]
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


@contextmanager
def _sink(url: str, work: Work, name: str = "flights") -> Iterator[Write]:
    mode, keys = ("upsert", ("tail",)) if work.keys else ("append", ())
    sink = open_sink(url, TableSpec(name=name, pipeline=name, mode=mode, keys=keys))

    def write(table: pa.Table) -> None:
        order = table["at"] if work.by_time else None
        assert sink.apply(Batch(table, sequence_by=order)).applied == _EVENTS

    yield write
    sink.close()


@contextmanager
def _plain_postgres(url: str, work: Work) -> Iterator[Write]:
    names, key = ", ".join(_COLUMNS), " PRIMARY KEY" if work.keys else ""
    updates = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS plain")
        connection.execute(f"CREATE TABLE plain ({_IN_POSTGRES.format(key)}) WITH (fillfactor = 50)".encode())
        connection.execute(f"CREATE TEMP TABLE staged (place serial, {_IN_POSTGRES.format('')})".encode())

        def write(rows: pa.Table) -> None:
            rows = rows.select(list(_COLUMNS))
            with connection.transaction():
                text = pa.BufferOutputStream()
                csv.write_csv(rows, text, csv.WriteOptions(include_header=False))
                into = "staged" if work.keys else "plain"
                with connection.cursor().copy(f"COPY {into} ({names}) FROM STDIN (FORMAT csv)".encode()) as copy:
                    copy.write(memoryview(text.getvalue()))
                if work.keys:
                    connection.execute(
                        f"INSERT INTO plain SELECT {names} FROM (SELECT DISTINCT ON (tail) * FROM staged "
                        f"ORDER BY tail, place DESC) AS last ON CONFLICT (tail) DO UPDATE SET {updates}".encode()
                    )
                    connection.execute("TRUNCATE staged")

        yield write


@contextmanager
def _plain(path: Path, work: Work) -> Iterator[Write]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    key = " NOT NULL PRIMARY KEY" if work.keys else ""
    connection.execute(
        f"CREATE TABLE flights (tail TEXT{key}, flight INTEGER, origin TEXT, dest TEXT, status TEXT, delay REAL, "
        "distance INTEGER, at TEXT)"
    )
    insert = f"INSERT INTO flights VALUES ({', '.join('?' * len(_COLUMNS))})"
    if work.keys:
        updates = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
        insert += f" ON CONFLICT (tail) DO UPDATE SET {updates}"

    def write(table: pa.Table) -> None:
        columns = [table[name].to_pylist() for name in _COLUMNS[:-1]]
        columns.append([text.replace(" ", "T") for text in table["at"].cast(pa.string()).to_pylist()])
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insert, zip(*columns, strict=True))
        connection.execute("COMMIT")

    yield write
    connection.close()


def _fastest(
    plain: Write, ours: Write, work: Work, batches: int, servers: Sequence[psutil.Process] = ()
) -> tuple[Taken, Taken]:
    """What the best batch of each side takes. CPU seconds of `servers` count as well."""
    taken: dict[Write, list[Taken]] = {plain: [], ours: []}
    for number in range(batches):
        batch = _events(number, work)
        for write, times in taken.items():
            begun, before = time.perf_counter(), time.process_time() + served(servers)
            write(batch)
            times.append(Taken(time.perf_counter() - begun, time.process_time() + served(servers) - before))
    best = [Taken(min(one.wall for one in times), min(one.cpu for one in times)) for times in taken.values()]
    return best[0], best[1]


if __name__ == "__main__":
    for name, figure, unit, ratio, goal in run(quick=False):
        against = f"{ratio:.2f} of plain" if ratio is not None else ""
        print(f"{name:32} {figure:>10,.0f} {unit:9} {against:14} {f'goal {goal}' if goal else ''}")
