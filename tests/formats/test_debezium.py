"""Changes that Debezium has captured, in JSON with schemas and without, and in Avro."""

from __future__ import annotations

import copy
import gzip
import io
import json
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from leasehold.body_format import BodyFormat
from leasehold.errors import ConfigError, UsageError
from leasehold.formats import BodyReader
from leasehold.formats.connect import json_changes
from leasehold.formats.connect.types import ConnectType, read_type
from tests.formats.debezium_events import COLUMNS, READ, ROW, SCHEMA, envelope, schema_of, with_schema, written

DEBEZIUM = BodyFormat(format="debezium")
SMALL = pa.schema([("id", pa.int64()), ("word", pa.string())])
_DATE = "io.debezium.time.Date"
_SMALL_SCHEMA = schema_of({"id": {"type": "int32"}, "word": {"type": "string"}})


def outcome(bodies: Sequence[bytes | None], columns: pa.Schema = SMALL, **how: Any) -> list[Any]:
    """Of each body its row, the reason why it is rejected, or None where it is passed over."""
    read = BodyReader(columns, BodyFormat(format="debezium", **how)).read(pa.array(bodies, pa.binary()))
    read.columns.validate(full=True)
    reasons = [None] * len(bodies) if read.reasons is None else read.reasons.to_pylist()
    passed = [False] * len(bodies) if read.passed is None else read.passed.to_pylist()
    rows = read.columns.to_pylist()
    for row, reason, over in zip(rows, reasons, passed, strict=True):
        assert not (over and reason)
        assert not (over or reason) or set(row.values()) == {None}
    return [None if over else reason or row for row, reason, over in zip(rows, reasons, passed, strict=True)]


def row(id: int, word: str | None, *, deleted: bool = False) -> dict[str, Any]:
    return {"id": id, "word": word, "__deleted": deleted}


@pytest.mark.parametrize("many", [1, 60])
def test_each_type_is_read_by_the_schema_beside_it(many: int) -> None:
    nothing = dict.fromkeys(COLUMNS.names)
    bodies = [
        with_schema(envelope("c", after=ROW)),
        with_schema(envelope("u", before=ROW, after=nothing)),
        with_schema(envelope("d", before=ROW)),
    ]
    rows = [{**READ, "__deleted": False}, {**nothing, "__deleted": False}, {**READ, "__deleted": True}]
    assert outcome(bodies * many, COLUMNS) == rows * many


@pytest.mark.parametrize("many", [1, 60])
@pytest.mark.parametrize("schema", [None, _SMALL_SCHEMA])
def test_what_becomes_of_each_operation(many: int, schema: Any) -> None:
    def body(change: dict[str, Any]) -> bytes:
        return written(change) if schema is None else with_schema(change, schema)

    changes: list[tuple[bytes | None, Any]] = [
        (body(envelope("r", after={"id": 1, "word": "a"})), row(1, "a")),
        (body(envelope("c", after={"id": 2, "word": None})), row(2, None)),
        (body(envelope("u", before={"id": "no number"}, after={"id": 1, "word": "b"})), row(1, "b")),
        (body(envelope("d", before={"id": 1, "word": None})), row(1, None, deleted=True)),
        (None, None),
        (body(envelope("t")), 'the op "t" is a truncation of the table: skipped_operations = ["t"] passes it over'),
        (
            body({"op": "m", "ts_ms": 1, "source": {}, "message": {"prefix": "p", "content": "aGk="}}),
            'the op "m" is a message, and no row: skipped_operations = ["m"] passes it over',
        ),
        (body(envelope("x")), 'the op "x" is none that Debezium has: c, r, u, d, t, m'),
        (body(envelope(None, after={"id": 1})), "the body is no change of a row as Debezium writes it: it has no op"),
        (body(envelope("c")), "the op c has no row after it"),
        (
            body(envelope("d")),
            "the delete does not say of which row: the table's REPLICA IDENTITY has to have its key",
        ),
        (body(envelope("d", before={"id": "x"})), 'the field before.id is "x", which is not a BIGINT'),
        (body(envelope("u", after={"id": 1.5})), "the field after.id is 1.5, which is not a BIGINT"),
        (b"{", "the body is not a JSON object: expecting property name enclosed in double quotes at character 2"),
    ]
    bodies = [one for one, _ in changes] * many
    assert outcome(bodies) == [what for _, what in changes] * many


