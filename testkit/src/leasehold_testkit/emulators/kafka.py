"""A Kafka cluster of one broker on 127.0.0.1, for trying things out: the mock cluster of librdkafka, in this process.

Owns the cluster and its topics. Promises Kafka's protocol to any client: producers, consumers, consumer groups, the ids
of topics. `BOUNDS` says what it has not; all events are in memory, and gone when it is closed. Refuses a
`confluent-kafka` that was built on a library of the system's: the cluster is made by calls of the wheel's own library.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leasehold.errors import ConfigError, LeaseholdError, UsageError
from leasehold.installation import command_for_kit

BOUNDS = (
    "It keeps the last 100,000 events or 5 MB of each partition, in memory: what is older is removed, and all is gone "
    "at the end. It has no transactions, no logins, no look-up by time, and makes no topic later"
)
"""What a user has to know of it."""


class KafkaServer:
    """A cluster that runs until it is closed; `servers` is its address."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        """A cluster with these topics, and how many partitions each has. Raises `ConfigError` for an invalid name."""
        for name in topics:
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
                rule = "a topic has 1 to 249 letters, digits, dots, dashes and underscores"
                raise ConfigError("--topic", name, rule, "Rename it")
        self._kafka = _library()
        said = ctypes.create_string_buffer(500)
        config = ctypes.c_void_p(self._kafka.rd_kafka_conf_new())
        for option, value in ((b"test.mock.num.brokers", b"1"), (b"log_level", b"0")):
            if self._kafka.rd_kafka_conf_set(config, option, value, said, len(said)):
                raise LeaseholdError(f"librdkafka makes no mock cluster: {said.value.decode()}")
        self._client = ctypes.c_void_p(self._kafka.rd_kafka_new(0, config, said, len(said)))
        cluster = ctypes.c_void_p(self._kafka.rd_kafka_handle_mock_cluster(self._client))
        if not self._client or not cluster:
            raise LeaseholdError(f"librdkafka makes no mock cluster: {said.value.decode()}")
        self.servers: str = self._kafka.rd_kafka_mock_cluster_bootstraps(cluster).decode()
        self._kafka.rd_kafka_mock_set_controller_id(cluster, ctypes.c_int32(1))  # which tells the ids of topics
        for name, partitions in topics.items():
            if code := self._kafka.rd_kafka_mock_topic_create(cluster, name.encode(), partitions, 1):
                raise LeaseholdError(f"the mock cluster does not make the topic {name}: error {code}")

    def url(self, topic: str) -> str:
        """Where a topic is, for `open_hub`."""
        return f"kafka://{self.servers}/{topic}"

    def close(self) -> None:
        """End the cluster; its events are gone."""
        self._kafka.rd_kafka_destroy(self._client)


def _library() -> Any:
    """The library that the wheel of `confluent-kafka` brings, with the types of what is called here."""
    try:
        import confluent_kafka
    except ImportError:
        lacking = f"a package is not installed: {command_for_kit('kafka')}"
        raise UsageError(f"leasehold serve kafka: {lacking}") from None
    package = Path(confluent_kafka.__file__).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka-*.so*"), *package.glob(".dylibs/librdkafka*.dylib")]
    if not found:
        raise LeaseholdError(
            "confluent-kafka has no librdkafka of its own: pip install --only-binary :all: confluent-kafka"
        )
    library = ctypes.CDLL(str(found[0]))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_handle_mock_cluster"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
