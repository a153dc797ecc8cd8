"""Random streams of events, how they are cut and delivered, and a fresh SQLite table for each of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from leasehold.sinks.rules.batch import Batch, Identities
from leasehold.sinks.sqlite.sink import SqliteSink
from tests.sinks.events import SCHEMA, E, sink

T = TypeVar("T", bound=Callable[..., Any])

_TIME = pa.timestamp("us", "UTC")

Log = dict[str, list[tuple[E, bool]]]
"""Per partition its events in order, and whether each can be parsed."""
Delivered = list[list[tuple[str, int, int, int]]]
"""Batches of (partition, first event, number of events, owner level)."""

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
def logs(draw: st.DrawFn, partitions: Sequence[str] = ("0", "1"), rows: st.SearchStrategy[E] = rows) -> Log:
    """Per partition its events in order, some exploded into several rows, some that cannot be parsed."""
    made: Log = {}
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
"""Replays, gaps and zombies among them."""


def campaign(few: int, many: int, *, unfit: Sequence[HealthCheck] = ()) -> Callable[[T], T]:
    """Have a property tried with a few examples, which are the same in each run; `make soak` tries many new ones.

    `unfit` are checks of Hypothesis that the property does not go with. A soak may take two hours.
    """
    soaking = settings.get_current_profile_name() == "new examples"
    suppressed = [*settings().suppress_health_check, *unfit]
    examples = settings(max_examples=many if soaking else few, suppress_health_check=suppressed)
    new = pytest.param("new", marks=[pytest.mark.soak, pytest.mark.timeout(7200)])
    turns = pytest.mark.parametrize("examples", ["the same", new])

    def mark(test: T) -> T:
        marked: T = turns(pytest.mark.usefixtures("examples")(examples(test)))
        return marked

    return mark


def taken(log: Log, ranges: Sequence[tuple[str, int, int, int]]) -> tuple[list[E], list[E]]:
    """The rows of a batch of these ranges, and those that cannot be parsed.

    A range of one partition comes once a batch and level, as the source gives it.
    """
    some = {(p, level): (first, first + more) for p, first, more, level in ranges}
    return split(
        [
            (e._replace(level=level), parsed)
            for (p, level), (first, end) in some.items()
            for e, parsed in log[p]
            if first <= e.number < end
        ]
    )


def known_by_chance(it: Batch, some: Iterable[E], seed: int) -> Batch:
    """The batch of these rows with identities, which events may share. Those of an event follow from the seed alone."""
    events = sorted({(e.hub, e.partition, e.number) for e in some})
    chances = [Random(f"{seed} {event}") for event in events]
    rows = pa.table(
        {
            "hub": pa.array([hub for hub, _, _ in events], pa.string()),
            "partition": pa.array([partition for _, partition, _ in events], pa.string()),
            "sequenceNumber": pa.array([number for _, _, number in events], pa.int64()),
            "identity": pa.array([chance.choice(["x", "y", "z", None]) for chance in chances], pa.string()),
            "enqueuedTime": pa.array([chance.randrange(200) * 1_000_000 for chance in chances], _TIME),
        }
    )
    return replace(it, identities=Identities(rows, "id", window=60.0))


def split(some: Sequence[tuple[E, bool]]) -> tuple[list[E], list[E]]:
    """Those that can be parsed, and the others."""
    return [e for e, parsed in some if parsed], [e for e, parsed in some if not parsed]


def cut(log: Sequence[tuple[E, bool]], ends: set[int]) -> list[list[tuple[E, bool]]]:
    """The events of a partition as batches that end there."""
    cuts = sorted({0, 99, *ends})
    return [[each for each in log if a <= each[0].number < b] for a, b in pairwise(cuts)]


@contextmanager
def fresh(mode: str = "upsert") -> Iterator[tuple[Path, SqliteSink]]:
    """A table with constraints of its own in a file of its own, for the length of the block."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.db"
        table = sink(path, mode, made=True)
        table.check(SCHEMA)
        yield path, table
        table.close()
