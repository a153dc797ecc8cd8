"""What of `leasehold check` needs Spark: the transform, the table's columns, a task's way to hub and stores, a sample.

Owns the order of these looks; what a finding is, and the time that each may take, is in `operations.checking`. A sample
is the last events of each partition: they go through the same code as in a batch, and nothing is written.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError

from leasehold.hubs import open_hub
from leasehold.hubs.base import EVENT_COLUMNS
from leasehold.operations.checking import (
    DRIVER,
    TASK,
    Finding,
    HubSeen,
    asked,
    look_at_hub,
    look_at_store,
    not_looked_at,
)
from leasehold.operations.checking_table import look_at_columns
from leasehold.pipeline_file import PipelineFile
from leasehold.sinks.base import Sink
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.content import kind_of_order
from leasehold.spark.given_events import frame_of, split_by_bodies
from leasehold.spark.kept_events import with_levels
from leasehold.spark.plan.batch_transform import BatchTransform
from leasehold.spark.plan.failures import sort_failure
from leasehold.spark.plan.options import COLUMNS
from leasehold.spark.session.empty import no_rows, opaque
from leasehold.spark.session.opening import open_session
from leasehold.spark.table.of_file import tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)
NO_URLS: Mapping[str, str] = MappingProxyType({})
_SCHEMA = "part STRING, place STRING, ok BOOLEAN, said STRING, remedy STRING"


def look_with_spark(
    file: PipelineFile,
    *,
    timeout: float,
    spark_timeout: float,
    sample: int,
    barred: Mapping[str, str] = NO_URLS,
    spark: SparkSession | None = None,
) -> list[Finding]:
    """All that Spark is needed for. `timeout` seconds for hub and stores, `spark_timeout` for each job of Spark.

    `sample` events of each partition are tried. What is at URLs that are `barred`, each with the part that says why,
    is not asked. Without `spark` a session is opened as for a run, and ended.
    """
    own = spark is None
    if spark is None:
        conf = dict(file.spark)
        master = conf.pop("master", "local[2]")
        try:
            spark = open_session(f"leasehold check {file.name}", conf, master)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was found
            said = " ".join(str(error).split())
            return [Finding("spark", DRIVER, False, said, "See the message; docs/spark.md says what Spark needs")]
    found: list[Finding] = []
    try:
        looks: list[tuple[str, str, Callable[[], Iterator[Finding]], float]] = [
            ("spark", DRIVER, partial(_versions, spark), spark_timeout),
            ("task", TASK, partial(_from_a_task, spark, file, timeout, barred), spark_timeout),
            ("transform", DRIVER, partial(_transform_and_table, spark, file, barred), spark_timeout),
            ("sample", DRIVER, partial(_sample, spark, file, sample), spark_timeout),
        ]
        if file.hub_url in barred:
            looks.pop()
        for part, place, look, longest in looks:
            found += asked(part, place, partial(_explained, look), longest)
        if file.hub_url in barred:
            found.append(not_looked_at("sample", DRIVER, barred[file.hub_url]))
    finally:
        if own:
            with suppress(Py4JError, ConnectionError):
                spark.stop()
    return found


def columns_of(file: PipelineFile, spark: SparkSession | None = None) -> pa.Schema:
    """The columns that the transform of a file gives, with those of the fence. Raises `ConfigError`.

    Without `spark` a session is opened as for a run, and ended.
    """
    session = open_session(*file.session()) if spark is None else spark
    try:
        table = tables_of(file)
        transformed = BatchTransform(file, session).dry_run()
        return table.evaluate(table.prepare(no_rows(session, transformed.schema))).rows.schema
    finally:
        if spark is None:
            with suppress(Py4JError, ConnectionError):
                session.stop()


def _explained(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings; an error of a task in one line, as the loop tells it."""
    try:
        yield from look()
    except Exception as error:
        if type(error).__module__.startswith("leasehold"):
            raise
        raise RuntimeError(sort_failure(error, computing=True).message) from error


def _versions(spark: SparkSession) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    said = f"PySpark {pyspark.__version__}, Spark {spark.version}, PyArrow {pa.__version__}, Python {python}"
    yield Finding("spark", DRIVER, True, said)


