"""The guards of the protocol, taken away: one patch for each.

A patch changes one function, class or number of the real code, or gives the simulation another store, sink or worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from leasehold.balancing import hand_over, view
from leasehold.balancing.sightings import Sightings
from leasehold.errors import NotTheOwner
from leasehold.model import Checkpoint, Ownership, OwnershipListing, Presence
from leasehold.ownership import Hold, PartitionManager, acquisition, asking, holds, keeping, looking, partition_manager
from leasehold.sinks.rules.fence import Admission, FencePlan, Range
from leasehold_testkit.simulation import Instance, Make, SimulatedSink, SimulatedStore

Patch = pytest.MonkeyPatch
Apply = Callable[[Patch], Make | None]


# The stores


class NoEtags(SimulatedStore):
    """Writes whatever it is given, if there is such a record at all."""

    def _current(self, records: Sequence[Ownership]) -> list[Ownership]:
        stored = [(record, self.record(record.partition)) for record in records]
        return [replace(record, etag=one.etag if one else None) for record, one in stored]


class ClaimsWithoutEtags(NoEtags):
    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return super().claim_ownership(self._current(claims))


class RenewsWithoutEtags(NoEtags):
    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        """Nor owners and levels, which are compared too, and would be enough."""
        super().renew_ownership([], presence)
        return self._write(self._current(held))


class RelinquishesWithoutEtags(NoEtags):
    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return super().relinquish_ownership(self._current(held))


class TakesAnyCheckpoint(SimulatedStore):
    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        self._checkpoints.update({(one.group, one.partition): one for one in checkpoints})
        return []


class LowersLevels(SimulatedStore):
    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        for start in starts:
            stored = self.checkpoint(start.partition)
            self._checkpoints[start.group, start.partition] = (
                replace(stored, owner_level=start.owner_level) if stored else start
            )
        return list(starts)


class AgesByTheWallClock(SimulatedStore):
    """Says an age that another clock has measured, half as fast again."""

    def list_ownership(self, group: Any) -> OwnershipListing:
        listing = super().list_ownership(group)
        faster = [
            replace(one, last_modified=listing.as_of - 1.5 * (listing.as_of - one.last_modified))
            for one in listing.records
        ]
        return replace(listing, records=tuple(faster))


# The sink


class NoFence(SimulatedSink):
    def plan(self, ranges: Sequence[Range]) -> FencePlan:
        planned = super().plan(ranges)
        everything = [Admission(one, one.first - 1) for one in ranges]
        return replace(planned, admitted=tuple(everything), refused=())


class NoWatermark(SimulatedSink):
    """Refuses lower levels, and applies again what was applied."""

    def plan(self, ranges: Sequence[Range]) -> FencePlan:
        planned = super().plan(ranges)
        return replace(planned, admitted=tuple(replace(one, after=one.range.first - 1) for one in planned.admitted))


class SilentSink(SimulatedSink):
    """Drops what is below the watermark's level and never asks why."""

    def apply(self, ranges: Sequence[Range]) -> None:
        refused = {refusal.range for refusal in self.plan(ranges).refused}
        super().apply([one for one in ranges if one not in refused])


# The work


class LetsGoUndrained(Instance):
    def _plan(self) -> list[Range]:
        ranges = super()._plan()
        for partition, hold in self.held().items():
            if hold.asked_by:
                self.manager.let_go(partition, hold.owner_level)
        return ranges


class LetsGoUnrecorded(Instance):
    def _commit(self) -> bool:
        asked = {(partition, hold.owner_level) for partition, hold in self.held().items() if hold.asked_by}
        for key in asked & self._reached.keys():
            self._written[key] = self._reached[key]
        return super()._commit()


def stores(kind: type[SimulatedStore]) -> Apply:
    return lambda patch: Make(store=kind)


def sinks(kind: type[SimulatedSink]) -> Apply:
    return lambda patch: Make(sink=kind)


def works(kind: type[Instance]) -> Apply:
    return lambda patch: Make(instance=kind)


def patched(target: Any, name: str, value: Any) -> Apply:
    def apply(patch: Patch) -> None:
        patch.setattr(target, name, value)

    return apply


# The manager


