"""The store in Azure tables: the contract on Azurite, and what networks, restarts and strangers do to it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator

import pytest

from leasehold.stores.azure.access import TABLE, read_url
from leasehold.stores.azure_table import TableStore
from leasehold.testing.stores import CheckpointStoreContract, LinearizableOwnership, OwnershipStoreContract
from tests.stores.azurite import Azurite

PATIENT = 60.0
"""Seconds: a time-out that no test of correctness runs into, on however slow a machine."""

Open = Callable[[], TableStore]


@pytest.fixture(scope="session")
def table(azurite: Azurite) -> str:
    name = f"tests{secrets.token_hex(4)}"
    azurite.make_table(name)
    return name


@pytest.fixture
def reopen(azurite: Azurite, table: str) -> Iterator[Open]:
    opened: list[TableStore] = []

    def opener() -> TableStore:
        opened.append(TableStore(read_url(azurite.url("aztable", table), TABLE), timeout=PATIENT))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(reopen: Open) -> TableStore:
    return reopen()


@pytest.fixture
def wait() -> Callable[[float], None]:
    """A clock of whole seconds shows that time has passed once the second has changed."""
    return lambda seconds: time.sleep(1.0 + seconds)


class TestOwnership(OwnershipStoreContract):
    @pytest.fixture
    def store(self, reopen: Open) -> TableStore:
        return reopen()

    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen

    @pytest.fixture
    def many(self) -> int:
        """Each record is a request of its own."""
        return 300

    @pytest.fixture
    def wait(self, wait: Callable[[float], None]) -> Callable[[float], None]:
        return wait


class TestCheckpoints(CheckpointStoreContract):
    @pytest.fixture
    def store(self, reopen: Open) -> TableStore:
        return reopen()

    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen

    @pytest.fixture
    def many(self) -> int:
        """Each record is a request of its own."""
        return 300


class TestHistories(LinearizableOwnership):
    rounds, steps = 2, 15

    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen

    @pytest.fixture
    def url(self, azurite: Azurite, table: str) -> str:
        return azurite.url("aztable", table)
