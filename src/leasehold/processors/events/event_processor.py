"""The plain processor: this process's share of a hub's events, for use without Spark.

Owns the threads, and which partition has which. Promises that handlers of one partition run one after another, from
start handler to stop handler, also when the partition is lost and comes back; that a partition ends in one order
(drain, stop handler, checkpoint, relinquish); that no handler is interrupted, and none delays a renewal; and that
`stop` returns True only when every thread that calls anything of yours has ended. Refuses to give up a partition under
a handler that runs, with one exception: a handler that has not returned for the stall timeout counts as hung.

    dispatch thread   renews, claims, relinquishes (`dispatch`, `partition_manager`); calls nothing of yours but
                      subscribers of `notices` and the function for start positions
    oversight         begins the work on what is held, looks after hung handlers, ends everything (`oversight`)
    pump              one for each partition held: your handlers (with `next_partition_client` it is your own thread)
    fetching          one for each partition held: the events ahead of the handler
    hub watch         looks for new events, for all partitions at once
    errors            calls `on_error`

If the process stops for a minute, all of them do, and what is held is not trusted when it goes on: see `partition_work`
for the handlers, `partition_manager` for the rest. If one thread alone hangs for a minute
- the dispatch thread (in a store): trust runs out, pumps stop at their next look, and handlers may go on without trust;
- the oversight (it calls nothing that waits but at the end): partitions that come are begun late; from the stall
  timeout on nothing is renewed any more;
- a pump (in your handler): its partition waits; it stays held and trusted until the stall timeout;
- a fetching thread or the hub watch (in the hub): handlers find nothing to do;
- the errors: what is reported waits, and so does the end.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType

from leasehold.config import OwnershipSettings, check_given
from leasehold.errors import ConfigError, LeaseholdError, UsageError
from leasehold.hubs import Hub
from leasehold.model import Checkpoint, ConsumerGroup, OwnerId, Ownership
from leasehold.notices import CycleFailed, HandOverAsked, OwnershipClaimed, OwnershipLost, StartDelayed
from leasehold.ownership import Purpose
from leasehold.ownership.consumed import NO_END
from leasehold.ownership.dispatch import DispatchThread
from leasehold.ownership.naming import unnamed
from leasehold.ownership.partition_manager import PartitionManager
from leasehold.ownership.starting import check_spec, check_start, confirm
from leasehold.processors.events.arguments import (
    Stores,
    handlers_of,
    keeps_checkpoints,
    opened_hub,
    policy_of,
    share_of,
    stores_of,
    table_of,
)
from leasehold.processors.events.available_now import AvailableNow, Consumption
from leasehold.processors.events.cancelling import Cancellation
from leasehold.processors.events.checkpointer import CheckpointPolicy
from leasehold.processors.events.delivery import DeliverySettings
from leasehold.processors.events.error_reports import ErrorReports
from leasehold.processors.events.fixed_partitions import FixedPartitions
from leasehold.processors.events.handlers import BringsHandlers, Handlers, OnEvents
from leasehold.processors.events.hub_watch import HubWatch
from leasehold.processors.events.leaving import as_exit
from leasehold.processors.events.oversight import Oversight
from leasehold.processors.events.partition_client import PartitionClient
from leasehold.processors.events.partition_work import PartitionWork
from leasehold.processors.events.positions import positions_of
from leasehold.processors.events.shared import SharedByPartitions
from leasehold.processors.events.signals import Attention, LockingCalls, terminating
from leasehold.runtime import Runtime
from leasehold.sinks.base import Sink
from leasehold.stores.base import PipelineBinding
from leasehold.waiting import sentence, when_there

logger = logging.getLogger(__name__)


class EventProcessor:
    """Processes the events of a hub together with all other processors of its consumer group.

    `hub` is a hub or its URL; `stores` a store for ownership and checkpoints, or a pair, each a store or its URL. With
    (OWNERSHIP, None) nothing is remembered: each acquisition begins at the start, and there are no checkpoints.
    Without a handler for events, take partitions with `next_partition_client`.

    on_events           a function that is called with an `EventBatch` and a `PartitionContext`; or `Handlers(…)`, which
                        may have others beside it; or a `HandledTable`, which brings its own and its table
    consumer_group      who reads together
    name                of this instance, and of no other that runs; a new one of the name takes the old one's
                        partitions at once. Default: host, process id and a random number, so that no two are alike
    ownership           how partitions are held, and how many at most: `OwnershipSettings(…)`. Or `FixedPartitions(…)`:
                        a fixed share in place of balancing, and no ownership store. `stores` is one for checkpoints
                        then, or (None, CHECKPOINTS)
    delivery            where a group begins, batches, prefetch, checkpoints, and what happens after failures
    pipeline            what this instance works for: two that name different ones do not share a group
    table               the table that the handlers write to, as its sink, which names the same consumer group, and the
                        pipeline if one is named here. The group belongs to this pipeline and table from the first start
                        on. Each start asks the table whether the stores still know what it knows, before anything is
                        claimed, and a claim that finds no checkpoint goes on behind what it holds: a store that was
                        wiped does not make the group a new one
    runtime             time, chance for jitter, and notices, which are `processor.notices`

    Use it as a context manager, or call `run`, or `start` and `stop`. A processor runs once. Handlers of different
    partitions run at the same time.
    """

    def __init__(
        self,
        hub: Hub | str,
        stores: Stores,
        on_events: OnEvents | Handlers | BringsHandlers | None = None,
        *,
        consumer_group: str | None = "$Default",
        name: str | None = "",
        ownership: OwnershipSettings | FixedPartitions | None = None,
        delivery: DeliverySettings | None = None,
        pipeline: str | None = "",
        table: Sink | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        check_given("hub", hub)
        handlers = handlers_of(on_events)
        self._handlers = handlers if handlers.take_events else None
        self._delivery = delivery = delivery or DeliverySettings()
        positions = positions_of(delivery.start)
        runtime = runtime or Runtime()
        self._clock, self.notices = runtime.clock, runtime.notices
        self._errors = ErrorReports(handlers.on_error, self._clock, lambda error: self._oversight.leave(error))
        self._settings, self._share = share_of(ownership, self._errors.report, runtime)
        self._ownership, self._checkpoints = stores_of(stores, self._settings.request_timeout, self._share)
        kept = keeps_checkpoints(self._checkpoints, table)
        policy = policy_of(delivery.checkpoint, pulls=self._handlers is None, kept=kept)
        if delivery.available_now and policy.on_stop:  # the end is told by checkpoints
            policy = replace(policy, seconds=min(policy.seconds or 1.0, 1.0))
        table = table_of(on_events, table) if kept else None
        self._table, self._patience = table, delivery.patience
        self._hub, self._group = self._found(hub, "$Default" if consumer_group is None else consumer_group)
        self._opened = self._hub if isinstance(hub, str) else None
        if table is not None:
            check_spec(table.spec, pipeline or "", self._group)
        left = None if self._share is None else self._share.left
        self._manager = PartitionManager(
            self._hub,
            self._group,
            self._ownership,
            self._checkpoints,
            owner_id=OwnerId(name or unnamed()),
            settings=self._settings,
            positions=positions,
            runtime=runtime,
            purpose=Purpose(pipeline=pipeline or "", table=table, share=left, reads_here=True),
        )
        self._has_end = self._end_of(kept, left) if delivery.available_now else None
        self._dispatch = DispatchThread(self._manager, clock=self._clock)
        self._watch = HubWatch(self._hub, delivery, self._errors.report)
        self._lock = threading.RLock()  # a signal handler may stop in the thread that is about to start or stop
        self._calls = LockingCalls()
        self._unsubscribe: list[Callable[[], None]] = []
        self._started = False
        self._unconfirmed: PipelineBinding | None = None
        """What the start has tied the group to, until the first partition is worked on."""
        self._attention = Attention()
        self._oversight = self._overseeing(policy)

    @property
    def owner_id(self) -> OwnerId:
        """The unique name of this instance."""
        return self._manager.owner_id

    @property
    def partitions(self) -> dict[str, int]:
        """The partitions held and trusted at this moment, with their owner levels."""
        try:
            return {partition: hold.owner_level for partition, hold in self._manager.held().items()}
        except LeaseholdError:
            return {}

    @property
    def running(self) -> bool:
        """Whether it has been started, and not everything has ended yet."""
        return self._started and not self._oversight.ended

    def start(self) -> None:
        """Start the threads, and return.

        Raises `UsageError` if it was started or stopped before. With a `table`, `AlreadyInUse` where the group belongs
        to another pipeline or table, `OwnerLevelWentBack`, `EventsMissing` where stores and table do not belong
        together, `StoreUnavailable` if they cannot be asked within `patience`.
        """
        if not self._stopped_first():
            when_there(self._look_first, patience=self._patience, say=self._say_delayed, clock=self._clock)
        with self._calls.entered(), self._lock:
            if self._stopped_first():
                raise UsageError("it was stopped before it was started: make another one")
            if self._started:
                raise UsageError("a processor runs once: make another one to start again")
            try:
                self._started = True
                self._oversight.start()
            except BaseException:  # Ctrl-C: what has begun ends in order
                self._oversight.abandon()
                raise

    def stop(self, timeout: float | None = None) -> bool:
        """Stop: begin nothing more, and wait for everything to end, at most `timeout` seconds. Returns whether it has.

        Each partition ends in order: drain, stop handler, checkpoint, relinquish. If the time is over before a
        handler has returned, its partition stays held, and the ending goes on in the background; call `stop` again
        to wait on. Others who ask for it meanwhile wait for the hand-over timeout, as for any other.

        From inside a handler it only asks, and returns False. Without a `timeout` it does so too in the thread that was
        the last to receive from a partition client which is still open, and in a signal handler that has interrupted
        `start`, `stop` or `next_partition_client`: the caller himself is what it would wait for.
        """
        with self._calls.entered():
            # Not under the lock: who stops waits here for what the main thread holds, and a signal handler that has
            # interrupted that, and stops too, would wait for the lock.
            self._oversight.stop()
            with self._lock:
                started = self._started
            if not started:
                return True
            ours = threading.current_thread() in (self._errors.thread, *self._oversight.threads)
            pulled = self._oversight.is_pulled_by(threading.get_ident())
        if ours or (timeout is None and (pulled or self._calls.here)):
            return False
        return self._oversight.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has been stopped and all has ended, at most `timeout` seconds. Returns whether it has.

        Raises the `UsageError` that kept this instance from working, if there was one; and what one of your functions
        has raised to end the program, once all has ended: `SystemExit`, also where one of them prints and nobody reads
        the standard output any more.
        """
        if not self._started:
            raise UsageError("start it first, or call run")
        ended = self._oversight.wait(timeout)
        if self._oversight.failure is not None:
            raise self._oversight.failure
        if ended and self._oversight.leaving is not None:
            raise as_exit(self._oversight.leaving) from None
        return ended

    def run(self) -> None:
        """Start, and wait until `stop` is called, or Ctrl-C is pressed, or the process is asked to end (SIGTERM).

        Then everything is ended in order before it returns, which it does at once if `stop` was called before. A second
        SIGTERM ends the process at once, and a second Ctrl-C raises `KeyboardInterrupt`.
        Raises the `UsageError` that kept this instance from working, if there was one, or that there is no handler;
        and, as `wait` does, what one of your functions has raised to end the program.
        """
        if self._handlers is None:
            raise UsageError(
                "nobody would read what this processor claims: run() needs on_events or on_event. Without a handler, "
                "call start() and take partitions with next_partition_client()"
            )
        asked: list[int] = []
        begun = False
        try:
            with terminating(asked, interrupts=True):
                self.start()
                begun = True
                while not asked and not self.wait(0.2):
                    pass
                if signal.SIGINT in asked:
                    logger.info("interrupted: stopping")
        except KeyboardInterrupt:
            begun = True
            logger.info("interrupted: stopping")
        except UsageError:
            if not self._stopped_first():
                raise
            logger.info("stopped before it was started")
        finally:
            if begun:
                self.stop()
        if self._started:
            self.wait()

    def next_partition_client(
        self, timeout: float | None = None, *, cancel: Cancellation | None = None
    ) -> PartitionClient | None:
        """The next partition to work on, for a processor without handlers. Waits for one, at most `timeout` seconds.

        None when the time is over, or `cancel` is called, or the processor is stopped. Several threads may call it.
        Raises the `UsageError` that keeps this instance from working, if there is one.
        """
        if self._handlers is not None:
            raise UsageError(
                "this processor has handlers: leave out on_events and on_event to take partitions yourself"
            )
        with self._calls.entered():
            return self._oversight.take(timeout, cancel)

    def __iter__(self) -> Iterator[PartitionClient]:
        """The partitions to work on, as they come, until the processor is stopped; see `next_partition_client`."""
        while (client := self.next_partition_client()) is not None:
            yield client

    def recorded_owner_level(self, hub: str, partition: str) -> int | None:
        """The owner level in a partition's ownership record, None if there is none.

        Hand this function to a sink's `apply`, so that it can tell a late batch from a store that was wiped.
        """
        records: Sequence[Ownership | Checkpoint] = (
            self._ownership.list_ownership(self._group).records
            if self._share is None
            else self._checkpoints.list_checkpoints(self._group)  # whoever comes after a fixed share is seen there
        )
        levels = (record.owner_level for record in records if record.partition == partition)
        return next(levels, None) if hub == self._hub.identity else None

    def __enter__(self) -> EventProcessor:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _look_first(self) -> None:
        """Tie the group to the table, or refuse, and see where the end is, before anything is claimed."""
        if (table := self._table) is not None:
            self._unconfirmed = PipelineBinding(table.spec.pipeline, table.identity())
            marks = partial(table.watermarks, self._hub.identity)
            check_start(self._group, self._checkpoints, self._unconfirmed, marks)
        if self._has_end is not None:
            self._has_end.note_ends()

    def _confirm(self) -> None:
        """With the first partition: the group is still tied as the start has tied it."""
        if (binding := self._unconfirmed) is not None:
            try:
                confirm(self._group, self._checkpoints, binding)
            except UsageError as error:  # as at the start: this instance has nothing to do here
                self._oversight.leave(error)
                raise
            self._unconfirmed = None

    def _end_of(self, kept: bool, share: Callable[[tuple[str, ...]], tuple[str, ...]] | None) -> AvailableNow:
        """What ends this processor when all that is there now is consumed. Raises `ConfigError`."""
        if not kept:
            raise ConfigError("available_now", True, NO_END, "Name a checkpoint store, or leave it out")
        if self._settings.maximum_partitions is not None:
            raise ConfigError(
                "available_now",
                True,
                "a processor with maximum_partitions does not pass on partitions that it has consumed, and may wait "
                "for the others for ever",
                "Leave maximum_partitions out",
            )
        consumption = Consumption(self._hub, self._group, self._checkpoints, share or (lambda partitions: partitions))
        return AvailableNow(
            consumption, self._clock, lambda: self._oversight.stop(), lambda error: self._oversight.leave(error)
        )

    def _found(self, hub: Hub | str, consumer_group: str) -> tuple[Hub, ConsumerGroup]:
        """The hub, once it is there, where a URL is given."""
        if not isinstance(hub, str):
            return hub, hub.consumer_group(consumer_group)
        opened = partial(opened_hub, hub, consumer_group)
        return when_there(opened, patience=self._patience, say=self._say_delayed, clock=self._clock)

    def _overseeing(self, policy: CheckpointPolicy) -> Oversight:
        """What looks after the work on all partitions; `policy` says when it is recorded."""
        shared = SharedByPartitions(
            hub=self._hub,
            group_name=self._group.name,
            manager=self._manager,
            watch=self._watch,
            delivery=self._delivery,
            policy=policy,
            clock=self._clock,
            report=self._errors.report,
            goes_on=self._errors.goes_on,
            closed=self._attention.ask,
            confirm=self._confirm,
            fills_table=self._table is not None,
        )
        return Oversight(
            shared,
            self._handlers,
            stall_timeout=self._settings.stall_timeout,
            attention=self._attention,
            begin=self._begin,
            close=self._close,
        )

    def _stopped_first(self) -> bool:
        return self._oversight.stopping and not self._started

    def _begin(self) -> None:
        """Start the other threads."""
        look = self._oversight.look_again
        kinds = (OwnershipClaimed, OwnershipLost, HandOverAsked)
        self._unsubscribe = [self.notices.subscribe(look, kind) for kind in kinds]
        self._unsubscribe.append(self.notices.subscribe(self._report_cycle, CycleFailed))
        self._errors.start()
        self._watch.start()
        self._dispatch.start()
        if self._has_end is not None:
            self._has_end.start()

    def _close(self, fetching: Sequence[PartitionWork]) -> None:
        """Relinquish what is left, and end the other threads."""
        if self._has_end is not None:
            self._has_end.close()
        self._dispatch.stop(2 * self._settings.request_timeout)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        until = self._clock.monotonic() + self._settings.request_timeout  # together: each may hang in the hub
        self._watch.close(self._settings.request_timeout)
        for work in fetching:
            work.join(max(0.0, until - self._clock.monotonic()))
        self._errors.close()
        if self._opened is not None:
            self._opened.close()

    def _report_cycle(self, notice: CycleFailed) -> None:
        self._errors.report(notice.error, logged=True)
        self._attention.ask()

    def _say_delayed(self, error: LeaseholdError, patience: float) -> None:
        logger.warning("%s", sentence(error, patience))
        self.notices.publish(StartDelayed(error, patience))
