"""The rules of verdicts, each by itself, and the window that they go by."""

from __future__ import annotations

import math

import pytest

from leasehold.operations.verdicts import Judgement, Look, Standing, Window, judged, worst

WINDOW, PATIENCE = 100.0, 30.0


def looks(*seen: tuple[float, int, int], held: bool = True, unheld: float | None = 0.0) -> list[Look]:
    """Looks from (time, place, end); everything in between is unread."""
    return [Look(at, place, end, max(0, end - place), held, unheld) for at, place, end in seen]


def verdict(seen: list[Look], *, bad_ends: int = 0) -> Judgement:
    return judged(seen, window=WINDOW, patience=PATIENCE, owner="a/1", bad_ends=bad_ends, error="out of memory")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        pytest.param([(0, 5, 5)], Standing.OK, id="nothing unread, at one look"),
        pytest.param([(0, 5, 9)], Standing.UNKNOWN, id="unread, at one look"),
        pytest.param([(0, 5, 9), (99, 5, 9)], Standing.UNKNOWN, id="the window is not full"),
        pytest.param([(0, 5, 9), (100, 5, 9)], Standing.STALLED, id="does not move"),
        pytest.param([(0, 5, 9), (50, 5, 99), (100, 5, 999)], Standing.STALLED, id="does not move, and more comes"),
        pytest.param([(0, 5, 9), (50, 9, 9), (100, 9, 99)], Standing.OK, id="had caught up"),
        pytest.param([(0, 5, 5), (100, 5, 9)], Standing.OK, id="a slow topic: caught up at the window's start"),
        pytest.param([(0, 0, 10), (50, 10, 30), (100, 20, 50)], Standing.LAGGING, id="moves, and more comes"),
        pytest.param([(0, 0, 10), (50, 10, 40), (100, 30, 50)], Standing.OK, id="the lag fell in between"),
        pytest.param([(0, 0, 10), (50, 10, 20), (100, 20, 30)], Standing.OK, id="keeps pace, a batch behind"),
        pytest.param([(0, 0, 90_000), (100, 10_000, 90_000)], Standing.OK, id="far behind, and it works it off"),
        pytest.param([(0, 9, 20), (10, 5, 20)], Standing.REWOUND, id="went back"),
        pytest.param([(0, 9, 20), (10, 5, 20), (20, 8, 20)], Standing.REWOUND, id="not there again yet"),
        pytest.param([(0, 9, 20), (10, 5, 20), (90, 9, 20)], Standing.UNKNOWN, id="there again"),
        pytest.param([(0, 9, 20), (10, 5, 5)], Standing.REWOUND, id="went back, with nothing left to read"),
        pytest.param([(0, 9, 5)], Standing.REWOUND, id="the hub has lost its end"),
    ],
)
def test_what_is_held(seen: list[tuple[float, int, int]], said: Standing) -> None:
    assert verdict(looks(*seen)).verdict is said


@pytest.mark.parametrize(
    ("unheld", "said"),
    [(31.0, Standing.STOPPED), (math.inf, Standing.STOPPED), (29.0, Standing.UNKNOWN), (None, Standing.UNKNOWN)],
)
def test_at_one_look_the_records_alone_show_that_a_group_has_stopped(unheld: float | None, said: Standing) -> None:
    assert verdict(looks((0, 5, 9), held=False, unheld=unheld)).verdict is said


def test_a_stopped_group_with_nothing_unread_is_ok() -> None:
    assert verdict(looks((0, 9, 9), held=False, unheld=math.inf)).verdict is Standing.OK


def test_without_a_clock_in_the_store_it_takes_the_window_to_see_that_nobody_is_there() -> None:
    nobody = looks((0, 5, 9), (100, 5, 9), held=False, unheld=None)
    assert verdict(nobody) == Judgement(Standing.STOPPED, "nobody has held it for 100 s, and 4 events are unread")


def test_a_suspect_is_stalled_at_one_look_and_the_reason_is_its_error() -> None:
    said = verdict(looks((0, 5, 9), held=False, unheld=500.0), bad_ends=3)
    assert said == Judgement(
        Standing.STALLED, "3 owners in a row came to a bad end and no event was done: out of memory"
    )


def test_what_a_person_has_to_mend_stalls_it_at_one_look() -> None:
    said = judged([Look(0, 5, 9, 4, held=True)], window=100, patience=30, error="no INSERT", waits=True)
    assert said == Judgement(Standing.STALLED, "it waits until a person mends this: no INSERT")


def test_a_partition_that_changes_its_owner_all_the_time_is_stalled_too() -> None:
    seen = [Look(at, 5, 9, 4, held=at % 20 == 0, unheld=at % 20) for at in range(0, 110, 10)]
    assert verdict(seen).verdict is Standing.STALLED


def test_the_worst_of_a_group() -> None:
    assert worst([]) is Standing.UNKNOWN
    assert worst([Standing.OK, Standing.OK]) is Standing.OK
    assert worst([Standing.OK, Standing.UNKNOWN]) is Standing.UNKNOWN
    assert worst([Standing.UNKNOWN, Standing.LAGGING, Standing.OK]) is Standing.LAGGING
    assert worst([Standing.STOPPED, Standing.STALLED, Standing.REWOUND]) is Standing.REWOUND


def test_a_window_keeps_what_is_in_it_and_the_last_look_before() -> None:
    window = Window(WINDOW)
    for at in (0.0, 40.0, 80.0, 120.0):
        kept = window.add(Look(at, 0, 0, 0, held=True))
    assert [look.at for look in kept] == [0.0, 40.0, 80.0, 120.0]
    assert [look.at for look in window.add(Look(160.0, 0, 0, 0, held=True))] == [40.0, 80.0, 120.0, 160.0]
    assert [look.at for look in window.add(Look(900.0, 0, 0, 0, held=True))] == [160.0, 900.0]


def test_looks_that_follow_closely_do_not_fill_the_memory_and_the_first_stays() -> None:
    window = Window(WINDOW)
    for at in range(1_001):
        kept = window.add(Look(at / 10, 0, 0, 0, held=True))
    assert len(kept) <= 25
    assert (kept[0].at, kept[-1].at) == (0.0, 100.0)
