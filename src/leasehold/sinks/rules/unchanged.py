"""Values that an event leaves as they are: what they are, from the event before it or from the row that is there.

Owns these rules, for a table with `TableSpec.unavailable_value`. Debezium writes that text in place of a value that
Postgres keeps beside the row ("TOAST") and does not give it where an update has not changed it, unless the table's
REPLICA IDENTITY is FULL. In bytes and in arrays the text has other forms (as Debezium 3.6 writes them).

1. The value is that of the last event before it of the same key: in the batch, else what the table's row has.
2. It is not known where there is no such row, where that event deleted the row, and where an event of the partition
   was set aside since then that is about the key, or of which that cannot be told. Then the event is set aside, too,
   with the reason: it would write a row that never was. The same goes for the events of the key after it that leave a
   value as it is. Once those before it have been tried again, it can be, too.
3. Only a text or bytes can be filled in: an event that leaves an array as it is, is set aside. So is
   each with `sequence_by`, and where other partitions' events are rejected: another may be the one before it.
4. An event that is tried again, and is older than what has written its key, is left as it is: it is superseded. Where a
   person has lowered a watermark, older events are written over later ones, and take what is there: what has changed it
   since comes again behind them.

An event of the batch that the table refuses counts as the one before: what it says of the source is right. Does no I/O.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.arrow_masks import true_places
from leasehold.sinks.rules.again import RejectedRow
from leasehold.sinks.rules.batch import Batch, Kept
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.ordering import Key
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS, TableSpec, folded
from leasehold.sinks.rules.values import as_json, dumps

_MOST = 1_000
"""How many events that were set aside are looked at: of more, it counts as unknown whose they are."""
_LONGEST = 20  # digits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Shown = tuple[str, ...]
"""A key, each value as JSON."""
_FULL = "give the source's table REPLICA IDENTITY FULL"
_NO_ROW = "leaves {} as it is, and there is no row before it"
_DOUBTFUL = (
    f"leaves {{}} as it is, and an event that was set aside may have changed it: try that one again first, or {_FULL}"
)
_ARRAY = f"leaves {{}} as it is, and only texts and bytes are filled in: {_FULL}"


_ORDERED = f"leaves {{}} as it is, and events of a key may come in another order here: {_FULL}"


class RowsBefore(Protocol):
    """What is there from before a batch, in its transaction."""

    def read_states(self, schema: pa.Schema, keys: Sequence[Key]) -> Mapping[Key, Mapping[str, Any]]:
        """The rows of these keys, those that are there, in the columns of `schema`."""
        ...

    def written_by(self, schema: pa.Schema, keys: Sequence[Key]) -> Mapping[Key, int]:
        """Which event has written each of these keys last, by its number, as far as that is remembered."""
        ...

    def aside_between(self, lane: Lane, after: int, before: int, at_most: int) -> Sequence[RejectedRow]:
        """What is set aside of the events of the partition between these numbers, as many rows of it."""
        ...


@dataclass(slots=True)
class _Entity:
    """A row as the events so far have left it; None where there is none. `number` is that of the last of them."""

    values: Mapping[str, Any] | None
    number: int


def filled(batch: Batch, kept: Kept, spec: TableSpec, before: RowsBefore) -> Batch:
    """The batch with all values that its kept rows leave as they are; rows of which one is not known are `unwritable`.

    The same batch where there are none.
    """
    assert spec.unavailable_value is not None
    gaps = _Gaps.of(batch.rows, spec)
    if not gaps.columns or not any(place in gaps.columns for place in kept.source.to_pylist()):
        return batch
    return _Filling(batch, kept, spec, gaps, before).done()


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The columns that each row leaves as they are, by the row's place; `plain` are those that can be filled in."""

    columns: Mapping[int, Sequence[str]]
    plain: frozenset[str]

    @staticmethod
    def of(rows: pa.Table, spec: TableSpec) -> _Gaps:
        forms = _Forms(spec.unavailable_value or "")
        apart = {folded(name) for name in (*FENCE_COLUMNS, *spec.keys)}
        columns: dict[int, list[str]] = {}
        plain = set()
        for name in rows.schema.names:
            if folded(name) in apart or not spec.is_stored(name):
                continue
            column = rows[name].combine_chunks() if rows[name].num_chunks != 1 else rows[name].chunk(0)
            if places := forms.places(column):
                if not types.is_nested(column.type):
                    plain.add(name)
                for place in places:
                    columns.setdefault(place, []).append(name)
        return _Gaps(columns, frozenset(plain))


