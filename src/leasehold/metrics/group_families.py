"""The metrics of a group: snapshots in, families for Prometheus out.

Owns their names, types, units and labels, which are public. Labels are the pipeline, the partition, a state or a
verdict, and nothing that is new with each process: no series grows with restarts. What is not known has no sample;
there is no NaN, which would spoil every sum. What is known of a pipeline begins at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.samples import Sample

from leasehold.operations.group_watch import GroupSnapshot, PartitionState, by_verdict
from leasehold.operations.lag_times import PartitionTimes
from leasehold.operations.verdicts import Standing
from leasehold.sinks.set_aside import SetAsideCounts


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What a look at a pipeline gave: a snapshot, or why there is none."""

    pipeline: str
    snapshot: GroupSnapshot | None
    error: str = ""


_VERDICTS = ", ".join(f"{verdict.value} {verdict.name.lower()}" for verdict in Standing)

Of = Callable[[PartitionState], float | None]
PARTITION: Sequence[tuple[str, str, str, Of]] = (
    ("lag_events", "gauge", "Events that are unread.", lambda one: one.times.unread),
    (
        "lag_seconds",
        "gauge",
        "Age of the oldest unread event; 0 where nothing is unread, no sample where the hub does not tell.",
        lambda one: one.times.lag,
    ),
    (
        "checkpoint_sequence_number",
        "gauge",
        "The sequence number that comes next for the group.",
        lambda one: one.progress.place,
    ),
    ("end_sequence_number", "gauge", "The one that the next event will get.", lambda one: one.progress.end),
    (
        "last_progress_timestamp_seconds",
        "gauge",
        "When the partition was last seen to get on or to have nothing unread, or else since when it is watched.",
        lambda one: one.got_on,
    ),
    ("verdict", "gauge", f"After Burrow's rules: {_VERDICTS}.", lambda one: one.verdict.value),
    (
        "acquisitions",
        "counter",
        "How often an owner has taken the partition: its owner level.",
        lambda one: one.progress.owner_level,
    ),
)
"""Families of `leasehold_partition_…`: name, type, documentation, value."""

SET_ASIDE: Sequence[tuple[str, str, Callable[[SetAsideCounts], float | None]]] = (
    (
        "table_dead_letters",
        "Rejected events for which a handler was called as often as it may be.",
        lambda one: one.dead_letters,
    ),
    ("table_parked_events", "Events that wait until their handler is called again.", lambda one: one.parked),
    (
        "table_oldest_parked_timestamp_seconds",
        "When the event was parked that has been longest; no sample where none is.",
        lambda one: one.oldest_parked,
    ),
    (
        "table_next_retry_timestamp_seconds",
        "When the next parked event is tried, in the past where it waits for its owner; no sample where there is none.",
        lambda one: one.next_retry,
    ),
    (
        "table_outbox_events",
        "Events that handlers have emitted and that wait.",
        lambda one: one.outbox.waiting,
    ),
    (
        "table_oldest_outbox_timestamp_seconds",
        "When the first of them was emitted; no sample where none waits.",
        lambda one: one.outbox.since,
    ),
    ("table_outbox_refused_events", "Emitted events that their hub has refused.", lambda one: one.outbox.refused),
)
"""Families of what is set aside beside a table: name, documentation, value."""


def _retention(state: PartitionState) -> float:
    return math.inf if state.times.left is None else state.times.left


def families(looks: Iterable[LookedAt]) -> Iterator[Metric]:
    """All families, of all pipelines together. `looks` has one entry for each pipeline."""
    looks = list(looks)
    seen = [(look.pipeline, look.snapshot) for look in looks if look.snapshot is not None]
    partitions: _Partitions = [
        ({"pipeline": name, "partition": one.progress.partition}, one, snapshot)
        for name, snapshot in seen
        for one in snapshot.partitions
    ]
    transactional = {name for name, snapshot in seen if snapshot.watched.has_transactions}
    yield _gauge("group_up", "Whether hub and stores could be asked; without them there is nothing else.", [
        ({"pipeline": look.pipeline}, look.snapshot is not None) for look in looks
    ])  # fmt: skip
    for name, kind, documentation, of in PARTITION:
        values = ((labels, of(one)) for labels, one, _ in partitions)
        yield _family(kind, f"partition_{name}", documentation, values)
    yield _gauge(
        "partition_retention_left_seconds",
        "Time until the hub may remove an unread event; +Inf where nothing is unread or nothing is removed by age.",
        ((labels, _retention(one)) for labels, one, whole in partitions if whole.times.retention is not None),
    )
    yield from _held_back([(labels, one.times) for labels, one, _ in partitions if labels["pipeline"] in transactional])
    yield from _group(seen)


_Partitions = Sequence[tuple[dict[str, str], PartitionState, GroupSnapshot]]
_Values = Iterable[tuple[dict[str, str], float | None]]


