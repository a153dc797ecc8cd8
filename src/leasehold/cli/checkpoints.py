"""`leasehold checkpoints`: takes checkpoints out of a store and puts them into one, as JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leasehold.backends import masked
from leasehold.cli.output import Column, Output, Result, Table, output_option
from leasehold.errors import ConfigError, MissingDependency, UsageError
from leasehold.model import BEFORE_FIRST, Checkpoint, ConsumerGroup

if TYPE_CHECKING:
    from leasehold.cli.checkpoint_moves import Move
    from leasehold.stores.base import CheckpointStore

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = (
    Column("partition", "Partition"),
    Column("before", "Before", right=True),
    Column("after", "After", right=True),
    Column("ownerLevel", "Level", right=True),
)


@click.group(short_help="Take checkpoints out of a store, or put them in.")
def checkpoints() -> None:
    """Take checkpoints out of a store, or put them in.

    STORE is the URL of a store, or a PIPELINE.toml, which names its store and its group. A checkpoint is the sequence
    number of the last event processed. They do not touch an entity table: its watermarks say what it has. To send
    a pipeline back or forth, use `leasehold reset`.

    \b
    Example:
      leasehold checkpoints export flights.toml > flights.jsonl
      leasehold checkpoints import sqlite:///new.db flights.jsonl
    """


def _group_options(command: F) -> F:
    for option in (
        click.option("--group", metavar="NAMESPACE/HUB/NAME", help="The consumer group, as the records name it."),
        click.option("--hub", metavar="URL", help="Take namespace and hub from this hub."),
        click.option(
            "--consumer-group",
            metavar="NAME",
            default="$Default",
            show_default=True,
            help="The group's name, with --hub.",
        ),
    ):
        command = option(command)
    return command


@checkpoints.command("export")
@click.argument("store")
@_group_options
def export(store: str, group: str | None, hub: str | None, consumer_group: str) -> None:
    """Print the checkpoints of a consumer group, a JSON object a line.

    \b
    Example:
      leasehold checkpoints export flights.toml > flights.jsonl
      leasehold checkpoints export sqlite:///store.db --hub log:///flights.db
    """
    from leasehold.cli.checkpoint_formats import as_line

    opened, of = _open(store, group, hub, consumer_group)
    for checkpoint in sorted(opened.list_checkpoints(_needed(of)), key=_in_order):
        click.echo(as_line(checkpoint))


@checkpoints.command("import")
@click.argument("store")
@click.argument("source", metavar="FILE|FOLDER|-|URL")
@_group_options
@click.option("--format", "format_name", default="leasehold", show_default=True, help="What the documents look like.")
@click.option("--folder", default="", help="With an azblob:// URL: the prefix that the old processor was given.")
@click.option("--force", is_flag=True, help="Also a lower owner level, and a step back.")
@output_option
def import_(
    store: str,
    source: str,
    group: str | None,
    hub: str | None,
    consumer_group: str,
    format_name: str,
    folder: str,
    force: bool,
    output: Output,
) -> None:
    """Write checkpoints into a store, each into the group that it names or into the one given here.

    Nothing is written if one of them has a lower owner level than the store's, or is behind it. With --force it is
    written all the same, one level above the store's: an instance that is running may not checkpoint any more,
    and goes on from there once it has claimed the partition again.

    An azblob:// URL as the source names the container in which the oldest Event Hubs processors keep their lease
    blobs: their place is taken over. Stop them first.

    \b
    Example:
      leasehold checkpoints import sqlite:///new.db flights.jsonl
      leasehold checkpoints export old.toml | leasehold checkpoints import new.toml -
      leasehold checkpoints import new.toml azblob://account/leases
    """
    from leasehold.cli.checkpoint_formats import FORMATS, read_checkpoints
    from leasehold.cli.checkpoint_moves import plan_moves

    if format_name not in FORMATS:
        raise ConfigError("--format", format_name, f"one of {', '.join(FORMATS)}")
    opened, into = _open(store, group, hub, consumer_group)
    if source.startswith("azblob://"):
        wanted = _lease_blobs(source, _needed(into), folder)
    else:
        wanted = read_checkpoints(source, format_name, into)
    groups = list(dict.fromkeys(one.group for one in wanted))
    stored = [one for of in groups for one in opened.list_checkpoints(of)]
    _write(opened, plan_moves(stored, wanted, force=force), output)


@checkpoints.command("set")
@click.argument("store")
@click.argument("partition")
@click.argument("sequence_number", type=click.IntRange(min=BEFORE_FIRST))
@_group_options
@click.option("--offset", help="The hub's own text for the same event, where it has one.")
@click.option("--force", is_flag=True, help="Also a step back.")
@output_option
def set_(
    store: str,
    partition: str,
    sequence_number: int,
    group: str | None,
    hub: str | None,
    consumer_group: str,
    offset: str | None,
    force: bool,
    output: Output,
) -> None:
    """Set the checkpoint of one partition: SEQUENCE_NUMBER is the last event that counts as processed.

    -1 (after --) is before the first. It is written one owner level above the one that is there: an instance that is
    running may not checkpoint any more, and goes on from there once it has claimed the partition again.

    \b
    Example:
      leasehold checkpoints set flights.toml 3 4711
      leasehold checkpoints set flights.toml --force -- 3 -1
    """
    from leasehold.cli.checkpoint_moves import plan_moves

    opened, of = _open(store, group, hub, consumer_group)
    stored = [one for one in opened.list_checkpoints(_needed(of)) if one.partition == partition]
    level = stored[0].owner_level + 1 if stored else 0
    wanted = Checkpoint(_needed(of), partition, sequence_number, level, offset)
    _write(opened, plan_moves(stored, [wanted], force=force), output)


def _open(
    store: str, group: str | None, hub: str | None, consumer_group: str
) -> tuple[CheckpointStore, ConsumerGroup | None]:
    """The store, and the group as far as one was named."""
    from leasehold.hubs import open_hub
    from leasehold.stores import open_store

    if group and hub:
        raise ConfigError("--group", group, "named already by --hub", "Use one of the two")
    of: ConsumerGroup | None = None
    if group:
        parts = group.split("/")
        if len(parts) != 3 or not all(parts):
            raise ConfigError("--group", group, "NAMESPACE/HUB/NAME", "Three names with two slashes between them")
        of = ConsumerGroup(*parts)
    elif hub:
        of = open_hub(hub).consumer_group(consumer_group)
    if "://" in store:
        return open_store(store), of

    from leasehold.spark.pipeline_file import read_pipeline_file

    pipeline = read_pipeline_file(Path(store))
    timeout = pipeline.ownership.settings().request_timeout
    of = of or open_hub(pipeline.hub_url).consumer_group(pipeline.source.consumer_group)
    return open_store(pipeline.checkpoint_url, timeout=timeout), of


def _lease_blobs(url: str, group: ConsumerGroup, folder: str) -> list[Checkpoint]:
    """The places of the oldest Event Hubs processors. Raises `UsageError` where they kept none."""
    try:
        from leasehold.stores.azure.old_checkpoints import old_checkpoints
    except ModuleNotFoundError as error:
        raise MissingDependency("reading lease blobs", "azure") from error
    found = old_checkpoints(url, group, folder=folder)
    if not found:
        raise UsageError(
            f"{masked(url)}: there is no lease blob of consumer group {group.name!r} in it. Name the prefix that the "
            "processor was given: --folder NAMESPACE/HUB"
        )
    return found


def _needed(group: ConsumerGroup | None) -> ConsumerGroup:
    if group is None:
        raise ConfigError("--group", None, "a store's URL does not say of which group", "Add --hub or --group")
    return group


def _write(store: CheckpointStore, moves: list[Move], output: Output) -> None:
    """Write all moves, or none if one of them is refused."""
    refused = [move for move in moves if move.refused]
    if refused:
        error = UsageError(f"{len(refused)} of {len(moves)} checkpoints are refused, and nothing was written")
        for move in refused:
            error.add_note(f"  partition {move.after.partition} of {move.after.group}: {move.refused}")
        error.add_note("--force writes them all the same. `leasehold status` shows whether an instance is running.")
        raise error
    lost = store.update_checkpoints([move.after for move in moves])
    if lost:
        error = UsageError(
            f"{len(lost)} of {len(moves)} checkpoints were overtaken by an instance that is running, and are not "
            "written; the others are. Stop it and try again"
        )
        for one in lost:
            error.add_note(f"  {one}")
        raise error
    rows = [
        (
            move.after.partition,
            move.before.sequence_number if move.before else None,
            move.after.sequence_number,
            move.after.owner_level,
        )
        for move in sorted(moves, key=lambda move: _in_order(move.after))
    ]
    groups = sorted({str(move.after.group) for move in moves})
    summary = f"{len(moves)} checkpoint{'' if len(moves) == 1 else 's'} written for {', '.join(groups)}"
    output.show(Result(summary, {"groups": groups}, Table("partitions", _COLUMNS, rows)))


def _in_order(checkpoint: Checkpoint) -> tuple[str, bool, int, str]:
    """By group, then partitions with a number for a name in the order of the numbers."""
    name = checkpoint.partition
    number = int(name) if name.isascii() and name.isdigit() else 0
    return str(checkpoint.group), not (name.isascii() and name.isdigit()), number, name
