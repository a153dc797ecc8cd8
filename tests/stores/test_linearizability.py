"""Histories of the stores that need no server are linearizable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold.stores.memory.store import MemoryStore
from leasehold.stores.sqlite.leases import SqliteLeaseStore
from leasehold.stores.sqlite.store import SqliteStore
from leasehold_testkit.contracts.stores import LinearizableLeases, LinearizableOwnership
from tests.waiting import NEVER


class TestMemory(LinearizableOwnership):
    @pytest.fixture
    def reopen(self) -> Callable[[], MemoryStore]:
        store = MemoryStore()
        return lambda: store


class TestMemoryLeases(LinearizableLeases):
    @pytest.fixture
    def reopen(self) -> Callable[[], MemoryLeaseStore]:
        store = MemoryLeaseStore()
        return lambda: store


@pytest.mark.more_of("test_what_processes_do_at_once_looks_like_one_after_another")
class TestSqlite(LinearizableOwnership):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], SqliteStore]:
        return lambda: SqliteStore(tmp_path / "store.db", timeout=NEVER)

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/store.db"


@pytest.mark.more_of("test_what_processes_do_at_once_looks_like_one_after_another")
class TestSqliteLeases(LinearizableLeases):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], SqliteLeaseStore]:
        return lambda: SqliteLeaseStore(tmp_path / "store.db", timeout=NEVER)

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/store.db"


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestMemoryForLong(TestMemory):
    steps, rounds = 600, 15


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestMemoryLeasesForLong(TestMemoryLeases):
    steps, rounds = 600, 15


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestSqliteForLong(TestSqlite):
    steps, rounds = 600, 15


@pytest.mark.soak
@pytest.mark.timeout(1800)
class TestSqliteLeasesForLong(TestSqliteLeases):
    steps, rounds = 600, 15