def trust_from_the_reply(patch: Patch) -> None:
    extend = holds.Holds.extend

    def later(self: holds.Holds, renewed: Sequence[Ownership], until: float) -> dict[str, Hold]:
        return extend(self, renewed, self._clock.monotonic() + 23.0)

    patch.setattr(holds.Holds, "extend", later)


def claims_trusted_from_the_reply(patch: Patch) -> None:
    add = holds.Holds.add

    def later(self: holds.Holds, hold: Hold) -> None:
        add(self, replace(hold, trusted_until=self._clock.monotonic() + 23.0))

    patch.setattr(holds.Holds, "add", later)


def extends_what_has_lapsed(patch: Patch) -> None:
    def extend(self: holds.Holds, renewed: Sequence[Ownership], until: float) -> dict[str, Hold]:
        for record in renewed:
            for mine in (self._holds, self._leaving):
                if record.partition in mine and mine[record.partition].owner_level == record.owner_level:
                    mine[record.partition] = replace(mine[record.partition], record=record, trusted_until=until)
        return {}

    patch.setattr(holds.Holds, "extend", extend)
    patch.setattr(holds.Holds, "lapsed", lambda self: {})


def trusts_for_ever(patch: Patch) -> None:
    patch.setattr(holds.Holds, "trusted", lambda self: dict(self._holds))


def level_of(level: Callable[[Ownership, Checkpoint], int]) -> Apply:
    """Claims at another level than one above record and checkpoint."""

    def apply(patch: Patch) -> None:
        original = acquisition.Acquisition._wanted

        def wanted(self: Any, claims: Any, records: Mapping[str, Ownership], progress: Mapping[str, Checkpoint]) -> Any:
            found = original(self, claims, records, progress)
            none = Ownership(self._parts.group, "", "", 0)
            return {
                partition: replace(one, owner_level=level(records.get(partition, none), progress[partition]))
                for partition, one in found.items()
            }

        patch.setattr(acquisition.Acquisition, "_wanted", wanted)

    return apply


def unannounced(patch: Patch) -> None:
    original = acquisition.Acquisition._hold

    def hold(self: Any, won: Mapping[str, Any]) -> bool:
        class Silent:
            def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
                return list(starts)

        parts = self._parts
        self._parts = replace(parts, checkpoints=Silent())
        try:
            return original(self, won)
        finally:
            self._parts = parts

    patch.setattr(acquisition.Acquisition, "_hold", hold)


def announces_blindly(patch: Patch) -> None:
    """Raises the level, and holds whatever the answer says."""
    original = acquisition.Acquisition._hold

    def hold(self: Any, won: Mapping[str, Any]) -> bool:
        parts = self._parts
        real = parts.checkpoints

        class Blind:
            def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
                standing = real.raise_owner_level(starts)
                return [
                    replace(one, owner_level=start.owner_level) for one, start in zip(standing, starts, strict=True)
                ]

        self._parts = replace(parts, checkpoints=Blind())
        try:
            return original(self, won)
        finally:
            self._parts = parts

    patch.setattr(acquisition.Acquisition, "_hold", hold)


def recognises_by_name(patch: Patch) -> None:
    """A record of mine is taken for what I claimed last, whichever claim it comes from."""
    original = acquisition.Acquisition.recognise

    def recognise(self: Any, listing: OwnershipListing) -> bool:
        nonces = {record.partition: record.nonce for record in listing.records}
        self._attempts = {
            partition: replace(one, record=replace(one.record, nonce=nonces.get(partition, "")))
            for partition, one in self._attempts.items()
        }
        return original(self, listing)

    patch.setattr(acquisition.Acquisition, "recognise", recognise)


def forgets_attempts(patch: Patch) -> None:
    patch.setattr(acquisition.Acquisition, "recognise", lambda self, listing: False)


def recognises_from_now(patch: Patch) -> None:
    original = acquisition.Acquisition.recognise

    def recognise(self: Any, listing: OwnershipListing) -> bool:
        now = self._parts.clock.monotonic()
        self._attempts = {partition: replace(one, since=now) for partition, one in self._attempts.items()}
        return original(self, listing)

    patch.setattr(acquisition.Acquisition, "recognise", recognise)


def settles_nothing(patch: Patch) -> None:
    """A renewal that comes back without a record is taken for a loss."""
    original = keeping.Keeping.settle

    def settle(self: Any, unsure: dict[str, Hold], listing: OwnershipListing) -> None:
        original(self, unsure, replace(listing, records=()))

    patch.setattr(keeping.Keeping, "settle", settle)


