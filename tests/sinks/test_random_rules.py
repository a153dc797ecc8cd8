"""Random streams into tables with foreign keys and exclusion constraints: the outcome is that of a plain model.

Each in Postgres, and in SQLite, which knows no exclusion constraints.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.sinks.events import E, Rules, run, sink
from tests.sinks.postgres import Place
from tests.sinks.random_tables import ANY, MODES, Table, deliver, model_of, on_two_partitions, table_of
from tests.sinks.streams import Delivered, Log, deliveries, logs

STATUS = "status text NOT NULL CHECK (status <> 'bad')"
APART = "EXCLUDE USING gist (int4range(slot, slot + 2) WITH &&) WHERE (slot IS NOT NULL)"
UPSERT = tuple(mode for mode in MODES if mode != "append")


@dataclass(frozen=True)
class Case:
    """A table with rules: what is made for it, and what is there before the first event, as SQL and in the model."""

    rules: Rules
    columns: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    rows: Mapping[str, tuple[str, str, int | None]] = field(default_factory=dict)
    modes: tuple[str, ...] = UPSERT
    on_sqlite: bool = True

    def made(self, mode: str) -> tuple[str, ...]:
        key = "NOT NULL" if mode == "append" else "NOT NULL PRIMARY KEY"
        return (*self.before, f"CREATE TABLE flights (tail text {key}, {self.columns})", *self.after)


GATES = "CREATE TABLE gates (slot integer PRIMARY KEY)"
CASES = {
    "a foreign key": Case(
        Rules(gates=frozenset({1, 3})),
        f"{STATUS}, slot integer UNIQUE REFERENCES gates",
        before=(GATES,),
        first=("INSERT INTO gates VALUES (1), (3)",),
        modes=MODES,
    ),
    "a foreign key to its key": Case(
        Rules(booked=frozenset({"a"})),
        f"{STATUS}, slot integer UNIQUE",
        after=("CREATE TABLE seats (tail text REFERENCES flights (tail))",),
        first=("INSERT INTO flights VALUES ('a', 'ok', NULL)", "INSERT INTO seats VALUES ('a')"),
        rows={"a": ("a", "ok", None)},
    ),
    "a foreign key to another column": Case(
        Rules(held=frozenset({1})),
        f"{STATUS}, slot integer UNIQUE",
        after=("CREATE TABLE seats (slot integer REFERENCES flights (slot))",),
        first=("INSERT INTO flights VALUES ('a', 'ok', 1)", "INSERT INTO seats VALUES (1)"),
        rows={"a": ("a", "ok", 1)},
    ),
    "a foreign key to itself": Case(
        Rules(leaders=True), "status text NOT NULL REFERENCES flights (tail), slot integer UNIQUE"
    ),
    "an exclusion constraint": Case(Rules(apart=2), f"{STATUS}, slot integer, {APART}", modes=MODES, on_sqlite=False),
    "foreign keys and an exclusion constraint": Case(
        Rules(apart=2, gates=frozenset({1, 2, 4}), booked=frozenset({"a"})),
        f"{STATUS}, slot integer REFERENCES gates, {APART}",
        before=(GATES,),
        after=("CREATE TABLE seats (tail text REFERENCES flights (tail))",),
        first=(
            "INSERT INTO gates VALUES (1), (2), (4)",
            "INSERT INTO flights VALUES ('a', 'ok', NULL)",
            "INSERT INTO seats VALUES ('a')",
        ),
        rows={"a": ("a", "ok", None)},
        on_sqlite=False,
    ),
}


def rows_for(*statuses: str | None) -> st.SearchStrategy[E]:
    return st.builds(
        E,
        tail=st.sampled_from(["a", "b", "c", "c", None]),
        status=st.sampled_from(statuses),
        slot=st.sampled_from([None, None, 1, 2, 3, 4]),
        version=st.sampled_from([0, 1, 2, 3, None]),
        gone=st.sampled_from([False, False, False, True]),
        level=st.just(1),
        hub=st.just("h"),
    )


logs_of_all = logs(rows=rows_for("ok", "late", "ok", "late", "bad", None))
logs_of_leaders = logs(rows=rows_for("a", "a", "b", "c", None))


@dataclass(frozen=True)
class Ruled:
    """The table of one test."""

    case: Case
    mode: str
    table: Table

    def comes_to_the_same(self, log: Log, delivered: Delivered) -> None:
        case, append = self.case, self.mode == "append"
        refers = ["DELETE FROM seats"] if any("seats" in one for one in case.after) else []
        self.table.place.run(*refers, "DELETE FROM flights")
        self.table.empty()
        self.table.place.run(*case.first)
        model = model_of(self.mode, rules=case.rules, rows=dict(case.rows))
        if not case.on_sqlite:
            deliver(model, self.table, None, log, delivered)
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.db"
            run(path, *case.made(self.mode), *case.first)
            policy = on_two_partitions(self.mode)
            beside = sink(path, "append" if append else "upsert", on_two_partitions=policy)
            deliver(model, self.table, (path, beside), log, delivered)
            beside.close()


@pytest.fixture(params=[(name, mode) for name, case in CASES.items() for mode in case.modes], ids=": ".join)
def named(request: pytest.FixtureRequest) -> tuple[str, str]:
    name, mode = request.param
    return name, mode


@pytest.fixture
def ruled(place: Place, named: tuple[str, str]) -> Iterator[Ruled]:
    case, mode = CASES[named[0]], named[1]
    place.run(*case.made(mode))
    with table_of(place, mode) as made:
        yield Ruled(case, mode, made)


@pytest.mark.more  # test_exactly_once.py has random batches without rules
@settings(max_examples=8, phases=(Phase.generate,), suppress_health_check=ANY)
@given(log=logs_of_all, leaders=logs_of_leaders, delivered=deliveries)
def test_the_outcome_is_the_models(ruled: Ruled, log: Log, leaders: Log, delivered: Delivered) -> None:
    ruled.comes_to_the_same(leaders if ruled.case.rules.leaders else log, delivered)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(max_examples=400, suppress_health_check=ANY)
@given(log=logs_of_all, leaders=logs_of_leaders, delivered=deliveries)
def test_the_outcome_of_thousands_is(ruled: Ruled, log: Log, leaders: Log, delivered: Delivered) -> None:
    ruled.comes_to_the_same(leaders if ruled.case.rules.leaders else log, delivered)
