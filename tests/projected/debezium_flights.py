"""The flights of `flights` as changes that Debezium has captured: some leave values as they are, some are no rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

from tests.formats.debezium_events import UNAVAILABLE, envelope, schema_of, with_schema, written
from tests.projected.flights import write

_FIELDS: dict[str, dict[str, Any]] = {
    "id": {"type": "string"},
    "delay": {"type": "double"},
    "op": {"type": "string"},
    "at": {"type": "int64"},
    "paid": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
    "seen": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
}
_SQL = '''sql = """SELECT id, Delay AS late, op, AT, paid AS `amount paid`, day, seen, __deleted, rest,
                enqueuedTime AS told, hub, partition, sequenceNumber, ownerLevel FROM events"""
'''
_KEEP = 'keep = ["sequenceNumber"]'


def write_debezium(folder: Path, **changes: str) -> Path:
    """The file for changes of Debezium. Its rows are deleted by what the format says."""
    how = 'format = "debezium"\nskipped_operations = ["m"]\nrescue = "rest"'
    return write(folder, **{"rescue": how, "sql": _SQL, "keep": _KEEP, "delete_when": "", **changes})


def debezium_bodies(rng: Random, count: int) -> list[bytes]:
    """Changes of some 20 entities, most with the schema beside them: some delete, some are broken or do not fit."""
    made = []
    for number in range(count):
        row: dict[str, Any] = {
            "id": f"f{rng.randrange(20)}",
            "delay": rng.choice([1.5, -3, None, 0.1, 1e300]),
            "op": rng.choice(["u", UNAVAILABLE, UNAVAILABLE, None]),
            "at": rng.choice([number, None, 2**62]),
            "paid": rng.choice(["BOI=", "ASw=", None]),
            "day": rng.choice([20487, None, -622191234 if rng.random() < 0.1 else 0]),
            "seen": rng.choice([1709214330123456, None, 2**62 if rng.random() < 0.1 else 0]),
        }
        schema = schema_of(_FIELDS)
        if rng.random() < 0.2:
            schema, row["note"] = schema_of({**_FIELDS, "note": {"type": "int32"}}), number
        op = rng.choice(["c", "r", "u", "u", "d", rng.choice(["t", "m", "u", "u"])])
        if op in ("t", "m"):
            change = envelope(op)
        elif op == "d":
            change = envelope("d", before={"id": row["id"]})
        else:
            change = envelope(op, after=row)
        body = with_schema(change, schema)
        if rng.random() < 0.1:
            plain = {name: value for name, value in row.items() if name not in ("paid", "day", "seen")}
            body = written(envelope("u", after=plain))
        made.append(rng.choice([b"", b"[1]", body[:-2], b'{"op":"u"}']) if rng.random() < 0.05 else body)
    return made


def debezium_start(body: bytes) -> bytes:
    """What names its entity in a body."""
    found = re.search(rb'"id":("f[0-9]+")', body)
    return json.loads(found[1]).encode() if found else b""
