"""The strict reader for DataFrames: bodies to columns, with the reason why a body is rejected.

Owns the way from a Spark schema to `leasehold.formats` and back. `MicroBatches(schema=…)` and pipeline files read
bodies in the tasks that read the hub; `read_bodies` does the same to any DataFrame that has a body. Tasks ask no
registry: a batch of the loop is read again with the schemas that they lacked, and nobody can have a DataFrame of
somebody else read again, so who calls `read_bodies` names the subjects whose schemas it takes at its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from leasehold.body_format import DELETED
from leasehold.errors import ConfigError
from leasehold.formats import BodyFormat, BodyReader
from leasehold.registries.known_schemas import known_schemas
from leasehold.spark.plan.reading import HEADERS
from leasehold.spark.session.versions import arrow_schema, nullable, schema_from_ddl


def body_schema(
    ddl: str, other_columns: Iterable[str], *, name: str = "schema", adds: Sequence[StructField] = ()
) -> StructType:
    """The columns that a body gives, by its schema as Spark writes it, and those that its format `adds`.

    Any field of a body may be missing, so any value may be null: NOT NULL in the schema would have Spark believe that
    none is, and answer queries by that.

    Raises `ConfigError` that calls the setting `name`, also where a column is named like one of `other_columns`, and
    one for `spark.sql.timestampType` where it makes a plain TIMESTAMP a type without a zone.
    """
    try:
        schema = schema_from_ddl(ddl)
    except PySparkException as error:
        first_line = str(error).strip().splitlines()[0]
        raise ConfigError(name, ddl, f"not a schema ({first_line})", "For example id STRING, delay DOUBLE") from None
    assert isinstance(schema, StructType)
    if _count_without_zone(schema) > len(re.findall(r"(?i)\btimestamp_ntz\b", ddl)):
        raise ConfigError(
            "spark.sql.timestampType",
            "TIMESTAMP_NTZ",
            f"the session makes TIMESTAMP a type without a zone, and so {name} would take no time that has one",
            f"Write TIMESTAMP_LTZ in {name} for times with a zone, or TIMESTAMP_NTZ for those without; or leave the "
            "session's setting out",
        )
    schema = nullable(schema)
    schema = StructType([*schema.fields, *adds])
    names = [column.lower() for column in schema.names]
    clashes = sorted(
        {column for column in names if names.count(column) > 1} | set(names) & {o.lower() for o in other_columns}
    )
    if clashes:
        raise ConfigError(
            name,
            ", ".join(clashes),
            "these columns occur twice, counting those that every event has",
            "Rename them in what is sent, or leave the schema out and read the body in SQL",
        )
    return schema


def _count_without_zone(type_: DataType) -> int:
    """How many timestamps without a zone there are in a type."""
    if isinstance(type_, StructType):
        return sum(_count_without_zone(field.dataType) for field in type_)
    if isinstance(type_, ArrayType):
        return _count_without_zone(type_.elementType)
    if isinstance(type_, MapType):
        return _count_without_zone(type_.keyType) + _count_without_zone(type_.valueType)
    return int(isinstance(type_, TimestampNTZType))


def added_by(how: BodyFormat) -> list[StructField]:
    """The columns that come behind those of a schema."""
    return [StructField(name, BooleanType() if name == DELETED else StringType()) for name in how.adds]


def body_reader(schema: StructType, how: BodyFormat) -> BodyReader:
    """What reads bodies by a schema of `body_schema`, whose last columns are those that the format adds."""
    fields = schema.fields[: len(schema.fields) - len(how.adds)]
    return BodyReader(arrow_schema(StructType(list(fields))), how)


def read_bodies(
    df: DataFrame,
    schema: str,
    how: BodyFormat | None = None,
    *,
    subjects: Sequence[str] = (),
    reason: str = "reason",
) -> DataFrame:
    """Read the column `body` of `df` as `schema`: its columns come before those of `df`.

    `how` is the format of the bodies; default: JSON. A body that does not fit the schema gives nulls, and says why in
    the column `reason`, which is null where the body is good; a table with `RowRules(reject_by=reason)` sets such rows
    aside. Nothing is altered to make it fit. docs/table.md has what each type takes. With an `envelope`, `df` also has
    the columns `properties` and `systemProperties`, maps of text, as Leasehold's source gives them.

    With a `registry`, `subjects` are those whose schemas bodies may be written by, as `["flights-value"]`. This call
    asks the registry, once, for all versions that they have, and the tasks are given them: they ask nobody. A body with
    another number is rejected by it. Raises `ConfigError`, also for a subject that the registry has not;
    `RegistryUnavailable`, `RegistryError`.
    """
    how = how or BodyFormat()
    _check_subjects(subjects, how)
    if how.envelope is not None and (missing := sorted(set(HEADERS) - set(df.columns))):
        rule = f"it is told by headers, and the DataFrame has no column {' and no '.join(missing)}"
        raise ConfigError("envelope", how.envelope, rule, "Keep both columns of the source, as maps of text")
    columns = body_schema(schema, [*df.columns, reason], adds=added_by(how))
    reader = body_reader(columns, how)
    if how.registry is not None:
        reader = reader.given(known_schemas(how.registry).of_subjects(subjects))
    place = df.columns.index("body")
    wider = StructType([*columns.fields, *df.schema.fields, StructField(reason, StringType())])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            done = reader.read(batch.column(place), batch)
            reasons: Any = pa.nulls(batch.num_rows, pa.string()) if done.reasons is None else done.reasons
            names = [*done.columns.schema.names, *batch.schema.names, reason]
            rows = pa.RecordBatch.from_arrays([*done.columns.columns, *batch.columns, reasons], names=names)
            yield rows if done.passed is None else rows.filter(pc.invert(done.passed))

    return df.mapInArrow(read, wider)


def _check_subjects(subjects: Sequence[str], how: BodyFormat) -> None:
    """Raises `ConfigError` where subjects and a registry do not go together."""
    if isinstance(subjects, str):
        raise ConfigError("subjects", subjects, "a list of names", f'Write ["{subjects}"]')
    if others := [one for one in subjects if not isinstance(one, str) or not one]:
        raise ConfigError("subjects", others[0], "names of subjects", "Correct it")
    if subjects and how.registry is None:
        rule = "a registry has subjects, and the format names none"
        raise ConfigError("subjects", ", ".join(subjects), rule, "Give registry in BodyFormat, or leave it out")
    if how.registry is not None and not subjects:
        rule = "tasks that read a DataFrame of yours ask no registry: this call fetches the schemas for them"
        raise ConfigError("subjects", None, rule, 'Name the subjects that bodies are written by: ["flights-value"]')
