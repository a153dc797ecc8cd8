"""Sets the place of a whole consumer group: checkpoints and the sink's watermarks together.

Owns the order that makes it safe: nobody else may be working, and nobody can start meanwhile, because every
partition is claimed first, at a level above all that store and table have seen. A reset that is killed half way
leaves the partitions claimed until they expire; run it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from leasehold.errors import UsageError
from leasehold.hubs.base import Hub, offset_of
from leasehold.model import Checkpoint, ConsumerGroup, OwnerId, Ownership, PositionKind, Positions, Presence
from leasehold.processor.progress import PartitionProgress, group_progress
from leasehold.sinks.fence import Watermark
from leasehold.stores.base import CheckpointStore, OwnershipStore, PipelineBinding


class Watermarked(Protocol):
    """What a reset needs of a sink."""

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        """The watermark of each partition of `hub` that has one."""
        ...

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool) -> None:
        """Write watermarks as they are given, also lower ones; `anew` if all events are read as if for the first time.

        Raises `UsageError`, with nothing changed, where a higher owner level has been, and where a table would hold
        events twice.
        """
        ...


@dataclass(frozen=True, slots=True)
class Moved:
    """One partition's place before and after: the sequence number to go on from."""

    partition: str
    before: int | None
    after: int


def reset_group(
    hub: Hub,
    group: ConsumerGroup,
    ownership: OwnershipStore,
    checkpoints: CheckpointStore,
    sink: Watermarked,
    binding: PipelineBinding,
    *,
    to: Positions | None,
    expiration: float,
) -> list[Moved]:
    """Set every partition to its position in `to`, or with None to what the table's watermarks say.

    Ties the group to `binding`. Raises `UsageError` while an instance is alive, with nothing changed.
    """
    if to is not None and (unknown := sorted(dict(to.by_partition).keys() - set(hub.partition_ids()))):
        raise UsageError(
            f"the hub has no partition {', '.join(unknown)}; its partitions are {', '.join(hub.partition_ids())}. "
            "Nothing was changed: correct the position"
        )
    # Listed first: whatever anybody writes from here on, makes the claims below fail.
    records = {record.partition: record for record in ownership.list_ownership(group).records}
    progress = group_progress(hub, group, ownership, checkpoints, expiration)
    rows = progress.partitions
    if alive := [instance.owner_id for instance in progress.instances]:
        raise UsageError(
            f"the group is in use by {', '.join(alive)}: a reset under a running instance would be undone by it. Stop "
            f"every instance; one that was killed counts as running for {expiration:g} s"
        )
    marks = sink.watermarks(hub.identity)
    moves = [Moved(row.partition, row.checkpoint, _target(hub, row, marks, to)) for row in rows]
    owner = str(OwnerId("reset"))
    claimed: list[Ownership] = []
    # Announced, so that an instance which starts meanwhile asks for partitions, and does not steal them.
    ownership.renew_ownership([], Presence(group, owner))
    try:
        claimed = _claim_all(group, ownership, owner, records, rows, marks)
        levels = {record.partition: record.owner_level for record in claimed}
        sink.set_watermarks(
            hub.identity,
            {move.partition: Watermark(move.after - 1, levels[move.partition]) for move in moves},
            anew=_is_first_reading(to, rows, moves),
        )
        refused = checkpoints.update_checkpoints(
            [_checkpoint(hub, group, move.partition, move.after - 1, levels[move.partition]) for move in moves]
        )
        if refused:
            raise UsageError(
                "an instance started during the reset and has taken partitions from it: the table's watermarks are "
                f"set, and not all checkpoints are ({refused[0]}) Stop every instance, and run the same reset again"
            ) from refused[0]
        checkpoints.rebind_pipeline(group, binding)
    finally:
        ownership.relinquish_ownership(claimed)
        ownership.withdraw_presence(group, [owner])
    return moves


def _checkpoint(hub: Hub, group: ConsumerGroup, partition: str, number: int, level: int) -> Checkpoint:
    return Checkpoint(group, partition, number, level, offset_of(hub, partition, number))


def _target(hub: Hub, row: PartitionProgress, marks: Mapping[str, Watermark], to: Positions | None) -> int:
    if to is not None:
        return hub.resolve(row.partition, to.of(row.partition))
    if row.partition in marks:
        return marks[row.partition].sequence_number + 1
    return row.begin if row.checkpoint is None else row.checkpoint


def _is_first_reading(to: Positions | None, rows: Sequence[PartitionProgress], moves: Sequence[Moved]) -> bool:
    """Whether all that the hub has will be read. "Latest" does not mean that, where the hub is empty."""
    return to is not None and all(
        move.after <= row.begin and to.of(row.partition).kind is not PositionKind.LATEST
        for row, move in zip(rows, moves, strict=True)
    )


def _claim_all(
    group: ConsumerGroup,
    ownership: OwnershipStore,
    owner: str,
    records: Mapping[str, Ownership],
    rows: Sequence[PartitionProgress],
    marks: Mapping[str, Watermark],
) -> list[Ownership]:
    claims = []
    for row in rows:
        level = 1 + max(row.owner_level, marks.get(row.partition, Watermark()).owner_level)
        etag = records[row.partition].etag if row.partition in records else None
        claims.append(Ownership(group, row.partition, owner, level, etag))
    claimed = ownership.claim_ownership(claims)
    if len(claimed) < len(claims):
        ownership.relinquish_ownership(claimed)
        raise UsageError("an instance started while the reset began, and nothing was changed. Stop it and try again")
    return claimed
