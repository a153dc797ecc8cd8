"""What an executor does: read ranges of a hub as Arrow batches with the source's columns.

Owns the executor's hub connections (one per URL and process, reused by later tasks) and the check that a range was
complete. Reads what the offset says, always: whether a range still counts is for the sink to say. With one exception: a
hub that has given a partition to another reader gives no more of it. Such a range ends early only if the checkpoint
record has a higher owner level, so that no checkpoint can be written for what is missing. Else another reader has the
same level (the same task once more, another scan of the same batch): after a pause it is tried again, and if that does
not help, it fails.
"""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from leasehold.combinations import is_mixed
from leasehold.errors import DataLoss, EndWentBack, HubError, ReaderDisconnected, Verdict
from leasehold.hubs import Hub, open_hub
from leasehold.model import Checkpoint, Ownership
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.options import SourceOptions, require_stores
from leasehold.stores import Store, open_store

logger = logging.getLogger(__name__)

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds, give or take half of them, after which a range is read on that another reader has interrupted."""

CARRIED = ("hub", "partition", "sequenceNumber", "ownerLevel")
"""What a rejected event carries beside its body and the reason."""
HEADERS = ("properties", "systemProperties")
"""What it carries too where bodies are read by their headers, so that it means the same when it is read again."""
REASON = "leasehold_reject_reason"
"""The column that says why a body cannot be read, where rejected events are not set aside by the tasks."""

_DDL = {
    "body": "BINARY",
    "partition": "STRING",
    "offset": "STRING",
    "sequenceNumber": "BIGINT",
    "enqueuedTime": "TIMESTAMP_LTZ",  # not TIMESTAMP, which is what spark.sql.timestampType says
    "publisher": "STRING",
    "partitionKey": "STRING",
    "properties": "MAP<STRING, STRING>",
    "systemProperties": "MAP<STRING, STRING>",
    "hub": "STRING",
    "ownerLevel": "BIGINT",
}


def schema_of(columns: Sequence[str]) -> str:
    """The schema of these columns, as Spark writes it."""
    return ", ".join(f"`{column}` {_DDL[column]}" for column in columns)


@functools.lru_cache(maxsize=16)
def shared_hub(url: str, identity: str) -> Hub:
    """The hub at `url`, opened once per process; `identity` is that of the hub which the ranges were planned on.

    Raises `HubError` if it was made anew since: then they are no places in it.
    """
    hub = open_hub(url)
    if hub.identity == identity:
        return hub
    found = hub.identity
    hub.close()
    raise HubError(
        f"{url}: the hub was deleted and made anew since its ranges were planned (it was {identity}, and is {found}). "
        "Start again to read the new one, which is another hub.",
        verdict=Verdict.RESTART,
    )


@functools.lru_cache(maxsize=16)
def shared_store(url: str) -> Store:
    """The store at `url`, opened once per process."""
    return open_store(url)


@dataclass(frozen=True, slots=True)
class ReadFor:
    """For whom the ranges are read: a consumer group, whose checkpoints are in the store at `checkpoint_store`.

    Where it keeps none, its ownership records, at `ownership_store`, tell whether a later owner has come.
    """

    consumer_group: str
    checkpoint_store: str | None
    ownership_store: str | None = None


def reads_for(options: SourceOptions) -> ReadFor:
    """For whom a reader with these options reads. Raises `ConfigError` for a store that is missing."""
    ownership, checkpoints = require_stores(options)
    return ReadFor(options.consumer_group, checkpoints, ownership)


def read_ranges(
    url: str,
    ranges: Sequence[ReadRange],
    columns: Sequence[str],
    *,
    batch_rows: int,
    fail_on_data_loss: bool,
    identity: str,
    read_for: ReadFor | None = None,
) -> Iterator[pa.RecordBatch]:
    """All events of the ranges, in order within each. Raises `DataLoss` where some are gone.

    `identity` is that of the hub that the ranges were planned on. Without `read_for` what is read has no owner, and
    no reader is disconnected.
    """
    hub = shared_hub(url, identity)
    wanted = [column for column in columns if column != "ownerLevel"] or ["sequenceNumber"]
    for one in ranges:
        rows = 0
        pauses = iter(PAUSES)
        left: ReadRange | None = one
        while left is not None:
            try:
                for batch in owned_batches(hub, left, wanted, batch_rows, read_for):
                    rows += batch.num_rows
                    yield with_level(batch, one.owner_level, columns)
            except ReaderDisconnected as error:
                if read_for is not None and superseded(hub, one, read_for):
                    logger.warning("%s %d of %d events of the range were read", error, rows, len(one))
                    break
                pause_before_reading_on(pauses, error, time.sleep)
                left = replace(one, start=error.position)
            else:
                left = None
        if left is None and rows < len(one):
            try:
                check_complete(hub, one)
            except DataLoss as loss:
                if fail_on_data_loss:
                    raise
                said = "partition %s: events [%d, %d) are gone from the hub (retention)"
                logger.warning(said, loss.partition, loss.start, loss.end)


def pause_before_reading_on(
    pauses: Iterator[float], error: ReaderDisconnected, pause: Callable[[float], object]
) -> None:
    """Pause once more before a range is read on. Raises `error` where none of `pauses` is left."""
    seconds = next(pauses, None)
    if seconds is None:
        error.verdict = Verdict.ROWS  # nobody has taken it, as far as the stores know: its partition is tried later
        raise error
    pause(seconds * (0.5 + random.random()))


def owned_batches(
    hub: Hub, range_: ReadRange, columns: Sequence[str], batch_rows: int, read_for: ReadFor | None
) -> Iterator[pa.RecordBatch]:
    """The events of a range, read as the partition's owner where the hub tells owners apart."""
    if read_for is None or not hub.one_reader_per_partition(read_for.consumer_group):
        return hub.read(range_.partition, range_.start, range_.end, columns=columns, batch_rows=batch_rows)
    return hub.read_as_owner(
        range_.partition, range_.start, range_.end, range_.owner_level, columns=columns, batch_rows=batch_rows
    )


