"""Random schemas of Avro with values, and the columns that they fit: for tests that compare with `fastavro`."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
from fastavro import schemaless_writer

AT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Drawn(NamedTuple):
    """A schema, the type of a column for it, a value as `fastavro` writes it, and the same as the column has it."""

    schema: Any
    type: pa.DataType
    value: Any
    column: Any


def encoded(schema: Any, value: Any) -> bytes:
    """The body, as `fastavro` writes it."""
    out = io.BytesIO()
    schemaless_writer(out, schema, value)
    return out.getvalue()


def draw(dice: Random, depth: int = 3) -> Drawn:
    """One at random, of which any part may be a union with null."""
    drawn = dice.choice([*LEAVES, *([_array, _map, _record] if depth else [])])(dice, depth)
    if dice.random() < 0.3 and drawn.schema != "null":
        schema = dice.choice(([drawn.schema, "null"], ["null", drawn.schema]))
        return drawn._replace(schema=schema) if dice.random() < 0.7 else Drawn(schema, drawn.type, None, None)
    return drawn


def record(dice: Random, depth: int = 3) -> Drawn:
    """A record at random: what a body is."""
    return _record(dice, depth + 1)


def _name(dice: Random) -> str:
    return f"N{dice.getrandbits(60):x}"


def _text(dice: Random) -> str:
    return "".join(dice.choice('aé漢🙂"\\ \n') for _ in range(dice.choice((0, 1, 3, 70))))


def _whole(dice: Random, bits: int) -> int:
    return dice.choice((0, -1, 1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dice.getrandbits(bits - 1)))


def _same(schema: Any, type_: pa.DataType, value: Any) -> Drawn:
    return Drawn(schema, type_, value, value)


def _decimal(dice: Random, depth: int) -> Drawn:
    precision = dice.randint(1, 18)
    scale = dice.randint(0, precision)
    value = Decimal(dice.randint(-(10**precision) + 1, 10**precision - 1)).scaleb(-scale)
    schema: dict[str, Any] = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    if dice.random() < 0.5:
        schema |= {"type": "fixed", "size": 9, "name": _name(dice)}
    return _same(schema, pa.decimal128(precision, scale), value)


def _moment(dice: Random, depth: int) -> Drawn:
    unit, size = dice.choice((("millis", 1_000), ("micros", 1)))
    moment = _EPOCH + timedelta(microseconds=dice.randint(-(10**15), 10**15) // size * size)
    if dice.random() < 0.5:
        return _same({"type": "long", "logicalType": f"timestamp-{unit}"}, AT, moment)
    return _same({"type": "long", "logicalType": f"local-timestamp-{unit}"}, LOCAL, moment.replace(tzinfo=None))


def _enum(dice: Random, depth: int) -> Drawn:
    symbols = [f"S{number}" for number in range(dice.randint(1, 300))]
    return _same({"type": "enum", "name": _name(dice), "symbols": symbols}, pa.string(), dice.choice(symbols))


def _fixed(dice: Random, depth: int) -> Drawn:
    size = dice.randint(1, 9)
    return _same({"type": "fixed", "name": _name(dice), "size": size}, pa.binary(), dice.randbytes(size))


def _float(dice: Random, depth: int) -> Drawn:
    value = dice.choice((0.0, -1.5, 2.0**100, float("inf"), dice.randint(-(2**24), 2**24) / 8))
    return _same("float", dice.choice((pa.float32(), pa.float64())), value)


LEAVES = (
    lambda dice, depth: _same("null", pa.int64(), None),
    lambda dice, depth: _same("boolean", pa.bool_(), dice.random() < 0.5),
    lambda dice, depth: _same("int", dice.choice((pa.int32(), pa.int64())), _whole(dice, 32)),
    lambda dice, depth: _same("long", pa.int64(), _whole(dice, 64)),
    _float,
    lambda dice, depth: _same("double", pa.float64(), dice.choice((0.1, -1e300, 5e-324, float("-inf")))),
    lambda dice, depth: _same("string", pa.string(), _text(dice)),
    lambda dice, depth: _same("bytes", pa.binary(), dice.randbytes(dice.choice((0, 1, 100)))),
    lambda dice, depth: _same(
        {"type": "int", "logicalType": "date"}, pa.date32(), date.fromordinal(dice.randint(1, 3_000_000))
    ),
    _decimal,
    _moment,
    _enum,
    _fixed,
)


def _items(dice: Random, depth: int) -> tuple[Drawn, list[Drawn]]:
    """A type, and values of it: of one shape, since the schema is one."""
    one = draw(dice, depth - 1)
    return one, [one] * dice.choice((0, 1, 3))


def _array(dice: Random, depth: int) -> Drawn:
    one, items = _items(dice, depth)
    type_ = pa.list_(one.type)
    return Drawn({"type": "array", "items": one.schema}, type_, [i.value for i in items], [i.column for i in items])


def _map(dice: Random, depth: int) -> Drawn:
    one, items = _items(dice, depth)
    names = [f"{number}{_text(dice)}" for number in range(len(items))]
    return Drawn(
        {"type": "map", "values": one.schema},
        pa.map_(pa.string(), one.type),
        {name: item.value for name, item in zip(names, items, strict=True)},
        [(name, item.column) for name, item in zip(names, items, strict=True)],
    )


def _record(dice: Random, depth: int) -> Drawn:
    fields = {f"f{number}": draw(dice, depth - 1) for number in range(dice.randint(1, 5))}
    schema = {
        "type": "record",
        "name": _name(dice),
        "fields": [{"name": name, "type": one.schema} for name, one in fields.items()],
    }
    return Drawn(
        schema,
        pa.struct([(name, one.type) for name, one in fields.items()]),
        {name: one.value for name, one in fields.items()},
        {name: one.column for name, one in fields.items()},
    )
