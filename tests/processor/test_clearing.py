"""When what is old beside a table is cleared, and what a key is, as text."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from leasehold.errors import ConfigError, SinkUnavailable, UsageError
from leasehold.operations.clearing import Clearing
from leasehold.sinks.beside.forgetting import Cleared, Forgotten, Retention, candidates, is_of, parse_key
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.set_aside import EventId, RejectedRow
from leasehold.sinks.sqlite.sink import SqliteSink

ONE = TableSpec(name="t", pipeline="p", keys=("id",))
TWO = TableSpec(name="t", pipeline="p", keys=("Flight", "day"))


class Recorded(SqliteSink):
    """A sink that says what it is asked to clear, and answers as it is told."""

    def __init__(self, path: Path, *answers: Cleared | Exception) -> None:
        super().__init__(path / "t.db", ONE)
        self.answers, self.asked = list(answers), list[object]()

    def clear(
        self,
        retention: Retention,
        now: float | None = None,
        after: tuple[object, ...] | None = None,
        at_most: int = 1000,
    ) -> Cleared:
        assert now is None, "the clock of the database tells the time, which is one for all instances"
        self.asked.append(after)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def forget_entity(self, key: Mapping[str, str]) -> Forgotten:
        raise AssertionError("not asked for here")


def test_steps_follow_at_once_while_there_is_more_and_then_pause(tmp_path: Path) -> None:
    sink = Recorded(tmp_path, Cleared(1, 2, ("k",), True), Cleared(), Cleared())
    clearing = Clearing(sink, Retention(rejected=10_000.0, memories=1000.0))
    assert [bool(clearing.step(now)) for now in (5.0, 5.0, 5.1, 14.9, 15.1)] == [True, True, False, False, True]
    assert sink.asked == [None, ("k",), None]


def test_a_step_that_fails_is_said_and_tried_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = Recorded(tmp_path, SinkUnavailable("locked"), Cleared(3))
    clearing = Clearing(sink, Retention(tombstones=1.0))
    with caplog.at_level(logging.WARNING):
        assert clearing.step(0.0) is None
    assert "cleared later: locked" in caplog.text
    assert clearing.step(0.9) is None
    assert clearing.step(1.0) == Cleared(3)


def test_without_a_retention_nothing_is_asked(tmp_path: Path) -> None:
    assert Clearing(Recorded(tmp_path), Retention()).step(0.0) is None


def test_a_sink_that_cannot_forget_is_refused(tmp_path: Path) -> None:
    class Plain:
        spec, features = ONE, frozenset[object]()

    with pytest.raises(UsageError, match=r"feature BOOKKEEPING.*Leave out rejected_retention"):
        Clearing(Plain(), Retention(rejected=1.0))  # type: ignore[arg-type]


def test_a_retention_is_a_time() -> None:
    with pytest.raises(ConfigError, match="memory_retention"):
        Retention(memories=0.0)
    assert Retention(memories=5.0, tombstones=9.0).of_tombstones == 5.0
    assert Retention(rejected=5.0).note_every is None


@pytest.mark.parametrize(
    ("spec", "stated", "key"),
    [
        (ONE, ["a"], {"id": "a"}),
        (ONE, ["id=a=b"], {"id": "a=b"}),
        (ONE, ["ID=a"], {"id": "a"}),
        (ONE, ["x=a"], {"id": "x=a"}),
        (TWO, ["DAY=3", "flight=UA 7"], {"Flight": "UA 7", "day": "3"}),
    ],
)
def test_keys_as_text(spec: TableSpec, stated: list[str], key: dict[str, str]) -> None:
    assert parse_key(spec, stated) == key


@pytest.mark.parametrize(
    ("spec", "stated", "said"),
    [
        (TWO, ["a"], "the keys of t are day, Flight"),
        (TWO, ["day=3"], "Flight is missing"),
        (ONE, ["a", "b"], "id is given twice"),
        (ONE, ["a\udcff"], "half a surrogate pair"),
        (TableSpec(name="t", pipeline="p", mode="append"), ["a"], "has no keys"),
    ],
)
def test_what_is_no_key_is_refused(spec: TableSpec, stated: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_key(spec, stated)


@pytest.mark.parametrize(
    ("body", "its"),
    [
        (b'{"id": 5}', True),
        ('{"ID": "5", "x": {}}', True),
        ('\ufeff{"id": 5}', True),
        ('{"id": 5}'.encode("utf-16"), True),
        ('{"id": 5.0}', False),
        ('{"id": null}', False),
        ("[5]", False),
        ('{"id": "\ud800"}', False),
        (b"[" * 100_000, False),
        (None, False),
        (5, False),
    ],
)
def test_whose_a_rejected_row_is(body: object, its: bool) -> None:
    row = RejectedRow(EventId("h", "0", 1), 0, body, "bad", "{}", "2026-01-01T00:00:00.000000Z")
    assert is_of(row, {"id": "5"}) is its


@pytest.mark.parametrize(
    ("written", "its"),
    [
        ("1.10", True),
        ('"1.10"', True),
        ("1.1", False),
        ('1.1, "id": 1.10', True),
        ('1.10, "ID": 1.1', True),
        ("1.1000000000000000000001", False),
    ],
)
def test_the_digits_of_a_key_are_those_that_were_sent(written: str, its: bool) -> None:
    row = RejectedRow(EventId("h", "0", 1), 0, f'{{"id": {written}}}', "bad", "{}", "2026-01-01T00:00:00.000000Z")
    assert is_of(row, {"id": "1.10"}) is its


@pytest.mark.parametrize(
    "key", ["1234567890.123456789012345678", "1E5", "9" * 5_000, "0.1e-400", "[1.10,true]", "true"]
)
def test_whatever_is_written_can_be_found(key: str) -> None:
    row = RejectedRow(EventId("h", "0", 1), 0, f'{{"id": {key}}}', "bad", "{}", "2026-01-01T00:00:00.000000Z")
    assert is_of(row, {"id": key})


def test_what_a_text_may_be_in_a_database() -> None:
    assert candidates("5") == ["5", 5, 5.0]
    assert candidates("a") == ["a"]
    assert candidates("12345678901234567890") == ["12345678901234567890", 12345678901234567890.0]
    assert candidates("-9223372036854775807")[1] == -(2**63) + 1
