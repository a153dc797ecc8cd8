"""A store in the memory of one process: for tests, and for several processors in one program.

Owns nothing that outlives the process. `memory://NAME` is the same store wherever it is opened in the
process. Its clock is the local monotonic one. One lock guards everything, and no call waits while it is held.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Sequence
from pathlib import Path

from leasehold.clock import Clock, SystemClock
from leasehold.errors import ConfigError
from leasehold.model import Checkpoint, ConsumerGroup, Ownership, OwnershipListing
from leasehold.stores.base import PipelineBinding
from leasehold.stores.rules import check_update, raised

_Key = tuple[ConsumerGroup, str]


class MemoryStore:
    """Ownership and checkpoints in dictionaries."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._etags = itertools.count(1)
        self._ownership: dict[_Key, Ownership] = {}
        self._checkpoints: dict[_Key, Checkpoint] = {}
        self._bindings: dict[ConsumerGroup, PipelineBinding] = {}

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        with self._lock:
            records = tuple(record for record in self._ownership.values() if record.group == group)
            return OwnershipListing(records, self._clock.monotonic())

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._write(claims)

    def renew_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._write(held)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._write([dataclasses.replace(record, owner_id="") for record in held])

    def _write(self, records: Sequence[Ownership]) -> list[Ownership]:
        won = []
        with self._lock:
            for record in records:
                key = record.group, record.partition
                stored = self._ownership.get(key)
                if record.etag == (stored.etag if stored else None):
                    self._ownership[key] = dataclasses.replace(
                        record, etag=str(next(self._etags)), last_modified=self._clock.monotonic()
                    )
                    won.append(self._ownership[key])
        return won

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        with self._lock:
            return [checkpoint for checkpoint in self._checkpoints.values() if checkpoint.group == group]

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        with self._lock:
            for start in starts:
                key = start.group, start.partition
                self._checkpoints[key] = raised(self._checkpoints.get(key), start)
            return [self._checkpoints[start.group, start.partition] for start in starts]

    def update_checkpoint(self, checkpoint: Checkpoint) -> None:
        with self._lock:
            key = checkpoint.group, checkpoint.partition
            check_update(self._checkpoints.get(key), checkpoint)
            self._checkpoints[key] = checkpoint

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        with self._lock:
            return self._bindings.setdefault(group, binding)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        with self._lock:
            self._bindings[group] = binding


_stores: dict[str, MemoryStore] = {}
_stores_lock = threading.Lock()


def open_memory_store(url: str, base: Path, timeout: float) -> MemoryStore:
    """The store `memory://NAME` of this process, made on first use; `base` and `timeout` have no meaning here."""
    name = url.removeprefix("memory://")
    if not name or "/" in name:
        raise ConfigError("store", url, "a memory store is memory://NAME", "For example memory://test")
    with _stores_lock:
        return _stores.setdefault(name, MemoryStore())
