"""Sets the place of a consumer group, or of some of its partitions: checkpoints and the sink's watermarks together.

Owns the order that makes it safe. A reset drops no table. It becomes the owner of every partition that it is to set
before it looks at anything: it claims them two levels above all that the stores and the table have seen, and announces
the lower one in the checkpoints and in the table. Only then does it read where the table is, and only then does it
write, at the level that it has claimed: a checkpoint goes back at a higher level only.

What a reset does not name stays: it claims and writes nothing of that partition. So it refuses what only a reset of the
whole group can repair: a group that has not started or is tied to another table, and a table that was dropped.

    1  list       no instance is alive; a write to an ownership record from here on makes step 2 fail
    2  claim      every partition to set, or nothing: from here on no former owner renews
    3  announce   in the checkpoints: from here on a former owner's checkpoint is refused
    4  announce   in the table: from here on a former owner's batch is refused, however long ago it was read
    5  read       where the table is: only this reset can change that now
    6  check      that an appended table will not hold events twice: refused with no place changed. Not with what the
                  table itself says: nothing goes back there
    7  mark       the group, in its binding to a pipeline: from here on no instance starts, and the reason says why
    8  write      the checkpoints
    9  write      the watermarks, in one transaction
    10 unmark     the group, and tie it to this table
    11 give up    the partitions

Who may be doing what: an instance that was stopped, or hangs, is in the middle of a batch at any of these lines and
knows nothing of the reset. If its transaction commits before step 4, step 5 reads what it wrote; after step 4 it is
refused; if it has the table locked, the reset waits, and fails with `SinkUnavailable` with no place changed. An
instance that starts meanwhile sees the reset's presence, asks for its share, and takes it when the reset does not
answer, at a higher level.

If the reset stops for a minute, or for good, at any line: until step 8 no place is changed. Within step 8, or between 8
and 9, some checkpoints are set and the table is as it was. The mark says so to `leasehold status`, and the next start
is refused with what to run. An instance that runs already and goes on from there has its events dropped up to the
watermark, which costs a second reading; or, where it was to go forward, is refused by a table that knows the ranges of
its batches. That is why the checkpoints come first: the other way round, events that the table no longer counts as
applied would not be read again. When the reset goes on, and another has taken a partition, its checkpoints
and watermarks are refused for their level. In all these cases: run the same reset again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from leasehold.errors import StoreUnavailable, UsageError
from leasehold.hubs.base import Hub
from leasehold.model import (
    BEFORE_FIRST,
    OTHERS,
    Checkpoint,
    ConsumerGroup,
    EventPosition,
    OwnerId,
    Ownership,
    PositionKind,
    Presence,
    RecordKind,
)
from leasehold.operations.progress import GroupProgress, PartitionProgress, group_progress
from leasehold.printable import excerpt, span
from leasehold.sinks.base import Watermarked
from leasehold.sinks.rules.fence import Watermark
from leasehold.store_choice import Stores
from leasehold.stores.base import CheckpointStore, OwnershipStore, PipelineBinding, UnendedReset
from leasehold.stores.stand_ins import NoCheckpoints

_NAME_ALL = """set them too, for example by --to '{"0": 17, "*": "earliest"}'"""


@dataclass(frozen=True, slots=True)
class Moved:
    """One partition's place before and after: the sequence number to go on from."""

    partition: str
    before: int | None
    after: int


