"""Rows of related tables: written with the state or not at all, and what the database refuses parks its event alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import psycopg
import pytest

from leasehold.errors import ConfigError, SinkError, UsageError
from leasehold.handlers.answers import Effects, Gone, Row
from leasehold.handlers.contract import Delete, EntityEvent, HandlerFailed, Skip, entity
from leasehold.handlers.table import Retries
from leasehold.operations.checking_table import look_at_related
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.table_spec import TableSpec
from tests.handlers.batches import overtaken_once
from tests.handlers.related_bench import TABLES, Bench, bench, sqlite_bench
from tests.sinks.postgres import Place, place_on

__all__ = ["bench"]

LINE = ["order_id", "line"]


def line(order: str, number: int, sku: str | None = None, **more: Any) -> Row:
    return Row("lines", {"order_id": order, "line": number, "sku": sku or f"{order}{number}", **more}, keys=LINE)


def gone(order: str, number: int) -> Gone:
    return Gone("lines", {"order_id": order, "line": number})


def test_rows_are_written_with_the_state_in_the_order_of_events(bench: Bench) -> None:
    table = bench.table()
    bench.answers = {
        1: [line("a", 1, "x"), line("a", 2, "y")],
        2: [gone("a", 1), line("a", 3, "x")],  # makes room for it
        3: [line("a", 2, "z", note="new"), gone("a", 9)],
        4: [line("b", 1, "y")],  # so does another event, of another entity
        5: [Row("lines", {"order_id": "a", "line": 2}, keys=LINE)],
    }
    bench.give(table, ("a", 1), ("a", 2), ("a", 3), ("b", 4), ("a", 5))
    assert bench.lines() == [("a", 2, "z"), ("a", 3, "x"), ("b", 1, "y")]
    assert bench.look("SELECT note FROM lines ORDER BY order_id, line") == [("new",), ("none",), ("none",)]
    assert bench.totals() == {"a": 4, "b": 1}
    assert bench.calls == [1, 2, 3, 4, 5]
    assert bench.look("SELECT 1 FROM orders_rejected") == []


def test_an_entity_may_come_and_go_with_its_rows(bench: Bench) -> None:
    answers = {1: Effects({"total": 1}, [line("a", 1)]), 2: Effects(Delete(), [gone("a", 1)]), 3: Delete()}

    @entity(keys=["order_id"])
    def order(state: Any, event: EntityEvent) -> Any:
        return answers.get(event.row["what"], Effects(Skip(), [line("a", 7)]))

    table = bench.table(handler=order)
    bench.give(table, ("a", 1), ("a", 2))
    assert (bench.lines(), bench.totals()) == ([], {})
    bench.give(table, ("a", 1), ("a", 4), ("a", 3), ("b", 4))
    assert bench.lines() == [("a", 1, "a1"), ("a", 7, "a7")]
    assert bench.totals() == {"a": 1}, "its deletion is refused, and its lines stay"
    (deletion,) = bench.parked()
    assert deletion[:2] == (4, 1)
    assert "foreign key" in deletion[2].lower()


def test_two_entities_that_want_one_value(bench: Bench) -> None:
    """The later one is parked from the event on that fails; what came before it, and the others, go through."""
    table = bench.table(retries=Retries(first=5.0))
    bench.answers = {1: [line("a", 1, "x")], 2: [line("b", 1)], 3: [line("b", 2, "x")], 4: [line("b", 3)]}
    bench.give(table, ("a", 1), ("b", 2), ("b", 3), ("b", 4), ("c", 5))
    assert bench.lines() == [("a", 1, "x"), ("b", 1, "b1")]
    assert bench.totals() == {"a": 1, "b": 1, "c": 1}
    (refused, behind) = bench.parked()
    assert refused[0] == 2
    assert refused[2].startswith("RowsRefused: ")
    assert "unique" in refused[2].lower()
    assert behind == (3, 0, "")
    bench.clock.advance(20)
    bench.give(table)
    assert [one[0] for one in bench.parked()] == [2, 3], "still taken"
    bench.run("UPDATE lines SET sku = 'other' WHERE order_id = 'a'")
    bench.clock.advance(100)
    bench.give(table)
    assert bench.parked() == []
    assert bench.lines() == [("a", 1, "other"), ("b", 1, "b1"), ("b", 2, "x"), ("b", 3, "b3")]
    assert bench.totals() == {"a": 1, "b": 3, "c": 1}


def test_what_is_refused_to_the_last_is_set_aside_with_the_reason(bench: Bench) -> None:
    table = bench.table(on_failure="discard")
    bench.answers = {1: [line("nobody", 1)], 2: [line("a", 1)]}
    bench.give(table, ("a", 1), ("a", 2))
    assert bench.lines() == [("a", 1, "a1")]
    assert bench.totals() == {"a": 1}
    ((number, reason),) = bench.look("SELECT sequence_number, reason FROM orders_rejected")
    assert number == 0
    assert "foreign key" in reason.lower()


def test_a_partition_may_wait_for_it(bench: Bench) -> None:
    table = bench.table(on_failure="wait")
    bench.run("INSERT INTO orders VALUES ('z', 0)", "INSERT INTO lines VALUES ('z', 1, 'x', '')")
    bench.answers = {1: [line("a", 1)], 2: [line("b", 1, "x")]}
    with pytest.raises(HandlerFailed, match="RowsRefused"):
        bench.give(table, ("a", 1), ("b", 2), ("c", 3))
    assert bench.totals() == {"a": 1, "z": 0}
    bench.run("DELETE FROM lines WHERE order_id = 'z'")
    bench._next["0"] = 0
    bench.give(table, ("a", 1), ("b", 2), ("c", 3))
    assert bench.totals() == {"a": 1, "b": 1, "c": 1, "z": 0}


@pytest.mark.more(but=3)
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            Row("lines", {"order_id": "a", "line": 1, "price": 3}, keys=LINE),
            "lines has no column price; it has",
        ),
        (
            Row("lines", {"order_id": "a", "line": 1}, keys=["order_id"]),
            "no unique index on just order_id: CREATE",
        ),
        (
            Row("others", {"id": 1}, keys=["id"]),
            r'no related table: name it in HandledTable\(state=Writes\(…, related=\["others"\]\)\)',
        ),
        (Gone("lines", {"id": 1}), "lines has no column id"),
        (line("a", 1, "\ud800"), ""),
        (Row("lines", {"order_id": "a", "line": 2**70}, keys=LINE), ""),
    ],
)
def test_rows_that_cannot_be_written_fail_their_event_alone(bench: Bench, row: Any, said: str) -> None:
    table = bench.table(on_failure="discard")
    bench.answers = {1: [row]}
    bench.give(table, ("a", 1), ("b", 2))
    assert bench.totals() == {"b": 1}
    ((reason,),) = bench.look("SELECT reason FROM orders_rejected")
    assert re.search(said, reason), reason


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (["none"], "no such table beside orders"),
        (["orders"], "Leasehold's own, or the handler's"),
        (["leasehold_table"], "Leasehold's own"),
        ("lines", r'Write related=\["lines"\]'),
    ],
)
def test_related_tables_that_may_not_be(bench: Bench, tables: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        bench.table(related=tables)


@pytest.mark.more
def test_related_tables_of_other_schemas(place: Place) -> None:
    """The name of a row is the one that `related` has, with the schema; a name alone is beside the entity table."""
    with place_on(place.server) as other:
        bench = Bench(place.url, place.look, place.run)
        bench.run(*TABLES)
        other.run("CREATE TABLE lines (id bigint PRIMARY KEY)", 'CREATE TABLE "orders" (id bigint PRIMARY KEY)')
        there = [f"{other.schema}.lines", f'"{other.schema}".orders']
        table = bench.table(related=["lines", *there])
        elsewhere = [Row(name, {"id": number}, keys=["id"]) for number, name in enumerate(there)]
        bench.answers = {1: [line("a", 1), *elsewhere], 2: [Gone(there[0], {"id": 0}), line("a", 2)]}
        bench.give(table, ("a", 1))
        assert (bench.lines(), other.look("SELECT id FROM lines")) == ([("a", 1, "a1")], [(0,)])
        bench.give(table, ("a", 2))
        assert (len(bench.lines()), other.look("SELECT id FROM lines")) == (2, [])
        assert other.look("SELECT id FROM orders") == [(1,)]
        (one, *_) = look_at_related(table.sink, there, "driver")
        assert one.said == f"{there[0]} has the columns id; keys=[…] of a Row may be (id)", one
        for name, said in (
            (f"{place.schema}.orders", "or the handler's"),
            (f'"{place.schema}".orders_rejected', "or the handler's"),
            (f"{other.schema}.leasehold_table", "Leasehold's own"),
            (f"{other.schema}.none", "no such table"),
            (f"{place.schema}_not.lines", "no such table"),
            ("a.b.c", r"a table is NAME or SCHEMA\.NAME"),
        ):
            with pytest.raises(ConfigError, match=said):
                bench.table(related=[name])
        bench.close()


def test_related_tables_beside_a_table_of_another_schema(place: Place) -> None:
    with place_on(place.server) as other:
        bench = Bench(place.url, other.look, other.run)
        bench.run(*TABLES)
        table = bench.table(table=f"{other.schema}.orders", related=["lines"])
        bench.answers = {1: [line("a", 1)]}
        bench.give(table, ("a", 1))
        assert (bench.lines(), bench.totals()) == ([("a", 1, "a1")], {"a": 1})
        assert place.look(f"SELECT 1 FROM pg_class WHERE relnamespace = '{place.schema}'::regnamespace") == []
        bench.close()


def test_a_related_table_of_sqlite_has_no_schema(tmp_path: Path) -> None:
    bench = sqlite_bench(tmp_path)
    bench.run(*TABLES, 'CREATE TABLE "a.b" (id INTEGER PRIMARY KEY)')
    with pytest.raises(ConfigError, match="SQLite has no schemas"):
        bench.table(related=["main.lines"])
    table = bench.table(related=['"a.b"'])
    bench.answers = {1: [Row('"a.b"', {"id": 7}, keys=["id"])], 2: [Gone('"a.b"', {"id": 7})]}
    bench.give(table, ("a", 1))
    assert bench.look('SELECT id FROM "a.b"') == [(7,)]
    bench.give(table, ("a", 2))
    assert bench.look('SELECT id FROM "a.b"') == []
    bench.close()


def test_arrays_and_enums_of_a_related_table(place: Place) -> None:
    """A list is an array there; what an element or a label cannot be fails its event alone, with the labels."""
    bench = Bench(place.url, place.look, place.run)
    place.run(
        *TABLES,
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE notes (id mood PRIMARY KEY, moods mood[], tags varchar(4)[], sizes smallint[], days date[], "
        "sums numeric(6,2)[], raw inet[])",
    )
    table = bench.table(related=["notes"], on_failure="discard")

    def note(mood: Any, **values: Any) -> Row:
        return Row("notes", {"id": mood, **values}, keys=["id"])

    every = {"moods": ["sad", None], "tags": ['"\\', "{,}", "", "NULL"], "sizes": [-1, None, 2.0], "raw": ["10.0.0.1"]}
    bench.answers = {
        1: [note("sad", **every, days=[date(2026, 1, 31)], sums=[Decimal("1.50"), 7])],
        2: [note("happy", tags=[], moods=None, sizes="{1,2}")],
        3: [note("glad")],
        4: [note("sad", moods=["glad"])],
        5: [note("sad", tags=["fours"])],
        6: [note("sad", sizes=[70_000])],
        7: [note("sad", sums=[0.1])],
        8: [note("sad", sizes=[[1]])],
        9: [Gone("notes", {"id": "happy"}), note("sad", sizes=[3])],
    }
    bench.give(table, *((f"o{number}", number) for number in (1, 2, 3, 4, 5, 6, 7, 8)))
    look = "SELECT id::text, moods::text[], tags, sizes, days, sums, raw::text[] FROM notes ORDER BY notes.id"
    rest = ([date(2026, 1, 31)], [Decimal("1.50"), Decimal("7.00")], ["10.0.0.1/32"])
    assert bench.look(look) == [
        ("sad", ["sad", None], ['"\\', "{,}", "", "NULL"], [-1, None, 2], *rest),
        ("happy", None, [], [1, 2], None, None, None),
    ]
    reasons = [reason for (reason,) in bench.look("SELECT reason FROM orders_rejected ORDER BY sequence_number")]
    labels, no = "; its labels are sad, happy", "has an element that is"
    for reason, said in zip(
        reasons,
        (labels, labels, f'tags {no} "fours"', f"sizes {no} 70000", f"sums {no} 0.1, a float", f"sizes {no} an array"),
        strict=True,
    ):
        assert said in reason, reason
    bench.give(table, ("o9", 9))
    assert bench.look("SELECT id::text, sizes FROM notes") == [("sad", [3])]
    (one,) = look_at_related(table.sink, ["notes"], "driver")
    assert one.ok, one.said
    bench.close()


INNER = "CREATE FUNCTION inner_one(s text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT lower($1)'"
OUTER = (
    "CREATE FUNCTION outer_one(s text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN inner_one(s); END'",
    "CREATE FUNCTION on_row() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM inner_one('x'); RETURN NULL; END$$",
)
RUNS = {
    "an index": "CREATE INDEX ON lines (outer_one(sku))",
    "a default": "ALTER TABLE lines ADD low text DEFAULT outer_one('x')",
    "a trigger of inserts": "CREATE TRIGGER t AFTER INSERT ON lines FOR EACH ROW EXECUTE FUNCTION on_row()",
    "a trigger of updates": "CREATE TRIGGER t AFTER UPDATE ON lines FOR EACH ROW EXECUTE FUNCTION on_row()",
    "a trigger of deletions": "CREATE TRIGGER t AFTER DELETE ON lines FOR EACH ROW EXECUTE FUNCTION on_row()",
}


@pytest.mark.more(but=5)
@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("rows", [1, 0])
def test_a_check_writes_a_row_of_a_related_table_on_trial(place: Place, runs: str, rows: int) -> None:
    place.run(*TABLES, INNER, *OUTER)
    finding = [f"ALTER FUNCTION {one} SET search_path = {place.schema}" for one in ("outer_one(text)", "on_row()")]
    if rows:
        place.run("INSERT INTO orders VALUES ('a')", "INSERT INTO lines VALUES ('a', 1, 'x')")
    place.run(*finding, RUNS[runs], *(one.partition(" SET ")[0] + " RESET ALL" for one in finding))
    before = place.look("SELECT * FROM lines")
    sink = PostgresSink(place.url, TableSpec(name="orders", pipeline="p", keys=["order_id"]))
    (one,) = look_at_related(sink, ["lines"], "driver")
    if rows or "trigger" not in runs:
        assert not one.ok
        assert re.search(r"lines: .*inner_one.*does not exist.*ALTER FUNCTION .* SET search_path", one.said)
    place.run(*finding)
    (one,) = look_at_related(sink, ["lines"], "driver")
    assert one.ok, one.said
    assert place.look("SELECT * FROM lines") == before
    sink.close()


def test_a_check_of_a_related_table_takes_no_number_and_finds_a_publication(place: Place) -> None:
    place.run(
        "CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY, no serial, at timestamptz DEFAULT now(), "
        "body jsonb, tags text[], name text UNIQUE NOT NULL)",
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER t AFTER INSERT ON notes FOR EACH ROW EXECUTE FUNCTION nothing()",
        "INSERT INTO notes (name, body, tags) VALUES ('a', '{}', '{x,y}')",
    )
    sink = PostgresSink(place.url, TableSpec(name="orders", pipeline="p", keys=["order_id"]))
    before = place.look("SELECT * FROM notes")
    for _ in range(2):
        (one,) = look_at_related(sink, ["notes"], "driver")
        assert one.ok, one.said
    assert place.look("SELECT * FROM notes") == before
    place.run("INSERT INTO notes (name) VALUES ('b')")
    assert place.look("SELECT id, no FROM notes WHERE name = 'b'") == [(2, 2)]
    place.run(f"CREATE PUBLICATION {place.schema} FOR TABLE notes")
    (one,) = look_at_related(sink, ["notes"], "driver")
    assert (one.ok, "REPLICA IDENTITY" in one.said) == (False, True)
    place.run(f"DROP PUBLICATION {place.schema}")
    sink.close()


def test_a_check_names_the_rights_that_a_user_of_postgres_lacks(place: Place) -> None:
    place.run(*TABLES)
    role = f"reader_{place.schema}"
    place.run(f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    sink = PostgresSink(
        place.url.replace("postgres:@", f"{role}@"), TableSpec(name="orders", pipeline="p", keys=["order_id"])
    )

    def found() -> tuple[bool | None, str, str]:
        (one,) = look_at_related(sink, ["lines"], "driver")
        return one.ok, one.said, one.remedy

    assert found() == (
        False,
        "lines: this user has no SELECT, INSERT, UPDATE, DELETE on it",
        "GRANT SELECT, INSERT, UPDATE, DELETE",
    )
    place.run(f"GRANT SELECT, INSERT, UPDATE ON lines TO {role}")
    ok, said, _ = found()
    assert ok
    assert "keys=[…] of a Row may be (line, order_id) or (sku)" in said
    assert "may not delete from it" in said
    place.run(f"GRANT DELETE ON lines TO {role}")
    assert "may not" not in found()[1]
    sink.close()
    place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Row("t", {"a": 1}, keys=[]),
        lambda: Row("t", {"a": 1}, keys="a"),
        lambda: Row("t", {"a": None}, keys=["a"]),
        lambda: Row("t", {"b": 1}, keys=["a"]),
        lambda: Row("", {"b": 1}, keys=["b"]),
        lambda: Row("t", {"b": object()}, keys=["b"]),
        lambda: Row("t", {"b": 1, "c": [object()]}, keys=["b"]),
        lambda: Gone("t", {}),
        lambda: Gone("t", {"a": None}),
        lambda: Gone("t", [1]),  # type: ignore[arg-type]
    ],
)
def test_rows_that_make_no_sense(wrong: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_values_of_every_kind(bench: Bench) -> None:
    bench.run(
        'CREATE TABLE "wide %s ""x" (id BIGINT PRIMARY KEY, yes BOOLEAN, exact DECIMAL(9,2), ratio DOUBLE PRECISION, '
        "day DATE, moment TIMESTAMP, raw BLOB, doc TEXT, empty TEXT)".replace(
            "BLOB", "BLOB" if bench.url.startswith("sqlite") else "BYTEA"
        )
    )
    name = 'wide %s "x'
    values = {
        "id": 1,
        "yes": True,
        "exact": Decimal("12.50"),
        "ratio": 0.1,
        "day": date(2026, 2, 3),
        "moment": datetime(2026, 2, 3, 4, 5, 6),
        "raw": b"\0\xff",
        "doc": {"a": [1, "ä"]},
        "empty": None,
    }
    bench.answers = {1: [Row(name, values, keys=["id"])], 2: [Row(name, {"id": 1, "yes": False}, keys=["id"])]}
    table = bench.table(related=[name])
    bench.give(table, ("a", 1), ("a", 2))
    (found,) = bench.look('SELECT id, yes, raw, doc, ratio, empty FROM "wide %s ""x"')
    assert found == (1, False, b"\0\xff", '{"a":[1,"ä"]}', 0.1, None)
    assert bench.look('SELECT 1 FROM "wide %s ""x" WHERE exact = 12.50') == [(1,)]


EAST = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=5)))
LONG = Decimal("12345678901234567890.5")
ALTERED: list[tuple[str, Any, str | None, str | None]] = [
    ("INTEGER", 1.5, "is 1.5, which is not an INT", "is 1.5, which is not a BIGINT"),
    ("INTEGER", Decimal("1.5"), "is 1.5, which is not an INT", "is 1.5, which is not a BIGINT"),
    ("INTEGER", b"x", "which is not an INT", "which is not a BIGINT"),
    ("INTEGER", "007", 'is "007", which is not an INT', 'is "007", which is not a BIGINT'),
    ("REAL", 1e300, "is 1e+300, which no FLOAT holds", None),
    ("REAL", "1e3", "which is not a FLOAT", "which is not a DOUBLE"),
    ("TEXT", 5, "is 5, which is not a STRING", "is 5, which is not a STRING"),
    ("TEXT", True, "is true, which is not a STRING", "is true, which is not a STRING"),
    ("VARCHAR(3)", "abcdef", "too long", None),
    ("CHAR(3)", "abcdef", "too long", None),
    ("NUMERIC(5,2)", Decimal("1.005"), "is 1.005, which no DECIMAL(5,2) holds", None),
    ("NUMERIC(5,2)", "1.005", 'is "1.005", which no DECIMAL(5,2) holds', "a text of which the column makes a number"),
    ("NUMERIC", 0.1, "is 0.1, a float, which is not the number that was meant", None),
    ("NUMERIC", LONG, None, "and the column keeps 15 digits: declare it as TEXT"),
    ("NUMERIC(50,1)", Decimal("0.05"), "which no DECIMAL(50,1) holds", None),
    ("DATE", EAST, "which is not a DATE", None),
    ("TIMESTAMP", EAST, "which has a zone, and a TIMESTAMP_NTZ has none", None),
    ("TIMESTAMP", "2026-01-01T02:00:00+05:00", "which is not a TIMESTAMP_NTZ such as", None),
    ("TIMESTAMP(0)", datetime(2026, 1, 1, 2, 3, 4, 500_000), "finer than a timestamp(0) without time zone holds", None),
    ("TIMESTAMP", pd.Timestamp("2026-01-01 00:00:00.000000001"), "finer than the microseconds", "finer than the micro"),
    ("VARCHAR(3)", "ab  ", 'is "ab  ", which is too long for a character varying(3)', None),
    ("NUMERIC(100,2)", Decimal("1.005"), "is 1.005, which no numeric(100,2) holds", None),
    ("TIME", "12:00:00.1234567", "finer than a time without time zone holds", None),
    ("TIME(0)", "12:00:00.7", 'is "12:00:00.7", which is finer than a time(0) without time zone holds', None),
    ("TIME(1)", "12:00:00.7000", None, None),
    ("BOOLEAN", 2, "is 2, which is not a BOOLEAN", None),
]
"""Types of columns, values, and what is said of them by Postgres' rules and SQLite's; None where the value is kept."""


@pytest.mark.more(but=3)
@pytest.mark.parametrize("case", range(len(ALTERED)))
def test_a_value_that_its_column_would_alter_fails_its_event_alone(bench: Bench, case: int) -> None:
    declared, value, in_postgres, in_sqlite = ALTERED[case]
    said = in_sqlite if bench.url.startswith("sqlite") else in_postgres
    bench.run(f"CREATE TABLE things (id BIGINT PRIMARY KEY, v {declared})")
    table = bench.table(related=["things"], on_failure="discard")
    bench.answers = {1: [Row("things", {"id": 1, "v": value}, keys=["id"])]}
    bench.give(table, ("a", 1), ("b", 2))
    assert bench.totals() == ({"a": 1, "b": 1} if said is None else {"b": 1})
    if said is not None:
        assert bench.look("SELECT v FROM things") == []
        ((reason,),) = bench.look("SELECT reason FROM orders_rejected")
        assert said in reason


def test_tens_of_postgres_are_whole_tens(place: Place) -> None:
    bench = Bench(place.url, place.look, place.run)
    try:
        bench.run(*TABLES, "CREATE TABLE things (id BIGINT PRIMARY KEY, v NUMERIC(5,-2))")
    except psycopg.errors.InvalidParameterValue:
        pytest.skip("before Postgres 15 there are no such columns")
    table = bench.table(related=["things"], on_failure="discard")
    numbers = [0, Decimal("1.2E+3"), 300, 123]
    bench.answers = {n: [Row("things", {"id": n, "v": one}, keys=["id"])] for n, one in enumerate(numbers)}
    bench.give(table, *((str(n), n) for n in range(4)))
    assert bench.look("SELECT v FROM things ORDER BY id") == [(0,), (1200,), (300,)]
    ((reason,),) = bench.look("SELECT reason FROM orders_rejected")
    assert "is 123, which no numeric(5,-2) holds" in reason
    bench.close()


def test_values_of_numpy_and_pandas_and_kinds_of_bytes(bench: Bench) -> None:
    """As in a state; what is not a number or a time there is no value, and so no key either."""
    raw = "BLOB" if bench.url.startswith("sqlite") else "BYTEA"
    bench.run(
        "CREATE TABLE things (id BIGINT PRIMARY KEY, yes BOOLEAN, r DOUBLE PRECISION, n NUMERIC(20), t TIMESTAMP, "
        f"b {raw}, c {raw})"
    )
    values = {"yes": np.bool_(True), "r": np.float32(0.5), "t": pd.NaT, "b": bytearray(b"b"), "c": memoryview(b"c")}
    given = {"id": np.int64(7), "n": Decimal(10**16 + 1), **values}
    bench.answers = {1: [Row("things", given, keys=["id"])]}
    bench.give(bench.table(related=["things"]), ("a", 1))
    assert bench.look("SELECT id, yes, r, n, t, b, c FROM things") == [(7, True, 0.5, 10**16 + 1, None, b"b", b"c")]
    for nothing in (float("nan"), pd.NaT):
        with pytest.raises(UsageError, match="the key id is missing or None"):
            Row("things", {"id": nothing}, keys=["id"])
        with pytest.raises(UsageError, match="id is None, and nothing equals that"):
            Gone("things", {"id": nothing})


def test_values_come_back_as_they_were_given(bench: Bench) -> None:
    """Numbers by their value, whatever SQLite has them in."""
    columns = {"i": "INTEGER", "r": "DOUBLE PRECISION", "n": "NUMERIC(5,2)", "t": "CHAR(3)", "c": "VARCHAR(3)"}
    bench.run(f"CREATE TABLE things (id BIGINT PRIMARY KEY, {', '.join(f'{c} {t}' for c, t in columns.items())})")
    values = {"i": 2.0, "r": 5, "n": Decimal("1.50"), "t": b"abc", "c": "abc"}
    gone = Gone("things", {"id": 2, "t": "abc", "c": "abc", "n": Decimal("1.5")})
    rows = [Row("things", {"id": n, **values}, keys=["id"]) for n in (1, 2)]
    bench.answers = {1: rows, 2: [gone]}
    bench.give(bench.table(related=["things"]), ("a", 1), ("a", 2))
    assert bench.look("SELECT id, i, r, n, t, c FROM things") == [(1, 2, 5.0, Decimal("1.5"), "abc", "abc")]


@pytest.mark.more
def test_a_spread_entity_that_has_moved_writes_the_rows_of_its_last_computation(bench: Bench) -> None:
    @entity(keys=["order_id"])
    def order(state: Any, event: EntityEvent) -> Any:
        total = (state["total"] if state else 0) + 1
        return Effects({"total": total}, [line(event.key, total, f"{event.key}-{event.row['what']}")])

    more = {"handler": order, "spread": True, "sequence_by": "what"}
    one, two = bench.table(**more), bench.table(**more)
    overtaken_once(one, lambda: bench.give(two, ("a", 2), partition="1"))
    bench.give(one, ("a", 1), ("b", 1), ("a", 3))
    assert bench.lines() == [("a", 1, "a-2"), ("a", 2, "a-1"), ("a", 3, "a-3"), ("b", 1, "b-1")]
    assert bench.totals() == {"a": 3, "b": 1}


@pytest.mark.more
def test_states_and_rows_that_are_there_take_no_number_of_a_sequence(place: Place) -> None:
    place.run(
        *TABLES,
        "ALTER TABLE lines ADD id bigint GENERATED ALWAYS AS IDENTITY",
        "CREATE SEQUENCE own",
        f"ALTER TABLE orders ADD id bigint DEFAULT nextval('{place.schema}.own')",
    )
    bench = Bench(place.url, place.look, place.run)
    table = bench.table()
    for time in range(3):
        bench.answers = {time: [line("a", 1, f"x{time}"), line("a", 2)]}
        bench.give(table, ("a", time))
    bench.answers = {9: [line("b", 1)]}
    bench.give(table, ("b", 9))
    assert bench.look("SELECT order_id, total, id FROM orders ORDER BY 1") == [("a", 3, 1), ("b", 1, 2)]
    assert bench.look("SELECT sku, id FROM lines ORDER BY 2") == [("x2", 1), ("a2", 2), ("b1", 3)]
    bench.close()


@pytest.mark.more
@pytest.mark.parametrize("table", ["orders", "lines"])
def test_a_number_that_its_column_does_not_take_stops_the_table(place: Place, table: str) -> None:
    """No event is to blame, so none is parked."""
    numbered = f"ALTER TABLE {table} ADD id smallint DEFAULT nextval('{place.schema}.own')"
    place.run(*TABLES, "CREATE SEQUENCE own START 70000", numbered)
    bench = Bench(place.url, place.look, place.run)
    bench.answers = {1: [line("a", 1)]}
    with pytest.raises(SinkError, match=f"the table {table} refuses what it gives its own column id"):
        bench.give(bench.table(), ("a", 1))
    assert (bench.parked(), bench.totals()) == ([], {})
    place.run(f"ALTER TABLE {table} ALTER id TYPE bigint")
    bench.give(bench.table(), ("a", 1))
    assert (bench.lines(), bench.totals()) == ([("a", 1, "a1")], {"a": 1})
    bench.close()


def test_a_default_that_its_column_does_not_take_stops_the_table(bench: Bench) -> None:
    bench.run("ALTER TABLE lines ADD COLUMN own integer DEFAULT 0 CHECK (own > 0)")
    bench.answers = {1: [line("a", 1)]}
    with pytest.raises(SinkError, match="the table lines refuses what it gives its own column own"):
        bench.give(bench.table(), ("a", 1))
    assert (bench.parked(), bench.totals()) == ([], {})


def test_a_column_that_a_row_leaves_out_is_its_events_fault(bench: Bench) -> None:
    """Another row has it: rows of related tables have the columns that the handler gives them."""
    bench.run("CREATE TABLE notes (id integer PRIMARY KEY, said text NOT NULL)")
    bench.answers = {
        1: [Row("notes", {"id": 1}, keys=["id"])],
        2: [Row("notes", {"id": 2, "said": "x"}, keys=["id"])],
    }
    bench.give(bench.table(related=["notes"]), ("a", 1), ("b", 2))
    assert (bench.look("SELECT id FROM notes"), bench.totals()) == ([(2,)], {"b": 1})
    assert [number for number, _, _ in bench.parked()] == [0]
