"""The watermark rules, without a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import EventsMissing, OwnerLevelWentBack
from leasehold.model import BEFORE_FIRST, EventRange
from leasehold.sinks.rules.fence import Admission, Gap, Range, Refusal, Watermark, check_gaps, judge, plan

LANE = ("h", "0")


def test_the_first_range_of_a_partition_is_new() -> None:
    it = Range("h", "0", 1, 0, 9)
    made = plan({}, [it])
    assert made.admitted == (Admission(it, BEFORE_FIRST),)
    assert made.watermarks == {LANE: Watermark(9, 1)}


def test_what_is_at_or_below_the_watermark_was_applied_before() -> None:
    made = plan({LANE: Watermark(5, 1)}, [Range("h", "0", 1, 0, 9)])
    assert made.admitted[0].after == 5
    assert made.watermarks == {LANE: Watermark(9, 1)}


def test_a_full_replay_by_a_later_owner_raises_the_level_and_not_the_number() -> None:
    made = plan({LANE: Watermark(9, 1)}, [Range("h", "0", 2, 0, 9)])
    assert made.admitted[0].after == 9
    assert made.watermarks == {LANE: Watermark(9, 2)}


def test_a_lower_level_is_refused_and_changes_nothing() -> None:
    it = Range("h", "0", 2, 10, 19)
    made = plan({LANE: Watermark(5, 3)}, [it])
    assert (made.admitted, made.refused, made.watermarks) == ((), (Refusal(it, 3),), {})


def test_levels_of_one_batch_are_taken_in_their_order() -> None:
    late, early = Range("h", "0", 5, 15, 25), Range("h", "0", 3, 10, 20)
    made = plan({LANE: Watermark(9, 3)}, [late, early])
    assert made.admitted == (Admission(early, 9), Admission(late, 20))
    assert made.watermarks == {LANE: Watermark(25, 5)}
    again = plan(made.watermarks, [late, early])
    assert again.refused == (Refusal(early, 5),)
    assert again.admitted == (Admission(late, 25),)


def test_partitions_and_hubs_do_not_know_of_each_other() -> None:
    stored = {LANE: Watermark(5, 7)}
    made = plan(stored, [Range("h", "1", 1, 0, 3), Range("g", "0", 1, 0, 3)])
    assert not made.refused
    assert {each.after for each in made.admitted} == {BEFORE_FIRST}


@given(
    st.dictionaries(st.sampled_from(["0", "1"]), st.builds(Watermark, st.integers(-1, 9), st.integers(0, 4))),
    st.lists(
        st.tuples(st.sampled_from(["0", "1"]), st.integers(0, 4), st.integers(0, 9), st.integers(0, 5)), max_size=6
    ),
)
def test_watermarks_never_go_back_and_a_replay_admits_nothing(
    marks: dict[str, Watermark], drawn: list[tuple[str, int, int, int]]
) -> None:
    stored = {("h", partition): mark for partition, mark in marks.items()}
    ranges = [Range("h", p, level, first, first + more) for p, level, first, more in drawn]
    made = plan(stored, ranges)
    for lane, mark in made.watermarks.items():
        before = stored.get(lane, Watermark())
        assert mark.sequence_number >= before.sequence_number
        assert mark.owner_level >= before.owner_level
    assert len(made.admitted) + len(made.refused) == len(ranges)
    again = plan({**stored, **made.watermarks}, ranges)
    assert all(each.after >= each.range.last for each in again.admitted)


def test_a_refused_range_is_a_zombies_if_the_record_has_a_higher_level() -> None:
    judge(Refusal(Range("h", "0", 2, 0, 9), 3), 3)


@pytest.mark.parametrize(("record", "words"), [(None, "no record"), (2, "level 2"), (1, "level 1")])
def test_a_refused_range_of_the_current_owner_means_that_levels_went_back(record: int | None, words: str) -> None:
    with pytest.raises(OwnerLevelWentBack, match=r"partition 0.*level 2.*level 3") as error:
        judge(Refusal(Range("h", "0", 2, 0, 9), 3), record)
    assert words in str(error.value)
    assert "leasehold reset PIPELINE.toml --to sink" in str(error.value)


def whole(begin: int, end: int, level: int = 1, left_out_from: int | None = None) -> Range:
    return Range.read_whole(EventRange("h", "0", level, begin, end, left_out_from))


@pytest.mark.parametrize("stored", [{}, {LANE: Watermark(9, 1)}, {LANE: Watermark(9, 1, whole=True)}])
def test_a_whole_range_raises_the_watermark_to_its_end(stored: dict[tuple[str, str], Watermark]) -> None:
    assert plan(stored, [whole(10, 20)]).watermarks == {LANE: Watermark(19, 1, whole=True)}


def test_an_empty_whole_range_raises_the_level_alone() -> None:
    assert plan({LANE: Watermark(9, 1)}, [whole(10, 10, level=4)]).watermarks == {LANE: Watermark(9, 4, whole=True)}


def test_a_whole_range_above_the_watermark_leaves_a_gap() -> None:
    it = whole(11, 20)
    made = plan({LANE: Watermark(9, 1, whole=True)}, [it])
    assert (made.admitted, made.watermarks, made.gaps) == ((), {}, (Gap(it, 9),))
    with pytest.raises(EventsMissing, match=r"partition 0.*begins at event 11.*no event behind 9: \[10, 11\)") as error:
        check_gaps("flights", made)
    assert "leasehold reset PIPELINE.toml --to sink" in str(error.value)


def test_a_gap_between_the_levels_of_one_batch_is_one_too() -> None:
    early, late = whole(10, 15, level=1), whole(16, 20, level=2)
    assert plan({LANE: Watermark(9, 1, whole=True)}, [late, early]).gaps == (Gap(late, 14),)


@pytest.mark.parametrize(
    ("before", "it"),
    [
        (None, whole(11, 20)),
        (Watermark(9, 1), whole(11, 20)),
        (Watermark(9, 1, whole=True), whole(11, 20, left_out_from=10)),
        (Watermark(9, 1, whole=True), whole(11, 20, left_out_from=3)),
        (Watermark(9, 1, whole=True), Range("h", "0", 1, 11, 19)),
        (Watermark(9, 1, whole=True), whole(10, 20)),
        (Watermark(9, 1, whole=True), whole(3, 20)),
    ],
)
def test_what_is_no_gap(before: Watermark | None, it: Range) -> None:
    made = plan({} if before is None else {LANE: before}, [it])
    assert not made.gaps
    assert made.watermarks[LANE].sequence_number == 19
    check_gaps("flights", made)


def test_what_is_left_out_above_the_watermark_is_a_gap_all_the_same() -> None:
    assert plan({LANE: Watermark(9, 1, whole=True)}, [whole(20, 30, left_out_from=11)]).gaps


def test_a_former_owners_gap_is_a_former_owners_batch() -> None:
    made = plan({LANE: Watermark(9, 3, whole=True)}, [whole(20, 30, level=2)])
    assert (len(made.refused), made.gaps) == (1, ())


@pytest.mark.parametrize(
    ("before", "it", "is_whole"),
    [
        (True, Range("h", "0", 1, 0, 12), False),
        (True, Range("h", "0", 1, 0, 9), False),
        (True, whole(0, 5), True),
        (False, whole(0, 13), True),
        (False, whole(0, 10), True),
        (False, whole(0, 9), False),
    ],
)
def test_a_watermark_is_whole_as_long_as_all_that_comes_is(before: bool, it: Range, is_whole: bool) -> None:
    assert plan({LANE: Watermark(9, 1, before)}, [it]).watermarks[LANE].whole is is_whole


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(1, 3), st.none() | st.integers(0, 20)), max_size=9
    )
)
def test_with_whole_ranges_every_event_up_to_the_watermark_was_given_or_left_out(
    drawn: list[tuple[int, int, int, int | None]],
) -> None:
    """Whatever is brought, one range a batch: after a first one, nothing below the watermark is missing."""
    stored: dict[tuple[str, str], Watermark] = {}
    seen: set[int] = set()
    for begin, size, level, left_out_from in drawn:
        it = whole(begin, begin + size, level, None if left_out_from is None else min(left_out_from, begin))
        made = plan(stored, [it])
        if made.gaps:
            continue
        if made.admitted and LANE not in stored:
            seen |= set(range(begin))
        if made.admitted:
            seen |= set(range(it.first if it.left_out_from is None else it.left_out_from, it.last + 1))
        stored |= made.watermarks
        assert seen >= set(range(stored.get(LANE, Watermark()).sequence_number + 1))
