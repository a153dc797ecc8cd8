"""The Redis store: the contracts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from leasehold.stores.redis import RedisStore
from leasehold.stores.redis_leases import RedisLeaseStore
from leasehold.testing.stores import CheckpointStoreContract, LeaseStoreContract, OwnershipStoreContract
from tests.stores.servers import RedisServer

PATIENT = 60.0
"""Seconds: a time-out that no test of correctness runs into, on however slow a disk."""


class TestOwnership(OwnershipStoreContract):
    @pytest.fixture
    def store(self, redis_server: RedisServer) -> RedisStore:
        return RedisStore(redis_server.url, timeout=PATIENT)

    @pytest.fixture
    def reopen(self, redis_server: RedisServer) -> Callable[[], RedisStore]:
        return lambda: RedisStore(redis_server.url, timeout=PATIENT)


class TestCheckpoints(CheckpointStoreContract):
    @pytest.fixture
    def store(self, redis_server: RedisServer) -> RedisStore:
        return RedisStore(redis_server.url, timeout=PATIENT)

    @pytest.fixture
    def reopen(self, redis_server: RedisServer) -> Callable[[], RedisStore]:
        return lambda: RedisStore(redis_server.url, timeout=PATIENT)


@contextmanager
def frozen_leases(server: RedisServer) -> Iterator[RedisLeaseStore]:
    store = RedisLeaseStore(server.url, timeout=0.3)
    store.holders("warm", ["up"])
    with server.frozen():
        yield store


class TestLeases(LeaseStoreContract):
    @pytest.fixture
    def store(self, redis_server: RedisServer) -> RedisLeaseStore:
        return RedisLeaseStore(redis_server.url, timeout=PATIENT)

    @pytest.fixture
    def reopen(self, redis_server: RedisServer) -> Callable[[], RedisLeaseStore]:
        return lambda: RedisLeaseStore(redis_server.url, timeout=PATIENT)

    @pytest.fixture
    def hung(self, redis_server: RedisServer) -> AbstractContextManager[RedisLeaseStore]:
        return frozen_leases(redis_server)
