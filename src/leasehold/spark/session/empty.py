"""DataFrames without rows that start no Python worker.

Owns the two kinds of them that are needed before the first batch. `createDataFrame([])` would do for both, and keeps
for as long as Spark lives a second set of Python processes: 120 MiB on two cores, beside that of the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame of these columns to be executed: its one job starts nothing but Java's part."""
    return spark.range(0).select([F.lit(None).cast(field.dataType).alias(field.name) for field in schema])


def opaque(spark: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame of these columns to be looked at, and not executed: Spark's optimizer cannot see into its columns."""

    def unread(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return spark.range(0).mapInArrow(unread, schema)
