"""Bodies in Avro that are read many at once are read as one by one, whatever is among them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from leasehold.body_format import BodyFormat
from leasehold.formats import BodyReader
from leasehold.formats.avro.columns import avro_columns
from leasehold.formats.avro.schemas import read_schema
from leasehold.formats.format_readers import FormatReader
from tests.formats.avro_schemas import AT, LEAVES, LOCAL, encoded, record

FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "flight", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "delay", "type": ["double", "null"]},
        {"name": "seats", "type": "int"},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["landed", "late"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "legs", "type": {"type": "array", "items": {"type": "record", "name": "Leg", "fields": [
            {"name": "gate", "type": ["null", "string"]}, {"name": "miles", "type": "float"}]}}},
    ],
}  # fmt: skip
LEG = pa.struct([("miles", pa.float64()), ("gate", pa.string()), ("none", pa.int8())])
TYPES = (pa.string(), AT, LOCAL, pa.date32(), pa.float64(), pa.int64(), pa.string(), pa.list_(LEG), pa.binary())
NAMES = ("flight", "at", "local", "day", "delay", "seats", "status", "legs", "new")
COLUMNS = pa.schema(list(zip(NAMES, TYPES, strict=True)))


def flight(number: int) -> dict[str, Any]:
    return {
        "flight": f"LH{number}é",
        "at": number * 10**9,
        "local": None if number % 3 else datetime(2026, 2, 3),
        "day": number,
        "delay": None if number % 5 else number / 7,
        "seats": number - 500,
        "status": "late" if number % 2 else "landed",
        "tags": {"a": "b"} if number % 4 else {},
        "legs": [{"gate": None, "miles": 1.5}, {"gate": "B7", "miles": 0.1}][: number % 3],
    }


def agree(schema: Any, columns: pa.Schema, bodies: Sequence[bytes | None], rescue: str | None = None) -> int:
    """How many of the bodies were read many at once."""
    how = BodyFormat(format="avro", writer_schema=json.dumps(schema), rescue=rescue)
    chunk = pa.array(bodies, pa.binary())
    single = BodyReader(columns, how)
    assert isinstance(single._reader, FormatReader)
    single._reader._many = None
    read, other = BodyReader(columns, how).read(chunk), single.read(chunk)
    assert (read.reasons and read.reasons.to_pylist()) == (other.reasons and other.reasons.to_pylist())
    assert repr(read.columns.to_pylist()) == repr(other.columns.to_pylist())
    many = avro_columns(columns, read_schema(json.dumps(schema)), rescue=False)
    return sum(len(rows) for rows, _ in many.read(chunk)) if many else 0


def spoilt(dice: Random, body: bytes) -> bytes:
    changed = bytearray(body)
    if not changed or dice.random() < 0.2:
        return bytes(changed) + b"\0"
    if dice.random() < 0.3:
        return bytes(changed[: dice.randrange(len(changed))])
    changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("few", [0, 50])
def test_flights_are_read_many_at_once_but_for_those_that_are_broken(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.formats.typed.columns._FEW", few)
    dice = Random(1)
    good: list[bytes | None] = [encoded(FLIGHT, flight(number)) for number in range(2_000)]
    assert agree(FLIGHT, COLUMNS, good) == len(good)
    header = read_schema(json.dumps(FLIGHT)).header
    assert agree(FLIGHT, COLUMNS, [header + (body or b"") for body in good]) == len(good)
    mixed = list(good)
    for place in range(0, len(mixed), 97):
        body = mixed[place] or b""
        mixed[place] = dice.choice((None, header + body, header, b"", spoilt(dice, body)))
    assert agree(FLIGHT, COLUMNS, mixed) > (1_900 if few == 0 else 500)


@pytest.mark.more
def test_random_schemas_agree() -> None:
    dice = Random(62)
    many = 0
    for _ in range(100):
        drawn = record(dice, 2)
        body = encoded(drawn.schema, drawn.value)
        bodies = [body] * 60 + [spoilt(dice, body) for _ in range(15)]
        many += agree(drawn.schema, pa.schema(list(drawn.type)), bodies) > 0
        agree(drawn.schema, pa.schema(list(drawn.type)[1:] or list(drawn.type)), bodies, rescue="rest")
    assert many > 8


@pytest.mark.parametrize("leaf", LEAVES, ids=range(len(LEAVES)))
def test_each_type_agrees(leaf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold.formats.typed.columns._FEW", 0)
    dice = Random(63)
    for _ in range(5):
        drawn = leaf(dice, 0)
        schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": drawn.schema}]}
        body = encoded(schema, {"v": drawn.value})
        bodies = [body] * 51 + [spoilt(dice, body) for _ in range(20)]
        for type_ in (drawn.type, pa.string(), pa.int64(), pa.float64()):
            agree(schema, pa.schema([("v", type_)]), bodies)


@pytest.mark.soak
def test_twenty_thousand_random_schemas_agree() -> None:
    dice = Random()
    for _ in range(20_000):
        drawn = record(dice, 2)
        body = encoded(drawn.schema, drawn.value)
        agree(drawn.schema, pa.schema(list(drawn.type)), [body] * 60 + [spoilt(dice, body) for _ in range(15)])