def reset_group(
    hub: Hub,
    group: ConsumerGroup,
    stores: Stores,
    sink: Watermarked,
    binding: PipelineBinding,
    *,
    to: Mapping[str, EventPosition] | None,
    stated: str = "sink",
    expiration: float,
    foreign_expiration: float | None = None,
) -> list[Moved]:
    """Set partitions to their positions in `to`, or with None all of them to what the table's watermarks say.

    `to` is by partition id, or by `OTHERS` for all that it does not name; without that they stay where they are, and
    the result does not have them. `stated` is the same as text: it is what to run again if this reset does not end.
    With a fixed share in `stores`, its partitions alone may be set. Then nobody can tell whether an instance is alive,
    and one that is finds itself superseded at its next batch.
    Ties the group to `binding`; where partitions stay, it has to be tied to that already. Raises `UsageError` while an
    instance is alive, and where an appended table would hold events twice, with no place changed; and where an instance
    came between, to be run again.
    """
    ownership, checkpoints, own_share = stores.ownership, stores.checkpoints, stores.ours
    _check_partitions(hub, to, own_share)
    # Listed first: whatever anybody writes from here on, makes the claims below fail.
    listing = ownership.list_ownership(group)
    etags = {one.name: one.etag for one in listing.unreadable if one.kind is RecordKind.OWNERSHIP}
    etags |= {record.partition: record.etag for record in listing.records}
    progress = group_progress(
        hub, group, ownership, checkpoints, expiration, own_share, foreign_expiration=foreign_expiration
    )
    _check_unused(progress, max(expiration, foreign_expiration or 0.0))
    to = None if to is None else _by_partition(to, progress)
    rows = [row for row in progress.partitions if to is None or row.partition in to]
    is_part = len(rows) < len(progress.partitions)
    share = [row.partition for row in progress.partitions]
    reset = UnendedReset(stated, tuple(share if len(share) < len(hub.partition_ids()) else ()))
    if is_part:
        _check_started(progress, checkpoints)
    if is_part or reset.share:
        _check_bound(checkpoints.bind_pipeline(group, binding), binding, reset, is_part=is_part)
    asked = None if to is None else {partition: hub.resolve(partition, at) for partition, at in to.items()}
    owner = str(OwnerId("reset"))
    claimed: list[Ownership] = []
    # Announced, so that an instance which starts meanwhile asks for partitions, and does not steal them.
    ownership.renew_ownership([], Presence(group, owner))
    try:
        claimed = _claim_all(group, ownership, owner, etags, rows, sink.watermarks(hub.identity))
        levels = {record.partition: record.owner_level for record in claimed}
        announced = {partition: level - 1 for partition, level in levels.items()}
        _announce(group, checkpoints, rows, announced)
        marks = sink.raise_owner_levels(hub.identity, announced)
        targets = asked or {row.partition: _following(row, marks[row.partition]) for row in rows}
        moves = [Moved(row.partition, row.checkpoint, targets[row.partition]) for row in rows]
        places = {move.partition: Watermark(move.after - 1, levels[move.partition], whole=True) for move in moves}
        if asked is not None:
            sink.check_watermarks(hub.identity, places, is_part=is_part)
        checkpoints.rebind_pipeline(group, binding.resetting(reset))
        refused = checkpoints.update_checkpoints(
            [_checkpoint(hub, group, partition, mark) for partition, mark in places.items()]
        )
        if refused:
            raise UsageError(
                "an instance started during the reset and has taken partitions from it: the table is as it was, and "
                f"some checkpoints are set. ({refused[0]}) Stop every instance, and run the same reset again"
            ) from refused[0]
        if asked is None:  # each table stays where it is: one that is ahead of another drops what it has
            sink.confirm_watermarks(hub.identity, places)
        else:
            sink.set_watermarks(hub.identity, places, anew=not is_part and _is_first_reading(to, rows, moves))
        checkpoints.rebind_pipeline(group, binding)
    finally:
        ownership.relinquish_ownership(claimed)
        ownership.withdraw_presence(group, [owner])
    return moves


def _check_partitions(
    hub: Hub, to: Mapping[str, EventPosition] | None, own_share: Callable[[Collection[str]], tuple[str, ...]]
) -> None:
    if to is None:
        return
    if not to:
        raise UsageError("no partition is named, and nothing was changed: name one, or * for all")
    there = hub.partition_ids()
    named = to.keys() - {OTHERS}
    if unknown := sorted(named - set(there)):
        raise UsageError(
            f"the hub has no partition {', '.join(unknown)}; its partitions are {', '.join(there)}. "
            "Nothing was changed: correct the position"
        )
    if others := sorted(named - set(own_share(there))):
        raise UsageError(
            f"partition {', '.join(others)} belongs to another instance's fixed share, and nothing was changed: reset "
            "it by that instance's pipeline file"
        )


def _by_partition(to: Mapping[str, EventPosition], progress: GroupProgress) -> dict[str, EventPosition]:
    """The position of each partition that is to be set."""
    known = [row.partition for row in progress.partitions]
    stated = {partition: to.get(partition, to.get(OTHERS)) for partition in known}
    return {partition: at for partition, at in stated.items() if at is not None}