def keeps_what_was_taken(patch: Patch) -> None:
    patch.setattr(keeping.Keeping, "settle", lambda self, unsure, listing: None)


def asks_at_any_level(patch: Patch) -> None:
    original = asking.Asking.hear

    def hear(self: Any, listing: OwnershipListing, seen: view.View) -> None:
        held = self._holds.all()
        asks = [
            replace(a, owner_level=held[a.partition].owner_level) if a.partition in held else a for a in listing.asks
        ]
        original(self, replace(listing, asks=tuple(asks)), seen)

    patch.setattr(asking.Asking, "hear", hear)


def asks_of_anybody(patch: Patch) -> None:
    """Asks of the dead are heard, too."""
    original = asking.Asking.hear

    def hear(self: Any, listing: OwnershipListing, seen: view.View) -> None:
        askers = {ask.asker: seen.members[seen.me] for ask in listing.asks}
        original(self, listing, replace(seen, members={**askers, **seen.members}))

    patch.setattr(asking.Asking, "hear", hear)


def no_doubt(patch: Patch) -> None:
    patch.setattr(looking.Sight, "in_doubt", lambda self, seen, holding: False)


def no_grace(patch: Patch) -> None:
    patch.setattr(looking.Sight, "suspect_store", lambda self: None)


def no_attention(patch: Patch) -> None:
    original = PartitionManager.let_go

    def let_go(self: Any, partition: str, owner_level: int, error: str = "") -> bool:
        gone = original(self, partition, owner_level, error)
        self.attention.clear()
        return gone

    patch.setattr(PartitionManager, "let_go", let_go)


def no_settling(patch: Patch) -> None:
    patch.setattr(PartitionManager, "_settled", lambda self: True)


def no_stall(patch: Patch) -> None:
    def held(self: Any) -> Outcome:
        self._last_progress = self._parts.clock.monotonic()
        return original(self)

    original = PartitionManager._cycle
    patch.setattr(PartitionManager, "_cycle", held)


Outcome = Any


def no_reservation(patch: Patch) -> None:
    original = view.make_view

    def make(ids: Any, listing: OwnershipListing, **rest: Any) -> view.View:
        me = str(rest["me"].owner_id)
        records = [
            one if one.owner_id or one.successor == me else replace(one, successor="") for one in listing.records
        ]
        return original(ids, replace(listing, records=tuple(records)), **rest)

    patch.setattr(looking, "make_view", make)


def steals_at_once(patch: Patch) -> None:
    patch.setattr(hand_over, "asker_step", lambda wish, deadline: hand_over.HandOverStep.CLAIM)


def never_steals(patch: Patch) -> None:
    original = hand_over.asker_step
    patch.setattr(hand_over, "asker_step", lambda wish, deadline: original(wish, math.inf))


def hands_to_nobody(patch: Patch) -> None:
    patch.setattr(keeping, "owner_step", lambda *, has_asker, drained: hand_over.HandOverStep.RELINQUISH)


def no_successors(patch: Patch) -> None:
    """A new incarnation is a stranger to its predecessor's partitions."""
    original = view.Me

    def me(**fields: Any) -> Any:
        return original(**{**fields, "just_started": False})

    patch.setattr(partition_manager, "Me", me)


def counts_owners_only(patch: Patch) -> None:
    """Presence is not looked at: who owns nothing is counted by nobody."""
    original = view.make_view

    def make(ids: Any, listing: OwnershipListing, **rest: Any) -> view.View:
        return original(ids, replace(listing, presences=()), **rest)

    patch.setattr(looking, "make_view", make)


def ages_from_the_first_listing(patch: Patch) -> None:
    """Without a clock of the store: an age that goes on although the record has changed."""
    original = Sightings.dated

    def dated(self: Any, listing: OwnershipListing, asked: float, answered: float) -> OwnershipListing:
        same = [replace(one, etag="same") for one in listing.records]
        aged = original(self, replace(listing, records=tuple(same)), asked, answered)
        etags = [replace(one, etag=real.etag) for one, real in zip(aged.records, listing.records, strict=True)]
        return replace(aged, records=tuple(etags))

    patch.setattr(Sightings, "dated", dated)
