"""What became of a batch that went through the door once for each of several tables, in one transaction.

Owns the sum: rows are those of all tables, and an event counts once, as used where any table has used it. The
watermarks of all tables move together, so the plans are the same, but where a table was behind: then its plan counts,
which lets the most events through, and events that only tables ahead of it have rows of are replayed. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import pyarrow as pa

from leasehold.counts import ROWS, Counts
from leasehold.sinks.door.open_batch import OpenBatch
from leasehold.sinks.rules.batch import Batch, arrange, fence_of
from leasehold.sinks.rules.counting import counts_of
from leasehold.sinks.rules.table_spec import BatchResult


def sum_of(parts: Sequence[OpenBatch], results: Sequence[BatchResult]) -> BatchResult:
    """The result of a batch whose `parts` are of one table each, all of the same ranges."""
    first = max(parts, key=lambda part: sum(one.range.last - one.after for one in part.plan.admitted))
    rows = pa.concat_tables([fence_of(part.batch.rows, "the DataFrame") for part in parts])
    batch = Batch(rows, first.batch.rejected, ranges=first.batch.ranges, read=first.batch.read)
    arrangement, verdict = arrange(batch), first.verdict
    dropped = frozenset() if verdict is None else verdict.dropped
    kept = arrangement.admitted(first.plan).without({note.event for note in first.notes}).without(dropped)
    of_rows = {name: sum(getattr(one, name) for one in results) for name in ROWS}
    written = Counts(**of_rows, duplicates=len(dropped), untimely=0 if verdict is None else verdict.untimely)
    seconds = {name: sum(one.seconds.get(name, 0.0) for one in results) for name in ("stage", "merge")}
    counts = counts_of(batch, arrangement, first.plan, kept, first.notes, written)
    if any(part.plan.admitted != first.plan.admitted for part in parts):
        used = len({place for part in parts for place in zip(part.kept.lanes, part.kept.numbers, strict=True)})
        counts = replace(counts, used=used, replayed=counts.replayed + counts.used - used)
    return BatchResult(
        **asdict(counts),
        refused_ranges=arrangement.refused(first.plan),
        skipped_events=results[parts.index(first)].skipped_events,
        seconds=seconds,
        of_tables={str(part.spec.called): result for part, result in zip(parts, results, strict=True)},
    )
