"""The metrics of the instances of a process, out of their notices.

Owns their names and units, which are public. It subscribes, so that nothing that works with events knows of it, and
counts with `prometheus_client`, in a registry of its own. What is held is not counted up and down: it is taken from the
last dispatch cycle and from the notices since, and only as long as it is trusted. So a partition that was lost has no
series from the next scrape on, also where the dispatch thread hangs. Labels are operations, phases, reasons and
partitions; an owner id, which is new with each start, is none.

Notices come in any thread; a scrape may come in between. What a notice costs is a few microseconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leasehold.clock import Clock, SystemClock
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
ROWS = ("applied", "replayed", "refused", "superseded", "rejected", "duplicates")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The buckets of batches: from a handler's millisecond to a hung transform."""
STORE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
OPERATIONS = ("list_ownership", "claim_ownership", "renew_ownership", "list_checkpoints", "update_checkpoints")


class InstanceMetrics:
    """Counts what the instances of this process tell. `registry` is where to read it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock or SystemClock()
        self._holdings: list[Holding] = []
        self._lock = threading.Lock()

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"leasehold_instance_{name}", documentation, labels, registry=self.registry)

        def histogram(name: str, documentation: str, label: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(
                f"leasehold_instance_{name}", documentation, [label], registry=self.registry, buckets=buckets
            )

        self._batches = counter("batches", "Batches that are done.")
        self._events = counter("events", "Events of batches that are done.")
        self._rejected = counter("rejected_events", "Events of them that were set aside.")
        self._retries = counter("batch_retries", "Batches and tasks that failed and are tried again.", "reason")
        self._lost_events = counter("lost_events", "Events that were gone before they were read.")
        self._phases = histogram("batch_phase_seconds", "How long the phases of batches take.", "phase", SECONDS)
        self._parts = histogram(
            "batch_part_seconds",
            "How long parts of batches take: plan, read, transform, stage and merge, where they can be told apart.",
            "part",
            SECONDS,
        )
        self._table = histogram(
            "table_transaction_seconds", "How long an entity table takes for a batch.", "table", SECONDS
        )
        self._rows = counter("table_rows", "Rows that an entity table was given, by what came of them.", "outcome")
        self._last_batch = Gauge(
            "leasehold_instance_last_batch_timestamp_seconds",
            "When the last batch was done; 0 before the first.",
            registry=self.registry,
        )
        self._claimed = counter("claims", "Claims of partitions, by what came of them.", "outcome")
        self._renewals = counter("renewals", "Holds that were renewed.")
        self._checkpoints = counter("checkpoints", "Checkpoints that were sent, by what came of them.", "outcome")
        self._lost = counter("partitions_lost", "Partitions that are no longer held, by why.", "reason")
        self._given = counter("partitions_given_up", "Partitions that were given up, or handed over.", "to")
        self._calls = histogram("store_call_seconds", "How long calls to stores take.", "operation", STORE_SECONDS)
        self._errors = counter("store_errors", "Calls to stores that failed.", "operation")
        self._cycles = counter("cycles", "Dispatch cycles, by how they ended.", "outcome")
        self._start_at_zero()
        self.registry.register(_Held(self._held, self._clock))

    def _start_at_zero(self) -> None:
        """What is known to come has its series from the beginning, so that its first increase is one."""
        for phase in PHASES:
            self._phases.labels(phase)
        for part in PARTS:
            self._parts.labels(part)
        for outcome in ROWS:
            self._rows.labels(outcome)
        for operation in OPERATIONS:
            self._calls.labels(operation)
            self._errors.labels(operation)
        for outcome in ("won", "lost"):
            self._claimed.labels(outcome)
        for outcome in ("accepted", "refused"):
            self._checkpoints.labels(outcome)
        for outcome in ("done", "failed", "stalled"):
            self._cycles.labels(outcome)
        for reason in LossReason:
            self._lost.labels(reason.name.lower())
        for to in ("successor", "anybody"):
            self._given.labels(to)

    def watch(self, notices: Notices) -> Callable[[], None]:
        """Count what one instance tells from now on. Returns a function that ends it: then it holds nothing."""
        holding = Holding()
        with self._lock:
            self._holdings.append(holding)
        unsubscribe = notices.subscribe(partial(self._hear, holding), Notice)

        def end() -> None:
            unsubscribe()
            with self._lock:
                if holding in self._holdings:
                    self._holdings.remove(holding)

        return end

    def _held(self) -> dict[str, Hold]:
        now = self._clock.monotonic()
        with self._lock:
            holdings = list(self._holdings)
        return {partition: hold for one in holdings for partition, hold in one.trusted(now).items()}

    def _hear(self, holding: Holding, notice: Notice) -> None:
        holding.hear(notice)
        match notice:
            case StoreCalled():
                self._store_called(notice)
            case BatchDone():
                self._batches.inc()
                self._events.inc(notice.events)
                self._rejected.inc(notice.rejected)
                self._last_batch.set(self._clock.wall())
                for phase, seconds in notice.seconds.items():
                    self._phases.labels(phase).observe(seconds)
                self._observe_parts({part: notice.seconds[part] for part in ("plan",) if part in notice.seconds})
                self._observe_parts(notice.parts)
            case TableApplied():
                self._table.labels(notice.table).observe(notice.seconds)
                for outcome, count in notice.rows.items():
                    self._rows.labels(outcome).inc(count)
                self._observe_parts(notice.parts)
            case BatchRetried():
                self._retries.labels(notice.reason).inc()
            case CycleEnded():
                outcome = "stalled" if notice.stalled else "failed" if notice.failed else "done"
                self._cycles.labels(outcome).inc()
            case OwnershipLost():
                self._lost.labels(notice.reason.name.lower()).inc()
            case OwnershipRelinquished():
                self._given.labels("successor" if notice.successor else "anybody").inc()
            case EventsLost():
                self._lost_events.inc(notice.end - notice.start)

    def _observe_parts(self, parts: Mapping[str, float]) -> None:
        for part, seconds in parts.items():
            self._parts.labels(part).observe(seconds)

    def _store_called(self, call: StoreCalled) -> None:
        self._calls.labels(call.operation).observe(call.seconds)
        if call.error_type:
            self._errors.labels(call.operation).inc()
            return
        if call.operation == "claim_ownership":
            self._claimed.labels("won").inc(call.done)
            self._claimed.labels("lost").inc(max(0, call.asked - call.done))
        elif call.operation == "renew_ownership":
            self._renewals.inc(call.done)
        elif call.operation == "update_checkpoints":
            self._checkpoints.labels("accepted").inc(call.done)
            self._checkpoints.labels("refused").inc(max(0, call.asked - call.done))


class Hold:
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
        self._holds: dict[str, Hold] = {}

    def hear(self, notice: Notice) -> None:
        """Take note of what has changed."""
        with self._lock:
            match notice:
                case OwnershipClaimed():
                    self._holds[notice.partition] = Hold(notice.owner_level, None)
                case OwnershipLost() | OwnershipRelinquished():
                    self._holds.pop(notice.partition, None)
                case CheckpointUpdated():
                    hold = self._holds.get(notice.partition)
                    if hold is not None and hold.level == notice.owner_level:
                        hold.reached = notice.sequence_number
                case CycleEnded():
                    self._holds = {p: hold for p, hold in self._holds.items() if p in notice.holds}
                    for partition, until in notice.holds.items():
                        if partition in self._holds:
                            self._holds[partition].until = until

    def trusted(self, now: float) -> dict[str, Hold]:
        """What is held and trusted at this moment. One that was claimed in the cycle under way is."""
        with self._lock:
            return {p: hold for p, hold in self._holds.items() if hold.until is None or now < hold.until}


class _Held(Collector):
    """What is held, at the moment of a scrape."""

    def __init__(self, held: Callable[[], dict[str, Hold]], clock: Clock) -> None:
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
