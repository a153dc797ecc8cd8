"""What the contract of hubs is made of: the fixtures that a subclass gives, and ways to write and read events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leasehold.hubs import open_hub
from leasehold.hubs.base import Hub
from leasehold.model import Event


def numbered(count: int, *, first: int = 0, key: str | None = None) -> list[Event]:
    """Events whose bodies are the numbers from `first` on."""
    return [Event(str(number).encode(), partition_key=key) for number in range(first, first + count)]


def rows_of(hub: Hub, partition: str, start: int | None = None, end: int | None = None) -> list[dict[str, Any]]:
    """The events of a range as dicts by column; the whole partition if no range is given."""
    place = hub.partition_properties([partition])[partition]
    batches = hub.read(partition, place.begin if start is None else start, place.end if end is None else end)
    return [row for batch in batches for row in batch.to_pylist()]


def bodies_of(hub: Hub, partition: str) -> list[bytes]:
    """The bodies of a partition, in order."""
    return [row["body"] for row in rows_of(hub, partition)]


def range_of(hub: Hub, partition: str) -> tuple[int, int]:
    """Begin and end of a partition."""
    place = hub.partition_properties([partition])[partition]
    return place.begin, place.end


def overrides(hub: Hub, name: str) -> bool:
    """Whether the hub has a method of its own in place of this default of `Hub`."""
    return getattr(type(hub), name) is not getattr(Hub, name)


class HubFixtures:
    """See `leasehold_testkit.contracts.hubs` for which to override."""

    @pytest.fixture
    def new_hub(self) -> Callable[[], Hub]:
        """Makes an empty hub with at least three partitions."""
        raise NotImplementedError("the subclass makes the hubs")

    @pytest.fixture
    def hub(self, new_hub: Callable[[], Hub]) -> Iterator[Hub]:
        """The hub under test."""
        hub = new_hub()
        yield hub
        hub.close()

    @pytest.fixture
    def reopen(self) -> Callable[[Hub], Hub]:
        """Opens the same hub as another process would."""
        return lambda hub: open_hub(hub.url)

    @pytest.fixture
    def add_partition(self) -> Callable[[Hub], None]:
        """Adds one partition to a hub."""
        pytest.skip("partitions of this hub are not added by the test")

    @pytest.fixture
    def remove_oldest(self) -> Callable[[Hub, str], None]:
        """Removes at least one event, and not all, from a partition of many, as retention does."""
        pytest.skip("events of this hub are not removed by the test")

    @pytest.fixture
    def take_away(self) -> Callable[[Hub], None]:
        """Makes the hub impossible to reach."""
        pytest.skip("this hub is not taken away by the test")
