"""From a pipeline file without a handler to the table that a plain processor fills.

Owns which keys of such a file need Spark, and refuses them by name. Keys that only say how Spark reads, or what becomes
of events that a transform cannot compute, are passed by. Nothing is read or written but that the table is made or
compared.
"""

from __future__ import annotations

from leasehold.errors import ConfigError
from leasehold.formats.bodies import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.pipeline_file import PipelineFile
from leasehold.projected.projection import ON_SPARK
from leasehold.projected.table import ProjectedTable, RowSource, TableRows
from leasehold.runtime import Runtime
from leasehold.settings.names import naming

_OF_SQL = ("casesensitive", "doublequotedidentifiers", "escapedstringliterals", "collation")
"""Parts of names of Spark's settings by which the same SQL picks, or compares, something else."""


def projected_table(file: PipelineFile, runtime: Runtime | None = None) -> ProjectedTable:
    """The table, or tables, of a pipeline file without a handler. Raises `ConfigError` that names file and key."""
    with naming(f"{file.path}: "):
        return ProjectedTable(file.open_tables(), source_of(file), runtime or Runtime())


def source_of(file: PipelineFile) -> RowSource:
    """What the rows of a pipeline file without a handler are made of. Raises `ConfigError` for what takes Spark."""
    read = file.transform
    if read.python is not None:
        raise ConfigError(
            "transform.python",
            read.python,
            "it is given a DataFrame, and this is a process without Spark",
            f"Write a handler, which needs none, or {ON_SPARK}",
        )
    for name, value in file.spark.items():
        if any(part in name.lower() for part in _OF_SQL):
            raise ConfigError(
                f"spark.{name}",
                value,
                "it changes what SQL means, and this is a process without Spark",
                f"Leave it out, or {ON_SPARK}",
            )
    bodies = None
    if read.schema is not None:
        columns = read_columns(read.schema, "transform.schema")
        bodies = BodyReader(columns, file.body_format)
    return RowSource(
        bodies=bodies,
        sql=read.sql,
        tables=tuple(
            TableRows(when=one.sink.when, sequence_by=one.sink.sequence_by, delete_when=one.sink.delete_when, at=one.at)
            for one in file.tables
        ),
        deduplicate_by=file.source.deduplicate_by,
        deduplicate_for=file.deduplicate_for,
    )
