"""The metrics of the instances of a process, out of their notices.

Owns their names and units, which are public. It subscribes, so that nothing that works with events knows of it, counts
in plain numbers, and makes families of `prometheus_client` of them at a scrape. What is held is not counted up and
down: it is taken from the last dispatch cycle and from the notices since, and only as long as it is trusted. So a
partition that was lost has no series from the next scrape on, also where the dispatch thread hangs. Labels are
operations, phases, reasons and partitions; no label is an owner id, which is new with each start.

Notices come in any thread; a scrape may come in between. One lock, held for a few additions, keeps the counts whole: a
notice costs about a microsecond.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leasehold.clock import Clock, SystemClock
from leasehold.counts import APART, EVENTS, ROWS
from leasehold.metrics.counted import Counted, Timed
from leasehold.notices import (
    BatchDone,
    BatchRetried,
    CheckpointUpdated,
    CycleEnded,
    EventsLost,
    LossReason,
    Notice,
    Notices,
    OwnershipClaimed,
    OwnershipLost,
    OwnershipRelinquished,
    StoreCalled,
    TableApplied,
)

PHASES = ("plan", "compute", "write", "body", "handle")
PARTS = ("plan", "read", "transform", "stage", "merge")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The buckets of batches: from a handler's millisecond to a hung transform."""
STORE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
HOLDING = (OwnershipClaimed, OwnershipLost, OwnershipRelinquished, CheckpointUpdated, CycleEnded)
"""The notices that change what is held."""
HAPPENING = (BatchRetried, CycleEnded, OwnershipLost, OwnershipRelinquished, EventsLost)
"""Those that are counted and come now and then."""
OPERATIONS = ("list_ownership", "claim_ownership", "renew_ownership", "list_checkpoints", "update_checkpoints")


