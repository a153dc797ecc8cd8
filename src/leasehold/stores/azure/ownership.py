"""Ownership, presence and asks on Azure, beside the official event processors and against them.

Owns the order of writes. An official processor that steals or gives up a partition wipes our keys from its
record, the owner level among them. So each level is also written to a record of its own:

    claim     1. raise the level record to the new level     2. write the ownership record, if its ETag still holds

A crash in between leaves a level record that is ahead: a level that nobody was given is skipped. The other
order could lose one: claimed, crashed, wiped, and the next owner would be given the same level again. The
level record is read only where the ownership record has lost its own, so that a claim which was lost never shows.
A claim, a renewal or a giving up of a partition one of whose blobs another program has leased counts as lost, since
nobody can write there; the records of other partitions are written.

Promises that a level never goes back, whatever official processors write. What they wipe and nobody can bring
back is the nonce, the successor, and how often and how the partition has failed.

The time is the service's: the Date of its answers and the time of each record's last write. Both may be cut
down to whole seconds (`StoreFeatures.clock_granularity`); as_of is never ahead of the service's clock by more.
Each record is one request, `calls.WORKERS` of them at a time.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from functools import partial

from leasehold.errors import LeaseholdError
from leasehold.model import Ask, ConsumerGroup, Ownership, OwnershipListing, Presence, RecordKind
from leasehold.stores.azure.calls import Deadline, Leased
from leasehold.stores.azure.layout import (
    StoredRecord,
    ask_properties,
    fitting_error,
    ownership_is_foreign,
    ownership_properties,
    presence_created,
    presence_properties,
    read_ask,
    read_level,
    read_ownership,
    read_presence,
)
from leasehold.stores.azure.records import Area, Page, RecordName, Records
from leasehold.stores.readable import listing, read
from leasehold.stores.rules import renews

logger = logging.getLogger(__name__)

_Named = tuple[str, StoredRecord]

_PRESENCE, _ASK = "presence-", "ask-"  # what the names of records in the fleet's area begin with


class AzureOwnershipStore:
    """An `OwnershipStore` on `records`."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._calls = records.calls
        self._levels: dict[RecordName, StoredRecord] = {}  # as last seen; what it saves is a request
        self._latest: dict[RecordName, StoredRecord] = {}  # as last written here; likewise
        self._created: dict[RecordName, float] = {}

    def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
        deadline = self._calls.deadline()
        official, fleet = self._list(group, (Area.OWNERSHIP, Area.FLEET), deadline)
        levels: dict[str, StoredRecord] = {}
        if any(ownership_is_foreign(stored) for _, stored in official.records):
            [page] = self._list(group, (Area.OWNERSHIP_LEVEL,), deadline)
            levels = dict(page.records)

        def ownership(named: _Named) -> Ownership:
            return read_ownership(group, *named, read_level(levels.get(named[0])))

        present = [(name.removeprefix(_PRESENCE), one) for name, one in fleet.records if name.startswith(_PRESENCE)]
        asked = [(name.removeprefix(_ASK), one) for name, one in fleet.records if name.startswith(_ASK)]
        # A record may have been written after the listing began; no age is negative.
        newest = max([0.0, *(one.modified for _, one in (*official.records, *present))])
        return listing(
            [read(RecordKind.OWNERSHIP, group, n[0], ownership, n, tag=_tag) for n in official.records],
            max(min(official.date, fleet.date), newest),
            [read(RecordKind.PRESENCE, group, n[0], partial(_presence, group), n) for n in present],
            [read(RecordKind.ASK, group, n[0], partial(_ask, group), n) for n in asked],
        )

    def _list(self, group: ConsumerGroup, areas: Sequence[Area], deadline: Deadline) -> list[Page]:
        return self._calls.each(lambda area: self._records.list(group, area, deadline), areas, deadline)

    def claim_ownership(self, claims: Sequence[Ownership]) -> list[Ownership]:
        deadline = self._calls.deadline()

        def claim(record: Ownership) -> Ownership | None:
            address = RecordName(record.group, Area.OWNERSHIP_LEVEL, record.partition)
            known = self._levels.get(address)
            try:
                self._levels[address] = self._records.raise_level(address, record.owner_level, known, deadline)
            except Leased:
                return None
            return self._write(record, deadline)

        won = self._calls.each(claim, claims, deadline)
        return [record for record in won if record]

    def renew_ownership(self, held: Sequence[Ownership], presence: Presence | None = None) -> list[Ownership]:
        """Renew as many as can be. One whose outcome is not known is not in the result, as one that was lost is
        not: a listing tells them apart. Only if nothing at all was renewed, the first failure is raised.
        """
        deadline = self._calls.deadline()

        def renew(record: Ownership | Presence) -> Ownership | None:
            if isinstance(record, Ownership):
                return self._write(record, deadline) if self._stands(record, deadline) else None
            self._put_presence(record, deadline)
            return None

        records: list[Ownership | Presence] = [*([presence] if presence else []), *held]
        outcomes = self._calls.outcomes(renew, records, deadline)
        failures = [outcome for outcome in outcomes if isinstance(outcome, LeaseholdError)]
        renewed = [outcome for outcome in outcomes if isinstance(outcome, Ownership)]
        if failures and not renewed:
            raise failures[0]
        if failures:
            logger.warning("%d of %d renewals failed: %s", len(failures), len(outcomes), failures[0])
        return renewed

    def relinquish_ownership(self, held: Sequence[Ownership]) -> list[Ownership]:
        deadline = self._calls.deadline()
        given_up = [dataclasses.replace(record, owner_id="") for record in held if record.etag is not None]
        written = self._calls.each(lambda record: self._write(record, deadline), given_up, deadline)
        return [record for record in written if record]

    def _write(self, record: Ownership, deadline: Deadline) -> Ownership | None:
        record = dataclasses.replace(record, last_error=fitting_error(record.last_error))
        address = RecordName(record.group, Area.OWNERSHIP, record.partition)
        try:
            stored = self._records.write(address, ownership_properties(record), record.etag, deadline)
        except Leased:
            return None
        if stored:
            self._latest[address] = stored
        return dataclasses.replace(record, etag=stored.etag, last_modified=stored.modified) if stored else None

    def _stands(self, record: Ownership, deadline: Deadline) -> bool:
        """Whether this is the record that has its ETag, by the same owner at the same level."""
        address = RecordName(record.group, Area.OWNERSHIP, record.partition)
        stands = self._latest.get(address)
        if stands is None or stands.etag != record.etag:
            stands = self._records.read(address, deadline)
        # A level that an official write has wiped is looked up by who lists, and is not compared here.
        if stands is None:
            return False
        try:
            return renews(read_ownership(record.group, record.partition, stands, record.owner_level), record)
        except ValueError:  # what stands there is nobody's
            return False

    # Presence and asks

    def _put_presence(self, presence: Presence, deadline: Deadline) -> None:
        address = _presence_at(presence.group, presence.owner_id)
        created = self._created.get(address)
        if created is None and (stands := self._records.read(address, deadline)):
            created = presence_created(stands)
        stored = self._records.put(address, presence_properties(presence, created), deadline)
        self._created[address] = stored.modified if created is None else created

    def withdraw_presence(self, group: ConsumerGroup, owner_ids: Sequence[str]) -> None:
        deadline = self._calls.deadline()

        def withdraw(owner_id: str) -> None:
            address = _presence_at(group, owner_id)
            self._created.pop(address, None)
            if stands := self._records.read(address, deadline):
                self._records.delete(address, stands.etag, deadline)

        self._calls.each(withdraw, owner_ids, deadline)

    def ask(self, asks: Sequence[Ask]) -> None:
        deadline = self._calls.deadline()
        latest = {(ask.group, ask.partition): ask for ask in asks}.values()
        self._calls.each(lambda ask: self._records.put(_ask_at(ask), ask_properties(ask), deadline), latest, deadline)

    def withdraw_asks(self, asks: Sequence[Ask]) -> None:
        deadline = self._calls.deadline()

        def withdraw(ask: Ask) -> None:
            stands = self._records.read(_ask_at(ask), deadline)
            if (
                stands
                and read(RecordKind.ASK, ask.group, ask.partition, partial(_ask, ask.group), (ask.partition, stands))
                == ask
            ):
                self._records.delete(_ask_at(ask), stands.etag, deadline)

        self._calls.each(withdraw, asks, deadline)


def _tag(named: _Named) -> tuple[object, object]:
    return named[1].etag, named[1].modified


def _presence(group: ConsumerGroup, named: _Named) -> Presence:
    return read_presence(group, *named)


def _ask(group: ConsumerGroup, named: _Named) -> Ask:
    return read_ask(group, *named)


def _presence_at(group: ConsumerGroup, owner_id: str) -> RecordName:
    return RecordName(group, Area.FLEET, _PRESENCE + owner_id)


def _ask_at(ask: Ask) -> RecordName:
    return RecordName(ask.group, Area.FLEET, _ASK + ask.partition)
