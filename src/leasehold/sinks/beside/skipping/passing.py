"""Which noted events a batch comes to, and passing them: rules 2 and 3 of `skipping.contract`.

Owns what a sink remembers between batches, so that a batch asks for notes only where there may be some: the count of
changes of a partition at which it had none. A note raises that count, in the transaction that writes it.

Any thread may call. What it remembers was read under the lock of the partition's watermark, so it is right whatever
becomes of the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from leasehold.sinks.rules.fence import FencePlan, Lane, Watermark
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.transactions import WritesBeside

_END = 2**63 - 1


class NotesToPass:
    """The noted events of one table, as its batches come to them."""

    def __init__(self) -> None:
        self._none: dict[Lane, int] = {}

    def of(self, transaction: WritesBeside, stored: Mapping[Lane, Watermark], plan: FencePlan) -> list[SkipNote]:
        """The notes of the events that the watermarks pass by this plan; `stored` are those from before it."""
        changes = {lane: stored.get(lane, Watermark()).changes for lane in plan.watermarks}
        unsure = {lane: _END for lane, count in changes.items() if self._none.get(lane) != count}
        if not unsure:
            return []
        found = transaction.skip_notes(unsure)
        some = {note.lane for note in found}
        self._none.update({lane: changes[lane] for lane in unsure if lane not in some})
        return [note for note in found if _is_passed(note, stored, plan)]


def _is_passed(note: SkipNote, stored: Mapping[Lane, Watermark], plan: FencePlan) -> bool:
    before = stored.get(note.lane, Watermark())
    return before.sequence_number < note.sequence_number <= plan.watermarks[note.lane].sequence_number
