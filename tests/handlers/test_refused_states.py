"""A state that the database refuses concerns the event that made it: what came before it stays, and it waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.handlers import Writes
from leasehold.handlers.answers import Effects, Gone, Row
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.table import HandledTable, Retries
from leasehold_testkit.clock import ManualClock
from tests.handlers import flat
from tests.handlers.batches import given, rows
from tests.sinks.postgres import Place

Look = Callable[[str], list[Any]]
Database = tuple[str, Callable[..., object], Look]

PLAIN = "CREATE TABLE notes (id VARCHAR(50) PRIMARY KEY, note TEXT)"
WAYS: dict[str, tuple[str, tuple[str, ...], str, str]] = {  # the database, its tables, and a note that it takes, or not
    "an expression in an index": (
        *("sqlite", (PLAIN, "CREATE INDEX i ON notes (json_extract(note, '$.n'))")),
        *('{"n": 1}', "{no JSON"),
    ),
    "a column that is computed": (
        *("sqlite", ("CREATE TABLE notes (id TEXT PRIMARY KEY, note TEXT, n AS (json_extract(note, '$.n')) STORED)",)),
        *('{"n": 1}', "{no JSON"),
    ),
    "a text that is too long": (
        *("postgres", ("CREATE TABLE notes (id VARCHAR(50) PRIMARY KEY, note VARCHAR(5))",)),
        *("short", "much too long"),
    ),
    "an expression that is no number": ("postgres", (PLAIN, "CREATE INDEX ON notes ((note::bigint))"), "7", "seven"),
    "no label of an enum": (
        "postgres",
        ("CREATE TYPE mood AS ENUM ('sad')", "CREATE TABLE notes (id VARCHAR(50) PRIMARY KEY, note mood)"),
        *("sad", "glad"),
    ),
    "a character that no text has": ("postgres", (PLAIN,), "text", "te\0xt"),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(way: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    kind, tables, _, _ = WAYS[way]
    if kind == "postgres":
        there: Place = request.getfixturevalue("place")
        there.run(*tables)
        yield there.url, there.run, there.look
        return

    def run(*statements: str) -> None:
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    run(*tables)
    yield f"sqlite:////{tmp_path}/table.db", run, lambda query: rows(tmp_path, query)


@pytest.mark.more(but=3)
@pytest.mark.parametrize("spread", [False, True])
def test_it_waits_and_what_came_before_it_stays(way: str, spread: bool, database: Database) -> None:
    url, _, look = database
    _, _, good, bad = WAYS[way]
    clock, mended = ManualClock(), False

    @entity(keys=["id"])
    def note(state: Any, event: EntityEvent) -> Any:
        return {"note": bad if event.row["n"] == 2 and not mended else good if event.row["n"] != 3 else state["note"]}

    table = flat.table(
        *(note, url),
        table="notes",
        pipeline="p",
        schema="id STRING, n BIGINT",
        state="id STRING, note STRING",
        retries=Retries(deliveries=3),
        clock=clock,
        rng=SimpleNamespace(random=lambda: 0.0),
        spread=spread,
        sequence_by="n",
    )
    table.level_of = lambda hub, partition: 99
    waiting = "SELECT sequence_number, deliveries FROM leasehold_parked ORDER BY 1"
    batch, context = given(1, 0, *({"id": "a", "n": n} for n in (1, 2, 3)), {"id": "b", "n": 1})
    table.on_events(batch, context)
    assert look("SELECT id, note FROM notes ORDER BY 1") == [("a", good), ("b", good)]
    assert look(waiting) == [(1, 1), (2, 0)]
    clock.advance(1.0)
    table.on_events(given(1, 4)[0], context)  # refused again when it is tried
    assert look(waiting) == [(1, 2), (2, 0)]
    mended = True
    clock.advance(2.0)
    table.on_events(given(1, 4)[0], context)
    assert look("SELECT id, note FROM notes ORDER BY 1") == [("a", good), ("b", good)]
    assert (look(waiting), look("SELECT 1 FROM notes_rejected")) == ([], [])
    table.close()


WRONG: dict[str, Row | Gone] = {
    "computed": Row("beside", {"id": "a", "twice": 2}, keys=["id"]),
    "no such comparison": Gone("beside", {"doc": {"n": 1}}),
    "an error in a trigger": Row("beside", {"id": "a", "n": -(2**63)}, keys=["id"]),
}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("sqlite", "computed"),
        ("sqlite", "an error in a trigger"),
        ("postgres", "computed"),
        ("postgres", "no such comparison"),
    ],
)
def test_a_related_row_that_the_database_cannot_write_waits_alone(
    kind: str, what: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    twice = "twice BIGINT GENERATED ALWAYS AS (n * 2) STORED"
    beside = f"CREATE TABLE beside (id VARCHAR(50) PRIMARY KEY, n BIGINT, doc JSON, {twice})"
    url = f"sqlite:////{tmp_path}/table.db"
    look: Look = lambda query: rows(tmp_path, query)  # noqa: E731
    if kind == "postgres":
        there: Place = request.getfixturevalue("place")
        there.run(beside)
        url, look = there.url, there.look
    else:
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            connection.execute(beside)
            connection.execute(
                "CREATE TRIGGER positive BEFORE INSERT ON beside BEGIN SELECT abs(new.n); END"  # too large for a number
            )

    @entity(keys=["id"])
    def counted(state: Any, event: EntityEvent) -> Any:
        return Effects({"n": 1}, [WRONG[what]] if event.row["id"] == "bad" else [])

    table = HandledTable(
        *(counted, url),
        table="counts",
        pipeline="p",
        schema="id STRING",
        state=Writes("id STRING, n BIGINT", related=["beside"]),
    )
    table.level_of = lambda hub, partition: 99
    batch, context = given(1, 0, {"id": "x"}, {"id": "bad"}, {"id": "y"})
    table.on_events(batch, context)
    assert look("SELECT id FROM counts ORDER BY 1") == [("x",), ("y",)]
    assert look("SELECT sequence_number FROM leasehold_parked") == [(1,)]
    table.close()