def test_operations_are_passed_over_as_is_asked() -> None:
    bodies = [written(envelope(op, after={"id": 1})) for op in ("t", "m", "u", "c")]
    assert outcome(bodies, skipped_operations=["t", "m"]) == [None, None, row(1, None), row(1, None)]


def test_columns_of_what_is_around_the_row() -> None:
    columns = pa.schema([("__op", pa.string()), ("id", pa.int64()), ("__source_lsn", pa.int64()),
                         ("__ts_ms", pa.int64()), ("__source_table", pa.string())])  # fmt: skip
    around = {"__ts_ms": 1796080050103, "__source_lsn": 25585376, "__source_table": "types"}
    for body in (written(envelope("c", after={"id": 3})), with_schema(envelope("c", after={"id": 3}))):
        assert outcome([body], columns) == [{"__op": "c", "id": 3, **around, "__deleted": False}]
    assert outcome([written(envelope("d", before={"id": 3}, source=None))], columns) == [
        {"__op": "d", "id": 3, **around, "__source_lsn": None, "__source_table": None, "__deleted": True}
    ]


def test_without_a_schema_no_number_is_a_time_and_no_text_a_decimal() -> None:
    columns = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("price", pa.decimal128(10, 2))])
    bodies = [written(envelope("c", after={name: value})) for name, value in
              (("at", 1709214330), ("day", 19782), ("price", "1234"), ("at", "2024-02-29T11:45:30Z"))]  # fmt: skip
    *refused, read = outcome(bodies, columns)
    assert refused[0] == 'the field at is "1709214330", which is not a TIMESTAMP such as 2026-02-03T04:05:06.000007Z'
    assert refused[1] == "the field after.day is 19782, which is not a DATE"
    assert refused[2].startswith("the field price is a decimal of which the body does not say the type")
    assert (read["at"].isoformat(), read["price"]) == ("2024-02-29T11:45:30+00:00", None)
    [price] = outcome([bodies[2]], columns, decimal_handling_mode="string")
    assert str(price["price"]) == "1234.00"
    [typed] = outcome([with_schema(envelope("c", after={"at": 5}), schema_of({"at": {"type": "int64"}}))], columns)
    assert typed == "the field at is no time: its schema does not say of which unit"


@pytest.mark.parametrize("many", [1, 60])
def test_times_without_a_schema_are_read_alike_in_any_company(many: int) -> None:
    columns = pa.schema([("at", pa.timestamp("us", "UTC"))])
    times = {
        "2024-02-29T11:45:30.123456Z": "2024-02-29 11:45:30.123456+00:00",
        "0001-01-01T00:00:00Z": "0001-01-01 00:00:00+00:00",
        "9999-12-31T23:59:59.999999Z": "9999-12-31 23:59:59.999999+00:00",
        "1969-12-31T23:59:59.1Z": "1969-12-31 23:59:59.100000+00:00",
    }
    others = {
        "2024-02-29T11:45:30": "2024-02-29 11:45:30+00:00",
        "2024-02-29 11:45:30+01": "2024-02-29 10:45:30+00:00",
        "0000-01-01T00:00:00Z": 'the field at is "0000-01-01T00:00:00Z", which is not a TIMESTAMP',
        "2023-02-29T11:45:30Z": 'the field at is "2023-02-29T11:45:30Z", which is not a TIMESTAMP',
        "2024-02-29T11:45:30.1234567Z": 'the field at is "2024-02-29T11:45:30.1234567Z", which is finer',
    }
    for some in (times, {**times, **others}):
        bodies = [written(envelope("c", after={"at": text})) for text in some]
        for found, expected in zip(outcome(bodies * many, columns), list(some.values()) * many, strict=True):
            assert (found if isinstance(found, str) else str(found["at"])).startswith(expected)


