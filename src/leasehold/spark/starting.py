"""What is checked before a pipeline reads its first event.

Owns the agreement between consumer group, stores and table: a group belongs to one pipeline and one table, the stores
know at least what the table knows, and the table at least what it was given. Refuses to start where going on would lose
events or write them twice, and says what to do. Changes nothing but the binding of a group that had none.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.errors import AlreadyInUse, EventsMissing, OwnerLevelWentBack
from leasehold.model import ConsumerGroup
from leasehold.sinks.fence import Watermark
from leasehold.stores.base import CheckpointStore, PipelineBinding


def check_start(
    group: ConsumerGroup,
    checkpoints: CheckpointStore,
    binding: PipelineBinding,
    watermarks: Mapping[str, Watermark],
    file: str,
) -> None:
    """Bind the group to this pipeline and its table, or refuse. `file` names the pipeline file in messages."""
    check_levels(group, checkpoints, watermarks, file)
    bound = checkpoints.bind_pipeline(group, binding)
    if bound == binding:
        return
    if bound.pipeline != binding.pipeline:
        raise AlreadyInUse(
            f"consumer group {group.name!r} of this hub belongs to pipeline {bound.pipeline!r}, and this is "
            f"{binding.pipeline!r}: each would see only a part of the events. Give this pipeline a consumer_group of "
            f"its own, or hand the group over to it from the hub's beginning: leasehold reset {file} --to earliest"
        )
    progressed = any(checkpoint.owner_level > 0 for checkpoint in checkpoints.list_checkpoints(group))
    if progressed:
        raise AlreadyInUse(
            f"the table of pipeline {binding.pipeline!r} is not the one that consumer group {group.name!r} has filled "
            "so far: its database was deleted, or the file names another one. Put the database back, or fill the new "
            f"table from the hub's beginning: leasehold reset {file} --to earliest"
        )
    checkpoints.rebind_pipeline(group, binding)


def check_levels(
    group: ConsumerGroup,
    checkpoints: CheckpointStore,
    watermarks: Mapping[str, Watermark],
    file: str,
) -> None:
    """Refuse stores and a table that do not belong together any more: one was wiped, or restored from an older copy.

    A partition that the table knows is not new. Its level is in the checkpoint before anything is read at it, so
    checkpoints that know less of the levels were wiped or restored. What the ownership records know does not help: the
    next level would be high enough, but the place to start at is lost. And a table that knows all that it was given
    (`Watermark.whole`) is at least as far as the checkpoint, or it was restored itself. What the table has refused once
    (`Watermark.disputed`) is refused here too. Raises `OwnerLevelWentBack` and `EventsMissing`.
    """
    known = {checkpoint.partition: checkpoint for checkpoint in checkpoints.list_checkpoints(group)}
    remedy = f"Make the stores follow the table: leasehold reset {file} --to sink"
    for partition, mark in sorted(watermarks.items()):
        checkpoint = known.get(partition)
        level = 0 if checkpoint is None else checkpoint.owner_level
        if mark.disputed or checkpoint is None or mark.owner_level > level:
            knows = "had gone back behind it" if mark.disputed else f"knows {level}"
            raise OwnerLevelWentBack(
                f"the table has seen owner level {mark.owner_level} of partition {partition}, and the checkpoint store "
                f"{knows}: a store was wiped or restored from an older copy, so where to go on is not known. {remedy}"
            )
        if mark.whole and checkpoint.sequence_number > mark.sequence_number:
            raise EventsMissing(
                f"partition {partition}: the checkpoint is at event {checkpoint.sequence_number}, and the table has "
                f"been given no event behind {mark.sequence_number}: it was restored from an older copy, or the "
                f"checkpoint was set forward. Going on would leave out what is between them. {remedy}; or name the "
                "place in --to, if these events are to be left out"
            )
