"""The rules of checkpoint records, as pure functions that every backend without a rule engine of its own uses."""

from __future__ import annotations

import dataclasses

from leasehold.errors import CheckpointStepBack, OwnerLevelSuperseded
from leasehold.model import Checkpoint


def raised(stored: Checkpoint | None, start: Checkpoint) -> Checkpoint:
    """The record after `start` announced its owner level: its place stays, its level never falls."""
    if stored is None:
        return start
    if stored.owner_level >= start.owner_level:
        return stored
    return dataclasses.replace(stored, owner_level=start.owner_level)


def check_update(stored: Checkpoint | None, update: Checkpoint) -> None:
    """Refuse a lower owner level (`OwnerLevelSuperseded`) and a step back within one (`CheckpointStepBack`)."""
    if stored is None or update.owner_level > stored.owner_level:
        return
    if update.owner_level < stored.owner_level:
        raise OwnerLevelSuperseded(update.partition, update.owner_level, stored.owner_level)
    if update.sequence_number < stored.sequence_number:
        raise CheckpointStepBack(update.partition, update.sequence_number, stored.sequence_number)
