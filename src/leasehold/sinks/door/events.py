"""Steps of a batch of events: the fence, what is passed by, what handlers have made beside rows, the watermarks.

Owns these steps; the list is in `steps`. A step that returns a result ends the transaction, which is committed.
"""

from __future__ import annotations

from dataclasses import asdict

from leasehold.counts import Counts
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.door import shared
from leasehold.sinks.door.open_batch import OpenBatch, Unjudged, Violated
from leasehold.sinks.features import BOOKKEEPING
from leasehold.sinks.rules import claims, duplicates, fence
from leasehold.sinks.rules.batch import Batch, arrange
from leasehold.sinks.rules.counting import counts_of
from leasehold.sinks.rules.related import Related
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.sinks.transactions import WritesBeside

_OUTDATED = BatchResult(outdated=True)


def lock(open_: OpenBatch) -> BatchResult | None:
    ranges = [stretch.range for stretch in open_.arrangement.stretches]
    hubs = sorted({each.hub for each in ranges})
    transaction = open_.transaction
    shared.check_reader(open_.spec, transaction, hubs)
    transaction.lock_watermarks({each.lane for each in ranges}, whole_table=open_.batch.ranges is None)
    open_.stored = stored = transaction.watermarks(hubs)
    open_.lock_taken()
    new = all(mark.sequence_number == BEFORE_FIRST for mark in stored.values())
    if new and (queue := transaction.queue_beside()) is not None:
        raise claims.filled_by_queue(open_.spec, queue)
    read_under = open_.batch.read_under
    return _OUTDATED if read_under is not None and fence.outdated(stored, read_under) else None


def judge_ranges(open_: OpenBatch) -> None:
    ranges = [stretch.range for stretch in open_.arrangement.stretches]
    plan = fence.plan(open_.stored, ranges, open_.sink.seen.lost(open_.stored))
    fence.check_disputes(plan)
    judged = open_.judged
    if unjudged := tuple(each for each in plan.refused if judged is not None and each.range not in judged):
        raise Unjudged(unjudged)
    fence.check_gaps(str(open_.spec.called), plan)
    open_.plan = plan
    # From here on, no batch of a lower level gets past the watermark.
    open_.transaction.set_watermarks(fence.at_new_levels(open_.stored, plan))


def check_parked(open_: OpenBatch) -> BatchResult | None:
    parking = open_.batch.parking
    if not open_.plan.admitted or parking is None or not parking.tried:
        return None
    there = open_.transaction.are_parked(parking.hub, parking.partition, parking.tried)
    return None if there else _OUTDATED


def lock_entities(open_: OpenBatch) -> BatchResult | None:
    if open_.batch.versioned is None or not open_.plan.admitted:
        return None
    now = _of_last_versions(open_.transaction, open_.batch)
    if now is None:
        return _OUTDATED
    if now is not open_.batch:
        open_.batch, open_.arrangement = now, arrange(now)
    return None


def _of_last_versions(versions: WritesBeside, batch: Batch) -> Batch | None:
    """The batch, computed anew where entities have moved since it read them; None to do so outside."""
    read_from = batch.versioned
    assert read_from is not None
    now = versions.lock_entities(read_from.read)
    moved = [key for key, version in read_from.read.items() if now[key] != version]
    if moved and read_from.again is not None:
        anew = read_from.again(versions.known_entities(read_from.schema, moved))
        if anew is None or anew.versioned is None:
            return None
        batch, read_from = anew, anew.versioned
    versions.raise_versions(read_from.read, read_from.latest)
    return batch


def leave_out(open_: OpenBatch) -> None:
    """Rows at or below the watermark, of refused ranges, and of events that a person has had skipped."""
    if BOOKKEEPING in open_.sink.features:
        open_.notes = open_.sink.noted.of(open_.transaction, open_.stored, open_.plan)
    open_.kept = open_.arrangement.admitted(open_.plan).without({note.event for note in open_.notes})


def leave_out_duplicates(open_: OpenBatch) -> None:
    identities, memory = open_.batch.identities, open_.transaction
    if identities is None:
        return
    skipped = {note.event for note in open_.notes}
    events = [one for one in duplicates.admitted(identities, open_.plan) if one.event not in skipped]
    reached = shared.leave_out_duplicates(open_, events)
    verdict = open_.verdict
    if events and verdict is not None:
        if verdict.reached != reached:
            memory.identities_reach(verdict.reached)
        memory.forget_identities(verdict.forget_before, verdict.forget_at_most)


def relate(open_: OpenBatch) -> None:
    if open_.batch.related is None or not open_.plan.admitted:
        return
    if violations := _refused_steps(open_.transaction, open_.batch.related):
        raise Violated(violations)


def _refused_steps(transaction: WritesBeside, related: Related) -> dict[int, str]:
    """What the database refuses, by the number of the event: rules 2 and 3 of `related`."""
    violations: dict[int, str] = {}
    undone = set()
    for step in related.steps:
        if step.key not in undone and (reason := transaction.write_step(related.schema, step)) is not None:
            violations[step.number] = reason
            undone.add(step.key)
    return violations


def check_states(open_: OpenBatch) -> None:
    """A state is what several events have come to: it is not set aside in place of them."""
    if open_.batch.read_under is not None and (refused := open_.written.refused(open_.batch)):
        raise Violated(refused)


def set_aside(open_: OpenBatch) -> None:
    open_.transaction.replace_set_aside(open_.plan.admitted, open_.written.set_aside, open_.now)
    if open_.notes:
        open_.transaction.pass_notes(open_.notes, open_.now)


def park(open_: OpenBatch) -> None:
    if open_.batch.parking is not None and open_.plan.admitted:
        open_.transaction.park(open_.batch.parking, open_.now)


def emit(open_: OpenBatch) -> None:
    if not open_.batch.outbox:
        return
    admitted = {each.range.lane for each in open_.plan.admitted}
    events = [one for one in open_.batch.outbox if (one.hub, one.partition) in admitted]
    open_.transaction.emit(events, open_.now)


def set_watermarks(open_: OpenBatch) -> BatchResult:
    open_.transaction.set_watermarks(open_.plan.watermarks)
    open_.left = open_.plan.watermarks
    if open_.batch.ranges is None:
        open_.transaction.leave_none_whole()
    written, verdict, plan = open_.written, open_.verdict, open_.plan
    known = Counts(
        *(written.applied, written.superseded, len(written.set_aside)),
        duplicates=0 if verdict is None else len(verdict.dropped),
        untimely=0 if verdict is None else verdict.untimely,
    )
    return BatchResult(
        **asdict(counts_of(open_.batch, open_.arrangement, plan, open_.kept, open_.notes, known)),
        refused_ranges=open_.arrangement.refused(plan),
        skipped_events=tuple(note.said for note in open_.notes),
        seconds=written.seconds,
    )
