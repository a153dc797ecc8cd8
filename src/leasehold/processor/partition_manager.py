"""Holding partitions: presence, renewals, claims, hand-over, trust, checkpoints.

Owns the dispatch cycle of one instance. Promises that a partition is reported as held only while nobody else can
have claimed it since (except by stealing it, which the fence makes harmless), that before anything of it
is read its owner level is in the checkpoint record, and that one owner level is held without a gap: after
a lapse of trust a partition comes back only at a higher level. Refuses to wait: `tick` is one dispatch
cycle, and who calls it looks at `due` to know when the next one is.

    free ──claim──▶ claimed ──level raised in the checkpoint──▶ held ──renew──▶ held
                       │ superseded, store away                  │ taken, lapsed, stalled
                       ▼                                         ▼
                   not held (found again by its nonce)       not held
                                                                 ▲ written down: relinquished,
                                          held ──let_go──▶ leaving   or handed over to who asked

Concurrency. One thread runs `tick`; any thread may call `held`, `let_go`, `retire`, `update_checkpoints` and
`note_progress`.
No call to a store or hub is made under a lock, and only `tick` and `relinquish` write ownership records, so that an
instance never meets itself at one. If this process stops for a minute
- anywhere: its trust, counted from before the request, has run out when it wakes up; `held` is empty, and
  the next tick drops everything and claims what still is recorded as its own, at a higher level;
- between claim and raising the level: another has claimed meanwhile, at a higher level; raising returns that
  level and the partition is not held. If nobody has, trust has run out anyway;
- between raising the level and reading: another has raised it further; what is read is dropped by the sink's
  fence as soon as the new owner's first batch is there, and counted by its watermark before that;
- between letting go and writing that down: nobody reads the partition until the process goes on, or the record has
  expired, or who asked for it has waited for the hand-over timeout;
- between asking and claiming: the owner has handed over, and the reservation has ended: another may have claimed.
If a store hangs in a renewal, `held` still shrinks on time, since trust is computed from this process's clock.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from leasehold.balancing import STRATEGIES, Limits, Me, View, make_view, target, trust_duration
from leasehold.balancing.hand_over import Step, owner_step, requests
from leasehold.balancing.sightings import Sightings
from leasehold.balancing.view import is_expired
from leasehold.clock import Clock
from leasehold.config import OwnershipSettings
from leasehold.errors import AlreadyInUse, HubUnavailable, StoreUnavailable, UsageError
from leasehold.hubs.base import Hub, ProgressMirror
from leasehold.model import (
    Checkpoint,
    ConsumerGroup,
    OwnerId,
    Ownership,
    OwnershipListing,
    Positions,
    Presence,
    owner_name,
)
from leasehold.notices import (
    CheckpointUpdated,
    CycleFailed,
    HandOverAsked,
    LossReason,
    Notices,
    OwnershipLost,
    OwnershipRelinquished,
    PartitionsUnserved,
)
from leasehold.processor.acquisition import Acquisition
from leasehold.processor.holds import Hold, Holds
from leasehold.processor.pace import Outcome, pause_after
from leasehold.processor.promises import Combination, check, is_mixed, place_of
from leasehold.stores.base import CheckpointStore, OwnershipStore

logger = logging.getLogger(__name__)

FORGET_AFTER = 10
"""Presence records are removed when they are this many partition expirations old."""


class PartitionManager:
    """One instance's share of the partitions of a consumer group.

    `positions` say where to start in a group that has no checkpoint yet. Resolved starts are recorded for
    all partitions at once by the first instance of a group; a partition that appears later starts at
    earliest, since its events came after the group had started. `pipeline` is what the instance works for:
    two that name different ones do not share a group. `last_error` says how this instance's predecessor ended.
    Raises `ConfigError` for stores, hub and settings that do not go together (`leasehold.processor.promises`).
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
        clock: Clock,
        rng: Random,
        notices: Notices | None = None,
        pipeline: str = "",
        last_error: str = "",
    ) -> None:
        self.owner_id = owner_id
        self.settings = settings
        self.notices = notices or Notices()
        self.attention = threading.Event()
        """Set when a cycle is wanted before it is due: something was let go, or the end has come."""
        self._hub = hub
        self._group = group
        self._ownership = ownership
        self._checkpoints = checkpoints
        self._clock = clock
        self._rng = rng
        self._plan = STRATEGIES[settings.strategy]
        self._trust = trust_duration(settings.partition_expiration, settings.clock_rate_ratio, settings.margin)
        check(
            Combination(
                ownership=place_of(ownership),
                checkpoints=place_of(checkpoints),
                mixed=is_mixed(hub.url),
                settings=settings,
            )
        )
        self._presence = _presence(group, owner_id, settings, pipeline)
        self._sightings = None if ownership.features.own_clock else Sightings()
        self._changed = threading.Condition()
        self._holds = Holds(clock)
        self._acquisition = Acquisition(
            hub,
            group,
            ownership,
            checkpoints,
            self._holds,
            owner_id=owner_id,
            settings=settings,
            trust=self._trust,
            positions=positions,
            clock=clock,
            rng=rng,
            notices=self.notices,
            last_error=last_error,
        )
        self._cycles = 0
        self._due = clock.monotonic()
        self._partition_ids: tuple[str, ...] = ()
        self._just_started = True
        self._newcomer_until = clock.monotonic() + settings.partition_expiration
        self._unable = False
        self._mine = 0
        self._full = False
        self._announced = False
        self._present_since: float | None = None
        self._last_listing: float | None = None
        self._suspected_until = -math.inf
        self._doubted: frozenset[str] = frozenset()
        self._asking_since: dict[str, float] = {}
        self._unserved: tuple[str, ...] = ()
        self._last_progress = clock.monotonic()
        self._failure: UsageError | None = None
        self._retired = False

    # What others ask

    def held(self) -> dict[str, Hold]:
        """What is held and trusted at this moment, by partition.

        A hold with `asked_by` is to be drained: finish what is begun, record the checkpoint, and `let_go`.
        Raises the `UsageError` that keeps this instance from working, if there is one.
        """
        if self._failure is not None:
            raise self._failure
        return self._holds.trusted()

    @property
    def due(self) -> float:
        """When the next dispatch cycle should run, on the monotonic clock."""
        return self._due

    @property
    def cycles(self) -> int:
        """How many dispatch cycles have ended, well or not. The settle delay at the start is no cycle."""
        with self._changed:
            return self._cycles

    def wait_for_cycle(self, number: int, timeout: float) -> bool:
        """Wait until `number` dispatch cycles have ended, for at most `timeout` seconds. Returns whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: self._cycles >= number, timeout)

    def note_progress(self) -> bool:
        """Say that the work is going on; without it, renewal stops after the stall timeout.

        Returns whether it had stopped: what was held then is claimed again by the next cycle.
        """
        now = self._clock.monotonic()
        stalled = now - self._last_progress > self.settings.stall_timeout
        self._last_progress = now
        return stalled

    def let_go(self, partition: str, owner_level: int, error: str = "") -> bool:
        """Give up a partition whose work has ended: to who has asked for it, else to whoever's share it is.

        Its checkpoint must have been recorded. The next cycle, which then comes at once, writes it down. `error`
        says what made it impossible to go on. Returns whether the partition was held and trusted at that level.
        """
        gone = self._holds.let_go(partition, owner_level, error)
        self.attention.set()
        return gone

    def lose(self, partition: str, owner_level: int) -> None:
        """Hold a partition no longer at this level: the hub has shown that another reads it as its owner.

        If the record still names this instance, the next cycle claims it again, at a higher level.
        """
        hold = self._holds.all().get(partition)
        if hold is not None and hold.owner_level == owner_level:
            self._drop({partition: hold}, LossReason.SUPERSEDED)

    def retire(self) -> None:
        """Acquire nothing more, and tell the others so; what is held stays held until it is let go.

        For an end that takes its time: without it, what is let go early would be claimed again by the next cycle.
        """
        self._retired = True

    def hold_no_more(self, full: bool) -> None:
        """Acquire nothing more while `full`, and tell the others so; what is held stays held.

        For one whose work hangs in a partition that it has given up: it would be given that partition again.
        """
        self._full = full

    def update_checkpoint(
        self, partition: str, owner_level: int, sequence_number: int, offset: str | None = None
    ) -> bool:
        """Record that events up to `sequence_number` are processed, as the owner at `owner_level`.

        Does nothing and returns False when that level is not held (any more) or is refused by the store as
        superseded. May raise `StoreUnavailable`; the same call may be made again.
        """
        checkpoint = Checkpoint(self._group, partition, sequence_number, owner_level, offset)
        return bool(self.update_checkpoints([checkpoint]))

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint], *, also_lapsed: bool = False) -> list[Checkpoint]:
        """As `update_checkpoint`, for many partitions in one call to the store. Returns what was recorded.

        `also_lapsed` is for work that is certainly done at its level, such as a batch that Spark has committed,
        whether or not the level is still held: the store refuses it as soon as another has announced a higher one.
        """
        held = self.held()
        mine = {
            c.partition for c in checkpoints if c.partition in held and held[c.partition].owner_level == c.owner_level
        }
        sent = [checkpoint for checkpoint in checkpoints if also_lapsed or checkpoint.partition in mine]
        if not sent:
            return []
        refused = {refusal.partition for refusal in self._checkpoints.update_checkpoints(sent)}
        if refused:
            logger.info("partitions %s have gone on to other owners", ", ".join(sorted(refused)))
        self._drop({partition: held[partition] for partition in refused & mine}, LossReason.SUPERSEDED)
        recorded = [checkpoint for checkpoint in sent if checkpoint.partition not in refused]
        self._holds.prove(recorded)
        if isinstance(self._hub, ProgressMirror):
            self._hub.mirror(self._group.name, {one.partition: one.next_sequence_number for one in recorded})
        for checkpoint in recorded:
            self.notices.publish(
                CheckpointUpdated(checkpoint.partition, checkpoint.owner_level, checkpoint.sequence_number)
            )
        return recorded

    # The dispatch cycle

    def tick(self) -> bool:
        """Run one dispatch cycle: renew, list, plan, claim. Returns whether anything was won.

        A store or hub that is away ends the cycle with a `CycleFailed` notice and nothing else: what is held
        stays held as long as it is trusted. The first one only announces this instance, if there is a settle delay.
        """
        started = self._clock.monotonic()
        outcome = Outcome.FAILED
        try:
            outcome = self._cycle() if self._settled() else self._announce()
        except (StoreUnavailable, HubUnavailable) as error:
            if isinstance(error, StoreUnavailable):
                self._suspect_store()
            self._unable |= isinstance(error, HubUnavailable) and bool(self._partition_ids)
            self.notices.publish(CycleFailed(error))
            logger.warning("dispatch cycle failed: %s", error)
        except UsageError as error:
            self._failure = error
            self.notices.publish(CycleFailed(error))
        finally:
            self._end_cycle(started, outcome)
        return outcome is Outcome.WON

    def relinquish(self, errors: Mapping[str, str] | None = None) -> None:
        """Give up everything held, as far as the store can be reached; what cannot be given up expires.

        `errors` say what ended the work on a partition, where it did not end well and no better reason is on record.
        """
        ended = errors or {}
        leaving = self._holds.leaving()
        held = self._holds.take_all()
        records = [
            _given_up(hold, hold.error if partition in leaving else ended.get(partition, ""))
            for partition, hold in held.items()
        ]
        if records:
            self._ownership.relinquish_ownership(records)
        self._ownership.withdraw_presence(self._group, [str(self.owner_id)])
        for partition, hold in held.items():
            self.notices.publish(OwnershipRelinquished(partition, hold.owner_level))

    def _settled(self) -> bool:
        return self._announced or not (self.settings.settle_delay and self._ownership.features.presence)

    def _announce(self) -> Outcome:
        self._find_partitions()  # who does not know them cannot serve a share
        self._ownership.renew_ownership([], self._announcement())
        self._announced = True
        return Outcome.SETTLING

    def _end_cycle(self, started: float, outcome: Outcome) -> None:
        now = self._clock.monotonic()
        if outcome is Outcome.SETTLING:
            self._due = now + self.settings.settle_delay
            return
        self._due = now + pause_after(self.settings.load_balancing_interval, now - started, outcome, self._rng)
        with self._changed:
            self._cycles += 1
            self._changed.notify_all()

    def _cycle(self) -> Outcome:
        self._drop(self._holds.lapsed(), LossReason.LAPSED)
        if self._clock.monotonic() - self._last_progress > self.settings.stall_timeout:
            return self._stall()
        self._write_down_leaving()
        if not self._partition_ids:
            self._find_partitions()
        self._unable = self._unable and not self._able_again()
        unsure = self._renew()
        self._find_partitions()
        listing = self._list()
        stranger = self._check_pipeline(listing)
        self._settle(unsure, listing)
        self._settle_leaving(listing)
        won = self._acquisition.recognise(listing)
        view = self._view(listing)
        self._mine = len(view.held) + len(view.reclaimable)
        if stranger or self._doubt(view):
            return Outcome.DOUBTED
        self._hear_asks(listing, view)
        self._report_unserved(view)
        waiting, claimed = self._act(view, listing)
        self._just_started = self._just_started and self._unable
        if won or claimed:
            return Outcome.WON
        return Outcome.ASKING if waiting else Outcome.IDLE

    def _stall(self) -> Outcome:
        """The work hangs: hold nothing, and tell the others once that I take nothing; then let all of it expire."""
        if held := self._holds.all():
            self._drop(held, LossReason.STALLED)
            self._ownership.renew_ownership([], replace(self._presence, maximum=0))
        return Outcome.IDLE

    def _announcement(self) -> Presence:
        """What the others are told of me: no room for more than is mine, while I cannot or must not acquire.

        So they take the rest of my share. What is mine by record, and not held, I shall have again when I can.
        """
        if self._retired:
            return replace(self._presence, maximum=0)
        if not (self._full or self._unable):
            return self._presence
        held, maximum = max(len(self._holds.names()), self._mine), self._presence.maximum
        return replace(self._presence, maximum=held if maximum is None else min(held, maximum))

    def _write_down_leaving(self) -> None:
        """Hand over or relinquish what was let go. What the store refuses waits for the listing: see below."""
        leaving = self._holds.leaving()
        if not leaving:
            return
        records = []
        for hold in leaving.values():
            step = owner_step(asked=bool(hold.asked_by) and not hold.error, drained=True)
            successor = hold.asked_by if step is Step.HAND_OVER else ""
            records.append(_given_up(hold, hold.error, successor))
        given = self._ownership.relinquish_ownership(records)
        self._holds.gone([record.partition for record in given])
        for record in given:
            self.notices.publish(OwnershipRelinquished(record.partition, record.owner_level, record.successor))

    def _settle_leaving(self, listing: OwnershipListing) -> None:
        """Forget what was let go and is another's by now; try again soon where only its ETag was not known."""
        records = {record.partition: record for record in listing.records}
        for partition, hold in self._holds.leaving().items():
            record = records.get(partition)
            if record is None or not _same_acquisition(record, hold.record):
                self._holds.gone([partition])
            elif self._holds.found_leaving(record):
                self.attention.set()

    def _renew(self) -> dict[str, Hold]:
        """Renew what is held. Returns the holds whose ETag has changed: lost, or renewed without our knowing."""
        before = self._holds.all()
        since = self._clock.monotonic()
        renewed = self._ownership.renew_ownership([hold.record for hold in before.values()], self._announcement())
        self._extend(renewed, since)
        kept = {record.partition for record in renewed}
        return {partition: hold for partition, hold in before.items() if partition not in kept}

    def _extend(self, renewed: Sequence[Ownership], since: float) -> None:
        """Trust what was renewed for longer, unless trust had run out when the answer came."""
        self._drop(self._holds.extend(renewed, since + self._trust), LossReason.LAPSED)

    def _settle(self, unsure: dict[str, Hold], listing: OwnershipListing) -> None:
        """Tell what was lost from what only looked so, because an earlier answer went missing."""
        if not unsure:
            return
        records = {record.partition: record for record in listing.records}
        mine = {
            partition: records[partition]
            for partition, hold in unsure.items()
            if partition in records and _same_acquisition(records[partition], hold.record)
        }
        self._drop({p: hold for p, hold in unsure.items() if p not in mine}, LossReason.TAKEN)
        since = self._clock.monotonic()
        renewed = self._ownership.renew_ownership(list(mine.values()))
        self._extend(renewed, since)
        kept = {record.partition for record in renewed}
        self._drop({p: unsure[p] for p in mine if p not in kept}, LossReason.TAKEN)

    def _find_partitions(self) -> None:
        try:
            self._partition_ids = self._hub.partition_ids()
        except HubUnavailable as error:
            if not self._partition_ids:
                raise
            logger.warning("going on with the partitions known so far: %s", error)

    def _list(self) -> OwnershipListing:
        started = self._clock.monotonic()
        patience = 2 * self.settings.load_balancing_interval * self.settings.clock_rate_ratio
        paused = (
            self._last_listing is not None and started - self._last_listing > patience + self.settings.request_timeout
        )
        listing = self._ownership.list_ownership(self._group)
        self._last_listing = self._clock.monotonic()
        if self._sightings is not None:
            listing = self._sightings.dated(listing, started, self._last_listing)
        if paused or self._last_listing - started > self.settings.request_timeout:
            self._suspect_store()
        return listing

    def _suspect_store(self) -> None:
        """Live owners may not have been able to renew: give each the time for one more cycle."""
        grace = self.settings.load_balancing_interval * self.settings.clock_rate_ratio + self.settings.request_timeout
        self._suspected_until = self._clock.monotonic() + grace
        self._asking_since.clear()  # whom I have asked may not have been able to hear it

    def _check_pipeline(self, listing: OwnershipListing) -> bool:
        """Refuse to share the group with another pipeline that was there before.

        Returns whether there is one of which I cannot tell whether it is alive: in a store without a clock, as long as
        its record is as I found it.
        """
        present = {presence.owner_id: presence for presence in listing.presences}
        mine = present.get(str(self.owner_id))
        stranger = False
        if mine is None or not mine.pipeline:
            return stranger
        for other in present.values():
            # Without a clock of the store's, who is there when I come was there first: better both refused than none.
            first = other.created < mine.created or (
                other.created == mine.created and (self._sightings is not None or other.owner_id < mine.owner_id)
            )
            alive = not is_expired(other, listing.as_of, self.settings.partition_expiration)
            if not (first and alive and other.pipeline and other.pipeline != mine.pipeline):
                continue
            if self._sightings is not None and other.last_modified <= other.created:
                stranger = True
            else:
                raise AlreadyInUse(
                    f"{other.owner_id} of pipeline {other.pipeline!r} works in consumer group {self._group.name!r}, "
                    f"and this is {mine.pipeline!r}: each would see only a part of the events. Give this pipeline a "
                    "consumer group of its own"
                )
        return stranger

    def _view(self, listing: OwnershipListing) -> View:
        return make_view(
            self._partition_ids,
            listing,
            me=Me(
                owner_id=self.owner_id,
                held=self._holds.names(),
                presence=self._announcement(),
                just_started=self._just_started and self._clock.monotonic() < self._newcomer_until,
            ),
            limits=Limits(
                expiration=self.settings.partition_expiration + self._ownership.features.clock_granularity,
                reservation=self.settings.load_balancing_interval + self.settings.request_timeout,
            ),
            store_suspected=self._clock.monotonic() < self._suspected_until,
        )

    def _doubt(self, view: View) -> bool:
        """Whether to look again before claiming: I hold nothing, and all who own something look expired.

        If on the second look one of them is back, it was the store that was away, and each gets the time for a cycle.
        """
        if view.expired and not self._holds.names():
            first, self._doubted = not self._doubted, view.expired
            return first
        back = bool(self._doubted & {owner for owner, _ in view.others})
        self._doubted = frozenset()
        if back:
            self._suspect_store()
        return back

    def _hear_asks(self, listing: OwnershipListing, view: View) -> None:
        """Note who asks for what I hold, and take away asks that mean nothing any more."""
        held = self._holds.all()
        askers, void = {}, []
        for ask in listing.asks:
            hold = held.get(ask.partition)
            if hold is None or ask.asker == view.me:
                continue
            if ask.owner_level == hold.owner_level and ask.asker in view.members:
                askers[ask.partition] = ask.asker
            else:
                void.append(ask)
        self._holds.set_askers(askers)
        for partition, asker in askers.items():
            if held[partition].asked_by != asker:
                self.notices.publish(HandOverAsked(partition, held[partition].owner_level, asker))
        if void:
            self._ownership.withdraw_asks(void)

    def _report_unserved(self, view: View) -> None:
        unserved: tuple[str, ...] = ()
        if any(member.maximum is not None for member in view.members.values()):
            owned = dict(view.others) | {view.me: (*view.held, *view.reclaimable, *view.asked)}
            unserved = target(owned, view.free, view.members).unserved
        if unserved != self._unserved:
            self._unserved = unserved
            self.notices.publish(PartitionsUnserved(unserved))

    def _act(self, view: View, listing: OwnershipListing) -> tuple[bool, bool]:
        """Claim, ask, or wait, as the plan and the hand-over say. Returns whether it waits, and whether it has won."""
        now = self._clock.monotonic()
        mine = self._holds.names()
        wishes = requests(
            [] if self._retired or self._full else [c for c in self._plan(view, self._rng) if c.partition not in mine],
            {record.partition: record for record in listing.records},
            {ask.partition: ask for ask in listing.asks},
            me=view.me,
            listening=view.announced,
            waited={partition: now - since for partition, since in self._asking_since.items()},
            deadline=self.settings.hand_over_timeout,
        )
        self._asking_since = {partition: self._asking_since.get(partition, now) for partition in wishes.waiting}
        progress = self._progress() if wishes.asks or wishes.claims else {}
        if wishes.asks:
            self._ownership.ask(wishes.asks)
        won = self._acquisition.claim(wishes.claims, listing, progress, self._partition_ids)
        if wishes.withdrawn:
            self._ownership.withdraw_asks(wishes.withdrawn)
        self._forget_the_dead(listing)
        return bool(wishes.waiting), won

    def _progress(self) -> dict[str, Checkpoint]:
        """The checkpoints. Who cannot see them could not take what it asks for or claims, and tells the others so."""
        try:
            return {checkpoint.partition: checkpoint for checkpoint in self._checkpoints.list_checkpoints(self._group)}
        except StoreUnavailable:
            self._unable = True
            raise

    def _able_again(self) -> bool:
        try:
            self._checkpoints.list_checkpoints(self._group)
            self._hub.partition_properties()
        except (StoreUnavailable, HubUnavailable) as error:
            self.notices.publish(CycleFailed(error))
            logger.warning("acquiring nothing: %s", error)
            return False
        return True

    def _forget_the_dead(self, listing: OwnershipListing) -> None:
        """Remove presences of long ago, and my predecessors', which would count again when I have left."""
        long = FORGET_AFTER * self.settings.partition_expiration
        me, name = str(self.owner_id), self.owner_id.name
        if self._present_since is None:
            # The first one: my record may be made anew later, and those who came meanwhile are no predecessors.
            self._present_since = next((one.created for one in listing.presences if one.owner_id == me), None)
        since = -math.inf if self._present_since is None else self._present_since
        dead = [
            one.owner_id
            for one in listing.presences
            if one.owner_id != me
            and (
                is_expired(one, listing.as_of, long) or (owner_name(one.owner_id) == name and one.last_modified < since)
            )
        ]
        if dead:
            self._ownership.withdraw_presence(self._group, dead)

    def _drop(self, lost: Mapping[str, Hold], reason: LossReason) -> None:
        for partition, hold in self._holds.drop(lost).items():
            self.notices.publish(OwnershipLost(partition, hold.owner_level, reason))


def _same_acquisition(one: Ownership, two: Ownership) -> bool:
    return (one.owner_id, one.owner_level, one.nonce) == (two.owner_id, two.owner_level, two.nonce)


def _given_up(hold: Hold, error: str, successor: str = "") -> Ownership:
    """The record of what is given up. With an `error` that is a bad end, which is counted here."""
    record = replace(hold.record, successor=successor)
    return replace(record, failures=record.failures + 1, last_error=error) if error else record


def _presence(group: ConsumerGroup, owner_id: OwnerId, settings: OwnershipSettings, pipeline: str) -> Presence:
    """What this instance announces of itself."""
    return Presence(group, str(owner_id), pipeline, settings.strategy, settings.capacity, settings.maximum_partitions)
