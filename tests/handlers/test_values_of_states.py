"""Values of states in both databases: they come back as they were given, or their event alone fails, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import ConfigError
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable
from tests.handlers import flat
from tests.handlers.batches import database, given
from tests.sinks.postgres import Place

STATE = "id STRING, at TIMESTAMP, there TIMESTAMP_NTZ, day DATE, n BIGINT, ratio DOUBLE, exact DECIMAL(6,2), raw BINARY"
MOMENT = datetime(2026, 6, 21, 0, 0, 0, 250_000, tzinfo=UTC)
EAST = timezone(timedelta(hours=5))


class Bench:
    """A handler that answers an event with the state that stands at its place, and notes what it was given."""

    def __init__(self, url: str, look: Callable[[str], list[Any]]) -> None:
        self.look = look
        self.states: list[dict[str, Any]] = []
        self.seen: list[dict[str, Any] | None] = []

        @entity(keys=["id"])
        def handler(state: Any, event: EntityEvent) -> Any:
            self.seen.append(state)
            return self.states[event.row["place"]]

        schema = "id STRING, place BIGINT"
        settings = {"table": "things", "pipeline": "p", "schema": schema, "state": STATE, "on_failure": "discard"}
        self.table: HandledTable = flat.table(handler, url, **settings)

    def give(self, *ids: str, first: int = 0) -> None:
        self.table.on_events(*given(1, first, *({"id": name, "place": n} for n, name in enumerate(ids, first))))


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(*database(request, tmp_path))
    yield made
    made.table.sink.close()


def test_a_state_is_the_same_from_the_batch_and_from_the_table(bench: Bench) -> None:
    given_state = {
        "at": MOMENT.timestamp(),
        "there": "2026-06-21T05:00:00",
        "day": date(2026, 6, 21),
        "n": 2.0,
        "ratio": 2**64,
        "exact": 7,
        "raw": b"\xff",
    }
    bench.states = [given_state] * 3
    bench.give("a", "a")
    bench.give("a", first=2)
    back = given_state | {"id": "a", "at": MOMENT, "there": datetime(2026, 6, 21, 5), "ratio": 2.0**64}
    assert bench.seen == [None, back, back]
    in_batch, in_table = (one or {} for one in bench.seen[1:])
    assert {name: type(value) for name, value in in_batch.items()} == {n: type(v) for n, v in in_table.items()}


@pytest.mark.more(but=9)
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("at", Decimal("1782000000.0000001"), "finer than the microseconds"),
        ("at", 1_782_000_000_000, "outside the years 1 to 9999"),
        ("there", datetime(2026, 6, 21, tzinfo=EAST), "which has a zone, and a TIMESTAMP_NTZ has none"),
        ("there", 1_782_000_000, "not a TIMESTAMP_NTZ"),
        ("ratio", 10**400, "which no DOUBLE holds"),
        ("ratio", True, "not a DOUBLE"),
        ("exact", 0.1, "a float"),
        ("raw", "text", "not a BINARY"),
    ],
)
def test_an_event_fails_by_name_and_alone(bench: Bench, name: str, value: object, said: str) -> None:
    bench.states = [{"n": 1}, {name: value}, {"n": 3}]
    bench.give("a", "b", "c")
    assert bench.look("SELECT id, n FROM things ORDER BY id") == [("a", 1), ("c", 3)]
    ((reason,),) = bench.look("SELECT reason FROM things_rejected")
    assert f"returned a state whose {name} is" in reason
    assert said in reason


def test_a_state_in_a_column_of_an_enum(place: Place) -> None:
    place.run("CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE TABLE things (id mood PRIMARY KEY, mood mood)")
    seen: list[Any] = []

    @entity(keys=["id"])
    def handler(state: Any, event: EntityEvent) -> Any:
        seen.append(state)
        return {"mood": event.row["mood"]}

    schema = "id STRING, mood STRING"
    settings = {"table": "things", "pipeline": "p", "schema": schema, "state": schema, "on_failure": "discard"}
    table: HandledTable = flat.table(handler, place.url, **settings)
    moods = [("sad", "happy"), ("happy", "glad"), ("glad", "sad"), ("sad", None), ("sad", "sad")]
    for first, (name, mood) in enumerate(moods):
        table.on_events(*given(1, first, {"id": name, "mood": mood}))
    assert [state for state in seen if state] == [{"id": "sad", "mood": "happy"}, {"id": "sad", "mood": None}]
    assert place.look("SELECT id::text, mood::text FROM things") == [("sad", "sad")]
    (value, key) = place.look("SELECT reason FROM things_rejected ORDER BY sequence_number")
    assert "its labels are sad, happy" in value[0]
    assert "glad" in key[0]
    table.sink.close()


@pytest.mark.parametrize("name", ["schema", "state"])
def test_a_nested_column_is_to_be_declared_as_text(tmp_path: Path, name: str) -> None:
    @entity(keys=["id"])
    def handler(state: Any, event: EntityEvent) -> Any:
        return state

    wrong = {name: "id STRING, legs ARRAY<STRUCT<at: TIMESTAMP, n: INT>>"}
    settings = {"table": "things", "pipeline": "p", "schema": "id STRING", "state": "id STRING"} | wrong
    with pytest.raises(ConfigError, match=r"legs is of type ARRAY.*Declare legs STRING: .* its JSON text"):
        flat.table(handler, f"sqlite:////{tmp_path}/table.db", **settings)
