"""Steps of a batch of rejected events that are tried again. The rules are in `sinks.set_aside`.

Owns these steps; the list is in `steps`. The watermarks of the events' partitions are locked first, then their rejected
rows, so that nobody else reads, tries or drops them meanwhile; only then is read how far the table has come and what is
known of keys.
"""

from __future__ import annotations

from leasehold.sinks.beside.set_aside import retrying
from leasehold.sinks.beside.set_aside.retrying import Choice
from leasehold.sinks.door import shared
from leasehold.sinks.door.open_batch import OpenBatch
from leasehold.sinks.rules import duplicates
from leasehold.sinks.rules.again import RetryResult
from leasehold.sinks.rules.table_spec import BatchResult


def lock(open_: OpenBatch) -> None:
    events = open_.batch.again or ()
    hubs = sorted({event.hub for event in events})
    open_.transaction.lock_partitions({(event.hub, event.partition) for event in events})
    open_.stored = open_.transaction.watermarks(hubs)
    open_.lock_taken()


def choose(open_: OpenBatch) -> None:
    events, batch = open_.batch.again or (), open_.batch
    open_.found = open_.transaction.rejected_of(events)
    append = not open_.spec.keys
    open_.choice = retrying.choose(
        open_.arrangement, batch.rows.num_rows, events, open_.found, open_.stored, append=append
    )
    open_.kept = open_.choice.kept


def leave_out_duplicates(open_: OpenBatch) -> None:
    if (identities := open_.batch.identities) is not None:
        tried = {(event.hub, event.partition, event.sequence_number) for event in _choice(open_).tried}
        shared.leave_out_duplicates(open_, duplicates.among(identities, tried))


def count_change(open_: OpenBatch) -> None:
    # An entity of another partition is refused, or a later value of `sequence_by` decides.
    if lanes := set(open_.kept.lanes):
        open_.transaction.count_change(lanes)


def replace_rejected(open_: OpenBatch) -> BatchResult:
    choice, written, verdict = _choice(open_), open_.written, open_.verdict
    left = retrying.left_behind(choice, open_.found, written.set_aside, append=not open_.spec.keys)
    open_.transaction.replace_tried([row for event in choice.tried for row in open_.found[event]], left, open_.now)
    dropped = 0 if verdict is None else len(verdict.dropped)
    others = choice.filtered, choice.unread, choice.gone, dropped
    return BatchResult(again=RetryResult(written.applied, written.superseded, len(left) + choice.left, *others))


def _choice(open_: OpenBatch) -> Choice:
    assert open_.choice is not None
    return open_.choice
