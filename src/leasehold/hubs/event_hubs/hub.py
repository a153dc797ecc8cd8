"""An Azure Event Hub as a hub, through the official client `azure-eventhub`.

Owns the `eventhubs:` scheme: `eventhubs://NAMESPACE.servicebus.windows.net/HUB`, with options and credentials as
in `url.py`. Promises exact ranges of sequence numbers, read with one receiver per partition and
process, which is kept and reopened only when a range does not begin where the last one ended. Sends are acknowledged;
a fault in between may store an event twice, as everywhere with Event Hubs. Refuses a publisher, which the service sets.

Who reads as an owner says its owner level, which Event Hubs calls an epoch: the service then disconnects every other
receiver of the partition in the consumer group whose level is not higher, and refuses those that come with a lower one
or with none. In a mixed fleet (`fleet=mixed`) the level said is 0, as other SDKs' processors say it: the last
one to come reads, and what a former owner writes is for the sink to refuse. Who reads without an owner says none.

The hub's identity is namespace, name and creation time: one that was deleted and made anew is another. Records of a
group are keyed so too; in a mixed fleet by the plain names, as the other processors key them.

Concurrency: any thread may call. Reads of one partition at the same time have a receiver each, and disturb each other
only as the levels say; sends take turns. A process that is forked, before or after use, may go on using its copy, with
connections of its own; not a read or a send that was under way.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from azure.eventhub import EventHubConsumerClient
from azure.eventhub.exceptions import AuthenticationError, EventHubError

from leasehold.backoff import Backoff
from leasehold.config import check_number
from leasehold.errors import ConfigError, HubError, HubUnavailable, ReaderDisconnected, Verdict
from leasehold.hubs.arrow import event_schema
from leasehold.hubs.base import EVENT_COLUMNS, Hub
from leasehold.hubs.event_hubs.events import Message, batch_of, joined, number_of, offset_in, without_gaps
from leasehold.hubs.event_hubs.kept_receivers import KeptReceivers, Reader
from leasehold.hubs.event_hubs.known_offsets import KnownOffsets
from leasehold.hubs.event_hubs.receiver import Receiver
from leasehold.hubs.event_hubs.sender import EventHubSender
from leasehold.hubs.event_hubs.times import first_times
from leasehold.hubs.event_hubs.url import EventHubAddress, read_url, without_secrets
from leasehold.hubs.resolving import resolved
from leasehold.model import ConsumerGroup, Event, EventPosition, PartitionProperties

logger = logging.getLogger(__name__)

_ASKED_AT_ONCE = 8
_QUESTIONS_AGAIN = 2
"""How often the client asks again before the hub counts as away, which takes 6 s: whoever asked waits and asks anew."""
_PATIENCE = 60.0
_BATCH_BYTES = 16 << 20
_FAULTS = 5
_PAUSES = Backoff(0.1, 1.6)
_LEARNING = 10.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")


def open_event_hub(url: str, base: Path) -> EventHub:
    """The event hub at `url`, which must exist and can be reached; `base` plays no role."""
    return EventHub(read_url(url))


class EventHub(Hub):
    """An event hub: all that `Hub` promises. `patience` is how long, in seconds, a read waits for an event."""

    def __init__(self, address: EventHubAddress, *, patience: float = _PATIENCE) -> None:
        self._address = address
        self._patience = patience
        self._lock = threading.Lock()
        self._kept = KeptReceivers(address)
        self._offsets = KnownOffsets()
        self._ends: dict[str, int] = {}
        self._sender: EventHubSender | None = None
        with self._errors():
            self._asking: Any = address.client(
                EventHubConsumerClient, consumer_group=address.consumer_group, retry_total=_QUESTIONS_AGAIN
            )
            found = self._asking.get_eventhub_properties()
        self._created: datetime = found["created_at"]
        self._known: tuple[str, ...] = tuple(found["partition_ids"])
        _opened.add(self)

    def __repr__(self) -> str:
        return f"EventHub({self.url!r})"

    @property
    def url(self) -> str:
        """The URL without credentials. It opens the hub again where the credential is in the environment."""
        return self._address.url

    @property
    def identity(self) -> str:
        """Namespace, name and creation time in milliseconds."""
        return f"{self._address.namespace.lower()}/{self._keyed()}"

    def consumer_group(self, name: str) -> ConsumerGroup:
        """The key of a group's records. It holds the creation time, so that a hub made anew has none of them.

        In a mixed fleet it is made of the names as they are written in the URL. Then the records are those of the group
        that is read, and another raises `ConfigError`.
        """
        if self._address.mixed:
            if not self.one_reader_per_partition(name):
                rule = f"a mixed fleet reads and keeps records in one group, and the hub's URL says {self._read_in!r}"
                raise ConfigError("consumer_group", name, rule, f"Add consumer_group={name} to the hub's URL")
            return ConsumerGroup(self._address.namespace, self._address.hub, name)
        return ConsumerGroup(self._address.namespace.lower(), self._keyed(), name)

    def partition_ids(self) -> tuple[str, ...]:
        """All partitions, as the service lists them. Raises `HubError` if the event hub was made anew."""
        with self._errors():
            found = self._asking.get_eventhub_properties()
        if found["created_at"] != self._created:
            raise HubError(
                f"{self.url}: the event hub was deleted and made anew (it was made at {self._created}, and is of "
                f"{found['created_at']}). Start again to read the new one, which is another hub.",
                verdict=Verdict.RESTART,
            )
        self._known = tuple(found["partition_ids"])
        return self._known

    def partition_properties(self, partitions: Sequence[str] | None = None) -> dict[str, PartitionProperties]:
        """Begin and end of the given partitions, or of all; several are asked for at once."""
        return {name: _place(found) for name, found in self._described(partitions).items()}

    def resolve(self, partition: str, position: EventPosition) -> int:
        """The sequence number of the first event to read from `position`; see `Hub.resolve`."""
        found = self._described([partition])[partition]
        place = _place(found)

        def first_since(time: float) -> int:
            # Enqueued times are whole milliseconds; rounding first takes the error of the float away.
            since = _EPOCH + timedelta(milliseconds=math.ceil(round(time * 1e6) / 1_000))
            if place.begin == place.end or found["last_enqueued_time_utc"] < since:
                return place.end
            return number_of(self._first_from(partition, since))

        def at_offset(offset: str) -> tuple[int, bool]:
            last = str(found["last_enqueued_offset"])
            if place.begin == place.end or offset == last:
                return max(place.begin, place.end - 1), place.begin < place.end
            if _NUMBER.fullmatch(offset) and _NUMBER.fullmatch(last) and int(offset) > int(last):
                raise ConfigError("position", str(position), f"the last event is at offset {last}", "Name one up to it")
            first = self._first_from(partition, offset)
            return number_of(first), offset_in(first) == offset

        return resolved(place, position, self.url, first_since, at_offset)

    def read(
        self, partition: str, start: int, end: int, *, columns: Sequence[str] = EVENT_COLUMNS, batch_rows: int = 10_000
    ) -> Iterator[pa.RecordBatch]:
        """The events `[start, end)`, or those of them that there are; see `Hub.read`."""
        return self._checked(partition, start, end, columns, batch_rows, None)

    def _checked(
        self, partition: str, start: int, end: int, columns: Sequence[str], batch_rows: int, owner_level: int | None
    ) -> Iterator[pa.RecordBatch]:
        event_schema(columns)
        check_number("batch_rows", batch_rows, least=1, remedy="Ask for larger batches")
        with self._lock:
            known = end <= self._ends.get(partition, 0)
        # Then there is nothing to ask, which would take a connection.
        if known and self._kept.goes_on(partition, start):
            return self._batches(partition, start, end, columns, batch_rows, owner_level)
        place = self.partition_properties([partition])[partition]
        return self._batches(partition, max(start, place.begin), min(end, place.end), columns, batch_rows, owner_level)

    def one_reader_per_partition(self, group_name: str) -> bool:
        """Whether the group is the one that events are read in: else its owners say nothing of who may read there."""
        return group_name.lower() == self._read_in.lower()

    def read_as_owner(
        self,
        partition: str,
        start: int,
        end: int,
        owner_level: int,
        *,
        columns: Sequence[str] = EVENT_COLUMNS,
        batch_rows: int = 10_000,
    ) -> Iterator[pa.RecordBatch]:
        """See `Hub.read_as_owner`. In a mixed fleet every owner level is the same to the service."""
        return self._checked(partition, start, end, columns, batch_rows, owner_level)

    def attach(self, group_name: str, places: Mapping[str, int], timeout: float) -> None:
        """See `Hub.attach`. In a mixed fleet only: elsewhere a higher level shuts former owners out."""
        if self._address.mixed and places and self.one_reader_per_partition(group_name):
            with self._errors():
                self._kept.attach(places, Reader(0, mixed=True), timeout)

    def stay(self, partition: str) -> None:
        """See `Hub.stay`."""
        self._kept.stay(partition)

    def detach(self, partition: str) -> None:
        """See `Hub.detach`."""
        self._kept.detach(partition)

    def offset_of(self, partition: str, sequence_number: int) -> str | None:
        """The offset of an event that was its partition's last at one of the latest looks, or was learned."""
        return self._offsets.of(partition, sequence_number)

    def enqueued_times(self, starts: Mapping[str, int], timeout: float) -> dict[str, float]:
        """When the first event from each place on was enqueued; see `Hub.enqueued_times`.

        An event that is not a partition's last one has to be received, which the service refuses while the group is
        read with owner levels: `status_group` in the URL names another to look through.
        """
        return first_times(self._address, self._asking.get_partition_properties, starts, timeout)

    def learn_offsets(self, places: Mapping[str, int]) -> None:
        """See `Hub.learn_offsets`. In a mixed fleet only: by receiving these events once more, several at once.

        The receivers say level 0 like all in a mixed fleet, so that one that is kept for the partition is disconnected.
        """
        unknown = {partition: number for partition, number in places.items() if number >= 0}
        unknown = {
            partition: number for partition, number in unknown.items() if self.offset_of(partition, number) is None
        }
        if self._address.mixed and unknown:
            _at_once(lambda partition: self._learn_offset(partition, unknown[partition]), tuple(unknown))

    def send(self, events: Iterable[Event], *, partition: str | None = None) -> int:
        """Send events and return how many; see `Hub.send`. Events without a key go to each partition in turn."""
        if partition is not None:
            self._check(partition)
        with self._lock, self._errors():
            if self._sender is None:
                self._sender = EventHubSender(self._address)
        with self._errors():
            return self._sender.send(events, partition, self._known)

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            sender, self._sender = self._sender, None
        self._kept.close()
        if sender is not None:
            sender.close()
        self._asking.close()

    @property
    def _read_in(self) -> str:
        return self._address.consumer_group

    def _keyed(self) -> str:
        return f"{self._address.hub.lower()}@{round(self._created.timestamp() * 1_000)}"

    def _batches(
        self, partition: str, start: int, end: int, columns: Sequence[str], batch_rows: int, owner_level: int | None
    ) -> Iterator[pa.RecordBatch]:
        if start >= end:
            return
        reader = Reader(owner_level, self._address.mixed)
        receiver = self._receiver(partition, start, reader)
        waiting: list[pa.RecordBatch] = []
        rows = size = faults = 0
        at = start
        try:
            while at < end:
                try:
                    events = receiver.take(end, batch_rows - rows, self._patience)
                except HubUnavailable as error:
                    receiver.close()
                    if receiver.disconnected and owner_level is not None:
                        yield from [joined(waiting)] if waiting else []
                        raise ReaderDisconnected(partition, owner_level, at) from error
                    if not receiver.may_try_again or faults == _FAULTS:
                        raise
                    time.sleep(_PAUSES.pause(faults + 1))
                    faults += 1
                    receiver = self._receiver(partition, at, reader)
                    continue
                if not events:
                    break  # what is left of the range has been removed since
                faults = 0
                for run in without_gaps(events):
                    if waiting and number_of(run[0]) > at:  # what lies between was removed meanwhile
                        yield joined(waiting)
                        waiting, rows, size = [], 0, 0
                    at = number_of(run[-1]) + 1
                    waiting.append(batch_of(run, columns, partition, self.identity))
                    rows += waiting[-1].num_rows
                    size += waiting[-1].nbytes
                if rows == batch_rows or size > _BATCH_BYTES:
                    yield joined(waiting)
                    waiting, rows, size = [], 0, 0
            if waiting:
                yield joined(waiting)
        finally:
            self._kept.keep(partition, receiver)

    def _receiver(self, partition: str, start: int, reader: Reader) -> Receiver:
        with self._errors():
            return self._kept.take(partition, start, reader)

    def _start_anew(self) -> None:
        """Leave to the parent process, which goes on with them, its producer and whatever lock a thread of it has."""
        self._lock, self._sender = threading.Lock(), None
        self._offsets = self._offsets.copy()
        self._kept.start_anew()

    def _first_from(self, partition: str, start: datetime | str) -> Message:
        """The first event from a time or an offset on. There is one."""
        for fault in range(_FAULTS + 1):
            with self._errors():
                receiver = Receiver(self._address, partition, start, most=1)
            try:
                (first,) = receiver.take(None, 1, self._patience)
            except HubUnavailable:
                if not receiver.may_try_again or fault == _FAULTS:
                    raise
                time.sleep(_PAUSES.pause(fault + 1))
            else:
                return first
            finally:
                receiver.close()
        raise AssertionError("the last fault is raised")

    def _learn_offset(self, partition: str, number: int) -> None:
        try:
            with self._errors(), closing(Receiver(self._address, partition, number, 0, most=1)) as receiver:
                found = receiver.take(number + 1, 1, _LEARNING)
        except HubError as error:
            logger.warning("partition %s: the offset of event %d stays unknown: %s", partition, number, error)
            return
        if found:  # else retention has removed it
            self._offsets.note(partition, number, offset_in(found[0]))

    def _described(self, partitions: Sequence[str] | None) -> dict[str, dict[str, Any]]:
        for partition in partitions or ():
            self._check(partition)
        wanted = self.partition_ids() if partitions is None else tuple(partitions)
        with self._errors():
            found = dict(zip(wanted, _at_once(self._asking.get_partition_properties, wanted), strict=True))
        for name, place in found.items():
            with self._lock:
                self._ends[name] = max(self._ends.get(name, 0), place["last_enqueued_sequence_number"] + 1)
            self._offsets.note(name, place["last_enqueued_sequence_number"], place["last_enqueued_offset"])
        return found

    def _check(self, partition: str) -> None:
        """Refuse a partition that is not there. Those that were seen once are never asked for again."""
        if partition not in self._known and partition not in self.partition_ids():
            raise ConfigError("partition", partition, f"{self.url} has no such partition", "Name one that it has")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What the client raises, in our words."""
        try:
            yield
        except AuthenticationError as error:
            said = f"{self.url} does not accept the credential: {without_secrets(error)}"
            raise HubError(said, verdict=Verdict.MEND) from error
        except (EventHubError, OSError, TimeoutError) as error:
            what = without_secrets(error)
            raise HubUnavailable(f"{self.url} cannot be reached: {what}{self._address.hint}") from error
        except ValueError as error:
            raise ConfigError("hub", self.url, without_secrets(error), "Correct the URL or the connection") from None


def _place(properties: dict[str, Any]) -> PartitionProperties:
    """Begin and end. An empty partition begins where it ends, also when retention has emptied it."""
    end = properties["last_enqueued_sequence_number"] + 1
    begin = end if properties["is_empty"] else properties["beginning_sequence_number"]
    last = None if properties["is_empty"] else properties["last_enqueued_time_utc"].timestamp()
    return PartitionProperties(properties["id"], begin, end, last)


def _at_once(ask: Callable[[str], T], names: Sequence[str]) -> list[T]:
    if len(names) < 2:
        return [ask(name) for name in names]
    with ThreadPoolExecutor(min(len(names), _ASKED_AT_ONCE)) as pool:
        return list(pool.map(ask, names))


_NUMBER = re.compile(r"[0-9]{1,19}")
_opened: weakref.WeakSet[EventHub] = weakref.WeakSet()


def _start_all_anew() -> None:
    for hub in list(_opened):
        hub._start_anew()


os.register_at_fork(after_in_child=_start_all_anew)
