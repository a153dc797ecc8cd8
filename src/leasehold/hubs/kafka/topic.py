"""What is asked about a topic, without reading it: its identity, its partitions, their begins and ends.

Owns the process's admin client. Ends are those that a reader of committed messages sees: what an open
transaction has written is not there yet. Promises an answer or an error within about `request_timeout`, and that what
the cluster answers never ends the process: librdkafka (2.16) aborts it when it asks for a topic's id and gets an
answer without brokers and topics, so that is asked only of a cluster which has just described the topic. A broker that
has only just come back may not know a topic that the others know: when one answers that there is no such topic, the
topic is asked for again, for `_BEHIND` seconds, before that is believed.

Concurrency: any threads.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from copy import copy
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined] # it is documented

from leasehold.errors import ConfigError, HubError, HubUnavailable, LeaseholdError, Verdict
from leasehold.hubs.kafka.clients import MOVING, Client
from leasehold.hubs.kafka.options import KafkaSettings

OffsetSpec: Any = _OffsetSpec  # its methods have no types

NO_SUCH_TIME = -1
"""What the cluster answers when no message of a partition is as late as the time asked for."""
_MOVING_PAUSE = 0.1
_BEHIND = 3.0
"""Seconds for which a broker may be behind the others."""


class Topic:
    """One topic, asked about from one process."""

    def __init__(self, settings: KafkaSettings, topic_id: str | None = None) -> None:
        self.expected = topic_id
        """The id that the topic had when it was opened, where it has one."""
        self._settings = settings
        self._confirming = threading.Lock()
        self._confirmed = -math.inf  # when the last question began that was answered
        self._failed: tuple[float, LeaseholdError | None] = (-math.inf, None)  # the same of one that failed, and how
        self._ends: dict[int, int] = {}
        self.client = Client(AdminClient, settings)
        self._outdated = False  # what the client believes of who leads which partition

    def cluster_id(self) -> str:
        """What the cluster calls itself, or what the option says. Raises `HubError` if neither does."""
        if self._settings.cluster_id is not None:
            return self._settings.cluster_id
        name = self._metadata().cluster_id
        if not name:
            raise HubError(
                f"{self._settings.url}: the cluster tells no id of its own. Name it with the option cluster_id, the "
                "same for all who share the topic.",
                verdict=Verdict.RESTART,
            )
        return str(name)

    def describe(self) -> tuple[list[int], str | None]:
        """The partitions, and the topic's id where the settings want it and the cluster tells one.

        Raises `HubError` if that is not the id that the topic had when it was opened.
        """
        asked = time.monotonic()
        while True:
            try:
                partitions, topic_id = self._looked_up()
                break
            except ConfigError:  # there is no such topic, as the broker that was asked knows
                if time.monotonic() + _MOVING_PAUSE > asked + _BEHIND:
                    raise
                time.sleep(_MOVING_PAUSE)
        if not partitions:
            raise HubUnavailable(f"{self._settings.url}: the topic has no partitions yet. Try again")
        if None not in (topic_id, self.expected) and topic_id != self.expected:
            raise HubError(
                f"{self._settings.url}: the topic was deleted and made anew (its id was {self.expected}, and is "
                f"{topic_id}). Start again to read the new one, which is another hub.",
                verdict=Verdict.RESTART,
            )
        self._confirmed = asked
        return partitions, topic_id

    def confirm(self, within: float = 0.0) -> None:
        """Make sure that what has come until now is of the topic that was opened, unless that was made sure of less
        than `within` seconds ago. Raises `HubError` if it was made anew."""
        if self.expected is None:
            return
        needed = time.monotonic() - within
        with self._confirming:  # whoever waits here is mostly served by one question, and by its failure too
            if self._confirmed >= needed:
                return
            asked, failed = self._failed
            if failed is not None and asked >= needed:
                raise copy(failed) from failed
            asked = time.monotonic()
            try:
                self.describe()
            except LeaseholdError as error:
                self._failed = asked, error
                raise

    def edges(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Begin and end of each, the begin no later than the end.

        A leader that was deposed and does not know yet may tell an end that has been passed: one that is below what was
        told before is asked for again, and believed when `request_timeout` is over.
        """
        deadline = time.monotonic() + self._settings.request_timeout
        while True:
            begins = self._offsets(partitions, OffsetSpec.earliest())
            ends = self._offsets(partitions, OffsetSpec.latest())
            back = [partition for partition, end in ends.items() if end < self._ends.get(partition, 0)]
            if not back or time.monotonic() + _MOVING_PAUSE > deadline:
                break
            time.sleep(_MOVING_PAUSE)
        if back:
            self._confirmed = -math.inf  # it may be the end of a topic that was made anew since
        self._ends.update(ends)
        return {partition: (begins[partition], max(begins[partition], ends[partition])) for partition in partitions}

    def held_back(self, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Where open transactions begin to hold messages back, and how many offsets they keep, by partition."""
        written = self._offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        ends = self._offsets(partitions, OffsetSpec.latest())  # asked later: what comes meanwhile does not count
        return {one: (ends[one], end - ends[one]) for one, end in written.items() if end > ends[one]}

    def expect(self, partition: int, end: int) -> None:
        """Somebody has been told that the partition reaches up to here."""
        self._ends[partition] = max(end, self._ends.get(partition, 0))

    def since(self, partition: int, milliseconds: int) -> int:
        """The offset of the first message at or after a time, as the cluster has it; or `NO_SUCH_TIME`."""
        return self._offsets([partition], OffsetSpec.for_timestamp(max(0, milliseconds)))[partition]

    def _metadata(self) -> Any:
        self.client.forget_errors()
        try:
            return self.client.handle.list_topics(self._settings.topic, self._settings.request_timeout)
        except KafkaException as error:
            raise self.client.failure(error.args[0], "asking for the topic") from error

    def _looked_up(self) -> tuple[list[int], str | None]:
        """The partitions, and the topic's id where it is wanted, as the brokers that are asked know them."""
        found = self._metadata().topics.get(self._settings.topic)
        if found is None:
            raise HubUnavailable(f"{self._settings.url}: the cluster says nothing on the topic. Try again")
        if found.error is not None and not found.partitions:
            raise self.client.failure(found.error, "asking for the topic")
        return self._described() if self._settings.topic_identity == "id" else (sorted(found.partitions), None)

    def _described(self) -> tuple[list[int], str | None]:
        topic = self._settings.topic
        asked = self.client.handle.describe_topics(
            TopicCollection([topic]), request_timeout=self._settings.request_timeout
        )
        try:
            described = self._answers(asked, "asking for the topic's id")[topic]
        except HubUnavailable as error:
            raise HubUnavailable(
                f"{error} If this cluster never tells the ids of topics, say so with topic_identity=name: the topic's "
                "name then stands for it, also after it was made anew."
            ) from error
        topic_id = described.topic_id
        known = bool(topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits())
        name = str(topic_id).replace("+", "-").replace("/", "_")  # as Kafka's own tools write it
        return sorted(partition.id for partition in described.partitions), name if known else None

    def _offsets(
        self, partitions: Iterable[int], spec: Any, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[int, int]:
        """The offsets that `spec` stands for. A partition that moves is asked for again, while there is time."""
        places = {TopicPartition(self._settings.topic, partition): spec for partition in partitions}
        if not places:
            return {}
        deadline = time.monotonic() + self._settings.request_timeout
        while True:
            if self._outdated:  # the client does not ask for the new leaders by itself
                self._metadata()
                self._outdated = False
            asked = self.client.handle.list_offsets(
                places, isolation_level=isolation, request_timeout=self._settings.request_timeout
            )
            try:
                answers = self._answers(asked, "asking for offsets")
                found = {place.partition: answer.offset for place, answer in answers.items()}
                if min(found.values()) < NO_SUCH_TIME:
                    # What the client makes of a leader that did not answer in time, without an error.
                    raise self.client.failure(None, "asking for offsets")
                return found
            except HubUnavailable as error:
                self._outdated = True
                cause = error.__cause__
                moving = isinstance(cause, KafkaException) and cause.args[0].code() in MOVING
                if not moving or time.monotonic() + _MOVING_PAUSE > deadline:
                    raise
                time.sleep(_MOVING_PAUSE)

    def _answers(self, futures: Mapping[Any, Future[Any]], doing: str) -> dict[Any, Any]:
        self.client.forget_errors()
        try:
            return {one: future.result(self._settings.request_timeout + 1) for one, future in futures.items()}
        except KafkaException as error:
            raise self.client.failure(error.args[0], doing) from error
        except FutureTimeout:
            raise self.client.failure(None, doing) from None


def no_partition(settings: KafkaSettings, partition: str, numbers: Sequence[int]) -> ConfigError:
    """What to raise for a partition that the topic does not have."""
    return ConfigError(
        "partition",
        partition,
        f"the topic {settings.topic} has {len(numbers)}, from 0 to {numbers[-1]}",
        "Name one of them",
    )
