"""A retry that is killed at any step, and beside processes that apply batches: either state, never both or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.sinks.rules.ordering import PastOrder
from leasehold.sinks.set_aside import EventId, RetryResult
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.fixtures import retried
from tests.sinks.events import E, batch, look, sink
from tests.sinks.processes import FORKED, exit_code, started
from tests.sinks.ranges import of, read
from tests.sinks.sqlite_writer import TRIED, TRIED_EVENTS, apply_more, killed, mended, retry_all, retry_one_by_one
from tests.sinks.streams import campaign, fresh


def filled(path: Path) -> SqliteSink:
    """Events of even numbers are in the table, those of odd ones rejected."""
    table = sink(path)
    unparsed = [E("?", number=number) for number in TRIED]
    good = [E(f"k{number % 10 + 1}", f"{number}", number=number) for number in range(0, 60, 2)]
    table.apply(of([read(0, 60)], good, unparsed))
    return table


EXPECTED = sorted([(f"k{last}", f"retried {number}") for last, number in ((1, 51), (3, 53), (5, 55), (7, 57), (9, 59))])


@pytest.mark.more(but=1)
@pytest.mark.parametrize("step", ["before the rows", "rows", "rejected rows", "memory of keys", "committed"])
def test_a_retry_that_is_killed_leaves_all_or_nothing(tmp_path: Path, step: str) -> None:
    path = tmp_path / "t.db"
    filled(path).close()
    before = look(path), look(path, "SELECT * FROM flights_rejected")
    killed(step, retry_all, path)
    if step != "committed":
        assert (look(path), look(path, "SELECT * FROM flights_rejected")) == before
    table = sink(path)
    result = retried(table, batch(mended()), TRIED_EVENTS)
    if step == "committed":
        assert result == RetryResult(gone=len(TRIED))
    else:
        assert result.applied + result.superseded == len(TRIED)
    assert look(path, "SELECT * FROM flights_rejected") == []
    assert sorted(look(path, "SELECT tail, status FROM flights")) == EXPECTED


@pytest.mark.more
def test_retries_in_processes_beside_an_instance(tmp_path: Path) -> None:
    """Two try the same events, while another process applies later events of the same keys."""
    path, at_work = tmp_path / "t.db", FORKED.Barrier(3)
    told, tells = FORKED.Pipe(duplex=False)
    filled(path).close()
    trying = [started(retry_one_by_one, path, at_work, tells) for _ in range(2)]
    processes = [*trying, started(apply_more, path, at_work)]
    assert [exit_code(one) for one in processes] == [0, 0, 0]
    counts = [*told.recv(), *told.recv()]
    assert sum(applied + superseded for applied, superseded, _ in counts) == len(TRIED)
    assert sum(gone for _, _, gone in counts) == len(TRIED)
    assert look(path, "SELECT * FROM flights_rejected") == []
    # Whatever came first, the last event of each key is that of the instance.
    latest = sorted((f"k{number % 10}", f"{number}") for number in range(110, 120))
    assert sorted(look(path, "SELECT tail, status FROM flights")) == latest


@pytest.mark.more
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("01"), st.integers(0, 5)), max_size=8),
    st.dictionaries(st.sampled_from("ab"), st.tuples(st.sampled_from("01"), st.integers(0, 5))),
    st.integers(1, 8),
)
def test_the_order_of_late_events_is_that_of_the_rule(
    given_events: list[tuple[str, str, int]], memory: dict[str, tuple[str, int]], size: int
) -> None:
    """Rule 5 of `ordering`, one event after the other in plain Python; however the events are cut into steps."""
    order = PastOrder(
        [(key,) for key, _, _ in given_events],
        [("h", partition, number) for _, partition, number in given_events],
        {(key,): ("h", *place) for key, place in memory.items()},
    )
    winners: list[int] = []
    superseded = start = 0
    while start < len(given_events):
        step = order.judge(start, min(start + size, len(given_events)))
        order.accept(step)
        winners += step.winners
        superseded += step.superseded
        start = step.stop
    last, won, conflicts = dict(memory), [], []
    for index, (key, partition, number) in enumerate(given_events):
        if key in last and last[key][0] != partition:
            conflicts.append(index)
        elif key not in last or last[key][1] <= number:
            last[key] = partition, number
            won.append(index)
    assert (winners, sorted(order.conflicts)) == (won, conflicts)
    assert superseded == len(given_events) - len(won) - len(conflicts)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[tuple[str, bool, int]], list[int], list[int]]:
    """Events of one partition in order (key, whether it is rejected at first, version), where batches end, and after
    which batch each event is tried again that has been rejected."""
    events = draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 3)), min_size=1, max_size=14)
    )
    ends = sorted(draw(st.sets(st.integers(1, len(events)), max_size=4)) | {len(events)})
    return events, ends, draw(st.lists(st.integers(0, 5), min_size=len(events), max_size=len(events)))


@campaign(20, 1000)
@given(stories(), st.sampled_from(["upsert", "sequence_by", "append"]))
def test_events_that_come_late_end_where_they_would_have_in_time(
    story: tuple[list[tuple[str, bool, int]], list[int], list[int]], mode: str
) -> None:
    """Whenever they are tried again, and some never: the table is what the last word on each key says."""
    events, ends, tries = story
    by_version = mode == "sequence_by"
    rows = [E(key, f"{number}", number=number, version=version) for number, (key, _, version) in enumerate(events)]
    with fresh("append" if mode == "append" else "upsert") as (path, table):
        begin = 0
        for turn, end in enumerate(ends):
            some = list(zip(rows, events, strict=True))[begin:end]
            good = [row for row, (_, bad, _) in some if not bad]
            table.apply(replace(batch(good, by_version=by_version, rejected=[row for row, (_, bad, _) in some if bad]),
                                ranges=[read(begin, end)]))  # fmt: skip
            begin = end
            late = [row for row, when in zip(rows[:end], tries, strict=False) if events[row.number][1] and when == turn]
            ids = [EventId("h", "0", row.number) for row in late]
            retried(table, batch(late, by_version=by_version), ids)
            # Once more changes nothing.
            assert retried(table, batch(late, by_version=by_version), ids).gone == len(late)
        written = [
            row
            for row, (_, bad, _), when in zip(rows, events, tries, strict=True)
            if not bad or _turn_of(row.number, ends) <= when < len(ends)
        ]
        if mode == "append":
            assert sorted(look(path)) == sorted((row.tail, row.status, None) for row in written)
        else:
            last: dict[str | None, E] = {}
            for row in sorted(written, key=lambda row: (row.version if by_version else 0, row.number)):
                last[row.tail] = row
            assert sorted(look(path)) == sorted((row.tail, row.status, None) for row in last.values())
        left = len(rows) - len(written)
        assert len(look(path, "SELECT * FROM flights_rejected")) == left


def _turn_of(number: int, ends: list[int]) -> int:
    """The batch that has the event."""
    return next(turn for turn, end in enumerate(ends) if number < end)
