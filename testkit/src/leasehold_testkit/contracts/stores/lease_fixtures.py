"""What the contracts of `LeaseStore` work on: the store under test, its time, sessions and names."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from leasehold.model import LeaseSession
from leasehold.stores.lease_base import LeaseStore

Names = Callable[[int], list[str]]

LONG = 60.0
"""A duration that no test outlives, and that every backend can give."""


class LeaseFixtures:
    """The fixtures of all contracts of leases. A subclass gives `store`, and whatever else is not as it is here."""

    @pytest.fixture
    def store(self) -> LeaseStore:
        """The store under test. It need not be empty."""
        raise NotImplementedError("the subclass gives the store")

    @pytest.fixture
    def reopen(self, store: LeaseStore) -> Callable[[], LeaseStore]:
        """Opens the same store as another process would."""
        return lambda: store

    @pytest.fixture
    def wait(self) -> Callable[[float], None]:
        """Lets that many seconds pass on the store's clock, or sets back by as much what it has written."""
        return time.sleep

    @pytest.fixture
    def hung(self) -> AbstractContextManager[LeaseStore] | None:
        """A store whose backend does not answer while it is entered, with a time-out of at most a second.

        None where no call ever waits.
        """
        return None

    @pytest.fixture
    def short(self, store: LeaseStore) -> float:
        """A duration that is waited for. Where `wait` moves time, let it be long: at most two thirds of `LONG`."""
        return max(1.0, store.features.shortest_lease)

    @pytest.fixture
    def scope(self) -> str:
        """A scope that nobody else uses."""
        return f"tests {uuid.uuid4()}"

    @pytest.fixture
    def session(self, store: LeaseStore) -> LeaseSession:
        return store.open_session("me", LONG)

    @pytest.fixture
    def other(self, store: LeaseStore) -> LeaseSession:
        return store.open_session("other", LONG)

    @pytest.fixture
    def names(self, store: LeaseStore) -> Names:
        """That many keys; a fiftieth of them where each is a request."""

        def some(many: int) -> list[str]:
            return [f"key {n}" for n in range(max(2, many // 50) if store.features.native_leases else many)]

        return some
