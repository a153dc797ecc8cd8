"""A group's progress, copied into the broker's consumer group offsets.

For those who watch a cluster with its own tools, which know lag from there. It is a copy: Leasehold never reads
it, and it may be late, or behind, or briefly go back after a partition has changed hands. The broker refuses it
while somebody is a member of a consumer group of that name.

Owns a client for each group and the commits under way: one at a time for a group; what came meanwhile goes out
with the next call, or at the end. Never waits but in `close`, and then for about as long as a request may take;
never raises: a fault is logged once, and what was refused goes out again with the next call. Concurrency: any threads.

A consumer's commit is used, and not the admin client's: librdkafka (2.16) aborts the process when an answer to
the latter comes after its time is up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from leasehold.errors import ConfigError
from leasehold.hubs.kafka.clients import Client
from leasehold.hubs.kafka.options import KafkaSettings

logger = logging.getLogger(__name__)


class Mirror:
    """The copying of one hub in one process."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._groups: dict[str, _Group] = {}

    def write(self, group: str, offsets: Mapping[int, int]) -> None:
        """Have these offsets written for the group, soon."""
        with self._lock:
            try:
                if group not in self._groups:
                    self._groups[group] = _Group(self._settings, group)
                self._groups[group].write(offsets)
            except (KafkaException, ConfigError) as error:
                logger.warning("the broker's offsets of group %s were not brought up to date: %s", group, error)

    def close(self) -> None:
        """Wait for what is under way, and for what came meanwhile, as long as a request may take."""
        deadline = time.monotonic() + self._settings.request_timeout
        with self._lock:
            for group in self._groups.values():
                group.close(deadline)
            self._groups = {}


class _Group:
    """The commits of one group. It is never a member of the group."""

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self._topic = settings.topic
        self._name = name
        self._next: dict[int, int] = {}
        self._under_way = self._refused = False
        self._client = Client(
            Consumer,
            settings,
            group_id=name,
            enable_auto_commit=False,
            on_commit=self._done,
        )

    def write(self, offsets: Mapping[int, int]) -> None:
        """Commit these, or note them while a commit is under way."""
        self._next.update(offsets)
        self._client.handle.poll(0)  # where `_done` is called from
        self._start()

    def close(self, deadline: float) -> None:
        """Commit what is left, as far as there is time."""
        while self._under_way and (left := deadline - time.monotonic()) > 0:
            self._client.handle.poll(min(left, 0.05))
            if not self._refused:
                self._start()
        if self._under_way:  # closing would wait for a coordinator that does not answer
            threading.Thread(target=self._client.close, daemon=True).start()
        else:
            self._client.close()

    def _start(self) -> None:
        if self._next and not self._under_way:
            offsets, self._next = self._next, {}
            self._under_way = True
            places = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
            self._client.handle.commit(offsets=places, asynchronous=True)

    def _done(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._under_way = False
        before, self._refused = self._refused, False
        for failed in (error, *(place.error for place in places)):
            if failed is not None:
                self._refused = True
                for place in places:
                    self._next.setdefault(place.partition, place.offset)
                if not before:
                    logger.warning(
                        "the broker's offsets of group %s are not brought up to date: %s", self._name, failed
                    )
                return
