"""What a pipeline does to each micro-batch on its way to the table.

Owns the order of things: bodies to columns, the user's transform, and the rows that could not be read. The
same code makes the dry run at the start, in which Spark resolves and checks everything, and each batch.
Rows that cannot be read are counted while the others are computed and fetched only if there are any.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from leasehold.errors import ConfigError
from leasehold.spark.entity_table import Rejected
from leasehold.spark.pipeline_file import PipelineFile, naming
from leasehold.spark.transform import (
    Transform,
    check_row_wise,
    check_schema,
    has_bad_rows,
    parse_json,
    python_transform,
    sql_transform,
)


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch ready for the table: its rows, and, once they are computed, the events to reject, if any."""

    good: DataFrame
    rejected: Rejected


class BatchTransform:
    """The `[transform]` of a pipeline file. Making one needs a Spark session, for the schema."""

    def __init__(self, file: PipelineFile, source_columns: list[str]) -> None:
        self._path = file.path
        section = file.transform
        self._transform: Transform = lambda events: events
        self._key = "transform"
        with naming(f"{file.path}: "):
            self._schema = None if section.schema_ is None else _read_schema(section.schema_, source_columns)
            if section.sql is not None:
                self._transform, self._key = sql_transform(section.sql), "transform.sql"
            elif section.python is not None:
                self._transform, self._key = python_transform(section.python, file.folder), "transform.python"

    def __call__(self, events: DataFrame) -> Rows:
        """Transform a batch. Nothing is computed yet."""
        if self._schema is None:
            return Rows(self._transform(events), lambda evaluated: None)
        parsed = parse_json(events, self._schema)

        def rejected(evaluated: DataFrame) -> DataFrame | None:
            return parsed.bad if has_bad_rows(evaluated) else None

        return Rows(self._transform(parsed.good), rejected)

    def dry_run(self, events: DataFrame) -> DataFrame:
        """The result for no events, for its schema and plan. Raises `ConfigError` or `UsageError`."""
        good = events if self._schema is None else parse_json(events, self._schema).good
        try:
            transformed = self._transform(good)
            _ = transformed.schema
        except PySparkException as error:
            raise ConfigError(
                f"{self._path}: {self._key}", None, f"Spark refuses it: {error}", "Its input is the view events"
            ) from None
        check_row_wise(transformed)
        return transformed


def _read_schema(ddl: str, source_columns: list[str]) -> StructType:
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        first_line = str(error).strip().splitlines()[0]
        raise ConfigError(
            "transform.schema", ddl, f"not a schema ({first_line})", "For example id STRING, delay DOUBLE"
        ) from None
    assert isinstance(schema, StructType)
    check_schema(schema, source_columns)
    return schema