def _from_a_task(
    spark: SparkSession, file: PipelineFile, timeout: float, barred: Mapping[str, str]
) -> Iterator[Finding]:
    hub, group = file.hub_url, file.source.consumer_group
    stores = [(part, url) for part, url in stores_of(file).items() if url is not None and url not in barred]
    here = ".".join(map(str, sys.version_info[:2]))

    def look(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers:
            pass
        python = ".".join(map(str, sys.version_info[:2]))
        found = [
            Finding("task", TASK, python == here, f"its Python is {python}", f"Let the workers have Python {here}"),
        ]
        seen: list[HubSeen] = []
        if hub not in barred:
            found += asked("hub", TASK, partial(look_at_hub, hub, TASK, group, seen.append), timeout)
        for part, url in stores:
            known = seen[0] if seen else None
            found += asked(part, TASK, partial(look_at_store, part, url, TASK, known, timeout=timeout), timeout)
        rows = [[one.part, one.place, one.ok, one.said, one.remedy] for one in found]
        types = [pa.string(), pa.string(), pa.bool_(), pa.string(), pa.string()]
        columns = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=["part", "place", "ok", "said", "remedy"])

    for row in spark.range(0, 1, 1, 1).mapInArrow(look, _SCHEMA).collect():
        yield Finding(*row)


def stores_of(file: PipelineFile) -> dict[str, str | None]:
    """The URL of each store of the file, None for one that it does without."""
    return {"ownership store": file.ownership_url, "checkpoint store": file.checkpoint_url}


def _transform_and_table(spark: SparkSession, file: PipelineFile, barred: Mapping[str, str]) -> Iterator[Finding]:
    transform = BatchTransform(file, spark)
    transformed = transform.dry_run()
    yield Finding("transform", DRIVER, True, f"it gives the columns {', '.join(transformed.columns)}")
    sink, table = file.open_tables(), tables_of(file)
    if table.deduplication is not None:
        table.deduplication.prepare(opaque(spark, transform.read_schema(COLUMNS, inline=False)))
        yield Finding("transform", DRIVER, True, "deduplicate_by can be computed of the events")
    batches = table.evaluate(table.prepare(no_rows(spark, transformed.schema))).each()
    for batch in batches:
        kind_of_order(batch)
    if file.sink_url in barred:
        yield not_looked_at("table", DRIVER, barred[file.sink_url])
        return
    for one, batch in zip(sink.tables, batches, strict=True):
        yield from look_at_columns(one, batch.rows.schema, file)
    _close(sink)


def _sample(spark: SparkSession, file: PipelineFile, most: int) -> Iterator[Finding]:
    hub = open_hub(file.hub_url)
    try:
        batches = [
            batch
            for partition, known in hub.partition_properties().items()
            for batch in hub.read(partition, max(known.begin, known.end - most), known.end, columns=EVENT_COLUMNS)
        ]
    finally:
        hub.close()
    if not sum(batch.num_rows for batch in batches):
        yield Finding("sample", DRIVER, True, "the hub has no events to try")
        return
    events = with_levels(pa.Table.from_batches(batches), {}).select(COLUMNS)
    transform = BatchTransform(file, spark)
    good, bad = split_by_bodies(transform, events)
    if bad is not None:
        first = bad["reason"][0].as_py()
        said = f"{bad.num_rows} of the last {events.num_rows} events cannot be read, and would be rejected"
        said += f"; the first: {first}"
        yield Finding("sample", DRIVER, good.num_rows > 0, said, "Correct transform.schema: all would be rejected")
    if not good.num_rows:
        return
    frame: DataFrame = frame_of(spark, good, transform.read_schema(COLUMNS, inline=False))
    table = tables_of(file)
    for one, batch in zip(file.tables, table.evaluate(table.prepare(transform(frame))).each(), strict=True):
        of_table = "" if len(file.sinks) == 1 else f" of {one.sink.table}"
        yield Finding("sample", DRIVER, True, f"{good.num_rows} events give {batch.rows.num_rows} rows{of_table}")
        yield from _keys(one, batch)


def _keys(file: PipelineFile, batch: Batch) -> Iterator[Finding]:
    """Rows without a key would be rejected."""
    names = {name.lower(): name for name in batch.rows.schema.names}
    for key in file.sink.keys:
        column = batch.rows[names[key.lower()]]
        if column.null_count:
            said = f"the key {key} is null in {column.null_count} of {len(column)} rows, which would be rejected"
            remedy = f"Correct {file.at}.keys, or the transform: all would be rejected"
            yield Finding("sample", DRIVER, column.null_count < len(column), said, remedy)


def _close(sink: Sink) -> None:
    with suppress(Exception):
        sink.close()
