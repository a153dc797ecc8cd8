"""An entity table without entities: only its watermarks, under the real rules of the fence, and what was applied.

Owns the truth about effects: `applied` counts, by partition, the events whose effect is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from leasehold.errors import OwnerLevelWentBack
from leasehold.sinks.rules.fence import FencePlan, Lane, Range, Watermark, check_disputes, judge, plan


class SimulatedSink:
    """Applies batches. `record_level` looks up the owner level in a partition's ownership record.

    `effect` is told of every range of events that takes effect: partition, first and last.
    """

    def __init__(self, record_level: Callable[[str], int | None], effect: Callable[[str, int, int], None]) -> None:
        self.watermarks: dict[Lane, Watermark] = {}
        self._record_level = record_level
        self._effect = effect

    def apply(self, ranges: Sequence[Range]) -> None:
        """One transaction. Raises `OwnerLevelWentBack` with no effect, from then on until a reset."""
        planned = self.plan(ranges)
        check_disputes(planned)
        for refusal in planned.refused:
            lane = refusal.range.lane
            try:
                judge(refusal, self._record_level(refusal.range.partition))
            except OwnerLevelWentBack:
                self.watermarks[lane] = replace(self.watermarks[lane], disputed=True)
                raise
        for admission in planned.admitted:
            first = max(admission.range.first, admission.after + 1)
            if first <= admission.range.last:
                self._effect(admission.range.partition, first, admission.range.last)
        self.watermarks.update(planned.watermarks)

    def plan(self, ranges: Sequence[Range]) -> FencePlan:
        """What the fence says."""
        return plan(self.watermarks, ranges)

    def watermark(self, lane: Lane) -> Watermark:
        """The watermark of a partition."""
        return self.watermarks.get(lane, Watermark())
