"""`leasehold checkpoints`: takes checkpoints out of a store and puts them into one, as JSON lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.backends import masked
from leasehold.cli.checkpoints.place import NamedGroup, Opened, group_options, open_place
from leasehold.cli.options.logs import log_options, remark
from leasehold.cli.output import Column, Output, Result, ResultTable, output_option
from leasehold.errors import ConfigError, MissingDependency, UsageError
from leasehold.model import BEFORE_FIRST, HIGHEST, Checkpoint, ConsumerGroup
from leasehold.printable import counted, excerpt

if TYPE_CHECKING:
    from leasehold.cli.checkpoints.moves import CheckpointMove
    from leasehold.stores.base import CheckpointStore

_ONE_SOURCE = "Name one source: FILE, FOLDER, - or a URL, or --from-spark-checkpoint DIR"
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


@checkpoints.command("export")
@click.argument("store")
@group_options
@log_options
def export(store: str, named: NamedGroup) -> None:
    """Print the checkpoints of a consumer group, a JSON object a line. A store that is not there is not made.

    \b
    Example:
      leasehold checkpoints export flights.toml > flights.jsonl
      leasehold checkpoints export sqlite:///store.db --hub log:///flights.db
    """
    from leasehold.cli.checkpoints.formats import as_line
    from leasehold.stores.base import KnowsNamesakes

    opened = open_place(store, named, must_exist=True)
    group_of, store_of = opened.needed, opened.store
    if isinstance(store_of, KnowsNamesakes):
        check = store_of.check_names
        named.patiently(lambda: check(group_of))
    found = named.patiently(lambda: opened.store.list_checkpoints(group_of))
    for checkpoint in sorted(found, key=_in_order):
        click.echo(as_line(checkpoint))
    if not found:
        remark(f"there are no checkpoints of consumer group {group_of}")


@checkpoints.command("import")
@click.argument("store")
@click.argument("source", metavar="[FILE|FOLDER|-|URL]", required=False)
@group_options
@click.option(
    "--format",
    "format_name",
    default="leasehold",
    show_default=True,
    help="What the documents look like: leasehold is what `export` prints.",
)
@click.option(
    "--kafka-group",
    metavar="NAME",
    help="With a kafka:// URL: the consumer group of the broker's own whose offsets are taken over.",
)
@click.option(
    "--from-spark-checkpoint",
    "spark_folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="In place of FILE: the checkpoint folder of a streaming query on Spark's Kafka source, or on the Event Hubs "
    "connector.",
)
@click.option("--folder", default="", help="With an azblob:// URL: the prefix that the old processor was given.")
@click.option(
    "--force", is_flag=True, help="Also a lower owner level, a step back, and a place whose events the hub has removed."
)
@output_option
def import_(
    store: str,
    source: str | None,
    named: NamedGroup,
    format_name: str,
    kafka_group: str | None,
    spark_folder: Path | None,
    folder: str,
    force: bool,
    output: Output,
) -> None:
    """Write checkpoints into a store, each into the group that it names or into the one given here.

    Nothing is written if one of them has a lower owner level than the store's, or is behind it. With --force it is
    written all the same, one level above the store's: an instance that is running may not checkpoint any more,
    and goes on from there once it has claimed the partition again. Where the hub is named, by a pipeline file or by
    --hub, partitions that it does not have and places beyond their ends are refused. Where STORE is a pipeline file, a
    group that belongs to another pipeline is refused: `leasehold reset` hands it over.

    An azblob:// URL as the source names the container in which the oldest Event Hubs processors keep their lease
    blobs: their place is taken over. So are the committed offsets of --kafka-group, where the source is the kafka://
    URL of the topic that the pipeline reads. --from-spark-checkpoint takes over what a streaming query on Spark's Kafka
    source or the Event Hubs connector has committed of the stream that the pipeline reads. Stop the old readers first.

    \b
    Example:
      leasehold checkpoints import sqlite:///new.db flights.jsonl
      leasehold checkpoints export old.toml | leasehold checkpoints import new.toml -
      leasehold checkpoints import new.toml azblob://account/leases
      leasehold checkpoints import new.toml kafka://broker:9092/flights --kafka-group old-application
      leasehold checkpoints import new.toml --from-spark-checkpoint /data/checkpoints/flights
    """
    from leasehold.cli.checkpoints.formats import FORMATS, read_checkpoints
    from leasehold.cli.checkpoints.moves import plan_moves

    if format_name not in FORMATS:
        raise ConfigError("--format", format_name, f"one of {', '.join(FORMATS)}")
    if source is not None and spark_folder is not None:
        raise UsageError(_ONE_SOURCE)
    opened = open_place(store, named)
    known = named.patiently(lambda: opened.places)
    if spark_folder is not None:
        wanted = _spark_query(spark_folder, opened)
    elif source is None:
        raise UsageError(_ONE_SOURCE)
    elif source.startswith("azblob://"):
        wanted = _lease_blobs(source, opened.needed, folder)
    elif source.startswith("kafka://"):
        wanted = named.patiently(lambda: _kafka_group(source, opened.needed, kafka_group))
    else:
        wanted = read_checkpoints(source, format_name, opened.group)
    groups = list(dict.fromkeys(one.group for one in wanted))
    named.patiently(lambda: opened.check_owner(*groups))
    stored = named.patiently(lambda: [one for of in groups for one in opened.store.list_checkpoints(of)])
    _write(opened.store, plan_moves(stored, wanted, force=force, hub=known), output)


@checkpoints.command("set")
@click.argument("store")
@click.argument("partition")
@click.argument("sequence_number", type=click.IntRange(min=BEFORE_FIRST, max=HIGHEST))
@group_options
@click.option("--offset", help="The hub's own text for the same event, where it has one.")
@click.option("--force", is_flag=True, help="Also a step back, and a place whose events the hub has removed.")
@output_option
def set_(
    store: str,
    partition: str,
    sequence_number: int,
    named: NamedGroup,
    offset: str | None,
    force: bool,
    output: Output,
) -> None:
    """Set the checkpoint of one partition: SEQUENCE_NUMBER is the last event that counts as processed.

    -1 (after --) is before the first. A step back is refused without --force, and so is a place whose events the hub
    has removed; a partition that the hub does not have, or a place beyond its end, is refused in any case, if a
    pipeline file or --hub names the hub. The checkpoint is written one owner level above the one that is there: an
    instance that is running may not checkpoint any more, and goes on from there once it has claimed the partition
    again.

    \b
    Example:
      leasehold checkpoints set flights.toml 3 4711
      leasehold checkpoints set flights.toml --force -- 3 -1
    """
    from leasehold.cli.checkpoints.moves import plan_moves

    opened = open_place(store, named, must_exist=True)
    known = named.patiently(lambda: opened.places)
    named.patiently(lambda: opened.check_owner(opened.needed))
    listed = named.patiently(lambda: opened.store.list_checkpoints(opened.needed))
    stored = [one for one in listed if one.partition == partition]
    level = stored[0].owner_level + 1 if stored else 0
    wanted = Checkpoint(opened.needed, partition, sequence_number, level, offset)
    _write(opened.store, plan_moves(stored, [wanted], force=force, hub=known), output)


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


def _kafka_group(url: str, group: ConsumerGroup, name: str | None) -> list[Checkpoint]:
    """Where a consumer group of the broker's own stands. Raises `UsageError` where it has committed nothing."""
    from leasehold.hubs import open_hub
    from leasehold.hubs.kafka.hub import KafkaHub

    if name is None:
        raise ConfigError("--kafka-group", None, "a topic is read by many groups", "Name the one to take over")
    hub = open_hub(url)
    try:
        assert isinstance(hub, KafkaHub)
        if hub.consumer_group(group.name) != group:
            raise UsageError(f"{masked(url)} is {hub.identity}, and the checkpoints are for {group}: another topic")
        offsets = hub.group_offsets(name)
    finally:
        hub.close()
    if not offsets:
        raise UsageError(f"{masked(url)}: the consumer group {name!r} has committed no offset of this topic")
    last = {partition: offset - 1 for partition, offset in offsets.items()}  # Kafka names what comes next
    return [Checkpoint(group, place, at, 0, str(at) if at >= 0 else None) for place, at in last.items()]


