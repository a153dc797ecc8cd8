"""Whether a transform only picks, renames and casts columns, so that no row of a batch has to pass through the JVM.

Owns that decision, from nothing but the plan that Spark would execute: a projection of plain columns, or of casts of
them that Arrow makes exactly as Spark does (`EXACT_CASTS`), or nothing, right above the events that the tasks read.
Whatever else there may be, a filter, another cast, a cache, a hint that moves rows, refuses: the rows then go the usual
way, which is always right. Refuses columns that hold others, too.

Like all that looks at a plan this promises nothing over Spark Connect: see `row_wise.py`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from leasehold.spark.plan.row_wise import class_name, listed
from leasehold.spark.session.versions import arrow_schema, schema_of

EXACT_CASTS = frozenset(
    {
        *itertools.combinations(("tinyint", "smallint", "int", "bigint"), 2),
        *((given, "string") for given in ("tinyint", "smallint", "int", "bigint", "boolean")),
        *((given, "double") for given in ("tinyint", "smallint", "int", "float")),
    }
)
"""Casts, from a type to another, that cannot fail, lose nothing, and give in Arrow what they give in Spark."""
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


@dataclass(frozen=True, slots=True)
class Picked:
    """Which columns of the events a DataFrame has, by their places, and its schema in Arrow."""

    places: tuple[int, ...]
    schema: pa.Schema

    def of(self, events: pa.Table) -> pa.Table:
        """The rows of the DataFrame for these events."""
        columns = [events.column(place).cast(field.type) for place, field in zip(self.places, self.schema, strict=True)]
        return pa.Table.from_arrays(columns, schema=self.schema)


def picked(df: DataFrame, events: DataFrame) -> Picked | None:
    """What `df` picks of `events`, which is a `mapInArrow`; None where it does anything else."""
    places = _places(df._jdf.queryExecution().optimizedPlan(), _ids(events._jdf.queryExecution().analyzed()))
    if places is None or df.sparkSession.conf.get(_LARGE_TYPES, "false") == "true":
        return None
    given, gives = schema_of(events), schema_of(df)
    if not all(_is_exact(given[place].dataType, field.dataType) for place, field in zip(places, gives, strict=True)):
        return None
    schema = arrow_schema(gives)
    return None if any(pa.types.is_nested(field.type) for field in schema) else Picked(places, schema)


def _places(plan: Any, source: list[int]) -> tuple[int, ...] | None:
    """Where the columns of a plan are among those of the source; None where it is no picking of them."""
    columns = list(listed(plan.output()))
    if class_name(plan) == "Project":
        columns = [_behind(column) for column in listed(plan.projectList())]
        plan = plan.children().apply(0)
    if class_name(plan) not in ("MapInArrow", "PythonMapInArrow") or _ids(plan) != source:
        return None
    if any(class_name(column) != "AttributeReference" for column in columns):
        return None
    return tuple(source.index(column.exprId().id()) for column in columns)


def _behind(expression: Any) -> Any:
    """What an expression gives another name or type to, or itself."""
    for wrapping in ("Alias", "Cast"):
        if class_name(expression) == wrapping:
            expression = expression.child()
    return expression


def _is_exact(type_: DataType, column_type: DataType) -> bool:
    return type_ == column_type or (type_.simpleString(), column_type.simpleString()) in EXACT_CASTS


def _ids(plan: Any) -> list[int]:
    return [column.exprId().id() for column in listed(plan.output())]
