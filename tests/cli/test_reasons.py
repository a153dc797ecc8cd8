"""Reasons without their values, on reasons as each source of them writes them."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from leasehold.formats.bodies import BodyReader
from leasehold.handlers.calling.raised import described
from leasehold.operations.aside.reasons import ReasonGroups, form_of
from leasehold.sinks.postgres.session import reason_of
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import Selection
from leasehold.sinks.sqlite.sink import SqliteSink
from tests.sinks.postgres import Place

SCHEMA = pa.schema(
    {
        **{"id": pa.string(), "amount2": pa.int64(), "price": pa.decimal128(10, 2), "at": pa.timestamp("us", tz="UTC")},
        **{"day": pa.date32(), "raw": pa.binary(), "items": pa.list_(pa.struct({"n": pa.int32()}))},
    }
)


@pytest.mark.parametrize(
    ("bodies", "form"),
    [
        (
            (b'{"amount2": "x, which is"}', b'{"amount2": true}', b'{"amount2": []}', b'{"amount2": "a \\" is b"}'),
            "the field amount2 is …, which is not a BIGINT",
        ),
        (
            (b'{"amount2": 12345678901234567890}', b'{"amount2": 22345678901234567890}'),
            "the field amount2 is …, which no BIGINT holds",
        ),
        ((b'{"price": 1.234}', b'{"price": 2.345}'), "the field price is …, which no DECIMAL(10,2) holds"),
        ((b'{"day": "x"}', b'{"day": "2026-13-01"}'), "the field day is …, which is not a DATE such as 2026-02-03"),
        (
            (b'{"at": 99999999999999}', b'{"at": 99999999999998}'),
            "the field at is …, which as seconds since 1970 is outside the years 1 to 9999",
        ),
        (
            (b'{"items": [{"n": 1}, {"n": "q"}]}', b'{"items": [{"n": "z"}]}'),
            "the field items[…].n is …, which is not an INT",
        ),
        (
            (b'{"id": 1,', b'{"id": "a",'),
            "the body is not a JSON object: expecting property name enclosed in double quotes",
        ),
        ((b"[1]", b"5", b'"x"'), "the body is not a JSON object: it is …"),
        ((b"{} {}", b'{"id": 1} {}'), "the body is more than one JSON object: the first ends at character …"),
        ((b"\xff", b"\xfe"), "the body is not valid UTF-8"),
        ((b'{"id": 1, "id": 2}', b'{"id": 3, "id": 4}'), "the field id occurs twice in one object"),
    ],
)
def test_bodies_that_do_not_fit(bodies: tuple[bytes, ...], form: str) -> None:
    reasons = BodyReader(SCHEMA).read(pa.array(bodies)).reasons
    assert reasons is not None
    (found,) = {form_of(reason) for reason in reasons.to_pylist()}
    assert found.startswith(form)


def test_what_sqlite_says_of_a_constraint_is_its_own_text(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute(
            "CREATE TABLE t (id TEXT PRIMARY KEY, n1 INT CHECK (n1 > 10), n2 INT CHECK (n2 > 1), n3 INT NOT NULL)"
        )
    rows = {"id": ["a", "b", "c", "d"], "n1": [5, 6, 11, 11], "n2": [2, 2, 0, 2], "n3": [1, 1, 1, None]}
    fence = {"hub": ["h"] * 4, "partition": ["0"] * 4, "sequenceNumber": range(4), "ownerLevel": [1] * 4}
    with closing(SqliteSink(tmp_path / "t.db", TableSpec(name="t", pipeline="p", keys=("id",)))) as sink:
        sink.apply(Batch(pa.table({**rows, **fence})))
        groups = ReasonGroups()
        for row in sink.rejected_rows.rows(Selection(), 99):
            groups.add(row.reason, 0, 0)
    assert {group.reason: group.number for group in groups} == {
        "CHECK constraint failed: n1 > 10": 2,
        "CHECK constraint failed: n2 > 1": 1,
        "NOT NULL constraint failed: t.n3": 1,
    }


def test_what_postgres_says_keeps_the_names_and_not_the_values(place: Place) -> None:
    place.run(
        "CREATE TABLE t2 (id text PRIMARY KEY, n2 int CHECK (n2 > 10), v varchar(2), m numeric(4,2), d date NOT NULL)"
    )

    def forms(*values: str) -> set[str]:
        said = set()
        for value in values:
            with pytest.raises(psycopg.Error) as refused:
                place.run(f"INSERT INTO t2 VALUES ({value})")
            said.add(form_of(reason_of(refused.value)))
        return said

    assert forms("'a', 5, 'x', 1, now()", "'b', 6, 'x', 1, now()") == {
        'new row for relation "t2" violates check constraint "t2_n2_check"'
    }
    assert forms("'a', '12x', 'x', 1, now()", "'a', 'q', 'x', 1, now()") == {"invalid input syntax for type integer: …"}
    assert forms("'a', '99999999999', 'x', 1, now()", "'a', '88888888888', 'x', 1, now()") == {
        "value … is out of range for type integer"
    }
    assert forms("'a', 11, 'xyz', 1, now()") == {"value too long for type character varying(2)"}
    assert forms("'a', 11, 'x', 1, '2026-13-01'") == {"date/time field value out of range: …"}
    assert forms("'a', 11, 'x', 1, NULL") == {'null value in column "d" of relation "t2" violates not-null constraint'}


@pytest.mark.parametrize(
    ("reasons", "form"),
    [
        (("amount -5.00 is negative", "amount -6 is negative"), "amount … is negative"),
        (("-3 of 1,785", "-12 of 7"), "… of …"),
        (
            ("order A-1005 is closed since 2026-01-05 10:00:00", "order B7 is closed since 2026-02-01"),
            "order … is closed since …",
        ),
        (("no amount",), "no amount"),
        (("it isn't there, and that's it",), "it isn't there, and that's it"),
        ((described(KeyError("x")), described(KeyError("y"))), "KeyError: …"),
        ((described(ConnectionError("HTTP 503")), described(ConnectionError("HTTP 502"))), "ConnectionError: HTTP …"),
        (
            tuple(
                f"cannot be computed: [CAST_INVALID_INPUT] The value '{value}' of the type \"STRING\" cannot be cast "
                'to "BIGINT" because it is malformed. SQLSTATE: 22018'
                for value in ("x1", "y")
            ),
            'cannot be computed: [CAST_INVALID_INPUT] The value … of the type "STRING" cannot be cast to "BIGINT" '
            "because it is malformed. SQLSTATE: 22018",
        ),
        (
            ("cannot be computed: The value 1234.5 cannot be represented as Decimal(4,2).",),
            "cannot be computed: The value … cannot be represented as Decimal(4,2).",
        ),
        (("too large: 1048576 bytes", "too large: 2 bytes"), "too large: … bytes"),
        (("price is 12345678.123, which no numeric(10,2) holds",), "price is …, which no numeric(10,2) holds"),
        (("a2 is not UTF-8 text",), "a2 is not UTF-8 text"),
        (("sequence_by is null or NaN",), "sequence_by is null or NaN"),
        (("the key id2 is null",), "the key id2 is null"),
        (("at2 is outside the years 1 to 9999",), "at2 is outside the years 1 to 9999"),
        (("skipped by ada@tower: an aircraft that moved",), "skipped by ada@tower: an aircraft that moved"),
    ],
)
def test_other_reasons(reasons: tuple[str, ...], form: str) -> None:
    assert {form_of(reason) for reason in reasons} == {form}


@pytest.mark.parametrize("text", ["a", ".-", "w(", "'", " is "])
def test_a_long_reason_takes_no_time_that_grows_with_its_square(text: str) -> None:
    begin = time.process_time()
    for _ in range(100):
        form_of(text * (2_000 // len(text)))
    assert time.process_time() - begin < 5


def test_783_bad_amounts_are_one_reason() -> None:
    bodies = [json.dumps({"amount2": f"EUR {number}"}).encode() for number in range(783)] + [b"x"]
    reasons = BodyReader(SCHEMA).read(pa.array(bodies)).reasons
    assert reasons is not None
    groups = ReasonGroups()
    for at, reason in enumerate(reasons.to_pylist()):
        groups.add(reason, at, at)
    first, second = groups
    assert (groups.total, first.number, second.number) == (784, 783, 1)
    assert (first.reason, first.first, first.last) == ("the field amount2 is …, which is not a BIGINT", 0, 782)
    assert first.example == 'the field amount2 is "EUR 0", which is not a BIGINT'
