"""A hub that has begins and ends, which go with virtual time, and no events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from leasehold.hubs.base import EVENT_COLUMNS, Hub
from leasehold.model import ConsumerGroup, Event, EventPosition, PartitionProperties, PositionKind

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = ConsumerGroup("simulation", "hub")


class SimulatedHub(Hub):
    """Partitions that all get `rate` events a second, until `stopped`."""

    url = "simulated://hub"
    identity = "simulated"

    def __init__(self, partitions: int, rate: float, now: Callable[[], float]) -> None:
        self._rate = rate
        self._now = now
        self._born: dict[str, float] = {}
        self._stopped: float | None = None
        self.add(partitions)

    def add(self, partitions: int) -> None:
        """More partitions, from now on."""
        for _ in range(partitions):
            self._born[str(len(self._born))] = self._now()

    def stop(self) -> None:
        """No events come any more."""
        self._stopped = self._now()

    def end(self, partition: str) -> int:
        """The sequence number that the next event will get."""
        now = self._now() if self._stopped is None else self._stopped
        return int(max(0.0, now - self._born[partition]) * self._rate)

    def consumer_group(self, name: str) -> ConsumerGroup:
        return GROUP

    def partition_ids(self) -> tuple[str, ...]:
        return tuple(self._born)

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        wanted = self._born if partitions is None else partitions
        return {partition: PartitionProperties(partition, 0, self.end(partition)) for partition in wanted}

    def resolve(self, partition: str, position: EventPosition) -> int:
        if position.kind is PositionKind.EARLIEST:
            return 0
        return self.end(partition) if position.kind is PositionKind.LATEST else position.sequence_number

    def read(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS, batch_rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError("a simulated event has nothing but its number")

    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        raise NotImplementedError("simulated events come by themselves")

    def close(self) -> None:
        pass
