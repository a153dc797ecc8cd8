"""Events as the SDK of CloudEvents writes them, read as docs/reference/formats.md says."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
from cloudevents.core.bindings.kafka import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from leasehold.formats import BodyReader

AT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
DATA = pa.struct([("flight", pa.string()), ("delay", pa.float64())])


def event() -> CloudEvent:
    attributes = {"id": "1", "source": "/gates", "type": "com.example.landed", "time": AT, "specversion": "1.0"}
    return CloudEvent({**attributes, "datacontenttype": "application/json"}, {"flight": "LH1", "delay": 1.5})


def test_a_structured_event_is_an_object_with_its_data() -> None:
    body = to_structured_event(event()).value
    columns = pa.schema(
        [("id", pa.string()), ("type", pa.string()), ("time", pa.timestamp("us", "UTC")), ("data", DATA)]
    )
    read = BodyReader(columns).read(pa.array([body]))
    assert read.reasons is None
    assert read.columns.to_pylist() == [
        {"id": "1", "type": "com.example.landed", "time": AT, "data": {"flight": "LH1", "delay": 1.5}}
    ]


def test_the_body_of_a_binary_event_is_its_data() -> None:
    message = to_binary_event(event())
    read = BodyReader(pa.schema(list(DATA))).read(pa.array([message.value]))
    assert read.columns.to_pylist() == [{"flight": "LH1", "delay": 1.5}]
    assert message.headers["ce_type"] == b"com.example.landed"