class InstanceMetrics:
    """Counts what the instances of this process tell. `registry` is where to read it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock or SystemClock()
        self._holdings: list[Holding] = []
        self._lock = threading.Lock()
        self._last_batch = 0.0
        self._families: list[Counted | Timed] = []

        def counter(name: str, documentation: str, label: str = "", *values: str) -> Counted:
            self._families.append(found := Counted(f"leasehold_instance_{name}", documentation, label, values))
            return found

        def histogram(
            name: str, documentation: str, label: str, buckets: tuple[float, ...], values: tuple[str, ...] = ()
        ) -> Timed:
            self._families.append(found := Timed(f"leasehold_instance_{name}", documentation, label, buckets, values))
            return found

        # What is known to come has its series from the beginning, so that its first increase is one.
        self._batches = counter("batches", "Batches that are done.")
        self._events = counter("events", "Events of batches that are done.")
        self._retries = counter("batch_retries", "Batches and tasks that failed and are tried again.", "reason")
        self._lost_events = counter("lost_events", "Events that were gone before they were read.")
        self._phases = histogram(
            "batch_phase_seconds", "How long the phases of batches take.", "phase", SECONDS, PHASES
        )
        self._parts = histogram(
            "batch_part_seconds",
            "How long parts of batches take: plan, read, transform, stage and merge, where they can be told apart.",
            "part",
            SECONDS,
            PARTS,
        )
        self._table = histogram(
            "table_transaction_seconds", "How long an entity table takes for a batch.", "table", SECONDS
        )
        self._table_events = counter(
            "table_events", "Events that were read for an entity table, by what became of them.", "outcome", *EVENTS
        )
        self._rows = counter(
            "table_rows", "Rows that were made of the events that are used, by what became of them.", "outcome", *ROWS
        )
        self._apart = counter(
            "table_events_apart", "Events of an entity table that are counted apart.", "outcome", *APART
        )
        self._claimed = counter("claims", "Claims of partitions, by what came of them.", "outcome", "won", "lost")
        self._renewals = counter("renewals", "Holds that were renewed.")
        self._checkpoints = counter(
            "checkpoints", "Checkpoints that were sent, by what came of them.", "outcome", "accepted", "refused"
        )
        lost = (reason.name.lower() for reason in LossReason)
        self._lost = counter("partitions_lost", "Partitions that are no longer held, by why.", "reason", *lost)
        self._given = counter(
            "partitions_given_up", "Partitions that were given up, or handed over.", "to", "successor", "anybody"
        )
        self._calls = histogram(
            "store_call_seconds", "How long calls to stores take.", "operation", STORE_SECONDS, OPERATIONS
        )
        self._errors = counter("store_errors", "Calls to stores that failed.", "operation", *OPERATIONS)
        self._cycles = counter("cycles", "Dispatch cycles, by how they ended.", "outcome", "done", "failed", "stalled")
        self.registry.register(_Counts(self._counted))
        self.registry.register(_Held(self._held, self._clock))

    def watch(self, notices: Notices) -> Callable[[], None]:
        """Count what one instance tells from now on. Returns a function that ends it: then it holds nothing."""
        holding = Holding()
        with self._lock:
            self._holdings.append(holding)
        ends = [
            *(notices.subscribe(holding.hear, kind) for kind in HOLDING),
            notices.subscribe(self._store_called, StoreCalled),
            notices.subscribe(self._batch_done, BatchDone),
            notices.subscribe(self._table_applied, TableApplied),
            *(notices.subscribe(self._happened, kind) for kind in HAPPENING),
        ]

        def end() -> None:
            for one in ends:
                one()
            with self._lock:
                if holding in self._holdings:
                    self._holdings.remove(holding)

        return end

    def _counted(self) -> list[Metric]:
        """All families but for what is held."""
        last = GaugeMetricFamily(
            "leasehold_instance_last_batch_timestamp_seconds", "When the last batch was done; 0 before the first."
        )
        with self._lock:
            last.add_metric([], self._last_batch)
            return [*(one.family() for one in self._families), last]

    def _held(self) -> dict[str, HeldPartition]:
        now = self._clock.monotonic()
        with self._lock:
            holdings = list(self._holdings)
        return {partition: hold for one in holdings for partition, hold in one.trusted(now).items()}

    def _batch_done(self, done: BatchDone) -> None:
        now = self._clock.wall()
        with self._lock:
            self._batches.add(1)
            self._events.add(done.events)
            self._last_batch = now
            for phase, seconds in done.seconds.items():
                self._phases.observe(seconds, phase)
                if phase == "plan":
                    self._parts.observe(seconds, phase)
            for part, seconds in done.parts.items():
                self._parts.observe(seconds, part)

    def _table_applied(self, applied: TableApplied) -> None:
        with self._lock:
            self._table.observe(applied.seconds, applied.table)
            for counted, outcomes in ((self._table_events, EVENTS), (self._rows, ROWS), (self._apart, APART)):
                for outcome in outcomes:
                    counted.add(getattr(applied.counts, outcome), outcome)
            for part, seconds in applied.parts.items():
                self._parts.observe(seconds, part)

    def _store_called(self, call: StoreCalled) -> None:
        operation = call.operation
        with self._lock:
            self._calls.observe(call.seconds, operation)
            if call.error_type:
                self._errors.add(1, operation)
            elif operation == "update_checkpoints":
                self._checkpoints.add(call.done, "accepted")
                self._checkpoints.add(max(0, call.asked - call.done), "refused")
            elif operation == "renew_ownership":
                self._renewals.add(call.done)
            elif operation == "claim_ownership":
                self._claimed.add(call.done, "won")
                self._claimed.add(max(0, call.asked - call.done), "lost")

    def _happened(self, notice: Notice) -> None:
        """Count what comes now and then."""
        with self._lock:
            match notice:
                case BatchRetried():
                    self._retries.add(1, notice.reason)
                case CycleEnded():
                    self._cycles.add(1, "stalled" if notice.stalled else "failed" if notice.failed else "done")
                case OwnershipLost():
                    self._lost.add(1, notice.reason.name.lower())
                case OwnershipRelinquished():
                    self._given.add(1, "successor" if notice.successor else "anybody")
                case EventsLost():
                    self._lost_events.add(notice.end - notice.start)


class HeldPartition:
    """A partition that an instance holds: its owner level, how far it has come, and until when it is trusted."""

    __slots__ = ("level", "reached", "until")

    def __init__(self, level: int, until: float | None) -> None:
        self.level = level
        self.until = until
        self.reached: int | None = None


class Holding:
    """What one instance holds, by its notices. A hold is trusted until the time that the last cycle told of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holds: dict[str, HeldPartition] = {}

    def hear(self, notice: Notice) -> None:
        """Take note of what has changed."""
        with self._lock:
            match notice:
                case CheckpointUpdated():  # the first, since it comes with each batch
                    hold = self._holds.get(notice.partition)
                    if hold is not None and hold.level == notice.owner_level:
                        hold.reached = notice.sequence_number
                case OwnershipClaimed():
                    self._holds[notice.partition] = HeldPartition(notice.owner_level, None)
                case OwnershipLost() | OwnershipRelinquished():
                    self._holds.pop(notice.partition, None)
                case CycleEnded():
                    self._holds = {p: hold for p, hold in self._holds.items() if p in notice.holds}
                    for partition, until in notice.holds.items():
                        if partition in self._holds:
                            self._holds[partition].until = until

    def trusted(self, now: float) -> dict[str, HeldPartition]:
        """What is held and trusted at this moment. One that was claimed in the cycle under way is."""
        with self._lock:
            return {p: hold for p, hold in self._holds.items() if hold.until is None or now < hold.until}


class _Counts(Collector):
    """What was counted, at the moment of a scrape."""

    def __init__(self, counted: Callable[[], list[Metric]]) -> None:
        self._counted = counted

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        return self._counted()


class _Held(Collector):
    """What is held, at the moment of a scrape."""

    def __init__(self, held: Callable[[], dict[str, HeldPartition]], clock: Clock) -> None:
        self._held, self._clock = held, clock

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        held = self._held()
        yield GaugeMetricFamily("leasehold_instance_partitions", "Partitions that are held.", value=len(held))
        left = [hold.until - self._clock.monotonic() for hold in held.values() if hold.until is not None]
        trust = GaugeMetricFamily(
            "leasehold_instance_trust_left_seconds",
            "Seconds until the first hold is no longer trusted if nothing is renewed; no sample where nothing is held.",
        )
        if left:
            trust.add_metric([], max(0.0, min(left)))
        yield trust
        level = GaugeMetricFamily(
            "leasehold_instance_partition_owner_level",
            "The level at which a held partition is held.",
            labels=["partition"],
        )
        reached = GaugeMetricFamily(
            "leasehold_instance_partition_checkpoint_sequence_number",
            "The last event of a held partition that this instance has recorded.",
            labels=["partition"],
        )
        for partition, hold in sorted(held.items()):
            level.add_metric([partition], hold.level)
            if hold.reached is not None:
                reached.add_metric([partition], hold.reached)
        yield level
        yield reached
