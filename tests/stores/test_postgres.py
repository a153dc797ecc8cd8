"""The Postgres store: the contracts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from leasehold.stores.postgres import PostgresStore
from leasehold.stores.postgres_leases import PostgresLeaseStore
from leasehold.testing.stores import CheckpointStoreContract, LeaseStoreContract, OwnershipStoreContract
from tests.stores.servers import PostgresServer

PATIENT = 60.0
"""Seconds: a time-out that no test of correctness runs into, on however slow a disk."""


class TestOwnership(OwnershipStoreContract):
    @pytest.fixture
    def store(self, postgres_server: PostgresServer) -> PostgresStore:
        return PostgresStore(postgres_server.url, timeout=PATIENT)

    @pytest.fixture
    def reopen(self, postgres_server: PostgresServer) -> Callable[[], PostgresStore]:
        return lambda: PostgresStore(postgres_server.url, timeout=PATIENT)


class TestCheckpoints(CheckpointStoreContract):
    @pytest.fixture
    def store(self, postgres_server: PostgresServer) -> PostgresStore:
        return PostgresStore(postgres_server.url, timeout=PATIENT)

    @pytest.fixture
    def reopen(self, postgres_server: PostgresServer) -> Callable[[], PostgresStore]:
        return lambda: PostgresStore(postgres_server.url, timeout=PATIENT)


@contextmanager
def frozen_leases(server: PostgresServer) -> Iterator[PostgresLeaseStore]:
    store = PostgresLeaseStore(server.url, timeout=0.3)
    store.holders("warm", ["up"])
    with server.frozen():
        yield store


class TestLeases(LeaseStoreContract):
    @pytest.fixture
    def store(self, postgres_server: PostgresServer) -> PostgresLeaseStore:
        return PostgresLeaseStore(postgres_server.url, timeout=PATIENT)

    @pytest.fixture
    def reopen(self, postgres_server: PostgresServer) -> Callable[[], PostgresLeaseStore]:
        return lambda: PostgresLeaseStore(postgres_server.url, timeout=PATIENT)

    @pytest.fixture
    def hung(self, postgres_server: PostgresServer) -> AbstractContextManager[PostgresLeaseStore]:
        return frozen_leases(postgres_server)
