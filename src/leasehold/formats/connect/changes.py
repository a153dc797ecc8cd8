"""Debezium's changes of a table's rows: an envelope to the row that is left, and whether it was deleted.

Owns what an envelope must be, as Debezium's documentation has it for all its connectors: `op` is c, r, u or d; the row
is `after`, and of a delete `before`, which has at least the columns of the key. Debezium writes a delete twice: as an
envelope, and as an event without a body, for Kafka's compaction (a "tombstone"), which is passed over. So is an
operation that `skipped_operations` names. A truncation (t) and a message (m) are no change of a row: without that
setting they are rejected, since somebody has to know of them.

`before` is read of deletes alone: nobody asks for what another row was. Columns of what is around the row are called
as Debezium's own flattening calls them: `__op`, `__ts_ms`, and `__source_lsn` for `lsn` of `source`. The rescue column
has fields of the row, and none of what is around it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from leasehold.arrow_masks import true_places
from leasehold.body_format import DELETED, BodyFormat
from leasehold.errors import ConfigError
from leasehold.formats.connect.columns import WireColumns
from leasehold.formats.format_readers import FormatReader, ReadBodies, with_rescue
from leasehold.formats.json_rows import members_of
from leasehold.formats.misfits import shown

_ROWS, _DELETE = ("c", "r", "u"), "d"
_NO_ROW = {
    "t": 'is a truncation of the table: skipped_operations = ["t"] passes it over',
    "m": 'is a message, and no row: skipped_operations = ["m"] passes it over',
}
_OP, _AFTER, _BEFORE, _SOURCE = "op", "after", "before", "source"
_AROUND, _OF_SOURCE = "__", "__source_"
_OTHERS = (_BEFORE, _SOURCE, "transaction", "ts_ms", "ts_us", "ts_ns")
"""Members that Debezium writes beside the row. With a rescue column they are read, so that none is left over: of many
bodies at once, only those with fields left over are read one by one."""
_TAKEN = {f"{_AROUND}{name}" for name in (_AFTER, _BEFORE, _SOURCE)}
_NO_OPERATION = "the body is no change of a row as Debezium writes it: it has no op"
_NO_KEY = "the delete does not say of which row: the table's REPLICA IDENTITY has to have its key"


class ChangeReader:
    """Reads envelopes into columns, with `DELETED` behind them.

    `columns_of` says, of the columns that are in the row, how they are read; `read` makes what reads bodies into other
    columns. Raises `ConfigError` for an `__op` that is no STRING.
    """

    def __init__(
        self,
        columns: pa.Schema,
        columns_of: Callable[[pa.Schema], WireColumns],
        read: Callable[[pa.Schema], FormatReader],
        how: BodyFormat,
    ) -> None:
        self.schema = changed(columns, how)
        self._skipped, self._rescue = list(how.skipped_operations), how.rescue
        self._around = [one for one in columns if one.name.startswith(_AROUND)]
        self._in_row = [one.name for one in columns if not one.name.startswith(_AROUND)]
        self._row = columns_of(pa.schema([columns.field(name) for name in self._in_row]))
        row = pa.struct(list(self._row.wire))
        beside = [pa.field(_OP, pa.string())]
        of_source = []
        for one in self._around:
            if one.name in _TAKEN or not (types.is_string(one.type) or types.is_integer(one.type)):
                rule = "around the row there are texts and whole numbers: __op, __ts_ms, __source_lsn"
                raise ConfigError("schema", one.name, rule, "Declare it as STRING or BIGINT, or leave it out")
            if one.name.startswith(_OF_SOURCE):
                of_source.append(one.with_name(one.name.removeprefix(_OF_SOURCE)))
            elif one.name != _AROUND + _OP:
                beside.append(one.with_name(one.name.removeprefix(_AROUND)))
            elif one.type != pa.string():
                raise ConfigError("schema", one.name, "the operation is a STRING", f"Declare {one.name} STRING")
        if of_source:
            beside.append(pa.field(_SOURCE, pa.struct(of_source)))
        if self._rescue is not None:
            there = {one.name for one in beside}
            beside += [pa.field(name, pa.string()) for name in _OTHERS if name not in there]
        self._after = read(pa.schema([*beside, pa.field(_AFTER, row)]))
        self._before = read(pa.schema([pa.field(_BEFORE, row)]))

    def read(self, bodies: pa.Array) -> ReadBodies:
        """What these envelopes say; a null is a tombstone."""
        envelopes = self._after.read(bodies)
        operation = envelopes.columns.column(_OP)
        reasons = _by_place(envelopes.reasons)
        passed = {
            *true_places(bodies.is_null()),
            *true_places(pc.is_in(operation, pa.array(self._skipped, pa.string()))),
        }
        deleted = pc.fill_null(pc.equal(operation, _DELETE), False)
        rows, rest = self._rows(bodies, envelopes.columns, deleted, reasons)
        for place in true_places(pc.invert(pc.or_(pc.is_in(operation, pa.array(_ROWS)), deleted))):
            reasons.setdefault(place, _refusal(operation[place].as_py()))
        for place in true_places(pc.and_not(rows.is_null(), deleted)):
            reasons.setdefault(place, f"the op {operation[place].as_py()} has no row after it")
        of_row, misfits = self._row.of(_without(rows, {*reasons, *passed}).flatten())
        for place, reason in misfits.items():
            reasons.setdefault(place, reason)
        columns = dict(zip(self._in_row, of_row, strict=True))
        columns.update((one.name, _beside(envelopes.columns, one.name)) for one in self._around)
        columns |= {DELETED: deleted} | ({} if self._rescue is None else {self._rescue: rest})
        arrays = [columns[name] for name in self.schema.names]
        whole = _without(pa.StructArray.from_arrays(arrays, fields=list(self.schema)), {*reasons, *passed})
        said = [None if place in passed else reasons.get(place) for place in range(len(bodies))] if reasons else None
        return ReadBodies(
            pa.RecordBatch.from_arrays(whole.flatten(), schema=self.schema),
            pa.array(said, pa.string()) if said and any(said) else None,
            passed=pa.array([place in passed for place in range(len(bodies))], pa.bool_()) if passed else None,
        )

    def _rows(
        self, bodies: pa.Array, envelopes: pa.RecordBatch, deleted: pa.Array, reasons: dict[int, str]
    ) -> tuple[pa.Array, pa.Array | None]:
        """The row of each envelope: that before a delete, else that after; and what of it no column takes."""
        after, rest = envelopes.column(_AFTER), self._rest(envelopes, _AFTER)
        deletes = true_places(deleted)
        if not deletes:
            return after, rest
        before = self._before.read(bodies.take(pa.array(deletes, pa.int32())))
        there, rest_there = before.columns.column(_BEFORE), self._rest(before.columns, _BEFORE)
        for number, reason in _by_place(before.reasons).items():
            reasons.setdefault(deletes[number], reason)
        for number in true_places(there.is_null()):
            reasons.setdefault(deletes[number], _NO_KEY)
        order = list(range(len(after)))
        for number, place in enumerate(deletes):
            order[place] = len(after) + number
        chosen = pa.array(order, pa.int32())
        rest = None if rest is None else pa.concat_arrays([rest, rest_there]).take(chosen)
        return pa.concat_arrays([after, there]).take(chosen), rest

    def _rest(self, envelopes: pa.RecordBatch, member: str) -> pa.Array | None:
        """What is left over of the row that this member is, of all that is left over of each envelope."""
        if self._rescue is None:
            return None
        return pa.array([_member(text, member) for text in envelopes.columns[-1].to_pylist()], pa.string())


def changed(columns: pa.Schema, how: BodyFormat) -> pa.Schema:
    """The columns that changes are read into."""
    return with_rescue(columns.append(pa.field(DELETED, pa.bool_())), how)


def _member(text: str | None, name: str) -> str | None:
    """The member of a JSON object, an object itself, as its text; None where there is none."""
    if text is None:
        return None
    members = members_of(text.encode(), (), (name,))
    found = None if isinstance(members, str) else members.get(name)
    return found if isinstance(found, str) else None


def _refusal(operation: str | None) -> str:
    if operation is None:
        return _NO_OPERATION
    return f"the op {shown(operation)} {_NO_ROW.get(operation, 'is none that Debezium has: c, r, u, d, t, m')}"


def _beside(envelopes: pa.RecordBatch, name: str) -> pa.Array:
    """What a column has of what is around the row."""
    if name.startswith(_OF_SOURCE):
        source = envelopes.column(_SOURCE)
        return pc.struct_field(source, name.removeprefix(_OF_SOURCE))
    return envelopes.column(name.removeprefix(_AROUND))


def _without(rows: pa.StructArray, places: Collection[int]) -> pa.StructArray:
    """The same rows, with nulls at these places."""
    if not places:
        return rows
    return rows.take(pa.array([None if place in places else place for place in range(len(rows))], pa.int32()))


def _by_place(reasons: pa.Array | None) -> dict[int, str]:
    return (
        {} if reasons is None else {place: said for place, said in enumerate(reasons.to_pylist()) if said is not None}
    )
