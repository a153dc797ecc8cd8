"""Snapshots of groups as JSON objects, for programs and for people who ask why.

Owns the keys, which are public. What is not known is null. The verdicts' reasons are here alone: a reason is new at
each look, and would be a new series in Prometheus.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from leasehold.metrics.group_families import LookedAt
from leasehold.operations.group_watch import GroupSnapshot, PartitionState
from leasehold.sinks.set_aside import SetAsideCounts


def document(look: LookedAt) -> Mapping[str, object]:
    """One pipeline."""
    snapshot = look.snapshot
    if snapshot is None:
        return {"pipeline": look.pipeline, "up": False, "error": look.error}
    return {
        "pipeline": look.pipeline,
        "up": True,
        "at": snapshot.at,
        "hub": snapshot.watched.hub.url,
        "consumerGroup": snapshot.watched.group.name,
        "verdict": snapshot.verdict.name.lower(),
        "lag": snapshot.lag,
        "lagSeconds": snapshot.times.lag,
        "secondsLeft": _finite(snapshot.times.left),
        "instances": [one.owner_id for one in snapshot.progress.instances],
        "unserved": list(snapshot.progress.unserved),
        "rows": None if snapshot.table is None else snapshot.table.rows,
        "rejected": None if snapshot.table is None else snapshot.table.rejected,
        **_set_aside(snapshot.set_aside),
        "partitions": [_partition(one, snapshot) for one in snapshot.partitions],
    }


def _set_aside(counts: SetAsideCounts | None) -> Mapping[str, object]:
    return {
        "deadLetters": None if counts is None else counts.dead_letters,
        "parked": None if counts is None else counts.parked,
        "oldestParked": None if counts is None else counts.oldest_parked,
        "nextRetry": None if counts is None else counts.next_retry,
        "outbox": None if counts is None else counts.outbox.waiting,
        "oldestInOutbox": None if counts is None else counts.outbox.since,
        "refusedInOutbox": None if counts is None else counts.outbox.refused,
    }


def _partition(state: PartitionState, snapshot: GroupSnapshot) -> Mapping[str, object]:
    row, times = state.progress, state.times
    return {
        "partition": row.partition,
        "verdict": state.verdict.name.lower(),
        "why": state.judgement.why,
        "owner": row.owner,
        "alive": row.alive if snapshot.watched.balanced else None,
        "ownerLevel": row.owner_level,
        "checkpoint": row.checkpoint,
        "end": row.end,
        "lag": times.unread,
        "lagSeconds": times.lag,
        "secondsLeft": _finite(times.left),
        "heldBack": times.held_back,
        "failures": row.failures,
        "lastError": row.last_error,
        "gotOn": state.got_on,
    }


def _finite(seconds: float | None) -> float | None:
    return seconds if seconds is None or math.isfinite(seconds) else None
