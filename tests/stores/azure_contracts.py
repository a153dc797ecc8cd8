"""The contracts of stores as they are run on Azurite, for Blob and for Table Storage alike.

A test module gives `reopen`, which opens the store on a place of its own, as another process would.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from leasehold.model import ConsumerGroup
from leasehold.stores import Store
from leasehold_testkit.contracts.stores import CheckpointStoreContract, LinearizableOwnership, OwnershipStoreContract
from leasehold_testkit.contracts.stores.groups import FEWER_WORDS, groups_alike, new_group
from tests.waiting import until

PAGE = 80
"""Records: a page of a listing, of which 300 partitions are four."""

Open = Callable[[], Store]


class OnAzurite:
    """Fixtures that all contracts ask for."""

    @pytest.fixture
    def store(self, reopen: Open) -> Store:
        return reopen()

    @pytest.fixture
    def many(self) -> int:
        """Each record is some requests of its own; a page is shortened, so that a listing still has several."""
        return 300

    @pytest.fixture
    def alike(self) -> list[ConsumerGroup]:
        return groups_alike(FEWER_WORDS)


class AzureOwnership(OnAzurite, OwnershipStoreContract):
    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen

    @pytest.fixture
    def wait(self) -> Callable[[float], None]:
        """A clock of whole seconds shows that time has passed once the second has changed."""

        def until_the_next_second(seconds: float) -> None:
            then = math.floor(time.time() + seconds) + 1
            until(lambda: time.time() >= then, "the service's next second")

        return until_the_next_second


class AzureCheckpoints(OnAzurite, CheckpointStoreContract):
    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen


class AzureThousands:
    """As many partitions as the contract wants, and pages as long as the service's. Gives no `store` and no `many`."""

    @pytest.fixture
    def group(self) -> ConsumerGroup:
        return new_group()

    test_lists_thousands_of_partitions = OwnershipStoreContract.test_lists_thousands_of_partitions
    test_thousands_of_partitions = CheckpointStoreContract.test_thousands_of_partitions


class AzureHistories(LinearizableOwnership):
    rounds, steps = 2, 15

    @pytest.fixture
    def reopen(self, reopen: Open) -> Open:
        return reopen
