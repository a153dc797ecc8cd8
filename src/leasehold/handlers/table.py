"""An entity table that a handler fills, in the plain processor, in one transaction with the watermarks.

    orders = HandledTable(order, "sqlite:///entities.db", table="orders", pipeline="orders",
                          schema="order_id STRING, amount DECIMAL(12,2)", state="order_id STRING, total DECIMAL(12,2)")
    EventProcessor("log:///orders.db", "sqlite:///leasehold.db", orders).run()

Owns why an event takes effect once, though its handler may be called more often:

1. Before an owner's first batch reads any state, it raises the watermark's owner level to its own. From then on no
   former owner commits; a later owner may, and then this owner's commit is refused.
2. Events at or below the watermark are not computed, states are read after it, and the commit moves it: what was
   computed from a state is committed only if no other owner has written since.
3. What Leasehold writes or forgets beside (rejected events that are tried again, parked ones, `forget`, a reset, the
   note that an event is to be skipped) raises the watermark's count of changes. A commit that finds another count, or
   another place, than those that the states were read under commits nothing, and the batch is computed again. So an
   event that is noted to be skipped is computed by nobody whose commit counts. What a person writes in SQL is not seen.
4. An event whose handler raises is parked in the commit that moves the watermark past it (`parking`, and
   `sinks.beside.parking`). The owner of its partition tries it again, with a batch and also when nothing comes, in
   commits of their own by the same rules (`parking.trying`). A new owner finds what the former has parked, once it has
   raised the level; and what owners of a hub that is read no more have left.
5. What a handler emits is put into the outbox by the same commit, and sent by a thread beside (`outbox`).
6. Related rows are written by the same commit. Where the database refuses those of an event, or the state it leaves,
   nothing is committed, and the batch is computed again as if the handler had raised for that event
   (`sinks.beside.related`).

One thread works on a partition at a time (the processor's), any number of partitions at once. When an owner stops for a
minute, or for good, at any line before a commit, nothing has happened: another owner's commit makes its own refused;
after a commit, its events come again and are passed by, and parked events that were applied are there no more. With
the policy `wait` a handler that raises fails its batch behind the last event that succeeded, and the processor tries
again, with pauses. An entity's events in two partitions are refused by the sink (`KeyFromTwoPartitions`), unless the
table is `spread`: then processes may compute one entity at the same time, and a commit computes those again, under
their lock, that another one has changed meanwhile (`spread`, `sinks.beside.versions`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

from leasehold.errors import UsageError
from leasehold.formats.bodies import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.applying import check_columns, check_related, require_handler, row_batch, states_of, with_fence
from leasehold.handlers.calling.calls import HandlerCalls
from leasehold.handlers.calling.raised import hung
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import CallRules, Computed, EntityEvent, EntityHandler, Key, compute, key_of
from leasehold.handlers.exclusive import exclusive_entities
from leasehold.handlers.given import given_events
from leasehold.handlers.known_partition import KnownPartition
from leasehold.handlers.outbox import sender_of
from leasehold.handlers.parking.guests import GuestPlace
from leasehold.handlers.parking.left_behind import LeftPlace
from leasehold.handlers.parking.policy import Retries, parked
from leasehold.handlers.parking.trying import TriesParked
from leasehold.handlers.places import CallingOwner, ReadBatch, Sent
from leasehold.handlers.settings import Bodies, Failures, Spread, Writes, bodies_of, writes_of
from leasehold.handlers.spread import Compute, SpreadComputed, SpreadEntities, check_spread, spread_entities
from leasehold.handlers.telling import failed, say_dead, say_parked, unavailable
from leasehold.notices import TableApplied
from leasehold.runtime import Runtime
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.base import LevelOf, Sink
from leasehold.sinks.features import BOOKKEEPING, offered
from leasehold.sinks.rules.batch import Batch, Versioned
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.parking import ParkedEvent, Parking
from leasehold.sinks.rules.table_spec import BatchResult

__all__ = ["HandledTable", "Retries"]


class HandledTable(TriesParked):
    """The states of entities in a table, and the handler that computes them.

    handler         what `entity` has made of a function
    url             of the sink: `sqlite:///PATH` or `postgresql://…`
    table           the table's name, in Postgres also `schema.name`; `<table>_rejected` has what was rejected
    pipeline        the pipeline that the table belongs to
    schema          the columns of an event's body, as `order_id STRING, amount DECIMAL(12,2)`, or `Bodies(…)`,
                    which says more of how it is read. None: a subclass tells what reads bodies before the first event
    state           the table's columns, in the same way, or `Writes(…)`, which says what else the handler writes
    consumer_group  the watermarks are kept for this reader of the hub
    failures        what becomes of an event whose handler raises or hangs; default: `Failures()`, which parks it
    spread          an entity's events may be in several partitions: `Spread(…)` says which is later; default: they are
                    all in one
    runtime         time, chance in the pauses, what a relative path in a URL is relative to, and who hears of each
                    commit (`TableApplied`): give the processor the same

    `level_of` is for you to set: from a hub and a partition to the owner level in its ownership record. Give it the
    processor's `recorded_owner_level`, which tells a store that was wiped from a former owner.

    Give the processor the table itself, which it calls when a partition starts and stops, too. One that calls
    `on_events` alone tries what a former owner has parked only when an event comes, and what was emitted last may wait
    until the next owner comes. Raises `ConfigError`, also for a sink that keeps no states.
    """

    def __init__(
        self,
        handler: EntityHandler,
        url: str,
        *,
        table: str,
        pipeline: str,
        schema: str | Bodies | None,
        state: str | Writes,
        consumer_group: str = "$Default",
        failures: Failures | None = None,
        spread: Spread | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        require_handler(handler)
        writes, failures, runtime = writes_of(state), failures or Failures(), runtime or Runtime()
        beside = failures.on_failure == "park" and spread is None
        self._handler = handler
        self._calls = HandlerCalls(handler, failures.handler_timeout, failures.hand_over_timeout, beside=beside)
        self._on_failure, self._retries = failures.on_failure, failures.retries
        self._clock, self._rng, self._notices = runtime.clock, runtime.rng, runtime.notices
        self._state = read_columns(writes.state, "state")
        self._columns = columns_of(self._state)
        self.level_of: LevelOf | None = None
        reader = None if schema is None else bodies_of(schema).reader()
        if spread is not None:
            check_spread(True, spread.sequence_by, spread.late, None if reader is None else reader.schema)
        if reader is not None:
            self._read_by(reader)
        exclusive = None if spread is None else spread.exclusive
        self._exclusive = exclusive_entities(
            exclusive, f"{pipeline}/{table}", spread=spread is not None, on_failure=failures.on_failure
        )
        spec = TableSpec(
            name=table,
            pipeline=pipeline,
            consumer_group=consumer_group,
            keys=handler.keys,
            sequence_by=None if spread is None else spread.sequence_by,
            spread=spread is not None,
            schema_evolution=writes.schema_evolution,
        )
        self.sink: Sink = open_sink(url, spec, base=runtime.base)
        self._states = states_of(self.sink)
        self._skips = offered(self.sink, BOOKKEEPING)
        self.sink.check(with_fence(self._state))
        self._related = check_related(self.sink, writes.related)
        self._states.check_states(referred=bool(writes.related))
        self._states.check_parked()
        self._sender = sender_of(self.sink, writes.outbox, runtime)
        self._spread = None if spread is None else self._spread_entities(spread)
        self._known: dict[tuple[str, str], KnownPartition] = {}

    def on_partition_start(self, context: CallingOwner) -> None:
        """The `on_partition_start` of a processor: what a former owner has parked is tried again when it is due."""
        context.call_again(0.0)

    def on_partition_stop(self, context: CallingOwner, reason: str) -> None:
        """The `on_partition_stop` of a processor: what was emitted is sent before the partition is given up."""
        known = self._known.get((context.hub, context.partition))
        for lane in [(context.hub, context.partition), *(() if known is None else known.left.lanes)]:
            self._calls.leave(*lane)
        if self._sender is not None:
            self._sender.leave(context)

    def close(self) -> None:
        """End what sends and what calls, and close the sink. After the processor has ended; it may be used again."""
        self._calls.close()
        if self._exclusive is not None:
            self._exclusive.close()
        if self._sender is not None:
            self._sender.close()
        self.sink.close()

    def on_events(self, batch: ReadBatch, context: CallingOwner) -> None:
        """The `on_events` of a processor: call the handler for each event, commit what it comes to, try parked events.

        An empty batch is for the parked events alone. Raises `HandlerUnavailable`, with nothing of the batch committed,
        if most entities fail alike; with the policy `wait` `HandlerFailed`, with what came before the event committed.
        """
        if not self._is_owner(batch):
            if batch:  # Nothing of it may be applied: the sink drops the range, or says that levels went back.
                self._apply(Computed(), batch, batch.first, batch.last + 1)
            return
        if self._sender is not None:
            self._sender.goes_on(context)
        known = self._of(batch)
        known.limit = self._calls.limit()
        try:
            if batch:
                self._take(batch, context)
            self._try_parked(batch, context)
            if self._exclusive is not None and self._sender is not None:
                self._sender.emitted(batch.hub, batch.partition)  # a guest's commit may have
        finally:
            if self._exclusive is not None:
                self._exclusive.give_up(known.leases)

    def _id_of(self, batch: ReadBatch) -> str:
        """What the batch is called, where batches have names: on Spark."""
        return ""

    def _spread_entities(self, spread: Spread) -> SpreadEntities | None:
        return spread_entities(
            *(self.sink, self._state, self._columns, spread.sequence_by, spread.late, self._clock),
            exclusive=spread.exclusive is not None,
        )

    def _read_by(self, reader: BodyReader) -> None:
        check_columns(self._handler, reader.schema, self._state)
        self._reader = reader

    def _is_owner(self, batch: ReadBatch) -> bool:
        """Rule 1. False if a later owner has been here."""
        known = self._known.get((batch.hub, batch.partition))
        if known is None or known.owner_level != batch.owner_level:
            try:
                self.sink.raise_owner_levels(batch.hub, {batch.partition: batch.owner_level})
            except UsageError:
                return False
            self._known[batch.hub, batch.partition] = KnownPartition(batch.owner_level)
            self._calls.leave(batch.hub, batch.partition)
        return True

    def _take(self, batch: ReadBatch, context: CallingOwner) -> None:
        known = self._of(batch)
        begin = known.end if known.context is context else context.start
        known.nothing_refused()
        again = 0
        while True:
            mark = self._watermark(batch)
            waiting = self._waiting(batch, mark)
            done = self._compute(batch, mark, again)
            if self._on_failure != "wait" and (failure := known.outcomes.outage(done.calls)) is not None:
                raise unavailable(self._handler, batch.partition, failure, done)
            end = batch.last + 1 if done.failed is None else done.failed.sequence_number
            parking = self._parking(batch, done)
            if end <= begin:
                break
            result = self._apply(done, batch, begin, end, mark, parking)
            known.note_refused(done, result.violations)
            if not (result.violations or result.outdated):
                break
            again += result.outdated
        known.context, known.end = context, max(begin, end)
        if self._spread is None:
            first = {one.key: known.busy.not_before(one.key, one.next_at) for one in reversed(parking.put)}
            known.waiting = {**first, **waiting}
        elif not done.held:
            known.waiting = {**waiting}
        if done.held and self._on_failure != "wait":
            say_parked(batch.partition, done)
        if done.failed is not None:
            known.tried = done.failed.sequence_number, done.failed.delivery
            raise failed(self._handler, done)

    def _is_new(self, batch: ReadBatch, mark: Watermark) -> Callable[[int], bool]:
        """Whether the event of a number is to be computed: above the watermark, and not noted to be skipped."""
        noted = self._of(batch).to_skip(self._skips, batch.hub, batch.partition, mark)
        return lambda number: number > mark.sequence_number and number not in noted

    def _compute(self, batch: ReadBatch, mark: Watermark, again: int) -> Computed:
        known = self._of(batch)
        is_new = self._is_new(batch, mark)
        new = [event for event in batch if is_new(event.sequence_number)]
        number, tries = known.tried
        deliveries = [1 + again + (tries if event.sequence_number == number else 0) for event in new]
        return self._computed(batch, new, deliveries, waiting=known.waiting or (), goes_on=self._on_failure != "wait")

    def _computed(
        self,
        batch: ReadBatch,
        events: Sequence[Sent],
        deliveries: Iterable[int],
        *,
        goes_on: bool,
        waiting: Iterable[Key] = (),
        parked: bool = False,
    ) -> Computed:
        given, columns = given_events(self._reader, self._handler, batch, events, deliveries, self._id_of(batch))
        before = {one.sequence_number for one in events if isinstance(one, ParkedEvent) and hung(one.error)}
        call = self._calling(batch, before, goes_on=goes_on)
        if self._spread is not None:
            known = self._of(batch)
            lease = None
            if self._exclusive is not None:
                lease = self._exclusive.taking(known.leases, known.busy, self._clock, self._rng, waits=not parked)
            return self._spread.computed(given, columns, call, parked=parked, lease=lease)
        keys = list(dict.fromkeys(key for key, _, reason in given if reason is None))
        states = self._states.read_states(self._state, keys)
        return call(states, given, self._columns, waiting=set(waiting))

    def _calling(self, batch: ReadBatch, before: Collection[int] = (), *, goes_on: bool) -> Compute:
        known = self._of(batch)
        handler = self._calls.within(known.limit, before, partial(self._goes_on, known))
        if self._exclusive is not None:
            handler = self._exclusive.within(handler, known.leases)
        return partial(
            compute,
            handler,
            rules=CallRules(
                goes_on=goes_on,
                deliveries=1 if self._on_failure == "discard" else self._retries.deliveries,
                emits=self._sender is not None,
                related=self._related,
                refused=known.refused,
                by_steps=known.by_steps,
            ),
        )

    def _goes_on(self, partition: KnownPartition, event: EntityEvent, first: bool) -> None:
        """The call for this event has not ended: the event is parked, and its answer asked for after a while."""
        key, now = key_of(event), self._clock.wall()
        if first:
            partition.busy.note([key], [key], now, 0.0)
        partition.busy.note([key], (), now, self._rng.random())

    def _parking(self, batch: ReadBatch, done: Computed, tried: Sequence[int] = ()) -> Parking:
        """What becomes of events that wait; `tried` are those that have been parked before."""
        put, removed = parked(done.held, tried, self._retries, self._clock.wall(), self._rng.random)
        guest = isinstance(batch, GuestPlace)
        return Parking(batch.hub, batch.partition, put, removed, retried=bool(tried), by_guest=guest)

    def _apply(
        self,
        done: Computed,
        batch: ReadBatch,
        begin: int,
        end: int,
        read_under: Watermark | None = None,
        parking: Parking | None = None,
    ) -> BatchResult:
        """Commit the changes with the watermark, together, or learn that they are to be computed again: rules 3, 6."""
        if isinstance(batch, GuestPlace) or (batch.hub, batch.partition) in self._known:
            self._of(batch).waiting = None  # until it is known what was committed
        made = row_batch(self._handler, self._state, batch, done, begin, end)
        under = None if read_under is None else {(batch.hub, batch.partition): read_under}
        made = replace(made, read_under=under, parking=parking)
        if isinstance(done, SpreadComputed):
            made = replace(made, versioned=self._versioned(done, made, batch, end))
        started = self._clock.monotonic()
        result = self.sink.apply(made, _outranked if isinstance(batch, LeftPlace) else self.level_of)
        if self._sender is not None and done.emitted:
            self._sender.emitted(batch.hub, batch.partition)
        if not (result.outdated or result.violations):
            if begin < end:
                result = self._of_events(result, done, batch, end, read_under)
            self._note(result, self._clock.monotonic() - started)
            if not result.refused_ranges:
                say_dead(batch.partition, done)
        return result

    def _of_events(
        self, result: BatchResult, done: Computed, batch: ReadBatch, end: int, read_under: Watermark | None
    ) -> BatchResult:
        """The result with its events as they were handled: the sink has seen the states that they have left."""
        given = sum(1 for one in batch if one.sequence_number < end) if end <= batch.last else len(batch)
        if result.refused_ranges or read_under is None:
            return result.of_events(refused=given)
        mark, left_out = read_under.sequence_number, 0
        if noted := self._of(batch).to_skip(self._skips, batch.hub, batch.partition, read_under):
            left_out = sum(mark < one.sequence_number < end and one.sequence_number in noted for one in batch)
        replayed = sum(one.sequence_number <= mark for one in batch) if batch.first <= mark else 0
        parked = len(done.held)
        used = given - left_out - replayed - parked - done.passed
        return result.of_events(
            used=used, filtered=done.passed, replayed=replayed, skipped=result.skipped, parked=parked
        )

    def _note(self, result: BatchResult, seconds: float) -> None:
        """What was committed, in this time: told to who hears the notices."""
        self._notices.publish(TableApplied(str(self.sink.spec.called), result.counts, seconds, result.seconds))

    def _versioned(self, done: SpreadComputed, sink_batch: Batch, batch: ReadBatch, end: int) -> Versioned:
        """What `done` was computed from, and how it is computed again, in place, where that has changed."""
        assert self._spread is not None
        (its,) = sink_batch.ranges or ()
        goes_on = self._on_failure != "wait"

        parked = sink_batch.parking is None or sink_batch.parking.retried

        def anew() -> Batch:
            if parked:
                return sink_batch
            again = row_batch(self._handler, self._state, batch, done, its.begin, its.end)
            return replace(again, parking=self._parking(batch, done))

        call = self._calling(batch, goes_on=goes_on)
        return self._spread.versioned(done, end, anew, call, goes_on=goes_on, parked=parked)


def _outranked(hub: str, partition: str) -> int:
    """Of a partition of another hub: where a higher level has been, its owner is there."""
    return sys.maxsize
