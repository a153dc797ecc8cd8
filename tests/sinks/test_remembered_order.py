"""What orders the rows is part of the table: a change is refused, and a first reading may choose anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import ConfigError, UsageError
from leasehold.model import BEFORE_FIRST
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold.sinks.sqlite.sink import SqliteSink
from tests.sinks.events import SCHEMA, E, batch, look, run, sink
from tests.sinks.streams import Log, campaign, fresh, logs, split

BEGINNING = Watermark(BEFORE_FIRST, 9)
RESET = r"leasehold reset PIPELINE\.toml --to earliest"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


def one(number: int, *, by_version: bool = True, deletes: bool = False, tail: str = "a"):  # type: ignore[no-untyped-def]
    return batch([E(tail, number=number, version=number)], by_version=by_version, deletes=deletes)


@pytest.mark.parametrize("by", ["__source_lsn", "coalesce(__TS_MS, 0)", "struct(__source_file, __source_pos)"])
def test_what_is_around_a_change_of_debezium_orders_nothing(by: str) -> None:
    """`test_an_update_under_way_while_a_snapshot_reads_…` in tests/peers has the rows that would come out wrong."""
    with pytest.raises(ConfigError, match="is not in the order of a row's changes"):
        TableSpec(name="t", pipeline="p", keys=("id",), sequence_by=by)
    TableSpec(name="t", pipeline="p", keys=("id",), sequence_by=by.replace("__", "_"))


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("version", "version + 1", "sequence_by = 'version [+] 1'.*by version so far, and is to be by version [+] 1"),
        (None, "version", "sequence_by = 'version'.*without sequence_by so far, and is to be by version"),
        ("version", None, "sequence_by: .*by version so far, and is to be without sequence_by"),
    ],
)
def test_another_order_is_refused_before_and_with_the_first_batch(
    path: Path, was: str | None, now: str | None, words: str
) -> None:
    sink(path, sequence_by=was).apply(one(1, by_version=was is not None))
    other = sink(path, sequence_by=now)
    with pytest.raises(ConfigError, match=f"{words}.*{RESET}"):
        other.check(SCHEMA)
    with pytest.raises(ConfigError, match=f"{words}.*{RESET}"):
        other.apply(one(2, by_version=now is not None))
    assert look(path, "SELECT sequence_number FROM leasehold_watermark") == [(1,)]
    same = sink(path, sequence_by=was)
    same.check(SCHEMA)
    assert same.apply(one(2, by_version=was is not None)).applied == 1


def test_white_space_makes_no_other_order_and_quotes_do() -> None:
    def spaced(expression: str) -> str | None:
        return TableSpec(name="t", pipeline="p", keys=["k"], sequence_by=expression).sequence_by

    assert spaced(" coalesce( a,\n\t b ) ") == "coalesce( a, b )"
    assert spaced("concat(a,  'x  y')") == "concat(a, 'x  y')"
    assert spaced("concat(a,  'x  \\'  y',   b)") == "concat(a, 'x  \\'  y', b)"
    assert spaced("`my  column`  + 1") == "`my  column` + 1"
    assert spaced("a  +  'left open") == "a + 'left open"


@pytest.mark.parametrize("was", [True, False])
def test_delete_when_may_not_come_or_go(path: Path, was: bool) -> None:
    table = sink(path)
    table.apply(one(1, deletes=was))
    with pytest.raises(ConfigError, match=f"delete_when: the table flights has been filled .*{RESET}"):
        table.apply(one(2, deletes=not was))
    assert table.apply(one(2, deletes=was)).applied == 1


def test_an_order_counts_from_the_first_row_that_is_written(path: Path) -> None:
    wrong = sink(path, sequence_by="verison")
    wrong.check(SCHEMA)
    assert wrong.apply(batch([E("a", version=None)], by_version=True)).rejected == 1
    right = sink(path, sequence_by="version")
    right.check(SCHEMA)
    assert right.apply(one(1)).applied == 1
    with pytest.raises(ConfigError):
        wrong.check(SCHEMA)


def test_a_spec_with_an_order_wants_its_values(path: Path) -> None:
    with pytest.raises(ConfigError, match="the batch brings no values of it"):
        sink(path, sequence_by="version").apply(one(1, by_version=False))


def test_a_reset_to_the_beginning_may_have_another_order_and_any_other_may_not(path: Path) -> None:
    sink(path, sequence_by="version").apply(one(3))
    other = sink(path, sequence_by="-version")
    other.set_watermarks("h", {"0": BEGINNING})
    with pytest.raises(ConfigError):
        other.check(SCHEMA)
    other.set_watermarks("h", {"0": BEGINNING}, anew=True)
    other.check(SCHEMA)
    again = batch(
        [E("a", "older", number=0, version=-1, level=9), E("a", number=3, version=-3, level=9)], by_version=True
    )
    assert other.apply(again).superseded == 1
    assert look(path) == [("a", "older", None)]
    with pytest.raises(ConfigError, match="by -version so far"):
        sink(path, sequence_by="version").check(SCHEMA)


def test_an_emptied_table_is_filled_again(path: Path) -> None:
    """Under a corrected order, whose values are lower than those remembered: all events were superseded before."""
    sink(path, sequence_by="micros").apply(
        batch([E("a", version=10**15), E("b", number=1, version=10**15)], by_version=True)
    )
    run(path, "DELETE FROM flights")
    table = sink(path, sequence_by="seconds")
    table.set_watermarks("h", {"0": BEGINNING}, anew=True)
    seconds = [E("a", version=10**9, level=9), E("b", number=1, version=10**9, level=9)]
    assert table.apply(batch(seconds, by_version=True)).applied == 2


def test_a_first_reading_of_another_hub_is_not_in_conflict_with_the_former_one(path: Path) -> None:
    table = sink(path)
    table.apply(batch([E("a")]))
    table.set_watermarks("g", {"0": BEGINNING}, anew=True)
    assert table.apply(batch([E("a", "new", hub="g", level=9)])).applied == 1


def test_appended_rows_are_not_read_again(path: Path) -> None:
    log = sink(path, "append")
    log.apply(batch([E("a"), E("b", number=1)]))
    with pytest.raises(
        UsageError, match=r"partition 0: the table flights holds its events up to sequence number 1, and"
    ):
        log.set_watermarks("h", {"0": BEGINNING}, anew=True)
    log.set_watermarks("h", {"0": Watermark(1, 9), "1": BEGINNING})
    assert log.watermarks("h") == {"0": Watermark(1, 9), "1": BEGINNING}
    run(path, "DELETE FROM flights")
    log.set_watermarks("h", {"0": BEGINNING})
    assert log.apply(batch([E("a", level=9)])).applied == 1


def deliver(table: SqliteSink, log: Log, turns: Sequence[int], order: int, level: int) -> None:
    """The partitions' events in the order of `turns`, two at a time; `order` says what they are ordered by."""
    left = {p: list(events) for p, events in log.items()}
    for turn in (*turns, *turns):
        some, left[str(turn % 2)] = left[str(turn % 2)][:2], left[str(turn % 2)][2:]
        numbers = {e.number for e, _ in some}
        while left[str(turn % 2)] and left[str(turn % 2)][0][0].number in numbers:
            some.append(left[str(turn % 2)].pop(0))
        rows = [
            (e._replace(level=level, version=e.version if order == 1 or e.version is None else -e.version), parsed)
            for e, parsed in some
        ]
        good, bad = split(rows)
        table.apply(batch(good, by_version=order != 0, deletes=True, rejected=bad))
    assert not any(left.values())


