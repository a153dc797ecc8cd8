"""Duplicates of producers: however a stream is cut, replayed and reset, the same events count; memory stays small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.duplicates import FEWEST_FORGOTTEN, DuplicatesFound, IdentifiedEvent, Seen, digest, judge
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.duplicates import FAR_AHEAD, Sent, known_by
from leasehold_testkit.contracts.sinks.fixtures import APPEND, HUB, batch, read
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

    def verdict(events: list[Seen], known: dict[str, Seen]) -> DuplicatesFound:
        return judge([IdentifiedEvent("x", one.event, one.time) for one in events], known, 60.0, None, 0)

    assert verdict([first, second], {}).dropped == {second.event}
    assert verdict([first], {"x": first}).dropped == frozenset()
    assert verdict([first], {"x": first}).remembered == {}
    assert verdict([first], {"x": second}).dropped == {first.event}


@pytest.mark.parametrize(
    ("seconds", "before", "reached"),
    [
        ([5, 100, 101], None, 100),
        ([5, 100, 101], 300, 300),
        ([None, None], None, None),
        ([None, None], 7, 7),
        ([200, 5_000_000], None, 200),  # of two, the earlier
        ([5_000_000, 5_000_000], 300, 300),  # more than a day ahead
        ([1_100, 1_200], 300, 1_000),  # the sink's clock is behind, or theirs is ahead
    ],
)
def test_what_a_table_has_reached(seconds: list[int | None], before: int | None, reached: int | None) -> None:
    """Of a sink whose clock says 1,000."""
    times = [None if one is None else one * 1_000_000 for one in seconds]
    events = [IdentifiedEvent(f"{number}", ("h", "0", number), time) for number, time in enumerate(times)]
    verdict = judge(events, {}, WINDOW, before and before * 1_000_000, 1_000_000_000)
    assert verdict.reached == (None if reached is None else reached * 1_000_000)
    assert verdict.forget_before == ((1_000 if reached is None else reached) - 2 * WINDOW) * 1_000_000


def test_untimely_events_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = SqliteSink(tmp_path / "t.db", APPEND)
    for number in range(3):
        assert sink.apply(known_by(batch(ranges=[read(number, number + 1)]), Sent(f"{number}", number, None))).untimely
    assert len([record for record in caplog.records if "count as untimely" in record.message]) == 1


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


def test_a_device_in_1970_and_one_in_2100_are_in_every_batch_and_the_memory_stays_small(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "t.db", APPEND)
    each, now = 51, 1_700_000_000
    for turn in range(60):
        numbers = range(turn * each, (turn + 1) * each)
        sent = [Sent(f"{number}", number, now + turn * WINDOW) for number in numbers[3:]]
        sent += [Sent(f"{numbers[0]}", numbers[0]), Sent(f"{numbers[1]}", numbers[1], FAR_AHEAD)]
        sent += [Sent(f"{numbers[2]}", numbers[2], None)]
        sink.apply(known_by(batch(ranges=[read(numbers.start, numbers.stop)]), *sent))
    ((size,),) = look(tmp_path / "t.db", "SELECT count(*) FROM leasehold_identity_entities")
    assert size <= 5 * each


@pytest.mark.more
@pytest.mark.parametrize("point", ["identities remembered", "identities forgotten"])
def test_killed_after_it_has_remembered_it_has_not(tmp_path: Path, point: str) -> None:
    path = tmp_path / "t.db"
    killed(point, apply_two, path)
    assert apply_two(path) == (1, 1)
    assert Watermark(1, 1, whole=True) == Watermark(*look(
        path, "SELECT sequence_number, owner_level, whole FROM leasehold_watermark")[0])  # fmt: skip
