"""Rows that were there before the first event of their key: `sequence_by` compares events with what the rows hold.

Rule 6 of `remembered_order`, on both databases.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from leasehold.errors import SchemaMismatch
from leasehold.model import BEFORE_FIRST
from leasehold.sinks import Sink, TableSpec, open_sink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.sinks.set_aside import EventId
from leasehold_testkit.contracts.sinks.fixtures import compared, retried
from tests.sinks.events import look, run
from tests.sinks.postgres import Place
from tests.waiting import PATIENCE

SPEC = TableSpec(name="t", pipeline="p", keys=["id"], sequence_by="at")


class Event(NamedTuple):
    """An event of the key `id`, whose value of `sequence_by` is `at`; `gone` deletes."""

    id: str
    n: int
    at: Any
    number: int = 0
    partition: str = "0"
    gone: bool = False


def events(*some: Event, type_: pa.DataType | None = None, deletes: bool = False, unread: Sequence[int] = ()) -> Batch:
    """The events as a batch; those of the numbers `unread` could not be read."""
    at = pa.array([one.at for one in some], type_ or pa.int64())
    rows = pa.table({"id": [one.id for one in some], "n": [one.n for one in some], "at": at, **_fence(some)})
    aside = None
    if unread:
        bad = _fence([Event("", 0, None, number) for number in unread])
        aside = pa.table({**bad, "body": [b"?"] * len(unread), "reason": ["not JSON"] * len(unread)})
    gone = pa.chunked_array([pa.array([one.gone for one in some], pa.bool_())]) if deletes else None
    return Batch(rows, aside, pa.chunked_array([at]), gone)


def _fence(some: Sequence[Event]) -> dict[str, pa.Array]:
    return {
        "hub": pa.array(["h"] * len(some), pa.string()),
        "partition": pa.array([one.partition for one in some], pa.string()),
        "sequenceNumber": pa.array([one.number for one in some], pa.int64()),
        "ownerLevel": pa.array([1] * len(some), pa.int64()),
    }


@dataclass(frozen=True)
class Database:
    """A database of the test's own, which SQL of somebody else changes."""

    is_postgres: bool
    open: Callable[[TableSpec], Sink]
    run: Callable[..., None]
    look: Callable[[str], list[tuple[Any, ...]]]

    def make(self, declared: str, *rows: str, more: str = "") -> None:
        """The table `t`, whose column `at` is declared so, with these rows: id, n and at."""
        self.run(f"CREATE TABLE t (id text NOT NULL PRIMARY KEY, n bigint{more}, at {declared})")
        for row in rows:
            self.run(f"INSERT INTO t (id, n, at) VALUES ({row})")

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.look("SELECT id, n FROM t ORDER BY id")

    @property
    def remembered(self) -> list[str]:
        return [key for (key,) in self.look("SELECT key_1 FROM leasehold_key_t ORDER BY 1")]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    opened: list[Sink] = []
    path = tmp_path / "t.db"
    place: Place | None = request.getfixturevalue("place") if request.param == "postgres" else None

    def open_one(spec: TableSpec) -> Sink:
        url = "sqlite:///t.db" if place is None else place.url
        opened.append(open_sink(url, spec, base=tmp_path, timeout=PATIENCE))
        return opened[-1]

    if place is None:
        yield Database(False, open_one, lambda *them: run(path, *them), lambda query: look(path, query))
    else:
        yield Database(True, open_one, place.run, place.look)
    for sink in opened:
        sink.close()


def counts(result: BatchResult) -> tuple[int, int]:
    return result.applied, result.superseded


def test_an_event_older_than_the_row_is_superseded_and_one_as_old_wins(database: Database) -> None:
    database.make("bigint", "'a', 100, 6", "'b', 100, 6", "'c', 100, 6", "'d', 100, NULL")
    table = database.open(SPEC)
    table.check(events().rows.schema)
    older = events(Event("a", 1, 5), Event("b", 2, 6, 1), Event("c", 3, 7, 2), Event("d", 4, -(10**9), 3))
    assert counts(table.apply(older)) == (3, 1)
    assert database.rows == [("a", 100), ("b", 2), ("c", 3), ("d", 4)]
    assert database.remembered == ["b", "c", "d"]  # of what has lost, nothing is remembered


