"""Reading exact ranges of one partition, and the readers that a process keeps for it.

A reader has a lane of a consumer (`consumers.py`). It fetches ahead, so that the next range is mostly there when it is
asked for; where a range does not continue the last one, it moves the lane. A reader of samples has a consumer to
itself, and fetches hardly more than the few messages that it is asked for, and nothing between two reads: so the next
one may be of another partition.

How a range `[start, end)` ends. Offsets may be missing: compaction removes messages, and the marks of
transactions take offsets and are never delivered. So what ends a range is the reader's position, not a count: a
message at or after `end` has come (it is kept for the next range), or the broker has said that the partition has
nothing more below a position that is at least `end`. If it says so earlier, it may be a leader that was deposed
and does not know yet, so the partition's end is asked for until `request_timeout` has passed: what it then covers
will come, or the read fails; a range that was asked for beyond the end gives what there is.

A consumer goes on at its place in a topic that was deleted and made anew, without a word. So a read makes sure, after
the first of a range has come and again after the last, before either is given out, that the topic is still the one that
was opened; in a range that takes long, about once a second as well.

Promises: only messages of committed transactions; no message twice or out of order; no list of messages that reaches
across what retention has removed meanwhile. Raises `HubUnavailable` when nothing arrives in time.

Concurrency: a reader serves one read at a time, from any thread. A pool is of one process and hands a reader to
one read; two reads of one partition at once have two.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate, takewhile
from operator import lt
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from leasehold.errors import EndWentBack, HubUnavailable, LeaseholdError
from leasehold.hubs.kafka.clients import READING, Client
from leasehold.hubs.kafka.consumers import MAX_CONSUMERS, ConsumedPartition, Consumers
from leasehold.hubs.kafka.options import KafkaSettings
from leasehold.printable import span

MAX_IDLE_SECONDS = 120.0
_BATCH_BYTES = 64 << 20
_END_PAUSE = 0.1

CONFIRMED_FOR = 1.0
"""Seconds after which the topic is asked for its id again, in the middle of a range."""

_AHEAD: Mapping[str, Any] = {
    "queued_max_messages_kbytes": 16 << 10,
    # For so long a queue that was full is left alone. Librdkafka's default is a second, in which a reader has long
    # emptied it; with much less, readers whose queues stay full keep a core busy with looking.
    "fetch_queue_backoff_ms": 50,
}
_SAMPLES: Mapping[str, Any] = {
    "queued_min_messages": 1,
    "fetch_queue_backoff_ms": 1,  # else the next look waits a second, since the queue was full at the last one
    "fetch_message_max_bytes": 16 << 10,  # a broker gives a whole batch of messages, whatever it weighs
    "fetch_wait_max_ms": 10,  # a look elsewhere waits for a fetch at the partition's end that is under way
}
"""A reader that fetches ahead has asked for megabytes by the time that the one message it looks for has come."""

Edges = Callable[[int], tuple[int, int]]
"""Begin and end of a partition, as they are now."""
Confirm = Callable[[float], None]
"""Raises `HubError` if the topic is another than was opened; what was asked less than this many seconds ago will do."""

_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()
"""What the consumer says where the leader of a new epoch has less than was read: it tells that by its words alone."""
_IGNORED = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE)
"""About the group that the client must name and that is not used."""


class PartitionReader:
    """A consumer of one partition, and its place in it.

    `_next` is the first offset that was not given out yet, `_seen` the first of which the consumer has told
    nothing yet: what there is between them is in `_waiting`, with its offsets in `_offsets`, and nothing else is.
    `_ended` is where the broker said last that the partition ends.
    """

    def __init__(
        self, settings: KafkaSettings, lane: ConsumedPartition, edges: Edges, confirm: Confirm, *, ahead: bool = True
    ) -> None:
        self.lane = lane
        self._settings = settings
        self._ahead = ahead
        self._edges = edges
        self._confirm = confirm
        self._next = self._seen = self._ended = -1
        self._began = 0.0  # when what is under way, or was last, began to wait
        self._lost = False  # the consumer has said that its place is gone
        self._overtaken = False  # since retention has removed what was to come next
        self._waiting: list[Message] = []
        self._offsets: list[int] = []

    def continues(self, start: int) -> bool:
        """Whether a range from `start` on can be read without a seek."""
        return 0 <= self._next <= start <= self._seen

    def turn_to(self, partition: int) -> None:
        """Read this partition from now on. Its place in another one is forgotten."""
        if partition != self.lane.partition:
            self._rest()
            self.lane.turn_to(partition)

    def messages(self, start: int, end: int, rows: int) -> Iterator[list[Message]]:
        """The messages `[start, end)` that there are, in order, in lists of at most `rows`."""
        if not self.continues(start) and not self._seek(start, end):
            return
        self._next = max(self._next, start)
        self._drop(bisect_left(self._offsets, start))
        gathered: list[Message] = []
        room = _BATCH_BYTES
        confirmed_for = 0.0
        while True:
            while count := self._fitting(end, rows - len(gathered), room):
                taken, self._next = self._waiting[:count], self._offsets[count - 1] + 1
                self._drop(count)
                gathered += taken
                room -= sum(map(len, taken))
                if len(gathered) == rows or room <= 0:
                    self._confirm(confirmed_for)
                    confirmed_for = CONFIRMED_FOR
                    yield gathered
                    gathered, room = [], _BATCH_BYTES
            if self._waiting or self._seen >= end or not self._fetch(end, rows - len(gathered)):
                break
            if self._overtaken and gathered:
                yield gathered
                gathered, room = [], _BATCH_BYTES
        self._next = min(end, self._seen)
        if not self._ahead:
            self._rest()
        self._confirm(0.0)
        if gathered:
            yield gathered

    def _fitting(self, end: int, rows: int, room: int) -> int:
        """How many of the waiting messages are below `end`, at most `rows`, up to the one that fills `room` bytes."""
        count = min(bisect_left(self._offsets, end), rows)
        sizes = list(map(len, self._waiting[:count]))
        return count if sum(sizes) <= room else 1 + bisect_left([*accumulate(sizes)], room)

    def _drop(self, count: int) -> None:
        """Forget this many of the waiting messages."""
        del self._waiting[:count], self._offsets[:count]

    def _seek(self, start: int, end: int) -> bool:
        """Go to `start`, or to the first offset after it that is left; whether anything of the range is there."""
        begin, until = self._edges(self.lane.partition)
        start = max(start, begin)
        if start >= end or (start >= until and not self._reaches_beyond(start)):
            return False
        self._drop(len(self._waiting))
        self._next = self._seen = start
        self._assign()
        return True

    def _fetch(self, end: int, count: int) -> bool:
        """Wait until there is more, of which so much is wanted now: the rest costs less where librdkafka keeps it.

        False where the partition ends before `end`. Raises `HubUnavailable`.
        """
        self._began = began = time.monotonic()
        self._overtaken = False
        while (waited := time.monotonic() - began) < self._patience():
            # The end is told once: a reader that waits there has heard of it, maybe for an earlier range.
            if self._ended == self._seen and not self._reaches_beyond(self._seen):
                return False
            before = self._seen
            if self._lost:
                self._lost = False
                self._found_again()
            else:
                self._lost = self._note(
                    self._arrived(min(self._settings.request_timeout, self._patience() - waited), end, count)
                )
            if self._seen > before:  # what came before the place that is gone is given out first
                return True
        raise self._failure(None, f"{self._doing()} (nothing came for {span(waited)})")

    def _note(self, arrived: list[Message]) -> bool:
        """Keep the messages among what has come. Returns whether the consumer says that its place is gone."""
        if not any(map(Message.error, arrived)):
            offsets = cast(list[int], [*map(Message.offset, arrived)])
            if all(map(lt, offsets, offsets[1:])):
                known = bisect_left(offsets, self._seen)
                self._waiting += arrived[known:]
                self._offsets += offsets[known:]
                self._seen = self._offsets[-1] + 1 if offsets[known:] else self._seen
                return False
        lost = False
        for message in arrived:
            error = message.error()
            if error is None:
                self._note([message])
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended = self._seen = max(self._seen, message.offset() or 0)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                if _TRUNCATED in error.str():
                    raise self._went_back()
                lost = True
            elif error.code() not in _IGNORED:
                failed = self._failure(error, self._doing())
                if not isinstance(failed, HubUnavailable):
                    raise failed
        return lost

    def _arrived(self, patience: float, end: int, count: int) -> list[Message]:
        """What has come, after waiting for the first of it."""
        try:
            return self.lane.arrived(patience, min(count, end - self._seen))
        except KafkaException as error:
            raise self._failure(error.args[0], self._doing()) from error

    def _reaches_beyond(self, offset: int) -> bool:
        """Whether the partition's end is above `offset`, or comes to be in time."""
        deadline = time.monotonic() + self._settings.request_timeout
        while self._edges(self.lane.partition)[1] <= offset:
            if time.monotonic() + _END_PAUSE > deadline:
                return False
            time.sleep(_END_PAUSE)
        return True

    def _found_again(self) -> None:
        """Fetch on after retention has overtaken the position. Raises `EndWentBack` where the end is below it."""
        begin, until = self._edges(self.lane.partition)
        if until < self._seen:
            raise self._went_back()
        self._overtaken = self._overtaken or begin > self._seen
        self._seen = max(self._seen, begin)
        self._assign()

    def _went_back(self) -> EndWentBack:
        """What to raise where the partition was cut off below the position, also if it has grown beyond it since."""
        return EndWentBack(str(self.lane.partition), self._seen, min(self._edges(self.lane.partition)[1], self._seen))

    def _assign(self) -> None:
        self._ended, self._lost = -1, False
        self.lane.go_to(self._seen)

    def _rest(self) -> None:
        """Fetch nothing more before the next range, which is found by a seek."""
        self._drop(len(self._waiting))
        self._next = self._seen = -1
        self.lane.rest()

    def _patience(self) -> float:
        """How long to wait without progress: not for long once every broker is known to be away."""
        settings = self._settings
        return settings.request_timeout if self.lane.all_brokers_down(self._began) else settings.transfer_timeout

    def _failure(self, error: KafkaError | None, doing: str) -> LeaseholdError:
        return self.lane.failure(error, doing, self._began)

    def _doing(self) -> str:
        return f"reading partition {self.lane.partition} from offset {self._seen} on"


