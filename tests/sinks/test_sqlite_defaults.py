"""What a table in SQLite gives rows by itself and refuses stops the table; what a row brings is the row's."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks import TableSpec
from leasehold.sinks.sqlite.blame import checks_of
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import E, batch, look, run

FLIGHTS = TableSpec(name="flights", pipeline="p", keys=("tail",))
EVERY = TableSpec(name="flights", pipeline="p", mode="append")
OWN = {
    "a CHECK": "own INTEGER DEFAULT 0 CHECK ( own > 0 )",
    "a CHECK with a name": """own INTEGER DEFAULT 0 CONSTRAINT "above 0" CHECK ("own" > (1 - 1))""",
    "a CHECK of two such columns": "own INTEGER DEFAULT 0, more INTEGER DEFAULT 1, CHECK (own > more) /* ) */",
    "no default, and a CHECK": "own TEXT CHECK (own IS NOT NULL)",
    "NOT NULL": "own INTEGER NOT NULL DEFAULT (nullif(1, 1))",
    "UNIQUE": "own INTEGER DEFAULT 7 UNIQUE",
    "a foreign key": "own TEXT DEFAULT 'none' REFERENCES regions (name)",
    "a foreign key to the primary key": "own TEXT DEFAULT 'none' REFERENCES regions",
    "an expression that raises": "own TEXT DEFAULT (json('no'))",
}
STRICT = {"a type": "own INTEGER DEFAULT 'x'"}
ROWS = {
    "a CHECK with a column of the row": """own INTEGER DEFAULT 0, CHECK ("own" > 0 OR "status" <> 'bad')""",
    "a generated column": "own INTEGER DEFAULT 0, low TEXT AS (nullif(status, 'bad')) NOT NULL",
    "an index with a column of the row": "own INTEGER DEFAULT 0, kind AS (status = 'c'), UNIQUE (own, kind)",
    "another column's foreign key": "own TEXT DEFAULT 'a' REFERENCES regions, FOREIGN KEY (status) REFERENCES regions",
    "a default of a bare word": "own TEXT DEFAULT a REFERENCES regions, FOREIGN KEY (status) REFERENCES regions",
    "another column's CHECK": "own INTEGER DEFAULT 0 CHECK (own = 0), slot2 INTEGER, CHECK (status <> 'bad')",
    "two checks of one name": "own INTEGER DEFAULT 1 CONSTRAINT ok CHECK (own), CONSTRAINT ok CHECK (status <> 'bad')",
}
WRITE = "CREATE TRIGGER fill AFTER INSERT ON flights BEGIN UPDATE flights SET own = {} WHERE tail = NEW.tail; END"
LATER = {
    "an index of some rows": ("own DEFAULT 1", "CREATE UNIQUE INDEX one ON flights (own) WHERE status IN ('a', 'bad')"),
    "a trigger, and UNIQUE": ("own TEXT UNIQUE", WRITE.format("replace(NEW.status, 'bad', 'a')")),
    "a trigger, and NOT NULL": ("own TEXT NOT NULL DEFAULT 'x'", WRITE.format("nullif(NEW.status, 'bad')")),
    "a trigger, and a CHECK": ("own TEXT CHECK (own <> 'bad')", WRITE.format("NEW.status")),
}


def made(folder: Path, own: str, strict: str = "") -> Path:
    path = folder / "table.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE regions (name TEXT PRIMARY KEY); INSERT INTO regions VALUES ('a'), ('c')"
        )
        connection.execute(f"CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT, slot INTEGER, {own}){strict}")
    return path


@pytest.mark.more(but=4)
@pytest.mark.parametrize("mode", ["upsert", "append"])
@pytest.mark.parametrize("own", [*OWN, *STRICT])
def test_what_the_table_gives_by_itself_stops_it_and_loses_nothing(tmp_path: Path, own: str, mode: str) -> None:
    path = made(tmp_path, OWN.get(own) or STRICT[own], " STRICT" if own in STRICT else "")
    sink = SqliteSink(path, EVERY if mode == "append" else FLIGHTS)
    events = batch([E("a"), E("b", number=1), E("c", number=2)])
    words = r"the table flights refuses what it gives its own column own.*nothing is lost"
    with pytest.raises(SinkError, match=words) as raised:
        sink.apply(events)
    assert not isinstance(raised.value, SinkUnavailable)
    assert sink.watermarks("h") == {}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE flights")
        connection.execute("CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT, slot INTEGER, own INTEGER)")
    assert sink.apply(events) == one_row_each(applied=3)
    sink.close()


@pytest.mark.parametrize("rule", ROWS)
def test_what_a_row_brings_rejects_it_alone(tmp_path: Path, rule: str) -> None:
    path = made(tmp_path, ROWS[rule])
    sink = SqliteSink(path, FLIGHTS)
    events = [E(tail, status=tail, number=number) for number, tail in enumerate(("a", "bad", "c"))]
    assert sink.apply(batch(events)) == one_row_each(applied=2, rejected=1)
    assert look(path, "SELECT sequence_number FROM flights_rejected") == [(1,)]
    sink.close()


@pytest.mark.parametrize("rule", LATER)
def test_what_is_made_of_a_row_in_such_a_column_rejects_it_alone(tmp_path: Path, rule: str) -> None:
    own, more = LATER[rule]
    path = made(tmp_path, own)
    run(path, more)
    sink = SqliteSink(path, FLIGHTS)
    events = [E(tail, status=tail, number=number) for number, tail in enumerate(("a", "bad", "c"))]
    assert sink.apply(batch(events)) == one_row_each(applied=2, rejected=1)
    assert look(path, "SELECT sequence_number FROM flights_rejected") == [(1,)]
    sink.close()


def test_a_row_that_others_of_the_table_refer_to_is_not_deleted(tmp_path: Path) -> None:
    path = made(tmp_path, "own TEXT NOT NULL DEFAULT 'c' REFERENCES flights (tail) ON DELETE SET NULL")
    run(path, "INSERT INTO flights (tail, own) VALUES ('c', 'c'), ('bad', 'c'), ('led', 'bad')")
    sink = SqliteSink(path, FLIGHTS)
    events = [E("a"), E("bad", number=1, gone=True), E("b", number=2)]
    assert sink.apply(batch(events, deletes=True)) == one_row_each(applied=2, rejected=1)
    sink.close()


def test_what_a_default_refers_to_in_the_table_itself_may_come_later(tmp_path: Path) -> None:
    path = made(tmp_path, "own TEXT DEFAULT 'c' REFERENCES flights")
    sink = SqliteSink(path, FLIGHTS)
    assert sink.apply(batch([E("a"), E("c", number=1), E("d", number=2)])) == one_row_each(applied=2, rejected=1)
    sink.close()


def test_a_trigger_that_breaks_a_rule_elsewhere_rejects_its_row(tmp_path: Path) -> None:
    """Its CHECK may have the words of one that the table itself has."""
    path = made(tmp_path, "own INTEGER DEFAULT 1 CHECK (own > 0)")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE elsewhere (own INTEGER CHECK (own > 0))")
        connection.execute(
            "CREATE TRIGGER note AFTER INSERT ON flights WHEN NEW.status = 'bad' "
            "BEGIN INSERT INTO elsewhere VALUES (0); END"
        )
    sink = SqliteSink(path, FLIGHTS)
    assert sink.apply(batch([E("a"), E("b", "bad", number=1)])) == one_row_each(applied=1, rejected=1)
    sink.close()


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("CREATE TABLE t (a CHECK(a>0), b CONSTRAINT x check ( b <> ')' ))", [(None, "a>0"), ("x", "b <> ')'")]),
        ('CREATE TABLE t (a, CONSTRAINT [my x] CHECK ((a) AND "b)" > 1), b)', [("my x", '(a) AND "b)" > 1')]),
        ("CREATE TABLE t (a -- CHECK (a)\n, b /* CHECK (b) */, \"CHECK\" TEXT, c DEFAULT 'CHECK (c)')", []),
        ("CREATE TABLE t AS SELECT 1", []),
    ],
)
def test_checks_are_found_in_what_made_the_table(made: str, found: list[tuple[str | None, str]]) -> None:
    assert list(checks_of(made)) == found
