"""What is checked before a pipeline reads its first event.

Owns the agreement between consumer group, stores and table: a group belongs to one pipeline and one table, and stores
and table know what they have to of each other (`leasehold.ownership.starting`). Refuses to start where going on would
lose events or write them twice, and says what to do. Changes nothing but the binding of a group that had none.

A reader that does not know the table which it fills (a program that writes elsewhere) ties the group as well, to its
pipeline and to no table. The first table of that pipeline takes the binding over, unless events went by without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leasehold.errors import AlreadyInUse
from leasehold.model import ConsumerGroup
from leasehold.ownership.starting import check_levels
from leasehold.sinks.rules.fence import Watermark
from leasehold.stores.base import CheckpointStore, PipelineBinding
from leasehold.stores.stand_ins import NoCheckpoints


def check_start(
    group: ConsumerGroup,
    checkpoints: CheckpointStore,
    binding: PipelineBinding,
    watermarks: Callable[[], Mapping[str, Watermark]],
    file: str,
    own: bool = False,
) -> None:
    """Bind the group to this pipeline and its table, or refuse.

    `watermarks` reads those of the table when it is asked to; `file` names the pipeline file in messages. Without a
    checkpoint store there is nothing to compare with the table, and nowhere to keep whose the group is.
    `own`: it is this very reader that has tied the group to no table, and meets its table now.
    """
    if not isinstance(checkpoints, NoCheckpoints):
        check_levels(group, checkpoints, watermarks, file)
    bound = checkpoints.bind_pipeline(group, binding)
    if bound == binding:
        return
    if own and not bound.sink:
        checkpoints.rebind_pipeline(group, binding)
        return
    _check_pipeline(group, bound, binding, file)
    progressed = any(checkpoint.owner_level > 0 for checkpoint in checkpoints.list_checkpoints(group))
    if progressed and not bound.sink:
        if not watermarks():
            raise AlreadyInUse(
                f"consumer group {group.name!r} has been read by a program of pipeline {binding.pipeline!r} that fills "
                "no table, or another one, and this table has none of these events. Give it a consumer_group of its "
                f"own, or fill it from the hub's beginning: leasehold reset {file} --to earliest"
            )
    elif progressed:
        raise AlreadyInUse(
            f"the table of pipeline {binding.pipeline!r} is not the one that consumer group {group.name!r} has filled "
            "so far: its database was deleted, or the file names another one. Put the database back, or fill the new "
            f"table from the hub's beginning: leasehold reset {file} --to earliest"
        )
    checkpoints.rebind_pipeline(group, binding)


def tie(group: ConsumerGroup, checkpoints: CheckpointStore, pipeline: str) -> None:
    """Bind the group to a pipeline whose table is not known, or refuse. `pipeline` may be `""`: it has no name."""
    binding = PipelineBinding(pipeline, "")
    _check_pipeline(group, checkpoints.bind_pipeline(group, binding), binding, "PIPELINE.toml")


def _check_pipeline(group: ConsumerGroup, bound: PipelineBinding, binding: PipelineBinding, file: str) -> None:
    if bound.pipeline == binding.pipeline:
        return
    theirs = f"pipeline {bound.pipeline!r}" if bound.pipeline else "a program that names no pipeline"
    mine = repr(binding.pipeline) if binding.pipeline else "a program that names none"
    raise AlreadyInUse(
        f"consumer group {group.name!r} of this hub belongs to {theirs}, and this is {mine}: each would see only a "
        "part of the events. Give this one a consumer_group of its own, or hand the group over to it from the hub's "
        f"beginning: leasehold reset {file} --to earliest"
    )
