"""Replays, zombies, other owners and other cuts against the plain model: the same tables every time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import KeyFromTwoPartitions
from leasehold.sinks.sqlite.sink import SqliteSink
from tests.sinks.events import Model, batch, look, look_rejected
from tests.sinks.streams import Delivered, Log, campaign, cut, deliveries, fresh, logs, split, taken


def check(path: Path, table: SqliteSink, model: Model) -> None:
    assert sorted(look(path), key=repr) == sorted(model.rows.values(), key=repr)
    assert look_rejected(path) == model.rejected
    assert {("h", p): (m.sequence_number, m.owner_level) for p, m in table.watermarks("h").items()} == model.marks


@pytest.mark.more(but=1)
@pytest.mark.parametrize("mode", ["append", "upsert", "upsert by version"])
@campaign(20, 1000)
@given(log=logs(), delivered=deliveries)
def test_any_batches_give_what_the_model_gives(mode: str, log: Log, delivered: Delivered) -> None:
    append, by_version = mode == "append", mode == "upsert by version"
    model = Model(append=append, by_version=by_version, deletes=not append)
    with fresh("append" if append else "upsert") as (path, table):
        for ranges in delivered:
            good, bad = taken(log, ranges)
            it = batch(good, by_version=by_version, deletes=not append, rejected=bad)
            before = len(model.rejected)
            if model.apply(good, bad):
                result = table.apply(it)
                assert result.read == len({(e.partition, e.level, e.number) for e in (*good, *bad)})
                assert result.replayed or result.refused or result.rows == len(good) + len(bad)
                assert result.rejected == len(model.rejected) - before
            else:
                with pytest.raises(KeyFromTwoPartitions):
                    table.apply(it)
            check(path, table, model)


@pytest.mark.more
@pytest.mark.parametrize("mode", ["append", "upsert", "upsert by version"])
@campaign(20, 1000)
@given(log=logs(("0",)), ends=st.sets(st.integers(0, 8)), other=st.sets(st.integers(0, 8)))
def test_where_batches_are_cut_makes_no_difference(mode: str, log: Log, ends: set[int], other: set[int]) -> None:
    append, by_version = mode == "append", mode == "upsert by version"
    seen = []
    for cuts in (ends, other):
        with fresh("append" if append else "upsert") as (path, table):
            for some in cut(log["0"], cuts):
                good, bad = split(some)
                it = batch(good, by_version=by_version, deletes=not append, rejected=bad)
                table.apply(it)
                again = table.apply(it)
                assert (again.applied, again.rejected, again.superseded) == (0, 0, 0)
            reasons = look(path, "SELECT sequence_number, body, reason FROM flights_rejected ORDER BY rowid")
            seen.append((look(path), reasons, table.watermarks("h")))
    assert seen[0] == seen[1]


@pytest.mark.more
@campaign(20, 1000)
@given(log=logs(), order=st.permutations(range(16)), width=st.integers(1, 5))
def test_with_sequence_by_the_table_does_not_depend_on_arrival(log: Log, order: list[int], width: int) -> None:
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