class _Forms:
    """The forms that a text has in columns of each type: in bytes, as one entry of a map, or as the only one of a list;
    in a list of numbers as its bytes, in one of UUIDs as the UUID that is made of it; and all these as JSON text."""

    def __init__(self, text: str) -> None:
        self._raw = text.encode()
        self._numbers = list(self._raw)
        coded = base64.b64encode(self._raw).decode()
        digest = hashlib.md5(self._raw, usedforsecurity=False).digest()
        self._texts = {text, coded, str(uuid.UUID(bytes=digest, version=3))}
        self._json = [{text: text}, [text], [coded], *([one] for one in self._texts), self._numbers]
        self._begun = f"(?s)^[\\[{{].*(?:{re.escape(text)}|{re.escape(coded)}|{self._numbers[0]})"

    def places(self, column: pa.Array) -> list[int]:
        """Where the column has the text."""
        if types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if types.is_string(column.type) or types.is_large_string(column.type):
            exact = pc.is_in(column, pa.array(sorted(self._texts), column.type))
            likely = pc.fill_null(pc.match_substring_regex(column, self._begun), False)
            return sorted(
                {*true_places(exact), *(at for at in true_places(likely) if self._is_json(column[at].as_py()))}
            )
        if types.is_nested(column.type):
            return [place for place, value in enumerate(column.to_pylist()) if self._is_in(value)]
        if (
            types.is_binary(column.type)
            or types.is_large_binary(column.type)
            or types.is_fixed_size_binary(column.type)
        ):
            return true_places(pc.equal(column.cast(pa.large_binary()), pa.scalar(self._raw, pa.large_binary())))
        return []

    def _is_json(self, text: str) -> bool:
        try:
            return json.loads(text) in self._json
        except (ValueError, RecursionError):
            return False

    def _is_in(self, value: Any) -> bool:
        """Whether a nested value has the text, or is the numbers of its bytes."""
        if isinstance(value, str | bytes):
            return value in self._texts or value == self._raw
        if isinstance(value, dict):
            return any(map(self._is_in, value.values()))
        if isinstance(value, list | tuple):
            return any(map(self._is_in, value)) or [*map(_number, value)] == self._numbers
        return False


