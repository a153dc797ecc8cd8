"""`leasehold check`: what a pipeline needs is looked at before its first start."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.backends import masked
from leasehold.cli.options.numbers import FiniteRange
from leasehold.cli.options.settings import set_option
from leasehold.cli.options.waiting import said_when_slow
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option
from leasehold.errors import MissingDependency
from leasehold.printable import counted

if TYPE_CHECKING:
    from leasehold.operations.checking import Finding
    from leasehold.pipeline_file import PipelineFile

COLUMNS = (
    Column("part", "Part"),
    Column("place", "From"),
    Column("ok", "", text=lambda ok: "ok" if ok else "TO DO"),
    Column("said", "Found"),
    Column("remedy", "What to do"),
)
SPARK_TIMEOUT = 120.0
"""Seconds that a job of Spark may take."""


@click.command(short_help="Look at all that a pipeline needs, before its first start.")
@click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@click.option("--no-spark", is_flag=True, help="Leave out what needs Spark: the transform, a task's view, the sample.")
@click.option(
    "--sample", type=click.IntRange(min=0), default=100, show_default=True, help="Events of each partition to try."
)
@click.option(
    "--timeout",
    type=FiniteRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a hub, store or database may take to answer.",
)
@click.option(
    "--spark-timeout",
    type=FiniteRange(min=1),
    default=SPARK_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long a job of Spark may take.",
)
@set_option
@output_option
@click.pass_context
def check(
    ctx: click.Context,
    file: Path,
    no_spark: bool,
    sample: int,
    timeout: float,
    spark_timeout: float,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Look at all that a pipeline needs, before its first start.

    The hub, the stores and the table are asked from here and, with Spark, from a task: whether they answer in time and
    let this user write, partitions, retention, where a start would begin, versions. Postgres is asked for each right
    that a run needs; one that is missing is named, with the GRANT that gives it. The transform is tried on the last
    events of the hub, and what it gives is compared with the table. No table is made and no event written; whether a
    store can be written to is tried with a presence record, which is taken back. Of a pipeline with a handler the
    handler and its related tables are looked at, and nothing needs Spark.

    A line each, ok or what to do. The exit code is 1 if something has to be done.

    \b
    Example:
      leasehold check flights.toml
      leasehold check flights.toml --json | jq '.checks[] | select(.ok | not)'
    """
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings

    pipeline = read_pipeline_file(file, settings=parse_settings(settings))
    found, barred = _from_here(pipeline, timeout, on_spark=not no_spark)
    if pipeline.sink.handler is None and not no_spark:
        try:
            from leasehold.spark.checking import look_with_spark
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in ("pyspark", "pyarrow", "py4j"):
                raise MissingDependency("leasehold check (or give --no-spark)", "spark") from error
            raise
        with said_when_slow("Spark"):
            found += look_with_spark(
                pipeline, timeout=timeout, spark_timeout=spark_timeout, sample=sample, barred=barred
            )
    todo = sum(not one.ok for one in found)
    rows = [[one.part, one.place, one.ok, one.said, "" if one.ok else one.remedy] for one in found]
    summary = (
        f"{pipeline.name} can start" if not todo else f"{counted(todo, 'thing')} to do before {pipeline.name} starts"
    )
    facts = {"pipeline": pipeline.name, "ready": not todo}
    output.show(Result(summary, facts, ResultTable("checks", COLUMNS, rows)))
    if todo:
        ctx.exit(1)


def _from_here(pipeline: PipelineFile, timeout: float, *, on_spark: bool) -> tuple[list[Finding], frozenset[str]]:
    """All that needs no Spark, and the URLs at which rights are missing: what is there cannot be asked further."""
    from leasehold.model import Positions
    from leasehold.operations.asking_rights import has_rights
    from leasehold.operations.checking import (
        DRIVER,
        Finding,
        Reads,
        asked,
        look_at_hub,
        look_at_receiver,
        look_at_related,
        look_at_rights,
        look_at_store,
        look_at_table,
    )
    from leasehold.operations.rights import uses_of
    from leasehold.sinks import open_sink
    from leasehold.stores import open_store
    from leasehold.stores.base import CheckpointStore, TellsWhetherMade
    from leasehold.stores.stand_ins import NoCheckpoints

    hub, group = pipeline.hub_url, pipeline.source.consumer_group
    start = Positions.parse(pipeline.source.starting_position, "source.starting_position")
    look = partial(
        look_at_hub, hub, DRIVER, start=start, share=pipeline.ownership.partitions, retention=pipeline.retention,
        timeout=timeout / 2,
    )  # fmt: skip
    with said_when_slow(masked(hub)):
        found = asked("hub", DRIVER, look, timeout)
    barred = set[str]()
    asks = [(url, use) for url, uses in uses_of(pipeline).items() if has_rights(url) for use in uses]
    for place, use in asks:
        with said_when_slow(f"the database, {masked(place)}"):
            rights = asked(
                "rights", DRIVER, partial(look_at_rights, place, use, str(pipeline.path), timeout=timeout), timeout
            )
        barred |= {place} if any(not one.ok for one in rights) else set()
        found += [one for one in rights if one not in found]
    stores = {"ownership store": pipeline.ownership_url, "checkpoint store": pipeline.checkpoint_url}
    for part, url in stores.items():
        if url is not None and url not in barred:
            probe = partial(look_at_store, part, url, DRIVER, hub, group, timeout=timeout)
            with said_when_slow(f"the {part}, {masked(url)}"):
                found += asked(part, DRIVER, probe, timeout)

    def look_at_the_table() -> list[Finding]:
        checkpoints: CheckpointStore | None = None
        if pipeline.checkpoint_url is not None:
            opened = open_store(pipeline.checkpoint_url, timeout=timeout)
            is_made = not isinstance(opened, TellsWhetherMade) or opened.is_made()
            checkpoints = opened if is_made else NoCheckpoints()  # a start makes it, and finds nothing in it
        sink = open_sink(pipeline.sink_url, pipeline.table_spec(), timeout=timeout)
        reads = Reads(pipeline.ownership.partitions, pipeline.source.fail_on_data_loss)
        return list(look_at_table(sink, checkpoints, hub, group, str(pipeline.path), reads=reads)())

    def look_at_the_related() -> list[Finding]:
        sink = open_sink(pipeline.sink_url, pipeline.table_spec(), timeout=timeout)
        return list(look_at_related(sink, pipeline.sink.related, DRIVER))

    def look_at_the_handler() -> list[Finding]:
        from leasehold.handlers.of_file import check_handler, is_transformed

        name, transformed = check_handler(pipeline, on_spark=on_spark), is_transformed(pipeline)
        said = f"{name} can be imported, and its keys {'fit' if transformed else 'and columns fit'} the file"
        if transformed:
            said += "; whether the transform's columns do is seen at the start"
        return [Finding("handler", DRIVER, True, said)]

    with said_when_slow(f"the database, {masked(pipeline.sink_url)}"):
        if barred.isdisjoint({pipeline.sink_url, pipeline.checkpoint_url}):
            found += asked("table", DRIVER, look_at_the_table, timeout)
        if pipeline.sink.related and pipeline.sink_url not in barred:
            found += asked("related", DRIVER, look_at_the_related, timeout)
    if pipeline.sink.handler is not None:
        found += asked("handler", DRIVER, look_at_the_handler, timeout)
    if (outbox := pipeline.outbox_url) is not None:
        with said_when_slow(f"the outbox's receiver, {masked(outbox)}"):
            found += asked("outbox", DRIVER, partial(look_at_receiver, outbox, DRIVER), timeout)
    return found, frozenset(barred)
