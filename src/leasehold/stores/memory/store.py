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
from typing import TypeVar

from leasehold.clock import Clock, SystemClock
from leasehold.errors import ConfigError, NotTheOwner
from leasehold.model import (
    Ask,
    Checkpoint,
    ConsumerGroup,
    Ownership,
    OwnershipListing,
    Presence,
    RecordKind,
    Unreadable,
)
from leasehold.stores.base import PipelineBinding, StoreFeatures
from leasehold.stores.checkpoint_data import check_data
from leasehold.stores.readable import listing, read
from leasehold.stores.rules import raised, refusal, renews
from leasehold.stores.skipped import Skipped

_Key = tuple[ConsumerGroup, str]
R = TypeVar("R", Ownership, Presence, Ask, Checkpoint)


class MemoryStore:
    """Ownership and checkpoints in dictionaries. `features` can be narrowed, to see how things go without."""

    def __init__(self, clock: Clock | None = None, features: StoreFeatures | None = None) -> None:
        self.features = features or StoreFeatures(shared=False, one_process=True)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._skipped = Skipped("memory")
        self._etags = itertools.count(1)
        self._ownership: dict[_Key, Ownership] = {}
        self._presences: dict[_Key, Presence] = {}
        self._asks: dict[_Key, Ask] = {}
        self._checkpoints: dict[_Key, Checkpoint] = {}
        self._bindings: dict[ConsumerGroup, PipelineBinding] = {}

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        with self._lock:
            return listing(
                [
                    read(RecordKind.OWNERSHIP, group, name, _same, one, tag=_tag)
                    for (of, name), one in self._ownership.items()
                    if of == group
                ],
                self._now(),
                [
                    read(RecordKind.PRESENCE, group, name, _same, one)
                    for (of, name), one in self._presences.items()
                    if of == group
                ],
                [
                    read(RecordKind.ASK, group, name, _same, one)
                    for (of, name), one in self._asks.items()
                    if of == group
                ],
            )

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        return self._write(claims)

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        if presence is not None and self.features.presence:
            with self._lock:
                key, now = (presence.group, presence.owner_id), self._now()
                created = self._presences[key].created if key in self._presences else now
                self._presences[key] = dataclasses.replace(
                    presence, created=created, last_modified=now, etag=str(next(self._etags))
                )
        return self._write(held, renewing=True)

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        return self._write([dataclasses.replace(record, owner_id="") for record in held if record.etag is not None])

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        with self._lock:
            for owner_id in owner_ids:
                self._presences.pop((group, owner_id), None)

    def ask(self, asks: Sequence[Ask]) -> None:
        if self.features.presence:
            with self._lock:
                self._asks.update({(ask.group, ask.partition): ask for ask in asks})

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        with self._lock:
            for ask in asks:
                key = ask.group, ask.partition
                if self._asks.get(key) == ask:
                    del self._asks[key]

    def _write(self, records: Sequence[Ownership], *, renewing: bool = False) -> list[Ownership]:
        won = []
        with self._lock:
            for record in records:
                key = record.group, record.partition
                stored = self._ownership.get(key)
                if renewing and not (stored and renews(stored, record)):
                    continue
                if record.etag == (stored.etag if stored else None):
                    self._ownership[key] = dataclasses.replace(
                        record, etag=str(next(self._etags)), last_modified=self._now()
                    )
                    won.append(self._ownership[key])
        return won

    def _now(self) -> float:
        return self._clock.monotonic() if self.features.own_clock else 0.0

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        with self._lock:
            partitions = [partition for of, partition in self._checkpoints if of == group]
            return self._skipped.left(self._stands(group, partition) for partition in partitions)

    def _stands(self, group: ConsumerGroup, partition: str) -> Checkpoint | Unreadable:
        return read(RecordKind.CHECKPOINT, group, partition, _same, self._checkpoints[group, partition])

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        with self._lock:
            for start in starts:
                key = start.group, start.partition
                stands = self._stands(*key) if key in self._checkpoints else None
                if not isinstance(stands, Unreadable):
                    self._checkpoints[key] = raised(stands, start)
            return self._skipped.left(self._stands(start.group, start.partition) for start in starts)

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        refused = []
        for checkpoint in checkpoints:
            check_data(checkpoint.data)
        with self._lock:
            for checkpoint in checkpoints:
                key = checkpoint.group, checkpoint.partition
                stands = self._stands(*key) if key in self._checkpoints else None
                refusing = None if isinstance(stands, Unreadable) else refusal(stands, checkpoint)
                if refusing is None:
                    self._checkpoints[key] = checkpoint
                else:
                    refused.append(refusing)
        return refused

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        with self._lock:
            return self._bindings.get(group)

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        with self._lock:
            return self._bindings.setdefault(group, binding)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        with self._lock:
            self._bindings[group] = binding


def _same(record: R) -> R:
    return record


def _tag(record: Ownership) -> tuple[object, object]:
    return record.etag, record.last_modified


_stores: dict[str, MemoryStore] = {}
_stores_lock = threading.Lock()


def open_memory_store(url: str, base: Path, timeout: float) -> MemoryStore:
    """The store `memory://NAME` of this process, made on first use; `base` and `timeout` have no meaning here."""
    with _stores_lock:
        return _stores.setdefault(name_of(url), MemoryStore())


def name_of(url: str) -> str:
    """The name in a `memory://NAME` URL. Raises `ConfigError`."""
    name = url.removeprefix("memory://")
    if not name or "/" in name:
        raise ConfigError("store", url, "a memory store is memory://NAME", "For example memory://test")
    return name
