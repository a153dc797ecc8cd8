"""Rejected events: what may be done with them, and how they are tried again."""

from leasehold.sinks.beside.set_aside.contract import (
    DroppedRow,
    EventId,
    KeepsRejected,
    ParkedAgain,
    ReasonCount,
    RejectedRow,
    RejectedRows,
    RetryResult,
    Selection,
    SetAsideCounts,
)

__all__ = [
    "DroppedRow",
    "EventId",
    "KeepsRejected",
    "ParkedAgain",
    "ReasonCount",
    "RejectedRow",
    "RejectedRows",
    "RetryResult",
    "Selection",
    "SetAsideCounts",
]
