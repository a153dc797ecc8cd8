"""What a handler is given, what it may answer, and what becomes of it: pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

from leasehold.errors import ConfigError, UsageError
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import PASSED_OVER, Delete, EntityEvent, Key, Reject, Retry, Skip, compute, entity

COLUMNS = columns_of(pa.schema({"id": pa.string(), "total": pa.int64()}))


@dataclass
class Order:
    id: str
    total: int = 0


class Model(BaseModel):
    id: str
    total: int = 0


def event(number: int, key: str = "a", **row: Any) -> tuple[Key, EntityEvent, str | None]:
    return (key,), EntityEvent(key, b"", {"id": key, **row}, "h", "0", number, 0.0, 1), None


@entity(keys=["id"])
def adding(state: dict[str, Any] | None, event: EntityEvent) -> Any:
    match event.row.get("do", "add"):
        case "add":
            return {"total": (state["total"] if state else 0) + 1}
        case "delete":
            return Delete()
        case "skip":
            return Skip()
        case "reject":
            raise Reject("not today")
        case "retry":
            raise Retry("later")
        case other:
            return {"total": 1, other: 2}


def test_each_event_sees_what_those_before_it_have_made() -> None:
    events = [event(1), event(2, "b"), event(3), event(4, do="skip"), event(5, "c", do="delete")]
    done = compute(adding, {("a",): {"id": "a", "total": 10}}, events, COLUMNS)
    assert {key: (c.state, c.number) for key, c in done.changes.items()} == {
        ("a",): ({"id": "a", "total": 12}, 3),
        ("b",): ({"id": "b", "total": 1}, 2),
        ("c",): (None, 5),
    }
    assert done.failed is None


def test_after_a_delete_an_entity_begins_anew() -> None:
    done = compute(adding, {("a",): {"id": "a", "total": 10}}, [event(1, do="delete"), event(2)], COLUMNS)
    assert done.changes["a",].state == {"id": "a", "total": 1}


def test_what_is_passed_over_is_told_by_no_text() -> None:
    (key, over, _), (_, told, _) = event(1), event(2)
    done = compute(adding, {}, [(key, over, PASSED_OVER), (key, told, "passed over"), event(3)], COLUMNS)
    assert (done.passed, done.rejected, list(done.changes)) == (1, [(told, "passed over")], [("a",)])


def test_a_rejected_event_changes_nothing_and_the_rest_goes_on() -> None:
    key, unreadable, _ = event(1)
    done = compute(adding, {}, [(key, unreadable, "no JSON"), event(2, do="reject"), event(3)], COLUMNS)
    assert [(one.sequence_number, reason) for one, reason in done.rejected] == [(1, "no JSON"), (2, "not today")]
    assert done.changes["a",].state == {"id": "a", "total": 1}


@pytest.mark.parametrize("do", ["retry", "colour"])
def test_what_came_before_a_failure_stays(do: str) -> None:
    done = compute(adding, {}, [event(1), event(2, "b", do=do), event(3)], COLUMNS)
    assert done.failed is not None
    assert done.failed.sequence_number == 2
    assert isinstance(done.error, Retry if do == "retry" else UsageError)
    assert {key: c.number for key, c in done.changes.items()} == {("a",): 1}


@pytest.mark.parametrize("kind", [Order, Model])
def test_states_of_a_class(kind: type[Any]) -> None:
    def grow(state: Any, event: EntityEvent) -> Any:
        assert state is None or type(state) is kind
        return kind(id=event.key, total=(state.total if state else 0) + 1)

    handler = entity(keys=["id"], state=kind)(grow)
    assert handler.fields() == tuple(COLUMNS)
    done = compute(handler, {("a",): {"id": "a", "total": 4}}, [event(1), event(2)], COLUMNS)
    assert done.changes["a",].state == {"id": "a", "total": 6}
    assert handler(None, event(1)[1]) == kind(id="a", total=1), "it is still a function"


def test_another_key_than_the_events_and_what_is_no_state() -> None:
    for answer, said in (({"id": "b"}, "another id"), (None, "a state is a dict"), (7, "a state is a dict")):
        done = compute(entity(keys=["id"])(lambda state, event, a=answer: a), {}, [event(1)], COLUMNS)
        assert said in str(done.error)


WIDE = columns_of(
    read_columns("id STRING, total BIGINT, price DECIMAL(6,2), ratio DOUBLE, at TIMESTAMP, day DATE, note STRING", "")
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total", "many"),
        ("total", 1.5),
        ("total", 2**63),
        ("day", datetime(2026, 2, 3, 4)),
        ("price", Decimal("1.005")),
        ("price", 123456),
        ("at", "yesterday"),
        ("at", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))),
        ("note", "\ud800"),
        ("note", b"\xff"),
        ("note", 7),
    ],
)
def test_a_value_that_its_column_cannot_have_fails_its_event_alone(name: str, value: object) -> None:
    def handler(state: Any, event: EntityEvent) -> Any:
        return {name: value} if event.sequence_number == 2 else {"note": "well"}

    done = compute(entity(keys=["id"])(handler), {}, [event(1), event(2, "b"), event(3)], WIDE)
    assert isinstance(done.error, UsageError)
    assert re.search(f"returned a state whose {name} is .*, which ", str(done.error))
    assert {key: change.number for key, change in done.changes.items()} == {("a",): 1}


def test_the_next_event_is_given_what_the_table_gives_back() -> None:
    given = {"total": 2.0, "price": 7, "ratio": 1, "at": datetime(2026, 2, 3, 4), "day": date(2026, 2, 3), "note": None}
    back = given | {"id": "a", "price": Decimal("7.00"), "at": datetime(2026, 2, 3, 4, tzinfo=UTC)}
    done = compute(entity(keys=["id"])(lambda state, event: given), {}, [event(1)], WIDE)
    state = done.changes["a",].state
    assert state == back
    assert [type(state[name]) for name in ("total", "price", "ratio")] == [int, Decimal, float]
    done = compute(entity(keys=["id"])(lambda state, event: {"ratio": math.nan}), {}, [event(1)], WIDE)
    assert done.changes["a",].state == dict.fromkeys(WIDE) | {"id": "a"}


def test_a_reason_is_text_whatever_it_was() -> None:
    class Bare(Reject):
        def __init__(self) -> None:
            pass

    for rejection, reason in (
        (Reject(ValueError("too late")), "too late"),
        (Reject(None), "None"),
        (Reject("\ud800?"), "??"),
        (Bare(), ""),
    ):

        def handler(state: Any, event: EntityEvent, rejection: Reject = rejection) -> Any:
            raise rejection

        done = compute(entity(keys=["id"])(handler), {}, [event(1)], COLUMNS)
        assert [text for _, text in done.rejected] == [reason]


def test_what_is_no_handler() -> None:
    for keys in ("id", ()):
        with pytest.raises(ConfigError, match="keys"):
            entity(keys=keys)
    with pytest.raises(ConfigError, match="state"):
        entity(keys=["id"], state=int)

    async def later(state: Any, event: EntityEvent) -> Any: ...

    def one_by_one(state: Any, event: EntityEvent) -> Any:
        yield state

    class Called:
        def __call__(self, state: Any, event: EntityEvent) -> Any: ...

    for function in (later, one_by_one, Called(), Called, lambda state: state, lambda: None):
        with pytest.raises(ConfigError, match="entity ="):
            entity(keys=["id"])(function)


def test_columns_as_text() -> None:
    schema = read_columns("id STRING, total decimal(12, 2),n\tbigint", "state")
    assert schema == pa.schema({"id": pa.string(), "total": pa.decimal128(12, 2), "n": pa.int64()})
    assert pa.array([Decimal("1.50")], schema.field("total").type)[0].as_py() == Decimal("1.50")
    for wrong in ("", "id", "id STRING,", "a ARRAY<INT>", "a INT, A INT", "d DECIMAL(50)", "s STRING(3)"):
        with pytest.raises(ConfigError, match="state"):
            read_columns(wrong, "state")
