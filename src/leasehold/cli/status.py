"""`leasehold status`: a row per partition of a pipeline's hub."""

from __future__ import annotations

import math
from pathlib import Path

import click

from leasehold.cli.output import Column, Output, Result, Table, output_option, plain
from leasehold.processor.progress import PartitionProgress, group_progress


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return "before the last restart of this machine" if math.isinf(seconds) else f"{seconds:.1f} s"


def _owner(row: PartitionProgress) -> str:
    if not row.owner:
        return ""
    return row.owner if row.alive else f"{row.owner} (expired)"


COLUMNS = (
    Column("partition", "Partition"),
    Column("owner", "Owner"),
    Column("ownerLevel", "Level", right=True),
    Column("age", "Age", right=True, text=_age),
    Column("checkpoint", "Checkpoint", right=True),
    Column("end", "End", right=True),
    Column("lag", "Lag", right=True),
)


@click.command(short_help="Show who holds which partition, and how far it has come.")
@click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@output_option
def status(file: Path, output: Output) -> None:
    """Show who holds which partition, and how far it has come.

    Checkpoint is the sequence number that the next owner would start at, End the one that the next event will
    get, and Lag the number of events between them. Age is the time since the owner last renewed its ownership,
    by the store's clock. Nothing needs to be running, and Spark is not needed either.

    \b
    Example:
      leasehold status flights.toml
      leasehold status flights.toml --json | jq .lag
    """
    from leasehold.hubs import open_hub
    from leasehold.spark.pipeline_file import read_pipeline_file
    from leasehold.stores import open_store

    pipeline = read_pipeline_file(file)
    settings = pipeline.ownership.settings()
    hub = open_hub(pipeline.hub_url)
    rows = group_progress(
        hub,
        hub.consumer_group(pipeline.source.consumer_group),
        open_store(pipeline.ownership_url, timeout=settings.request_timeout),
        open_store(pipeline.checkpoint_url, timeout=settings.request_timeout),
        settings.partition_expiration,
    )
    output.show(describe(pipeline.name, rows))


def describe(name: str, rows: list[PartitionProgress]) -> Result:
    """The status of a pipeline as a result."""
    owners = {row.owner for row in rows if row.alive}
    lag = sum(row.lag for row in rows)
    table = Table(
        "partitions",
        COLUMNS,
        [(r.partition, _owner(r), r.owner_level, _finite(r.age), r.checkpoint, r.end, r.lag) for r in rows],
    )
    instances = f"{len(owners)} instance{'' if len(owners) == 1 else 's'}"
    return Result(
        summary=f"{name}: {plain(len(rows))} partitions, {instances}, lag {plain(lag)}",
        facts={"pipeline": name, "instances": sorted(owners), "lag": lag},
        table=table,
    )


def _finite(age: float | None) -> float | None:
    return age if age is None or math.isfinite(age) else None
