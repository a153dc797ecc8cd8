"""One look at the group of a pipeline file, from hub, stores and table alone.

Owns what of a look the dashboard wants. A group is opened at the first look, and until that succeeds at each: a
dashboard may be started before the stores. For one thread.
"""

from __future__ import annotations

from leasehold.clock import Clock
from leasehold.dashboard.view import Seen, Verdict
from leasehold.operations.group_watch import GroupSnapshot, GroupWatch
from leasehold.pipeline_file import PipelineFile
from leasehold.pipeline_group import open_group


class Looking:
    """Looks at the group of `pipeline`."""

    def __init__(self, pipeline: PipelineFile, clock: Clock) -> None:
        self._pipeline, self._clock = pipeline, clock
        self._watch: GroupWatch | None = None

    def __call__(self) -> Seen:
        """What there is now. Raises the `LeaseholdError` of what is away or refused."""
        if self._watch is None:
            self._watch = GroupWatch(open_group(self._pipeline), clock=self._clock)
        return _seen(self._watch.look())


def _seen(look: GroupSnapshot) -> Seen:
    judged = {one.progress.partition: one.judgement for one in look.partitions}
    return Seen(
        look.at,
        look.progress,
        look.times,
        expiration=look.watched.expiration,
        rejected=None if look.table is None else look.table.rejected,
        verdicts={partition: Verdict(one.verdict.name.lower(), one.why) for partition, one in judged.items()},
    )
