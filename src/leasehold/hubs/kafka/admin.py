"""What operators ask of a cluster beside reading and sending: a topic to be made, and where a group of its own stands.

Owns nothing that lasts: each call has a client of its own. A group is looked at and not joined, so that its members, if
there are any, go on undisturbed. Concurrency: any threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # it is documented

from leasehold.errors import ConfigError, UsageError
from leasehold.hubs.kafka.clients import Client
from leasehold.hubs.kafka.options import KafkaSettings

_INVALID = (
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
    KafkaError._INVALID_ARG,
)


def group_offsets(settings: KafkaSettings, group: str, partitions: Sequence[int]) -> dict[int, int]:
    """By partition, the offset of the message that the broker's consumer group would read next, where it has one.

    Raises `HubUnavailable`, or `HubError` where this user may not see the group.
    """
    client = Client(Consumer, settings, group_id=group, enable_auto_commit=False)
    try:
        places = [TopicPartition(settings.topic, partition) for partition in partitions]
        answers = client.handle.committed(places, timeout=settings.request_timeout)
        for place in answers:
            if place.error is not None:
                raise client.failure(place.error, f"asking for the offsets of group {group}")
        return {place.partition: place.offset for place in answers if place.offset >= 0}
    except KafkaException as error:
        raise client.failure(error.args[0], f"asking for the offsets of group {group}") from error
    finally:
        client.close()


def make_topic(
    settings: KafkaSettings, partitions: int | None, replication_factor: int | None, config: Mapping[str, str]
) -> bool:
    """Make the topic; False where it is there already. What is not said is the cluster's default.

    Raises `UsageError` for what the cluster refuses, `HubUnavailable` and `HubError`.
    """
    client = Client(AdminClient, settings)
    topic = NewTopic(
        settings.topic,
        num_partitions=-1 if partitions is None else partitions,
        replication_factor=-1 if replication_factor is None else replication_factor,
        config=dict(config),
    )
    try:
        (made,) = client.handle.create_topics([topic], operation_timeout=settings.request_timeout).values()
        made.result(2 * settings.request_timeout + 1)
    except KafkaException as error:
        refused: KafkaError = error.args[0]
        if refused.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if refused.code() in _INVALID:
            raise UsageError(f"{settings.url}: the cluster makes no such topic: {refused.str()}") from error
        failed = client.failure(refused, "making the topic")
        if isinstance(failed, ConfigError):  # its words are for a topic that should be there
            raise UsageError(f"{settings.url}: the cluster makes no such topic: {refused.str()}") from error
        raise failed from error
    except FutureTimeout:
        raise client.failure(None, "making the topic") from None
    return True
