"""Events that the driver has already, on their way through a pipeline's transform.

Owns how they become a DataFrame, and the reading of their bodies, which in a batch the tasks do. For few events: they
go to Spark with the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from leasehold.spark.plan.batch_transform import BatchTransform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def split_by_bodies(transform: BatchTransform, events: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """The events with the columns of their bodies, and those whose body cannot be read, with the column `reason`."""
    reader = transform.bodies()
    if reader is None:
        return events, None
    read = reader.read(events["body"].combine_chunks(), events)
    names = [*read.columns.schema.names, *events.schema.names]
    good = pa.Table.from_arrays([*read.columns.columns, *events.columns], names=names)
    if read.good is not None:
        good = good.filter(read.good)
    if read.reasons is None:
        return good, None
    bad = events.append_column("reason", read.reasons).filter(read.reasons.is_valid())
    return good, bad if bad.num_rows else None


def frame_of(spark: SparkSession, events: pa.Table, schema: StructType) -> DataFrame:
    """These rows as a DataFrame of one task, on every release of Spark, and by its usual Python workers."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, events.schema) as writer:
        writer.write_table(events)
    told = stream.getvalue().to_pybytes()

    def give(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers:
            pass
        yield from pa.ipc.open_stream(told)

    return spark.range(0, 1, 1, 1).mapInArrow(give, schema)