@pytest.mark.parametrize("many", [1, 60])
def test_values_that_no_column_has_are_rejected_alone(many: int) -> None:
    columns = pa.schema([COLUMNS.field(name) for name in ("id", "price", "any", "day", "at", "moments", "small")])
    changes = {
        "price": ("/////////////w==", "the field price is -"),
        "any": ({"scale": 1, "value": "VHj54iCtsl5NIYCMzbfPb+QOdmw5"}, "the field any is 1234"),
        "day": (-622191234, "the field day is -622191234 days since 1970, which is outside"),
        "at": (9223372036825200000, "the field at is 9223372036825200000 microseconds since 1970"),
        "moments": ([1, 2**62], "the field moments[1] is 4611686018427387904 microseconds since 1970"),
        "small": (40000, "the field after.small is 40000"),
    }
    good = {name: ROW[name] for name in columns.names}
    rows = [{**good, name: value} for name, (value, _) in changes.items()]
    found = outcome([with_schema(envelope("c", after=one)) for one in (*rows, good)] * many, columns)
    for number, (name, (_, said)) in enumerate(changes.items()):
        if name != "price":  # which is -1 in any number of bytes
            assert str(found[number]).startswith(said), found[number]
    assert found[0]["price"] == -1 / pa.scalar(100).as_py() or str(found[0]["price"]) == "-0.01"
    assert found[len(changes)]["id"] == 1
    assert found == found[: len(rows) + 1] * many


@pytest.mark.parametrize("many", [1, 60])
def test_what_a_schema_says_otherwise_than_its_value_or_column(many: int) -> None:
    """Each of these once came out as another value, was passed over, or failed all bodies beside it."""
    moment, micro = {"a": pa.timestamp("us", "UTC")}, "io.debezium.time.MicroTimestamp"
    struct = {"type": "struct", "fields": [{"type": "int32", "name": _DATE, "field": "x"}]}
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
    map_of = {"type": "map", "keys": {"type": "string"}, "values": decimal}
    bits = {"type": "bytes", "name": "io.debezium.data.Bits"}
    cases: list[tuple[Any, dict[str, pa.DataType], Any, Any]] = [
        ({"type": "int32", "name": _DATE}, {"a": pa.int32()}, 2**31, "the field after.a is 2147483648"),
        (
            {"type": "array", "items": {"type": "int32", "name": _DATE}},
            {"a": pa.list_(pa.int8())},
            [1, 300],
            "the field",
        ),
        (struct, {"a": pa.map_(pa.string(), pa.timestamp("us", "UTC"))}, {"x": 19782}, "the field a.x is"),
        (map_of, {"a": pa.struct([("x", pa.decimal128(10, 2))])}, {"x": "1234"}, "the field a.x is a decimal of which"),
        (decimal, {"a": pa.decimal128(10, 2)}, "EtaA", "the field a is"),
        ({**decimal, "parameters": {"scale": 2}}, {"a": pa.decimal128(10, 2)}, "EtaA", "the field a is"),
        (
            {**decimal, "parameters": {"scale": "2"}},
            {"a": pa.decimal128(10, 2)},
            "",
            "the field a is a decimal without",
        ),
        ({"type": "double"}, moment, 1709214330.0, "the field a is no time"),
        ({"type": "string"}, moment, 1709214330, 'the field a is "1709214330", which is not a TIMESTAMP'),
        ({"type": "int64"}, {"a": pa.list_(pa.timestamp("us", "UTC"))}, [5], 'the field a[0] is "5", which is not'),
        (
            {"type": "int64", "name": micro},
            {"a": pa.string()},
            "soon",
            'the field after.a is "soon", which is not a BIG',
        ),
        (bits, {"a": pa.string()}, "gQ==", "10000001"),
        ({**bits, "parameters": {"length": "12"}}, {"a": pa.string()}, "BQ==", "00000101"),
        ({**bits, "parameters": {"length": "3"}}, {"a": pa.string()}, "BQ==", "101"),
    ]
    for type_, columns, value, expected in cases:
        body = with_schema(envelope("c", after={"a": value}), schema_of({"a": type_}))
        for found in outcome([body] * many, pa.schema(list(columns.items()))):
            assert str(found if isinstance(found, str) else found["a"]).startswith(expected), (type_, found)
    others: list[dict[str, Any]] = [{"schema": None}, {"payload": None}, {"schema": {}}]
    for plain in others:
        body = written({**plain, **envelope("c", after={"id": 1})})
        assert outcome([body] * many) == [row(1, None)] * many
    no_op = "the body is no change of a row"
    assert str(outcome([written({"schema": {}})])[0]).startswith(no_op)
    assert outcome([b'{"schema":{"a":1},"payload": null}', b'{"schema":{"a":1},"payload":null}']) == [None, None]
    assert outcome([with_schema(envelope("c"), {"doc": "x" * (1 << 20)})]) == [
        "the schema beside the value cannot be read"
    ]


