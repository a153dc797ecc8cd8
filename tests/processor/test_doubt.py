"""When everybody seems to be gone, it is looked twice: most often it was the store that was away."""

from __future__ import annotations

import dataclasses

import pytest

from leasehold.config import STRATEGY_NAMES, OwnershipSettings
from leasehold.stores.base import StoreFeatures
from tests.processor.fleet import DriftingClock, Instance, Scene

SETTINGS = OwnershipSettings(settle_delay=0)
INTERVAL = SETTINGS.load_balancing_interval
EXPIRATION = SETTINGS.partition_expiration
ALL_STRATEGIES = pytest.mark.parametrize("strategy", STRATEGY_NAMES)


def fleet_of(scene: Scene, names: str, strategy: str) -> list[Instance]:
    fleet = [scene.start(name, settings=dataclasses.replace(SETTINGS, strategy=strategy)) for name in names]
    scene.share(*fleet)
    assert {len(one.levels) for one in fleet} == {len(scene.hub.ends) // len(fleet)}
    return fleet


def owners(scene: Scene) -> dict[str, str]:
    return {record.partition: record.owner_id for record in scene.records().values()}


def run(scene: Scene, seconds: float, *instances: Instance, drain: bool = False) -> None:
    """Everybody lives by its own due time."""
    for _ in range(round(seconds / 0.25)):
        scene.clock.advance(0.25)
        for one in instances:
            if one.clock.monotonic() >= one.manager.due or one.manager.attention.is_set():
                one.manager.attention.clear()
                one.manager.note_progress()
                one.manager.tick()
                if drain:
                    one.drain()


@pytest.mark.more(but=6)
@ALL_STRATEGIES
@pytest.mark.parametrize("outage", [31.0, 60.0, 1_200.0])
def test_a_newcomer_right_after_an_outage_takes_nothing_from_those_that_come_back(strategy: str, outage: float) -> None:
    """It starts first of all when the store is back; the others come back within a quarter of an interval.

    It never saw the outage, and all their records have expired.
    """
    scene = Scene(12)
    fleet = fleet_of(scene, "abc", strategy)
    before = owners(scene)
    for one in fleet:
        one.ownership.away = one.checkpoints.away = True
    run(scene, outage, *fleet)
    assert all(one.levels == {} for one in fleet)
    newcomer = scene.start("d", settings=dataclasses.replace(SETTINGS, strategy=strategy))
    newcomer.manager.tick()
    assert owners(scene) == before
    for one in fleet:
        one.ownership.away = one.checkpoints.away = False
    run(scene, INTERVAL, newcomer, *fleet)
    assert owners(scene) == before, "nothing was taken"
    assert all(len(one.levels) == 4 for one in fleet)
    assert newcomer.levels == {}
    run(scene, 6 * INTERVAL, newcomer, *fleet, drain=True)
    assert sorted(len(one.levels) for one in (newcomer, *fleet)) == [3, 3, 3, 3], "it is given its share instead"


@ALL_STRATEGIES
def test_one_that_comes_back_speaks_for_the_others(strategy: str) -> None:
    """At the second look only one is back: the others have the time of a cycle to come back too."""
    scene = Scene(12)
    a, b, c = fleet_of(scene, "abc", strategy)
    before = owners(scene)
    scene.clock.advance(60)
    newcomer = scene.start("d", settings=dataclasses.replace(SETTINGS, strategy=strategy))
    newcomer.manager.tick()
    a.settle()
    scene.clock.advance(4)
    newcomer.manager.tick()
    assert owners(scene) == before
    scene.clock.advance(9)
    newcomer.manager.tick()
    for one in (b, c):
        one.settle()
    assert owners(scene) == before
    assert newcomer.levels == {}


@ALL_STRATEGIES
def test_the_dead_are_taken_from_at_the_second_look(strategy: str) -> None:
    scene = Scene(4)
    fleet_of(scene, "ab", strategy)
    scene.clock.advance(EXPIRATION + 1)
    newcomer = scene.start("c", settings=dataclasses.replace(SETTINGS, strategy=strategy))
    newcomer.settle()
    assert newcomer.levels == {}
    wait = newcomer.manager.due - scene.clock.monotonic()
    assert 0.25 * INTERVAL < wait <= 0.5 * INTERVAL, "later than those that live are back, and soon"
    scene.clock.advance(wait)
    newcomer.settle()
    assert len(newcomer.levels) == 4


@ALL_STRATEGIES
def test_one_dead_among_the_living_needs_no_second_look(strategy: str) -> None:
    scene = Scene(4)
    a, _ = fleet_of(scene, "ab", strategy)
    scene.live(EXPIRATION, a)
    scene.clock.advance(5)
    newcomer = scene.start("c", settings=dataclasses.replace(SETTINGS, strategy=strategy))
    newcomer.settle()
    assert len(newcomer.levels) == (1 if strategy == "balanced" else 2) or len(newcomer.levels) == 2


def test_nobody_doubts_its_own_predecessor() -> None:
    scene = Scene(4)
    scene.running("a", settings=SETTINGS)
    scene.clock.advance(1_000)
    again = scene.start("a", settings=SETTINGS)
    assert again.manager.tick()
    assert len(again.levels) == 4


def test_who_has_doubted_and_found_them_back_doubts_anew_when_they_go_again() -> None:
    scene = Scene(4)
    a, b = fleet_of(scene, "ab", "planned")
    scene.clock.advance(60)
    newcomer = scene.start("c", settings=SETTINGS)
    newcomer.settle()
    for one in (a, b):
        one.settle()
    newcomer.settle()
    newcomer.settle()
    assert newcomer.levels == {}
    scene.clock.advance(30)
    newcomer.settle()
    scene.clock.advance(25)
    newcomer.settle()
    assert newcomer.levels == {}, "the first look"
    newcomer.settle()
    assert len(newcomer.levels) == 4


# Clocks


@pytest.mark.parametrize("strategy", ["planned"])
@pytest.mark.parametrize("own_clock", [True, False])
def test_a_wall_clock_that_is_a_day_off_has_no_effect(strategy: str, own_clock: bool) -> None:
    stories = []
    for wall in (0.0, 86_400.0, -86_400.0):
        scene = Scene(8, StoreFeatures(shared=False, own_clock=own_clock))
        fleet = [
            scene.start(name, clock=DriftingClock(scene.clock, wall=number * wall), settings=SETTINGS)
            for number, name in enumerate("abc")
        ]
        run(scene, 60, *fleet, drain=True)
        lost = fleet.pop()
        run(scene, 60, *fleet, drain=True)
        stories.append([[str(n).replace(o.id, o.name) for n in o.notices] for o in (*fleet, lost)])
        assert [len(one.levels) for one in fleet] == [4, 4]
    shapes = [[[line.split("(")[0] for line in one] for one in story] for story in stories]
    assert shapes[0] == shapes[1] == shapes[2]


@pytest.mark.parametrize("own_clock", [True, False])
@pytest.mark.parametrize("slow", [0.5, 0.7, 1.0, 2.0])
def test_rates_within_the_ratio_cause_no_premature_takeover(slow: float, own_clock: bool) -> None:
    """One clock runs at half or double the rate of another. The holder stops renewing and is watched all the time."""
    settings = dataclasses.replace(SETTINGS, clock_rate_ratio=2.0, partition_expiration=48.0)
    scene = Scene(4, StoreFeatures(shared=False, own_clock=own_clock))
    a = scene.start("a", clock=DriftingClock(scene.clock, rate=slow), settings=settings)
    b = scene.start("b", clock=DriftingClock(scene.clock, rate=1.0), settings=settings)
    run(scene, 300, a, b, drain=True)
    assert (len(a.levels), len(b.levels)) == (2, 2)
    for one in (a, b):
        assert not [notice for notice in one.take() if type(notice).__name__ == "OwnershipLost"]
    for _ in range(2_000):
        scene.clock.advance(0.1)
        b.manager.note_progress()
        if b.clock.monotonic() >= b.manager.due:
            b.manager.tick()
        assert not set(a.levels) & set(b.levels), "two trust themselves at once"
        if len(b.levels) == 4:
            break
    assert (len(a.levels), len(b.levels)) == (0, 4)


def test_rates_beyond_the_ratio_would() -> None:
    """The setting matters: with a ratio of one, a clock of half the rate trusts itself beside the next owner."""
    settings = dataclasses.replace(SETTINGS, clock_rate_ratio=1.0, margin=0.0)
    scene = Scene(4)
    a = scene.start("a", clock=DriftingClock(scene.clock, rate=0.5), settings=settings)
    a.settle()
    scene.clock.advance(EXPIRATION + 1)
    b = scene.start("b", settings=settings)
    b.settle()
    b.settle()
    assert set(a.levels) & set(b.levels)
