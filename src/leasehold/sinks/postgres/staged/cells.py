"""From Arrow rows to rows of `leasehold_staged`, and back to what is kept of one that the table refuses.

Owns the form of `cells`: the values of a row as an array of texts, each what `staging.encode` makes of it, written so
that the type of its carrier reads it. Does no I/O, and knows the table by the columns of the DataFrame alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.arrow_masks import nulled, true_places
from leasehold.sinks.beside.kept_values import kept_body
from leasehold.sinks.postgres.rows import Readied
from leasehold.sinks.postgres.staged.table import COLUMNS
from leasehold.sinks.postgres.staging import flat
from leasehold.sinks.postgres.types import is_boolean
from leasehold.sinks.rules.batch import Batch, Kept, fence_of
from leasehold.sinks.rules.columns import stored_fields
from leasehold.sinks.rules.content import SetAside, bodies_of
from leasehold.sinks.rules.table import HUB, OWNER_LEVEL, PARTITION, SEQUENCE_NUMBER, TableSpec, folded, ordered_keys
from leasehold.sinks.rules.values import Kind, dumps, kind_of

_PLAIN = (Kind.INTEGER, Kind.REAL, Kind.DECIMAL, Kind.DATE)
"""Kinds whose text has nothing that an array's text would have to quote."""


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """The columns of a DataFrame that are stored, and the positions of the keys: those of any table that it fits."""

    columns: tuple[str, ...]
    keys: tuple[int, ...]


def stored_columns(spec: TableSpec, schema: pa.Schema) -> StoredColumns:
    """What is stored of rows of this schema. Raises `SchemaMismatch`."""
    names = tuple(field.name for field in stored_fields(spec, schema, "Postgres"))
    places = {folded(name): place for place, name in enumerate(names)}
    return StoredColumns(names, tuple(places[folded(key)] for key in ordered_keys(spec)))


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """Some rows in the form of `leasehold_staged`, of which `set_aside` have a reason."""

    rows: pa.Table
    set_aside: int


def staged_piece(
    piece: Batch, columns: StoredColumns, *, batch: str, attempt: str, task: int, first: int
) -> StagedPiece:
    """The rows of `piece` as they are staged; the first of them has the place `first`."""
    parsed = piece.rows.num_rows
    others = 0 if piece.rejected is None else piece.rejected.num_rows
    count = parsed + others
    kept = Kept(pa.array(range(count), pa.uint64()), [], [], 0)
    it = Readied(piece, columns, kept, lambda: None)
    fence = fence_of(piece.rows, "the DataFrame")
    if others:
        assert piece.rejected is not None
        fence = pa.concat_tables([fence, fence_of(piece.rejected, "the DataFrame of rejected events")])
    reasons: list[str | None] = [None] * count
    bodies: list[str | None] = [None] * count
    texts: list[bool | None] = [None] * count
    sources: list[str | None] = [None] * count
    for at, body, reason, source in chain(_unfit(it), it.unparsed):
        reasons[at], sources[at] = reason.replace("\0", "\\0"), source
        bodies[at], texts[at] = _hex(body)
    doubtful = [place for place in _altered(it) if place not in it.unfit]
    for place, body in zip(doubtful, bodies_of(it.data.take(pa.array(doubtful, pa.int64()))), strict=True):
        bodies[place], texts[place] = _hex(body)
    by_number, by_text = it.ordered_by(range(parsed))
    unfit = pa.array([place in it.unfit for place in range(parsed)], pa.bool_())
    none = pa.nulls(others, pa.string())
    cells = nulled(_cells(it), unfit)
    values = {
        "batch": pa.array([batch] * count, pa.string()),
        "attempt": pa.array([attempt] * count, pa.string()),
        "task": pa.array([task] * count, pa.int32()),
        "n": pa.array(range(first, first + count), pa.int64()),
        "hub": fence[HUB],
        "partition": fence[PARTITION],
        "owner_level": fence[OWNER_LEVEL],
        "sequence_number": fence[SEQUENCE_NUMBER],
        "aside": pa.array([False] * parsed + [True] * others, pa.bool_()),
        "by_number": pa.concat_arrays([nulled(by_number, unfit), none]),
        "by_text": pa.concat_arrays([nulled(by_text, unfit), none]),
        "gone": pa.concat_arrays([it.gone, pa.array([False] * others, pa.bool_())]),
        "cells": pa.concat_arrays([cells, none.cast(pa.large_string())]),
        "reason": pa.array(reasons, pa.string()),
        "body": pa.array(bodies, pa.string()),
        "is_text": pa.array(texts, pa.bool_()),
        "source": pa.array(sources, pa.string()),
    }
    rows = pa.table({name: values[name] for name in COLUMNS})
    return StagedPiece(rows.combine_chunks(), len(it.unfit) + others)  # the writer of CSV fails over empty chunks


