"""Parked events are tried again: those of an owner's own partition, and those that nobody else tries any more.

Owns the course of a try; which events are due is what `parking` says, and
when what others have left is taken care of what `left_behind` says. One thread
works on a partition at a time, and with it on what it is concerned with of others'. Stopped for a minute, or for good,
at any line before a commit, nothing has happened; each commit is under the watermark that was read before.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from random import Random

from leasehold.clock import Clock
from leasehold.errors import KeyFromTwoPartitions, UsageError
from leasehold.handlers.calling.raised import hung
from leasehold.handlers.contract import Computed, Key
from leasehold.handlers.exclusive import ExclusiveEntities
from leasehold.handlers.known_partition import KnownPartition
from leasehold.handlers.outbox import OutboxSender
from leasehold.handlers.parking.guests import AT_MOST, GuestPlace, by_lane
from leasehold.handlers.parking.left_behind import SELDOM, LeftBehind, LeftOwner, LeftPlace, Sign, concerns, sign_of
from leasehold.handlers.parking.policy import Retries
from leasehold.handlers.places import CallingOwner, ReadBatch, Sent
from leasehold.handlers.spread import BEHIND, BEHIND_ALL, SpreadEntities
from leasehold.handlers.telling import say_timed_out
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.outbox.contract import Outbox
from leasehold.sinks.features import KeepsStates
from leasehold.sinks.rules.fence import Lane, Watermark
from leasehold.sinks.rules.parking import Parking
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.sinks.set_aside import EventId, Selection

logger = logging.getLogger(__name__)

_LOOK = 10.0
"""The longest time between two looks at what is parked, in seconds: an operator may have changed it."""
_AT_ONCE = 100
"""Entities whose parked events are tried in one commit, and events."""
_OF_LEASED = 1_000
"""Events of entities that are leased for it, which mostly wait because they were busy."""


class TriesParked(ABC):
    """What of a handled table tries parked events; the rest of it says how events are computed and applied."""

    sink: Sink
    _states: KeepsStates
    _spread: SpreadEntities | None
    _exclusive: ExclusiveEntities | None
    _sender: OutboxSender | None
    _retries: Retries
    _clock: Clock
    _rng: Random
    _known: dict[Lane, KnownPartition]

    @abstractmethod
    def _computed(
        self,
        batch: ReadBatch,
        events: Sequence[Sent],
        deliveries: Iterable[int],
        *,
        goes_on: bool,
        waiting: Iterable[Key] = (),
        parked: bool = False,
    ) -> Computed: ...

    @abstractmethod
    def _parking(self, batch: ReadBatch, done: Computed, tried: Sequence[int] = ()) -> Parking: ...

    @abstractmethod
    def _apply(
        self,
        done: Computed,
        batch: ReadBatch,
        begin: int,
        end: int,
        read_under: Watermark | None = None,
        parking: Parking | None = None,
    ) -> BatchResult: ...

    @property
    def _outbox(self) -> Outbox | None:
        """The outbox, if somebody here sends it."""
        return None if self._sender is None else self._states.outbox

    def _of(self, batch: ReadBatch) -> KnownPartition:
        return batch.known if isinstance(batch, GuestPlace) else self._known[batch.hub, batch.partition]

    def _watermark(self, batch: ReadBatch) -> Watermark:
        return self.sink.watermarks(batch.hub).get(batch.partition, Watermark())

    def _waiting(self, batch: ReadBatch, mark: Watermark) -> Mapping[Key, float]:
        return self._of(batch).entities_waiting(self._states, batch.hub, batch.partition, mark, self._clock.wall())

    def _try_parked(self, batch: ReadBatch, context: CallingOwner) -> None:
        """Try the parked events of this partition that are due, and ask to be called when the next ones are.

        After a batch of which nothing waits the watermark is not read once more: its commit has just compared it.
        """
        known, now = self._of(batch), self._clock.wall()
        if known.limit.spent:
            context.call_again(0.0)
            return
        if not batch or known.waiting is None or any(at <= now for at in known.waiting.values()):
            mark = self._watermark(batch)
            if mark.owner_level > batch.owner_level:
                return  # a later owner tries them
            known.nothing_refused()
            self._try_due(batch, mark, now)
            if self._try_for_others(batch):
                known.waiting = None
                self._waiting(batch, self._watermark(batch))
        elif self._try_for_others(batch):
            context.call_again(0.0)  # to see what waits now
        if known.waiting:
            context.call_again(min(_LOOK, max(min(known.waiting.values()), known.not_before) - now))
        self._try_left(batch, context)

    def _try_for_others(self, batch: ReadBatch) -> bool:
        """Apply what is parked of entities whose leases are held, whoever parked it: `guests`. Whether anything was."""
        if self._exclusive is None or self._spread is None:
            return False
        known, own = self._of(batch), (batch.hub, batch.partition)
        take = self._exclusive.taking(known.leases, known.busy, self._clock, self._rng)
        until, done, goes_on = self._clock.monotonic() + AT_MOST, False, True
        while goes_on and not known.limit.spent and self._clock.monotonic() < until:
            goes_on, now = False, self._clock.wall()
            asked = {key for key in known.waiting or () if known.busy.not_before(key, 0.0) <= now}
            due = by_lane(self._spread.first_parked([*known.leases.keys() | asked]), now)
            if wanted := [key for keys in due.values() for key in keys if key not in known.leases]:
                take(wanted)
            for lane, keys in due.items():
                if some := [key for key in keys if key in known.leases]:
                    goes_on |= self._try_at(batch if lane == own else lane, batch, some, now)
            done |= goes_on
        return done

    def _try_at(self, place: ReadBatch | Lane, batch: ReadBatch, keys: Collection[Key], now: float) -> bool:
        """Try what is due of these entities at one partition, as its owner or as a guest. Whether any was applied."""
        if isinstance(place, tuple):
            mark = self.sink.watermarks(place[0]).get(place[1])
            if mark is None or mark.disputed:
                return False
            known = self._of(batch).for_guest(mark.owner_level)
            place = GuestPlace(*place, mark.owner_level, known=known)
        else:
            mark, known = self._watermark(place), self._of(place)
        if mark.owner_level > place.owner_level or known.not_before > now:
            return False
        known.nothing_refused()
        return self._try_keys(place, mark, now, keys, _OF_LEASED)

    def _try_due(self, batch: ReadBatch, mark: Watermark, now: float, keys: Collection[Key] | None = None) -> bool:
        """One commit of parked events that are due, those refused not called for; what waits afterwards is known.

        Of these `keys` alone, if any are named. Returns whether any event waits no more.
        """
        known = self._of(batch)
        if self._spread is not None:
            known.waiting = None  # other partitions' events may have gone out of the way
        waiting = self._waiting(batch, mark)
        due = sorted((at, key) for key, at in waiting.items() if at <= now and (keys is None or key in keys))[:_AT_ONCE]
        if not due or known.not_before > now:
            known.behind = min(2 * known.behind, BEHIND[1])
            return False
        tried = self._try_keys(batch, mark, now, [key for _, key in due], _AT_ONCE)
        known.waiting = None
        self._waiting(batch, self._watermark(batch))
        return tried

    def _try_keys(self, batch: ReadBatch, mark: Watermark, now: float, keys: Collection[Key], at_most: int) -> bool:
        """One commit of the first parked events of these entities, which are due. Whether any of them waits no more."""
        known = self._of(batch)
        found = self._states.parked_events(batch.hub, batch.partition, keys, at_most)
        events = [
            one for one in found if one.sequence_number <= mark.sequence_number
        ]  # others a later owner has parked
        done = self._computed(batch, events, [1 + event.deliveries for event in events], goes_on=True, parked=True)
        worked = len(done.held) + len(done.dead) < len(events)
        if known.outcomes.outage_of_parked(done.calls, worked=worked):
            known.outages += 1
            known.not_before = now + self._retries.pause(known.outages, self._rng.random())
            return False
        known.outages, known.not_before = 0, 0.0
        parking = self._parking(batch, done, [event.sequence_number for event in events])
        if not (parking.put or parking.removed):
            return False  # none was called for, and nothing changes
        at = mark.sequence_number + 1
        result = self._apply(done, batch, at, at, mark, parking)
        if result.violations:
            known.note_refused(done, result.violations)
            return self._try_keys(batch, mark, now, keys, at_most)
        if not result.outdated:
            say_timed_out(batch.partition, done, {one.sequence_number for one in events if hung(one.error)})
        known.behind = BEHIND[0]  # also where it was outdated
        return bool(parking.removed) and not result.outdated

    def _try_left(self, batch: ReadBatch, context: CallingOwner) -> None:
        """Look for what others have left, and try what is due of it; ask to be called when it is time to look again."""
        known, now = self._of(batch), self._clock.monotonic()
        left = known.left
        if left.look_at <= now:
            lanes = self._left_lanes(batch)
            more = [self._try_lane(batch, context, lane) for lane in lanes]
            left.look_at = now + (SELDOM if not lanes else 0.0 if any(more) else _LOOK)
        if not known.waiting or left.look_at <= now + _LOOK:  # where something waits, we are called soon anyhow
            context.call_again(max(0.0, left.look_at - now))

    def _left_lanes(self, batch: ReadBatch) -> list[Lane]:
        """The partitions of other hubs that have parked or emitted events and are this partition's concern."""
        lanes = dict.fromkeys([*self._parked_lanes(), *(() if self._outbox is None else self._outbox.lanes())])
        others = [lane for lane in lanes if lane[0] != batch.hub]
        mine = self.sink.watermarks(batch.hub) if others else ()
        return [lane for lane in others if concerns(batch.partition, lane, mine)]

    def _parked_lanes(self) -> Iterator[Lane]:
        """The partitions that have parked events, in order."""
        after: EventId | None = None
        while first := self._states.parked_rows(Selection(), 1, after):
            its = first[0].id
            yield its.hub, its.partition
            after = EventId(its.hub, its.partition, BEHIND_ALL)

    def _try_lane(self, batch: ReadBatch, context: CallingOwner, lane: Lane) -> bool:
        """Try what is due of a left partition. Whether more of it is."""
        left = self._of(batch).left
        try:
            mark = self.sink.watermarks(lane[0]).get(lane[1])
        except UsageError as error:  # another consumer group has read that hub
            mark = None
            self._say_stuck(batch, lane, str(error))
        if mark is None or mark.disputed:
            self._say_stuck(batch, lane, "its watermark does not let them be applied")
            return False
        place = LeftPlace(*lane, mark.owner_level)
        known = self._known.get(lane)
        if known is None or known.owner_level != mark.owner_level:
            known = self._known[lane] = KnownPartition(mark.owner_level)
        known.limit = self._of(batch).limit
        sign, due, unsent = self._waiting_there(left, place, mark)
        if not left.is_untouched(lane, sign, self._clock.monotonic(), due=unsent or bool(due)):
            return False
        if self._sender is not None:
            self._sender.goes_on(LeftOwner(*lane, mark.owner_level, lambda: context.trusted))
        known.nothing_refused()
        try:
            self._try_place(batch, place, due)
        finally:
            if self._exclusive is not None:
                self._exclusive.give_up(known.leases)
        sign, due, _ = self._waiting_there(left, place, self._watermark(place))
        return left.done(lane, sign, due=bool(due))

    def _try_place(self, batch: ReadBatch, place: ReadBatch, due: Sequence[Key]) -> None:
        """In a table that is not spread, entity by entity: one whose events this hub has, too, cannot be written."""
        left, lane, now = self._of(batch).left, (place.hub, place.partition), self._clock.wall()
        if self._spread is not None:
            self._try_due(place, self._watermark(place), now)
            return
        for key in due[:_AT_ONCE]:
            try:
                self._try_due(place, self._watermark(place), now, [key])
            except KeyFromTwoPartitions as error:
                left.refused.add((lane, key))
                self._say_stuck(batch, lane, str(error))

    def _waiting_there(
        self, left_behind: LeftBehind, place: ReadBatch, mark: Watermark
    ) -> tuple[Sign | None, list[Key], bool]:
        """The sign of a left partition, which of its entities are due, the longest first, and whether it has emitted
        what is not sent."""
        lane, now = (place.hub, place.partition), self._clock.wall()
        found = self._states.parked_entities(*lane).items()
        waiting = {key: at for key, at in found if at < math.inf and (lane, key) not in left_behind.refused}
        self._of(place).waiting = None  # to be read again
        due = sorted((at, key) for key, at in waiting.items() if at <= now)
        first = [] if self._outbox is None else self._outbox.waiting(*lane, 1, 1)
        unsent = first[0].number if first else None
        return sign_of(mark, waiting, unsent), [key for _, key in due], unsent is not None

    def _say_stuck(self, batch: ReadBatch, lane: Lane, reason: str) -> None:
        left = self._of(batch).left
        if lane not in left.said:
            left.said.add(lane)
            logger.warning(
                "parked events of partition %s of hub %s, which is not the one that is read, wait for ever: %s. "
                "`leasehold parked list PIPELINE.toml --hub %s` lists them; drop them, or mend that first",
                *(lane[1], lane[0], reason, lane[0]),
            )
