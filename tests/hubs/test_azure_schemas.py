"""Content types as hubs give them: what a topic of Kafka and an event hub say of them is enough to find a schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("azure.schemaregistry")

from azure.eventhub import EventData, EventHubProducerClient

from leasehold.body_format import BodyFormat
from leasehold.formats import BodyReader
from leasehold.hubs import Hub, open_hub
from leasehold.hubs.base import EVENT_COLUMNS
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.azure_registry import AzureRegistry, azure_registry
from tests.formats.registered import COLUMNS, outcome, schema
from tests.hubs.kafka_cluster import Cluster
from tests.hubs.kafka_hubs import opened
from tests.hubs.kafka_messages import produced

OLD, NEW = schema(id="string", n="int"), schema(n="long", gate="string", id="string")
ROWS = [("a", None, 1), ("b", "B7", 2)]
NO_TYPE = "it has no content-type, which is to be avro/binary+ and the 32 hexadecimal digits of a schema"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureRegistry]:
    with azure_registry(tmp_path, monkeypatch) as found:
        yield found


def read(hub: Hub, registry: AzureRegistry, end: int) -> list[Any]:
    """The events of a hub, in one piece."""
    (events,) = hub.read("0", 0, end, columns=EVENT_COLUMNS)
    how = BodyFormat(format="avro", registry=registry.url)
    return outcome(BodyReader(COLUMNS, how).read(events.column("body"), events))


@LEAVES_SOCKETS
def test_events_that_azures_encoder_makes_for_an_event_hub(
    registry: AzureRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.encoder() as encoder:
        old = encoder.encode({"id": "a", "n": 1}, schema=OLD, message_type=EventData)
        new = encoder.encode({"id": "b", "n": 2, "gate": "B7"}, schema=NEW, message_type=EventData)
    of_kafka = EventData(b"\x02a\x02")  # as a producer's header of Kafka comes out of Event Hubs
    of_kafka.properties = {"content-type": str(old.content_type).encode()}
    with EventHubsServer({"hub": MemoryHub(1)}) as server:
        string = server.connection_string("hub")
        with EventHubProducerClient.from_connection_string(string, socket_timeout=0.02) as producer:  # impatient: looks
            producer.send_batch([old, new, of_kafka, EventData(b"\x02a\x02")], partition_id="0")
        monkeypatch.setenv(VARIABLE, server.connection_string())
        with closing(open_hub(f"eventhubs://{server.namespace}/hub")) as hub:
            assert read(hub, registry, 4) == [*ROWS, ROWS[0], NO_TYPE]


@pytest.mark.usefixtures("patient_kafka")
def test_messages_of_kafka_with_the_header_that_azures_serializers_write(
    registry: AzureRegistry, cluster: Cluster
) -> None:
    with registry.encoder() as encoder:
        old = encoder.encode({"id": "a", "n": 1}, schema=OLD)
        new = encoder.encode({"id": "b", "n": 2, "gate": "B7"}, schema=NEW)
    topic = cluster.topic(1)
    name = old["content_type"].encode()
    produced(
        cluster,
        topic,
        {"value": old["content"], "headers": [("content-type", name)]},
        {"value": new["content"], "headers": [("content-type", new["content_type"].encode()), ("x", b"\xff")]},
        {"value": old["content"], "headers": [("content-type", name), ("content-type", name)]},
        {"value": old["content"], "headers": [("content-type", name), ("content-type", b"text/plain")]},
        {"value": old["content"], "headers": [("content-type", b"\xff")]},
        {"value": old["content"]},
        {"value": None, "headers": [("content-type", name)]},
    )
    with closing(opened(cluster.url(topic))) as hub:
        assert read(hub, registry, 7) == [
            *ROWS,
            ROWS[0],
            "the header content-type is there twice, with different values",
            "the header content-type is not UTF-8",
            NO_TYPE,
            "the event has no body",
        ]
