"""What an executor does: read ranges of a hub as Arrow batches with the source's columns.

Owns the executor's hub connections (one per URL and process, reused by later tasks) and the check that a
range was complete. Reads what the offset says, always: whether a range still counts is for the sink to say.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa

from leasehold.errors import DataLoss, HubError
from leasehold.hubs import Hub, open_hub
from leasehold.spark.offsets import Range

logger = logging.getLogger(__name__)

_DDL = {
    "body": "BINARY",
    "partition": "STRING",
    "offset": "STRING",
    "sequenceNumber": "BIGINT",
    "enqueuedTime": "TIMESTAMP",
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
def shared_hub(url: str) -> Hub:
    """The hub at `url`, opened once per process."""
    return open_hub(url)


def read_ranges(
    url: str, ranges: Sequence[Range], columns: Sequence[str], *, batch_rows: int, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """All events of the ranges, in order within each. Raises `DataLoss` where some are gone."""
    hub = shared_hub(url)
    wanted = [column for column in columns if column != "ownerLevel"] or ["sequenceNumber"]
    for one in ranges:
        rows = 0
        for batch in hub.read(one.partition, one.start, one.end, columns=wanted, batch_rows=batch_rows):
            rows += batch.num_rows
            yield _with_level(batch, one.owner_level, columns)
        if rows < len(one):
            _check_complete(hub, one, fail_on_data_loss)


def _with_level(batch: pa.RecordBatch, owner_level: int, columns: Sequence[str]) -> pa.RecordBatch:
    if "ownerLevel" not in columns:
        return batch
    levels = pa.repeat(pa.scalar(owner_level, pa.int64()), batch.num_rows)
    arrays = [levels if column == "ownerLevel" else batch.column(column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _check_complete(hub: Hub, one: Range, fail_on_data_loss: bool) -> None:
    """Fewer events than numbers is a loss if the hub begins later now; else the hub has gaps (compaction)."""
    known = hub.partition_properties([one.partition])[one.partition]
    if known.end < one.end:
        raise HubError(
            f"partition {one.partition}: events [{one.start}, {one.end}) were to be read, and the hub ends at "
            f"{known.end}: it has lost acknowledged events or was restored from an older copy. Restore the hub, or "
            "read it under another consumer group."
        )
    begin = known.begin
    if begin <= one.start:
        return
    if fail_on_data_loss:
        raise DataLoss(one.partition, one.start, min(begin, one.end))
    logger.warning(
        "partition %s: events [%d, %d) are gone from the hub (retention)",
        one.partition,
        one.start,
        min(begin, one.end),
    )
