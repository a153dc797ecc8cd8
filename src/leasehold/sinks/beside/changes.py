"""What a batch changes beside the rows of its table, in the same transaction: for every sink with transactions alike.

Owns what is asked of a transaction for it: versions of entities, what producers have sent twice, rows of related
tables, parked events, the outbox.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from leasehold.sinks.rules import duplicates, fence
from leasehold.sinks.rules.batch import Batch, Identities
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.parking import Parking
from leasehold.sinks.rules.related import Related
from leasehold.sinks.transactions import WritesBeside


class BesideRows:
    """What a batch changes beside its rows, in a transaction of a sink that says the features for it."""

    def __init__(self, transaction: WritesBeside) -> None:
        self._transaction = transaction

    def of_last_versions(self, batch: Batch) -> Batch | None:
        """The batch, computed anew where entities have moved since it read them; None to do so outside. `versions`."""
        versions, its = self._transaction, batch.versioned
        if its is None:
            return batch
        now = versions.lock_entities(its.read)
        moved = [key for key, version in its.read.items() if now[key] != version]
        if moved and its.again is not None:
            anew = its.again(versions.known_entities(its.schema, moved))
            if anew is None or anew.versioned is None:
                return None
            batch, its = anew, anew.versioned
        versions.raise_versions(its.read, its.latest)
        return batch

    def judge_duplicates(
        self, identities: Identities, plan: fence.FencePlan, now: float, left_out: Collection[tuple[str, str, int]] = ()
    ) -> duplicates.DuplicatesFound:
        """Judge what of the batch was sent before, remember the rest, and forget some of what nobody asks for.

        `now` is the sink's clock, in seconds since 1970. Events that are `left_out` are neither judged nor remembered.
        """
        memory = self._transaction
        events = [one for one in duplicates.admitted(identities, plan) if one.event not in left_out]
        known = memory.known_identities({one.identity for one in events})
        reached = memory.identities_reached() if events else None
        verdict = duplicates.judge(events, known, identities.window, reached, int(now * 1_000_000))
        memory.remember_identities(verdict.remembered)
        if events:
            if verdict.reached != reached:
                memory.identities_reach(verdict.reached)
            memory.forget_identities(verdict.forget_before, verdict.forget_at_most)
        return verdict

    def relate(self, related: Related) -> dict[int, str]:
        """Rules 2 and 3 of `related`: what the database refuses, by the number of the event."""
        write = self._transaction.write_step
        violations: dict[int, str] = {}
        undone = set()
        for step in related.steps:
            if step.key not in undone and (reason := write(related.schema, step)) is not None:
                violations[step.number] = reason
                undone.add(step.key)
        return violations

    def has_what_was_tried(self, parking: Parking) -> bool:
        """Rule 3 of `parking`: whether the events that were tried again are parked still."""
        its = parking.tried
        return not its or self._transaction.are_parked(parking.hub, parking.partition, its)

    def park(self, parking: Parking, now: float) -> None:
        """Change parked events."""
        self._transaction.park(parking, now)

    def emit(self, events: Sequence[EmittedEvent], plan: fence.FencePlan, now: float) -> None:
        """Put into the outbox what events of admitted ranges have emitted."""
        admitted = {each.range.lane for each in plan.admitted}
        self._transaction.emit([one for one in events if (one.hub, one.partition) in admitted], now)