@pytest.mark.more
@pytest.mark.parametrize("orders", [(1, 2), (1, 1), (0, 1), (1, 0), (0, 0)])
@campaign(6, 400)
@given(log=logs(), first=st.permutations(range(16)), second=st.permutations(range(16)), more=logs())
def test_a_reading_from_the_beginning_is_a_first_reading_into_the_same_rows(
    orders: tuple[int, int],
    log: Log,
    first: list[int],
    second: list[int],
    more: Log,
) -> None:
    """Against a fresh database whose table has the same rows and which has never been written to by Leasehold.

    The events read the second time are others (a mended transform), with deletes, constraints, and another order.
    Without an order the entities of a partition are its own, or nobody could say which event is later.
    """

    def own(log: Log, order: int) -> Log:
        if order:
            return log
        return {p: [(e._replace(tail=e.tail and e.tail + p), parsed) for e, parsed in some] for p, some in log.items()}

    was, now = orders
    with fresh() as (path, table), fresh() as (new_path, new):
        deliver(table, own(log, was), first, was, 1)
        rows = look(path)
        table.set_watermarks("h", {"0": BEGINNING, "1": BEGINNING}, anew=True)
        with closing(sqlite3.connect(new_path)) as connection:
            connection.executemany("INSERT INTO flights VALUES (?, ?, ?)", rows)
            connection.commit()
        for each in (table, new):
            deliver(each, own(more, now), second, now, 9)
        assert sorted(look(path), key=repr) == sorted(look(new_path), key=repr)
        memory = 'SELECT * FROM "leasehold_key_flights"'
        assert look(path, memory) == look(new_path, memory)
