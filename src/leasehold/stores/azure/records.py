"""One record at a time, on whichever of the two services.

Owns what a conditional write means when the network is not to be relied on. A write carries a text that is new
with each of them; where a write got no answer, it is made again within the time-out, and if the record has
changed meanwhile, that text tells whether it was this write that changed it. So a lost answer is not taken
for a lost race, and a write is never made twice.

Promises that a write compares the ETag in the service itself: of many with the same ETag one wins. And that a record
whose blob another program has leased is told by name and at once (`Leased`).
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum

from leasehold.errors import StoreUnavailable
from leasehold.model import ConsumerGroup
from leasehold.stores.azure.calls import Calls, ConditionFailed, Deadline, Leased
from leasehold.stores.azure.layout import WRITE, Properties, StoredRecord, level_properties, read_level


class Area(StrEnum):
    """The kinds of records of a group. The first two are the official ones; the others nobody else looks at."""

    OWNERSHIP = "ownership"
    CHECKPOINT = "checkpoint"
    OWNERSHIP_LEVEL = "ownership-level"
    CHECKPOINT_LEVEL = "checkpoint-level"
    FLEET = "fleet"
    PIPELINE = "pipeline"


@dataclass(frozen=True, slots=True)
class RecordName:
    """The name of a record."""

    group: ConsumerGroup
    area: Area
    name: str


@dataclass(frozen=True, slots=True)
class Page:
    """All records of an area by name, and the service's time when the listing began."""

    records: tuple[tuple[str, StoredRecord], ...]
    date: float


ANY = "*"
"""In place of an ETag: whatever the record's is, as long as there is one."""


class Records(ABC):
    """What a service keeps. Subclasses make one request in each of the methods that begin with an underscore."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    @abstractmethod
    def list(self, group: ConsumerGroup, area: Area, deadline: Deadline) -> Page:
        """All records of an area."""

    @abstractmethod
    def _read(self, address: RecordName, deadline: Deadline) -> StoredRecord:
        """The record. Raises `ConditionFailed` if it is not there."""

    @abstractmethod
    def _write(self, address: RecordName, properties: Properties, etag: str | None, deadline: Deadline) -> StoredRecord:
        """Write the record if its ETag is `etag` (None: if there is none). Raises `ConditionFailed` otherwise."""

    @abstractmethod
    def _delete(self, address: RecordName, etag: str, deadline: Deadline) -> None:
        """Delete the record if its ETag is `etag`. Raises `ConditionFailed` otherwise."""

    @abstractmethod
    def make(self) -> None:
        """Make the container or table, unless it is there."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def read(self, address: RecordName, deadline: Deadline) -> StoredRecord | None:
        """The record as it stands, or None."""
        while True:
            try:
                return self._read(address, deadline)
            except ConditionFailed:
                return None
            except StoreUnavailable as error:
                self._again(deadline, error)

    def write(
        self, address: RecordName, properties: Properties, etag: str | None, deadline: Deadline
    ) -> StoredRecord | None:
        """Write the record if its ETag is `etag` (None: if there is none). Returns it, or None if it was not.

        Raises `Leased` where another program has leased its blob.
        """
        marked = {**properties, WRITE: secrets.token_hex(6)}
        unanswered = False
        while True:
            try:
                return self._write(address, marked, etag, deadline)
            except (ConditionFailed, Leased) as refused:
                stands = self.read(address, deadline) if unanswered else None
                if stands and stands.properties.get(WRITE) == marked[WRITE]:
                    return stands
                if isinstance(refused, Leased):
                    raise
                return None
            except StoreUnavailable as error:
                self._again(deadline, error)
                unanswered = True

    def put(self, address: RecordName, properties: Properties, deadline: Deadline) -> StoredRecord:
        """Write the record, whether it is there or not. Raises `Leased` as `write` does."""
        while True:
            for etag in (ANY, None):
                if stored := self.write(address, properties, etag, deadline):
                    return stored
            self._again(
                deadline, StoreUnavailable(f"{self.calls.where}: a record comes and goes too fast to be written")
            )

    def delete(self, address: RecordName, etag: str, deadline: Deadline) -> None:
        """Delete the record, if its ETag is `etag` and no other program has leased its blob."""
        while True:
            try:
                return self._delete(address, etag, deadline)
            except (ConditionFailed, Leased):
                return None
            except StoreUnavailable as error:
                self._again(deadline, error)

    def raise_level(
        self, address: RecordName, level: int, expected: StoredRecord | None, deadline: Deadline
    ) -> StoredRecord:
        """Let the level record at `address` say at least `level`; return it as it now stands.

        `expected` is how it stood when it was last seen, which saves a request if it still does. Raises `Leased` as
        `write` does.
        """
        stands, is_fresh = expected, False
        while stands is None or read_level(stands) < level:
            etag = stands.etag if stands else None
            if written := self.write(address, level_properties(level), etag, deadline):
                return written
            if is_fresh:
                why = f"no time was left to write the owner level of partition {address.name}; others write it always"
                self._again(deadline, StoreUnavailable(f"{self.calls.where}: {why}"))
            stands, is_fresh = self.read(address, deadline), True
        return stands

    @staticmethod
    def _again(deadline: Deadline, error: StoreUnavailable) -> None:
        """Wait a little before another attempt, or raise `error` if there is no time left for one."""
        if not deadline.allows_another:
            raise error
        deadline.pause()
