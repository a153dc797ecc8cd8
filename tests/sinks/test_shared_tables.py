"""The tables that all entity tables of a database share are what `sinks.beside.tables` says, in each database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.database.tables import Kind, Table
from leasehold.sinks.beside.tables import ALL_SHARED, WHEN_NEEDED
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.fixtures import UPSERT
from tests.sinks.events import E, batch
from tests.sinks.postgres import FLIGHTS, Place

ON_SQLITE: dict[Kind, str] = {
    "text": "TEXT",
    "bigint": "INTEGER",
    "boolean": "INTEGER",
    "double precision": "REAL",
    "timestamptz": "TEXT",
    "bytea": "BLOB",
}
ON_POSTGRES = {"timestamp with time zone": "timestamptz"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A SQLite file in which all of them were made."""
    sink = SqliteSink(tmp_path / "t.db", UPSERT)
    sink._access.changed(lambda transaction: None, *WHEN_NEEDED)
    sink.close()
    return tmp_path / "t.db"


@pytest.mark.parametrize("table", ALL_SHARED, ids=lambda table: table.name)
def test_sqlite_makes_them(file: Path, table: Table) -> None:
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute(
            'SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table.name,)
        ).fetchall()
        indexes = [
            f"{name}({columns})"
            for name, columns in connection.execute(
                "SELECT i.name, group_concat(c.name) FROM sqlite_master AS i JOIN pragma_index_info(i.name) AS c "
                "WHERE i.type = 'index' GROUP BY i.name"
            )
        ]
    assert [(name, declared) for name, declared, _, _ in found] == [
        (name, ON_SQLITE[kind]) for name, kind in table.columns.items()
    ]
    assert {name for name, _, needed, _ in found if not needed} - {table.numbered} == table.nullable
    primary = (table.numbered,) if table.numbered else table.key
    assert [name for name, *_, place in sorted(found, key=lambda one: one[3]) if place] == [*primary]
    assert {f"{index.name}({','.join(index.columns)})" for index in table.indexes} <= {*indexes}


@pytest.mark.parametrize("table", ALL_SHARED, ids=lambda table: table.name)
def test_postgres_has_their_columns_and_keys(place: Place, table: Table) -> None:
    place.sink(UPSERT).make_tables()
    its = f"table_schema = '{place.schema}' AND table_name = '{table.name}'"
    found = place.look(f"SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE {its}")
    kinds = {name: ON_POSTGRES.get(type_, type_) for name, type_, _ in found}
    assert kinds == table.columns
    assert {name for name, _, nullable in found if nullable == "YES"} == table.nullable
    key = place.look(
        "SELECT column_name FROM information_schema.key_column_usage JOIN information_schema.table_constraints "
        f"USING (table_schema, table_name, constraint_name) WHERE {its} AND constraint_type = 'PRIMARY KEY'"
    )
    assert {name for (name,) in key} == ({table.numbered} if table.numbered else {*table.key})
    indexes = place.look(f"SELECT indexname FROM pg_indexes WHERE schemaname = '{place.schema}'")
    assert {index.name for index in table.indexes} <= {name for (name,) in indexes}


def test_a_table_that_an_earlier_build_made_beside_them_is_left_alone(place: Place) -> None:
    place.run(
        "CREATE UNLOGGED TABLE leasehold_staged (batch text NOT NULL)", "INSERT INTO leasehold_staged VALUES ('b')"
    )
    sink = place.sink(FLIGHTS)
    assert sink.make_tables()
    assert not sink.make_tables()
    assert sink.apply(batch([E("a")])).applied == 1
    assert place.look("SELECT batch FROM leasehold_staged") == [("b",)]
    sink.close()
