"""A topic of a Kafka cluster as a hub; also an event hub through the Kafka endpoint of Azure Event Hubs.

Owns the `kafka:` scheme and what the parts beside it make together: `options.py` reads the URL, `topic.py`
asks about the topic, `reading.py` reads ranges, `times.py` looks at times, `sending.py` sends,
`mirror.py` copies progress. A sequence number is Kafka's offset: numbers rise, and may have gaps where messages
were compacted or where a transaction ended. The identity is cluster id, topic and topic id, so that a topic made
anew is another hub.

Promises what `Hub` does, for a cluster that keeps what it has acknowledged; an unclean leader election does not.
Refuses to make a topic when it is opened (`leasehold init` does), and to read while the topic's id is another one than
then: a range is read whole of the topic that was opened, or ends with an error.

Concurrency: any number of processes and threads. A process that is forked, before or after use, may go on using
its copy: clients are kept by process id, and a child makes its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from leasehold.backends import say_once, say_unverified
from leasehold.config import check_number
from leasehold.errors import LeaseholdError
from leasehold.hubs.arrow import event_schema
from leasehold.hubs.base import EVENT_COLUMNS, FirstEvent, HeldBack, Hub
from leasehold.hubs.kafka.admin import group_offsets
from leasehold.hubs.kafka.chunks import MessageChunk
from leasehold.hubs.kafka.mirror import Mirror
from leasehold.hubs.kafka.options import KafkaSettings, parse_kafka_url
from leasehold.hubs.kafka.reading import CONFIRMED_FOR, ReaderPool
from leasehold.hubs.kafka.sending import KafkaSender
from leasehold.hubs.kafka.times import first_events, told_retention
from leasehold.hubs.kafka.topic import NO_SUCH_TIME, Topic, no_partition
from leasehold.hubs.resolving import resolved
from leasehold.model import ConsumerGroup, Event, EventPosition, PartitionProperties

__all__ = ["KafkaHub", "open_kafka_hub"]

logger = logging.getLogger(__name__)


def open_kafka_hub(url: str, base: Path) -> KafkaHub:
    """The topic at `kafka://host:port,host:port/topic?options`, which must exist."""
    settings = parse_kafka_url(url, os.environ)
    for setting in settings.unverified:
        say_unverified(logger, settings.url, setting)
    if settings.unencrypted:
        say_once(logger, settings.url, settings.unencrypted)
    return KafkaHub(settings)


class _Process:
    """What one process holds of a hub."""

    def __init__(self, settings: KafkaSettings, topic_id: str | None) -> None:
        self.pid = os.getpid()
        self.topic = Topic(settings, topic_id)
        self.readers = ReaderPool(settings, self._edges, self.topic.confirm)
        self.samples = ReaderPool(settings, self._edges, self.topic.confirm, ahead=False)
        self.sender = KafkaSender(settings)
        self.mirror = Mirror(settings)

    def _edges(self, partition: int) -> tuple[int, int]:
        return self.topic.edges([partition])[partition]


class KafkaHub(Hub):
    """A topic as a hub: all that `Hub` promises, but for what takes a hub that knows its readers, or names."""

    has_gaps = True

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._process: _Process | None = None
        self._topic_id: str | None = None
        self._cluster = self._here.topic.cluster_id()
        self._partitions, self._topic_id = self._here.topic.describe()
        self._here.topic.expected = self._topic_id
        self._topic = settings.topic if self._topic_id is None else f"{settings.topic}:{self._topic_id}"

    def __repr__(self) -> str:
        return f"KafkaHub({self.url!r})"

    @property
    def url(self) -> str:
        """The URL without secrets: those have to be in the environment for it to open the hub again."""
        return self._settings.url

    @property
    def identity(self) -> str:
        """`cluster:topic:topic id`; without the last where the cluster tells none, or is not to be asked."""
        return f"{self._cluster}:{self._topic}"

    def consumer_group(self, name: str) -> ConsumerGroup:
        """The key of a group's records: the cluster's id, the topic with its id, and the name."""
        return ConsumerGroup(self._cluster, self._topic, name)

    def partition_ids(self) -> tuple[str, ...]:
        """`"0"` to one less than the number of partitions. Raises `HubError` if the topic was made anew."""
        self._partitions, _ = self._here.topic.describe()
        return tuple(map(str, self._partitions))

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        """Begin and end of the given partitions, or of all: what a reader of committed messages sees.

        Raises `HubError` if the topic was made anew, at the latest a second after it was.
        """
        asked = self.partition_ids() if partitions is None else partitions
        edges = self._here.topic.edges([self._number(partition) for partition in asked])
        self._here.topic.confirm(CONFIRMED_FOR)
        return {partition: PartitionProperties(partition, *edges[int(partition)]) for partition in asked}

    def resolve(self, partition: str, position: EventPosition) -> int:
        """The sequence number of the first event to read from `position`; see `Hub.resolve`.

        An enqueued time is looked up by the cluster, in milliseconds. A cluster that finds nothing although
        the partition's last event is late enough cannot look up times: then the partition is read through.
        """
        place = self.partition_properties([partition])[partition]
        return resolved(place, position, self.url, lambda time: self._first_since(place, time))

    def offset_of(self, partition: str, sequence_number: int) -> str | None:
        """The number itself: in a topic it is all that names a place. None before the first event."""
        return str(sequence_number) if sequence_number >= 0 else None

    def enqueued_times(self, starts: Mapping[str, int], timeout: float) -> dict[str, float]:
        """When the first message from each place on was enqueued; see `Hub.enqueued_times`."""
        found = self.first_events(starts, timeout)
        return {partition: one.enqueued for partition, one in found.items() if one.enqueued is not None}

    def first_events(self, starts: Mapping[str, int], timeout: float) -> dict[str, FirstEvent]:
        """The first message from each place on, past what compaction and transactions leave empty."""
        found = first_events(self._settings, {int(partition): start for partition, start in starts.items()}, timeout)
        return {str(partition): one for partition, one in found.items()}

    def held_back(self, partitions: Sequence[str], timeout: float) -> dict[str, HeldBack]:
        """What open transactions hold back: all messages from the first one of the oldest of them on."""
        try:
            open_from = self._here.topic.held_back([*map(int, partitions)])
        except LeaseholdError as error:
            logger.info("%s does not say what open transactions hold back: %s", self.url, error)
            return {}
        starts = {partition: start for partition, (start, _) in open_from.items()}
        since = first_events(self._settings, starts, timeout, committed=False)
        return {
            str(partition): HeldBack(count, since[partition].enqueued if partition in since else None)
            for partition, (_, count) in open_from.items()
        }

    def retention(self, timeout: float) -> float | None:
        """What the topic's `retention.ms` says, if this user may see it; `retention.bytes` may remove more."""
        return told_retention(self._here.topic.client, self._settings, timeout)

    def read(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS, batch_rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """The events `[start, end)`, or those of them that there are; see `Hub.read`.

        What is asked is checked at once; the cluster is read as batches are taken.
        """
        schema = event_schema(columns)
        return (chunk.arrow(schema) for chunk in self._chunks(partition, start, end, batch_rows, columns))

    def read_sample(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """A few events, without a fetch of those behind them; see `Hub.read_sample`."""
        schema, rows = event_schema(columns), max(1, end - start)
        return (chunk.arrow(schema) for chunk in self._chunks(partition, start, end, rows, columns, ahead=False))

    def read_chunks(self, partition: str, start: int, end: int, *, batch_rows: int = 10_000) -> Iterator[MessageChunk]:
        """As `read`, and what is made of the events stays open; see `Hub.read_chunks`."""
        return self._chunks(partition, start, end, batch_rows, EVENT_COLUMNS)

    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        """Append events durably and return how many; see `Hub.send` and `sending.py`."""
        count = len(self.partition_ids())  # fails at once if the cluster is away
        return self._here.sender.send(events, None if partition is None else self._number(partition), count)

    def mirror(self, group_name: str, next_sequence_numbers: Mapping[str, int]) -> None:
        """Copy progress into the broker's consumer group offsets, if `mirror_offsets=true`; see `Hub.mirror`."""
        if self._settings.mirror_offsets:
            self._here.mirror.write(group_name, {int(p): number for p, number in next_sequence_numbers.items()})

    def group_offsets(self, group: str) -> dict[str, int]:
        """Where a consumer group of the broker's own stands: by partition, the offset that it would read next."""
        found = group_offsets(self._settings, group, [*map(int, self.partition_ids())])
        return {str(partition): offset for partition, offset in found.items()}

    def close(self) -> None:
        """Close this process's clients; reads that are under way end first."""
        process, self._process = self._process, None
        if process is not None and process.pid == os.getpid():
            process.mirror.close()
            process.readers.close()
            process.samples.close()

    @property
    def _here(self) -> _Process:
        """What this process holds, made at its first use; that of a parent process is never touched."""
        process = self._process
        if process is None or process.pid != os.getpid():
            process = self._process = _Process(self._settings, self._topic_id)
        return process

    def _number(self, partition: str) -> int:
        """The partition's number. The cluster is asked only about one that is not known."""
        if partition not in map(str, self._partitions) and partition not in self.partition_ids():
            raise no_partition(self._settings, partition, self._partitions)
        return int(partition)

    def _chunks(
        self, partition: str, start: int, end: int, batch_rows: int, columns: Collection[str], *, ahead: bool = True
    ) -> Iterator[MessageChunk]:
        check_number("batch_rows", batch_rows, least=1, remedy="Ask for larger batches")
        number = self._number(partition)

        def chunks() -> Iterator[MessageChunk]:
            if start < end:
                self._here.topic.expect(number, end)
                pool = self._here.readers if ahead else self._here.samples
                with pool.reader(number, start) as reader:
                    for messages in reader.messages(start, end, batch_rows):
                        yield MessageChunk.of(
                            messages,
                            self.identity,
                            partition,
                            columns,
                            timestamp_type=self._settings.timestamp_type,
                        )

        return chunks()

    def _first_since(self, place: PartitionProperties, enqueued: float) -> int:
        # `place` is older than the answer: the event that the answer is checked against was there by then.
        milliseconds = -(-round(enqueued * 1e6) // 1000)
        found = self._here.topic.since(int(place.partition), milliseconds)
        if found != NO_SUCH_TIME:
            return max(place.begin, found)
        if place.begin == place.end or self._scanned(place, place.end - 1, milliseconds) is None:
            return self.partition_properties([place.partition])[place.partition].end
        logger.warning("%s cannot look up times: partition %s is read through", self.url, place.partition)
        first = self._scanned(place, place.begin, milliseconds)
        return place.end if first is None else first

    def _scanned(self, place: PartitionProperties, start: int, milliseconds: int) -> int | None:
        """The first event from `start` on that is late enough, found by reading."""
        for batch in self.read(place.partition, start, place.end, columns=["sequenceNumber", "enqueuedTime"]):
            for row in batch.to_pylist():
                enqueued = row["enqueuedTime"]
                if enqueued is not None and round(enqueued.timestamp() * 1000) >= milliseconds:
                    return int(row["sequenceNumber"])
        return None
