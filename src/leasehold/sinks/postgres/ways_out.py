"""What to do about a column that does not hold what is to be written, as one sentence that can be followed. Pure.

Owns those sentences. Where Spark has a type that the column takes, the value is to be cast to it. Otherwise the column
becomes text, or jsonb for what is nested, and the table casts: in a generated column, where the server reads the text
of this type in one way for all, or else in a view, with a CHECK that refuses a text which the type does not take.
"""

from __future__ import annotations

import re

import pyarrow as pa

from leasehold.database.statements import quoted
from leasehold.formats.misfits import type_name
from leasehold.sinks.postgres.catalog import TableColumn
from leasehold.sinks.postgres.types import declared_for, element_of, fitting, is_array
from leasehold.sinks.rules.columns import qualified, to_write
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS, TableSpec, folded
from leasehold.sinks.rules.values import ColumnKind, kind_of

_DIGITS = re.compile(r"\(\d\)")


def way_out(spec: TableSpec, field: pa.Field, column: TableColumn) -> str:
    """What is wrong with a column of the table whose type does not go with the field's, and what to do."""
    return f"is of type {field.type}, and the table declares it {column.declared}: {_remedy(spec, field, column)}"


def _remedy(spec: TableSpec, field: pa.Field, column: TableColumn) -> str:
    name, declared = quoted(column.name), column.declared
    alter = f"ALTER TABLE {qualified(spec.called)} ALTER COLUMN {name} TYPE"
    wanted, element = fitting(declared, column.enum), element_of(field.type)
    if kind_of(field.type) is ColumnKind.JSON and (element is None or not is_array(declared)):
        return f"{alter} jsonb USING to_jsonb({name})"
    if wanted is not None and folded(field.name) in map(folded, FENCE_COLUMNS):  # as the source gives them
        type_ = "text" if kind_of(field.type) is ColumnKind.TEXT else "bigint"
        return f"{alter} {type_}, or keep it under another name"
    if wanted is not None:
        return to_write(field.name, _spark(wanted), _expression(field.type, wanted))
    if element is not None:
        kept = f"{declared_for(element, is_key=False) or 'text'}[]"
        return f"{alter} {kept} USING CAST({name} AS {kept}), and cast it in a view"
    if declared.startswith("timestamp("):
        return f"it would cut digits off: {alter} {_DIGITS.sub('', declared)}"
    text = f"{alter} text USING CAST({name} AS text)"
    as_text = "a text" if kind_of(field.type) is ColumnKind.TEXT else "it as STRING"
    if column.reads_alike:
        typed = quoted(f"{column.name}_typed")
        computed = f"{typed} {declared} GENERATED ALWAYS AS (CAST({name} AS {declared})) STORED"
        return f"write {as_text}, which the table casts: {text}, ADD COLUMN {computed}"
    check = f"ADD CHECK ({name} IS NULL OR CAST({name} AS {declared}) IS DISTINCT FROM NULL)"
    return f"write {as_text}, and cast it in a view: {text}, {check}"


def _expression(type_: pa.DataType, other: pa.DataType) -> str:
    """What makes a column of this type one of the other, in Spark's SQL: of the column's name, and the other's."""
    element = element_of(other)
    if element is None or element_of(type_) is not None:
        return "CAST({} AS {})"
    return "from_json({}, '{}')" if kind_of(type_) is ColumnKind.TEXT else f"array(CAST({{}} AS {_spark(element)}))"


def _spark(type_: pa.DataType) -> str:
    element = element_of(type_)
    return type_name(type_) if element is None else f"ARRAY<{type_name(element)}>"
