"""Tables that are made, and tables that are there already."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError, SchemaMismatch
from leasehold.sinks.rules.table_name import TableName
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.shape import fits
from tests.sinks.events import SCHEMA, E, batch, look, run, sink

FENCE = {"hub": pa.string(), "partition": pa.string(), "sequenceNumber": pa.int64(), "ownerLevel": pa.int64()}


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema({**columns, **{name: type_ for name, type_ in FENCE.items() if name not in columns}})


def test_a_missing_table_is_made_from_the_columns(tmp_path: Path) -> None:
    table = sink(tmp_path / "a" / "b" / "t.db", keys=("b", "a"), keep=("partition", "sequencenumber"))
    table.check(
        schema(a=pa.int64(), b=pa.string(), c=pa.float64(), d=pa.binary(), e=pa.date32(), f=pa.list_(pa.int8()))
    )
    (made,) = look(tmp_path / "a" / "b" / "t.db", "SELECT sql FROM sqlite_master WHERE name = 'flights'")
    assert made[0] == (
        'CREATE TABLE "flights" ("a" INTEGER NOT NULL, "b" TEXT NOT NULL, "c" REAL, "d" BLOB, "e" TEXT, "f" TEXT, '
        '"partition" TEXT, "sequenceNumber" INTEGER, PRIMARY KEY ("a", "b"))'
    )


@pytest.mark.parametrize("name", ["select", 'a "quoted" one', "flüge ✈", "dot.ted", "[x]", "it's", "`b`", "%s ?1 :a"])
def test_any_name_will_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.db"
    text = str(TableName(name))
    table = sink(path, name=text, keys=(name,))
    it = batch([E("a"), E("b", number=1)])
    it = type(it)(it.rows.rename_columns([name, "order", "group", *SCHEMA.names[3:]]))
    assert table.apply(it).applied == 2
    assert table.row_count() == 2
    assert table.apply(it).replayed == 2
    assert sink(path, name=text, keys=(name,)).apply(it).replayed == 2


@pytest.mark.parametrize(
    "given",
    [
        {"name": "a\ud83d"},
        {"pipeline": "a\ud83d"},
        {"consumer_group": "\udcff"},
        {"keys": ("a\ud83d",)},
        {"sequence_by": "a\ud83d"},
    ],
)
def test_a_name_with_half_a_surrogate_pair_is_refused_before_the_database_is_asked(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="half a surrogate pair") as refused:
        sink(tmp_path / "t.db", **given).check(schema(tail=pa.string()))
    assert str(refused.value).isascii()


@pytest.mark.parametrize(("name", "type_"), [("partition", pa.int32()), ("sequenceNumber", pa.string())])
def test_a_column_of_the_fence_of_another_type_is_refused_before_there_is_a_row(
    tmp_path: Path, name: str, type_: pa.DataType
) -> None:
    """`leasehold check` finds it too, and not the first batch alone."""
    table = sink(tmp_path / "t.db")
    with pytest.raises(SchemaMismatch, match=f"{name} is of type {type_}, and has to be .*a name of its own"):
        table.compare(schema(tail=pa.string(), **{name: type_}))
    assert not (tmp_path / "t.db").exists()


def test_a_column_of_the_fence_that_the_table_has_otherwise_is_not_to_be_cast(tmp_path: Path) -> None:
    run(tmp_path / "t.db", "CREATE TABLE flights (tail TEXT PRIMARY KEY, partition INTEGER)")
    said = 'make the table flights anew with "partition" TEXT, or keep it under another name'
    with pytest.raises(SchemaMismatch, match=said):
        sink(tmp_path / "t.db", keep=("partition",)).check(schema(tail=pa.string()))


def test_a_column_of_the_fence_may_be_a_key(tmp_path: Path) -> None:
    table = sink(tmp_path / "t.db", keys=("Partition", "tail"), keep=("Partition",))
    table.apply(batch([E("a"), E("a", partition="1"), E("a", "last", number=1)]))
    rows = look(tmp_path / "t.db", 'SELECT tail, status, "partition" FROM flights ORDER BY rowid')
    assert rows == [("a", "last", "0"), ("a", "ok", "1")]


def test_columns_are_found_whatever_their_capitals(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    run(path, "CREATE TABLE FLIGHTS (Tail TEXT PRIMARY KEY, STATUS TEXT, Slot INTEGER)")
    table = sink(path, keys=("TAIL",))
    it = batch([E("a")])
    assert table.apply(type(it)(it.rows.rename_columns([name.upper() for name in SCHEMA.names]))).applied == 1
    assert sink(path, name="Flights").apply(it).replayed == 1
    assert look(path) == [("a", "ok", None)]


@pytest.mark.parametrize(
    ("made", "columns", "words"),
    [
        ("k TEXT PRIMARY KEY", {"v": pa.int64()}, 'v: is not in the table.*ADD COLUMN "v" INTEGER'),
        ("k TEXT PRIMARY KEY, w TEXT NOT NULL", {}, "w: is NOT NULL and has no default"),
        (
            "k TEXT PRIMARY KEY, v TEXT",
            {"v": pa.int64()},
            "v: is of type int64, and the table declares it TEXT: write it as STRING, as by CAST.v AS STRING. AS v, or "
            'make the table flights anew with "v" INTEGER',
        ),
        ("k TEXT PRIMARY KEY, v INTEGER", {"v": pa.string()}, "v: is of type string.*INTEGER: write it as BIGINT, as"),
        ("k TEXT PRIMARY KEY, v INT", {"v": pa.list_(pa.string())}, 'v: is of .* INT: make the table .* with "v" TEXT'),
        ("k TEXT PRIMARY KEY, v TEXT", {"v": pa.binary()}, "v: is of type binary.* by base64.v. AS v, or"),
        ("k TEXT PRIMARY KEY, v DECIMAL", {"v": pa.decimal128(20, 2)}, "v: is of .* write it as DECIMAL.15,2., as"),
        ("k TEXT PRIMARY KEY, v AS (k)", {"v": pa.string()}, "v: is computed by the table"),
        ("k TEXT, v TEXT", {}, "k: neither the primary key nor a unique index.*CREATE UNIQUE INDEX"),
        ("k TEXT, v TEXT, PRIMARY KEY (k, v)", {"v": pa.string()}, "k: neither the primary key"),
        ("k TEXT COLLATE NOCASE PRIMARY KEY", {}, "k: the table compares these keys by NOCASE"),
        # An upsert of B found the row of b by the second index, and overwrote it.
        ("k TEXT PRIMARY KEY, UNIQUE (k COLLATE NOCASE)", {}, "k: the table compares these keys by NOCASE"),
        ("k TEXT COLLATE RTRIM PRIMARY KEY, UNIQUE (k COLLATE BINARY)", {}, "k: the table compares.*by RTRIM"),
        ("k TEXT PRIMARY KEY", {"v": pa.duration("s")}, "v: is of type duration.*cast it to a string"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_column_by_column(
    tmp_path: Path, made: str, columns: dict[str, Any], words: str
) -> None:
    path = tmp_path / "t.db"
    run(path, f"CREATE TABLE flights ({made})")
    with pytest.raises(SchemaMismatch, match=words):
        sink(path, keys=("k",)).check(schema(k=pa.string(), **columns))
    assert look(path, "SELECT name FROM sqlite_master WHERE name LIKE '%key_%' OR name LIKE '%rejected'") == []


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    run(path, "CREATE TABLE flights (k TEXT PRIMARY KEY, w TEXT NOT NULL, v TEXT)")
    with pytest.raises(SchemaMismatch) as error:
        sink(path, keys=("k",)).check(schema(k=pa.int64(), v=pa.binary(), u=pa.string()))
    assert [line.split(":")[0].strip() for line in str(error.value).splitlines()[1:]] == ["k", "v", "u", "w"]


@pytest.mark.parametrize(
    "made",
    [
        "tail TEXT PRIMARY KEY, status TEXT, slot INTEGER, more TEXT NOT NULL DEFAULT 'x', other REAL)",
        "id INTEGER PRIMARY KEY, tail TEXT UNIQUE, status TEXT, slot)",
        "tail TEXT, status TEXT NOT NULL, slot INT, twice AS (slot * 2), PRIMARY KEY (tail)) WITHOUT ROWID",
        "tail TEXT PRIMARY KEY, status TEXT, slot ANY) STRICT",
    ],
)
def test_tables_that_fit(tmp_path: Path, made: str) -> None:
    path = tmp_path / "t.db"
    run(path, f"CREATE TABLE flights ({made}")
    table = sink(path)
    table.apply(batch([E("a", slot=1), E("b", number=1), E("a", slot=2, number=2)]))
    assert look(path, "SELECT tail, slot FROM flights ORDER BY tail") == [("a", 2), ("b", None)]


def test_a_number_may_be_the_key(tmp_path: Path) -> None:
    table = sink(tmp_path / "t.db", keys=("slot",))
    table.apply(batch([E("a", slot=7), E("b", slot=7, number=1)]))
    assert look(tmp_path / "t.db") == [("b", "ok", 7)]
    again = sink(tmp_path / "t.db", keys=("slot",))
    again.check(SCHEMA)


def test_a_view_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "t.db", "CREATE VIEW flights AS SELECT 1 AS tail")
    with pytest.raises(SchemaMismatch, match="is a view"):
        sink(tmp_path / "t.db").check(SCHEMA)


def test_an_index_or_trigger_that_cannot_work_is_found_before_any_write(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    run(
        path,
        "CREATE TABLE flights (tail TEXT PRIMARY KEY, status TEXT, slot INTEGER)",
        "CREATE TRIGGER t AFTER INSERT ON flights BEGIN INSERT INTO nowhere VALUES (1); END",
    )
    with pytest.raises(SchemaMismatch, match="nowhere"):
        sink(path).check(SCHEMA)


@pytest.mark.parametrize("missing", [["sequenceNumber"], ["hub", "ownerLevel"]])
def test_a_missing_column_of_the_fence_shows_how_to_carry_it(tmp_path: Path, missing: list[str]) -> None:
    it = batch([E("a")])
    with pytest.raises(SchemaMismatch) as error:
        sink(tmp_path / "t.db").apply(type(it)(it.rows.drop_columns(missing)))
    assert f"no column {', '.join(missing)}" in str(error.value)
    expected = '.select("tail", "status", "slot", "hub", "partition", "sequenceNumber", "ownerLevel")'
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("hub", pa.nulls(1, pa.string()), "hub is null in 1 rows"),
        ("sequenceNumber", pa.array(["1"]), "sequenceNumber is of type string.*a long"),
        ("partition", pa.array([1]), "partition is of type int64.*a string"),
        ("sequenceNumber", pa.array([-1]), "sequenceNumber -1"),
        ("ownerLevel", pa.array([-1]), "ownerLevel -1: levels begin at 0.*keep the columns of the source"),
        ("partition", pa.array([" "]), "partition is empty in some rows.*keep the columns of the source"),
        ("hub", pa.array([""]), "hub is empty in some rows"),
    ],
)
def test_a_fence_that_says_nothing_is_refused(tmp_path: Path, column: str, value: Any, words: str) -> None:
    it = batch([E("a")])
    rows = it.rows.set_column(it.rows.schema.names.index(column), column, value)
    with pytest.raises(SchemaMismatch, match=words):
        sink(tmp_path / "t.db").apply(type(it)(rows))


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    it = batch([E("a")])
    with pytest.raises(SchemaMismatch, match="TAIL twice"):
        sink(tmp_path / "t.db").apply(type(it)(it.rows.append_column("TAIL", it.rows["status"])))


def test_a_missing_key_and_nothing_to_store(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatch, match="nope: is a key"):
        sink(tmp_path / "t.db", keys=("nope",)).check(SCHEMA)
    with pytest.raises(SchemaMismatch, match="nothing to store"):
        sink(tmp_path / "t.db", "append").check(schema())
    with pytest.raises(SchemaMismatch, match="x: has no type"):
        sink(tmp_path / "u.db", "append").check(schema(x=pa.null()))


def test_a_changed_dataframe_is_checked_again_and_so_is_a_changed_table(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    table = sink(path)
    it = batch([E("a")])
    table.apply(it)
    wider = type(it)(batch([E("a", number=1)]).rows.append_column("more", pa.array([1])))
    with pytest.raises(SchemaMismatch, match="more: is not in the table"):
        table.apply(wider)
    run(path, "ALTER TABLE flights ADD COLUMN more INTEGER")
    assert table.apply(wider).applied == 1
    run(path, "ALTER TABLE flights DROP COLUMN more")
    with pytest.raises(SchemaMismatch, match="more: is not in the table"):
        table.apply(wider)


def test_columns_are_added_to_a_strict_table_and_a_missing_key_never_is(tmp_path: Path) -> None:
    path, wanted = tmp_path / "t.db", schema(tail=pa.string(), at=pa.timestamp("us", "UTC"), n=pa.decimal128(30, 2))
    run(path, "CREATE TABLE flights (tail TEXT PRIMARY KEY) STRICT")
    sink(path, schema_evolution="add").check(wanted)
    names = "SELECT name, type FROM pragma_table_info('flights')"
    assert look(path, names) == [("tail", "TEXT"), ("at", "TEXT"), ("n", "TEXT")]
    run(tmp_path / "u.db", "CREATE TABLE flights (other TEXT)")
    with pytest.raises(SchemaMismatch, match="tail: is not in the table"):
        sink(tmp_path / "u.db", schema_evolution="add").check(wanted)
    assert look(tmp_path / "u.db", names) == [("other", "TEXT")]
    with pytest.raises(ConfigError, match="schema_evolution"):
        TableSpec(name="t", pipeline="p", keys=("k",), schema_evolution="all")


def test_an_empty_batch_changes_nothing_and_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    table = sink(path)
    assert table.apply(batch([])).applied == 0
    assert table.apply(batch([])).applied == 0
    assert (table.row_count(), table.watermarks("h")) == (0, {})
    assert sink(path).apply(batch([], by_version=True, deletes=True)).applied == 0
    with pytest.raises(SchemaMismatch):
        table.apply(type(batch([]))(batch([]).rows.rename_columns(["tail", "status", "other", *FENCE])))


@pytest.mark.parametrize(
    ("type_", "declared", "strict", "expected"),
    [
        (pa.int64(), "BIGINT", False, True),
        (pa.int64(), "REAL", False, False),
        (pa.int32(), "DOUBLE", False, True),
        (pa.bool_(), "BOOLEAN", False, True),
        (pa.float64(), "INT", False, False),
        (pa.float64(), "NUMERIC", False, True),
        (pa.string(), "VARCHAR(10)", False, True),
        (pa.string(), "NUMERIC", False, False),
        (pa.string(), "", False, True),
        (pa.binary(), "TEXT", False, False),
        (pa.binary(), "BLOB", False, True),
        (pa.date32(), "DATE", False, True),
        (pa.timestamp("us", "UTC"), "DATETIME", False, True),
        (pa.timestamp("us", "UTC"), "INTEGER", False, False),
        (pa.decimal128(10, 2), "DECIMAL(10, 2)", False, True),
        (pa.decimal128(20, 2), "DECIMAL(20, 2)", False, False),
        (pa.list_(pa.int8()), "JSON", False, True),
        (pa.null(), "INTEGER", False, True),
        (pa.string(), "ANY", True, True),
        (pa.string(), "ANY", False, False),
        (pa.string(), "BLOB", True, False),
        (pa.duration("s"), "TEXT", False, False),
        (pa.duration("s"), "", False, False),
    ],
)
def test_affinity(type_: pa.DataType, declared: str, strict: bool, expected: bool) -> None:
    assert fits(type_, declared, strict=strict) is expected


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"name": ""}, "table"),
        ({"name": "leasehold_x"}, "table"),
        ({"name": "SQLITE_x"}, "table"),
        ({"pipeline": " "}, "pipeline"),
        ({"consumer_group": ""}, "consumer_group"),
        ({"mode": "merge"}, "mode"),
        ({"keys": ()}, "keys"),
        ({"keys": "tail"}, "keys"),
        ({"keys": ("tail", "Tail")}, "keys"),
        ({"keys": ("",)}, "keys"),
        ({"keys": ("tail", "partition")}, "keys"),
        ({"mode": "append"}, "keys"),
        ({"keep": ("body",)}, "keep"),
        ({"keep": ("hub", "HUB")}, "keep"),
        ({"keep": "hub"}, "keep"),
    ],
)
def test_settings_are_checked_when_they_are_made(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        TableSpec(**{"name": "t", "pipeline": "p", "keys": ("tail",), **settings})
    assert error.value.field == field
    assert error.value.remedy


def test_decimals_keep_their_digits(tmp_path: Path) -> None:
    it = batch([E("a")])
    rows = it.rows.append_column("d", pa.array([Decimal("12345678901234567890.10")], pa.decimal128(22, 2)))
    sink(tmp_path / "t.db").apply(type(it)(rows))
    assert look(tmp_path / "t.db", "SELECT d FROM flights") == [("12345678901234567890.10",)]
