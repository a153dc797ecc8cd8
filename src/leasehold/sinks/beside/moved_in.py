"""Rows that were there before the first event: what is looked at before anything is written.

Owns the look, whatever the database; what rows count for is rule 6 of `remembered_order`. Runs inside a transaction of
the caller's, after `fit`. A table that has been filled in an order, or is read anew, was looked at before: nothing is
read of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.sinks.rules.columns import stored_fields
from leasehold.sinks.rules.remembered_order import OwnValue, ordering_column
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.transactions import TableTransaction

if TYPE_CHECKING:
    import pyarrow as pa


def uncounted_rows(transaction: TableTransaction, spec: TableSpec, schema: pa.Schema, database: str) -> int:
    """How many rows there are that do not count by their own values, since `sequence_by` names no column.

    Raises `SchemaMismatch` for one that would count, and cannot be compared.
    """
    recorded = transaction.recorded_order()
    if spec.sequence_by is None or spec.spread or not (recorded.is_open and recorded.rows_count):
        return 0
    column = ordering_column(spec, [field.name for field in stored_fields(spec, schema, database)])
    if column is None:
        return transaction.rows()
    transaction.check_own_values(OwnValue(column, schema.field(column).type))
    return 0
