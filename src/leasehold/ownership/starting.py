"""What is checked of stores and table before an instance claims anything, and how a consumer group is tied to both.

Owns the agreement of what they know of a consumer group: the stores at least what the table knows, and the table at
least what it was given. A group belongs to one pipeline and one table, and whoever fills a table ties it to them at the
start. Refuses to start where going on would leave events out, and says what to do. Changes nothing but the binding.

On Spark a reader that does not know the table which it fills (a program that writes elsewhere) ties the group as well,
to its pipeline and to no table. The first table of that pipeline takes the binding over, unless events went by without
it. A plain processor without a table ties nothing: a table that starts later is refused where it has missed events.

Concurrency: other instances may be running, and move checkpoints and watermarks between any two lines here. A level is
announced in the checkpoint before anything is applied at it, and a place is in the table before it is in the
checkpoint. So levels are compared with checkpoints that are read after the watermarks, and places with checkpoints that
are read before them: whatever moves meanwhile, moves to the safe side.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Protocol

from leasehold.errors import AlreadyInUse, ConfigError, EventsMissing, OwnerLevelWentBack, UsageError
from leasehold.model import Checkpoint, ConsumerGroup
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.stores.base import CheckpointStore, PipelineBinding, UnendedReset
from leasehold.stores.stand_ins import NoCheckpoints

FILE = "PIPELINE.toml"
"""How messages call the pipeline file where its name is not known."""


class KnowsWatermarks(Protocol):
    """A table that keeps a watermark for each partition of a hub, such as a sink of Leasehold."""

    def watermarks(self, hub: str) -> Mapping[str, Watermark]:
        """The watermark of each partition of `hub` that has one."""
        ...


def check_spec(spec: TableSpec, pipeline: str, group: ConsumerGroup) -> None:
    """Refuse a table of another pipeline than the reader's, or of another reader of the hub. Raises `ConfigError`.

    `pipeline` may be `""`: then the table says it.
    """
    if pipeline and spec.pipeline != pipeline:
        raise ConfigError(
            "pipeline",
            spec.pipeline,
            f"the table {spec.called} belongs to this pipeline, and the events are read for {pipeline!r}",
            "Name the same pipeline in both",
        )
    if spec.consumer_group != group.name:
        raise ConfigError(
            "consumer_group",
            spec.consumer_group,
            f"the table {spec.called} keeps watermarks of this consumer group, and the events are read as "
            f"{group.name!r}",
            "Name the same consumer group in both",
        )


def check_start(
    group: ConsumerGroup,
    checkpoints: CheckpointStore,
    binding: PipelineBinding,
    watermarks: Callable[[], Mapping[str, Watermark]],
    file: str = FILE,
    own: bool = False,
    claimed: bool = False,
) -> None:
    """Bind the group to this pipeline and its table, or refuse.

    `watermarks` reads those of the table when it is asked to; `file` names the pipeline file in messages. Without a
    checkpoint store there is nothing to compare with the table, and nowhere to keep whose the group is.
    `own`: it is this very reader that has tied the group to no table, and meets its table now. `claimed`: this reader
    has claimed partitions before, so that the group may have been read by itself.
    """
    if not isinstance(checkpoints, NoCheckpoints):
        check_levels(group, checkpoints, watermarks, file)
    if not claimed:
        check_untied(group, checkpoints, watermarks, file)
    bound = checkpoints.bind_pipeline(group, binding)
    if bound == binding:
        return
    if bound.sink or not own:
        check_binding(group, bound, binding, checkpoints, watermarks, file)
    checkpoints.rebind_pipeline(group, binding)
    if bound.sink:
        try:
            if _was_read(checkpoints, group):
                raise _tied_meanwhile(group, bound)
        except BaseException:  # claimed for the other table since we looked, or nobody can tell
            checkpoints.rebind_pipeline(group, bound)
            raise


def confirm(group: ConsumerGroup, checkpoints: CheckpointStore, binding: PipelineBinding) -> None:
    """Look once more, with a partition claimed and nothing done with it: until somebody has claimed one, another
    instance that starts may tie the group to another table of the pipeline. Raises `AlreadyInUse`, and `UsageError`
    where a reset has begun meanwhile.

    A claim is in the checkpoints before this look, and whoever ties the group anew looks at them afterwards. So one of
    the two sees the other, unless the second is killed between the two, or loses the store there. A third instance with
    the second one's table, which claims while the second looks, has the group tied back under it: its next start is
    refused.
    """
    bound = checkpoints.bind_pipeline(group, binding)
    check_reset(bound, FILE)
    if bound != binding:
        raise _tied_meanwhile(group, bound)


def _tied_meanwhile(group: ConsumerGroup, bound: PipelineBinding) -> AlreadyInUse:
    return AlreadyInUse(
        f"consumer group {group.name!r} was tied to another table of pipeline {bound.pipeline!r} while this instance "
        "started: its file names another sink. Let all instances of a pipeline name the same one"
    )


def tie(group: ConsumerGroup, checkpoints: CheckpointStore, pipeline: str) -> None:
    """Bind the group to a pipeline whose table is not known, or refuse. `pipeline` may be `""`: it has no name."""
    bound = checkpoints.bind_pipeline(group, PipelineBinding(pipeline, ""))
    check_pipeline(group, bound, pipeline, FILE)


def check_levels(
    group: ConsumerGroup,
    checkpoints: CheckpointStore,
    watermarks: Callable[[], Mapping[str, Watermark]],
    file: str = FILE,
) -> None:
    """Refuse stores and a table that do not belong together any more: one was wiped, or restored from an older copy.

    A partition that the table knows is not new. Its level is in the checkpoint before anything is read at it, so
    checkpoints that know less of the levels were wiped or restored. What the ownership records know does not help: the
    next level would be high enough, but the place to start at is lost. And a table that knows all that it was given
    (`Watermark.whole`) is at least as far as the checkpoint, or it was restored itself. What the table has refused once
    (`Watermark.disputed`) is refused here too. `file` names the pipeline file in messages.

    Raises `OwnerLevelWentBack` and `EventsMissing`, and `UsageError` where a reset did not end.
    """
    check_reset(checkpoints.pipeline_binding(group), file)
    earlier = _known(checkpoints, group)
    marks = watermarks()
    later = _known(checkpoints, group)
    remedy = f"Make the stores follow the table: leasehold reset {file} --to sink"
    for partition, mark in sorted(marks.items()):
        _check_level(partition, mark, later.get(partition), remedy)
        if partition in earlier:
            _check_place(mark, earlier[partition], remedy)


def check_binding(
    group: ConsumerGroup,
    bound: PipelineBinding,
    binding: PipelineBinding,
    checkpoints: CheckpointStore,
    watermarks: Callable[[], Mapping[str, Watermark]],
    file: str,
) -> None:
    """Refuse a group that is tied (`bound`) to another pipeline than `binding`'s, or has been read into another table.

    `watermarks` reads those of the table when it is asked to; `file` names the pipeline file in messages. Raises
    `AlreadyInUse`.
    """
    check_reset(bound, file)
    check_pipeline(group, bound, binding.pipeline, file)
    if bound == binding or not _was_read(checkpoints, group):
        return
    if bound.sink:
        raise AlreadyInUse(
            f"the table of pipeline {binding.pipeline!r} is not the one that consumer group {group.name!r} has filled "
            "so far: its database was deleted, or the file names another one. Put the database back, or fill the new "
            f"table from the hub's beginning: leasehold reset {file} --to earliest"
        )
    _check_has_events(group, f" of pipeline {binding.pipeline!r}", watermarks, file)


def check_untied(
    group: ConsumerGroup,
    checkpoints: CheckpointStore,
    watermarks: Callable[[], Mapping[str, Watermark]],
    file: str,
) -> None:
    """Refuse a group that somebody has read without tying it, such as a processor without a table, unless the table has
    events of it. Raises `AlreadyInUse`.

    Checkpoints are looked at before the binding: who ties a group does so before it records that something was read. A
    checkpoint that a claim alone has written, or a person, has no time of an event.
    """
    read = any(one.owner_level > 0 and one.enqueued_time for one in checkpoints.list_checkpoints(group))
    if read and checkpoints.pipeline_binding(group) is None:
        _check_has_events(group, "", watermarks, file)


def check_reset(bound: PipelineBinding | None, file: str) -> None:
    """Refuse a group of which a reset has moved a part alone. Raises `UsageError`."""
    if bound is not None and (reset := bound.reset) is not None:
        other = "" if reset.share else f"; or, to go on where the table is: leasehold reset {file} --to sink"
        raise UsageError(f"{reset_said(reset, file)}{other}")


def reset_said(reset: UnendedReset, file: str) -> str:
    """What is said of a reset that did not end, and what to run."""
    of, by = "", file
    if reset.share:
        of, by = f" of the partitions {', '.join(reset.share)}", "FILE, which has this fixed share,"
    return (
        f"a reset --to {reset.to}{of} has begun and not ended, so checkpoints and table may not agree. Run it again: "
        f"leasehold reset {by} --to {shlex.quote(reset.to)}"
    )


def check_pipeline(group: ConsumerGroup, bound: PipelineBinding, pipeline: str, file: str) -> None:
    """Refuse a group that is tied to another pipeline than this one. `""` is a program that names none.

    Raises `AlreadyInUse`.
    """
    if bound.pipeline == pipeline:
        return
    theirs = f"pipeline {bound.pipeline!r}" if bound.pipeline else "a program that names no pipeline"
    mine = repr(pipeline) if pipeline else "a program that names none"
    raise AlreadyInUse(
        f"consumer group {group.name!r} of this hub belongs to {theirs}, and this is {mine}: each would see only a "
        "part of the events. Give this one a consumer_group of its own, or hand the group over to it from the hub's "
        f"beginning: leasehold reset {file} --to earliest"
    )


def _was_read(checkpoints: CheckpointStore, group: ConsumerGroup) -> bool:
    return any(checkpoint.owner_level > 0 for checkpoint in checkpoints.list_checkpoints(group))


def _check_has_events(
    group: ConsumerGroup, reader: str, watermarks: Callable[[], Mapping[str, Watermark]], file: str
) -> None:
    if not watermarks():
        raise AlreadyInUse(
            f"consumer group {group.name!r} has been read by a program{reader} that fills no table, or another one, "
            "and this table has none of these events. Give it a consumer_group of its own, or fill it from the hub's "
            f"beginning: leasehold reset {file} --to earliest; or name the place in --to, if it is to begin later"
        )


def _known(checkpoints: CheckpointStore, group: ConsumerGroup) -> dict[str, Checkpoint]:
    return {checkpoint.partition: checkpoint for checkpoint in checkpoints.list_checkpoints(group)}


def _check_level(partition: str, mark: Watermark, checkpoint: Checkpoint | None, remedy: str) -> None:
    level = 0 if checkpoint is None else checkpoint.owner_level
    if checkpoint is None and mark == Watermark():
        return  # nobody has been there: a person has noted an event to be skipped
    if mark.disputed or checkpoint is None or mark.owner_level > level:
        knows = "had gone back behind it" if mark.disputed else f"knows {level}"
        raise OwnerLevelWentBack(
            f"the table has seen owner level {mark.owner_level} of partition {partition}, and the checkpoint store "
            f"{knows}: a store was wiped or restored from an older copy, or a query without leases has filled the "
            f"table, so where to go on is not known. {remedy}"
        )


def _check_place(mark: Watermark, checkpoint: Checkpoint, remedy: str) -> None:
    if mark.whole and checkpoint.sequence_number > mark.sequence_number:
        raise EventsMissing(
            f"partition {checkpoint.partition}: the checkpoint is at event {checkpoint.sequence_number}, and the table "
            f"has been given no event behind {mark.sequence_number}: it was restored from an older copy, or the "
            f"checkpoint was set forward. Going on would leave out what is between them. {remedy}; or name the place "
            "in --to, if these events are to be left out"
        )
