"""The door: its list of steps is the docs' table, and a process that ends before any of them leaves nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import ConfigError
from leasehold.sinks import open_sink
from leasehold.sinks.door import steps
from leasehold.sinks.door.open_batch import BatchKind
from leasehold.sinks.rules.emitted import EmittedEvent
from leasehold.sinks.rules.fence import Watermark
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, read
from tests.sinks.door_writer import CASES, apply_and_die
from tests.sinks.processes import killed_in

EMITTED = EmittedEvent(HUB, "0", 1, 0, ("b",), b"{}")
MARKS = {(HUB, "0"): Watermark(0, 1)}
DOCS = Path(__file__).parents[2] / "docs" / "how-it-works.md"


def test_the_table_in_the_docs_is_the_list_of_steps() -> None:
    assert steps.table() in DOCS.read_text(), f"put this into {DOCS.name}:\n{steps.table()}"


@pytest.mark.parametrize("kind", BatchKind)
def test_each_kind_of_batch_begins_with_whose_the_table_is(kind: BatchKind) -> None:
    assert steps.steps_of(kind)[0] is steps.STEPS[0]


@pytest.mark.parametrize("more", [{"ranges": [read(0, 1)]}, {"outbox": [EMITTED]}, {"read_under": MARKS}])
@pytest.mark.parametrize("case", ["again", "messages"])
def test_a_batch_that_has_read_nothing_brings_nothing_that_was_read(
    case: str, more: dict[str, Any], tmp_path: Path
) -> None:
    with closing(open_sink("sqlite:///t.db", UPSERT, base=tmp_path)) as sink:
        with pytest.raises(ConfigError, match=f"a batch with {case} .* brings no {next(iter(more))}"):
            sink.apply(replace(CASES[case].batch, **more))
        both = replace(CASES["messages"].batch, again=CASES["again"].batch.again)
        with pytest.raises(ConfigError, match="brings no again"):
            sink.apply(both)


@pytest.mark.more(but=1)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_process_that_ends_before_a_step_leaves_nothing(
    database: str, case: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = None if database == "sqlite" else request.getfixturevalue("place")
    url = "sqlite:///t.db" if place is None else place.url
    tested = CASES[case]

    def held() -> list[list[tuple[Any, ...]]]:
        if place is not None:
            tables = [
                name for (name,) in place.look("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
            ]
            return [sorted(place.look(f'SELECT * FROM "{name}"'), key=repr) for name in sorted(tables)]
        with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            return [connection.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in names]

    with closing(open_sink(url, UPSERT, base=tmp_path)) as sink:
        tested.before(sink)
    before = held()
    for number in range(len(steps.steps_of(tested.kind))):
        assert killed_in(apply_and_die, url, tmp_path, case, number)
        assert held() == before, steps.steps_of(tested.kind)[number].does
    with closing(open_sink(url, UPSERT, base=tmp_path)) as sink:
        assert sink.apply(tested.batch) == tested.result
        after = held()
        once_more = sink.apply(tested.batch)
        assert (once_more.applied, once_more.rejected) == (0, 0)
        assert after != before
    rows = "SELECT entity, value FROM entities ORDER BY entity"
    if place is not None:
        assert place.look(rows) == tested.rows
    else:
        with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
            assert connection.execute(rows).fetchall() == tested.rows
