"""Several tables in one transaction, on both databases: each is as if it were alone, and all of them move together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError, EventsMissing, UsageError
from leasehold.model import EventRange
from leasehold.sinks import Sink, open_sink
from leasehold.sinks.door import steps
from leasehold.sinks.door.open_batch import BatchKind, OpenBatch
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import BatchResult, TableSpec
from leasehold.sinks.table_set import TableSet
from leasehold_testkit.contracts.sinks.skipping import note
from tests.sinks.events import look as look_into
from tests.sinks.postgres import Place
from tests.sinks.processes import die, killed_in
from tests.waiting import PATIENCE

FENCE = (("hub", pa.string()), ("partition", pa.string()), ("sequenceNumber", pa.int64()), ("ownerLevel", pa.int64()))
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("word", pa.string()), ("gone", pa.bool_()), *FENCE])
SPECS = (
    TableSpec(name="orders", pipeline="p", keys=("id",), only_columns=("id", "n")),
    TableSpec(name="Log", pipeline="p", mode="append", only_columns=("n",)),
    TableSpec(name="late", pipeline="p", keys=("id",), sequence_by="n", except_columns=("gone",)),
)
"""Stored in another order than they are named in: by upserts, by appends, by the highest `n`."""
LOOKS = {"orders": "SELECT id, n FROM orders", "Log": 'SELECT n FROM "Log"', "late": "SELECT id, n, word FROM late"}


@dataclass(frozen=True)
class Change:
    """An event of an entity, which deletes it or not, for some of the tables."""

    key: int
    n: int
    gone: bool
    tables: frozenset[str]

    def row(self, number: int, partition: str) -> dict[str, Any]:
        values = (self.key, self.n, f"w{self.n}", self.gone, "h", partition, number, 1)
        return dict(zip(SCHEMA.names, values, strict=True))


def changes(rng: Random, count: int) -> list[Change]:
    return [
        Change(rng.randrange(6), rng.randrange(count), rng.random() < 0.2,
               frozenset(spec.name for spec in SPECS if rng.random() < 0.4))
        for _ in range(count)
    ]  # fmt: skip


def elsewhere(events: Mapping[int, Change]) -> dict[int, Change]:
    """The same of other entities, as another partition has them."""
    return {number: replace(one, key=one.key + 100) for number, one in events.items()}


def batch(
    events: Mapping[int, Change], begin: int, end: int, *, partition: str = "0", specs: Sequence[TableSpec] = SPECS
) -> Batch:
    """The events of these numbers, with a batch of its own for each table. Those that are not there were unreadable."""
    parts = []
    for spec in specs:
        there = [(number, events[number]) for number in range(begin, end) if number in events]
        rows = [one.row(number, partition) for number, one in there if spec.name in one.tables]
        table = pa.Table.from_pylist(rows, SCHEMA)
        by, delete = (table["n"] if spec.sequence_by else None), (table["gone"] if spec.keys else None)
        parts.append(Batch(table, sequence_by=by, delete=delete))
    fence = {"hub": "h", "partition": partition, "ownerLevel": 1, "body": "{", "reason": "no JSON"}
    unread = [{**fence, "sequenceNumber": number} for number in range(begin, end) if number not in events]
    first, *beside = parts
    return replace(
        first,
        rejected=pa.Table.from_pylist(unread) if unread else None,
        ranges=[EventRange("h", partition, 1, begin, end)],
        read=end - begin,
        beside=tuple(beside),
    )


def answer(events: Mapping[int, Change]) -> dict[str, list[tuple[Any, ...]]]:
    """What the tables hold after these events, in the order of their numbers."""
    orders: dict[int, int] = {}
    late: dict[int, Change] = {}
    log = []
    for _, one in sorted(events.items()):
        if "orders" in one.tables:
            orders.pop(one.key, None)
            if not one.gone:
                orders[one.key] = one.n
        if "Log" in one.tables:
            log.append((one.n,))
        if "late" in one.tables and (one.key not in late or one.n >= late[one.key].n):
            late[one.key] = one
    left = [(key, one.n, f"w{one.n}") for key, one in late.items() if not one.gone]
    return {"orders": sorted(orders.items()), "Log": sorted(log), "late": sorted(left)}


@dataclass(frozen=True)
class OpenSet:
    """The tables of SPECS in one database, where that is, and ways to look into it."""

    url: str
    base: Path
    look: Callable[[str], list[tuple[Any, ...]]]

    def open(self, *specs: TableSpec) -> list[Sink]:
        return [open_sink(self.url, spec, base=self.base, timeout=PATIENCE) for spec in specs or SPECS]

    def held(self) -> dict[str, list[tuple[Any, ...]]]:
        return {name: sorted(self.look(query)) for name, query in LOOKS.items()}

    def aside(self) -> list[list[tuple[Any, ...]]]:
        """The numbers of what each table has set aside."""
        return [sorted(self.look(f'SELECT sequence_number FROM "{spec.rejected}"')) for spec in SPECS]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> OpenSet:
    if request.param == "sqlite":
        return OpenSet("sqlite:///t.db", tmp_path, lambda query: look_into(tmp_path / "t.db", query))
    schema: Place = request.getfixturevalue("place")
    return OpenSet(schema.url, tmp_path, schema.look)


@pytest.fixture
def tables(database: OpenSet) -> Iterator[TableSet]:
    with closing(TableSet(database.open())) as opened:
        yield opened


@pytest.mark.more(but=4)
@pytest.mark.parametrize("seed", range(6))
def test_each_table_is_as_if_it_were_alone(database: OpenSet, tables: TableSet, seed: int) -> None:
    """Whatever is read once more: of each event of the batch it is known once what became of it."""
    rng = Random(seed)
    all_events = dict(enumerate(changes(rng, 200)))
    events = {number: one for number, one in all_events.items() if rng.random() > 0.03}
    reached = 0
    while reached < 200:
        begin, end = max(0, reached - rng.choice([0, 0, 5, 40])), min(200, reached + rng.choice([0, 1, 7, 30]))
        result = tables.apply(batch(events, begin, end))
        new = {number: events.get(number) for number in range(reached, end)}
        rows = sum(3 if one is None else len(one.tables) for one in new.values())
        used = sum(one is None or bool(one.tables) for one in new.values())
        assert (result.read, result.used, result.rows) == (end - begin if end > begin else 0, used, rows)
        assert rows == sum(one.rows for one in result.of_tables.values())
        reached = end
        assert database.held() == answer({number: one for number, one in events.items() if number < reached})
    unread = [(number,) for number in all_events if number not in events]
    assert database.aside() == [unread, unread, unread]
    assert tables.contents().rejected == 3 * len(unread)


def apply_and_die(url: str, base: Path, table: str, number: int) -> None:
    """End at once before the step of this number of the door of a table."""
    mortal = list(steps.steps_of(BatchKind.EVENTS))
    step = mortal[number]

    def last(open_: OpenBatch) -> BatchResult | None:
        if open_.spec.name == table:
            die()
        return step.act(open_)

    mortal[number] = replace(step, act=last)
    steps.steps_of = lambda kind: tuple(mortal)  # type: ignore[assignment]
    TableSet([open_sink(url, spec, base=base) for spec in SPECS]).apply(EIGHT)


EVENTS = dict(enumerate(changes(Random(8), 8)))
EIGHT = batch(EVENTS, 0, 8)


@pytest.mark.more(but=2)
@pytest.mark.parametrize("table", [spec.name for spec in SPECS])
def test_a_process_that_ends_before_any_step_of_any_table_leaves_none_changed(database: OpenSet, table: str) -> None:
    with closing(TableSet(database.open())) as tables:
        tables.check(SCHEMA)
        for number in range(len(steps.steps_of(BatchKind.EVENTS))):
            assert killed_in(apply_and_die, database.url, database.base, table, number)
            assert not any(database.held().values())
        tables.apply(EIGHT)
    assert database.held() == answer(EVENTS)


def test_a_table_that_was_left_out_for_a_while_loses_nothing_in_silence(database: OpenSet, tables: TableSet) -> None:
    events = dict(enumerate(changes(Random(1), 30)))
    tables.apply(batch(events, 0, 10))
    with closing(TableSet(database.open(*SPECS[:2]))) as fewer:
        fewer.apply(batch(events, 10, 20, specs=SPECS[:2]))
    assert tables.watermarks("h")["0"].sequence_number == 9
    with pytest.raises(EventsMissing, match="late"):
        tables.apply(batch(events, 20, 30))
    assert database.held() == {
        **answer({n: events[n] for n in range(20)}),
        "late": answer({n: events[n] for n in range(10)})["late"],
    }
    tables.confirm_watermarks("h", {"0": Watermark(9, 1, whole=True)})
    catching_up = tables.apply(batch(events, 10, 20))
    late = sum("late" in events[number].tables for number in range(10, 20))
    assert (catching_up.used, catching_up.replayed + catching_up.filtered, catching_up.rows) == (late, 10 - late, late)
    tables.apply(batch(events, 10, 30))
    assert database.held() == answer(events)


def test_a_table_that_has_missed_a_whole_partition_is_behind_in_it(database: OpenSet, tables: TableSet) -> None:
    events = dict(enumerate(changes(Random(4), 10)))
    tables.apply(batch(events, 0, 10))
    with closing(TableSet(database.open(*SPECS[:2]))) as fewer:
        fewer.apply(batch(elsewhere(events), 0, 4, partition="1", specs=SPECS[:2]))
    for marks in (tables.watermarks("h"), tables.raise_owner_levels("h", {"0": 1, "1": 1})):
        assert (marks["0"].sequence_number, marks["1"].sequence_number, marks["1"].whole) == (9, -1, True)
    tables.confirm_watermarks("h", {"1": Watermark(-1, 1, whole=True)})
    with pytest.raises(EventsMissing, match="late"):
        tables.apply(batch(elsewhere(events), 4, 10, partition="1"))


def test_a_table_that_is_new_has_watermarks_where_the_others_have(database: OpenSet, tables: TableSet) -> None:
    """Also in a partition in which nothing comes for a while: it has missed nothing there."""
    events = dict(enumerate(changes(Random(6), 10)))
    with closing(TableSet(database.open(*SPECS[:2]))) as fewer:
        for partition, its in {"0": events, "1": elsewhere(events)}.items():
            fewer.apply(batch(its, 0, 4, partition=partition, specs=SPECS[:2]))
    tables.apply(batch(events, 4, 6))
    assert {name: mark.sequence_number for name, mark in tables.tables[2].watermarks("h").items()} == {"0": 5, "1": 3}
    with closing(TableSet(database.open())) as others:
        assert {name: mark.sequence_number for name, mark in others.watermarks("h").items()} == {"0": 5, "1": 3}


def test_a_reset_of_new_tables_keeps_their_place(database: OpenSet, tables: TableSet) -> None:
    marks = tables.raise_owner_levels("h", {"0": 2})
    assert marks["0"] == Watermark(owner_level=2)
    tables.confirm_watermarks("h", {"0": Watermark(6, 3, whole=True)})
    assert {one.watermarks("h")["0"].sequence_number for one in tables.tables} == {6}


def test_a_table_that_is_new_begins_where_the_others_are_and_is_named(
    database: OpenSet, tables: TableSet, caplog: pytest.LogCaptureFixture
) -> None:
    events = dict(enumerate(changes(Random(2), 20)))
    with closing(TableSet(database.open(*SPECS[:2]))) as fewer:
        fewer.apply(batch(events, 0, 10, specs=SPECS[:2]))
        assert fewer.watermarks("h")["0"].sequence_number == 9
    assert not caplog.messages
    for _ in range(2):
        assert tables.watermarks("h")["0"].sequence_number == 9
    [said] = caplog.messages
    assert "table late is new beside tables that have read of the hub" in said
    tables.apply(batch(events, 10, 20))
    assert database.held() == {**answer(events), "late": answer({n: events[n] for n in range(10, 20)})["late"]}


def test_a_reset_moves_all_of_them_and_spares_appended_events(database: OpenSet, tables: TableSet) -> None:
    events = dict(enumerate(changes(Random(3), 10)))
    tables.apply(batch(events, 0, 10))
    back = {"0": Watermark(-1, 3)}
    assert tables.raise_owner_levels("h", {"0": 2})["0"].sequence_number == 9
    with pytest.raises(UsageError, match="would append them twice"):
        tables.check_watermarks("h", back)
    with closing(TableSet(database.open(SPECS[0], SPECS[2]))) as keyed:
        keyed.check_watermarks("h", back)
        keyed.set_watermarks("h", back, anew=True)
        assert keyed.watermarks("h")["0"].sequence_number == -1


def test_an_event_is_skipped_where_every_table_has_a_note_of_it(database: OpenSet, tables: TableSet) -> None:
    tables.apply(batch(EVENTS, 0, 1))
    keeps = [require(one, BOOKKEEPING, "a test") for one in tables.tables]
    for number in (3, 4):
        keeps[0].note_skip(replace(note(number), hub="h"))
    assert tables.noted("h") == {}
    for one in keeps[1:]:
        one.note_skip(replace(note(4), hub="h"))
    assert tables.noted("h") == {"0": frozenset({4})}


@pytest.mark.more
def test_who_names_the_tables_in_another_order_waits_for_nobody_who_waits(database: OpenSet) -> None:
    """Two partitions with the same keys, by two threads: all batches come through, and the highest `n` is left."""
    rng, failed = Random(5), list[BaseException]()
    specs = (SPECS[2], replace(SPECS[2], name="early"))
    streams = {name: dict(enumerate(changes(rng, 300))) for name in "01"}
    everywhere = {
        name: {number: replace(one, tables=frozenset({"late", "early"})) for number, one in events.items()}
        for name, events in streams.items()
    }
    with closing(TableSet(database.open(*specs))) as both:
        both.check(SCHEMA)

    def fill(partition: str) -> None:
        try:
            order = specs if partition == "0" else specs[::-1]
            with closing(TableSet(database.open(*order))) as tables:
                for begin in range(0, 300, 20):
                    tables.apply(batch(everywhere[partition], begin, begin + 20, partition=partition, specs=order))
        except BaseException as error:  # noqa: BLE001  told by the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=fill, args=(name,)) for name in "01"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not failed
    highest: dict[int, int] = {}
    for events in everywhere.values():
        for one in events.values():
            highest[one.key] = max(one.n, highest.get(one.key, -1))
    for name in ("late", "early"):
        assert all(highest[key] == n for key, n in database.look(f"SELECT id, n FROM {name}"))


def test_what_does_not_go_together_is_refused(database: OpenSet, tables: TableSet) -> None:
    with pytest.raises(ConfigError, match="two tables of the pipeline have this name"):
        TableSet(database.open(SPECS[0], replace(SPECS[0], name="ORDERS")))
    with pytest.raises(ConfigError, match="say which events were read"):
        tables.apply(replace(EIGHT, ranges=None))
    with pytest.raises(ConfigError, match="goes to the set of them"):
        tables.tables[0].apply(EIGHT)
    with pytest.raises(UsageError, match="name one of the tables"):
        _ = tables.rejected_rows
