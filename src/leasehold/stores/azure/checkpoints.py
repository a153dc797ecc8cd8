"""Checkpoints on Azure, fenced against our own former owners, and beside official processors' blind writes.

Owns the order of writes. A checkpoint's place and owner level are in one record, the official one, and each
write of ours compares its ETag; so a former owner of ours is refused in the service, not by luck:

    raise     1. raise the level record to the new level     2. write the checkpoint, if its ETag still holds
    update    the same, where the level is above the highest known; else the second alone

An official processor compares nothing. Its write puts another place there and wipes the level; then the level
record, which no official processor touches, says what level has been reached, so that a former owner of ours
stays refused. A crash between the two writes leaves the level record ahead, which skips a level at most: it is read
only where the checkpoint has lost its own level, or is not there.

What is promised: a lower level is refused, whoever wrote the record; a step back within a level is refused, but for
one behind a place that another SDK's processor wrote. That is a former owner which finished what it had: nobody has
taken the partition from the level that is highest, so its owner is not refused, the place stays as far as it is, and
is written again when the owner is beyond it. What is not: an official processor's write is refused by nobody. Where
one has written, a warning says so once: it is normal in a mixed fleet, and in one that is not mixed somebody else
reads the group.

Each checkpoint is written alone, and one whose blob another program has leased keeps no other from being written. An
announcement leaves it out. An update writes the others, and then raises `Leased`: what it returned would say that all
are written.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from leasehold.errors import CheckpointStepBack, NotTheOwner, StoreUnavailable
from leasehold.model import Checkpoint, ConsumerGroup, RecordKind, Unreadable
from leasehold.stores import readable
from leasehold.stores.azure.calls import Deadline, Leased
from leasehold.stores.azure.layout import (
    StoredRecord,
    binding_properties,
    checkpoint_is_foreign,
    checkpoint_properties,
    read_binding,
    read_checkpoint,
    read_level,
)
from leasehold.stores.azure.records import Area, Page, RecordName, Records
from leasehold.stores.base import PipelineBinding
from leasehold.stores.checkpoint_data import check_data
from leasehold.stores.readable import read, unreadable
from leasehold.stores.rules import raised, refusal
from leasehold.stores.skipped import Skipped

logger = logging.getLogger(__name__)

_BINDING = "binding"


class CheckpointRecords:
    """A `CheckpointStore` on `records`."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._calls = records.calls
        self._latest: dict[RecordName, StoredRecord] = {}  # as last written here; what it saves is a request
        self._known_levels: dict[RecordName, StoredRecord] = {}
        self._reported: set[RecordName] = set()
        self._skipped = Skipped(records.calls.where)

    def list_checkpoints(self, group: ConsumerGroup) -> list[Checkpoint]:
        deadline = self._calls.deadline()
        page = self._list_one(group, Area.CHECKPOINT, deadline)
        levels: dict[str, StoredRecord] = {}
        if any(checkpoint_is_foreign(stored) for _, stored in page.records):
            levels = dict(self._list_one(group, Area.CHECKPOINT_LEVEL, deadline).records)
        listed = []
        for partition, stored in page.records:
            self._report(RecordName(group, Area.CHECKPOINT, partition), stored)
            listed.append(_read(group, partition, stored, read_level(levels.get(partition))))
        return self._skipped.left(checkpoint for checkpoint in listed if checkpoint)

    def _list_one(self, group: ConsumerGroup, area: Area, deadline: Deadline) -> Page:
        [page] = self._calls.each(lambda area: self._records.list(group, area, deadline), [area], deadline)
        return page

    def raise_owner_level(self, starts: Sequence[Checkpoint]) -> list[Checkpoint]:
        deadline = self._calls.deadline()
        by_record: dict[RecordName, list[Checkpoint]] = {}
        for start in starts:
            by_record.setdefault(_at(start), []).append(start)

        def raise_all(address: RecordName) -> Checkpoint | Unreadable | None:
            try:
                return [self._raise(address, start, deadline) for start in by_record[address]][-1]
            except Leased:
                return None

        stands = self._calls.each(raise_all, by_record, deadline)
        standing = dict(zip(by_record, stands, strict=True))
        return self._skipped.left(one for start in starts if (one := standing[_at(start)]))

    def _raise(self, address: RecordName, start: Checkpoint, deadline: Deadline) -> Checkpoint | Unreadable:
        remembered = self._raise_level(start, deadline)
        while deadline.allows_another:
            stored = self._records.read(address, deadline)
            stands = self._checkpoint(address, stored, remembered)
            if isinstance(stands, Unreadable):
                return stands
            new = raised(stands, start)
            if stored is None and remembered > new.owner_level:
                new = replace(new, owner_level=remembered)
            if new == stands and stored is not None and not checkpoint_is_foreign(stored):
                self._latest[address] = stored
                return new
            if self._put(address, new, stored, deadline):
                return new
            deadline.pause()
        raise self._too_busy(start)

    def update_checkpoints(self, checkpoints: Sequence[Checkpoint]) -> list[NotTheOwner]:
        deadline = self._calls.deadline()
        by_record: dict[RecordName, list[Checkpoint]] = {}
        for checkpoint in checkpoints:
            check_data(checkpoint.data)
            by_record.setdefault(_at(checkpoint), []).append(checkpoint)

        def update_all(address: RecordName) -> list[NotTheOwner | None]:
            return [self._update(address, checkpoint, deadline) for checkpoint in by_record[address]]

        outcomes = self._calls.each(update_all, by_record, deadline)
        return [refused for some in outcomes for refused in some if refused]

    def _update(self, address: RecordName, checkpoint: Checkpoint, deadline: Deadline) -> NotTheOwner | None:
        latest = self._latest.get(address)
        if latest is not None:
            ours = read_checkpoint(address.group, address.name, latest, 0)
            known = ours is not None and checkpoint.owner_level == ours.owner_level
            if known and refusal(ours, checkpoint) is None and self._put(address, checkpoint, latest, deadline):
                return None
        while deadline.allows_another:
            stored = self._records.read(address, deadline)
            remembered = 0
            stands = self._checkpoint(address, stored, remembered)
            if stored is None or checkpoint_is_foreign(stored) or isinstance(stands, Unreadable):
                remembered = self._level(checkpoint, deadline)
                stands = self._checkpoint(address, stored, remembered)
            if isinstance(stands, Unreadable):
                self._skipped.tell(stands)
                stands = None  # its level is in the level record too
            # A level that is remembered though the checkpoint is gone still refuses a lower one.
            against = stands or Checkpoint(checkpoint.group, checkpoint.partition, -1, remembered)
            if (refused := refusal(against, checkpoint)) is not None:
                behind = isinstance(refused, CheckpointStepBack)
                return None if behind and stored is not None and checkpoint_is_foreign(stored) else refused
            if against.owner_level < checkpoint.owner_level:
                self._raise_level(checkpoint, deadline)
            if self._put(address, checkpoint, stored, deadline):
                return None
            deadline.pause()
        raise self._too_busy(checkpoint)

    def _put(
        self, address: RecordName, checkpoint: Checkpoint, before: StoredRecord | None, deadline: Deadline
    ) -> bool:
        properties = checkpoint_properties(checkpoint, before)
        self._latest.pop(address, None)  # where this write is not made, the next call looks first
        written = self._records.write(address, properties, before.etag if before else None, deadline)
        if written is not None:
            self._latest[address] = written
        return written is not None

    def _checkpoint(
        self, address: RecordName, stored: StoredRecord | None, remembered: int
    ) -> Checkpoint | Unreadable | None:
        if stored is None:
            return None
        self._report(address, stored)
        return _read(address.group, address.name, stored, remembered)

    def _raise_level(self, checkpoint: Checkpoint, deadline: Deadline) -> int:
        address = _level_of(checkpoint)
        known = self._known_levels.get(address)
        self._known_levels[address] = self._records.raise_level(address, checkpoint.owner_level, known, deadline)
        return read_level(self._known_levels[address])

    def _level(self, checkpoint: Checkpoint, deadline: Deadline) -> int:
        return read_level(self._records.read(_level_of(checkpoint), deadline))

    def _report(self, address: RecordName, stored: StoredRecord) -> None:
        if checkpoint_is_foreign(stored) and address not in self._reported:
            self._reported.add(address)
            logger.warning(
                "the checkpoint of partition %s of %s was last written by another SDK's processor, which compares "
                "nothing: normal in a mixed fleet; in any other, somebody else reads this group",
                address.name,
                address.group,
            )

    def _too_busy(self, checkpoint: Checkpoint) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._calls.where}: no time was left to write the checkpoint of partition {checkpoint.partition}; the "
            "service is slow, or others write it all the time"
        )

    # Bindings

    def pipeline_binding(self, group: ConsumerGroup) -> PipelineBinding | None:
        deadline = self._calls.deadline()
        address = RecordName(group, Area.PIPELINE, _BINDING)
        [stands] = self._calls.each(lambda address: self._records.read(address, deadline), [address], deadline)
        return None if stands is None else readable.read_binding(self._calls.where, group, read_binding, stands)

    def bind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> PipelineBinding:
        deadline = self._calls.deadline()
        address = RecordName(group, Area.PIPELINE, _BINDING)
        properties = binding_properties(binding.pipeline, binding.sink)

        def bind(address: RecordName) -> StoredRecord:
            while True:
                if stored := self._records.read(address, deadline):
                    return stored
                if stored := self._records.write(address, properties, None, deadline):
                    return stored

        [stands] = self._calls.each(bind, [address], deadline)
        return readable.read_binding(self._calls.where, group, read_binding, stands)

    def rebind_pipeline(self, group: ConsumerGroup, binding: PipelineBinding) -> None:
        deadline = self._calls.deadline()
        properties = binding_properties(binding.pipeline, binding.sink)
        address = RecordName(group, Area.PIPELINE, _BINDING)
        self._calls.each(lambda address: self._records.put(address, properties, deadline), [address], deadline)


def _read(
    group: ConsumerGroup, partition: str, stored: StoredRecord, remembered: int
) -> Checkpoint | Unreadable | None:
    try:
        found = read_checkpoint(group, partition, stored, remembered)
    except ValueError as error:
        return unreadable(RecordKind.CHECKPOINT, group, partition, error)
    return None if found is None else read(RecordKind.CHECKPOINT, group, partition, _same, found)


def _same(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint


def _at(checkpoint: Checkpoint) -> RecordName:
    return RecordName(checkpoint.group, Area.CHECKPOINT, checkpoint.partition)


def _level_of(checkpoint: Checkpoint) -> RecordName:
    return RecordName(checkpoint.group, Area.CHECKPOINT_LEVEL, checkpoint.partition)
