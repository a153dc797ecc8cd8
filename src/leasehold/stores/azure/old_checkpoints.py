"""Checkpoints of the oldest event processors, read from the lease blobs that they keep in a container.

    FOLDER/GROUP/PARTITION     {"PartitionId": "0", "Owner": …, "Epoch": 3, "Offset": "…", "SequenceNumber": 17, …}

Owns the reading of that JSON and writes nothing: those processors hold real leases on these blobs. FOLDER is what
their host was given as a prefix, and empty for most; Azure Functions use `NAMESPACE/HUB`. The epoch
becomes the owner level. A partition that they have not begun has no offset, and no checkpoint here. Stop them
before an import: their place moves on while they run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from azure.storage.blob import ContainerClient

from leasehold.errors import StoreError
from leasehold.model import Checkpoint, ConsumerGroup
from leasehold.stores.azure.access import BLOB, read_url
from leasehold.stores.azure.calls import Calls, Deadline, transport


def old_checkpoints(url: str, group: ConsumerGroup, *, folder: str = "", timeout: float = 30.0) -> list[Checkpoint]:
    """The checkpoints in the lease blobs of `group` in the container of an `azblob://` URL.

    `timeout` is for all of them together, in seconds. Raises `StoreError` for a blob that is none of theirs.
    """
    access = read_url(url, BLOB)
    calls = Calls(access.where, timeout)
    deadline = calls.deadline()
    prefix = "/".join(part for part in (folder.strip("/"), group.name) if part) + "/"
    container = ContainerClient(access.endpoint, access.place, credential=access.credential, transport=transport())

    def names(prefix: str) -> list[str]:
        with calls.asking():
            return [
                name
                for name in container.list_blob_names(name_starts_with=prefix, **deadline.request())
                if "/" not in name.removeprefix(prefix)
            ]

    def read(name: str) -> Checkpoint | None:
        text = _content(container, calls, name, deadline)
        return _checkpoint(group, name.removeprefix(prefix), text, f"{access.where}/{name}")

    try:
        [found] = calls.each(names, [prefix], deadline)
        return [checkpoint for checkpoint in calls.each(read, found, deadline) if checkpoint]
    finally:
        calls.close()
        container.close()


def _content(container: ContainerClient, calls: Calls, name: str, deadline: Deadline) -> bytes:
    with calls.asking():
        content: bytes = container.download_blob(name, **deadline.request()).readall()
    return content


def _checkpoint(group: ConsumerGroup, partition: str, text: bytes, where: str) -> Checkpoint | None:
    try:
        stated = json.loads(text)
        found: Mapping[str, Any] = {str(key).lower(): value for key, value in stated.items()}
        offset, number, epoch = found.get("offset"), int(found.get("sequencenumber") or 0), int(found.get("epoch") or 0)
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{where}: not the lease of an event processor ({error}). Is the folder the right one?"
        ) from None
    if offset in (None, "") or "partitionid" not in found:
        return None
    return Checkpoint(group, partition, number, epoch, str(offset))
