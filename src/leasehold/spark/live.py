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
from collections.abc import Mapping, Sequence
from typing import Any

from leasehold.errors import DataLoss, HubUnavailable, StoreUnavailable
from leasehold.model import PartitionProperties
from leasehold.notices import EventsLost
from leasehold.spark.offsets import Held, Plan, Range, next_waited, plan
from leasehold.spark.options import SourceOptions
from leasehold.spark.share import Share, instance_name

logger = logging.getLogger(__name__)


class LiveStream:
    """One streaming query's share of a hub. Made, used and closed in the query's source process."""

    def __init__(self, options: SourceOptions) -> None:
        parent = os.getppid()
        self._options = options
        self._share = Share(
            options,
            owner_name=instance_name(options, parent),
            alive=lambda: os.getppid() == parent,
        )
        self.hub, self.manager, self._clock = self._share.hub, self._share.manager, self._share.clock
        self._properties: dict[str, PartitionProperties] = {}
        self._position: dict[str, int] = {}
        self._waited: dict[str, int] = {}
        self._lost_events = 0
        self._in_flight: frozenset[str] = frozenset()
        self._last_batch = self._clock.monotonic()
        self._share.start()

    def close(self) -> None:
        """Stop renewing and relinquish, as far as the store can be reached in time."""
        self._share.close(dict.fromkeys(self._in_flight, f"{self.manager.owner_id} ended in the middle of a batch"))

    def record_committed(self, ranges: Sequence[Range]) -> None:
        """Write checkpoints for ranges that Spark has committed, each only at the level that it carries.

        A store that is away costs nothing: Spark names the same ranges again on the next trigger.
        """
        self._in_flight = frozenset()
        recorded = self._share.record(ranges)
        self._share.note_progress()
        if recorded:
            self._share.let_go({(one.partition, one.owner_level) for one in ranges if not self._share.is_recorded(one)})

    def plan(self, last: Sequence[Range], limit: int | None, bounds: Mapping[str, int] | None) -> Plan | None:
        """The ranges to read next, or None while the hub is away or too little has come."""
        held = self._share.held()
        try:
            self._properties = self.hub.partition_properties()
        except HubUnavailable as error:
            logger.warning("no new events are planned: %s", error)
            return None
        planned = plan(last, held, self._properties, limit=limit, bounds=bounds, waited=self._waited)
        self._report_losses(planned)
        self._position = {one.partition: one.end for one in planned.ranges}
        if not planned.has_events or (bounds is None and self._too_few(last, planned, held)):
            return None
        self._last_batch = self._clock.monotonic()
        self._in_flight = frozenset(one.partition for one in planned.ranges if len(one))
        unread = {one.partition: self._properties[one.partition].end - one.start for one in planned.ranges}
        self._waited = next_waited({one.partition: len(one) for one in planned.ranges}, unread, self._waited)
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
        """The end of every partition that concerns this instance, now."""
        return self._share.ends()

    def all_reached(self, bounds: Mapping[str, int]) -> bool:
        """Whether every partition's checkpoint, whoever owns it, has reached its bound."""
        try:
            listed = self._share.checkpoints.list_checkpoints(self._share.group)
            reached = {checkpoint.partition: checkpoint.next_sequence_number for checkpoint in listed}
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
