"""`leasehold check`: what a pipeline needs is looked at before its first start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.backends import masked
from leasehold.cli.options.numbers import FiniteRange
from leasehold.cli.options.settings import set_option
from leasehold.cli.options.waiting import said_when_slow
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option
from leasehold.errors import ConfigError, MissingDependency, UsageError
from leasehold.printable import counted

if TYPE_CHECKING:
    from leasehold.operations.checking import Finding, HubSeen
    from leasehold.pipeline_file import PipelineFile
    from leasehold.sinks.base import Sink

COLUMNS = (
    Column("part", "Part"),
    Column("place", "From"),
    Column("ok", "", text=lambda ok: "?" if ok is None else "ok" if ok else "TO DO"),
    Column("said", "Found"),
    Column("remedy", "What to do", remark=True),
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

    The hub, the stores and the table are asked from here and, with Spark, from a task: whether they answer in time
    and let this user write, partitions, retention, where a start begins, versions. Postgres is asked for each right
    that a run needs; one that is missing is named, with the GRANT that gives it. The transform is tried on the last
    events of the hub, and what it gives is compared with the table; without Spark the columns that the file tells.
    No table is made and no event written; whether a store can be written to is tried with a presence record, which
    is taken back. Of a pipeline with a handler the handler and its related tables are looked at, and nothing needs
    Spark.

    A line each: ok, what to do, or ? for what could not be looked at before another part is mended, which the line
    names. The exit code is 1 if something has to be done.

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
    todo, waiting = (sum(one.ok is answer for one in found) for answer in (False, None))
    rows = [[one.part, one.place, one.ok, one.said, one.remedy if one.ok is False else ""] for one in found]
    if todo:
        summary = f"{counted(todo, 'thing')} to do before {pipeline.name} starts"
        summary += f"; {counted(waiting, 'part')} could not be looked at until then" if waiting else ""
    else:
        summary = f"{pipeline.name} can start"
        if no_spark and (why := _untold(pipeline)):
            unseen = "not looked at without Spark: the transform, its columns, a sample of events"
            summary = f"{unseen}\nleasehold run --no-spark refuses this file: {why}\n{summary}"
    facts = {"pipeline": pipeline.name, "ready": not todo}
    output.show(Result(summary, facts, ResultTable("checks", COLUMNS, rows)))
    if todo:
        ctx.exit(1)


def _untold(pipeline: PipelineFile) -> str:
    """Why the columns of the table are not known without Spark; empty where they are."""
    from leasehold.projected.columns_of_file import columns_told

    if pipeline.sink.state is not None:
        return ""
    try:
        columns_told(pipeline)
    except ModuleNotFoundError:
        return str(MissingDependency("what a run without Spark makes of it", "log"))
    except UsageError as error:
        return str(error)
    return ""


def _from_here(pipeline: PipelineFile, timeout: float, *, on_spark: bool) -> tuple[list[Finding], dict[str, str]]:
    """All that needs no Spark; and the URLs at which no more can be asked, with the part that says why."""
    from leasehold.model import Positions
    from leasehold.operations.asking_rights import has_rights
    from leasehold.operations.checking import (
        DRIVER,
        asked,
        look_at_hub,
        look_at_receiver,
        look_at_registry,
        look_at_rights,
        look_at_store,
        look_at_writer_schema,
        not_looked_at,
    )
    from leasehold.operations.rights import uses_of

    hub, path = pipeline.hub_url, str(pipeline.path)
    start = Positions.parse(pipeline.source.starting_position, "source.starting_position")
    told: list[HubSeen] = []
    look = partial(
        look_at_hub, hub, DRIVER, pipeline.source.consumer_group, told.append, start=start,
        share=pipeline.ownership.partitions, retention=pipeline.retention, timeout=timeout / 2,
    )  # fmt: skip
    with said_when_slow(masked(hub)):
        found = asked("hub", DRIVER, look, timeout)
    seen = told[0] if told else None
    barred = {} if seen is not None else {hub: "hub"}
    asks = [(url, use) for url, uses in uses_of(pipeline).items() if has_rights(url) for use in uses]
    for url, use in asks:
        if barred.get(url) == "database":  # it is away
            continue
        with said_when_slow(f"the database, {masked(url)}"):
            rights = asked("rights", DRIVER, partial(look_at_rights, url, use, path, timeout=timeout), timeout)
        found += [one for one in rights if one not in found]
        if any(not one.ok for one in rights):
            barred[url] = "database" if any(one.is_away for one in rights) else "rights"
    stores = {"ownership store": pipeline.ownership_url, "checkpoint store": pipeline.checkpoint_url}
    failing: dict[str, str] = {}
    for part, store in stores.items():
        if store is None:
            continue
        if needs := barred.get(store) or failing.get(store):
            found.append(not_looked_at(part, DRIVER, needs))
            continue
        with said_when_slow(f"the {part}, {masked(store)}"):
            its = asked(part, DRIVER, partial(look_at_store, part, store, DRIVER, seen, timeout=timeout), timeout)
        found += its
        if any(not one.ok for one in its):
            failing[store] = part
            if any(one.is_away for one in its):
                barred[store] = part
    found += _table_from_here(pipeline, timeout, seen, {**failing, **barred}, barred, on_spark=on_spark)
    if (registry := pipeline.transform.registry) is not None:
        with said_when_slow(f"the registry of schemas, {masked(registry)}"):
            found += asked("registry", DRIVER, partial(look_at_registry, registry, DRIVER), timeout)
    if pipeline.transform.writer_schema is not None:
        look = partial(look_at_writer_schema, pipeline.body_format, DRIVER)
        found += asked("bodies", DRIVER, look, timeout)
    if (outbox := pipeline.outbox_url) is not None:
        with said_when_slow(f"the outbox's receiver, {masked(outbox)}"):
            found += asked("outbox", DRIVER, partial(look_at_receiver, outbox, DRIVER), timeout)
    return found, barred


def _table_from_here(
    pipeline: PipelineFile,
    timeout: float,
    seen: HubSeen | None,
    failing: dict[str, str],
    barred: dict[str, str],
    *,
    on_spark: bool,
) -> list[Finding]:
    """What of the table and of its handler needs no Spark. `barred` gets the table's URL where it is away.

    `failing` are the URLs at which no store can be asked.
    """
    from leasehold.operations.checking import DRIVER, Finding, asked, look_at_sql, not_looked_at
    from leasehold.stores import open_store
    from leasehold.stores.base import CheckpointStore, TellsWhetherMade
    from leasehold.stores.stand_ins import NoCheckpoints

    url, found = pipeline.sink_url, list[Finding]()

    def table() -> Sink:
        return pipeline.open_tables(timeout)

    def writing() -> Iterator[Finding]:
        sink = table()  # names what has to be installed, before anything else needs it
        from leasehold.operations.checking_table import look_at_writing

        yield from dict.fromkeys(said for one in sink.tables for said in look_at_writing(one))

    def columns() -> Iterator[Finding]:
        from leasehold.operations.checking_table import look_at_columns
        from leasehold.projected.columns_of_file import known_columns

        known = None
        with suppress(ConfigError):  # the line of the handler says what is wrong with its state
            known = known_columns(pipeline)
        if known is not None:
            for one in table().tables:
                yield from look_at_columns(one, known, pipeline)

    def places() -> Iterator[Finding]:
        from leasehold.operations.checking_table import Reads, look_at_table

        assert seen is not None
        checkpoints: CheckpointStore | None = None
        if pipeline.checkpoint_url is not None:
            opened = open_store(pipeline.checkpoint_url, timeout=timeout)
            is_made = not isinstance(opened, TellsWhetherMade) or opened.is_made()
            checkpoints = opened if is_made else NoCheckpoints()  # a start makes it, and finds nothing in it
        reads = Reads(pipeline.ownership.partitions, pipeline.source.fail_on_data_loss)
        yield from look_at_table(table(), checkpoints, seen, str(pipeline.path), reads=reads)

    def related() -> Iterator[Finding]:
        from leasehold.operations.checking_table import look_at_related

        yield from look_at_related(table(), pipeline.sink.related, DRIVER)

    def handler() -> Iterator[Finding]:
        from leasehold.handlers.of_file import check_handler, is_transformed

        name, transformed = check_handler(pipeline, on_spark=on_spark), is_transformed(pipeline)
        said = f"{name} can be imported, and its keys {'fit' if transformed else 'and columns fit'} the file"
        if transformed:
            said += "; whether the transform's columns do is seen at the start"
        yield Finding("handler", DRIVER, True, said)

    if (needs := barred.get(url)) is not None:
        found.append(not_looked_at("table", DRIVER, needs))
    else:
        with said_when_slow(f"the database, {masked(url)}"):
            found += asked("table", DRIVER, writing, timeout)
            if found[-1].ok and (not on_spark or pipeline.sink.handler is not None):
                found += asked("table", DRIVER, columns, timeout)
        if any(one.is_away for one in found):
            barred[url] = "table"
    if barred.get(url) is None and pipeline.sink.related:
        found += asked("related", DRIVER, related, timeout)
    needs = barred.get(pipeline.hub_url) or failing.get(pipeline.checkpoint_url or "") or barred.get(url)
    if needs is None and not all(one.ok for one in found if one.part == "table"):
        needs = "table"
    if needs is not None:
        found.append(not_looked_at("start", DRIVER, needs))
    else:
        with said_when_slow(f"the database, {masked(url)}"):
            found += asked("table", DRIVER, places, timeout)
    if pipeline.sink.handler is not None:
        found += asked("handler", DRIVER, handler, timeout)
    elif not on_spark and pipeline.transform.sql is not None:
        found += look_at_sql(pipeline.transform.sql)
    return found
