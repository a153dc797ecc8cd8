"""Runs a pipeline file on Spark until it is stopped, or until all is consumed.

Owns what is before the first event and after the last: the checks, the session, the table, the account of what was
done. The batches are the loop's (`loop/engine.py`, with the
policy of `loop/runner.py`): ranges planned from what is held, read in Spark tasks, written in
one transaction each. There is no streaming query, no checkpoint folder and no second Python process: a start asks the
stores where to go on and the table what is done.

Promises that a stop leaves no partition held for longer than it takes to reach the store, and that a failure is either
waited out (a store, hub or database away) or told with the range that cannot be worked on. A stop may reach Spark's
Java before Spark is asked to end, as a service manager signals all processes at once: what fails by that is no failure.
"""

from __future__ import annotations

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

from leasehold.errors import ConfigError, LeaseholdError, PipelineFailed, SparkEnded, Verdict
from leasehold.hubs import open_hub
from leasehold.notices import Notices
from leasehold.operations.clearing import clearings_of
from leasehold.ownership.starting import check_start
from leasehold.pipeline_file import PipelineFile
from leasehold.registries.known_schemas import known_schemas
from leasehold.sinks.rules.table_spec import BatchResult, Totals
from leasehold.spark.handlers.of_file import HandledOfFile
from leasehold.spark.loop.engine import BatchFailed, Engine
from leasehold.spark.loop.evaluation import Evaluated, Evaluation
from leasehold.spark.loop.jobs import Jobs, jobs_on
from leasehold.spark.loop.recovery import LONGEST_ERROR
from leasehold.spark.loop.runner import BatchRunner
from leasehold.spark.loop.settings import LoopSettings, loop_settings
from leasehold.spark.loop.tasks import ReadSpec
from leasehold.spark.loop.warming import WarmUp
from leasehold.spark.plan.batch_transform import BatchTransform
from leasehold.spark.plan.options import COLUMNS
from leasehold.spark.plan.reading import CARRIED, reads_for
from leasehold.spark.session.empty import opaque
from leasehold.spark.session.opening import JavaStart, check_master
from leasehold.spark.session.versions import is_connect
from leasehold.spark.table.entity_table import EntityTable
from leasehold.spark.table.of_file import tables_of
from leasehold.spark.table.several import EntityTables
from leasehold.store_choice import TablePlaces
from leasehold.stores import PipelineBinding, open_store
from leasehold.waiting import INSTANCE, sentence, when_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run is getting on: totals of the batches so far, batches tried again, and what is held and unread.

    `source` is empty before the first partition is held. `note` is a remark for people, "" where there is none. `lost`
    counts the events that the hub had removed before they were read.
    """

    totals: Totals = field(default_factory=Totals)
    restarts: int = 0
    source: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    lost: int = 0


class PipelineRun:
    """One instance of the pipeline in `file` (`read_pipeline_file`).

    `java` is the Java of its session, where its start has begun already; else it begins with `run`.
    `report` is called with a `Progress` after each step, batch and failure. `owner_name` names the instance; without it
    it is called like no other, by host and process id. With `available_now` it ends when everything there was at the
    start is consumed. `rng` is for jitter; default: a new one. `notices` is where notices go; default: its own.
    `trace_links`: batches that are done tell the trace contexts of their events (`BatchDone.producers`).
    """

    def __init__(
        self,
        file: PipelineFile,
        *,
        java: JavaStart | None = None,
        owner_name: str | None = None,
        available_now: bool = False,
        report: Callable[[Progress], None] = lambda progress: None,
        rng: Random | None = None,
        notices: Notices | None = None,
        trace_links: bool = False,
    ) -> None:
        self.notices = notices or Notices()
        self._trace_links = trace_links
        self._file = file
        self._java = java
        self._owner_name = owner_name
        self._available_now = available_now
        self._report = report
        self._rng = rng or Random()
        self._engine: Engine | None = None
        self._table = when_there(self._open_table, patience=INSTANCE, say=self._say_waiting)

    def run(self, stop: threading.Event) -> Progress:
        """Run until `stop` is set or, with `available_now`, until everything there was at the start is consumed.

        Raises `PipelineFailed` for what trying again does not mend, and a `UsageError` for what is refused at
        the start.
        """
        java = self._java or JavaStart(*self._file.session())
        when_there(self._check_start, patience=INSTANCE, say=self._say_waiting, pause=stop.wait)
        try:
            self._run_on_spark(java, stop)
        except BatchFailed as error:
            raise PipelineFailed(f"this instance gives up: {error}") from error
        except (Py4JError, PySparkException, ConnectionError, SparkEnded) as error:
            if stop.is_set():
                logger.info("Spark has ended before it was asked to: %s", error)
            elif isinstance(error, Py4JJavaError | PySparkException):
                raise
            else:  # no answer, or half of one
                raise PipelineFailed(f"this instance gives up: {SparkEnded()}") from error
        return self._progress()

    def _run_on_spark(self, java: JavaStart, stop: threading.Event) -> None:
        self._say("starting Spark")
        java.wait()
        if stop.is_set():
            return
        spark = self._session(java, stop)
        warm_up = WarmUp(spark)
        try:
            self._run_batches(spark, warm_up, stop)
        finally:
            with suppress(Py4JError, ConnectionError):
                spark.stop()
            warm_up.end()

    def _run_batches(self, spark: SparkSession, warm_up: WarmUp, stop: threading.Event) -> None:
        self._say("checking the transform and the table")
        settings, jobs, evaluation = self._prepare(spark)
        engine = Engine(
            jobs,
            settings,
            self._table,
            stop,
            notices=self.notices,
            rng=self._rng,
            checked=True,
            report=self._say,
            delayed=self._say_waiting,
        )
        try:
            warm_up.wait(stop)  # without a worker, nothing is taken from instances that have one
            if stop.is_set():
                engine.share.close()
                return
            engine.start()
            self._engine = engine
            self._run_engine(engine, evaluation)
        finally:
            if isinstance(self._table, HandledOfFile):
                self._table.close()

    def _run_engine(self, engine: Engine, evaluation: Evaluation) -> None:
        errors: dict[str, str] = {}
        try:
            BatchRunner(engine, evaluation, partial(self._write, engine)).run()
        except BatchFailed as error:
            if error.verdict is Verdict.MEND:
                for partition, held in engine.share.held().items():  # which is no bad end of theirs
                    engine.share.manager.put_on_record(partition, held.owner_level, str(error)[:LONGEST_ERROR])
            elif not engine.stop.is_set():
                errors = dict.fromkeys(engine.share.held(), str(error)[:LONGEST_ERROR])
            raise
        except LeaseholdError as error:
            logger.error("this instance gives up: %s", error)
            raise
        finally:
            engine.leave(errors)

    # Before the first event

    def _open_table(self) -> EntityTable | EntityTables | HandledOfFile:
        file = self._file
        hub = open_hub(file.hub_url)
        self._group = hub.consumer_group(file.source.consumer_group)
        self._hub_identity = hub.identity
        hub.close()
        table = tables_of(file) if file.sink.handler is None else HandledOfFile(file)
        self._clearings = clearings_of(file)
        self._checkpoints = file.open_stores(open_store, lambda: TablePlaces(table, self._hub_identity)).checkpoints
        return table

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

    def _session(self, java: JavaStart, stop: threading.Event) -> SparkSession:
        master = self._file.session()[-1]
        asks_to_stop = signal.getsignal(signal.SIGINT)
        when_there(lambda: check_master(master), patience=INSTANCE, say=self._say_waiting, pause=stop.wait)
        spark = java.open()
        if asks_to_stop is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, asks_to_stop)  # PySpark has put one in its place that only interrupts
        if not is_connect(spark):
            from leasehold.spark.session.classic import say_no_error_after

            say_no_error_after(stop.is_set, spark)
        return spark

    def _prepare(self, spark: SparkSession) -> tuple[LoopSettings, Jobs, Evaluation]:
        """How the tasks read, with just the columns needed, and what is done to each batch of it."""
        handled = self._table if isinstance(self._table, HandledOfFile) else None
        transform = BatchTransform(self._file if handled is None else handled.reads, spark)
        transformed = transform.dry_run()
        self._table.check(transformed)
        if handled is not None:
            transformed = handled.events(transformed)
        by, events = self._table.deduplication, opaque(spark, transform.read_schema(COLUMNS, inline=False))
        identities = None if by is None else by.prepare(events)
        connect = is_connect(spark)
        used, lasting = set(COLUMNS), False
        if not connect:
            from leasehold.spark.plan.row_wise import is_repeatable, used_columns

            used = {*CARRIED, *used_columns(transformed, COLUMNS)}
            used |= set() if identities is None else used_columns(identities, COLUMNS)
            lasting = is_repeatable(transformed)
        given = self._file.loop_options()
        given["columns"] = [column for column in COLUMNS if column in used]
        settings = loop_settings({**given, "owner_id": self._owner_name, "available_now": self._available_now})
        source = settings.source
        bodies = transform.bodies()
        spec = ReadSpec(
            url=source.hub,
            columns=source.columns,
            batch_rows=source.batch_rows,
            read_for=reads_for(source),
            bodies=bodies and bodies.given({}),
            inline=connect and bodies is not None,
            links=self._trace_links,
        )
        jobs = jobs_on(spark, spec, transform.read_schema(source.columns, inline=spec.inline))
        registry = None if bodies is None else self._file.transform.registry
        if registry is not None and connect:
            rule = "over Spark Connect tasks cannot tell which schemas they need"
            raise ConfigError("transform.registry", None, rule, "Run the file on another session, or without Spark")
        evaluation = Evaluation(
            *(jobs, transform, self._table),
            name=self._file.name,
            lasting=lasting,
            schemas=None if registry is None else known_schemas(registry),
        )
        return settings, jobs, evaluation

    # Batches

    def _write(self, engine: Engine, evaluated: Evaluated) -> BatchResult:
        engine.binding.meet(self._table.met_by_loop)
        result = self._table.write(evaluated.batch, level_of=engine.share.level_of, tell=self.notices.publish)
        for clearing in self._clearings:
            clearing.step(engine.share.clock.monotonic())
        return result

    def _say(self, note: str) -> None:
        self._report(self._progress(note))

    def _say_waiting(self, error: LeaseholdError, patience: float) -> None:
        self._report(Progress(note=sentence(error, patience)))

    def _progress(self, note: str = "") -> Progress:
        engine = self._engine
        restarts, lost = (0, 0) if engine is None else (engine.counts.retries, engine.feed.lost_events)
        return Progress(self._table.totals, restarts, self._source_report(), note, lost)

    def _source_report(self) -> dict[str, Any]:
        """What is held and what of it is unread."""
        if self._engine is None:
            return {}
        feed = self._engine.feed
        with suppress(LeaseholdError):
            lag = feed.lag()
            return {"owned": len(lag), "partitionCount": feed.partition_count, "lag": sum(lag.values())}
        return {}
