"""Azurite for `stores.py`: Blob Storage and Tables on this machine, in memory, and the plainest writes of each.

Owns the server, and the count of requests that go to it. A plain write of many is as many requests at a time as the
stores make (Blob Storage), or transactions of 100 (Tables). Azurite is one process on one core: what is compared is
how many requests something costs, not how fast Azure is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.core.pipeline.transport import RequestsTransport
from azure.data.tables import TableClient, UpdateMode
from azure.storage.blob import ContainerClient

sys.path.append(str(Path(__file__).parent.parent))

from tests.stores.azurite import Azurite

from leasehold.stores.azure.calls import WORKERS, transport

Rows = Sequence[tuple[str, str]]


@dataclass
class Plain:
    """What a server does at its plainest: each writes or reads rows given as key and value."""

    write: Callable[[Rows], object]
    remove: Callable[[Rows], object]
    read: Callable[[], Sequence[object]]


@contextmanager
def running_azurite() -> Iterator[Azurite]:
    """A server for a while."""
    server = Azurite()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def blobs(folder: Path) -> Iterator[tuple[str, Plain]]:
    """A container. A row is a blob without content."""
    with running_azurite() as server, ThreadPoolExecutor(WORKERS) as pool:
        server.make_container("bench")
        server.make_container("plain")
        with ContainerClient.from_connection_string(
            server.connection_string, "plain", transport=transport(), retry_total=0
        ) as plain:

            def put(row: tuple[str, str]) -> object:
                return plain.upload_blob(row[0], b"", metadata={"v": row[1]}, overwrite=True)

            yield (
                server.url("azblob", "bench"),
                Plain(
                    lambda rows: list(pool.map(put, rows)),
                    lambda rows: list(pool.map(lambda row: plain.delete_blob(row[0]), rows)),
                    lambda: list(plain.list_blobs(include=["metadata"])),
                ),
            )


@contextmanager
def tables(folder: Path) -> Iterator[tuple[str, Plain]]:
    """A table. A row is an entity of one partition."""
    with running_azurite() as server:
        server.make_table("bench")
        server.make_table("plain")
        with TableClient.from_connection_string(
            server.connection_string, "plain", transport=transport(), retry_total=0
        ) as plain:

            def submit(rows: Rows, what: str, *options: dict[str, Any]) -> None:
                for start in range(0, len(rows), 100):
                    some = rows[start : start + 100]
                    entities = [{"PartitionKey": "p", "RowKey": key, "v": value} for key, value in some]
                    plain.submit_transaction([(what, entity, *options) for entity in entities])  # type: ignore[misc]

            yield (
                server.url("aztable", "bench"),
                Plain(
                    lambda rows: submit(rows, "upsert", {"mode": UpdateMode.REPLACE}),
                    lambda rows: submit(rows, "delete"),
                    lambda: list(plain.list_entities()),
                ),
            )


@contextmanager
def requests_counted() -> Iterator[list[int]]:
    """Count the requests that this process makes to Azure's services, in the only element of the list."""
    count, send = [0], RequestsTransport.send

    def counted(self: RequestsTransport, request: Any, **options: Any) -> Any:
        count[0] += 1
        return send(self, request, **options)

    RequestsTransport.send = counted
    try:
        yield count
    finally:
        RequestsTransport.send = send