def test_schemas_are_told_apart_and_what_is_none_is_rejected() -> None:
    change = envelope("c", after={"id": 1, "word": "a"})
    other = schema_of({"id": {"type": "int64"}, "word": {"type": "string", "default": ',"payload":'}})
    bodies = {
        with_schema(change, _SMALL_SCHEMA): row(1, "a"),
        with_schema(change, other): row(1, "a"),
        with_schema(change, None): row(1, "a"),
        written({"payload": change, "schema": _SMALL_SCHEMA}): row(1, "a"),
        written({"payload": change}): row(1, "a"),
        json.dumps({"schema": other, "payload": change}, indent=1).encode(): row(1, "a"),
        b"\xef\xbb\xbf" + with_schema(change, _SMALL_SCHEMA): row(1, "a"),
        with_schema(None, _SMALL_SCHEMA): None,
        with_schema("text", _SMALL_SCHEMA): 'the body is not a JSON object: it is "text"',
        with_schema(change, "text"): "the schema beside the value cannot be read",
        with_schema(change, []): "the schema beside the value cannot be read",
        with_schema(change, {}): row(1, "a"),
        with_schema(change, {"type": "struct", "fields": [7, {"field": "after"}]}): row(1, "a"),
        b'{"schema":{"a":1},"schema":{},"payload":{}}': "the field schema occurs twice in one object",
        with_schema(change, _SMALL_SCHEMA)[:-1]: "the body is not a JSON object: expecting ',' delimiter at character",
        with_schema(change, _SMALL_SCHEMA) + b"x": "the body is not a JSON object: the first ends at character",
        b'{"schema":' + b"[" * 5000 + b',"payload":{}}': "the body is nested more than 200 deep",
    }
    for body, expected in bodies.items():
        for some in ([body], [body] * 60, [None, body, *bodies]):
            found = outcome(some)[1 if some[0] is None else 0]
            if isinstance(expected, str):
                assert str(found).startswith(expected), (body[:80], found)
            else:
                assert found == expected, body[:80]


@pytest.mark.parametrize("many", [1, 60])
def test_rows_that_were_taken_out_of_their_envelopes(many: int) -> None:
    fields = {"id": {"type": "int32"}, "op": {"type": "string"}, "day": {"type": "int32", "name": _DATE}}
    parts = [{**type_, "field": name} for name, type_ in {**fields, "__deleted": {"type": "string"}}.items()]
    rewritten, plain = {"type": "struct", "fields": parts}, {"type": "struct", "fields": parts[:-1]}
    columns = pa.schema([("id", pa.int64()), ("op", pa.string()), ("day", pa.date32())])

    def read(id: int, op: str | None, day: date | None, *, deleted: bool = False) -> dict[str, Any]:
        return {"id": id, "op": op, "day": day, "__deleted": deleted}

    bodies = {
        with_schema({"id": 1, "op": "t", "day": -2, "__deleted": "false"}, rewritten): read(1, "t", date(1969, 12, 30)),
        with_schema({"id": 1, "__deleted": "true"}, rewritten): read(1, None, None, deleted=True),
        with_schema({"id": 2, "op": "d"}, plain): read(2, "d", None),
        with_schema({"id": 2, "day": -622191234}, plain): "the field day is -622191234 days since 1970",
        with_schema({"id": "x"}, plain): 'the field id is "x", which is not a BIGINT',
        with_schema(None, plain): "the delete does not say of which row",
        with_schema(envelope("c", after={"id": 3}), _SMALL_SCHEMA): read(3, None, None),
        written({"id": 4, "op": "t"}): 'the op "t" is a truncation',
        None: None,
    }
    for found, expected in zip(outcome([*bodies] * many, columns), [*bodies.values()] * many, strict=True):
        assert str(found).startswith(expected) if isinstance(expected, str) else found == expected


