"""Replays, zombies, other owners and other cuts against the plain model: the same tables every time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.sqlite import SqliteSink
from tests.sinks.events import SCHEMA, E, Model, batch, look, look_rejected, sink

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

rows = st.builds(
    E,
    tail=st.sampled_from(["a", "b", "c", "c", None]),
    status=st.sampled_from(["ok", "late", "ok", "late", "bad", None]),
    slot=st.sampled_from([None, None, 1, 2]),
    version=st.sampled_from([0, 1, 2, 3, None]),
    gone=st.sampled_from([False, False, True]),
    level=st.just(1),
    hub=st.just("h"),
)


@st.composite
def logs(
    draw: st.DrawFn, partitions: Sequence[str] = ("0", "1"), rows: st.SearchStrategy[E] = rows
) -> dict[str, list[tuple[E, bool]]]:
    """Per partition its events in order, some exploded into several rows, some that cannot be parsed."""
    made: dict[str, list[tuple[E, bool]]] = {}
    for partition in partitions:
        made[partition] = []
        for number in range(draw(st.integers(1, 8))):
            for row in draw(st.lists(rows, min_size=1, max_size=2)):
                parsed = draw(st.integers(0, 6)) > 0
                made[partition].append((row._replace(partition=partition, number=number), parsed))
    return made


deliveries = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["0", "1"]), st.integers(0, 7), st.integers(1, 8), st.integers(1, 3)),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=5,
)
"""Batches of (partition, first event, number of events, owner level): replays, gaps and zombies among them."""


@contextmanager
def fresh(mode: str = "upsert") -> Iterator[tuple[Path, SqliteSink]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.db"
        table = sink(path, mode, made=True)
        table.check(SCHEMA)
        yield path, table
        table.close()


def check(path: Path, table: SqliteSink, model: Model) -> None:
    assert sorted(look(path), key=repr) == sorted(model.rows.values(), key=repr)
    assert look_rejected(path) == model.rejected
    assert {("h", p): (m.sequence_number, m.owner_level) for p, m in table.watermarks("h").items()} == model.marks


@pytest.mark.parametrize("mode", ["append", "upsert", "upsert by version"])
@QUICK
@given(log=logs(), delivered=deliveries)
def test_any_batches_give_what_the_model_gives(
    mode: str, log: dict[str, list[tuple[E, bool]]], delivered: list[list[tuple[str, int, int, int]]]
) -> None:
    append, by_version = mode == "append", mode == "upsert by version"
    model = Model(append=append, by_version=by_version, deletes=not append)
    with fresh("append" if append else "upsert") as (path, table):
        for ranges in delivered:
            # A range of one partition comes once a batch and level, as the source gives it.
            some = {(p, level): (first, first + more) for p, first, more, level in ranges}
            taken = [
                (e._replace(level=level), parsed)
                for (p, level), (first, end) in some.items()
                for e, parsed in log[p]
                if first <= e.number < end
            ]
            good, bad = [e for e, parsed in taken if parsed], [e for e, parsed in taken if not parsed]
            it = batch(good, by_version=by_version, deletes=not append, rejected=bad)
            before = len(model.rejected)
            if model.apply(good, bad):
                result = table.apply(it)
                counted = result.applied + result.replayed + result.refused_rows + result.superseded + result.rejected
                assert counted == len(taken)
                assert result.rejected == len(model.rejected) - before
            else:
                with pytest.raises(KeyFromTwoPartitions):
                    table.apply(it)
            check(path, table, model)


def cut(log: Sequence[tuple[E, bool]], ends: set[int]) -> list[list[tuple[E, bool]]]:
    cuts = sorted({0, 99, *ends})
    return [[each for each in log if a <= each[0].number < b] for a, b in pairwise(cuts)]


@pytest.mark.parametrize("mode", ["append", "upsert", "upsert by version"])
@QUICK
@given(log=logs(("0",)), ends=st.sets(st.integers(0, 8)), other=st.sets(st.integers(0, 8)))
def test_where_batches_are_cut_makes_no_difference(
    mode: str, log: dict[str, list[tuple[E, bool]]], ends: set[int], other: set[int]
) -> None:
    append, by_version = mode == "append", mode == "upsert by version"
    seen = []
    for cuts in (ends, other):
        with fresh("append" if append else "upsert") as (path, table):
            for some in cut(log["0"], cuts):
                good, bad = [e for e, parsed in some if parsed], [e for e, parsed in some if not parsed]
                it = batch(good, by_version=by_version, deletes=not append, rejected=bad)
                table.apply(it)
                again = table.apply(it)
                assert (again.applied, again.rejected, again.superseded) == (0, 0, 0)
            reasons = look(path, "SELECT sequence_number, body, reason FROM flights_rejected ORDER BY rowid")
            seen.append((look(path), reasons, table.watermarks("h")))
    assert seen[0] == seen[1]


@QUICK
@given(log=logs(), order=st.permutations(range(16)), width=st.integers(1, 5))
def test_with_sequence_by_the_table_does_not_depend_on_arrival(
    log: dict[str, list[tuple[E, bool]]], order: list[int], width: int
) -> None:
    """Partitions are delivered in any interleaving: without constraints between keys the result is one."""
    events = {p: [e._replace(slot=None, status="ok", level=1) for e, _ in some] for p, some in log.items()}
    seen = []
    for turns in (list(range(16)), order):
        with fresh() as (path, table):
            left = {p: list(some) for p, some in events.items()}
            for turn in (*turns, *turns):
                p = str(turn % 2)
                numbers = sorted({e.number for e in left[p]})[:width]
                table.apply(batch([e for e in left[p] if e.number in numbers], by_version=True, deletes=True))
                left[p] = [e for e in left[p] if e.number not in numbers]
            assert not any(left.values())
            memory = look(path, 'SELECT * FROM "leasehold_key_flights"')
            seen.append((sorted(look(path)), memory, sorted(look_rejected(path))))
    assert seen[0] == seen[1]
