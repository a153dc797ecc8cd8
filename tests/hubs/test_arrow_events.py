"""From Arrow to events: each field from its column, for every kind of row."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from leasehold.hubs.arrow import empty_maps, event_schema
from leasehold.hubs.arrow_events import events_from, events_of
from leasehold.model import Event


def test_each_field_comes_from_its_column() -> None:
    rows: list[dict[str, Any]] = [
        {
            "body": b"one",
            "partition": "3",
            "offset": "40",
            "sequenceNumber": 7,
            "enqueuedTime": datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC),
            "publisher": "p",
            "partitionKey": "k",
            "properties": [("a", "1"), ("b", "2")],
            "systemProperties": [("s", "x")],
            "hub": "h",
        },
        {"body": None, "partition": "3", "offset": None, "sequenceNumber": 8, "hub": "h"},
    ]
    filled = [{field.name: row.get(field.name, []) for field in event_schema()} for row in rows]
    for row in filled:
        for name in ("enqueuedTime", "publisher", "partitionKey"):
            row[name] = row[name] or None
    (first, second) = events_of(pa.RecordBatch.from_pylist(filled, schema=event_schema()))
    time = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC).timestamp()
    assert first == Event(b"one", "k", {"a": "1", "b": "2"}, "p", "3", 7, "40", time, {"s": "x"})
    body: Any = second.body
    assert (body, second.offset, second.sequence_number) == (None, None, 8), "a tombstone of Kafka"
    assert second.enqueued_time == 0.0, "Kafka may know no time"
    assert (second.properties, second.system_properties) == ({}, {})
    with pytest.raises(AttributeError):
        first.partition = "4"  # type: ignore[misc]


def test_maps_that_were_left_out_are_empty_and_the_events_own() -> None:
    def made() -> list[Event]:
        nothing = [None, None]
        return events_from(2, [b"a", b"b"], nothing, None, nothing, ["0", "0"], [1, 2], nothing, [0.0, 0.0], None)

    expected = Event(b"a", partition="0", sequence_number=1)
    for look in (repr, pickle.dumps, copy.copy, dataclasses.asdict, dataclasses.replace, lambda one: one == expected):
        (event, other) = made()
        look(event)
        assert event == expected == pickle.loads(pickle.dumps(event)) == copy.deepcopy(event)  # noqa: S301
        assert event.properties is event.properties
        assert event.properties is not event.system_properties
        assert event.properties is not other.properties
        assert json.dumps(event.properties) == "{}"
    with pytest.raises(AttributeError, match="'Event' object has no attribute 'bodies'"):
        event.bodies  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("count", [0, 1, 1_000])
def test_empty_maps_are_what_arrow_makes_of_empty_lists(count: int) -> None:
    made = empty_maps(count)
    made.validate(full=True)
    assert made.equals(pa.array([[]] * count, event_schema(["properties"]).field(0).type))