def _unfit(it: Readied) -> Iterator[SetAside]:
    places = sorted(it.unfit)
    bodies = bodies_of(it.data.take(pa.array(places, pa.int64())))
    for place, body in zip(places, bodies, strict=True):
        yield SetAside(place, body, it.unfit[place], None)


def _altered(it: Readied) -> list[int]:
    """Rows of which not all can be read back from their cells: a delete's other values, and minus zero."""
    found = {place for one in it.encoded for place in one.problems}
    for column in it.data.columns:
        if kind_of(column.type) is Kind.REAL:
            plain = flat(column)
            plain = plain.cast(plain.type.value_type) if types.is_dictionary(plain.type) else plain
            below = pc.equal(pc.divide(pa.scalar(1.0), plain.cast(pa.float64())), pa.scalar(float("-inf")))
            found.update(true_places(below))
    return sorted(found)


def _hex(body: object) -> tuple[str | None, bool]:
    given, is_text = kept_body(body)
    return None if given is None else "\\x" + given.hex(), is_text


def _cells(it: Readied) -> pa.Array:
    elements = []
    for column, one in zip(it.data.columns, it.encoded, strict=True):
        text = flat(one.values).cast(pa.large_string())
        if kind_of(column.type) not in _PLAIN:
            text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
            text = _joined([_large('"'), text, _large('"')], "")
        elements.append(pc.fill_null(text, _large("NULL")))
    return _joined([_large("{"), _joined(elements, ","), _large("}")], "")


def _joined(parts: list[Any], between: str) -> Any:
    return flat(parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _large(between)))


def _large(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


# and back


def body_from(cells: Sequence[str | None], columns: Mapping[str, pa.DataType]) -> object:
    """What `content.bodies_of` gives for the row that these cells were made of."""
    values = dict(zip(columns, cells, strict=True))
    for name, type_ in columns.items():
        if folded(name) == "body" and (body := _bound(type_, values[name])) is not None:
            return body
    return dumps({name: _shown(type_, values[name]) for name, type_ in columns.items()})


def _bound(type_: pa.DataType, cell: str | None) -> object:
    """What `values.convert` gives for a value."""
    kind = kind_of(type_)
    if cell is None or kind is Kind.NOTHING:
        return None
    if kind is Kind.INTEGER:
        return int(cell == "true") if is_boolean(type_) else int(cell)
    if kind is Kind.REAL:
        return None if (number := float(cell)) != number else number
    if kind is Kind.BLOB:
        return bytes.fromhex(cell.removeprefix("\\x"))
    return format(Decimal(cell), "f") if kind is Kind.DECIMAL and "E" in cell else cell


def _shown(type_: pa.DataType, cell: str | None) -> object:
    """What `values.as_json` shows of a value."""
    kind, value = kind_of(type_), _bound(type_, cell)
    if cell is None:
        return None
    if kind is Kind.INTEGER and is_boolean(type_):
        return bool(value)
    if kind is Kind.REAL:
        number = float(cell)
        return "NaN" if number != number else number if abs(number) < float("inf") else _infinite(number)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return json.loads(cell) if kind is Kind.JSON else value


def _infinite(number: float) -> str:
    return "Infinity" if number > 0 else "-Infinity"
