"""What is checked before a pipeline reads its first event.

Owns the agreement between consumer group, stores and table: a group belongs to one pipeline and one table, and
the stores know at least what the table knows. Refuses to start where going on would lose events or write them
twice, and says what to do. Changes nothing but the binding of a group that had none.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.errors import AlreadyInUse, OwnerLevelWentBack
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
    """Refuse checkpoints that know less of the owner levels than the table: they were wiped or restored.

    A level is in the checkpoint before anything is read at it. What the ownership records know does not help: the
    next level would be high enough, but the place to start at is lost. A reset that was killed half way shows here too.
    """
    known = {checkpoint.partition: checkpoint.owner_level for checkpoint in checkpoints.list_checkpoints(group)}
    behind = {p: mark.owner_level for p, mark in watermarks.items() if mark.owner_level > known.get(p, 0)}
    if behind:
        partition, level = min(behind.items())
        raise OwnerLevelWentBack(
            f"the table has seen owner level {level} of partition {partition}, and the checkpoint store knows "
            f"{known.get(partition, 0)}: a store was wiped or restored from an older copy, or a reset was cut short: "
            f"where to go on is not known. Make the stores follow the table: leasehold reset {file} --to sink"
        )
