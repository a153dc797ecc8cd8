"""What is checked before a pipeline reads its first event.

Owns the agreement between consumer group, stores and table: a group belongs to one pipeline and one table, and stores
and table know what they have to of each other (`leasehold.processor.starting`). Refuses to start where going on would
lose events or write them twice, and says what to do. Changes nothing but the binding of a group that had none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leasehold.errors import AlreadyInUse
from leasehold.model import ConsumerGroup
from leasehold.processor.alone import NoCheckpoints
from leasehold.processor.starting import check_levels
from leasehold.sinks.fence import Watermark
from leasehold.stores.base import CheckpointStore, PipelineBinding


def check_start(
    group: ConsumerGroup,
    checkpoints: CheckpointStore,
    binding: PipelineBinding,
    watermarks: Callable[[], Mapping[str, Watermark]],
    file: str,
) -> None:
    """Bind the group to this pipeline and its table, or refuse.

    `watermarks` reads those of the table when it is asked to; `file` names the pipeline file in messages. Without a
    checkpoint store there is nothing to compare with the table, and nowhere to keep whose the group is.
    """
    if not isinstance(checkpoints, NoCheckpoints):
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
