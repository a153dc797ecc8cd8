"""Ownership and checkpoints in an Azure table, laid out as the official Python processors do.

    PartitionKey "NAMESPACE HUB GROUP Ownership"        RowKey PARTITION     ownerid
    PartitionKey "NAMESPACE HUB GROUP Checkpoint"       RowKey PARTITION     offset, sequencenumber
    PartitionKey "NAMESPACE HUB GROUP Leasehold AREA"   RowKey NAME          ours alone

Owns the spelling of keys and the requests. Everything is text. A record is written by replacing the entity if
its ETag still holds, one request each: a batch of a table is all or nothing, and here each record is decided
alone. Makes the table on request only (`create_schema`).

The clock is the service's: an entity's Timestamp has fractions of a second, and the Date of an answer has not,
so an age may be up to a second too low and is never too high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from azure.core import MatchConditions
from azure.data.tables import TableClient, TableEntity, UpdateMode

from leasehold.errors import StoreError
from leasehold.model import ConsumerGroup
from leasehold.stores.azure.access import TABLE, StoreAccess, read_url
from leasehold.stores.azure.calls import Calls, ConditionFailed, Deadline, transport
from leasehold.stores.azure.checkpoints import CheckpointRecords
from leasehold.stores.azure.dates import http_date, time_in_etag
from leasehold.stores.azure.layout import Properties, StoredRecord
from leasehold.stores.azure.names import ANY_CASE, LONGEST_TABLE_KEY, check_length, decode, encode, table_key
from leasehold.stores.azure.ownership import AzureOwnershipStore
from leasehold.stores.azure.records import ANY, Area, Page, RecordName, Records
from leasehold.stores.base import StoreFeatures

_OFFICIAL = {Area.OWNERSHIP: "Ownership", Area.CHECKPOINT: "Checkpoint"}
_KEYS = ("PartitionKey", "RowKey")

LARGEST_PAGE = 1_000
"""How many records one answer of the service lists at most."""


class TableRecords(Records):
    """Records as entities."""

    def __init__(self, access: StoreAccess, calls: Calls, page: int) -> None:
        super().__init__(calls)
        self._page = page
        self._table = TableClient(
            access.endpoint, access.place, credential=access.credential, transport=transport(), retry_total=0
        )

    def list(self, group: ConsumerGroup, area: Area, deadline: Deadline) -> Page:
        dates: list[float] = []
        with self.calls.asking():
            listed = self._table.query_entities(
                "PartitionKey eq @key",
                parameters={"key": _partition_key(group, area)},
                raw_response_hook=lambda response: dates.append(http_date(response.http_response.headers)),
                results_per_page=self._page,
                **deadline.request(),
            )
            found = tuple((decode(entity["RowKey"]), _stored(entity)) for entity in listed)
        return Page(found, dates[0])

    def _read(self, address: RecordName, deadline: Deadline) -> StoredRecord:
        with self.calls.asking():
            return _stored(self._table.get_entity(*_keys(address), **deadline.request()))

    def _write(self, address: RecordName, properties: Properties, etag: str | None, deadline: Deadline) -> StoredRecord:
        entity = {**dict(zip(_KEYS, _keys(address), strict=True)), **properties}
        answer: Mapping[str, Any]
        with self.calls.asking():
            if etag is None:
                answer = self._table.create_entity(entity, **deadline.request())
            else:
                answer = self._table.update_entity(entity, UpdateMode.REPLACE, **_condition(etag), **deadline.request())
        modified = time_in_etag(answer["etag"])
        # Only an ETag of Azure's own tables holds the time; where another service speaks their language, look.
        return StoredRecord(properties, answer["etag"], modified) if modified else self._read(address, deadline)

    def _delete(self, address: RecordName, etag: str, deadline: Deadline) -> None:
        with self.calls.asking():
            partition, row = _keys(address)
            self._table.delete_entity(partition, row, **_condition(etag), **deadline.request())

    def make(self) -> None:
        self.calls.make(self._table.create_table)

    def close(self) -> None:
        self._table.close()


def _partition_key(group: ConsumerGroup, area: Area) -> str:
    key = f"{table_key(group)} {_OFFICIAL.get(area) or f'Leasehold {area}'}"
    return check_length("the key of a table's entity", key, LONGEST_TABLE_KEY)


def _keys(address: RecordName) -> tuple[str, str]:
    row = check_length("the key of a table's entity", encode(address.name, ANY_CASE), LONGEST_TABLE_KEY)
    return _partition_key(address.group, address.area), row


def _stored(entity: TableEntity) -> StoredRecord:
    properties = {
        name.lower(): "" if value is None else str(value) for name, value in entity.items() if name not in _KEYS
    }
    etag, timestamp = entity.metadata["etag"], entity.metadata["timestamp"]
    if etag is None or timestamp is None:
        raise StoreError("an entity came without its ETag or Timestamp")
    return StoredRecord(properties, etag, timestamp.timestamp())


def _condition(etag: str) -> dict[str, Any]:
    if etag != ANY and not re.fullmatch(r'(W/)?"[^"]*"', etag):
        raise ConditionFailed(etag)  # no table has ever given such an ETag, and the service calls it bad input
    return {} if etag == ANY else {"etag": etag, "match_condition": MatchConditions.IfNotModified}


class TableStore(AzureOwnershipStore, CheckpointRecords):
    """Ownership and checkpoints in a table that exists. `timeout` is the longest that a call may take.

    `page` is how many records a listing asks for at a time: by default as many as the service gives.
    """

    features = StoreFeatures(shared=True, batches=False, official_layout=True)

    def __init__(self, access: StoreAccess, *, timeout: float = 3.0, page: int = LARGEST_PAGE) -> None:
        records = TableRecords(access, Calls(access.where, timeout), page)
        AzureOwnershipStore.__init__(self, records)
        CheckpointRecords.__init__(self, records)

    def __repr__(self) -> str:
        return f"TableStore({self._calls.where})"

    def create_schema(self) -> None:
        """Make the table, unless it is there. Its records have no versions: they are the official ones."""
        self._records.make()

    def close(self) -> None:
        """Close all connections and end the threads."""
        self._calls.close()
        self._records.close()


def open_table_store(url: str, base: Path, timeout: float) -> TableStore:
    """The store in the table that an `aztable://` URL names; `base` has no meaning here."""
    return TableStore(read_url(url, TABLE), timeout=timeout)