def test_deletes_are_judged_too(database: Database) -> None:
    database.make("bigint", "'a', 100, 6", "'b', 100, 6")
    deletes = events(Event("a", 0, 5, 0, gone=True), Event("b", 0, 7, 1, gone=True), deletes=True)
    assert counts(database.open(SPEC).apply(deletes)) == (1, 1)
    assert database.rows == [("a", 100)]


def test_from_the_first_event_that_counts_the_memory_is_compared_and_not_the_row(database: Database) -> None:
    database.make("bigint", "'a', 100, 50", "'b', 100, 50")
    table = database.open(SPEC)
    assert counts(table.apply(events(Event("a", 1, 60), Event("b", 1, 40, 1)))) == (1, 1)
    database.run("UPDATE t SET at = 1000 WHERE id = 'a'", "UPDATE t SET at = 30 WHERE id = 'b'")
    assert counts(table.apply(events(Event("a", 2, 61, 2), Event("b", 2, 40, 3)))) == (2, 0)
    assert database.rows == [("a", 2), ("b", 2)]


def test_after_a_reset_to_the_beginning_rows_do_not_count(database: Database) -> None:
    database.make("bigint", "'a', 100, 50", "'b', 100, 50")
    table = database.open(SPEC)
    table.apply(events(Event("a", 1, 60)))
    table.set_watermarks("h", {"0": Watermark(BEFORE_FIRST, 1)}, anew=True)
    assert counts(table.apply(events(Event("a", 2, 1), Event("b", 2, 1, 1)))) == (2, 0)
    assert database.rows == [("a", 2), ("b", 2)]


def test_a_reset_of_an_emptied_table_lets_later_rows_count(database: Database) -> None:
    database.make("bigint", "'a', 100, 50")
    table = database.open(SPEC)
    table.apply(events(Event("a", 1, 60)))
    database.run("DELETE FROM t")
    table.set_watermarks("h", {"0": Watermark(BEFORE_FIRST, 1)}, anew=True)
    database.run("INSERT INTO t (id, n, at) VALUES ('a', 100, 50)")
    assert counts(table.apply(events(Event("a", 2, 40)))) == (0, 1)
    assert database.rows == [("a", 100)]


def test_a_retry_is_judged_too(database: Database) -> None:
    database.make("bigint", "'a', 100, 50", "'b', 100, 50")
    table = database.open(SPEC)
    assert table.apply(events(unread=[0, 1])).rejected == 2
    again = events(Event("a", 1, 40, 0), Event("b", 1, 60, 1))
    tried = retried(table, again, [EventId("h", "0", 0), EventId("h", "0", 1)])
    assert (tried.applied, tried.superseded) == (1, 1)
    assert database.rows == [("a", 100), ("b", 1)]
    assert database.remembered == ["b"]


FIRST = datetime(2026, 6, 1, tzinfo=UTC)
LOCAL = FIRST.replace(tzinfo=None)
ORDERS: dict[str, tuple[str, str | None, pa.DataType, str, str | None, list[Any]]] = {
    # Declared in Postgres and SQLite (None: not there), type, the row's value in both, and the events below and at it.
    "number": ("integer", "INTEGER", pa.int64(), "7", "7", [6, 7]),
    "digits": ("numeric(30, 10)", None, pa.int64(), "6.5", None, [6, 7]),
    "huge": ("numeric", None, pa.int64(), "1e30", None, [2**63 - 1]),
    "double": ("double precision", "REAL", pa.float64(), "0.3", "0.3", [0.29999999999999993, 0.3]),
    "float": ("real", "REAL", pa.float32(), "0.5", "0.5", [0.49999997, 0.5]),
    "infinite": ("double precision", "REAL", pa.float64(), "'infinity'", "9e999", [1e308, float("inf")]),
    "text": ("text", "TEXT", pa.string(), "'a'", "'a'", ["Z", "a"]),
    "more text": ("varchar(9)", "TEXT", pa.string(), "'é'", "'é'", ["z", "é"]),
    "day": ("date", "TEXT", pa.date32(), "'2026-06-01'", "'2026-06-01'", [date(2026, 5, 31), date(2026, 6, 1)]),
    "time": (
        *(
            "timestamptz",
            "TEXT",
            pa.timestamp("us", "UTC"),
            "'2026-06-01T02:00:00+02'",
            "'2026-06-01T00:00:00.000000Z'",
        ),
        [FIRST.replace(year=2025), FIRST],
    ),
    "local time": (
        *("timestamp", "TEXT", pa.timestamp("us"), "'2026-06-01T00:00:00.000001'", "'2026-06-01T00:00:00.000001'"),
        [LOCAL, LOCAL.replace(microsecond=1)],
    ),
    "long ago": ("timestamptz", None, pa.timestamp("us", "UTC"), "'0044-03-15 BC'", None, [None, FIRST]),
    "never": ("timestamptz", None, pa.timestamp("us", "UTC"), "'infinity'", None, [FIRST.replace(year=9999)]),
    "always": ("date", None, pa.date32(), "'-infinity'", None, [None, date(1, 1, 1)]),
}


