"""How a consumer group is tied to a pipeline and its table, before the first event is read.

Owns when the tie is made and when it goes over to another table. What is checked first, and what is refused, is
`leasehold.ownership.starting`'s. Changes nothing but the binding.

A reader that does not know the table which it fills (a program that writes elsewhere) ties the group as well, to its
pipeline and to no table. The first table of that pipeline takes the binding over, unless events went by without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from leasehold.model import ConsumerGroup
from leasehold.ownership.starting import check_binding, check_levels, check_pipeline
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
    if bound.sink or not own:
        check_binding(group, bound, binding, checkpoints, watermarks, file)
    checkpoints.rebind_pipeline(group, binding)


def tie(group: ConsumerGroup, checkpoints: CheckpointStore, pipeline: str) -> None:
    """Bind the group to a pipeline whose table is not known, or refuse. `pipeline` may be `""`: it has no name."""
    bound = checkpoints.bind_pipeline(group, PipelineBinding(pipeline, ""))
    check_pipeline(group, bound, pipeline, "PIPELINE.toml")
