"""Offsets: each rule by which one follows another, and batches cut into tasks. No Spark here."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import HubError, UsageError
from leasehold.model import PartitionProperties
from leasehold.spark.plan.offsets import (
    IN_LOOP,
    Loss,
    Plan,
    Plannable,
    ReadRange,
    data_loss,
    decode,
    encode,
    pack,
    plan,
    share,
)


def hub(**bounds: tuple[int, int]) -> dict[str, PartitionProperties]:
    """Begin and end of partitions `p0`, `p1` …"""
    return {p: PartitionProperties(p, begin, end) for p, (begin, end) in bounds.items()}


def planned(
    last: tuple[ReadRange, ...] = (),
    held: Mapping[str, Plannable] | None = None,
    known: Mapping[str, PartitionProperties] | None = None,
    *,
    limit: int | None = None,
    bounds: Mapping[str, int] | None = None,
) -> Plan:
    return plan(
        last,
        {"p0": Plannable(1, 0)} if held is None else held,
        hub(p0=(0, 100)) if known is None else known,
        limit=limit,
        bounds=bounds,
    )


# Rule 1: an offset is self-contained


def test_the_form_of_an_offset() -> None:
    offset = encode("hub-1", [ReadRange("1", 10, 20, 3), ReadRange("0", 0, 0, 7)])
    assert offset == {"hub": "hub-1", "ranges": {"0": [0, 0, 7], "1": [10, 20, 3]}}


def test_an_offset_says_when_the_last_events_were_enqueued_where_that_is_known() -> None:
    ranges = ReadRange("0", 0, 5, 7, enqueued=1_700_000_000.25), ReadRange("1", 10, 20, 3)
    offset = encode("hub-1", ranges)
    assert offset["enqueued"] == {"0": 1_700_000_000_250_000}
    assert [one.enqueued for one in decode(json.loads(json.dumps(offset)), "hub-1")] == [1_700_000_000.25, None]


RANGES = st.dictionaries(
    st.text(min_size=1, max_size=3), st.tuples(st.integers(0, 2**62), st.integers(0, 2**31), st.integers(0, 2**62))
).map(
    lambda stated: tuple(ReadRange(p, start, start + size, level) for p, (start, size, level) in sorted(stated.items()))
)


@given(RANGES)
def test_an_offset_reads_back_after_json(ranges: tuple[ReadRange, ...]) -> None:
    assert decode(json.loads(json.dumps(encode("hub", ranges))), "hub") == ranges


@given(RANGES, st.randoms())
def test_the_same_ranges_are_the_same_text(ranges: tuple[ReadRange, ...], random: st.DataObject) -> None:
    shuffled = list(ranges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(encode("hub", shuffled)) == json.dumps(encode("hub", ranges))


def test_nothing_planned_yet() -> None:
    assert decode(encode("hub", ()), "hub") == ()
    assert decode({}, "hub") == ()


def test_an_offset_of_another_hub_is_refused() -> None:
    with pytest.raises(UsageError, match=r"belongs to hub old, and this is hub new.*Use another checkpoint folder"):
        decode(encode("old", [ReadRange("0", 0, 1, 1)]), "new")


# Rule 2: it names every partition held


def test_a_partition_with_nothing_new_is_named() -> None:
    result = planned(
        (ReadRange("p0", 0, 100, 1),), {"p0": Plannable(1, 0), "p1": Plannable(4, 7)}, hub(p0=(0, 100), p1=(0, 9))
    )
    assert result.ranges == (ReadRange("p0", 100, 100, 1), ReadRange("p1", 7, 9, 4))
    assert result.has_news


def test_nothing_new_at_all() -> None:
    result = planned((ReadRange("p0", 0, 100, 1),))
    assert result.ranges == (ReadRange("p0", 100, 100, 1),)
    assert not result.has_news
    assert not planned(held={}).has_news


def test_a_partition_not_held_any_more_is_not_named() -> None:
    result = planned((ReadRange("p0", 0, 50, 1), ReadRange("p1", 0, 50, 1)), known=hub(p0=(0, 100), p1=(0, 100)))
    assert result.ranges == (ReadRange("p0", 50, 100, 1),)


def test_a_partition_that_the_hub_does_not_know_yet_is_not_named() -> None:
    assert planned(held={"p0": Plannable(1, 0), "p9": Plannable(1, 0)}).ranges == (ReadRange("p0", 0, 100, 1),)


# Rule 3: where a partition goes on


def test_it_goes_on_where_its_last_range_ended() -> None:
    assert planned((ReadRange("p0", 20, 60, 1),)).ranges == (ReadRange("p0", 60, 100, 1),)


def test_it_goes_on_also_after_an_empty_range() -> None:
    """An empty range is a full account too: it does not send the partition back to its checkpoint."""
    assert planned((ReadRange("p0", 60, 60, 1),), {"p0": Plannable(1, 42)}).ranges == (ReadRange("p0", 60, 100, 1),)


def test_new_here_it_starts_from_its_checkpoint() -> None:
    assert planned(held={"p0": Plannable(3, 42)}).ranges == (ReadRange("p0", 42, 100, 3),)


@pytest.mark.parametrize("level", [2, 9])
def test_left_and_come_back_it_starts_from_its_checkpoint(level: int) -> None:
    """Whatever the level of the last range: it is not the one held, so others may have gone further or less far."""
    assert planned((ReadRange("p0", 20, 60, level),), {"p0": Plannable(3, 42)}).ranges == (ReadRange("p0", 42, 100, 3),)


def test_a_hub_that_ends_before_what_was_read_is_an_error() -> None:
    with pytest.raises(HubError, match=r"partition p0: progress is at sequence number 101, and the hub ends at 100"):
        planned((ReadRange("p0", 0, 101, 1),))
    with pytest.raises(HubError, match="restored from an older copy"):
        planned(held={"p0": Plannable(1, 101)})


# Losses, bounds, limits


def test_what_retention_removed_is_a_loss_and_passed_over() -> None:
    result = planned((ReadRange("p0", 0, 10, 1),), known=hub(p0=(30, 100)))
    assert result == Plan((ReadRange("p0", 30, 100, 1),), (Loss("p0", 10, 30),))


def test_all_of_a_partition_removed() -> None:
    assert planned(known=hub(p0=(100, 100))) == Plan((ReadRange("p0", 100, 100, 1),), (Loss("p0", 0, 100),))


def test_nothing_removed_is_no_loss() -> None:
    assert planned((ReadRange("p0", 0, 30, 1),), known=hub(p0=(30, 100))).losses == ()


def test_bounds_are_not_passed() -> None:
    assert planned(bounds={"p0": 60}).ranges == (ReadRange("p0", 0, 60, 1),)
    assert planned(bounds={"p0": 1000}).ranges == (ReadRange("p0", 0, 100, 1),)
    assert planned((ReadRange("p0", 0, 60, 1),), bounds={"p0": 60}).ranges == (ReadRange("p0", 60, 60, 1),)


def test_a_start_beyond_its_bound_stays_where_it_is() -> None:
    assert planned((ReadRange("p0", 0, 80, 1),), bounds={"p0": 60}).ranges == (ReadRange("p0", 80, 80, 1),)


def test_a_partition_without_a_bound_is_not_read() -> None:
    assert planned(bounds={}).ranges == (ReadRange("p0", 0, 0, 1),)


def test_the_limit_is_for_all_partitions() -> None:
    held = {f"p{n}": Plannable(1, 0) for n in range(4)}
    known = hub(p0=(0, 5), p1=(0, 100), p2=(0, 0), p3=(0, 100))
    result = planned(held=held, known=known, limit=45)
    assert [len(one) for one in result.ranges] == [5, 20, 0, 20]


STATES = st.dictionaries(
    st.sampled_from(["p0", "p1", "p2", "p3", "p4"]),
    st.tuples(
        st.integers(0, 50),  # begin
        st.integers(0, 50),  # events there
        st.integers(0, 100),  # where the checkpoint says to start, at most the end
        st.integers(0, 3),  # level held; 0: not held
        st.integers(0, 100),  # end of the last range, at most the end
        st.integers(0, 3),  # level of the last range; 0: none
        st.integers(0, 120),  # bound
    ),
)


def test_one_error_names_all_partitions_that_have_lost_events() -> None:
    held = {name: Plannable(1, 0) for name in ("p0", "p1", "p2")}
    error = data_loss(planned((), held, hub(p0=(5, 9), p1=(0, 9), p2=(7, 9))).losses, IN_LOOP)
    assert (error.partition, error.start, error.end, error.others) == ("p0", 0, 5, ("p2",))
    assert "section [source] of the pipeline file" in str(error)


@given(STATES, st.one_of(st.none(), st.integers(1, 200)), st.booleans())
def test_every_plan_keeps_the_rules(states: dict[str, tuple[int, ...]], limit: int | None, bounded: bool) -> None:
    known = {p: PartitionProperties(p, begin, begin + size) for p, (begin, size, *_) in states.items()}
    held = {p: Plannable(level, min(start, known[p].end)) for p, (_, _, start, level, *_) in states.items() if level}
    last = tuple(ReadRange(p, 0, min(end, known[p].end), level) for p, (*_, end, level, _) in states.items() if level)
    bounds = {p: state[-1] for p, state in states.items()} if bounded else None
    result = plan(last, held, known, limit=limit, bounds=bounds)
    assert [one.partition for one in result.ranges] == sorted(held)
    assert limit is None or sum(map(len, result.ranges)) <= limit
    before = {one.partition: one for one in last}
    lost = {loss.partition: loss for loss in result.losses}
    for one in result.ranges:
        p = one.partition
        assert one.owner_level == held[p].owner_level
        goes_on = p in before and before[p].owner_level == held[p].owner_level
        expected = before[p].end if goes_on else held[p].start
        assert (lost[p].start if p in lost else one.start) == expected, "nothing skipped but what is lost"
        assert p not in lost or (lost[p].end, one.start) == (known[p].begin, known[p].begin)
        assert known[p].begin <= one.start <= one.end <= known[p].end
        assert bounds is None or one.end <= max(bounds[p], one.start)
    assert result.has_news == (bool(lost) or any(one.end > one.start for one in result.ranges))
    if limit is None and bounds is None:
        assert all(one.end == known[one.partition].end for one in result.ranges)
    again = plan(result.ranges, held, known, limit=limit, bounds=bounds)
    assert [one.start for one in again.ranges] == [one.end for one in result.ranges], "batches follow without a gap"
    assert again.losses == (), "a loss is reported once"


# share


@given(
    st.dictionaries(st.text(max_size=2), st.integers(0, 1000), max_size=12), st.one_of(st.none(), st.integers(0, 5000))
)
def test_a_limit_is_shared_evenly_and_used_up(available: dict[str, int], limit: int | None) -> None:
    granted = share(limit, available)
    assert set(granted) == set(available)
    assert all(0 <= granted[p] <= available[p] for p in available)
    total = sum(available.values())
    assert sum(granted.values()) == (total if limit is None else min(limit, total)), (
        "nothing that was asked for is kept"
    )
    cut = [granted[p] for p in available if granted[p] < available[p]]
    if cut:
        assert max(granted.values()) - min(cut) <= 1, "who is cut gets as much as anybody, but for a rest of one"


def test_a_limit_below_the_number_of_partitions() -> None:
    assert sum(share(2, {"a": 10, "b": 10, "c": 10}).values()) == 2


def test_a_limit_does_not_starve_a_partition_for_ever() -> None:
    """With a limit of one event a batch, every partition still gets its turn."""
    available = {"a": 3, "b": 5, "c": 4}
    for _ in range(12):
        granted = share(1, available)
        available = {p: left - granted[p] for p, left in available.items()}
    assert available == {"a": 0, "b": 0, "c": 0}


# pack


def covered(tasks: list[tuple[ReadRange, ...]]) -> list[ReadRange]:
    """What tasks read, with adjacent pieces joined."""
    joined: list[ReadRange] = []
    for piece in sorted((piece for task in tasks for piece in task), key=lambda one: (one.partition, one.start)):
        if joined and (joined[-1].partition, joined[-1].end) == (piece.partition, piece.start):
            assert joined[-1].owner_level == piece.owner_level
            joined[-1] = ReadRange(piece.partition, joined[-1].start, piece.end, piece.owner_level)
        else:
            joined.append(piece)
    return joined


PACKED = st.dictionaries(
    st.text(min_size=1, max_size=2), st.tuples(st.integers(0, 100), st.integers(0, 500), st.integers(0, 9)), max_size=12
).map(lambda stated: [ReadRange(p, start, start + size, level) for p, (start, size, level) in sorted(stated.items())])


@given(PACKED, st.integers(1, 200), st.integers(1, 40))
def test_tasks_cover_the_ranges_exactly(ranges: list[ReadRange], events_per_task: int, at_least: int) -> None:
    tasks = pack(ranges, events_per_task=events_per_task, at_least=at_least)
    assert covered(tasks) == [one for one in ranges if len(one)]
    total = sum(map(len, ranges))
    pieces = sum(len(task) for task in tasks)
    assert all(len(piece) for task in tasks for piece in task)
    assert all(tasks)
    wanted = min(total, max(at_least, -(-total // events_per_task)))
    assert len(tasks) <= wanted
    sizes = [sum(map(len, task)) for task in tasks]
    assert all(size <= 2 * max(1, -(-total // max(1, wanted))) for size in sizes), "about equal in size"
    assert pieces <= len(ranges) + wanted


@given(st.integers(1, 5000), st.integers(1, 500), st.integers(1, 40))
def test_one_range_is_cut_into_equal_tasks(size: int, events_per_task: int, at_least: int) -> None:
    tasks = pack([ReadRange("0", 7, 7 + size, 1)], events_per_task=events_per_task, at_least=at_least)
    sizes = [sum(map(len, task)) for task in tasks]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= events_per_task
    assert len(tasks) >= min(at_least, size) - 1 or max(sizes) == 1 or len(tasks) * max(sizes) >= size


def test_small_ranges_share_a_task() -> None:
    ranges = [ReadRange(str(p), 0, 100, 1) for p in range(8)]
    assert pack(ranges, events_per_task=50_000, at_least=1) == [tuple(ranges)]


def test_at_least_so_many_tasks() -> None:
    assert len(pack([ReadRange(str(p), 0, 100, 1) for p in range(8)], events_per_task=50_000, at_least=4)) == 4


def test_not_more_tasks_than_events() -> None:
    tasks = pack([ReadRange("0", 0, 2, 1)], events_per_task=10, at_least=8)
    assert [sum(map(len, task)) for task in tasks] == [1, 1]


def test_a_range_of_a_partition_with_one_reader_is_never_cut() -> None:
    ranges = [ReadRange(str(p), 0, 10 ** (p + 1), 1) for p in range(4)]
    for at_least in (1, 3, 50):
        tasks = pack(ranges, events_per_task=100, at_least=at_least, cut=False)
        assert sorted((one for task in tasks for one in task), key=lambda one: one.partition) == ranges
    assert len(tasks) == 4


def test_no_events_no_tasks() -> None:
    assert pack([], events_per_task=10, at_least=4) == []
    assert pack([ReadRange("0", 5, 5, 1)], events_per_task=10, at_least=4) == []


def test_the_same_ranges_make_the_same_tasks() -> None:
    ranges = [ReadRange(str(p), 0, 37 * p, 1) for p in range(9)]
    assert pack(ranges, events_per_task=50, at_least=3) == pack(ranges, events_per_task=50, at_least=3)
