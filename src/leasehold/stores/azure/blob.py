"""Ownership and checkpoints in a container of Azure Blob Storage, shared with official event processors.

    NAMESPACE/HUB/GROUP/ownership/PARTITION     the official ones: empty blobs, everything is metadata
    NAMESPACE/HUB/GROUP/checkpoint/PARTITION
    ~leasehold/NAMESPACE/HUB/GROUP/AREA/NAME    ours: levels, presence and asks, the pipeline

Owns the spelling of names and the requests. Promises that what an official processor lists is what it would
have written itself, and that nothing of ours is under a prefix that it lists. A blob is made by Put Blob with
If-None-Match and then changed by Set Metadata alone, since uploading anew would leave a version or a
soft-deleted copy behind each time. Makes the container on request only (`create_schema`).

The clock is the service's: Date and Last-Modified, both cut down to whole seconds. An age that is computed
from them may be up to a second too high, and `features.clock_granularity` says so to whoever judges by it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from azure.core import MatchConditions
from azure.storage.blob import BlobClient, BlobProperties, ContainerClient

from leasehold.errors import ConfigError
from leasehold.model import ConsumerGroup
from leasehold.stores.azure.access import BLOB, StoreAccess, read_url
from leasehold.stores.azure.calls import Calls, ConditionFailed, Deadline, Leased, transport
from leasehold.stores.azure.checkpoints import CheckpointRecords
from leasehold.stores.azure.dates import http_date
from leasehold.stores.azure.layout import Properties, StoredRecord
from leasehold.stores.azure.names import (
    LONGEST_BLOB_NAME,
    LOWER,
    alike,
    blob_folder,
    check_length,
    decode,
    encode,
    others_may_share,
)
from leasehold.stores.azure.ownership import AzureOwnershipStore
from leasehold.stores.azure.records import ANY, Area, Page, RecordName, Records
from leasehold.stores.base import StoreFeatures

logger = logging.getLogger(__name__)

OURS = "~leasehold"
"""The folder of blobs that are ours alone: `~` is in no name of an official processor."""

LARGEST_PAGE = 5_000
"""How many records one answer of the service lists at most."""

_LEASED = "LeaseIdMissing"
"""What the service answers to a write without the lease id of a blob that is leased."""


class BlobRecords(Records):
    """Records as blobs without content."""

    def __init__(self, access: StoreAccess, calls: Calls, page: int) -> None:
        super().__init__(calls)
        self._page = page
        self._as_spelled = access.as_spelled
        self._told_leased: set[RecordName] = set()
        self._container = ContainerClient(
            access.endpoint, access.place, credential=access.credential, transport=transport(), retry_total=0
        )

    def list(self, group: ConsumerGroup, area: Area, deadline: Deadline) -> Page:
        folder = self._folder(group, area)
        dates: list[float] = []
        found = []
        with self.calls.asking():
            listed = self._container.list_blobs(
                name_starts_with=folder,
                include=["metadata"],
                raw_response_hook=lambda response: dates.append(http_date(response.http_response.headers)),
                results_per_page=self._page,
                **deadline.request(),
            )
            for blob in listed:
                name = blob.name.removeprefix(folder)
                # Accounts with a hierarchical namespace list their folders too.
                if name and "/" not in name and "hdi_isfolder" not in (blob.metadata or {}):
                    found.append((decode(name), _stored(blob)))
        return Page(tuple(found), dates[0])

    def _read(self, address: RecordName, deadline: Deadline) -> StoredRecord:
        with self.calls.asking():
            return _stored(self._blob(address).get_blob_properties(**deadline.request()))

    def _write(self, address: RecordName, properties: Properties, etag: str | None, deadline: Deadline) -> StoredRecord:
        blob, metadata = self._blob(address), dict(properties)
        answer: Any  # the SDK says: a dictionary of texts or times
        with self._telling_of_leases(address):
            if etag is None:
                answer = blob.upload_blob(b"", metadata=metadata, overwrite=False, **deadline.request())
            else:
                answer = blob.set_blob_metadata(metadata, **_condition(etag), **deadline.request())
        return StoredRecord(metadata, _plain(answer["etag"]), answer["last_modified"].timestamp())

    def _delete(self, address: RecordName, etag: str, deadline: Deadline) -> None:
        with self._telling_of_leases(address):
            self._blob(address).delete_blob(**_condition(etag), **deadline.request())

    @contextmanager
    def _telling_of_leases(self, address: RecordName) -> Iterator[None]:
        """As `Calls.asking`; raise `Leased` for a blob that somebody has leased, and log that once for each blob.

        No processor leases such a blob.
        """
        try:
            with self.calls.asking():
                yield
        except ConditionFailed as lost:
            if str(lost) != _LEASED:
                raise
            leased = Leased(
                f"{self.calls.where}: another program has leased the blob {self._blob(address).blob_name}: its record "
                "cannot be written until that lease ends or somebody breaks it (`az storage blob lease break`)"
            )
            if address not in self._told_leased:
                self._told_leased.add(address)
                logger.warning("%s", leased)
            raise leased from None

    def _blob(self, address: RecordName) -> BlobClient:
        name = self._folder(address.group, address.area) + encode(address.name, LOWER)
        return self._container.get_blob_client(check_length("the name of a blob", name, LONGEST_BLOB_NAME))

    def namesakes(self, group: ConsumerGroup, deadline: Deadline) -> Sequence[str]:
        """The folders `namespace/hub/group` of this group in other spellings than ours."""
        ours = blob_folder(group, as_spelled=self._as_spelled)
        found = [""]
        for part in ours.split("/"):
            found = [
                name for above in found for name in self._folders(above, deadline) if alike(name.split("/")[-2], part)
            ]
        return sorted(folder.removesuffix("/") for folder in found if folder != f"{ours}/")

    def _folders(self, above: str, deadline: Deadline) -> Sequence[str]:
        with self.calls.asking():
            listed = self._container.walk_blobs(name_starts_with=above, delimiter="/", **deadline.request())
            return [one.name for one in listed if one.name.endswith("/")]

    def _folder(self, group: ConsumerGroup, area: Area) -> str:
        folder = f"{blob_folder(group, as_spelled=self._as_spelled)}/{area}/"
        return folder if area in (Area.OWNERSHIP, Area.CHECKPOINT) else f"{OURS}/{folder}"

    def make(self) -> None:
        self.calls.make(self._container.create_container)

    def close(self) -> None:
        self._container.close()


def _stored(blob: BlobProperties) -> StoredRecord:
    # An empty value is listed as None, and capitals of a key may have been changed on the way.
    metadata = {name.lower(): value or "" for name, value in (blob.metadata or {}).items()}
    return StoredRecord(metadata, _plain(blob.etag or ""), blob.last_modified.timestamp())


def _plain(etag: str) -> str:
    """An ETag without its quotes: answers to writes have them and listings do not."""
    return etag.removeprefix('"').removesuffix('"')


def _condition(etag: str) -> dict[str, Any]:
    return {} if etag == ANY else {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}


class BlobStore(AzureOwnershipStore, CheckpointRecords):
    """Ownership and checkpoints in a container that exists. `timeout` is the longest that a call may take.

    `page` is how many records a listing asks for at a time: by default as many as the service gives.
    """

    features = StoreFeatures(shared=True, batches=False, clock_granularity=1.0, official_layout=True)

    def __init__(self, access: StoreAccess, *, timeout: float = 3.0, page: int = LARGEST_PAGE) -> None:
        self._blobs = records = BlobRecords(access, Calls(access.where, timeout), page)
        self._as_spelled = access.as_spelled
        AzureOwnershipStore.__init__(self, records)
        CheckpointRecords.__init__(self, records)

    def __repr__(self) -> str:
        return f"BlobStore({self._calls.where})"

    def check_names(self, group: ConsumerGroup) -> None:
        """Refuse a group that others keep in a folder whose name differs from ours in case alone; see `names`."""
        if not others_may_share(group):
            return
        deadline = self._calls.deadline()
        [found] = self._calls.each(lambda group: self._blobs.namesakes(group, deadline), [group], deadline)
        if not found:
            return
        ours = blob_folder(group, as_spelled=self._as_spelled)
        other = blob_folder(group, as_spelled=not self._as_spelled)
        remedy = f"If nobody uses what is below {', '.join(found)}/, delete it"
        if found == [other] and other != ours:
            change = "leave names=as-spelled out of the" if self._as_spelled else "add names=as-spelled to the"
            remedy += f". If all other processors of the group write there, {change} store's URL"
        elif not self._as_spelled:
            remedy += ". Else spell the names in the hub's URL as those do who write there, and add names=as-spelled"
        raise ConfigError(
            "store",
            self._calls.where,
            f"records of this consumer group are below {', '.join(found)}/ too, and here they go below {ours}/: "
            "processors in Go and Rust spell names as they are given, those in .NET, Java, JavaScript and Python in "
            "lower case. Each side would own all partitions and deliver all events",
            remedy,
        )

    def create_schema(self) -> None:
        """Make the container, unless it is there. Its records have no versions: they are the official ones."""
        self._records.make()

    def close(self) -> None:
        """Close all connections and end the threads."""
        self._calls.close()
        self._records.close()


def open_blob_store(url: str, base: Path, timeout: float) -> BlobStore:
    """The store in the container that an `azblob://` URL names; `base` has no meaning here."""
    return BlobStore(read_url(url, BLOB), timeout=timeout)