@pytest.mark.more(but=10)
@pytest.mark.parametrize(
    ("database", "order"),
    [(name, order) for order, its in ORDERS.items() for name in ("sqlite", "postgres") if name == "postgres" or its[1]],
    indirect=["database"],
)
def test_values_are_compared_as_the_memory_compares_them(database: Database, order: str) -> None:
    in_postgres, in_sqlite, type_, row, row_in_sqlite, values = ORDERS[order]
    declared, held = (in_postgres, row) if database.is_postgres else (in_sqlite, row_in_sqlite)
    database.make(str(declared), f"'a', 100, {held}")
    table = database.open(SPEC)
    table.check(events(type_=type_).rows.schema)
    below, *at = values
    if below is not None:
        assert counts(table.apply(events(Event("a", 1, below), type_=type_))) == (0, 1)
    if at:
        assert counts(table.apply(events(Event("a", 2, at[0], 1), type_=type_))) == (1, 0)
    assert database.rows == [("a", 2 if at else 100)]


@pytest.mark.parametrize("value", ["2026-06-01", "2026-06-01 00:00:00", "2026-06-01T00:00:00.000000", 1780272000])
def test_sqlite_refuses_a_time_in_another_form_at_the_start(tmp_path: Path, value: object) -> None:
    path, type_ = tmp_path / "t.db", pa.timestamp("us", "UTC")
    run(
        path,
        "CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER, at DATETIME)",
        f"INSERT INTO t VALUES ('a', 1, {value!r})",
    )
    table = open_sink(f"sqlite:///{path}", SPEC)
    schema = events(type_=type_).rows.schema
    for start in (table.check, table.compare):
        with pytest.raises(SchemaMismatch, match=f"the table t has a row with {value!r} in at"):
            start(schema)
    with pytest.raises(SchemaMismatch, match="cannot be compared with a timestamp"):
        table.apply(events(Event("a", 2, FIRST), type_=type_))
    assert look(path, "SELECT n FROM t") == [(1,)]
    table.apply(events(Event("b", 2, FIRST), type_=type_))  # no such row
    table.close()


def test_postgres_refuses_a_column_whose_values_are_respelled(place: Place) -> None:
    first = "0189c6f0-0000-7000-8000-00000000000"
    place.run("CREATE TABLE t (id text PRIMARY KEY, n bigint, at uuid)", f"INSERT INTO t VALUES ('a', 1, '{first}a')")
    table, event = place.sink(SPEC), events(Event("a", 2, f"{first}B"), type_=pa.string())
    for start in (table.check, table.compare):
        with pytest.raises(SchemaMismatch, match=f"the table t has a row with the value {first}a in at"):
            start(event.rows.schema)
    with pytest.raises(SchemaMismatch, match="cannot be compared with a string"):
        table.apply(event)
    table.apply(events(Event("b", 2, f"{first}B"), type_=pa.string()))
    table.close()


