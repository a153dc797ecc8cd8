"""Changes as Debezium writes them in JSON: a table of many types, with the schema beside each value and without.

The values are those that Debezium 3.6 has written of a Postgres table (`tests/peers/test_debezium.py` has it write them
again); the schemas are cut down to what its reader looks at.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

UNAVAILABLE = "__debezium_unavailable_value"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
_MICROS = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
_TIMES = datetime(2024, 2, 29, 13, 45, 30, 123456)

TYPES: Mapping[str, tuple[dict[str, Any], Any, pa.DataType, Any]] = {
    "id": ({"type": "int32"}, 1, pa.int64(), 1),
    "small": ({"type": "int16"}, 7, pa.int16(), 7),
    "big": ({"type": "int64"}, 9007199254740993, pa.int64(), 9007199254740993),
    "price": (_DECIMAL, "EtaA", pa.decimal128(10, 2), Decimal("12345.60")),
    "price_text": (_DECIMAL, "EtaA", pa.string(), "12345.60"),
    "any": (
        {"type": "struct", "name": _VARIABLE, "fields": [{"type": "int32", "field": "scale"}]},
        {"scale": 20, "value": "EQfV61tbpNfG"},
        pa.decimal128(38, 20),
        Decimal("3.14159265358979323846"),
    ),
    "real": ({"type": "float"}, 1.5, pa.float32(), 1.5),
    "double": ({"type": "double"}, 2.718281828459045, pa.float64(), 2.718281828459045),
    "flag": ({"type": "boolean"}, True, pa.bool_(), True),
    "text": ({"type": "string"}, 'Grüße, "x"', pa.string(), 'Grüße, "x"'),
    "raw": ({"type": "bytes"}, "AP8Q", pa.binary(), b"\x00\xff\x10"),
    "bits": ({"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "8"}}, "gQ==", pa.string(),
             "10000001"),
    "day": ({"type": "int32", "name": "io.debezium.time.Date"}, -2, pa.date32(), date(1969, 12, 30)),
    "time": ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 49530123456, pa.string(), "13:45:30.123456"),
    "time3": ({"type": "int32", "name": "io.debezium.time.Time"}, 49530123, pa.string(), "13:45:30.123"),
    "at": (_MICROS, 1709214330123456, pa.timestamp("us"), _TIMES),
    "at_utc": (_MICROS, 1709214330123456, pa.timestamp("us", "UTC"), _TIMES.replace(tzinfo=UTC)),
    "at3": ({"type": "int64", "name": "io.debezium.time.Timestamp"}, -315619199999, pa.timestamp("us"),
            datetime(1960, 1, 1, 0, 0, 0, 1000)),
    "zoned": ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2024-02-29T11:45:30.123456Z",
              pa.timestamp("us", "UTC"), datetime(2024, 2, 29, 11, 45, 30, 123456, UTC)),
    "span": ({"type": "int64", "name": "io.debezium.time.MicroDuration"}, -2802601500000, pa.int64(), -2802601500000),
    "json": ({"type": "string", "name": "io.debezium.data.Json"}, '{"a" : 1.0}', pa.string(), '{"a" : 1.0}'),
    "point": ({"type": "struct", "name": "io.debezium.data.geometry.Point", "fields": []}, {"x": 1.5, "srid": None},
              pa.string(), '{"x":1.5,"srid":null}'),
    "numbers": ({"type": "array", "items": {"type": "int32"}}, [1, None, -3], pa.list_(pa.int32()), [1, None, -3]),
    "prices": ({"type": "array", "items": _DECIMAL}, ["fQ==", "/tQ="], pa.list_(pa.decimal128(10, 2)),
               [Decimal("1.25"), Decimal("-3.00")]),
    "moments": ({"type": "array", "items": _MICROS}, [1709214330123456, None], pa.list_(pa.timestamp("us")),
                [_TIMES, None]),
}  # fmt: skip
"""Of each column the type that Connect states, a value as it is written, the type of ours, and the value in it."""
COLUMNS = pa.schema([(name, type_) for name, (_, _, type_, _) in TYPES.items()])
ROW = {name: value for name, (_, value, _, _) in TYPES.items()}
READ = {name: value for name, (_, _, _, value) in TYPES.items()}


def envelope(
    op: str | None, before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A change. Without `op` it has none."""
    source = {"version": "3.6.1.Final", "connector": "postgresql", "lsn": 25585376, "table": "types", "snapshot": None}
    made = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1796080050103}
    return {name: value for name, value in {**made, **more}.items() if name != "op" or value is not None}


def schema_of(fields: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The schema of an envelope whose rows have these fields."""
    row = {"type": "struct", "fields": [{**type_, "optional": True, "field": name} for name, type_ in fields.items()]}
    parts = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    return {"type": "struct", "fields": parts, "optional": False, "name": "source.public.types.Envelope"}


SCHEMA = schema_of({name: type_ for name, (type_, _, _, _) in TYPES.items()})


def written(value: Any) -> bytes:
    """JSON as Kafka Connect writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def with_schema(payload: Any, schema: Any = SCHEMA) -> bytes:
    """A body with the schema beside the change."""
    return written({"schema": schema, "payload": payload})


def base64_of(text: str) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(text.encode()).decode()
