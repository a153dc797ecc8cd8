"""Runs a pipeline file on Spark until it is stopped, or until all is consumed.

Owns the life of the query: the checks before it, its restarts after failures, the account of what it did, its
end. Promises that a stop leaves no partition held for longer than it takes to reach the store, and that a
failure is either waited out (a store, hub or database away) or told with the range that cannot be worked on. A stop
may reach Spark's processes before Spark is asked to end, as a service manager signals all of them at once: what
fails by that is no failure.

    start ─▶ running ──failed, transient──▶ pause ─▶ running …
                │ └────failed, unknown────▶ pause ─▶ running …   (at most ATTEMPTS times at one batch)
                │ └────failed, lost───────▶ pause ─▶ running …   (once, without the scratch folder)
                │ └────failed, permanent, or too often──▶ failed: raises
                └──stopped, or all consumed──▶ done

Concurrency: Spark calls `_apply` from a thread of its own, one batch at a time; the main thread waits for the
end of the query or for `stop`. The source runs in a third process (`live.py`). If this process stops for a
minute anywhere in a batch, the source goes on renewing and nobody else works on its partitions; if both stop,
the partitions expire, another instance takes them, and the fence drops what is written here afterwards.
"""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from leasehold.config import parse_duration
from leasehold.errors import AlreadyInUse, LeaseholdError
from leasehold.hubs import open_hub
from leasehold.sinks.base import Totals
from leasehold.spark.batch import BatchTransform
from leasehold.spark.entity_table import EntityTable
from leasehold.spark.failures import Failure, Kind, pause_before_restart, sort_failure
from leasehold.spark.options import COLUMNS
from leasehold.spark.pipeline_file import PipelineFile, naming
from leasehold.spark.reading import schema_of
from leasehold.spark.scratch import Scratch
from leasehold.spark.session import open_session
from leasehold.spark.source import register
from leasehold.spark.starting import check_start
from leasehold.spark.transform import used_columns
from leasehold.stores import PipelineBinding, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

logger = logging.getLogger(__name__)

ATTEMPTS = 4
"""How often a batch that fails for an unknown reason is tried before this instance stops, if nothing else ever worked.

One that has worked goes on: the partition that fails becomes a suspect (`leasehold.balancing.suspects`), and is tried
again and again, later and later, while the others are worked on. With AvailableNow it stops all the same: there is
an end to come to.
"""
LONGEST_ERROR = 500
"""How many characters of an error are kept with the partitions that it ended the work on."""
POLL = 0.5
"""Seconds between two looks at the query."""
CARRIED = ("body", "hub", "partition", "sequenceNumber", "ownerLevel")
"""The source's columns that a pipeline needs whatever its transform reads."""


class PipelineFailed(LeaseholdError):
    """The pipeline stopped because of an error that trying again does not mend."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run is getting on: totals of the batches so far, restarts, and the source's own report."""

    totals: Totals = field(default_factory=Totals)
    restarts: int = 0
    source: dict[str, Any] = field(default_factory=dict)
    note: str = ""


