"""The store in Azure tables: the contract on Azurite, and what networks, restarts and strangers do to it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from leasehold.stores.azure.access import TABLE, read_url
from leasehold.stores.azure.table import TableStore
from tests.stores.azure_contracts import (
    PAGE,
    AzureCheckpoints,
    AzureHistories,
    AzureOwnership,
    AzureThousands,
    Open,
)
from tests.stores.azurite import Azurite
from tests.stores.opened import closing_all
from tests.waiting import NEVER


@pytest.fixture(scope="session")
def table(azurite: Azurite) -> str:
    name = f"tests{secrets.token_hex(4)}"
    azurite.make_table(name)
    return name


@pytest.fixture
def reopen(azurite: Azurite, table: str) -> Iterator[Open]:
    with closing_all(
        lambda: TableStore(read_url(azurite.url("aztable", table), TABLE), timeout=NEVER, page=PAGE)
    ) as opener:
        yield opener


class TestOwnership(AzureOwnership):
    pass


class TestCheckpoints(AzureCheckpoints):
    pass


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestThousands(AzureThousands):
    @pytest.fixture
    def store(self, azurite: Azurite, table: str) -> Iterator[TableStore]:
        store = TableStore(read_url(azurite.url("aztable", table), TABLE), timeout=600.0)
        yield store
        store.close()

    @pytest.fixture
    def many(self) -> int:
        """Five pages of a listing: one holds 1,000 entities."""
        return 5_000


class TestHistories(AzureHistories):
    @pytest.fixture
    def url(self, azurite: Azurite, table: str) -> str:
        return azurite.url("aztable", table)
