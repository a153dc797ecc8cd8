"""One instance's share of a hub's partitions, as the Spark side holds it: for the loop and for the source.

Owns the hub, the stores, the partition manager and its thread. Promises that a checkpoint is written only for what its
caller says has been committed, at the level that it carries, and that a partition which another instance asks for is
given up only when all that was planned of it is in its checkpoint. A hub that is away when it is made is waited for.
Refuses stores, hub and settings that do not go together.

Concurrency: one thread plans and records; the dispatch thread runs beside it (see `ownership.partition_manager`). If
this process stops for a minute between planning a range and its being read, the range is read all the same, and the
sink drops it if another owner's batch came first.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Protocol, TypeVar

from leasehold.balancing.hand_over import HandOverStep, owner_step
from leasehold.clock import Clock, SystemClock
from leasehold.errors import HubError, LeaseholdError, MissingDependency, SinkError, StoreError, Verdict, is_waited_out
from leasehold.hubs import open_hub
from leasehold.listening import Address
from leasehold.model import BEFORE_FIRST, Checkpoint, OwnerId, PartitionProperties
from leasehold.notices import Notices
from leasehold.ownership import DispatchThread, PartitionManager, Purpose
from leasehold.ownership.consumed import unconsumed
from leasehold.ownership.naming import unnamed
from leasehold.ownership.starting import KnowsWatermarks
from leasehold.runtime import Runtime
from leasehold.spark.plan.offsets import Plannable, ReadRange
from leasehold.spark.plan.options import SourceOptions, check_tasks, require_stores
from leasehold.store_choice import TablePlaces, open_stores
from leasehold.stores import open_store
from leasehold.told import Outage
from leasehold.waiting import INSTANCE, Say, sentence, when_there

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_OWNERSHIP_WAIT = 5.0
"""Seconds that a start waits for the first dispatch cycle, so that the first look for events finds some owned."""


def instance_name(options: SourceOptions, process: int) -> str:
    """What an instance is called: as it was told, or like no other, by the id of the application's process."""
    return options.owner_id or unnamed(process)


def _warn(error: LeaseholdError, patience: float) -> None:
    logger.warning("%s", sentence(error, patience))


class _Server(Protocol):
    def close(self) -> None: ...


