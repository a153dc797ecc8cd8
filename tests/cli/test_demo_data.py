"""The demo's events and the demo's answer, which must agree without sharing code."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from leasehold.cli.demo.data import FIELDS, SCHEMA, FlightEvents, expected_table

LIFE = {("scheduled", "cancelled"), ("scheduled", "departed"), ("scheduled", "departed", "arrived")}


@pytest.mark.more
def test_the_last_event_of_each_flight_is_the_answer() -> None:
    events = FlightEvents(limit=40_000)  # has flights of every kind: cancelled, diverted, without a tail number
    last: dict[str, tuple[object, ...]] = {}
    life: dict[str, list[str]] = defaultdict(list)
    count, before = 0, ""
    for table in events.tables(chunk_rows=7_001):
        assert table.num_rows <= 7_001
        count += table.num_rows
        for body, key in zip(table["body"].to_pylist(), table["partitionKey"].to_pylist(), strict=True):
            state = json.loads(body)
            assert tuple(state) == FIELDS
            assert state["event_time"] >= before
            before = state["event_time"]
            assert key == state["tailnum"]
            life[state["flight"]].append(state["status"])
            last[state["flight"]] = tuple(state.values())[1:]
    assert count == len(events)
    assert last == expected_table(limit=40_000)
    assert {tuple(states) for states in life.values()} == LIFE
    assert any(state[0] is None for state in last.values())


def test_there_are_about_a_million_events() -> None:
    assert len(FlightEvents()) == 1_001_615


def test_some_flights_looked_up_by_hand() -> None:
    expected = expected_table(limit=1000)
    assert expected["2013-01-01 UA 1545 EWR"] == (
        *("N14228", "UA", "EWR", "IAH", "arrived"),
        *("2013-01-01T14:24:00Z", "2013-01-01T10:15:00Z", 2, 11, 227),
    )
    assert expected["2013-01-01 AA 791 LGA"][4:] == (
        *("cancelled", "2013-01-02T00:35:00Z", "2013-01-02T00:35:00Z"),
        *(None, None, None),
    )


def test_the_schema_names_the_fields() -> None:
    assert [column.split()[0] for column in SCHEMA.split(", ")] == list(FIELDS)
