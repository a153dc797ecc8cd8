"""Messages as other producers write them to Kafka, also such as the official client for Python cannot write."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer

from tests.hubs.kafka_cluster import Cluster
from tests.waiting import PATIENCE

ODD_NAMES = (b"\xff\xfe", b"\xc3(", b"", b"\xf0\x9f\x94\x91", b"a" * 5_000, b"line\nbreak")
"""Names of headers; the first two are no UTF-8."""


def produced(cluster: Cluster, topic: str, *messages: dict[str, object]) -> None:
    """Messages as another producer writes them, into partition 0."""
    producer = Producer({"bootstrap.servers": cluster.servers, "log_level": 0})
    for message in messages:
        producer.produce(topic, partition=0, **message)  # type: ignore[arg-type]
    assert producer.flush(PATIENCE) == 0


def produce_odd_headers(cluster: Cluster, topic: str) -> None:
    """One message with each of `ODD_NAMES`, between two others."""
    cluster.produce_header(topic, b"fine", b"1")
    for name in ODD_NAMES:
        cluster.produce_header(topic, name, b"value")
    cluster.produce_header(topic, b"fine", b"1")


def check_odd_headers(events: Sequence[tuple[dict[str, str], dict[str, str]]]) -> None:
    """The properties and system properties of the messages that `produce_odd_headers` writes."""
    assert len(events) == len(ODD_NAMES) + 2
    assert events[0] == events[-1] == ({"fine": "1"}, {})
    for name, (properties, system) in zip(ODD_NAMES, events[1:], strict=False):
        if name in ODD_NAMES[:2]:
            assert (properties, system) == ({}, {"headersUnreadable": "the name of a header is not UTF-8"})
        else:
            assert (properties, system) == ({name.decode(): "value"}, {})