def _spark_query(folder: Path, opened: Opened) -> list[Checkpoint]:
    """Where a query of Spark's stands in the hub. Raises `UsageError` or `ConfigError` where that is unknown."""
    from leasehold.cli.checkpoints.spark_folder import committed_places

    if opened.hub is None:
        raise ConfigError("--hub", None, "a query's folder names streams by their topic or event hub", "Name the hub")
    group, is_kafka = opened.needed, opened.hub.url.startswith("kafka://")
    last = {name: number - 1 for name, number in committed_places(folder, _stream_name(opened.hub.url)).items()}
    return [Checkpoint(group, name, at, 0, str(at) if is_kafka and at >= 0 else None) for name, at in last.items()]


def _stream_name(url: str) -> str:
    """What Spark's sources call the stream of a hub. Raises `ConfigError` for a hub that they do not read."""
    if url.startswith("kafka://"):
        from leasehold.hubs.kafka.options import parse_kafka_url

        return parse_kafka_url(url, {}).topic
    if url.startswith("eventhubs://"):
        from leasehold.hubs.event_hubs.url import read_url

        return read_url(url).hub
    raise ConfigError("--from-spark-checkpoint", masked(url), "for kafka:// and eventhubs:// hubs", "Name such a hub")


def _write(store: CheckpointStore, moves: list[CheckpointMove], output: Output) -> None:
    """Write all moves, or none if one of them is refused."""
    refused = [move for move in moves if move.refused]
    if refused:
        some = "the checkpoint is" if len(moves) == 1 else f"{len(refused)} of {len(moves)} checkpoints are"
        error = UsageError(f"{some} refused, and nothing was written")
        for move in refused:
            partition, group = excerpt(move.after.partition), excerpt(str(move.after.group))
            error.add_note(f"  partition {partition} of {group}: {move.refused}")
        if not any(move.impossible for move in refused):
            them = "it" if len(moves) == 1 else "them all"
            error.add_note(f"--force writes {them} nevertheless. `leasehold status` shows whether an instance runs.")
        raise error
    lost = store.update_checkpoints([move.after for move in moves])
    if lost:
        error = UsageError(
            f"{len(lost)} of {len(moves)} checkpoints were overtaken by an instance that is running, and are not "
            "written; the others are. Stop it and try again"
        )
        for one in lost:
            error.add_note(f"  {excerpt(str(one))}")
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
    summary = f"{counted(len(moves), 'checkpoint')} written for {', '.join(map(excerpt, groups))}"
    output.show(Result(summary, {"groups": groups}, ResultTable("partitions", _COLUMNS, rows)))


def _in_order(checkpoint: Checkpoint) -> tuple[str, bool, int, str]:
    """By group, then partitions with a number for a name in the order of the numbers."""
    name = checkpoint.partition
    digits = re.fullmatch(r"[0-9]{1,18}", name)  # whoever writes to a store may name a partition by thousands of them
    return str(checkpoint.group), digits is None, int(name) if digits else 0, name