def test_where_sequence_by_is_no_column_it_is_said_how_many_rows_do_not_count(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.make("bigint", "'a', 100, 50", "'b', 100, 50")
    table, schema = database.open(replace(SPEC, sequence_by="at + 0")), events().rows.schema
    assert compared(table, schema).uncounted == 2
    with caplog.at_level(logging.WARNING, logger="leasehold"):
        table.check(schema)
    assert "t has rows of whose keys no event is known yet (2), and sequence_by (at + 0) names no column" in caplog.text
    assert counts(table.apply(events(Event("a", 1, 40)))) == (1, 0)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="leasehold"):
        table.check(schema)
    assert (caplog.text, compared(table, schema).uncounted) == ("", 0)


@pytest.mark.parametrize("written", ["AT", "`at`", "`At`"])
def test_a_column_is_named_as_spark_takes_it(database: Database, written: str) -> None:
    database.make("bigint", "'a', 100, 50")
    assert counts(database.open(replace(SPEC, sequence_by=written)).apply(events(Event("a", 1, 40)))) == (0, 1)


def in_turn(rows: dict[str, tuple[int, int | None]], batches: Sequence[Sequence[Event]]) -> tuple[dict[str, int], int]:
    """What the rows come to (`n` by key), and how many events are superseded: one event after the other."""
    left = {key: n for key, (n, _) in rows.items()}
    known = {key: (at, "", -1) for key, (_, at) in rows.items() if at is not None}
    superseded = 0
    for some in batches:
        for one in sorted(some, key=lambda event: (event.partition, event.number)):
            claim = (one.at, one.partition, one.number)
            if one.id in known and claim < known[one.id]:
                superseded += 1
                continue
            known[one.id] = claim
            left[one.id] = one.n
            if one.gone:
                del left[one.id]
    return left, superseded


@pytest.mark.more
@pytest.mark.parametrize("way", ["plain", "deletes", "constraints"])
def test_any_batches_come_out_as_one_event_after_the_other(database: Database, way: str) -> None:
    """In Postgres each way of a batch: the last rows of keys, all rows at once, and row by row."""
    database.make("bigint", more="" if way != "constraints" else ", other bigint DEFAULT 1 CHECK (other > 0)")
    for seed in range(12):
        chance, table = Random(seed), database.open(SPEC)
        database.run("DELETE FROM t")
        table.set_watermarks("h", {"0": Watermark(BEFORE_FIRST, 1), "1": Watermark(BEFORE_FIRST, 1)}, anew=True)
        rows = {key: (100 + seed, chance.choice([None, 2, 4, 6])) for key in chance.sample("abcdefgh", 5)}
        for key, (n, at) in rows.items():
            database.run(f"INSERT INTO t (id, n, at) VALUES ('{key}', {n}, {'NULL' if at is None else at})")
        batches: list[list[Event]] = [[] for _ in range(3)]
        for number in range(chance.randrange(3, 16)):
            gone = way == "deletes" and chance.random() < 0.3
            its = chance.choice("abcdefgh"), number, chance.randrange(8), number, chance.choice("01"), gone
            batches[min(number // 5, 2)].append(Event(*its))
        superseded = sum(table.apply(events(*some, deletes=way == "deletes")).superseded for some in batches)
        assert (dict(database.rows), superseded) == in_turn(rows, batches), f"seed {seed}"


@pytest.mark.more
def test_writers_at_once_compare_with_the_row_under_the_lock_of_its_key(place: Place) -> None:
    keys = [f"k{number}" for number in range(50)]
    rows = ", ".join(f"('{key}', 0, 10)" for key in keys)
    place.run("CREATE TABLE t (id text PRIMARY KEY, n bigint, at bigint)", f"INSERT INTO t VALUES {rows}")
    given = [
        [Event(key, writer, 8 + writer, number, str(writer)) for number, key in enumerate(keys)] for writer in range(4)
    ]
    results: list[BatchResult] = []

    def write(some: Sequence[Event]) -> None:
        table = place.sink(SPEC)
        results.extend(table.apply(events(one)) for one in some)
        table.close()

    threads = [Thread(target=write, args=(some,)) for some in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(results) == 4 * len(keys)
    assert place.look("SELECT DISTINCT n, at FROM t") == [(3, 11)]
    assert sum(result.superseded for result in results) >= 2 * len(keys)  # of the writers 0 and 1, all
