"""Rows that Debezium's "new record state" has taken out of their envelopes, to rows, and whether each was deleted.

Owns how such a row is told from an envelope: by the schema beside it, since a row may have columns of any name. With
`delete.tombstone.handling.mode=rewrite`, a deleted row has the field `__deleted` with the text `true`. In the other
modes a delete is a value that is null, which says of no row that it was deleted, and is rejected. Rows in Avro are
read as what they are, by `format = "avro"`: there such a delete is an event without a body, as a tombstone is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc

from leasehold.arrow_masks import true_places
from leasehold.body_format import DELETED, BodyFormat
from leasehold.formats.connect.changes import changed
from leasehold.formats.connect.columns import WireColumns
from leasehold.formats.format_readers import FormatReader, ReadBodies

_TRUE = "true"
_NO_ROW = "the delete does not say of which row: have the connector send delete.tombstone.handling.mode=rewrite"


def is_flattened(fields: Collection[str]) -> bool:
    """Whether values whose schema has these fields are rows, and not envelopes. In doubt they are the latter, which
    have an `op`: a row without it is rejected."""
    return bool(fields) and not ({"before", "after"} & {*fields} or {"op", "source"} <= {*fields})


class FlattenedReader:
    """Reads rows into columns, with `DELETED` behind them. `fields` are those of the rows; see `ChangeReader`."""

    def __init__(
        self,
        columns: pa.Schema,
        columns_of: Callable[[pa.Schema], WireColumns],
        read: Callable[[pa.Schema], FormatReader],
        fields: Collection[str],
        how: BodyFormat,
    ) -> None:
        self.schema = changed(columns, how)
        self._row = columns_of(columns)
        self._says_deleted = DELETED in fields
        told = [pa.field(DELETED, pa.string())] if self._says_deleted else []
        self._read = read(pa.schema([*self._row.wire, *told]))

    def read(self, bodies: pa.Array) -> ReadBodies:
        """What these rows say; a null is a delete of nobody knows which."""
        found = self._read.read(bodies)
        reasons = [None] * len(bodies) if found.reasons is None else found.reasons.to_pylist()
        for place in true_places(bodies.is_null()):
            reasons[place] = _NO_ROW
        values = found.columns.columns
        told = len(self._row.wire)
        columns, misfits = self._row.of(values[:told])
        for place, reason in misfits.items():
            reasons[place] = reasons[place] or reason
        good = pa.array([reason is None for reason in reasons], pa.bool_())
        deleted = pc.equal(values[told], _TRUE) if self._says_deleted else pa.nulls(len(bodies), pa.bool_())
        whole = [*columns, pc.fill_null(deleted, False), *values[told + self._says_deleted :]]
        if any(reasons):
            whole = [pc.if_else(good, one, pa.nulls(len(bodies), one.type)) for one in whole]
        return ReadBodies(
            pa.RecordBatch.from_arrays(whole, schema=self.schema),
            pa.array(reasons, pa.string()) if any(reasons) else None,
        )