def _held_back(there: Sequence[tuple[dict[str, str], PartitionTimes]]) -> Iterator[Metric]:
    """What hanging transactions hold back, where a hub has transactions."""
    yield _gauge(
        "partition_held_back_events",
        "Numbers behind the end that an open transaction of a producer holds back from every reader.",
        ((labels, times.held_back) for labels, times in there),
    )
    yield _gauge(
        "partition_held_back_seconds",
        "For how long the first of them has been held back; 0 where none is.",
        ((labels, times.held_for if times.held_back else 0) for labels, times in there),
    )


def _group(seen: Sequence[tuple[str, GroupSnapshot]]) -> Iterator[Metric]:
    def gauge(name: str, documentation: str, of: Callable[[GroupSnapshot], float | None]) -> Metric:
        return _gauge(name, documentation, (({"pipeline": pipeline}, of(snapshot)) for pipeline, snapshot in seen))

    yield _info(seen)
    yield gauge(
        "group_verdict", f"The worst verdict of its partitions that is known: {_VERDICTS}.", lambda s: s.verdict.value
    )
    yield gauge("group_lag_events", "Events that are unread, in all partitions.", lambda s: s.lag)
    yield gauge(
        "group_lag_seconds", "Age of the oldest unread event of those whose age is known.", lambda s: s.times.lag
    )
    yield gauge(
        "group_partitions_of_unknown_age",
        "Partitions with unread events of which the hub does not tell how old they are.",
        lambda s: s.count(lambda one: one.times.lag is None),
    )
    yield gauge(
        "group_retention_left_seconds",
        "The shortest time until the hub may remove an unread event.",
        lambda s: None if s.times.retention is None else min(map(_retention, s.partitions), default=math.inf),
    )
    yield gauge(
        "group_removed_unread_events",
        "Numbers that the hub has removed between the checkpoints and what is left.",
        lambda s: sum(max(0, one.progress.begin - one.progress.place) for one in s.partitions),
    )
    yield _gauge("group_partitions", "Partitions by who has them.", _states(seen))
    yield _gauge("group_verdicts", "Partitions by verdict.", (
        ({"pipeline": pipeline, "verdict": verdict.name.lower()}, count)
        for pipeline, snapshot in seen for verdict, count in by_verdict(snapshot.partitions).items()
    ))  # fmt: skip
    yield gauge(
        "group_suspects",
        "Partitions whose owners come to a bad end one after another.",
        lambda s: s.count(lambda one: one.progress.suspect),
    )
    yield gauge(
        "group_handing_over",
        "Partitions that another instance waits for.",
        lambda s: s.count(lambda one: bool(one.progress.asked_by)),
    )
    yield gauge("group_unserved", "Partitions that no instance has room for.", lambda s: len(s.progress.unserved))
    yield gauge(
        "group_unreadable_records",
        "Ownership records that cannot be read.",
        lambda s: s.count(lambda one: bool(one.progress.unreadable)),
    )
    yield gauge("group_instances", "Instances that are alive.", lambda s: len(s.progress.instances))
    yield gauge("table_rows", "Rows of the entity table.", lambda s: None if s.table is None else s.table.rows)
    yield gauge(
        "table_rejected_events", "Events that were set aside.", lambda s: None if s.table is None else s.table.rejected
    )
    for name, documentation, of in SET_ASIDE:
        yield _gauge(name, documentation, (
            ({"pipeline": pipeline}, of(snapshot.set_aside))
            for pipeline, snapshot in seen if snapshot.set_aside is not None
        ))  # fmt: skip
    yield gauge("group_look_seconds", "How long it took to find all this out.", lambda s: s.took)


def _info(seen: Sequence[tuple[str, GroupSnapshot]]) -> Metric:
    family = InfoMetricFamily("leasehold_group", "Which hub, and which consumer group.", labels=["pipeline"])
    for pipeline, snapshot in seen:
        watched = snapshot.watched
        family.add_metric([pipeline], {"hub": watched.hub.url, "consumer_group": watched.group.name})
    return family


def _states(seen: Sequence[tuple[str, GroupSnapshot]]) -> Iterator[tuple[dict[str, str], float]]:
    for pipeline, snapshot in seen:
        if not snapshot.watched.balanced:  # no record says who has what
            continue
        owned = snapshot.count(lambda one: one.progress.alive)
        expired = snapshot.count(lambda one: bool(one.progress.owner)) - owned
        states = {"owned": owned, "free": len(snapshot.partitions) - owned - expired, "expired": expired}
        yield from (({"pipeline": pipeline, "state": state}, count) for state, count in states.items())


def _gauge(name: str, documentation: str, values: _Values) -> Metric:
    return _family("gauge", name, documentation, values)


def _family(kind: str, name: str, documentation: str, values: _Values) -> Metric:
    counts = kind == "counter"
    family = (CounterMetricFamily if counts else GaugeMetricFamily)(f"leasehold_{name}", documentation)
    full = f"{family.name}_total" if counts else family.name
    family.samples += [Sample(full, labels, float(value)) for labels, value in values if value is not None]
    return family
