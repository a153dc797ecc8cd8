"""Which transforms need no Spark, and what they mean."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError
from leasehold.projected.projection import Projection, RowValue, read_projection, read_value

EVENTS = pa.schema(
    [
        ("id", pa.string()),
        ("Delay", pa.float64()),
        ("op", pa.string()),
        ("n", pa.int8()),
        ("gone", pa.bool_()),
        ("x y", pa.int64()),
        ("comment", pa.string()),
        ("update", pa.bool_()),
        ("partition", pa.string()),
        ("sequenceNumber", pa.int64()),
    ]
)


@pytest.mark.parametrize(
    ("sql", "picks"),
    [
        ("SELECT id, delay AS late FROM events", [("id", "id"), ("Delay", "late")]),
        ("select ID d, `Delay`, e.op from EVENTS e;", [("id", "d"), ("Delay", "Delay"), ("op", "op")]),
        ("SELECT delay, SEQUENCENUMBER FROM events", [("Delay", "delay"), ("sequenceNumber", "SEQUENCENUMBER")]),
        ("SELECT `x y` AS `x-y`, events.id FROM events -- all", [("x y", "x-y"), ("id", "id")]),
        ("SELECT * FROM events", [(name, name) for name in EVENTS.names]),
        ("SELECT e.*, id AS again FROM events AS e", [*((name, name) for name in EVENTS.names), ("id", "again")]),
        (None, [(name, name) for name in EVENTS.names]),
    ],
)
def test_columns_are_picked_and_renamed(sql: str | None, picks: list[tuple[str, str]]) -> None:
    projection = read_projection(sql, EVENTS)
    assert projection == Projection(tuple(picks))
    rows = projection.of(EVENTS.empty_table())
    assert rows.schema == projection.schema(EVENTS)
    assert [EVENTS.field(column).type for column, _ in picks] == rows.schema.types


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT upper(id) FROM events", r"has UPPER\(id\), which is more than a column"),
        ("SELECT id, 1 AS one FROM events", "has 1, which is more"),
        ("SELECT CAST(n AS INT) AS n FROM events", r"has CAST\(n AS INT\)"),
        ("SELECT id.part FROM events", r"has id\.part"),
        ("SELECT id FROM events WHERE n = 1", "columns and a FROM: WHERE"),
        ("SELECT DISTINCT id FROM events", "columns and a FROM: DISTINCT"),
        ("SELECT id FROM events LIMIT 5", "columns and a FROM: LIMIT"),
        ("SELECT id FROM events ORDER BY id", "columns and a FROM: ORDER"),
        ("SELECT id FROM events GROUP BY id", "columns and a FROM: GROUP"),
        ("SELECT events.id FROM events JOIN other ON 1 = 1", "columns and a FROM: JOINS"),
        ("SELECT id FROM events, other", "columns and a FROM: JOINS"),
        ("SELECT /*+ REPARTITION(3) */ id FROM events", "columns and a FROM: HINT"),
        ("SELECT id FROM events LATERAL VIEW explode(array(1)) t", "columns and a FROM: LATERALS"),
        ("WITH a AS (SELECT 1) SELECT id FROM events", "columns and a FROM: WITH"),
        ("SELECT id FROM events TABLESAMPLE (10 PERCENT)", "view with sample|columns and a FROM"),
        ("SELECT id FROM events UNION ALL SELECT id FROM events", "is not a SELECT"),
        ("SELECT id FROM other", "does not read the view events"),
        ("SELECT id FROM db.events", "reads the view with db"),
        ("SELECT id FROM (SELECT id FROM events)", "does not read the view events"),
        ("SELECT id", "does not read the view events"),
        ("SELECT nothing FROM events", "nothing is no column; these are: id, Delay,"),
        ("SELECT id FROM events; SELECT id FROM events", "is not one statement"),
        ("", "is not one statement"),
        ("SELECT FROM WHERE", "not SQL that can be read|more than|does not read"),
        ("DROP TABLE events", "is not a SELECT"),
        ("SELECT id:gate FROM events", "more than a column and a name"),
        ("SELECT id AS :name FROM events", "more than a column and a name|not SQL"),
        ("SELECT id AS `` FROM events", "more than a column and a name|not SQL"),
        ("SELECT delay FROM events AS e(a, b)", "gives the view's columns other names"),
        ("SELECT id AS `a\\nb` FROM events", "has a backslash"),
        ("SELECT * EXCEPT (id) FROM events", "has|more"),
    ],
)
def test_what_is_more_than_that_is_refused_by_name(sql: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        read_projection(sql, EVENTS)
    assert caught.value.field == "transform.sql"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("gone", RowValue("gone")),
        ("DELAY", RowValue("Delay")),
        ("op = 'd'", RowValue("op", "d")),
        ('OP == "it\'s"', RowValue("op", "it's")),
        ("op = 'é '", RowValue("op", "é ")),
        ("gone = true", RowValue("gone", True)),
        ("comment = 'd'", RowValue("comment", "d")),
        ("update", RowValue("update")),
        ("n = -3", RowValue("n", -3)),
        ("n = 300", RowValue("n", 300)),
        ("`x y` = 9223372036854775807", RowValue("x y", 2**63 - 1)),
    ],
)
def test_a_value_is_a_column_or_its_comparison(text: str, value: RowValue) -> None:
    assert read_value(text, EVENTS, setting="sink.delete_when") == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("op = upper('d')", r"compares with UPPER\('d'\), which is no text, integer or boolean"),
        ("op <> 'd'", "which is more than a column"),
        ("op = 'd' OR gone", "which is more than a column"),
        ("NOT gone", "which is more than a column"),
        ("op = 1", "compares op, of type string, with another type"),
        ("n = '1'", "compares n, of type int8, with another type"),
        ("delay = 1", "compares Delay, of type double, with another type"),
        ("n = 1.5", "which is no text, integer or boolean"),
        ("n = 9223372036854775808", "with another type"),
        ("gone = 1", "with another type"),
        ("op = NULL", "which is no text, integer or boolean"),
        ("missing", "missing is no column"),
        ("t.op", "which is more than a column"),
        ("1", "which is more than a column"),
        (r"op = '\u00e9'", "has a backslash"),
        ("op = 'd', gone", "is more than one column"),
        ("gone AS x", "which is more than a column"),
        ("gone FROM events", "is more than a column"),
        ("DISTINCT gone", "is more than a column"),
        ("gone; gone", "is not one statement"),
        ("*", "which is more than a column"),
        ("", "not SQL that can be read|is more than a column|is not one statement"),
    ],
)
def test_other_expressions_are_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        read_value(text, EVENTS, setting="sink.delete_when")
    assert caught.value.field == "sink.delete_when"


@pytest.mark.parametrize(
    ("value", "given", "expected"),
    [
        (RowValue("op"), ["d", None], ["d", None]),
        (RowValue("op", "d"), ["d", "D", "d ", "", None], [True, False, False, False, None]),
        (RowValue("n", 300), [44, -1, None], [False, False, None]),
        (RowValue("n", -1), [44, -1, None], [False, True, None]),
        (RowValue("gone", False), [True, False, None], [False, True, None]),
    ],
)
def test_the_values_of_rows(value: RowValue, given: list[Any], expected: list[Any]) -> None:
    rows = pa.table({value.column: pa.array(given, EVENTS.field(value.column).type)})
    assert value.of(rows).to_pylist() == expected
