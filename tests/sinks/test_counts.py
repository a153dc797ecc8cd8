"""The counts of random streams add up: told by what is in the batches and in the database, and not by the counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from leasehold.counts import APART, EVENTS, ROWS, Counts
from leasehold.model import EventRange
from leasehold.sinks import open_sink
from leasehold.sinks.base import Sink
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.rules.batch import Batch, Identities
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.rules.table_spec import TableSpec
from tests.sinks.events import MADE, MADE_APPEND, SCHEMA, E, batch, look, run, sink
from tests.sinks.postgres import Place
from tests.sinks.ranges import read

MODES = ("append", "upsert", "upsert by version")
STREAMS, BATCHES = 5, 12
MANY = 60
"""Streams of the long run."""


def test_the_sums_are_of_their_parts() -> None:
    each = Counts(**{name: place + 1 for place, name in enumerate((*EVENTS, *ROWS, *APART))})
    assert (each.read, each.rows) == (1 + 2 + 3 + 4 + 5 + 6 + 7, 8 + 9 + 10)
    assert each.plus(each).named() == {name: 2 * count for name, count in each.named().items()}
    assert set(each.named()) == {"read", "rows", *EVENTS, *ROWS, *APART}


def test_they_are_said_without_those_that_are_zero() -> None:
    assert Counts().said() == "0 events read; 0 rows"
    some = Counts(used=4, applied=2_000, rejected=1, filtered=1, retried_rejected=3)
    assert some.said() == (
        "5 events read: 1 filtered, 4 used; 2,001 rows: 2,000 applied, 1 rejected; apart: 3 retried and rejected"
    )


@dataclass
class Stream:
    """A random stream: what each event is, and what a table that is written by the rules has come to."""

    random: Random
    mode: str
    events: dict[tuple[str, int], list[tuple[E, bool]]] = field(default_factory=dict)
    identities: dict[tuple[str, int], str | None] = field(default_factory=dict)
    noted: set[tuple[str, int]] = field(default_factory=set)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    seen: dict[str, tuple[str, int]] = field(default_factory=dict)

    def rows(self, partition: str, number: int) -> list[tuple[E, bool]]:
        """The rows of an event, the same each time that it is read, and whether each can be parsed."""
        chance = self.random
        if (partition, number) not in self.events:
            self.events[partition, number] = [
                (
                    E(
                        tail=chance.choice(["a", "b", "c", partition, None]),
                        status=chance.choice(["ok", "ok", "late", "bad"]),
                        slot=chance.choice([None, None, 1, 2]),
                        partition=partition,
                        number=number,
                        version=chance.choice([0, 1, 2, 3, None]),
                        gone=chance.random() < 0.2,
                    ),
                    chance.random() < 0.85,
                )
                for _ in range(chance.choice([0, 0, 1, 1, 1, 2, 3]))
            ]
            self.identities[partition, number] = chance.choice([None, None, "x", "y", f"{partition}{number}"])
        return self.events[partition, number]

    def ranges(self) -> list[EventRange]:
        """What the next batch has read: behind the watermark or before it, at a level that is right or too low."""
        chance, found = self.random, []
        for partition in chance.sample(["0", "1"], chance.randrange(1, 3)):
            last, level = self.marks.get(partition, (-1, 1))
            begin = max(0, last + 1 - chance.choice([0, 0, 0, 3]))
            end = max(begin, last + 1 + chance.choice([0, 4, 7]))
            found.append(read(begin, end, max(0, level + chance.choice([0, 0, 0, 1, -1])), partition))
        return found

    def batch(self, ranges: list[EventRange]) -> Batch:
        """The batch of these."""
        events = [(one, number) for one in ranges for number in range(one.begin, one.end)]
        rows = [
            (row._replace(level=one.owner_level), good)
            for one, number in events
            for row, good in self.rows(one.partition, number)
        ]
        made = batch(
            [row for row, good in rows if good],
            by_version=self.mode == "upsert by version",
            deletes=self.mode != "append",
            rejected=[row for row, good in rows if not good],
        )
        known = pa.table(
            {
                "hub": pa.array(["h"] * len(events), pa.string()),
                "partition": pa.array([one.partition for one, _ in events], pa.string()),
                "sequenceNumber": pa.array([number for _, number in events], pa.int64()),
                "identity": pa.array([self.identities[one.partition, number] for one, number in events], pa.string()),
                "enqueuedTime": pa.array([100_000_000_000] * len(events), pa.timestamp("us", "UTC")),
            }
        )
        return replace(made, ranges=ranges, identities=Identities(known, "id", 60.0))

    def expected(self, ranges: list[EventRange]) -> dict[str, int]:
        """What becomes of the events, by the rules and one by one; of those that are used the `rows`."""
        found = dict.fromkeys((*EVENTS, "rows"), 0)
        for one in sorted(ranges, key=lambda its: its.partition):
            last, level = self.marks.get(one.partition, (-1, 0))
            for number in range(one.begin, one.end):
                event, rows = (one.partition, number), self.rows(one.partition, number)
                identity = self.identities[event]
                if one.owner_level < level:
                    found["refused" if rows else "filtered"] += 1
                elif number <= last:
                    found["replayed" if rows else "filtered"] += 1
                elif event in self.noted:
                    found["skipped"] += 1
                elif identity is not None and self.seen.setdefault(identity, event) != event:
                    found["duplicates"] += 1
                else:
                    found["used" if rows else "filtered"] += 1
                    found["rows"] += len(rows)
            if one.owner_level >= level:
                self.marks[one.partition] = (max(last, one.end - 1), one.owner_level)
        return found


def deliver(stream: Stream, table: Sink, aside: Callable[[], int]) -> Counts:
    """Deliver a stream, and compare what is told of each batch with what it had in it, and what is there."""
    total = Counts()
    for _ in range(BATCHES):
        ranges = stream.ranges()
        made = stream.batch(ranges)
        for one in ranges:
            if stream.random.random() < 0.3 and len(one):
                noted = SkipNote("h", one.partition, one.begin, b"{}", "{}", because="it is wrong", noted_by="ada")
                if require(table, BOOKKEEPING, "a test").note_skip(noted).passed is None:
                    stream.noted.add((one.partition, one.begin))
        expected, there, before = stream.expected(ranges), table.row_count(), aside()
        result = table.apply(made)
        assert {name: result.named()[name] for name in expected} == expected
        assert result.read == sum(map(len, ranges))
        assert aside() - before == result.rejected + result.skipped
        if stream.mode == "append":
            assert (table.row_count() - there, result.superseded) == (result.applied, 0)
        total = total.plus(result)
    return total


def all_named(totals: list[Counts], mode: str) -> None:
    """The streams have had everything in them."""
    whole = Counts()
    for one in totals:
        whole = whole.plus(one)
    never = {"parked", *APART, *(() if mode == "upsert by version" else ("superseded",))}
    assert {name for name, count in whole.named().items() if not count} == never


def aside_in(path: Path) -> int:
    """How many rows are set aside in SQLite."""
    return int(look(path, "SELECT count(*) FROM flights_rejected")[0][0])


def spec_of(mode: str) -> TableSpec:
    """The table in this mode."""
    if mode == "append":
        return TableSpec(name="flights", pipeline="p", mode="append")
    policy = "reject" if mode == "upsert" else "stop"
    return TableSpec(name="flights", pipeline="p", keys=("tail",), on_two_partitions=policy)


@pytest.fixture(params=["few", pytest.param("many", marks=pytest.mark.more)])
def streams(request: pytest.FixtureRequest) -> int:
    return STREAMS if request.param == "few" else MANY


@pytest.mark.parametrize("mode", MODES)
def test_the_counts_of_a_random_stream_add_up_in_sqlite(tmp_path: Path, mode: str, streams: int) -> None:
    totals = []
    for seed in range(streams):
        path, spec = tmp_path / f"{seed}.db", spec_of(mode)
        table = sink(path, spec.mode, made=True, on_two_partitions=spec.on_two_partitions)
        table.check(SCHEMA)
        stream = Stream(Random(f"{mode} {seed}"), mode)
        totals.append(deliver(stream, table, partial(aside_in, path)))
        table.close()
    all_named(totals, mode)


@pytest.mark.parametrize("mode", MODES)
def test_the_counts_of_a_random_stream_add_up_in_postgres(place: Place, mode: str, streams: int) -> None:
    def aside() -> Any:
        return place.look("SELECT count(*) FROM flights_rejected")[0][0]

    totals = []
    for seed in range(streams):
        place.run(MADE_APPEND if mode == "append" else MADE)
        table = place.sink(spec_of(mode))
        table.check(SCHEMA)
        totals.append(deliver(Stream(Random(f"{mode} {seed}"), mode), table, aside))
        table.close()
        tables = place.look(f"SELECT tablename FROM pg_tables WHERE schemaname = '{place.schema}'")
        place.run(f"DROP TABLE {', '.join(name for (name,) in tables)} CASCADE")
    all_named(totals, mode)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_row_that_is_superseded_is_never_asked_whether_it_breaks_a_rule(
    database: str, tmp_path: Path, place: Place
) -> None:
    """The paragraph of docs/watching.md: the table is the same in either order of events, the counts are not."""
    older, newer = E("a", "bad", version=1), E("a", "ok", version=2)
    for name, by_version, batches, counts in (
        ("bad_first", True, [[older, newer]], (1, 0, 1)),
        ("bad_last", True, [[newer, older]], (1, 1, 0)),
        ("two_batches", True, [[newer], [older]], (1, 1, 0)),
        ("no_order", False, [[newer, older]], (1, 0, 1)),
    ):
        made = MADE.replace("flights", name)
        spec = TableSpec(name=name, pipeline="p", keys=("tail",), sequence_by="version" if by_version else None)
        if database == "sqlite":
            run(tmp_path / "table.db", made)
            table: Sink = open_sink("sqlite:///table.db", spec, base=tmp_path)
        else:
            place.run(made)
            table = place.sink(spec)
        total, number = Counts(), 0
        for events in batches:
            numbered = [one._replace(number=number + at) for at, one in enumerate(events)]
            total = total.plus(table.apply(batch(numbered, by_version=by_version)))
            number += len(numbered)
        assert (total.applied, total.superseded, total.rejected) == counts, name
        assert (table.row_count(), table.set_aside_counts().rejected) == (1, counts[2])
        table.close()