def _check_started(progress: GroupProgress, checkpoints: CheckpointStore) -> None:
    """Refuse to set some partitions of a group that has none yet: the others would start as if they were new ones."""
    if not isinstance(checkpoints, NoCheckpoints) and all(row.checkpoint is None for row in progress.partitions):
        raise UsageError(
            "the group has no checkpoint yet, so the partitions that are not named have no place to stay at. Nothing "
            f"was changed: {_NAME_ALL}"
        )


def _check_bound(bound: PipelineBinding, binding: PipelineBinding, reset: UnendedReset, *, is_part: bool) -> None:
    """Refuse to set some partitions of a group whose others are where another table has come to, or another reset."""
    if bound.reset is not None and (bound.reset.share != reset.share if not is_part else bound.reset != reset):
        of = f" of the partitions {', '.join(bound.reset.share)}" if bound.reset.share else ""
        raise UsageError(
            f"a reset --to {bound.reset.to}{of} has begun and not ended. Nothing was changed: run that again first, or "
            "set all partitions"
        )
    if is_part and bound.settled != binding:
        another = f"the pipeline {bound.pipeline!r}" if bound.pipeline != binding.pipeline else "another table"
        raise UsageError(
            f"the group is tied to {another}, and this one has nothing of the partitions that were to stay. Nothing "
            f"was changed: {_NAME_ALL}"
        )


def _check_unused(progress: GroupProgress, longest: float) -> None:
    """Refuse a group in which an instance is alive, or was within the `longest` expiration, in seconds."""
    if alive := [excerpt(instance.owner_id) for instance in progress.instances]:
        raise UsageError(
            f"the group is in use by {', '.join(alive)}: a reset under a running instance would be undone by it. Stop "
            f"every instance; one that was killed counts as running for {span(longest)}"
        )


def _claim_all(
    group: ConsumerGroup,
    ownership: OwnershipStore,
    owner: str,
    etags: Mapping[str, str | None],
    rows: Sequence[PartitionProgress],
    marks: Mapping[str, Watermark],
) -> list[Ownership]:
    claims = []
    for row in rows:
        level = 2 + max(row.owner_level, marks.get(row.partition, Watermark()).owner_level)
        claims.append(Ownership(group, row.partition, owner, level, etags.get(row.partition)))
    claimed = ownership.claim_ownership(claims)
    if len(claimed) < len(claims):
        ownership.relinquish_ownership(claimed)
        raise UsageError("an instance started while the reset began, and nothing was changed. Stop it and try again")
    return claimed


def _announce(
    group: ConsumerGroup, checkpoints: CheckpointStore, rows: Sequence[PartitionProgress], levels: Mapping[str, int]
) -> None:
    """Raise the levels in the checkpoints; a partition that has none gets one before its first event."""
    starts = [Checkpoint(group, row.partition, row.begin - 1, levels[row.partition]) for row in rows]
    raised = {standing.partition: standing for standing in checkpoints.raise_owner_level(starts)}
    for standing in raised.values():
        if standing.owner_level > levels[standing.partition]:
            raise UsageError(
                f"an instance started while the reset began, and has partition {standing.partition} at owner level "
                f"{standing.owner_level}. No place was changed. Stop it and try again"
            )
    # One that could not be read before is replaced; one that could be read, and is not returned, cannot be written.
    if unwritten := [row.partition for row in rows if row.checkpoint is not None and row.partition not in raised]:
        raise StoreUnavailable(
            f"the store cannot write the checkpoint of partition {', '.join(unwritten)}, and its log says why. No "
            "place was changed. Mend that, and run the same reset again"
        )


def _following(row: PartitionProgress, mark: Watermark) -> int:
    if mark.whole or mark.sequence_number > BEFORE_FIRST:
        return mark.sequence_number + 1
    return row.begin if row.checkpoint is None else row.checkpoint  # the table knows a level, and no event


def _checkpoint(hub: Hub, group: ConsumerGroup, partition: str, mark: Watermark) -> Checkpoint:
    number = mark.sequence_number
    return Checkpoint(group, partition, number, mark.owner_level, hub.offset_of(partition, number))


def _is_first_reading(
    to: Mapping[str, EventPosition] | None, rows: Sequence[PartitionProgress], moves: Sequence[Moved]
) -> bool:
    """Whether all that the hub has will be read. "Latest" does not mean that, where the hub is empty."""
    return to is not None and all(
        move.after <= row.begin and to[row.partition].kind is not PositionKind.LATEST
        for row, move in zip(rows, moves, strict=True)
    )