class ReaderPool:
    """The readers of one hub in one process. A reader that failed is closed; one that is idle for long too.

    `ahead`: they fetch what comes after a range too. Else they are for samples, and each is for any partition.
    """

    def __init__(self, settings: KafkaSettings, edges: Edges, confirm: Confirm, *, ahead: bool = True) -> None:
        self._ahead = ahead
        self._settings = settings
        self._edges = edges
        self._confirm = confirm
        self._lock = threading.Lock()
        self._consumers = Consumers(self._new_client, settings.topic, MAX_CONSUMERS if ahead else sys.maxsize)
        self._idle: list[tuple[float, int, PartitionReader]] = []
        self._pid = os.getpid()
        self._closed = False

    @contextmanager
    def reader(self, partition: int, start: int) -> Iterator[PartitionReader]:
        """A reader of the partition for one read, one that continues at `start` if there is any."""
        reader = self._take(partition, start)
        try:
            yield reader
        except GeneratorExit:  # the read was abandoned, at a place that the reader knows
            self._give_back(partition, reader)
            raise
        except BaseException:
            self._close([reader])
            raise
        self._give_back(partition, reader)

    def close(self) -> None:
        """Close all readers that are not in use, and the others when their reads end."""
        with self._lock:
            self._closed = True
            readers = [reader for _, _, reader in self._idle]
            self._idle = []
        self._close(readers)

    def _take(self, partition: int, start: int) -> PartitionReader:
        with self._lock:
            mine = [entry for entry in self._idle if entry[1] == partition or not self._ahead]
            if mine:
                best = max(mine, key=lambda entry: (entry[1] == partition, entry[2].continues(start), entry[0]))
                self._idle.remove(best)
                best[2].turn_to(partition)
                return best[2]
        lane = self._consumers.lane(partition)
        return PartitionReader(self._settings, lane, self._edges, self._confirm, ahead=self._ahead)

    def _give_back(self, partition: int, reader: PartitionReader) -> None:
        if self._pid != os.getpid():
            return  # a read that was under way in the parent when this process was forked
        now = time.monotonic()
        with self._lock:
            self._idle.append((now, partition, reader))
            oldest_first = (at for at, _, _ in self._idle)
            count = sum(1 for _ in takewhile(lambda at: self._closed or now - at > MAX_IDLE_SECONDS, oldest_first))
            surplus = [reader for _, _, reader in self._idle[:count]]
            del self._idle[:count]
        self._close(surplus)

    def _close(self, readers: list[PartitionReader]) -> None:
        if self._pid == os.getpid():  # a copy in a forked child must not be touched
            for reader in readers:
                self._consumers.close(reader.lane)

    def _new_client(self) -> Client[Consumer]:
        return Client(
            Consumer,
            self._settings,
            **{**READING, **(_AHEAD if self._ahead else _SAMPLES)},
            group_id=self._settings.group_id,
            auto_offset_reset="error",
            check_crcs=True,
        )
