"""The running part of a streaming query's source: what its driver-side process holds and does.

Owns the hub, the stores, the partition manager and its thread, in the one long-lived Python process that
Spark keeps per query. Promises that a range is planned only for a partition that is held and trusted, that a
checkpoint is written only for what Spark has committed, the tables hold or the hub has lost, that a partition which
another instance asks for is let go as soon as all that was planned of it is in its checkpoint, and that nothing is
renewed once the JVM is gone or Spark has asked for nothing for the stall timeout: then it says so, and gives up the
partitions of the batch at hand with that on record.

What Spark has committed before this process was started is recorded before anything is claimed: afterwards the level
would be too low. At the end Spark does not say whether the last batch was committed; the tables do, if they are known.

Concurrency: Spark calls from the process's main thread only, one call at a time; the dispatch thread runs
beside it (see `ownership.partition_manager`), and a timer for the stall timeout. If this process stops for a minute
between planning a range and its being read, the range is read all the same, and the sink drops it if another owner's
batch came first.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leasehold.combinations import is_mixed
from leasehold.errors import LeaseholdError
from leasehold.model import PartitionProperties
from leasehold.notices import BatchDone, EventsLost
from leasehold.ownership.starting import check_start, tie
from leasehold.printable import span
from leasehold.spark.plan.offsets import Plan, Plannable, ReadRange, Weights, data_loss, next_waited, plan
from leasehold.spark.plan.options import SourceOptions
from leasehold.spark.plan.share import FIRST_OWNERSHIP_WAIT, Share, instance_name
from leasehold.spark.stream.scales import Scales
from leasehold.spark.stream.stream_tables import Tables
from leasehold.stores import PipelineBinding
from leasehold.waiting import INSTANCE, sentence, when_there

logger = logging.getLogger(__name__)


class LiveStream:
    """One streaming query's share of a hub. Made, used and closed in the query's source process."""

    def __init__(self, options: SourceOptions) -> None:
        parent = os.getppid()
        self._options = options
        self._tables = Tables(options.tables) if options.tables else None
        self._share = Share(
            options,
            owner_name=instance_name(options, parent),
            alive=lambda: os.getppid() == parent,
            table=self._tables,
        )
        self.hub, self.manager, self._clock = self._share.hub, self._share.manager, self._share.clock
        one_reader = self.hub.one_reader_per_partition(options.consumer_group)
        self._scales = Scales(self.hub, options.columns, one_reader=one_reader)
        self._properties: Mapping[str, PartitionProperties] = {}
        self._position: dict[str, int] = {}
        self._waited: dict[str, int] = {}
        self._lost_events = 0
        self._in_flight: tuple[ReadRange, ...] = ()
        self._last_batch = self._clock.monotonic()
        self._planning = 0.0
        self._begun = False
        self._watch: threading.Timer | None = None

    def begin(self, committed: Sequence[ReadRange]) -> None:
        """Begin to hold partitions, once, after a record of what Spark had committed before.

        Raises `AlreadyInUse` if the group is another pipeline's or another table's, and what says that stores and
        table do not belong together any more.
        """
        if self._begun:
            return
        if not is_mixed(self._options.hub):  # there a checkpoint needs an offset, which only an owner can find out
            self._share.record([one for one in committed if len(one)])
        when_there(self._tie, patience=INSTANCE, say=_say_waiting)
        self._begun = True  # a signal may end the process in the middle of the next line
        self._share.start()
        self.manager.wait_for_cycle(1, FIRST_OWNERSHIP_WAIT)

    def close(self) -> None:
        """Stop renewing and relinquish, as far as the store can be reached in time; record what the tables hold."""
        self._unwatch()
        if not self._begun:
            self.hub.close()
            return
        batch = self._in_flight
        try:
            self._record_applied()
            if not self._in_flight:
                self._tell_done(batch)
        finally:
            ended = f"{self.manager.owner_id} ended in the middle of a batch"
            self._share.close({one.partition: ended for one in self._in_flight})

    def record_committed(self, ranges: Sequence[ReadRange]) -> None:
        """Write checkpoints for ranges that Spark has committed, each only at the level that it carries.

        A store that is away costs nothing: Spark names the same ranges again on the next trigger.
        """
        self._unwatch()
        self._tell_done()
        self._in_flight = ()
        recorded = self._share.record(ranges)
        self._share.note_progress()
        if recorded:
            self._share.let_go({(one.partition, one.owner_level) for one in ranges if not self._share.is_recorded(one)})

    def _tell_done(self, batch: Sequence[ReadRange] | None = None) -> None:
        """The batch at hand, if there is one, has been committed."""
        if events := sum(map(len, self._in_flight if batch is None else batch)):
            seconds = {"plan": self._planning, "body": self._clock.monotonic() - self._last_batch}
            self.manager.notices.publish(BatchDone(events, seconds))

    def plan(self, last: Sequence[ReadRange], limit: int | None, bounds: Mapping[str, int] | None) -> Plan | None:
        """The ranges to read next, or None while the hub is away or too little has come."""
        started = self._clock.monotonic()
        held = self._share.held()
        properties = self._share.properties()
        if properties is None:
            return None
        self._properties = properties
        planned = self._plan(last, held, limit, bounds)
        mean = self._scales.weigh(planned.ranges)
        planned = self._plan(last, held, limit, bounds, mean=mean)
        if planned.losses:  # the table may hold what is gone: the query ended between its commit and the checkpoint
            planned = self._plan(last, held, limit, bounds, self._share.applied(), mean)
        self._report_losses(planned)
        self._pass_gaps(planned)
        self._position = {one.partition: one.end for one in planned.ranges}
        if not planned.has_news:
            return None
        if not planned.losses and bounds is None and self._too_few(last, planned, held):
            return None
        planned = replace(planned, ranges=self._scales.timed(planned.ranges, self._clock.monotonic(), self._properties))
        self._last_batch = self._clock.monotonic()
        self._planning = self._last_batch - started
        self._in_flight = tuple(one for one in planned.ranges if len(one))
        self._watch_over()
        unread = {one.partition: self._properties[one.partition].end - one.start for one in planned.ranges}
        self._waited = next_waited({one.partition: len(one) for one in planned.ranges}, unread, self._waited)
        return planned

    def _plan(
        self,
        last: Sequence[ReadRange],
        held: Mapping[str, Plannable],
        limit: int | None,
        bounds: Mapping[str, int] | None,
        applied: Mapping[str, int] | None = None,
        mean: Mapping[str, float] | None = None,
    ) -> Plan:
        return plan(
            last,
            held,
            self._properties,
            limit=limit,
            bounds=bounds,
            waited=self._waited,
            weights=Weights(self._options.max_bytes_per_trigger, mean) if mean else None,
            applied=applied,
        )

    def _report_losses(self, planned: Plan) -> None:
        if planned.losses and self._options.fail_on_data_loss:
            raise data_loss(planned.losses)
        for loss in planned.losses:
            self._lost_events += loss.end - loss.start
            self.manager.notices.publish(EventsLost(loss.partition, loss.start, loss.end))
            logger.warning("partition %s: events [%d, %d) are gone from the hub", loss.partition, loss.start, loss.end)

    def _pass_gaps(self, planned: Plan) -> None:
        """Record at once that what is gone was told: no event of it will ever be in a batch, or in a table.

        Not where a table has every event behind its watermark still to come: it would take the gap for events that it
        lacks. The batch that follows is the first one of a query then, and says otherwise.
        """
        if not planned.losses or is_mixed(self._options.hub):
            return
        try:
            marks = {} if self._tables is None else self._tables.watermarks(self.hub.identity)
        except LeaseholdError as error:
            logger.warning("the gap is recorded with the batch: %s", error)
            return
        passed = {loss.partition: loss.end for loss in planned.losses}
        whole = {partition for partition, mark in marks.items() if mark.whole}
        self._share.record(
            [
                replace(one, start=passed[one.partition], end=passed[one.partition], enqueued=None)
                for one in planned.ranges
                if one.partition in passed.keys() - whole
            ]
        )

    def _too_few(self, last: Sequence[ReadRange], planned: Plan, held: Mapping[str, Plannable]) -> bool:
        wanted = self._options.min_events_per_trigger
        if wanted is None or self._clock.monotonic() - self._last_batch >= self._options.max_trigger_delay:
            return False
        return sum(map(len, planned.ranges)) < wanted

    # What the tables are asked

    def _tie(self) -> None:
        """Tie the group to the pipeline and its first table, as every reader of it does before its first claim."""
        share, tables = self._share, self._tables
        if tables is None:
            tie(share.group, share.checkpoints, self._options.pipeline)
            return
        binding = PipelineBinding(self._options.pipeline, self._options.tables[0].identity)
        identity = share.hub.identity
        check_start(share.group, share.checkpoints, binding, lambda: tables.watermarks(identity))

    def _record_applied(self) -> None:
        """Record what the tables hold of the last batch: Spark has not said that it is committed, and will not."""
        try:
            marks = {} if self._tables is None else self._tables.watermarks(self.hub.identity)
            done = []
            for one in self._in_flight:
                mark = marks.get(one.partition)
                if mark is not None and mark.owner_level == one.owner_level and mark.sequence_number >= one.start:
                    end = min(one.end, mark.sequence_number + 1)
                    done.append(replace(one, end=end, enqueued=one.enqueued if end == one.end else None))
            if self._share.record(done):
                finished = {one.partition: one.end for one in done}
                self._in_flight = tuple(one for one in self._in_flight if finished.get(one.partition) != one.end)
        except LeaseholdError as error:
            logger.warning("what was applied last is not recorded, and will be read once more: %s", error)

    # What is watched

    def _watch_over(self) -> None:
        stall = self._options.settings.stall_timeout
        # A little before the manager would drop what is held without a word of why.
        self._watch = threading.Timer(stall - min(1.0, 0.05 * stall), self._give_up, [self._in_flight])
        self._watch.daemon = True
        self._watch.start()

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
            self.manager.hold_no_more(False)

    def _give_up(self, ranges: Sequence[ReadRange]) -> None:
        """The batch at hand hangs: say so, and let its partitions go with that on record, so that they are suspects."""
        said = ", ".join(f"partition {one.partition} [{one.start}, {one.end})" for one in ranges)
        error = f"no progress for the stall timeout ({span(self._options.settings.stall_timeout)}): {said}"
        logger.error(
            "%s. A transform or the function of foreachBatch hangs, or has ended its thread by sys.exit", error
        )
        self.manager.hold_no_more(True)
        for one in ranges:
            self.manager.give_up(one.partition, one.owner_level, error[:_LONGEST_ERROR])

    # With an end

    def ends(self) -> dict[str, int]:
        """The end of every partition that concerns this instance, now."""
        return self._share.ends()

    def all_reached(self, bounds: Mapping[str, int]) -> bool:
        """Whether every partition's checkpoint, whoever owns it, has reached its bound."""
        left = self._share.unconsumed(bounds)
        if left:
            self._pass_on(bounds.keys() - set(left))
        return not left

    def _pass_on(self, done: Collection[str]) -> None:
        """Where this instance may hold only some, those that are consumed keep others from their turn."""
        if self._options.settings.maximum_partitions is not None:
            for partition, hold in self._share.held().items():
                if partition in done:
                    self.manager.finish(partition, hold.owner_level)

    def report(self) -> dict[str, Any]:
        """Ownership and lag, for the query's progress."""
        held = self.manager.held()
        partitions = {}
        for partition, hold in sorted(held.items()):
            known = self._properties.get(partition)
            position = self._position.get(partition, hold.start)
            lag = max(0, known.end - position) if known else None
            partitions[partition] = {"ownerLevel": hold.owner_level, "position": position, "lag": lag}
        return {
            "ownerId": str(self.manager.owner_id),
            "owned": len(held),
            "partitionCount": len(self._properties),
            "lag": sum(entry["lag"] or 0 for entry in partitions.values()),
            "lostEvents": self._lost_events,
            "partitions": partitions,
        }


_LONGEST_ERROR = 500
"""How many characters of an error are kept with the partitions that it ended the work on."""


def _say_waiting(error: LeaseholdError, patience: float) -> None:
    logger.warning("%s", sentence(error, patience))
