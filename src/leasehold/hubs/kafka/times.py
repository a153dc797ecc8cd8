"""When a topic's messages were enqueued, and for how long it keeps them: asked by who only looks.

Owns one consumer for each look, which is assigned all partitions at once and takes one message of each; it joins
no group and commits nothing. Promises an answer in about the time that it is given, and no error: what the cluster
does not say by then is left out. Concurrency: any threads.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined] # documented

from leasehold.errors import LeaseholdError
from leasehold.hubs.base import FirstEvent
from leasehold.hubs.kafka.clients import READING, Client
from leasehold.hubs.kafka.options import KafkaSettings

logger = logging.getLogger(__name__)

_GLANCE = 0.1
_NO_LIMIT = -1


def first_events(
    settings: KafkaSettings, starts: Mapping[int, int], timeout: float, *, committed: bool = True
) -> dict[int, FirstEvent]:
    """By partition, the first message at or after an offset, or where the partition ends; see `Hub.first_events`.

    Without `committed` a message of an open transaction counts too.
    """
    deadline = time.monotonic() + timeout
    found: dict[int, FirstEvent] = {}
    waiting = dict(starts)
    if not waiting:
        return found
    try:
        client = Client(
            Consumer,
            settings,
            **{**READING, "isolation_level": "read_committed" if committed else "read_uncommitted"},
            group_id=settings.group_id,
            auto_offset_reset="earliest",  # an offset that retention has overtaken: the first that is left
            queued_min_messages=1,
        )
        client.handle.assign([TopicPartition(settings.topic, *place) for place in waiting.items()])
        while waiting and (left := deadline - time.monotonic()) > 0:
            for message in client.handle.consume(len(waiting), min(left, _GLANCE)):
                _take(client.handle, message, waiting, found)
    except (KafkaException, LeaseholdError) as error:
        logger.info("%s does not say when its messages were enqueued: %s", settings.url, error)
    else:
        # Closing waits for brokers that do not answer.
        closing = threading.Thread(target=client.close, daemon=True, name="leasehold-close")
        closing.start()
        closing.join(max(_GLANCE, deadline - time.monotonic()))
    return found


def _take(consumer: Consumer, message: Message, waiting: dict[int, int], first_events: dict[int, FirstEvent]) -> None:
    """Note what a message, or the end of a partition, says; nothing more is fetched of that partition."""
    error, partition, offset = message.error(), message.partition(), message.offset()
    if partition not in waiting or (error is not None and error.code() != KafkaError._PARTITION_EOF):
        return
    kind, milliseconds = message.timestamp()
    known = error is None and kind != TIMESTAMP_NOT_AVAILABLE
    if offset is not None and offset >= waiting[partition]:
        first_events[partition] = FirstEvent(offset, milliseconds / 1e3 if known else None)
    del waiting[partition]
    consumer.pause([TopicPartition(message.topic() or "", partition)])


def told_retention(client: Client[AdminClient], settings: KafkaSettings, timeout: float) -> float | None:
    """What the topic's `cleanup.policy` and `retention.ms` say; see `Hub.retention`."""
    topic = ConfigResource(ResourceType.TOPIC, settings.topic)
    try:
        (asked,) = client.handle.describe_configs([topic], request_timeout=timeout).values()
        config = {name: entry.value for name, entry in asked.result(timeout + _GLANCE).items()}
    except Exception as error:  # noqa: BLE001  whatever keeps the cluster from answering, the answer is not known
        logger.info("%s does not say for how long it keeps messages: %s", settings.url, error)
        return None
    return retention_of(config)


def retention_of(config: Mapping[str, str | None]) -> float | None:
    """Seconds, from a topic's configuration: infinity where no message is removed by its age, None if it is silent."""
    policy, milliseconds = config.get("cleanup.policy"), config.get("retention.ms")
    if policy is not None and "delete" not in policy:
        return math.inf
    if milliseconds is None:
        return None
    return math.inf if int(milliseconds) == _NO_LIMIT else int(milliseconds) / 1e3
