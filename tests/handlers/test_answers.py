"""What a handler may answer beside a state: which events it may emit, and what becomes of them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import UsageError
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.applying import emitted_events
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import CallRules, Computed, Delete, EntityEvent, Reject, Skip, compute, entity
from leasehold.sinks.beside.outbox.contract import id_of

COLUMNS = columns_of(pa.schema([("name", pa.string()), ("seen", pa.int64())]))


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b"\x00\xff", b"\x00\xff"),
        ("grün", "grün".encode()),
        ({"total": Decimal("12.50"), "at": date(2026, 1, 2)}, b'{"total":"12.50","at":"2026-01-02"}'),
        ([1, None, datetime(2026, 1, 2, 3, tzinfo=UTC)], b'[1,null,"2026-01-02T03:00:00+00:00"]'),
    ],
)
def test_bodies(body: Any, sent: bytes) -> None:
    assert Emit(body).body == sent


def test_keys_and_properties() -> None:
    event = Emit(b"x", key=7, properties={"type": "opened"})
    assert (event.key, event.properties) == ("7", {"type": "opened"})
    assert Emit(b"x").key is None


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (7, {}),
        ({"a": float("nan")}, {}),
        ({"a": object()}, {}),
        ({"a": Decimal("NaN")}, {}),
        ("a\0b", {}),
        ("\ud800", {}),
        (b"x", {"key": 1.5}),
        (b"x", {"key": True}),
        (b"x", {"key": "a\0"}),
        (b"x", {"properties": {"n": 1}}),
    ],
)
def test_what_can_be_no_event(body: Any, more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Emit"):
        Emit(body, **more)


def computed(*answers: Any, **settings: Any) -> Computed:
    """What answers to events 5, 6, … of one entity come to."""
    left = iter(answers)

    @entity(keys=["name"])
    def answering(state: Any, event: EntityEvent) -> Any:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    events = [
        (("a",), EntityEvent("a", b"{}", {"name": "a"}, "h", "3", 5 + n, 0.0, 1), None) for n in range(len(answers))
    ]
    return compute(answering, {}, events, COLUMNS, rules=CallRules(**{"emits": True, **settings}))


def test_what_is_emitted_with_each_answer() -> None:
    done = computed(
        Effects({"seen": 1}, [Emit("1"), Emit("2", key="k")]),
        Effects(Skip(), [Emit("3")]),
        Effects(Delete(), [Emit("4")]),
    )
    assert done.changes[("a",)].state is None
    events = emitted_events(done)
    assert [(one.sequence_number, one.place, one.key, one.body) for one in events] == [
        (5, 0, None, b"1"),
        (5, 1, "k", b"2"),
        (6, 0, None, b"3"),
        (7, 0, None, b"4"),
    ]
    assert {one.entity for one in events} == {("a",)}


def test_an_event_that_is_skipped_leaves_the_state() -> None:
    done = computed(Effects({"seen": 1}), Effects(Skip(), [Emit("x")]))
    assert done.changes[("a",)].state == {"name": "a", "seen": 1}


@pytest.mark.parametrize("failing", [Reject("no"), RuntimeError("down"), Effects({"other": 1}, [Emit("x")])])
def test_what_fails_emits_nothing(failing: Any) -> None:
    assert computed(failing, goes_on=True).emitted == []


def test_an_answer_that_is_none() -> None:
    wrong: Any = ["text"]
    done = computed(Effects({"seen": 1}, wrong))
    assert isinstance(done.error, UsageError)
    assert "str" in str(done.error)


def test_without_an_outbox_an_event_that_emits_fails() -> None:
    done = computed(Effects({"seen": 1}, [Emit("x")]), emits=False)
    assert done.changes == {}
    assert isinstance(done.error, UsageError)
    assert "outbox" in str(done.error)
    assert computed(Effects({"seen": 1}), emits=False).error is None


def test_ids_are_made_of_the_cause_and_the_place() -> None:
    event = EntityEvent("a", b"", {}, "h", "3", 5, 0.0, 1)
    assert id_of("h", "3", 5, 1) == f"{event.id}/1" == "h/3/5/1"


def test_json_is_short_and_readable() -> None:
    assert json.loads(Emit({"a": {"b": "ü"}}).body) == {"a": {"b": "ü"}}
