"""`leasehold status`: a row per partition of a pipeline's hub."""

from __future__ import annotations

import math
from pathlib import Path

import click

from leasehold.cli.output import Column, Output, Result, Table, output_option, plain
from leasehold.processor.progress import GroupProgress, PartitionProgress, group_progress


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return "before the last restart of this machine" if math.isinf(seconds) else f"{seconds:.1f} s"


def _owner(row: PartitionProgress) -> str:
    if not row.owner:
        return ""
    return row.owner if row.alive else f"{row.owner} (expired)"


def _remark(row: PartitionProgress) -> str:
    remarks = []
    if row.asked_by:
        remarks.append(f"{row.asked_by} waits for it")
    if row.failures:
        owners = "1 owner" if row.failures == 1 else f"{row.failures} owners in a row"
        taken = ", taken last" if row.suspect else ""
        remarks.append(f"{owners} came to a bad end and no event was done{taken}: {row.last_error}")
    return "; ".join(remarks)


COLUMNS = (
    Column("partition", "Partition"),
    Column("owner", "Owner"),
    Column("ownerLevel", "Level", right=True),
    Column("age", "Age", right=True, text=_age),
    Column("checkpoint", "Checkpoint", right=True),
    Column("end", "End", right=True),
    Column("lag", "Lag", right=True),
)
REMARK = Column("remark", "Remark")


@click.command(short_help="Show who holds which partition, and how far it has come.")
@click.argument("file", metavar="PIPELINE.toml", type=click.Path(path_type=Path))
@output_option
def status(file: Path, output: Output) -> None:
    """Show who holds which partition, and how far it has come.

    Checkpoint is the sequence number that the next owner would start at, End the one that the next event will
    get, and Lag the number of events between them. Age is the time since the owner last renewed its ownership,
    by the store's clock. A remark tells of a partition that is about to be handed over, or whose owners come to
    a bad end one after another. Nothing needs to be running, and Spark is not needed either.

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
    progress = group_progress(
        hub,
        hub.consumer_group(pipeline.source.consumer_group),
        open_store(pipeline.ownership_url, timeout=settings.request_timeout),
        open_store(pipeline.checkpoint_url, timeout=settings.request_timeout),
        settings.partition_expiration,
    )
    output.show(describe(pipeline.name, progress))


def describe(name: str, progress: GroupProgress) -> Result:
    """The status of a pipeline as a result."""
    rows, instances = progress.partitions, progress.instances
    lag = sum(row.lag for row in rows)
    remarks = any(map(_remark, rows))
    table = Table(
        "partitions",
        (*COLUMNS, REMARK) if remarks else COLUMNS,
        [
            (
                *(r.partition, _owner(r), r.owner_level, _finite(r.age), r.checkpoint, r.end, r.lag),
                *([_remark(r)] if remarks else []),
            )
            for r in rows
        ],
    )
    count = f"{len(instances)} instance{'' if len(instances) == 1 else 's'}"
    summary = f"{name}: {plain(len(rows))} partitions, {count}, lag {plain(lag)}"
    idle = [one.owner_id for one in instances if not one.partitions]
    if idle:
        summary += f"\nwithout a partition: {', '.join(idle)}"
    if progress.unserved:
        summary += (
            f"\nnobody has room for partitions {', '.join(progress.unserved)}: raise maximum_partitions, or start "
            "another instance"
        )
    return Result(
        summary=summary,
        facts={
            "pipeline": name,
            "instances": [one.owner_id for one in instances],
            "lag": lag,
            "unserved": list(progress.unserved),
            "suspects": [
                {"partition": r.partition, "failures": r.failures, "lastError": r.last_error} for r in rows if r.suspect
            ],
        },
        table=table,
    )


def _finite(age: float | None) -> float | None:
    return age if age is None or math.isfinite(age) else None