def _number(value: Any) -> int | None:
    """A number, also one that was read as text or as a date."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return value.toordinal() - _EPOCH.toordinal()
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < _LONGEST else None
    return value if isinstance(value, int) else None


@dataclass(slots=True)
class _Filling:
    batch: Batch
    kept: Kept
    spec: TableSpec
    gaps: _Gaps
    before: RowsBefore
    _entities: dict[Key, _Entity] = field(default_factory=dict)
    _aside: dict[Lane, list[tuple[int, _Shown | None]]] = field(default_factory=dict)
    _looked_at: dict[Lane, int] = field(default_factory=dict)
    _shown: dict[Key, _Shown] = field(default_factory=dict)
    _reasons: dict[int, str] = field(default_factory=dict)
    _made: dict[str, dict[int, Any]] = field(default_factory=dict)

    def done(self) -> Batch:
        rows = self.batch.rows
        of_keys = [rows[_written(rows, name)] for name in self.spec.keys]
        keys = list(zip(*(one.to_pylist() for one in of_keys), strict=True))
        sources = self.kept.source.to_pylist()
        asked = {keys[place]: place for place in sources if place in self.gaps.columns and None not in keys[place]}
        shown = as_json(
            {folded(name): one.take(list(asked.values())) for name, one in zip(self.spec.keys, of_keys, strict=True)}
        )
        self._shown = {key: tuple(map(dumps, json.loads(one).values())) for key, one in zip(asked, shown, strict=True)}
        self._load(list(asked))
        values = {name: rows[name] for name in sorted(self.gaps.plain)}
        deletes = [] if self.batch.delete is None else self.batch.delete.to_pylist()
        for place, lane, number in zip(sources, self.kept.lanes, self.kept.numbers, strict=True):
            if place >= rows.num_rows:
                self._aside_of(lane).append((number, None))
            elif (entity := self._entities.get(keys[place])) is not None and self._counts(entity, number):
                if deletes and deletes[place]:
                    entity.values, entity.number = None, number
                else:
                    mine = {name: one[place].as_py() for name, one in values.items()}
                    self._take(place, entity, keys[place], lane, number, mine)
        return self._batch()

    def _counts(self, entity: _Entity, number: int) -> bool:
        """Whether an event of this number is written, and not superseded: rule 4."""
        return self.batch.again is None or entity.number <= number

    def _load(self, keys: Sequence[Key]) -> None:
        schema = self.batch.rows.schema
        of_key = pa.schema([schema.field(_written(self.batch.rows, name)).with_name(name) for name in self.spec.keys])
        whole = pa.schema([*of_key, *(schema.field(name) for name in sorted(self.gaps.plain))])
        there, written = self.before.read_states(whole, keys), self.before.written_by(of_key, keys)
        for key in keys:
            row = there.get(key)
            if row is not None and not self.gaps.plain.issubset(row):  # it cannot be read
                row = None
            self._entities[key] = _Entity(row, written.get(key, -1))

    def _take(self, place: int, entity: _Entity, key: Key, lane: Lane, number: int, values: dict[str, Any]) -> None:
        """What the row leaves of its entity, with the values that it leaves as they are."""
        columns = self.gaps.columns.get(place, ())
        said = self._refusal(columns, entity, key, lane, number) if columns else None
        if said is not None:
            self._reasons[place] = f"the event {said.format(', '.join(columns))}"
            self._aside_of(lane).append((number, self._shown[key]))
            return
        assert entity.values is not None or not columns
        for name in columns:
            values[name] = (entity.values or {})[name]
            self._made.setdefault(name, {})[place] = values[name]
        entity.values, entity.number = values, number

    def _refusal(self, columns: Sequence[str], entity: _Entity, key: Key, lane: Lane, number: int) -> str | None:
        if self.spec.sequence_by is not None or self.spec.rejects_strangers:
            return _ORDERED
        if not self.gaps.plain.issuperset(columns):
            return _ARRAY
        if entity.values is None:
            return _NO_ROW
        since = (keys for one, keys in self._aside_of(lane) if entity.number < one < number)
        in_doubt = number > self._looked_at[lane] or any(keys is None or keys == self._shown[key] for keys in since)
        return _DOUBTFUL if in_doubt else None

    def _aside_of(self, lane: Lane) -> list[tuple[int, _Shown | None]]:
        """The events of the partition that are set aside, each with the key that it shows; None if it shows none."""
        if lane not in self._aside:
            lowest = min((one.number for one in self._entities.values()), default=-1)
            here = [number for one, number in zip(self.kept.lanes, self.kept.numbers, strict=True) if one == lane]
            rows = self.before.aside_between(lane, lowest, max(here), _MOST)
            again = self.batch.again or ()
            names = [folded(name) for name in self.spec.keys]
            if "body" in map(folded, self.batch.rows.schema.names):  # which is kept in place of the row
                names = []
            self._aside[lane] = [
                (row.event.sequence_number, _key_in(row, names)) for row in rows if row.event not in again
            ]
            self._looked_at[lane] = rows[-1].event.sequence_number if len(rows) == _MOST else max(here)
        return self._aside[lane]

    def _batch(self) -> Batch:
        rows = self.batch.rows
        for name, made in self._made.items():
            column = rows[name].to_pylist()
            for place, value in made.items():
                column[place] = value
            at = rows.schema.names.index(name)
            rows = rows.set_column(at, rows.schema.field(at), pa.array(column, rows.schema.field(at).type))
        return replace(self.batch, rows=rows, unwritable=self._reasons)


def _key_in(row: RejectedRow, names: Sequence[str]) -> _Shown | None:
    """The key that a row shows that could be read, and was set aside after that; None where it cannot be told."""
    if row.source is not None or not names:
        return None
    try:
        shown = json.loads(row.body) if isinstance(row.body, str | bytes) else None
    except (ValueError, RecursionError):
        return None
    shown = {folded(name): value for name, value in shown.items()} if isinstance(shown, dict) else {}
    return tuple(dumps(shown[name]) for name in names) if all(name in shown for name in names) else None


def _written(rows: pa.Table, name: str) -> str:
    """The column as the rows write it."""
    found: str = next(one for one in rows.schema.names if folded(one) == folded(name))
    return found
