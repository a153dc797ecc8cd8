"""A notice of each kind, in the order in which the module defines them."""

from __future__ import annotations

from leasehold.counts import Counts
from leasehold.model import RecordKind
from leasehold.notices import (
    BatchDone,
    BatchRetried,
    CheckpointUpdated,
    CycleBegun,
    CycleEnded,
    CycleFailed,
    EventsLost,
    EventsReceived,
    HandOverAsked,
    LossReason,
    NameShared,
    Notice,
    OwnershipClaimed,
    OwnershipLost,
    OwnershipRelinquished,
    PartitionsUnserved,
    PartitionSuspected,
    RecordSkipped,
    StartDelayed,
    StoreCalled,
    TableApplied,
    WorkStalled,
)

ALL: tuple[Notice, ...] = (
    OwnershipClaimed("0", 1, ""),
    OwnershipLost("0", 1, LossReason.TAKEN),
    OwnershipRelinquished("0", 1, "b/1"),
    HandOverAsked("0", 1, "b/1"),
    NameShared("a/2"),
    PartitionSuspected("0", 2, "it ended"),
    PartitionsUnserved(("0",)),
    CheckpointUpdated("0", 1, 17),
    CycleFailed(ValueError("x")),
    EventsLost("0", 1, 2),
    StartDelayed(ValueError("x"), 60.0),
    RecordSkipped(RecordKind.PRESENCE, "a/1", "no capacity"),
    WorkStalled(("0",)),
    StoreCalled("claim_ownership", 0.1, 2, 1),
    CycleBegun("a/1", 600.0),
    CycleEnded("a/1", 0.1, 10.0, {"0": 29.0}, 4, settled=True, failed=False, stalled=False, stall_timeout=600.0),
    EventsReceived("0", 10, 0.1),
    BatchDone(10, {"handle": 0.5}),
    TableApplied("flights", Counts(applied=10, used=10), 0.2, {"stage": 0.1}),
    BatchRetried("away"),
)
