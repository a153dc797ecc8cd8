"""Duplicates of producers: however a stream is cut, replayed and reset, the same events count; memory stays small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.sinks.batch import Batch
from leasehold.sinks.duplicates import FEWEST_FORGOTTEN, Seen, digest, judge
from leasehold.sinks.fence import Watermark
from leasehold.sinks.sqlite import SqliteSink
from leasehold.testing.sinks.duplicates import Sent, known_by
from leasehold.testing.sinks.fixtures import APPEND, HUB, batch, read
from tests.sinks import events
from tests.sinks.events import E, look
from tests.sinks.sqlite_writer import apply_two, killed
from tests.sinks.streams import campaign, fresh

WINDOW = 60
Stream = list[tuple[str | None, int]]
"""What the producer calls each event of a partition, and the second at which it was enqueued."""


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """In the order in which a hub enqueues: seconds do not go back."""
    names = draw(st.lists(st.sampled_from(["x", "y", "z", None]), max_size=12))
    seconds = draw(st.lists(st.sampled_from([0, 30, 61, 200]), min_size=len(names), max_size=len(names)))
    return list(zip(names, sorted(seconds), strict=True))


def firsts(stream: Stream) -> list[int]:
    """The rule in plain Python: which events of one partition count."""
    latest: dict[str, int] = {}
    counted = []
    for number, (identity, second) in enumerate(stream):
        if identity is not None and identity in latest and abs(second - latest[identity]) <= WINDOW:
            continue
        counted.append(number)
        if identity is not None:
            latest[identity] = second
    return counted


@campaign(20, 1000)
@given(streams(), st.sets(st.integers(1, 11)), st.integers(0, 12), st.booleans())
def test_the_same_events_count_however_the_stream_is_cut_and_replayed(
    stream: Stream, cuts: set[int], back: int, filtered: bool
) -> None:
    """A replay of the last batches, by another owner; with `filtered`, the transform leaves out every third event."""
    with fresh("append") as (path, table):
        ends = sorted({cut for cut in cuts if cut < len(stream)} | {len(stream)})

        def apply(begin: int, level: int) -> None:
            for end in (end for end in ends if end > begin):
                numbers = range(begin, end)
                sent = [Sent(stream[number][0], number, stream[number][1]) for number in numbers]
                some = known_by(rows(numbers, level, filtered), *sent)
                table.apply(replace(some, ranges=[read(begin, end, level=level)]))
                begin = end

        apply(0, 1)
        apply(max((end for end in ends if end <= back), default=0), 2)
        counted = [number for number in firsts(stream) if not filtered or number % 3]
        assert look(path, "SELECT tail, status FROM flights ORDER BY CAST(tail AS INTEGER)") == [
            (str(number), "ok") for number in counted
        ]


def rows(numbers: range, level: int, filtered: bool) -> Batch:
    kept = [number for number in numbers if not filtered or number % 3]
    return events.batch([E(str(number), number=number, level=level, hub=HUB) for number in kept])


def test_a_memory_is_of_the_event_and_not_of_the_batch() -> None:
    first, second = Seen("h", "0", 1, 0), Seen("h", "0", 2, 0)
    assert judge([("x", first), ("x", second)], {}, 60.0).dropped == {second.event}
    assert judge([("x", first)], {"x": first}, 60.0).dropped == frozenset()
    assert judge([("x", first)], {"x": first}, 60.0).remembered == {}
    assert judge([("x", first)], {"x": second}, 60.0).dropped == {first.event}


def test_digests_tell_expression_and_value_apart() -> None:
    assert len({digest("a", "b"), digest("ab", ""), digest("", "ab"), digest("a", "c")}) == 4


def test_the_memory_grows_with_the_window_and_not_with_the_stream(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "t.db", APPEND)
    each = FEWEST_FORGOTTEN
    sizes = []
    for turn in range(12):
        numbers = range(turn * each, (turn + 1) * each)
        some = batch(ranges=[read(numbers.start, numbers.stop)])
        sink.apply(known_by(some, *(Sent(f"{number}", number, turn * WINDOW) for number in numbers)))
        ((size,),) = look(tmp_path / "t.db", "SELECT count(*) FROM leasehold_identity_entities")
        sizes.append(size)
    assert max(sizes) == sizes[-1] <= 5 * each


@pytest.mark.parametrize("point", ["identities remembered", "identities forgotten"])
def test_killed_after_it_has_remembered_it_has_not(tmp_path: Path, point: str) -> None:
    path = tmp_path / "t.db"
    killed(point, apply_two, path)
    assert apply_two(path) == (1, 1)
    assert Watermark(1, 1, whole=True) == Watermark(*look(
        path, "SELECT sequence_number, owner_level, whole FROM leasehold_watermark")[0])  # fmt: skip
