"""Holding partitions: presence, renewals, claims, hand-over, trust, checkpoints.

Owns the dispatch cycle of one instance. Promises that a partition is reported as held only while no other instance can
have claimed it since (except by stealing it, which the fence makes harmless), that before anything of it
is read its owner level is in the checkpoint record, and that one owner level is held without a gap: after
a lapse of trust a partition comes back only at a higher level. Refuses to wait: `tick` is one dispatch
cycle, and who calls it looks at `due` to know when the next one is.

    free ──claim──▶ claimed ──level raised in the checkpoint──▶ held ──renew──▶ held
                       │ superseded, store away                  │ taken, lapsed, stalled
                       ▼                                         ▼
                   not held (found again by its nonce)       not held
                                                                 ▲ written down: relinquished,
                                          held ──let_go──▶ leaving   or handed over to the asker

Concurrency. One thread runs `tick`; any thread may call `held`, `let_go`, `retire`, `update_checkpoints` and
`note_progress`. What a cycle is made of is in modules of its own: `keeping` (renewals, giving up), `acquisition`
(claims), `asking` (hand-over), `membership` (presence) and `looking` (the listing, and the second look at it).
No call to a store or hub is made under a lock, and only `tick` and `relinquish` write ownership records, so that an
instance never meets itself at one. If this process stops for a minute
- anywhere: its trust, counted from before the request, has run out when it wakes up; `held` is empty, and
  the next tick drops everything and claims what still is recorded as its own, at a higher level;
- between claim and raising the level: another has claimed meanwhile, at a higher level; raising returns that
  level and the partition is not held. If no other instance has, trust has run out anyway;
- between raising the level and reading: another has raised it further; what is read is dropped by the sink's
  fence as soon as the new owner's first batch is there, and counted by its watermark before that;
- between letting go and writing that down: no instance reads the partition until the process goes on, or the record has
  expired, or the asker has waited for the hand-over timeout;
- between asking and claiming: the owner has handed over, and the reservation has ended: another may have claimed.
If a store hangs in a renewal, `held` still shrinks on time, since trust is computed from this process's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from leasehold.balancing import STRATEGIES, Me, View
from leasehold.combinations import Combination, check, is_mixed, place_of
from leasehold.config import OwnershipSettings
from leasehold.errors import HubError, LeaseholdError, SinkError, StoreError, UsageError, Verdict
from leasehold.hubs.base import Hub
from leasehold.model import BEFORE_FIRST, Checkpoint, ConsumerGroup, OwnerId, OwnershipListing, Positions, Presence
from leasehold.notices import CycleFailed, LossReason, OwnershipRelinquished
from leasehold.ownership.acquisition import Acquisition
from leasehold.ownership.asking import Asking
from leasehold.ownership.attaching import Attaching
from leasehold.ownership.cycles import Cycles
from leasehold.ownership.holds import Hold, Holds
from leasehold.ownership.keeping import Keeping
from leasehold.ownership.looking import Sight
from leasehold.ownership.measuring import measured_checkpoints, measured_ownership
from leasehold.ownership.membership import Membership
from leasehold.ownership.mending import Mending
from leasehold.ownership.pace import CycleOutcome
from leasehold.ownership.parts import InstanceParts
from leasehold.ownership.purpose import Purpose
from leasehold.ownership.recording import Recording
from leasehold.ownership.unusable_records import Skipping
from leasehold.runtime import Runtime
from leasehold.stores.base import CheckpointStore, OwnershipStore


class PartitionManager:
    """One instance's share, under its `owner_id`, of the partitions of the consumer group `group` of `hub`.

    `ownership` and `checkpoints` are its stores. `positions` say where to start in a group that has no checkpoint yet.
    Resolved starts are recorded for all partitions at once by the first instance of a group; a partition that appears
    later starts at earliest, since its events came after the group had started. `runtime` has the time, chance and
    notices. `purpose` is what it holds partitions for. `last_error` says how this instance's predecessor ended.
    Raises `ConfigError` for stores, hub and settings that do not go together (`leasehold.combinations`).
    """

    def __init__(
        self,
        hub: Hub,
        group: ConsumerGroup,
        ownership: OwnershipStore,
        checkpoints: CheckpointStore,
        *,
        owner_id: OwnerId,
        settings: OwnershipSettings,
        positions: Positions,
        runtime: Runtime | None = None,
        purpose: Purpose | None = None,
        last_error: str = "",
    ) -> None:
        runtime, purpose = runtime or Runtime(), purpose or Purpose()
        clock = runtime.clock
        self.owner_id = owner_id
        self.settings = settings
        self.notices = runtime.notices
        self.attention = threading.Event()
        """Set when a cycle is wanted before it is due: something was let go, or the end has come."""
        mixed = is_mixed(hub.url)
        check(
            Combination(
                ownership=place_of(ownership),
                checkpoints=place_of(checkpoints),
                mixed=mixed,
                settings=settings,
            )
        )
        self._parts = parts = InstanceParts(
            hub=hub,
            group=group,
            ownership=measured_ownership(ownership, self.notices, clock),
            checkpoints=measured_checkpoints(checkpoints, self.notices, clock),
            owner_id=owner_id,
            settings=settings,
            positions=positions,
            runtime=runtime,
            purpose=purpose,
            last_error=last_error,
        )
        self._plan = STRATEGIES[settings.strategy]
        self._membership = Membership(parts)
        self._skipping = Skipping(parts.notices)
        self._holds = Holds(clock)
        self._keeping = Keeping(parts, self._holds)
        self._asking = Asking(parts, self._holds)
        self._sight = Sight(
            parts,
            self._skipping,
            foreign=settings.expiration_of_others(mixed=mixed),
            on_suspicion=self._asking.forget_how_long,
        )
        self._attaching = Attaching(parts)
        self._acquisition = Acquisition(parts, self._holds, self._skipping, self._attaching)
        self._recording = Recording(parts, self._holds, self._keeping, self._acquisition)
        self._cycles = Cycles(parts, self._holds)
        self._just_started = True
        self._newcomer_until = clock.monotonic() + settings.partition_expiration
        self._mine = 0
        self._announced = False
        self._last_progress = clock.monotonic()
        self._failure: LeaseholdError | None = None
        self._worked = False
        """Whether some dispatch cycle has gone well."""
        self._mending = Mending()

    # What others ask

    def held(self) -> dict[str, Hold]:
        """What is held and trusted at this moment, by partition.

        A hold with `asked_by` is to be drained: finish what is begun, record the checkpoint, and `let_go`.
        Raises what keeps this instance from working, if there is something: a `UsageError`, or what a person has to
        mend before a first dispatch cycle can go well.
        """
        if self._failure is not None:
            raise self._failure
        return self._holds.trusted()

    @property
    def due(self) -> float:
        """When the next dispatch cycle should run, on the monotonic clock."""
        return self._cycles.due

    @property
    def cycles(self) -> int:
        """How many dispatch cycles have ended, well or not. The settle delay at the start is no cycle."""
        return self._cycles.ended

    def wait_for_cycle(self, number: int, timeout: float) -> bool:
        """Wait until `number` dispatch cycles have ended, for at most `timeout` seconds. Returns whether they have."""
        return self._cycles.wait_for(number, timeout)

    def note_progress(self) -> bool:
        """Say that the work is going on; without it, renewal stops after the stall timeout.

        Returns whether it had stopped: what was held then is claimed again by the next cycle.
        """
        before, self._last_progress = self._last_progress, self._parts.clock.monotonic()
        return self._last_progress - before > self.settings.stall_timeout

    def let_go(self, partition: str, owner_level: int, error: str = "", *, blameless: bool = False) -> bool:
        """Give up a partition whose work has ended: to the asker, or free for the instance whose share it is.

        Its checkpoint must have been recorded. The next cycle, which then comes at once, writes it down. `error`
        says what made it impossible to go on; `blameless`: that a person has to mend, so it is no bad end. Returns
        whether the partition was held and trusted at that level.
        """
        place = self._acquisition.place_of(partition)
        known = BEFORE_FIRST if place is None else place.sequence_number
        stands_at = known if blameless else None
        gone = self._holds.let_go(partition, owner_level, error, stands_at=stands_at)
        self.attention.set()
        return gone

    def put_on_record(self, partition: str, owner_level: int, error: str) -> None:
        """Have the ownership record say what a person has to mend before the work on a partition can go on.

        Where it does not say so yet, the partition is given up with that, which counts as no bad end; this instance
        claims it again in the next cycle, which comes at once, unless another has. One that is to hold no more keeps
        it, since it could not claim it again: its log alone says what is to be mended.
        """
        hold, place = self._holds.all().get(partition), self._acquisition.place_of(partition)
        if hold is not None and hold.owner_level == owner_level:
            said = self._mending.is_said(hold.record, error, place)
            if said or (not self._membership.full and self.let_go(partition, owner_level, error, blameless=True)):
                self._mending.note(partition, error, place)

    def give_up(self, partition: str, owner_level: int, error: str) -> bool:
        """Give up a partition whose work hangs or has failed, also if trust in it has run out meanwhile.

        Without that the record would name this instance, and nobody would know why, until it has expired. The store
        refuses to write it down once another has claimed the partition. Returns whether it was held at that level last.
        """
        gone = self._holds.give_up(partition, owner_level, error)
        self.attention.set()
        return gone

    def lose(self, partition: str, owner_level: int) -> None:
        """Hold a partition no longer at this level: the hub has shown that another reads it as its owner.

        If the record still names this instance, the next cycle, which then comes at once, claims it again, at a higher
        level.
        """
        hold = self._holds.all().get(partition)
        if hold is not None and hold.owner_level == owner_level:
            self._keeping.drop({partition: hold}, LossReason.SUPERSEDED)
            self.attention.set()

    def finish(self, partition: str, owner_level: int) -> None:
        """Give up a partition that has nothing more for this instance, and claim it no more, also if it is free."""
        self._sight.finish(partition)
        self.let_go(partition, owner_level)

    def retire(self) -> None:
        """Acquire nothing more, and tell the others so; what is held stays held until it is let go.

        For an end that takes its time: without it, what is let go early would be claimed again by the next cycle.
        """
        self._membership.retired = True

    def hold_no_more(self, full: bool) -> None:
        """Acquire nothing more while `full`, and tell the others so; what is held stays held.

        For one whose work hangs in a partition that it has given up: it would be given that partition again.
        """
        self._membership.full = full

    def update_checkpoint(
        self,
        partition: str,
        owner_level: int,
        sequence_number: int,
        offset: str | None = None,
        data: Mapping[str, str] | None = None,
        enqueued_time: float | None = None,
    ) -> bool:
        """Record that events up to `sequence_number` are processed, as the owner at `owner_level`; the others with it.

        Does nothing and returns False when that level is not held (any more) or is refused by the store as
        superseded. May raise `StoreError`; if it is transient, the same call may be made again.
        """
        checkpoint = Checkpoint(
            self._parts.group, partition, sequence_number, owner_level, offset, data or {}, enqueued_time
        )
        return bool(self.update_checkpoints([checkpoint]))

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint], *, also_lapsed: bool = False) -> list[Checkpoint]:
        """As `update_checkpoint`, for many partitions in one call to the store. Returns what was recorded.

        `also_lapsed` is for work that is certainly done at its level, such as a batch that Spark has committed,
        whether or not the level is still held: the store refuses it as soon as another has announced a higher one.
        """
        return self._recording.record(checkpoints, self.held(), also_lapsed=also_lapsed)

    # The dispatch cycle

    def tick(self) -> bool:
        """Run one dispatch cycle: renew, list, plan, claim. Returns whether anything was won.

        A store or hub that is away or refuses ends the cycle with a `CycleFailed` notice and nothing else: what is
        held stays held as long as it is trusted. It is logged when it begins, changes and ends. The first cycle only
        announces this instance, if there is a settle delay.
        """
        started = self._parts.clock.monotonic()
        self._cycles.begin()
        outcome = CycleOutcome.FAILED
        try:
            self._sight.check_names()
            outcome = self._cycle() if self._settled() else self._announce()
            self._worked = self._worked or outcome is not CycleOutcome.SETTLING
        except (StoreError, HubError, SinkError) as error:
            if isinstance(error, StoreError):
                self._sight.suspect_store()
            elif self._sight.partition_ids:
                self._membership.unable = True
            self._cycles.tell_trouble("dispatch cycle failed", error)
            if error.verdict is Verdict.MEND and not self._worked:
                self._failure = error
        except UsageError as error:
            self._failure = error
            self.notices.publish(CycleFailed(error))
        finally:
            self._attaching.keep_only(self._holds.names())
            known = len(self._sight.partition_ids)
            self._cycles.end(started, self._parts.clock.monotonic(), outcome, partitions=known, stalled=self._hangs())
        return outcome is CycleOutcome.WON

    def relinquish(self, errors: Mapping[str, str] | None = None) -> None:
        """Give up everything held, as far as the store can be reached; what cannot be given up expires.

        `errors` say what ended the work on a partition, where it did not end well and no better reason is on record.
        """
        held = self._keeping.give_up_all(errors or {})
        self._attaching.keep_only(())
        self._membership.leave()
        for partition, hold in held.items():
            self.notices.publish(OwnershipRelinquished(partition, hold.owner_level))

    def _settled(self) -> bool:
        return self._announced or not (self.settings.settle_delay and self._parts.ownership.features.presence)

    def _announce(self) -> CycleOutcome:
        self._sight.find_partitions()  # who does not know them cannot serve a share
        self._parts.ownership.renew_ownership([], self._announcement())
        self._announced = True
        return CycleOutcome.SETTLING

    def _cycle(self) -> CycleOutcome:
        self._keeping.drop(self._holds.lapsed(), LossReason.LAPSED)
        self._keeping.write_down_leaving()
        if self._hangs():
            return self._stall()
        if not self._sight.partition_ids:
            self._sight.find_partitions()
        self._membership.unable = self._membership.unable and not self._able_again()
        unsure = self._keeping.renew(self._announcement())
        self._sight.find_partitions()
        listing = self._sight.list()
        stranger = self._membership.check_pipeline(listing)
        self._membership.tell_namesakes(listing)
        self._keeping.settle(unsure, listing)
        if self._keeping.settle_leaving(listing):
            self.attention.set()
        won = self._acquisition.recognise(listing)
        view = self._sight.view(listing, self._me())
        self._mine = len(view.held) + len(view.reclaimable)
        if stranger or self._sight.in_doubt(view, holding=bool(self._holds.names())):
            return CycleOutcome.DOUBTED
        self._asking.hear(listing, view)
        self._sight.report_unserved(view)
        waiting, claimed = self._act(view, listing)
        self._just_started = self._just_started and self._membership.unable
        if won or claimed:
            return CycleOutcome.WON
        return CycleOutcome.ASKING if waiting else CycleOutcome.IDLE

    def _hangs(self) -> bool:
        return self._parts.clock.monotonic() - self._last_progress > self.settings.stall_timeout

    def _stall(self) -> CycleOutcome:
        """The work hangs: hold nothing, and tell the others once that I take nothing; then let all of it expire."""
        if held := self._holds.all():
            self._keeping.drop(held, LossReason.STALLED)
            self._parts.ownership.renew_ownership([], self._membership.nothing_taken())
        return CycleOutcome.IDLE

    def _announcement(self) -> Presence:
        return self._membership.announcement(max(len(self._holds.names()), self._mine))

    def _me(self) -> Me:
        return Me(
            owner_id=self.owner_id,
            held=self._holds.names(),
            presence=self._announcement(),
            just_started=self._just_started and self._parts.clock.monotonic() < self._newcomer_until,
        )

    def _act(self, view: View, listing: OwnershipListing) -> tuple[bool, bool]:
        """Claim, ask, or wait, as the plan and the hand-over say. Returns whether it waits, and whether it has won."""
        mine = self._holds.names()
        acquiring = not (self._membership.retired or self._membership.full)
        plan = (
            [claim for claim in self._plan(view, self._parts.rng) if claim.partition not in mine] if acquiring else []
        )
        wishes = self._asking.wishes(plan, listing, view, self._parts.clock.monotonic())
        progress = self._progress() if wishes.asks or wishes.claims else {}
        if wishes.asks:
            self._parts.ownership.ask(wishes.asks)
        won = self._acquisition.claim(
            wishes.claims, listing, progress, self._sight.partition_ids, levelless=self._sight.levelless
        )
        if wishes.withdrawn:
            self._parts.ownership.withdraw_asks(wishes.withdrawn)
        self._membership.forget_the_dead(listing)
        return bool(wishes.waiting), won

    def _progress(self) -> dict[str, Checkpoint]:
        """The checkpoints. Who cannot see them could not take what it asks for or claims, and tells the others so."""
        try:
            return {
                checkpoint.partition: checkpoint
                for checkpoint in self._parts.checkpoints.list_checkpoints(self._parts.group)
            }
        except StoreError:
            self._membership.unable = True
            raise

    def _able_again(self) -> bool:
        try:
            self._parts.checkpoints.list_checkpoints(self._parts.group)
            self._parts.hub.partition_properties()
        except (StoreError, HubError) as error:
            self._cycles.tell_trouble("acquiring nothing", error)
            return False
        return True