def _served(notices: Notices, listen: Address) -> _Server:
    """Serve what the notices tell. Named by text, as a backend is: nothing here imports an exporter."""
    try:
        module = importlib.import_module("leasehold.metrics.instance_server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "prometheus_client":
            raise MissingDependency("metricsListen", "metrics") from error
        raise
    server: _Server = module.MetricsServer([notices], listen, field="metricsListen")
    if not listen.is_loopback:
        logger.warning(
            "metrics are served at %s: other machines may reach it, and nobody is asked who they are", listen
        )
    return server


class Share:
    """A hub, its stores, and the partitions that are held of it. `start` begins to hold, `close` gives all up.

    `table` is asked for its watermarks where a checkpoint is missing: a partition that it knows is not new. `delayed`
    is told of a hub that is away and waited for, `pause` waits between two tries (see `waiting.when_there`).
    `notices` is where notices go; default: its own.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        owner_name: str,
        alive: Callable[[], bool],
        table: KnowsWatermarks | None = None,
        delayed: Say | None = None,
        pause: Callable[[float], object] = time.sleep,
        notices: Notices | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self.options = options
        self.table = table
        self.clock = clock or SystemClock()
        self._delayed, self._pause = delayed or _warn, pause
        self.hub = self.when_there(partial(open_hub, options.hub))
        self.group = self.hub.consumer_group(options.consumer_group)
        rng = rng or Random()
        self.stores = open_stores(
            *require_stores(options),
            options.partitions,
            partial(open_store, timeout=options.settings.request_timeout),
            places=None if table is None else TablePlaces(table, self.hub.identity),
            report=self._note_taken,
            clock=self.clock,
            rng=rng,
        )
        self.ownership, self.checkpoints = self.stores.ownership, self.stores.checkpoints
        self._taken: dict[str, BaseException] = {}
        check_tasks(options, self.hub, self.group.name)
        self.manager = PartitionManager(
            self.hub,
            self.group,
            self.ownership,
            self.checkpoints,
            owner_id=OwnerId(owner_name),
            settings=options.settings,
            positions=options.starting_position,
            runtime=Runtime(clock=self.clock, rng=rng, notices=notices or Notices()),
            purpose=Purpose(pipeline=options.pipeline, share=self.stores.ours, table=table),
            last_error=options.last_error,
        )
        self._checkpoints_wait = Outage(
            logger, "checkpoints wait until their store is there: %s", "checkpoints are written again"
        )
        self._hub_away = Outage(
            logger,
            "nothing is read, and what is held stays held, while the hub is away: %s",
            "the hub is there again",
        )
        self._hub_answered = False
        self._end_unknown = Outage(
            logger, "cannot tell whether all is consumed: %s", "whether all is consumed can be told again"
        )
        self._written: dict[tuple[str, int], int] = {}
        self._times: dict[str, tuple[int, float]] = {}
        self._server: _Server | None = None
        self.waits_for_people = True
        """Whether a checkpoint may wait until a person has mended its store: not where there is an end to come to."""
        self._thread = DispatchThread(self.manager, clock=self.clock, alive=alive)

    def when_there(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, at this instance's start: what is away is waited for."""
        return when_there(ask, patience=INSTANCE, say=self._delayed, clock=self.clock, pause=self._pause)

    def start(self) -> None:
        """Begin to hold partitions, and to serve metrics if that was asked for."""
        if self.options.metrics_listen is not None:
            self._server = _served(self.manager.notices, self.options.metrics_listen)
        self._thread.start()

    def close(self, errors: Mapping[str, str] | None = None) -> None:
        """Stop renewing and relinquish, as far as the store can be reached in time.

        `errors` say what ended the work on a partition, where it did not end well.
        """
        self._thread.stop(timeout=2 * self.options.settings.request_timeout, errors=errors or {})
        if self._server is not None:
            self._server.close()
        self.hub.close()

    def held(self, *, with_asked: bool = True) -> dict[str, Plannable]:
        """What is held and trusted now, and where it starts; `with_asked`: also what others have asked for.

        Raises what keeps this instance from working, if there is one: also that nothing is left of a
        fixed share.
        """
        if self._taken and self._taken.keys() >= set(self.options.partitions or ()):
            raise next(iter(self._taken.values()))
        holds = self.manager.held().items()
        return {p: Plannable(hold.owner_level, hold.start) for p, hold in holds if with_asked or not hold.asked_by}

    def trusts(self, partition: str, owner_level: int) -> bool:
        """Whether the partition is held at this level, and trusted now. From any thread."""
        with suppress(LeaseholdError):  # what keeps this instance from working
            hold = self.manager.held().get(partition)
            return hold is not None and hold.owner_level == owner_level
        return False

    def record(self, committed: Sequence[ReadRange]) -> bool:
        """Write the checkpoints of ranges that are committed. Returns whether the store could be reached.

        Each is written only at the level that it carries, also if that is no longer held: the store refuses it if
        another level has been there. May be called again for what is written already, at no cost.
        """
        due = [one for one in committed if not self.is_recorded(one)]
        if not self.stores.keeps_checkpoints:
            self._note_written(due)
            return True
        # The events were read by tasks, and there is no way from them to here.
        self.hub.learn_offsets(
            {one.partition: one.end - 1 for one in due if self.trusts(one.partition, one.owner_level)}
        )
        try:
            self.manager.update_checkpoints([self._checkpoint(one) for one in due], also_lapsed=True)
        except StoreError as error:
            if not is_waited_out(error, worked=bool(self._written) and self.waits_for_people):
                raise
            self._checkpoints_wait.note(error)
            return False
        if due:
            self._checkpoints_wait.note(None)
        # What the store refused counts too: a higher level has been there, and it would refuse it again.
        self._note_written(due)
        return True

    def note_times(self, times: Mapping[str, tuple[int, float]]) -> None:
        """Know the last event that was read of these partitions, and when it was enqueued, for their checkpoints."""
        self._times.update(times)

    def note_progress(self) -> None:
        """The work goes on. If it had stalled, wait for the next cycle: only then is something held again."""
        if self.manager.note_progress():
            # Batches may be further apart than the stall timeout: without waiting, each would find nothing held.
            settings = self.options.settings
            patience = settings.load_balancing_interval + settings.request_timeout
            self.manager.wait_for_cycle(self.manager.cycles + 1, patience)

    def is_recorded(self, range_: ReadRange) -> bool:
        """Whether the checkpoint of this range has been written, or refused for good."""
        return self._written.get((range_.partition, range_.owner_level)) == range_.end

    def let_go(self, busy: Collection[tuple[str, int]]) -> None:
        """Give up what others have asked for, but for what is `busy`: partitions with their owner levels."""
        for partition, hold in self.manager.held().items():
            drained = (partition, hold.owner_level) not in busy
            if owner_step(has_asker=bool(hold.asked_by), drained=drained) is HandOverStep.HAND_OVER:
                self.manager.let_go(partition, hold.owner_level)

    def level_of(self, hub: str, partition: str) -> int | None:
        """The owner level that is on record for a partition, None if there is none."""
        return self.stores.level_of(self.group, partition)

    def properties(self) -> Mapping[str, PartitionProperties] | None:
        """What the hub has of each partition now; None while it is away, which is said once."""
        try:
            known = self.hub.partition_properties()
        except HubError as error:
            if not is_waited_out(error, worked=self._hub_answered):
                raise
            self._hub_away.note(error)
            return None
        self._hub_away.note(None)
        self._hub_answered = True
        return known

    def ends(self) -> dict[str, int]:
        """The end of every partition that concerns this instance, now."""
        known = self.hub.partition_properties()
        return {partition: known[partition].end for partition in self.stores.ours(known)}

    def unconsumed(self, ends: Mapping[str, int]) -> list[str]:
        """The partitions whose checkpoint, whoever owns them, has not reached its end.

        All of them while that cannot be told, which is said once.
        """
        try:
            listed = self.checkpoints.list_checkpoints(self.group)
            left = unconsumed(ends, listed, self.hub.partition_properties())
        except (StoreError, HubError) as error:
            if error.verdict is not Verdict.PASSES:  # where there is an end to come to, nobody waits for a person
                raise
            self._end_unknown.note(error)
            return sorted(ends)
        self._end_unknown.note(None)
        return list(left)

    @property
    def is_away(self) -> bool:
        """Whether the hub was away at the last look, or what says whether all is consumed."""
        return self._hub_away.lasts or self._end_unknown.lasts

    def _note_written(self, due: Sequence[ReadRange]) -> None:
        self._written.update({(one.partition, one.owner_level): one.end for one in due})

    def _note_taken(self, error: BaseException, partition: str | None) -> None:
        """Another instance has started with this partition in its fixed share."""
        logger.error("%s", error)
        if partition is not None:
            self._taken[partition] = error

    def applied(self) -> dict[str, int]:
        """The first event behind what the table holds, by partition; nothing where no table is known, or it is away."""
        try:
            marks = {} if self.table is None else self.table.watermarks(self.hub.identity)
        except SinkError as error:
            logger.warning("how far the table is cannot be told: %s", error)
            return {}
        return {partition: mark.sequence_number + 1 for partition, mark in marks.items() if not mark.disputed}

    def _checkpoint(self, done: ReadRange) -> Checkpoint:
        last = done.end - 1
        number, at = self._times.get(done.partition, (BEFORE_FIRST, 0.0))
        return Checkpoint(
            *(self.group, done.partition, last, done.owner_level, self.hub.offset_of(done.partition, last)),
            enqueued_time=at if done.start <= number <= last else done.enqueued,
        )
