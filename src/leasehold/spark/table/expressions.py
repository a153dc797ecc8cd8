"""What is evaluated of the rows that an entity table is given: its expressions, as columns, and the types it can hold.

Owns the way of `when`, `sequence_by`, `delete_when` and `reject_by` from text to values, and the parting of rows: the
table's and others, good and rejected ones. Refuses columns that Arrow would not convert, or would pass on in a
disguise. Evaluates nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program
from pyspark.sql import types as T  # noqa: N812 -- likewise

from leasehold.errors import ConfigError, SchemaMismatch
from leasehold.sinks.rules.batch import Batch, find
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS, folded
from leasehold.sinks.rules.values import Column as Values
from leasehold.sinks.rules.values import as_json
from leasehold.spark.session.versions import schema_of, types_named
from leasehold.spark.table.settings import RowRules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What Arrow would not convert, or would pass on in a disguise; the sink refuses all others that it cannot store.
_UNSTORABLE = types_named(
    "VariantType", "YearMonthIntervalType", "CalendarIntervalType", "GeometryType", "GeographyType"
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A DataFrame with the values of the table's expressions as last columns, and which expressions those are."""

    df: DataFrame
    added: tuple[str, ...]


def batch_of(table: pa.Table, added: Sequence[str], rules: RowRules) -> Batch:
    """Rows of a prepared DataFrame, with the values of `added`. Raises `ConfigError` for those of a wrong type."""
    width = table.num_columns - len(added)
    for setting in ("when", "delete_when"):
        if setting in added and not pa.types.is_boolean(table.column(width + added.index(setting)).type):
            raise ConfigError(setting, getattr(rules, setting), "not a condition", "It has to be true or false")
    if "when" in added:
        table = table.filter(table.column(width + added.index("when")))
    extra = {setting: table.column(width + place) for place, setting in enumerate(added)}
    reject_by = folded(rules.reject_by or "")
    rows = table.select([place for place in range(width) if folded(table.schema.names[place]) != reject_by])
    batch = Batch(rows, None, extra.get("sequence_by"), extra.get("delete_when"))
    return batch if "reject_by" not in extra else parted(batch, extra["reject_by"], rules.reject_by)


def with_rejected(batch: Batch, rejected: pa.Table) -> Batch:
    """The batch with more events that are set aside, whose bodies may be bytes, and those that are there text."""
    if batch.rejected is not None:
        both = [batch.rejected, rejected]
        if batch.rejected["body"].type != rejected["body"].type:
            both = [
                one.set_column(one.schema.names.index("body"), "body", one["body"].cast(pa.binary())) for one in both
            ]
        rejected = pa.concat_tables(both, promote_options="default")
    return replace(batch, rejected=rejected)


def parted(batch: Batch, reasons: Values, expression: str | None) -> Batch:
    """The good rows of a batch, and the others with their reasons and all that they carry."""
    if not (pa.types.is_string(reasons.type) or pa.types.is_large_string(reasons.type)):
        raise ConfigError("reject_by", expression, f"gives a {reasons.type}, and not a text", "Cast it to a string")
    good, bad = reasons.is_null(), reasons.is_valid()
    rows = batch.rows.filter(bad)
    fence = [name for each in FENCE_COLUMNS if (name := find(rows.schema, each)) is not None]
    body = find(rows.schema, "body")
    bodies = (
        as_json({name: rows[name] for name in rows.schema.names if name not in fence}) if body is None else rows[body]
    )
    set_aside = rows.select(fence).rename_columns(list(FENCE_COLUMNS))
    set_aside = set_aside.append_column(
        "body", pa.chunked_array([pa.array(bodies, pa.string())]) if body is None else bodies
    )
    set_aside = set_aside.append_column("reason", reasons.filter(bad).cast(pa.string()))
    return Batch(
        batch.rows.filter(good),
        set_aside,
        None if batch.sequence_by is None else batch.sequence_by.filter(good),
        None if batch.delete is None else batch.delete.filter(good),
    )


def with_expression(
    df: DataFrame, names: Sequence[str], setting: str, expression: str, when: str | None = None
) -> DataFrame:
    """`df` with the value of `expression`, over the columns `names`, as its last column, under a name of its own.

    It is computed of rows for which `when` is true, and null in others.
    """
    name = f"_leasehold_{setting}"
    while any(each.lower() == name for each in df.columns):
        name += "_"
    try:
        column: Column = F.expr(expression)
        column = column if when is None else F.when(F.expr(when), column)
        wider = df.select("*", column.alias(name))
        type_ = schema_of(wider)[-1].dataType  # over Spark Connect, analysis comes only when somebody asks
    except AnalysisException as error:
        raise ConfigError(
            setting,
            expression,
            f"not an expression over the columns {', '.join(names)}: {str(error).splitlines()[0]}",
            "Correct the expression, or carry the columns that it needs through the projection",
        ) from error
    except SchemaMismatch as error:
        raise ConfigError(setting, expression, str(error), "Cast it to a number or a string") from error
    if any(isinstance(each, _UNSTORABLE) for each in _all_types(type_)):
        raise ConfigError(setting, expression, f"gives a {type_.simpleString()}", "Cast it to a number or a string")
    return wider


def check_types(schema: T.StructType) -> None:
    """Refuse columns that hold anything in `_UNSTORABLE`."""
    wrong = [
        f"  {field.name}: is of type {field.dataType.simpleString()}, which SQLite cannot hold: cast it to a string"
        for field in schema
        if any(isinstance(each, _UNSTORABLE) for each in _all_types(field.dataType))
    ]
    if wrong:
        raise SchemaMismatch("\n".join(["the DataFrame does not fit an entity table:", *wrong]))


def _all_types(type_: T.DataType) -> Iterator[T.DataType]:
    yield type_
    if isinstance(type_, T.StructType):
        inner = [field.dataType for field in type_]
    elif isinstance(type_, T.ArrayType):
        inner = [type_.elementType]
    elif isinstance(type_, T.MapType):
        inner = [type_.keyType, type_.valueType]
    else:
        inner = []
    for each in inner:
        yield from _all_types(each)
