"""When the next batch is due, and which events it reads.

Owns the places up to which events have been planned and up to which they are committed. Promises that a range is
planned only for a partition that is held and trusted, that it begins where the last committed or planned one ended,
that every held partition with something unread moves within a bounded number of batches, and that a checkpoint follows
its commit and never comes before it. Refuses to go back: what is given back was never committed.

A partition's place is kept for the owner level at which it is held. One that left and came back starts from its
checkpoint, or behind what this instance has committed, if no other owner was between.

Events that retention has removed are named in the next range of their partition until one of them is committed, so that
the table knows that the gap is meant. That range is due at once, and may be empty: where nothing follows the gap,
watermark and checkpoint move past it all the same.

Concurrency: one thread calls all of it. Batches are committed in the order in which they were planned; several may be
planned ahead. The store may be away between commit and checkpoint: the checkpoint waits and is written later, before
anything is handed over.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from leasehold.backoff import Backoff
from leasehold.errors import StoreError
from leasehold.model import EventRange, PartitionProperties
from leasehold.notices import EventsLost
from leasehold.spark.loop.orders import Order
from leasehold.spark.loop.settings import LoopSettings
from leasehold.spark.plan.offsets import (
    IN_LOOP,
    Plan,
    Plannable,
    ReadRange,
    Weights,
    data_loss,
    next_waited,
    pack,
    plan,
)
from leasehold.spark.plan.share import Share

logger = logging.getLogger(__name__)

SMALL_TASK = 10_000
"""A task of fewer events is not worth a second one: each costs tens of milliseconds."""
_STORE_PAUSES = Backoff(0.05, 0.5)


class Feed:
    """What there is to read for an instance, batch by batch. `noted` tells, by partition, which events to skip."""

    def __init__(
        self, share: Share, settings: LoopSettings, noted: Callable[[], Mapping[str, Collection[int]]] = dict
    ) -> None:
        self._share = share
        self._noted = noted
        self._settings = settings
        self._options = settings.source
        self._planned: dict[str, ReadRange] = {}
        self._done: dict[str, ReadRange] = {}
        self._left_out: dict[str, int] = {}
        self._told_lost: dict[str, int] = {}
        self._mean: dict[str, float] = {}
        self._waited: dict[str, int] = {}
        self._properties: Mapping[str, PartitionProperties] = {}
        self._busy: Counter[tuple[str, int]] = Counter()
        self._unwritten = False
        self._untaken, self._try_at = 0, -math.inf
        """How often in a row the store could not be reached for what is unwritten, and when it is tried again."""
        self._at_most = self._options.max_events_per_trigger
        self._begun: float | None = None
        self._last_batch = share.clock.monotonic()  # or, before the first one, the start
        self._bounds = share.ends() if settings.available_now else None
        self.lost_events = 0
        """How many events were gone before they were read."""

    # Planning

    def next(self, gathers: Callable[[int], bool] = lambda events: False) -> tuple[EventRange, ...]:
        """The ranges of the next batch; none if nothing is due. They count as planned from now on.

        `gathers` is asked whether this many events are better looked at once more. Not asked where there is an end to
        come to, nor where the settings say how many make a batch.
        """
        now = self._share.clock.monotonic()
        if self._begun is not None and now - self._begun < self._settings.trigger_interval:
            return ()
        held = self._held()
        properties = self._share.properties()
        if properties is None:
            return ()
        self._properties = properties
        planned = self._plan(held)
        if planned.losses:  # the table may hold what is gone: a kill between its commit and the checkpoint
            planned = self._plan(held, self._share.applied())
        self._report_losses(planned)
        if not planned.has_news:
            return ()
        if not planned.losses and self._bounds is None and self._too_few(planned, now, gathers):
            return ()
        self._last_batch = self._begun = now
        unread = {one.partition: self._properties[one.partition].end - one.start for one in planned.ranges}
        self._waited = next_waited({one.partition: len(one) for one in planned.ranges}, unread, self._waited)
        # Not replaced: one that another asks for is left out, and may be planned again at the same level later.
        self._planned.update({one.partition: one for one in planned.ranges})
        news = planned.news
        self._busy.update((one.partition, one.owner_level) for one in news)
        return tuple(map(self._named, news))

    def _held(self) -> dict[str, Plannable]:
        """What may be planned, and where it starts.

        This instance may have lost a partition and claimed it again, before it had recorded what it has committed: a
        level higher by one says that no other owner was between. So it goes on behind that, and records it anew: the
        store refuses a checkpoint of the lower level.
        """
        held = self._share.held(with_asked=False)
        for partition, mine in held.items():
            done = self._done.get(partition)
            if done is None or done.end <= mine.start:
                continue
            if done.owner_level + 1 == mine.owner_level:
                done = self._done[partition] = replace(done, owner_level=mine.owner_level)
                self._unwritten = True
            if done.owner_level == mine.owner_level:
                held[partition] = replace(mine, start=done.end)
        return held

    def _plan(self, held: Mapping[str, Plannable], applied: Mapping[str, int] | None = None) -> Plan:
        return plan(
            list(self._planned.values()),
            held,
            self._properties,
            limit=self._at_most,
            bounds=self._bounds,
            waited=self._waited,
            weights=Weights(self._options.max_bytes_per_trigger, self._mean),
            applied=applied,
        )

    def order(self, ranges: Sequence[EventRange], cores: int) -> Order:
        """Who reads what of these ranges, on this many cores."""
        pieces = [ReadRange(one.partition, one.begin, one.end, one.owner_level) for one in ranges]
        total = sum(map(len, pieces))
        at_least = max(self._options.min_partitions, min(cores, -(-total // SMALL_TASK)))
        one_reader = self._share.hub.one_reader_per_partition(self._options.consumer_group)
        tasks = pack(pieces, events_per_task=self._options.events_per_task, at_least=at_least, cut=not one_reader)
        known = {one.partition: self._mean[one.partition] for one in ranges if one.partition in self._mean}
        tasks = tasks or [()]  # of a batch without events one task says that it has read nothing
        at_most, skipped = self._options.max_bytes_per_trigger, self._to_skip(ranges)
        return Order(self._share.hub.identity, tuple(ranges), tuple(tasks), at_most, known, skipped)

    def _to_skip(self, ranges: Sequence[EventRange]) -> dict[str, list[int]]:
        """Which events of these ranges a person has noted to be skipped."""
        found, noted = dict[str, list[int]](), self._noted()
        for one in ranges:
            if its := [number for number in noted.get(one.partition, ()) if one.begin <= number < one.end]:
                found[one.partition] = sorted(its)
        return found

    def learn(self, mean: Mapping[str, float], times: Mapping[str, tuple[int, float]]) -> None:
        """What an event of these partitions weighs, in bytes; and the last one, with when it was enqueued."""
        self._mean.update(mean)
        self._share.note_times(times)

    def _too_few(self, planned: Plan, now: float, gathers: Callable[[int], bool]) -> bool:
        wanted, events = self._options.min_events_per_trigger, sum(map(len, planned.ranges))
        if wanted is None:
            return gathers(events)
        return events < wanted and now - self._last_batch < self._options.max_trigger_delay

    def _report_losses(self, planned: Plan) -> None:
        if planned.losses and self._options.fail_on_data_loss:
            raise data_loss(planned.losses, IN_LOOP)
        for loss in planned.losses:
            self._left_out.setdefault(loss.partition, loss.start)
            start = max(loss.start, self._told_lost.get(loss.partition, loss.start))
            if start < loss.end:  # else it was told, and is planned again
                self._told_lost[loss.partition] = loss.end
                self.lost_events += loss.end - start
                self._share.manager.notices.publish(EventsLost(loss.partition, start, loss.end))
                logger.warning("partition %s: events [%d, %d) are gone from the hub", loss.partition, start, loss.end)

    def _named(self, range_: ReadRange) -> EventRange:
        left_out = self._left_out.get(range_.partition)
        return EventRange(
            self._share.hub.identity, range_.partition, range_.owner_level, range_.start, range_.end, left_out
        )

    # After a batch

    def committed(self, ranges: Sequence[EventRange]) -> None:
        """The batch of these ranges is in the table: write its checkpoints, and hand over what others ask for."""
        for one in ranges:
            self._done[one.partition] = ReadRange(one.partition, one.begin, one.end, one.owner_level)
            self._left_out.pop(one.partition, None)
        self._busy -= Counter((one.partition, one.owner_level) for one in ranges)
        self._unwritten = True
        if self._at_most is not None:
            self._at_most = min(2 * self._at_most, self._options.max_events_per_trigger or 2 * self._at_most)
        self.record()

    def record(self) -> None:
        """Write what is committed and not yet recorded, and hand over what others ask for: also while nothing comes.

        A store that is away is tried again after a pause, which is as long as the last try at least: so half of the
        time is left for batches.
        """
        if self._share.clock.monotonic() >= self._try_at:
            self.write()
        self._share.note_progress()
        if not self._unwritten:
            self._share.let_go(self._busy)

    def write(self) -> None:
        """Write what is committed and not yet recorded, if the store can be reached now."""
        if not self._unwritten:
            return
        began = self._share.clock.monotonic()
        if self._share.record(list(self._done.values())):
            self._unwritten, self._untaken, self._try_at = False, 0, -math.inf
            return
        self._untaken += 1
        ended = self._share.clock.monotonic()
        self._try_at = ended + max(ended - began, _STORE_PAUSES.pause(self._untaken))

    def give_back(self) -> None:
        """Forget what was planned and not committed: it is planned again, without what is no longer held."""
        self._planned = {p: replace(one, start=one.end) for p, one in self._done.items()}
        self._busy.clear()

    def narrow(self, ranges: Sequence[EventRange]) -> bool:
        """Plan half of this many events next, more again with each batch that goes well. False: it was a single one."""
        total = sum(map(len, ranges))
        self._at_most = max(1, total // 2)
        return total > 1

    # With an end

    def left_to_consume(self) -> list[str]:
        """The partitions that are not consumed, by anybody, to the end captured at the start.

        While there is one, gives up what is consumed to its end, where others wait for it.
        """
        left = self._share.unconsumed(self._bounds or {})
        if left:
            self._pass_on_finished()
        return left

    def _pass_on_finished(self) -> None:
        """Where this instance may hold only some, those that it has consumed keep others from their turn."""
        if self._options.settings.maximum_partitions is None or self._unwritten:
            return
        bounds = self._bounds or {}
        for partition, held in self._share.held().items():
            is_idle = (partition, held.owner_level) not in self._busy
            if is_idle and self._committed_up_to(partition, held) >= bounds.get(partition, 0):
                self._share.manager.finish(partition, held.owner_level)

    def owners_of(self, partitions: Sequence[str]) -> str:
        """Who owns these partitions by their records, for people."""
        try:
            records = self._share.ownership.list_ownership(self._share.group).records
        except StoreError as error:
            return str(error)
        mine, me = set(self._share.held()), str(self._share.manager.owner_id)
        owners = {r.owner_id for r in records if r.partition in partitions and r.owner_id and r.owner_id != me}
        said = [f"{', '.join(sorted(owners))} own some"] if owners else []
        if mine & set(partitions):
            said.append("this instance works on some")
        if {p for p in partitions if p not in mine} - {r.partition for r in records if r.owner_id}:
            said.append("some are nobody's yet")
        return ", ".join(said) or "they change hands"

    # What is shown

    def lag(self) -> dict[str, int]:
        """By held partition, how many events the hub has that are not yet committed: those of a running batch too."""
        held = self._share.held()
        return {
            partition: max(0, known.end - max(known.begin, self._committed_up_to(partition, held[partition])))
            for partition, known in self._properties.items()
            if partition in held
        }

    @property
    def partition_count(self) -> int:
        """How many partitions the hub had at the last look."""
        return len(self._properties)

    def _committed_up_to(self, partition: str, held: Plannable) -> int:
        done = self._done.get(partition)
        return held.start if done is None or done.owner_level != held.owner_level else done.end
