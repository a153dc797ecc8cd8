"""How many events and rows of a batch came to what: the words of `leasehold.counts`, for what a sink has done with it.

Owns which name an event counts under that has no row, or several. A batch says how many events were read for it, or
which numbers: those that have no row, and were not skipped, parked or sent twice, the transform has filtered. A batch
that says neither has as many events as are known of it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.counts import Counts
from leasehold.sinks.rules.batch import Arrangement, Batch, Kept
from leasehold.sinks.rules.fence import FencePlan
from leasehold.sinks.rules.skipping import SkipNote


def counts_of(
    batch: Batch, arrangement: Arrangement, plan: FencePlan, kept: Kept, notes: Sequence[SkipNote], written: Counts
) -> Counts:
    """What became of a batch of which `kept` are the rows to write; `written` says of what is known by now."""
    if batch.parking is not None and batch.parking.retried:
        if not plan.admitted:
            return Counts()
        return Counts(retried=len(batch.parking.removed), retried_rejected=written.rejected)
    related = 0 if batch.related is None or not plan.admitted else sum(len(step.rows) for step in batch.related.steps)
    parked = 0 if batch.parking is None or not plan.admitted else len(batch.parking.put)
    counts = Counts(
        applied=written.applied + related,
        superseded=written.superseded,
        rejected=written.rejected,
        used=kept.events,
        refused=arrangement.refused_events(plan),
        replayed=kept.replayed,
        skipped=len(notes) if batch.ranges is None else sum(_is_read(note, plan) for note in notes),
        duplicates=written.duplicates,
        parked=parked,
        untimely=written.untimely,
    )
    read = batch.read
    if read is None:
        ranges = () if batch.ranges is None else [stretch.range for stretch in arrangement.stretches]
        read = sum(it.last - it.first + 1 for it in ranges)
    return counts.plus(Counts(filtered=max(0, read - counts.read)))


def _is_read(note: SkipNote, plan: FencePlan) -> bool:
    """Whether its event is one of those that were read; a watermark passes what was left out before them as well."""
    ranges = (one.range for one in plan.admitted)
    return any(it.lane == note.lane and it.first <= note.sequence_number <= it.last for it in ranges)
