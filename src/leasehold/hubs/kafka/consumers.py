"""The consumers of one process, each shared by the readers of many partitions.

A consumer of librdkafka costs some files and threads, however many partitions are assigned to it. So a process has
`MAX_CONSUMERS` of them. As long as there are fewer partitions each has its own; from then on they share. A lane is
what one reader has of a consumer: one partition, the place from which it is fetched, and what has come of it.

Whoever waits for its lane works the consumer, one at a time, for all lanes: it moves lanes to the places that were
asked for, polls, and gives each lane its messages. The others wait until something came for them, or until it is their
turn to work. So where nobody reads, nothing is done, and there is no thread of our own.

How much is kept. A lane that has more than its share of `_KEPT_BYTES` rests: it is fetched no further, and what comes
of it is dropped, until a reader has taken what there is; then it is fetched from there on. So a slow handler holds up
no other partition, and a partition that nobody reads here any more costs at most its share.

Promises that a lane gets the messages of its partition from its place on, in the order and form in which the client
gives them, ends of the partition and errors included, and none of a place that it was moved away from. An error that
is of no partition goes to the lanes that are waited for. Where whoever works the consumer is interrupted (Ctrl-C),
what the client had given is lost: all lanes are fetched from their places on once more. Joins no group and commits
nothing.

Concurrency: a lane serves one read at a time; different lanes, any threads. Nobody waits for the broker under a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from leasehold.errors import LeaseholdError
from leasehold.hubs.kafka.clients import Client

MAX_CONSUMERS = 16
_KEPT_BYTES = 16 << 20
"""How much the lanes of one consumer may keep together; what librdkafka has fetched ahead comes on top."""
_EACH = 300
"""What a message costs beside its bytes, about."""
_FETCHED = 10_000
_TURN = 0.05
"""The longest time, in seconds, for which one reader polls before it looks whether another lane is to be moved."""


class FetchPosition(NamedTuple):
    """From where on a partition is fetched, and the epoch of the leader that the message before is of.

    By the epoch the client notices that a new leader has less than was read, also where it has filled the gap since.
    """

    offset: int
    epoch: int = -1


class ConsumedPartition:
    """One partition on a consumer that others may share. Nothing is fetched before `go_to`."""

    def __init__(self, consumer: _Shared, partition: int) -> None:
        self.partition = partition
        self.waited_for = False
        self.consumer = consumer
        self._inbox: list[Message] = []
        self._bytes = 0
        self._reached = FetchPosition(-1)  # what comes next, or would if the lane did not rest
        self._rests = False

    def go_to(self, offset: int) -> None:
        """Fetch from here on. What had come is forgotten."""
        self.consumer.move(self, FetchPosition(offset))

    def rest(self) -> None:
        """Fetch nothing more before the next `go_to`. What had come is forgotten."""
        self.consumer.move(self, None)

    def turn_to(self, partition: int) -> None:
        """Be of another partition, for which `go_to` is to come. Only where no other lane shares the consumer."""
        self.consumer.leave(self)
        self.partition = partition
        self.consumer.enter(self)

    def arrived(self, patience: float, most: int) -> list[Message]:
        """What has come, after waiting for the first of it for at most `patience` seconds.

        About `most` messages are wanted now: where no other lane shares the consumer, the rest stays with librdkafka.
        Raises `KafkaException`.
        """
        return self.consumer.arrived(self, patience, most)

    def all_brokers_down(self, since: float) -> bool:
        """Whether the client has said so since this (monotonic) time."""
        return self.consumer.client.all_brokers_down(since)

    def failure(self, error: KafkaError | None, doing: str, since: float) -> LeaseholdError:
        """See `Client.failure`; of what the client has reported by itself, what came since then counts."""
        return self.consumer.client.failure(error, doing, since)

    # For the consumer, under its lock.

    @property
    def reached(self) -> FetchPosition | None:
        """Where it is fetched on; None where it is not, or rests."""
        return None if self._rests or self._reached.offset < 0 else self._reached

    @property
    def filled(self) -> bool:
        """Whether there is something to take."""
        return bool(self._inbox)

    def begin(self, place: FetchPosition) -> None:
        """Forget what there was, and go on from here."""
        self._inbox, self._bytes, self._reached, self._rests = [], 0, place, False

    def put(self, messages: list[Message], room: int) -> bool:
        """Keep what has come; whether the lane is to rest from now on, since that is more than there is room for."""
        self._inbox += messages
        self._bytes += sum(map(len, messages)) + _EACH * len(messages)
        self._reached = _after(messages, self._reached)
        self._rests = self._bytes > room and not self.waited_for
        return self._rests

    def take(self) -> tuple[list[Message], FetchPosition | None]:
        """What has come, and the place to go on from if the lane has rested."""
        taken, rested = self._inbox, self._reached if self._rests else None
        self._inbox, self._bytes, self._rests = [], 0, False
        return taken, rested


def _after(messages: Sequence[Message], before: FetchPosition) -> FetchPosition:
    """The place behind these messages of one partition."""
    for message in reversed(messages):
        error, offset = message.error(), message.offset()
        if offset is None or offset < before.offset:
            continue
        if error is None:
            return FetchPosition(offset + 1, -1 if (epoch := message.leader_epoch()) is None else epoch)
        if error.code() == KafkaError._PARTITION_EOF:
            return FetchPosition(offset, _after([one for one in messages if one.error() is None], before).epoch)
    return before


class _Shared:
    """One consumer, its lanes, and who works it.

    `_moves` are the partitions that are to be fetched from another place, or (None) no more: whoever works the consumer
    next does that before it polls. What comes of such a partition until then is of its old place, and is dropped.
    """

    def __init__(self, client: Client[Consumer], topic: str) -> None:
        self.client = client
        self.lanes: dict[int, ConsumedPartition] = {}
        self.failed = False
        """Whether the client has refused something: then it is for the lanes that it has, until they leave."""
        self._topic = topic
        self._changed = threading.Condition()
        self._worked = False
        self._moves: dict[int, FetchPosition | None] = {}
        self._assigned: set[int] = set()

    def enter(self, lane: ConsumedPartition) -> None:
        with self._changed:
            self.lanes[lane.partition] = lane

    def leave(self, lane: ConsumedPartition) -> None:
        with self._changed:
            del self.lanes[lane.partition]
            self._moves[lane.partition] = None

    def move(self, lane: ConsumedPartition, place: FetchPosition | None) -> None:
        with self._changed:
            lane.begin(FetchPosition(-1) if place is None else place)
            self._moves[lane.partition] = place

    def arrived(self, lane: ConsumedPartition, patience: float, most: int) -> list[Message]:
        deadline = time.monotonic() + patience
        lane.waited_for = True
        try:
            while True:
                with self._changed:
                    left = deadline - time.monotonic()
                    if lane.filled or left <= 0:
                        return self._taken(lane)
                    if self._worked:
                        self._changed.wait(left)
                        continue
                    self._worked = True
                    moves, self._moves = self._moves, {}
                    alone = len(self.lanes) == 1
                self._work(moves, min(left, _TURN), most if alone else _FETCHED)
        finally:
            lane.waited_for = False

    def _taken(self, lane: ConsumedPartition) -> list[Message]:
        taken, rested = lane.take()
        if rested is not None:
            self._moves[lane.partition] = rested
        return taken

    def _work(self, moves: dict[int, FetchPosition | None], patience: float, most: int) -> None:
        """One turn, for all lanes."""
        came: list[Message] = []
        lost = True
        try:
            self._make(moves)
            moves = {}
            first = self.client.handle.poll(patience)  # `consume` would wait for as many as it may give
            if first is not None:
                came = [first, *self.client.handle.consume(max(1, min(_FETCHED, most - 1)), 0)]
            lost = False
        except KafkaException:
            self.failed = True
            raise
        finally:
            with self._changed:
                self._worked = False
                if lost:
                    moves = {**{lane.partition: lane.reached for lane in self.lanes.values() if lane.reached}, **moves}
                self._moves = {**moves, **self._moves}  # what could not be done is for who comes next
                self._hand_out(came)
                self._changed.notify_all()

    def _make(self, moves: Mapping[int, FetchPosition | None]) -> None:
        """Fetch from these places on, or no more."""
        if gone := self._assigned.intersection(moves):
            self.client.handle.incremental_unassign([TopicPartition(self._topic, partition) for partition in gone])
            self._assigned -= gone
        if places := {partition: place for partition, place in moves.items() if place is not None}:
            self.client.handle.incremental_assign(
                [
                    TopicPartition(self._topic, partition, place.offset, leader_epoch=place.epoch)
                    for partition, place in places.items()
                ]
            )
            self._assigned.update(places)

    def _hand_out(self, came: Sequence[Message]) -> None:
        room = _KEPT_BYTES // max(1, len(self.lanes))
        for partition, messages in _by_partition(came).items():
            if partition in self._moves:
                continue
            if partition in self.lanes:
                if self.lanes[partition].put(messages, room):
                    self._moves[partition] = None
            elif partition < 0:  # errors that are of no partition
                for lane in self.lanes.values():
                    if lane.waited_for:
                        lane.put(messages, room)


def _by_partition(came: Sequence[Message]) -> dict[int, list[Message]]:
    """What has come, in order, by the partition that it is of; -1 for none."""
    partitions = [-1 if partition is None else partition for partition in map(Message.partition, came)]
    if partitions.count(partitions[0] if partitions else -1) == len(came):
        return {partitions[0]: list(came)} if came else {}
    found: dict[int, list[Message]] = {}
    for partition, message in zip(partitions, came, strict=True):
        found.setdefault(partition, []).append(message)
    return found


class Consumers:
    """The consumers of one hub in one process, at most about this many, made as lanes are asked for."""

    def __init__(self, new: Callable[[], Client[Consumer]], topic: str, most: int = MAX_CONSUMERS) -> None:
        self._new = new
        self._topic = topic
        self._most = most
        self._lock = threading.Lock()
        self._shared: list[_Shared] = []

    def lane(self, partition: int) -> ConsumedPartition:
        """A lane on a new consumer, or on the one with the fewest. No consumer has two of one partition."""
        with self._lock:
            fit = [one for one in self._shared if not one.failed and partition not in one.lanes]
            if len(self._shared) < self._most or not fit:
                fit = [_Shared(self._new(), self._topic)]
                self._shared += fit
            consumer = min(fit, key=lambda one: len(one.lanes))
            lane = ConsumedPartition(consumer, partition)
            consumer.enter(lane)
            return lane

    def close(self, lane: ConsumedPartition) -> None:
        """Fetch no more for this lane. A consumer without any leaves the cluster."""
        with self._lock:
            consumer = lane.consumer
            consumer.leave(lane)
            if consumer.lanes:
                return
            self._shared.remove(consumer)
        consumer.client.close()
