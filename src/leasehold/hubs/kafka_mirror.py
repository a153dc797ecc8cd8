"""A group's progress, copied into the broker's consumer group offsets.

For those who watch a cluster with its own tools, which know lag from there. It is a copy: Leasehold never reads
it, and it may be late, or behind, or briefly go back after a partition has changed hands. Writing is refused by
the broker while somebody is a member of a consumer group of that name.

Owns the writes under way: one at a time for each group, and what came meanwhile goes in one write after it. Never
waits but in `close`, and then no longer than a request; never raises: a fault is logged, and the next call tries
again. Concurrency: any threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from leasehold.hubs.kafka_clients import Client
from leasehold.hubs.kafka_options import KafkaSettings

logger = logging.getLogger(__name__)


class Mirror:
    """The copying of one hub in one process."""

    def __init__(self, settings: KafkaSettings, client: Client[AdminClient]) -> None:
        self._settings = settings
        self._client = client
        self._lock = threading.RLock()  # a write may be done, and call back, within its start
        self._next: dict[str, dict[int, int]] = {}
        self._under_way: dict[str, Future[Any]] = {}

    def write(self, group: str, offsets: Mapping[int, int]) -> None:
        """Have these offsets written for the group, soon."""
        with self._lock:
            self._next.setdefault(group, {}).update(offsets)
            self._start(group)

    def close(self) -> None:
        """Wait for what is under way, for as long as a request may take."""
        for _ in range(2):  # the write under way, and the one that came meanwhile
            with self._lock:
                pending = list(self._under_way.values())
            wait(pending, self._settings.request_timeout / 2)

    def _start(self, group: str) -> None:
        offsets = self._next.get(group)
        if not offsets or group in self._under_way:
            return
        del self._next[group]
        places = [TopicPartition(self._settings.topic, partition, offset) for partition, offset in offsets.items()]
        try:
            (asked,) = self._client.handle.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, places)], request_timeout=self._settings.request_timeout
            ).values()
        except (KafkaException, ValueError, TypeError) as error:
            _log(group, error)
            return
        self._under_way[group] = asked
        asked.add_done_callback(lambda done: self._done(group, done))

    def _done(self, group: str, asked: Future[Any]) -> None:
        error = asked.exception()
        refused = [] if error is not None else [place.error for place in asked.result().topic_partitions if place.error]
        if error is not None or refused:
            _log(group, error or refused[0])
        with self._lock:
            del self._under_way[group]
            self._start(group)


def _log(group: str, error: object) -> None:
    logger.warning("the broker's offsets of group %s were not brought up to date: %s", group, error)