def test_a_body_that_cannot_be_decompressed_is_no_tombstone() -> None:
    body = gzip.compress(written(envelope("c", after={"id": 1})))
    assert outcome([None, body, body[:-4]], content_encoding="gzip") == [
        None,
        row(1, None),
        "the body is not whole gzip",
    ]


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "int"},
                        {"name": "word", "type": ["null", "string"], "default": None},
                        {
                            "name": "at",
                            "type": [
                                "null",
                                {"type": "long", "connect.version": 1,
                                 "connect.name": "io.debezium.time.MicroTimestamp"},
                            ],
                        },
                        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
                    ],
                },
            ],
        },
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip


def with_more(row: list[dict[str, Any]], envelope: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema with more fields of the row, and around it."""
    made = copy.deepcopy(AVRO)
    made["fields"][0]["type"][1]["fields"] += row
    made["fields"] += envelope
    return made


def avro(op: str, before: Any = None, after: Any = None, schema: dict[str, Any] = AVRO) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), {"op": op, "before": before, "after": after})
    return out.getvalue()


@pytest.mark.parametrize("many", [1, 60])
def test_changes_in_avro(many: int) -> None:
    columns = pa.schema([*SMALL, ("at", pa.timestamp("us")), ("day", pa.date32())])
    a = {"id": 1, "word": "a", "at": 1709214330123456, "day": -2}
    key = {"id": 1, "word": None, "at": None, "day": None}
    bodies = [avro("c", after=a), avro("d", before=key), None, avro("t"), avro("c", after=a)[:-1]]
    found = outcome(bodies * many, columns, writer_schema=json.dumps(AVRO))
    assert found == found[:5] * many
    assert {name: str(value) for name, value in found[0].items()} == {
        "id": "1", "word": "a", "at": "2024-02-29 13:45:30.123456", "day": "1969-12-30", "__deleted": "False",
    }  # fmt: skip
    assert found[1] == {**key, "__deleted": True}
    assert found[2] is None
    assert found[3].startswith('the op "t" is a truncation')
    assert found[4] == "the field op is of 1 bytes, and the body has 0 more"


@pytest.mark.parametrize("many", [1, 60])
def test_a_decimal_in_avro_may_have_its_scale_with_it(many: int) -> None:
    number = {
        "type": "record",
        "name": "VariableScaleDecimal",
        "connect.name": "io.debezium.data.VariableScaleDecimal",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    }
    items = {"type": "array", "items": "VariableScaleDecimal"}
    schema = with_more([{"name": "any", "type": ["null", number]}, {"name": "more", "type": items}], [])
    columns = pa.schema([("any", pa.decimal128(12, 2)), ("more", pa.list_(pa.string()))])
    half, bare, wide = ({"scale": scale, "value": raw} for scale, raw in ((1, b"\x0f"), (1, b""), (3, b"\x0f")))
    rest = {"id": 1, "word": None, "at": None, "day": None, "more": [half, wide]}
    bodies = [avro("c", after={**rest, "any": one}, schema=schema) for one in (half, bare, wide)]
    found = outcome(bodies * many, columns, writer_schema=json.dumps(schema))
    assert found[:3] * many == found
    assert found[0] == {"any": Decimal("1.50"), "more": ["1.5", "0.015"], "__deleted": False}
    assert found[1] == "the field after.any is a decimal without a digit"
    assert str(found[2]).startswith("the field after.any is 0.015")


@pytest.mark.parametrize("many", [1, 60])
@pytest.mark.parametrize("schema", [None, _SMALL_SCHEMA])
def test_fields_of_the_row_are_rescued_and_no_others(many: int, schema: Any) -> None:
    write = written if schema is None else partial(with_schema, schema=schema)
    there = {"id": 1, "word": "a", "in": [{"b": 1.5}], "none": None}
    bodies = [
        write(envelope("u", before={"id": 1, "word": "b", "else": 1}, after=there, of_others=5)),
        write(envelope("d", before={**there, "n": 7})),
        write(envelope("r", after={"id": 2})),
        write(envelope("t", rest=1)),
    ]
    columns = pa.schema([("id", pa.int64())])
    found = outcome(bodies * many, columns, rescue="after")
    assert found == found[:4] * many
    rest = '"word":"a","in":[{"b":1.5}],"none":null'
    assert found[:3] == [
        {"id": 1, "__deleted": False, "after": f"{{{rest}}}"},
        {"id": 1, "__deleted": True, "after": f'{{{rest},"n":7}}'},
        {"id": 2, "__deleted": False, "after": None},
    ]
    assert found[3].startswith('the op "t" is a truncation')


@pytest.mark.parametrize("many", [1, 60])
def test_fields_of_a_row_are_rescued_in_avro_and_where_it_is_flattened(many: int) -> None:
    columns = pa.schema([("id", pa.int64())])
    a = {"id": 1, "word": "a", "at": None, "day": -2}
    found = outcome(
        [avro("c", after=a), avro("d", before=a)] * many, columns, writer_schema=json.dumps(AVRO), rescue="r"
    )
    rest = {"id": 1, "r": '{"word":"a","day":"1969-12-30"}'}
    assert found == [{**rest, "__deleted": False}, {**rest, "__deleted": True}] * many
    fields = [
        {"type": kind, "field": name} for name, kind in (("id", "int64"), ("w", "string"), ("__deleted", "string"))
    ]
    flat = with_schema({"id": 1, "w": "a", "__deleted": "true"}, {"type": "struct", "fields": fields})
    assert outcome([flat] * many, columns, rescue="r") == [{"id": 1, "__deleted": True, "r": '{"w":"a"}'}] * many


def test_settings_that_do_not_go_with_the_format() -> None:
    with pytest.raises(UsageError, match="names twice: __deleted"):
        BodyReader(pa.schema([("id", pa.int64()), ("__deleted", pa.bool_())]), DEBEZIUM)
    for settings in (
        {"format": "json", "skipped_operations": ["t"]},
        {"format": "json", "decimal_handling_mode": "string"},
        {"format": "debezium", "skipped_operations": "t"},
        {"format": "debezium", "skipped_operations": ["truncate"]},
        {"format": "debezium", "skipped_operations": ["u"]},
        {"format": "debezium", "decimal_handling_mode": "double"},
        {"format": "debezium", "message": "Flight"},
    ):
        with pytest.raises(ConfigError):
            BodyFormat(**settings)
    for name, type_ in (("__op", pa.int64()), ("__ts_ms", pa.timestamp("us", "UTC")), ("__after", pa.string())):
        with pytest.raises(ConfigError, match=r"the operation is a STRING|around the row there are texts"):
            BodyReader(pa.schema([("id", pa.int64()), (name, type_)]), DEBEZIUM)


def test_a_schema_is_not_read_for_each_body(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str | bytes] = []

    def counted(text: str | bytes) -> ConnectType | None:
        calls.append(text)
        return read_type(text)

    monkeypatch.setattr(json_changes, "read_type", counted)
    columns = pa.schema([("id", pa.int64()), ("once", pa.string())])
    reader = BodyReader(columns, DEBEZIUM)
    bodies = [with_schema(envelope("c", after={"id": number}), SCHEMA) for number in range(1000)]
    assert reader.read(pa.array(bodies, pa.binary())).columns["id"].to_pylist() == list(range(1000))
    assert len(calls) == 1
