"""CloudEvents as hubs give them: what a topic of Kafka and an event hub say of their headers is enough to read them."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from cloudevents.core.bindings.kafka import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

pytest.importorskip("azure.eventhub")

from leasehold.formats import BodyFormat, BodyReader, ReadBodies
from leasehold.hubs import Hub, open_hub
from leasehold.hubs.base import EVENT_COLUMNS
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold_testkit.emulators.amqp.messages import Message, data_message
from leasehold_testkit.emulators.amqp.types import Symbol, Timestamp
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.azure_clients import LEAVES_SOCKETS
from tests.hubs.kafka_cluster import Cluster
from tests.hubs.kafka_hubs import opened
from tests.hubs.kafka_messages import produced

AT = datetime(2026, 2, 3, 4, 5, 6, 7_000, UTC)
COLUMNS = pa.schema([("ce_id", pa.string()), ("ce_time", pa.timestamp("us", "UTC")), ("gate", pa.string())])
ROW = {"ce_id": "1", "ce_time": AT, "gate": "B7"}


def read(hub: Hub, end: int) -> ReadBodies:
    """The events of a hub, in one piece."""
    (events,) = hub.read("0", 0, end, columns=EVENT_COLUMNS)
    return BodyReader(COLUMNS, BodyFormat(envelope="cloudevents")).read(events.column("body"), events)


def of_events(server: EventHubsServer, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub that the server has."""
    monkeypatch.setenv(VARIABLE, server.connection_string())
    return open_hub(f"eventhubs://{server.namespace}/hub")


def _type(content_type: str) -> list[object]:
    """The properties of a message of AMQP, up to its content type."""
    return [*[None] * 6, Symbol(content_type)]


@pytest.mark.usefixtures("patient_kafka")
def test_events_of_a_topic_of_kafka(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    attributes = {"id": "1", "source": "/gates", "type": "landed", "time": AT, "specversion": "1.0"}
    event = CloudEvent({**attributes, "datacontenttype": "application/json"}, {"gate": "B7"})
    binary, structured = to_binary_event(event), to_structured_event(event)
    headers = list(binary.headers.items())
    produced(
        cluster,
        topic,
        {"value": binary.value, "headers": headers},
        {"value": structured.value, "headers": list(structured.headers.items())},
        {"value": binary.value, "headers": [("CE_ID", b"1"), *headers, ("ce_other", b"\xff"), ("ce_other", None)]},
        {"value": None, "headers": headers},
        {"value": binary.value, "headers": [*headers, ("ce_id", b"2")]},
        {"value": binary.value, "headers": [("ce_id", b"\xff"), *headers[1:]]},
        {"value": None},
    )
    with closing(opened(cluster.url(topic))) as hub:
        found = read(hub, 7)
    assert found.columns.to_pylist()[:4] == [ROW, ROW, ROW, ROW | {"gate": None}]
    assert found.reasons is not None
    *good, twice, no_text, none = found.reasons.to_pylist()
    assert good == [None] * 4
    assert twice == "the header ce_id is there twice, with different values"
    assert no_text == "the header ce_id is not UTF-8"
    assert none.startswith("no CloudEvent: ")


@LEAVES_SOCKETS
@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_events_of_an_event_hub(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    memory = MemoryHub(1)
    texts = {"specversion": "1.0", "id": "1", "source": "/gates", "type": "landed"}
    stated = {f"{prefix}{name}": value for name, value in texts.items()}
    body = b'{"gate": "B7"}'
    whole = b'{"specversion":"1.0","id":"1","source":"/gates","type":"landed","time":"%s","data":%s}'
    moment = int(AT.timestamp() * 1_000)
    memory.append(
        "0",
        [
            Message(data_message(body, {**stated, f"{prefix}time": Timestamp(moment)}, _type("application/json"))),
            Message(data_message(body, {**stated, f"{prefix}time": AT.isoformat()})),
            Message(data_message(whole % (AT.isoformat().encode(), body), {}, _type("application/cloudevents+json"))),
            Message(data_message(b"[]", stated, _type("application/cloudevents-batch+json"))),
        ],
    )
    with EventHubsServer({"hub": memory}) as server, closing(of_events(server, monkeypatch)) as hub:
        found = read(hub, 4)
    assert found.columns.to_pylist()[:3] == [ROW] * 3
    assert found.reasons is not None
    assert "is a batch of them" in found.reasons.to_pylist()[3]
