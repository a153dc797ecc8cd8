"""The rules of records, as pure functions that every backend without a rule engine of its own uses."""

from __future__ import annotations

import dataclasses

from leasehold.errors import CheckpointStepBack, NotTheOwner, OwnerLevelSuperseded
from leasehold.model import Checkpoint, Ownership


def renews(stored: Ownership, held: Ownership) -> bool:
    """Whether `held` is the record that stands there, by the same owner at the same level."""
    return (stored.etag, stored.owner_id, stored.owner_level) == (held.etag, held.owner_id, held.owner_level)


def raised(stored: Checkpoint | None, start: Checkpoint) -> Checkpoint:
    """The record after `start` announced its owner level: its place stays, its level never falls."""
    if stored is None:
        return start
    if stored.owner_level >= start.owner_level:
        return stored
    return dataclasses.replace(stored, owner_level=start.owner_level)


def refusal(stored: Checkpoint | None, update: Checkpoint) -> NotTheOwner | None:
    """Why an update is refused: a lower owner level, or a step back within one. None if it is not."""
    if stored is None or update.owner_level > stored.owner_level:
        return None
    if update.owner_level < stored.owner_level:
        return OwnerLevelSuperseded(update.partition, update.owner_level, stored.owner_level)
    if update.sequence_number < stored.sequence_number:
        return CheckpointStepBack(update.partition, update.sequence_number, stored.sequence_number)
    return None