def superseded(hub: Hub, range_: ReadRange, read_for: ReadFor) -> bool:
    """Whether a checkpoint at the range's owner level would be refused by now.

    The ownership record does not do: it has the new level first, and until the checkpoint has it too, one could still
    be written for events that were not read. Where there are no checkpoints, none can be written, and it does.
    """
    group = hub.consumer_group(read_for.consumer_group)
    reached: Sequence[Checkpoint | Ownership]
    if read_for.checkpoint_store is not None:
        reached = shared_store(read_for.checkpoint_store).list_checkpoints(group)
    else:
        assert read_for.ownership_store is not None
        reached = shared_store(read_for.ownership_store).list_ownership(group).records
    return any(found.partition == range_.partition and found.owner_level > range_.owner_level for found in reached)


def taken_by_others(hub: Hub, range_: ReadRange, read_for: ReadFor) -> bool:
    """Whether another SDK's processor owns the partition by now: in a mixed fleet, where the level does not tell.

    It has raised no level, so a checkpoint at this one would not be refused: for who reads a range whole or not at all.
    """
    if not is_mixed(hub.url) or read_for.ownership_store is None:
        return False
    listing = shared_store(read_for.ownership_store).list_ownership(hub.consumer_group(read_for.consumer_group))
    return any(record.partition == range_.partition and record.foreign for record in listing.records)


def with_level(batch: pa.RecordBatch, owner_level: int, columns: Sequence[str]) -> pa.RecordBatch:
    """These columns of a batch, with the owner level at which it was read."""
    if "ownerLevel" not in columns:
        return batch if tuple(batch.schema.names) == tuple(columns) else batch.select(list(columns))
    levels = pa.repeat(pa.scalar(owner_level, pa.int64()), batch.num_rows)
    arrays = [levels if column == "ownerLevel" else batch.column(column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def check_complete(hub: Hub, range_: ReadRange, remedy: str = "") -> None:
    """Find out why a range has given fewer events than it has numbers.

    The hub has gaps (compaction), unless it begins later by now: then events are lost. Raises `DataLoss`, which says
    the remedy, and `EndWentBack`.
    """
    known = hub.partition_properties([range_.partition])[range_.partition]
    if known.end < range_.end:
        raise EndWentBack(range_.partition, range_.end, known.end)
    if known.begin > range_.start:
        raise DataLoss(range_.partition, range_.start, min(known.begin, range_.end), remedy)