class PipelineRun:
    """One instance of a pipeline. `report` is called with a `Progress` after each batch and each failure.

    `owner_name` names the instance; without it the host and process id do, and its scratch folder goes with it.
    """

    def __init__(
        self,
        file: PipelineFile,
        *,
        owner_name: str | None = None,
        available_now: bool = False,
        report: Callable[[Progress], None] = lambda progress: None,
        rng: Random | None = None,
    ) -> None:
        self._file = file
        self._owner_name = owner_name
        self._available_now = available_now
        self._report = report
        self._rng = rng or Random()
        self._raised: BaseException | None = None
        self._restarts = 0
        self._failures = 0
        self._applied = self._confirmed = self._ever_applied = False
        self._query: StreamingQuery | None = None
        self._stop = threading.Event()
        self._table = self._open_table()

    def run(self, stop: threading.Event) -> Progress:
        """Run until `stop` is set or, with `available_now`, until everything there was at the start is consumed.

        Raises `PipelineFailed` for what trying again does not mend, and a `UsageError` for what is refused at
        the start.
        """
        file = self._file
        self._stop = stop
        self._check_start()
        parent = file.folder / ".leasehold" / file.name
        with Scratch(parent, self._owner_name) as scratch:
            try:
                self._run_on_spark(scratch, stop)
            except (Py4JError, PySparkException, ConnectionError) as error:
                if stop.is_set():
                    logger.info("Spark has ended before it was asked to: %s", error)
                elif isinstance(error, Py4JJavaError | PySparkException):
                    raise
                else:  # no answer, or half of one
                    raise PipelineFailed(
                        "Spark's Java process has ended: it was killed, or ran out of memory (spark.driver.memory). "
                        "Start this instance again; what it held goes to the others or comes back to it"
                    ) from error
        return self._progress()

    def _run_on_spark(self, scratch: Scratch, stop: threading.Event) -> None:
        spark = self._session()
        try:
            source, transform = self._prepare(spark)
            self._keep_running(source, transform, scratch, stop)
        finally:
            with suppress(Py4JError, ConnectionError):
                spark.stop()

    # Before the first event

    def _open_table(self) -> EntityTable:
        file = self._file
        hub = open_hub(file.hub_url)
        self._group = hub.consumer_group(file.source.consumer_group)
        self._hub_identity = hub.identity
        hub.close()
        timeout = file.ownership.settings().request_timeout
        self._ownership = open_store(file.ownership_url, timeout=timeout)
        self._checkpoints = open_store(file.checkpoint_url, timeout=timeout)
        sink = file.sink
        with naming(f"{file.path}: sink."):
            return EntityTable(
                file.sink_url,
                sink.table,
                keys=sink.keys,
                mode=sink.mode,
                pipeline=file.name,
                consumer_group=file.source.consumer_group,
                sequence_by=sink.sequence_by,
                delete_when=sink.delete_when,
                keep=sink.keep,
                store=self._ownership,
                group=self._group,
            )

    def _check_start(self) -> None:
        check_start(
            self._group,
            self._checkpoints,
            self._binding(),
            partial(self._table.watermarks, self._hub_identity),
            str(self._file.path),
        )

    def _binding(self) -> PipelineBinding:
        return PipelineBinding(self._file.name, self._table.sink_identity())

    def _confirm_binding(self) -> None:
        """Look once more before the first batch: until somebody has read, a later starter may have tied the group."""
        if self._confirmed:
            return
        bound = self._checkpoints.bind_pipeline(self._group, self._binding())
        if bound != self._binding():
            raise AlreadyInUse(
                f"consumer group {self._group.name!r} was tied to another table of pipeline {bound.pipeline!r} while "
                "this instance started: its file names another sink. Let all instances of a pipeline name the same one"
            )
        self._confirmed = True

    def _session(self) -> SparkSession:
        conf = dict(self._file.spark)
        master = conf.pop("master", "local[2]")
        asks_to_stop = signal.getsignal(signal.SIGINT)
        spark = open_session(f"leasehold {self._file.name}", conf, master)
        if asks_to_stop is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, asks_to_stop)  # PySpark has put one in its place that only interrupts
        _tell_no_error_after(self._stop, spark)
        register(spark)
        return spark

    def _prepare(self, spark: SparkSession) -> tuple[DataStreamReader, BatchTransform]:
        """The reader of the events with just the columns needed, and what is done to each batch of them."""
        options = self._file.source_options()
        if self._owner_name is not None:
            options["ownerId"] = self._owner_name
        nothing = spark.createDataFrame([], schema_of(COLUMNS))
        transform = BatchTransform(self._file, nothing.columns)
        transformed = transform.dry_run(nothing)
        self._table.check(transformed)
        used = {*CARRIED, *used_columns(transformed, COLUMNS)}
        options["columns"] = ",".join(column for column in COLUMNS if column in used)
        return spark.readStream.format("leasehold").options(**options), transform

    # The query and its restarts

    def _keep_running(
        self, source: DataStreamReader, transform: BatchTransform, scratch: Scratch, stop: threading.Event
    ) -> None:
        failed_batch = ""
        attempts = 0
        fresh = False
        while not stop.is_set():
            self._raised, self._applied, self._confirmed = None, False, False
            query = self._query = self._start(source, transform, scratch)
            failure = self._wait(query, stop)
            if failure is None:
                return
            if failure.kind is Kind.UNKNOWN:
                # The batch that failed is planned anew, with other ends, once the scratch folder is cleared.
                again = failure.batch == failed_batch or not self._applied
                attempts = attempts + 1 if again else 1
                failed_batch = failure.batch
            lost = failure.kind is Kind.LOST
            if (
                failure.kind is Kind.PERMANENT
                or (failure.kind is Kind.UNKNOWN and attempts >= ATTEMPTS and self._may_give_up())
                or (lost and fresh and not self._applied)
            ):
                at = f" (batch: {failure.batch})" if failure.batch else ""
                raise PipelineFailed(f"{failure.message}{at}")
            fresh = lost or (failure.kind is Kind.UNKNOWN and attempts > 1)
            if fresh:
                scratch.clear()  # it may be what is broken or outdated, and nothing is lost with it
            self._restarts += 1
            self._failures += 1
            pause = pause_before_restart(self._failures, self._rng.random())
            source.option("lastError", failure.message[:LONGEST_ERROR])
            self._report(self._progress(f"{failure.message} - restarting in {pause:.1f} s"))
            stop.wait(pause)

    def _may_give_up(self) -> bool:
        return self._available_now or not self._ever_applied

    def _start(self, source: DataStreamReader, transform: BatchTransform, scratch: Scratch) -> StreamingQuery:
        def apply(batch: DataFrame, batch_id: int) -> None:
            self._apply(batch, transform)

        writer = source.load().writeStream.foreachBatch(apply).option("checkpointLocation", scratch.spark_checkpoint)
        interval = self._file.source.trigger_interval
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        elif interval is not None:
            writer = writer.trigger(processingTime=f"{parse_duration(interval, 'source.trigger_interval')} seconds")
        return writer.start()

    def _wait(self, query: StreamingQuery, stop: threading.Event) -> Failure | None:
        """Wait for the query to end. None: it ended well, or was stopped because we were asked to."""
        while query.isActive:
            if stop.wait(POLL):
                query.stop()
                return None
        if stop.is_set():
            return None
        error = query.exception()
        return None if error is None else sort_failure(str(error), self._raised, _end_offset(query))

    def _apply(self, batch: DataFrame, transform: BatchTransform) -> None:
        try:
            self._confirm_binding()
            rows = transform(batch)
            self._table.apply_batch(rows.good, rejected=rows.rejected)
        except BaseException as error:
            self._raised = error
            if not (isinstance(error, LeaseholdError) or self._stop.is_set()):
                logger.exception("a batch failed in an unforeseen way")
            raise
        self._failures = 0
        self._applied = self._ever_applied = True
        self._report(self._progress())

    def _progress(self, note: str = "") -> Progress:
        return Progress(self._table.totals, self._restarts, _source_report(self._query), note)


def _tell_no_error_after(stop: threading.Event, spark: SparkSession) -> None:
    """PySpark's server for accumulators prints a traceback when Java ends before it: after a stop that is no news."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    tell = server.handle_error

    def tell_unless_stopped(request: Any, client_address: Any) -> None:
        if not stop.is_set():
            tell(request, client_address)

    server.handle_error = tell_unless_stopped


def _end_offset(query: StreamingQuery) -> str:
    """The offset of the batch at which a query failed, as Spark writes it."""
    failed = query._jsq.exception()
    return str(failed.get().endOffset()) if failed.isDefined() else ""


def _source_report(query: StreamingQuery | None) -> dict[str, Any]:
    """What the source says of ownership and lag in the query's last progress; nothing, if Java has ended."""
    progress = None
    with suppress(Py4JError, ConnectionError):
        progress = query.lastProgress if query is not None else None
    text = progress.sources[0].latestOffset if progress is not None and progress.sources else None
    try:
        report: dict[str, Any] = json.loads(text) if text else {}
    except ValueError:
        return {}
    return report
