"""The running part of a streaming query's source: what its driver-side process holds and does.

Owns the hub, the stores, the partition manager and its thread, in the one long-lived Python process that
Spark keeps per query. Promises that a range is planned only for a partition that is held and trusted, that a
checkpoint is written only for what Spark has committed, that a partition which another instance asks for is let go
as soon as all that was planned of it is in its checkpoint, and that nothing is renewed once the JVM is gone or Spark
has asked for nothing for the stall timeout.

Concurrency: Spark calls from the process's main thread only, one call at a time; the dispatch thread runs
beside it (see `processor.partition_manager`). If this process stops for a minute between planning a range and
its being read, the range is read all the same, and the sink drops it if another owner's batch came first.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from leasehold.clock import SystemClock
from leasehold.errors import DataLoss, HubUnavailable, StoreUnavailable
from leasehold.hubs import open_hub
from leasehold.hubs.base import learn_offsets, offset_of
from leasehold.model import Checkpoint, OwnerId, PartitionProperties
from leasehold.notices import EventsLost
from leasehold.processor import DispatchThread, PartitionManager
from leasehold.spark.offsets import Held, Plan, Range, plan
from leasehold.spark.options import SourceOptions, check_tasks, require_stores
from leasehold.stores import open_store

logger = logging.getLogger(__name__)


class LiveStream:
    """One streaming query's share of a hub. Made, used and closed in the query's source process."""

    def __init__(self, options: SourceOptions) -> None:
        ownership_url, checkpoint_url = require_stores(options)
        timeout = options.settings.request_timeout
        self._options = options
        self._clock = SystemClock()
        self.hub = open_hub(options.hub)
        self._group = self.hub.consumer_group(options.consumer_group)
        ownership = open_store(ownership_url, timeout=timeout)
        self._checkpoints = open_store(checkpoint_url, timeout=timeout)
        check_tasks(options, self.hub, self._group.name)
        self.manager = PartitionManager(
            self.hub,
            self._group,
            ownership,
            self._checkpoints,
            owner_id=OwnerId(options.owner_id or f"{socket.gethostname()}-{os.getppid()}"),
            settings=options.settings,
            positions=options.starting_position,
            clock=self._clock,
            rng=Random(),
            pipeline=options.pipeline,
            last_error=options.last_error,
        )
        self._written: dict[tuple[str, int], int] = {}
        self._properties: dict[str, PartitionProperties] = {}
        self._position: dict[str, int] = {}
        self._lost_events = 0
        self._in_flight: frozenset[str] = frozenset()
        self._last_batch = self._clock.monotonic()
        parent = os.getppid()
        self._thread = DispatchThread(self.manager, clock=self._clock, alive=lambda: os.getppid() == parent)
        self._thread.start()

    def close(self) -> None:
        """Stop renewing and relinquish, as far as the store can be reached in time."""
        errors = dict.fromkeys(self._in_flight, f"{self.manager.owner_id} ended in the middle of a batch")
        self._thread.stop(timeout=2 * self._options.settings.request_timeout, errors=errors)
        self.hub.close()

    def record_committed(self, ranges: Sequence[Range]) -> None:
        """Write checkpoints for ranges that Spark has committed, each only at the level that it carries.

        A store that is away costs nothing: Spark names the same ranges again on the next trigger.
        """
        self._in_flight = frozenset()
        due = [one for one in ranges if self._written.get((one.partition, one.owner_level)) != one.end]
        # The events were read by executors, and there is no way from them to here.
        learn_offsets(self.hub, {one.partition: one.end - 1 for one in due if self._holds(one)})
        try:
            recorded = self.manager.update_checkpoints([self._checkpoint(one) for one in due], also_lapsed=True)
        except StoreUnavailable as error:
            logger.warning("checkpoints wait: %s", error)
            return
        finally:
            self._note_progress()
        for checkpoint in recorded:
            self._written[checkpoint.partition, checkpoint.owner_level] = checkpoint.next_sequence_number
        self._let_go(ranges)

    def _holds(self, one: Range) -> bool:
        hold = self.manager.held().get(one.partition)
        return hold is not None and hold.owner_level == one.owner_level

    def _note_progress(self) -> None:
        """After the checkpoints are written: what is acquired anew starts where they say."""
        if self.manager.note_progress():
            # Triggers may be further apart than the stall timeout: without waiting, each would find nothing held.
            settings = self._options.settings
            patience = settings.load_balancing_interval + settings.request_timeout
            self.manager.wait_for_cycle(self.manager.cycles + 1, patience)

    def _checkpoint(self, done: Range) -> Checkpoint:
        last = done.end - 1
        offset = offset_of(self.hub, done.partition, last)
        return Checkpoint(self._group, done.partition, last, done.owner_level, offset)

    def _let_go(self, committed: Sequence[Range]) -> None:
        """Give up what others have asked for: nothing of it is under way, and all of it is recorded."""
        reached = {(one.partition, one.owner_level): one.end for one in committed}
        for partition, hold in self.manager.held().items():
            key = partition, hold.owner_level
            if hold.asked_by and (key not in reached or self._written.get(key) == reached[key]):
                self.manager.let_go(partition, hold.owner_level)

    def plan(self, last: Sequence[Range], limit: int | None, bounds: Mapping[str, int] | None) -> Plan | None:
        """The ranges to read next, or None while the hub is away or too little has come."""
        held = {p: Held(hold.owner_level, hold.start) for p, hold in self.manager.held().items()}
        try:
            self._properties = self.hub.partition_properties()
        except HubUnavailable as error:
            logger.warning("no new events are planned: %s", error)
            return None
        planned = plan(last, held, self._properties, limit=limit, bounds=bounds)
        self._report_losses(planned)
        self._position = {one.partition: one.end for one in planned.ranges}
        if not planned.has_events or (bounds is None and self._too_few(last, planned, held)):
            return None
        self._last_batch = self._clock.monotonic()
        self._in_flight = frozenset(one.partition for one in planned.ranges if len(one))
        return planned

    def _report_losses(self, planned: Plan) -> None:
        for loss in planned.losses:
            if self._options.fail_on_data_loss:
                raise DataLoss(loss.partition, loss.start, loss.end)
            self._lost_events += loss.end - loss.start
            self.manager.notices.publish(EventsLost(loss.partition, loss.start, loss.end))
            logger.warning("partition %s: events [%d, %d) are gone from the hub", loss.partition, loss.start, loss.end)

    def _too_few(self, last: Sequence[Range], planned: Plan, held: Mapping[str, Held]) -> bool:
        wanted = self._options.min_events_per_trigger
        if wanted is None or self._clock.monotonic() - self._last_batch >= self._options.max_trigger_delay:
            return False
        return sum(map(len, planned.ranges)) < wanted

    def ends(self) -> dict[str, int]:
        """The end of every partition now."""
        return {partition: known.end for partition, known in self.hub.partition_properties().items()}

    def all_reached(self, bounds: Mapping[str, int]) -> bool:
        """Whether every partition's checkpoint, whoever owns it, has reached its bound."""
        try:
            reached = {c.partition: c.next_sequence_number for c in self._checkpoints.list_checkpoints(self._group)}
            begins = {p: known.begin for p, known in self.hub.partition_properties().items()}
        except (StoreUnavailable, HubUnavailable) as error:
            logger.warning("cannot tell whether all is consumed: %s", error)
            return False
        return all(max(reached.get(p, -1), begins.get(p, -1)) >= bound for p, bound in bounds.items())

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
