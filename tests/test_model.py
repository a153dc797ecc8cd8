"""The words: positions read from text, owner ids, and small promises of the values."""

from __future__ import annotations

import dataclasses
import json
import pickle
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import ConfigError
from leasehold.model import (
    BEFORE_FIRST,
    EARLIEST,
    LATEST,
    Checkpoint,
    ConsumerGroup,
    Event,
    EventPosition,
    OwnerId,
    Ownership,
    PositionKind,
    Positions,
    owner_name,
)

GROUP = ConsumerGroup("n", "h")


# Positions


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        (" Latest ", LATEST),
        ("COMMITTED", EventPosition(PositionKind.COMMITTED)),
        ("0", EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=0)),
        ("17", EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=17)),
        ("9223372036854775807", EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=2**63 - 1)),
        ("1970-01-01T00:01:00Z", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=60.0)),
        ("1970-01-01t01:01:00+01:00", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=60.0)),
        ("after 17", EventPosition(PositionKind.SEQUENCE_NUMBER, sequence_number=17, inclusive=False)),
        ("offset 4294967296", EventPosition(PositionKind.OFFSET, offset="4294967296")),
        ("After  offset a:b c", EventPosition(PositionKind.OFFSET, offset="a:b c", inclusive=False)),
        ("after 1970-01-01T00:01:00Z", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=60.0, inclusive=False)),
        ("2026-01-31 08:00:00.25+00:00", EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=1769846400.25)),
    ],
)
def test_positions_from_text(text: str, position: EventPosition) -> None:
    assert EventPosition.parse(text) == position


@pytest.mark.parametrize(
    "text", ["", "first", "-1", "1.5", "1e3", "+1", "0x10", "2026-13-01T00:00:00Z", "null", "{", "9" * 5000]
)
def test_no_positions(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        EventPosition.parse(text, "startingPosition")
    assert (refused.value.field, refused.value.value) == ("startingPosition", text)
    assert "earliest, latest, committed, a sequence number or an ISO 8601 timestamp" in str(refused.value)


@pytest.mark.parametrize("text", ["after", "after latest", "after earliest", "after committed", "after after 17"])
def test_nothing_is_after_these(text: str) -> None:
    with pytest.raises(ConfigError):
        EventPosition.parse(text)


@pytest.mark.parametrize("text", ["2026-01-31T08:00:00", "2026-01-31"])
def test_a_timestamp_needs_an_offset(text: str) -> None:
    with pytest.raises(ConfigError, match="offset from UTC"):
        EventPosition.parse(text)


@given(
    st.one_of(
        st.sampled_from([EARLIEST, LATEST, EventPosition(PositionKind.COMMITTED)]),
        st.builds(
            EventPosition,
            st.just(PositionKind.SEQUENCE_NUMBER),
            st.integers(0, 2**63 - 1),
            inclusive=st.booleans(),
        ),
        st.builds(
            EventPosition,
            st.just(PositionKind.OFFSET),
            offset=st.text("0123456789:@-ab", min_size=1),
            inclusive=st.booleans(),
        ),
        st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC)).map(
            lambda at: EventPosition(PositionKind.ENQUEUED_TIME, enqueued_time=at.timestamp())
        ),
    )
)
def test_a_position_as_text_reads_back(position: EventPosition) -> None:
    assert EventPosition.parse(str(position)) == position


def test_one_position_for_all_partitions() -> None:
    positions = Positions.parse("latest")
    assert positions == Positions(LATEST)
    assert positions.of("0") == positions.of("anything") == LATEST


def test_a_position_for_each_partition() -> None:
    positions = Positions.parse(' {"0": 17, "1": "earliest", "*": "latest", "a b": "1970-01-01T00:00:01Z"}')
    assert positions.of("0").sequence_number == 17
    assert positions.of("1") == EARLIEST
    assert positions.of("2") == LATEST
    assert positions.of("a b").enqueued_time == 1.0


def test_where_others_are_not_named_they_start_at_earliest() -> None:
    assert Positions.parse('{"0": "latest"}').of("1") == EARLIEST
    assert Positions.parse("{}") == Positions(EARLIEST)


@pytest.mark.parametrize("text", ["{", '{"0": }', "{0: 1}", "{'0': 1}"])
def test_no_json(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not a JSON object .*For example") as refused:
        Positions.parse(text, "startingPosition")
    assert refused.value.field == "startingPosition"


@pytest.mark.parametrize("stated", ["first", -1, 1.5, None, True, [], {}])
def test_no_position_in_json(stated: object) -> None:
    with pytest.raises(ConfigError) as refused:
        Positions.parse(json.dumps({"0": 1, "7": stated}), "startingPosition")
    assert refused.value.field == "startingPosition['7']"


def test_positions_are_equal_whatever_the_order_they_were_named_in() -> None:
    assert Positions.parse('{"0": 1, "1": 2}') == Positions.parse('{"1": 2, "0": 1}')
    assert hash(Positions.parse('{"0": 1}')) == hash(Positions.parse('{"0": "1"}'))


# Owner ids


def test_an_incarnation_is_new_each_time() -> None:
    first, second = OwnerId("a"), OwnerId("a")
    assert first != second
    assert str(first) == f"a/{first.incarnation}"
    assert owner_name(str(first)) == owner_name(str(second)) == "a"


@pytest.mark.parametrize("name", ["a", "host-1.example:8080", "me@work", "ä_1", "x" * 100])
def test_names(name: str) -> None:
    assert owner_name(str(OwnerId(name))) == name


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a\n", "x" * 101, "a'", "*"])
def test_no_names(name: str) -> None:
    with pytest.raises(ConfigError, match="1 to 100 letters, digits") as refused:
        OwnerId(name)
    assert (refused.value.field, refused.value.value) == ("owner_id", name)


@pytest.mark.parametrize(
    ("owner_id", "name"), [("a/b", "a"), ("a/b/c", "a/b"), ("a", "a"), ("", ""), ("8a3c-uuid", "8a3c-uuid")]
)
def test_names_of_other_owners(owner_id: str, name: str) -> None:
    assert owner_name(owner_id) == name


# Values


def test_the_next_sequence_number() -> None:
    assert Checkpoint(GROUP, "0", 17, 1).next_sequence_number == 18
    assert Checkpoint(GROUP, "0", BEFORE_FIRST, 1).next_sequence_number == 0


def test_a_group_as_text() -> None:
    assert str(GROUP) == "n/h/$Default"


@pytest.mark.parametrize(
    "value",
    [
        GROUP,
        OwnerId("a"),
        Ownership(GROUP, "0", "a/b", 1),
        Checkpoint(GROUP, "0", 1, 1),
        LATEST,
        Positions(),
        Event(b"x"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_frozen_and_travel(value: object) -> None:
    assert dataclasses.is_dataclass(value)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, None)
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301 -- what was pickled a moment ago
