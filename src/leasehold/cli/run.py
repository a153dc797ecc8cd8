"""`leasehold run`: one instance of a pipeline, from a file, until it is stopped or all is consumed.

With `--no-spark` it is the plain processor, for a pipeline with a handler, or whose transform only picks columns.

Owns the signals: the first SIGTERM or Ctrl-C asks the pipeline to stop, a second one ends the process at once. Owns too
what is watched beside: metrics where the file says so, and OpenTelemetry where its API is there already, brought by who
has set it up around this program; nothing of it is imported here for those who have not.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.cli.options.logs import show_warnings
from leasehold.cli.options.settings import set_option
from leasehold.cli.output import Output, Result, output_option
from leasehold.cli.stop_signals import stop_on_signals
from leasehold.errors import LeaseholdError, MissingDependency, PipelineFailed
from leasehold.printable import counted

if TYPE_CHECKING:
    from leasehold.notices import Notices
    from leasehold.operations.clearing import Clearing
    from leasehold.pipeline_file import PipelineFile
    from leasehold.processors.events.event_processor import EventProcessor
    from leasehold.sinks.rules.table_spec import Totals
    from leasehold.spark.pipeline import Progress
    from leasehold.spark.session.opening import JavaStart
    from leasehold.tracing import Tracing

REPORT_EVERY = 5.0
"""Seconds between two lines about how a run is getting on."""


@click.command(short_help="Run a pipeline, on Spark or without.")
@click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@click.option(
    "--available-now",
    is_flag=True,
    help="End when all that was in the hub at the start has been consumed, by this instance or another.",
)
@click.option(
    "--owner-id",
    metavar="ID",
    help="A name for this instance that lasts: started again under it, the instance takes its partitions back at "
    "once. Letters, digits and . _ : @ -; unique among the instances of a pipeline.",
)
@click.option(
    "--no-spark",
    is_flag=True,
    help="Start no Spark: for a handler, or a transform that only picks and renames columns.",
)
@set_option
@output_option
def run(
    file: Path, available_now: bool, owner_id: str | None, no_spark: bool, settings: tuple[str, ...], output: Output
) -> None:
    """Run a pipeline, on Spark or without, until it is stopped.

    Start it as often as you like, on one machine or several: the instances share the partitions of the hub.
    SIGTERM and Ctrl-C stop an instance cleanly, also when all of its processes get the signal: it gives its
    partitions up, and the others take them. A store, hub or database that is away for a while is waited for.
    Remarks on the way go to stderr, the account at the end to stdout.

    \b
    Example:
      leasehold run flights.toml --owner-id blue
      leasehold run flights.toml --set sink.url=sqlite:///other.db --set source.max_events_per_trigger=1000
      leasehold run orders.toml --no-spark
    """
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings

    pipeline_file = read_pipeline_file(file, settings=parse_settings(settings))
    if owner_id is not None:
        from leasehold.model import OwnerId

        OwnerId(owner_id)
    if no_spark:
        _run_here(pipeline_file, owner_id or "", available_now, output)
        return
    stop = stop_on_signals()  # before there is a Java that a signal would leave behind
    try:
        from leasehold.spark.session.opening import JavaStart

        with JavaStart(*pipeline_file.session()) as java:
            done = _run_on_spark(pipeline_file, java, stop, owner_id, available_now, output)
            output.show(_account(done.totals, done.lost, restarts=done.restarts))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "pyarrow", "py4j"):
            raise MissingDependency("leasehold run", "spark") from error
        raise


def _run_on_spark(
    file: PipelineFile,
    java: JavaStart,
    stop: threading.Event,
    owner_id: str | None,
    available_now: bool,
    output: Output,
) -> Progress:
    """Run the pipeline of a file on Spark. Its Java starts beside the imports, and what is asked of the stores."""
    from leasehold.spark.pipeline import PipelineRun

    show_warnings()
    # py4j repeats, with a traceback, every error that we tell: as itself, and in one place as the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: not (record.name == "root" and "py4j" in Path(record.pathname).parts))
    tracing = _tracing(file)
    pipeline = PipelineRun(
        file,
        java=java,
        owner_name=owner_id,
        available_now=available_now,
        report=_reporter(output, time.monotonic),
        trace_links=tracing is not None and tracing.active,
    )
    if tracing is not None:
        tracing.watch(pipeline.notices, batches=True)
    with _served(file, pipeline.notices, output):
        return pipeline.run(stop)


def _run_here(file: PipelineFile, name: str, available_now: bool, output: Output) -> None:
    """Run a file in this process."""
    from leasehold.notices import EventsLost, Notices, TableApplied
    from leasehold.operations.clearing import clearings_of
    from leasehold.runtime import Runtime
    from leasehold.sinks.rules.table_spec import Totals

    try:
        from leasehold.processors.events.of_file import processor_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "pyarrow":
            raise MissingDependency("leasehold run --no-spark", "log") from error
        raise
    show_warnings()
    stop = stop_on_signals()
    notices, totals, lock = Notices(), Totals(), threading.Lock()
    lost, told = 0, dict[str, int]()

    def count(applied: TableApplied) -> None:
        nonlocal totals
        with lock:  # partitions work side by side
            totals = totals.with_batch(applied.counts)

    def count_lost(gap: EventsLost) -> None:
        nonlocal lost
        with lock:
            lost += max(0, gap.end - max(gap.start, told.get(gap.partition, 0)))  # told again where it is read again
            told[gap.partition] = max(gap.end, told.get(gap.partition, 0))

    notices.subscribe(count, to=TableApplied)
    notices.subscribe(count_lost, to=EventsLost)
    processor = processor_of(file, available_now=available_now, runtime=Runtime(notices=notices), name=name)
    clearings = clearings_of(file)
    with _served(file, notices, output):
        try:
            _run_until(stop, processor, clearings, output)
        except LeaseholdError as error:
            failed = PipelineFailed(f"this instance gives up: {error}")
            for note in getattr(error, "__notes__", ()):
                failed.add_note(note)
            raise failed from error
    output.show(_account(totals, lost))


def _run_until(stop: threading.Event, processor: EventProcessor, clearings: Sequence[Clearing], output: Output) -> None:
    """Run a processor until it is to stop, or gives up, which raises why; clear its tables of what is old meanwhile."""
    processor.start()
    try:
        output.note(f"asking for partitions as {processor.owner_id}")
        while not stop.is_set() and not processor.wait(0.2):
            for clearing in clearings:
                clearing.step(time.monotonic())
    finally:
        processor.stop()
    processor.wait()


def _tracing(file: PipelineFile) -> Tracing | None:
    """Spans and metrics of OpenTelemetry, where somebody has imported its API before us: `opentelemetry-instrument`."""
    if not {"opentelemetry.trace", "opentelemetry.metrics"} & set(sys.modules):
        return None
    from leasehold.tracing import Tracing

    return Tracing(file.hub_url, consumer_group=file.source.consumer_group)


def _served(file: PipelineFile, notices: Notices, output: Output) -> AbstractContextManager[object]:
    """Serve metrics and health, if the file says where."""
    address = file.metrics.listen
    if address is None:
        return nullcontext()
    try:
        from leasehold.metrics.instance_server import MetricsServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "prometheus_client":
            raise MissingDependency("[metrics] listen", "metrics") from error
        raise
    server = MetricsServer([notices], address, field=f"{file.path}: metrics.listen")
    reach = "" if address.is_loopback else ": other machines may reach it, and nobody is asked who they are"
    output.note(f"metrics at {server.url}/metrics{reach}")
    return server


def _reporter(output: Output, now: Callable[[], float]) -> Callable[[Progress], None]:
    """Say how it is getting on, every few seconds and after each failure."""
    last = now()

    def report(progress: Progress) -> None:
        nonlocal last
        if not progress.note and now() - last < REPORT_EVERY:
            return
        last = now()
        with suppress(OSError, ValueError):  # who listened has left, and the run goes on
            said = progress.note or _line(progress)
            output.note(said if output.logs_json else f"{time.strftime('%H:%M:%S')} {said}")

    return report


def _line(progress: Progress) -> str:
    totals, source = progress.totals, progress.source
    held = f"; {source['owned']} of {source['partitionCount']} partitions, lag {source['lag']:,}" if source else ""
    return f"{totals.said()}; {counted(totals.batches, 'batch')}{held}"


def _account(totals: Totals, lost: int, **more: int) -> Result:
    """What a run has done; `more` is counted on Spark alone, in the plural as its name says it."""
    facts = {"batches": totals.batches, **totals.named(), "lost": lost, **more}
    said = f"; lost: {lost:,}, gone from the hub before they were read" if lost else ""
    others = "".join(f", {counted(count, name.removesuffix('s'))}" for name, count in more.items() if count)
    return Result(summary=f"{totals.said()}{said}; {counted(totals.batches, 'batch')}{others}", facts=facts)
