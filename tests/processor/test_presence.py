"""Presence: who is counted, who is refused, what instances declare, and how those who start together see each other."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter

import pytest

from leasehold.config import STRATEGY_NAMES, OwnershipSettings
from leasehold.errors import AlreadyInUse, ConfigError
from leasehold.notices import CycleFailed, NameShared, OwnershipClaimed, OwnershipLost, PartitionsUnserved
from leasehold.ownership.membership import FORGET_AFTER
from leasehold.stores.base import StoreFeatures
from tests.processor.fleet import GROUP, Instance, Scene, unavailable

SETTINGS = OwnershipSettings(settle_delay=0)
EXPIRATION = SETTINGS.partition_expiration
NO_PRESENCE = StoreFeatures(shared=False, presence=False)
NO_CLOCK = StoreFeatures(shared=False, own_clock=False)
ALL_STRATEGIES = pytest.mark.parametrize("strategy", STRATEGY_NAMES)


def using(strategy: str, **changes: float | int | None) -> OwnershipSettings:
    return dataclasses.replace(SETTINGS, strategy=strategy, **changes)  # type: ignore[arg-type]


# Who is counted


@ALL_STRATEGIES
def test_who_owns_nothing_is_counted(strategy: str) -> None:
    """It has announced itself and no more than that, and others leave its share to it."""
    scene = Scene(4)
    a = scene.running("a", settings=using(strategy))
    b = scene.start("b", settings=using(strategy, settle_delay=1.0))
    b.manager.tick()
    assert (b.levels, scene.asks()) == ({}, {})
    scene.hub.ends |= {str(p): 0 for p in range(4, 8)}
    a.settle()
    assert len(a.levels) == 4, "of eight, though nobody owns the other four"
    scene.share(a, b)
    assert (len(a.levels), len(b.levels)) == (4, 4)


@ALL_STRATEGIES
def test_without_presence_nobody_counts_it(strategy: str) -> None:
    scene = Scene(4, NO_PRESENCE)
    a = scene.running("a", settings=using(strategy))
    b = scene.start("b", settings=using(strategy))
    b.ownership.before["list_ownership"] = unavailable
    b.manager.tick()
    scene.hub.ends |= {str(p): 0 for p in range(4, 8)}
    a.settle()
    assert len(a.levels) == 8


@ALL_STRATEGIES
def test_more_instances_than_partitions_stay_at_rest(strategy: str) -> None:
    scene = Scene(2)
    fleet = [scene.running(name, settings=using(strategy)) for name in "abcd"]
    scene.share(*fleet)
    for one in fleet:
        one.take()
    scene.live(100, *fleet)
    assert [notice for one in fleet for notice in one.take()] == []
    assert sorted(len(one.levels) for one in fleet) == [0, 0, 1, 1]
    assert scene.present() == {one.id for one in fleet}


def test_who_stalls_is_not_counted(fleet_of_two: tuple[Scene, Instance, Instance]) -> None:
    scene, a, b = fleet_of_two
    for _ in range(62):
        scene.clock.advance(10)
        b.manager.note_progress()
        a.manager.tick()
        b.settle()
    [stalled] = [one for one in scene.ownership.list_ownership(GROUP).presences if one.owner_id == a.id]
    assert stalled.maximum == 0, "it says that it takes nothing, and says no more after that"
    scene.live(40, b)
    assert (len(a.levels), len(b.levels)) == (0, 4)
    assert scene.ownership.list_ownership(GROUP).presences[0].last_modified == stalled.last_modified
    a.manager.note_progress()
    scene.share(a, b)
    assert (len(a.levels), len(b.levels)) == (2, 2)


@pytest.fixture
def fleet_of_two() -> tuple[Scene, Instance, Instance]:
    scene = Scene(4)
    a, b = (scene.running(name, settings=SETTINGS) for name in "ab")
    scene.share(a, b)
    assert (len(a.levels), len(b.levels)) == (2, 2)
    return scene, a, b


def test_who_leaves_is_not_counted_from_then_on(fleet_of_two: tuple[Scene, Instance, Instance]) -> None:
    scene, a, b = fleet_of_two
    b.manager.relinquish()
    assert scene.present() == {a.id}
    a.settle()
    assert len(a.levels) == 4, "at once"


def test_who_dies_is_counted_until_its_presence_expires(fleet_of_two: tuple[Scene, Instance, Instance]) -> None:
    scene, a, _ = fleet_of_two
    scene.live(EXPIRATION, a)
    assert len(a.levels) == 2
    scene.live(10, a)
    assert len(a.levels) == 4


def test_a_restarted_one_is_not_counted_twice(fleet_of_two: tuple[Scene, Instance, Instance]) -> None:
    """What it owned is its successor's share, and its presence is taken away by that one in its first cycle."""
    scene, a, _ = fleet_of_two
    scene.clock.advance(1)
    again = scene.start("b", settings=SETTINGS)
    again.ownership.before["list_ownership"] = a.settle
    again.settle()
    assert (len(a.levels), len(again.levels)) == (2, 2)
    assert scene.present() == {a.id, again.id}
    a.settle()
    assert (len(a.levels), len(again.levels)) == (2, 2)
    assert scene.asks() == {}
    scene.hub.ends |= {"4": 0, "5": 0}
    scene.share(a, again)
    assert (len(a.levels), len(again.levels)) == (3, 3)


def test_who_restarts_and_leaves_does_not_leave_its_predecessor_behind(
    fleet_of_two: tuple[Scene, Instance, Instance],
) -> None:
    scene, a, _ = fleet_of_two
    scene.clock.advance(1)
    scene.running("b", settings=SETTINGS).manager.relinquish()
    a.settle()
    assert scene.present() == {a.id}
    assert len(a.levels) == 4, "at once: the presence of the one before would keep a share for an expiration"


def test_two_of_one_name_that_both_live_are_two(fleet_of_two: tuple[Scene, Instance, Instance]) -> None:
    scene, a, b = fleet_of_two
    scene.clock.advance(1)
    again = scene.running("b", settings=SETTINGS)
    scene.live(100, a, b, again)
    assert sorted(len(one.levels) for one in (a, b, again)) == [1, 1, 2]


def test_dead_presences_are_forgotten(fleet_of_two: tuple[Scene, Instance, Instance]) -> None:
    scene, a, b = fleet_of_two
    scene.live(FORGET_AFTER * EXPIRATION, a)
    assert scene.present() == {a.id, b.id}
    scene.live(10, a)
    assert scene.present() == {a.id}


# Two pipelines


def pipelines(scene: Scene, first: str = "p", second: str = "q", names: str = "ab") -> tuple[Instance, Instance]:
    one = scene.start(names[0], settings=SETTINGS, pipeline=first)
    one.settle()
    scene.clock.advance(5)
    two = scene.start(names[1], settings=SETTINGS, pipeline=second)
    two.settle()
    return one, two


@pytest.mark.parametrize("features", [None, NO_CLOCK], ids=["", "without a clock"])
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_a_second_pipeline_is_refused_and_the_first_goes_on(features: StoreFeatures | None, names: str) -> None:
    scene = Scene(4, features)
    one, two = pipelines(scene, names=names)
    if features is not None:
        assert two.levels == {}, "it waits until it knows whether the other is alive"
        scene.live(10, one)
        two.settle()
    with pytest.raises(AlreadyInUse, match=rf"{one.id} of pipeline 'p' works in consumer group .*, and this is 'q'"):
        two.manager.held()
    assert [type(notice) for notice in two.take()] == [CycleFailed]
    for _ in range(3):
        scene.clock.advance(10)
        one.manager.note_progress()
        one.settle()
        two.settle()
    assert len(one.levels) == 4, "it does not share with the other, nor count it"
    assert scene.asks() == {}
    two.manager.relinquish()
    assert scene.present() == {one.id}


def test_of_two_that_start_at_once_one_is_refused() -> None:
    scene = Scene(4)
    a = scene.start("a", settings=OwnershipSettings(), pipeline="p")
    b = scene.start("b", settings=OwnershipSettings(), pipeline="q")
    for one in (b, a) * 3:
        one.manager.tick()
    assert len(a.levels) == 4
    with pytest.raises(AlreadyInUse):
        b.manager.held()


def test_of_two_that_start_at_once_none_works_where_there_is_no_clock() -> None:
    """Nobody can tell who was there first. Both are refused rather than none, as soon as they see each other alive."""
    scene = Scene(4, NO_CLOCK)
    fleet = [
        scene.start(name, settings=OwnershipSettings(), pipeline=pipeline)
        for name, pipeline in (("a", "p"), ("b", "q"))
    ]
    for one in fleet * 3:
        one.manager.tick()
    assert [one.levels for one in fleet] == [{}, {}]
    scene.clock.advance(10)
    for one in fleet * 2:
        one.manager.tick()
    for one in fleet:
        with pytest.raises(AlreadyInUse):
            one.manager.held()


@pytest.mark.parametrize(("first", "second"), [("p", "p"), ("", "q"), ("p", ""), ("", "")])
def test_those_that_do_not_name_two_pipelines_share(first: str, second: str) -> None:
    scene = Scene(4)
    one, two = pipelines(scene, first, second)
    scene.share(one, two)
    assert (len(one.levels), len(two.levels)) == (2, 2)


def test_a_pipeline_that_has_gone_makes_room_for_another() -> None:
    scene = Scene(4)
    one = scene.running("a", settings=SETTINGS)
    one.manager.relinquish()
    dead = scene.start("b", settings=SETTINGS, pipeline="p")
    dead.settle()
    scene.clock.advance(EXPIRATION + 1)
    two = scene.start("c", settings=SETTINGS, pipeline="q")
    two.settle()
    two.settle()
    assert len(two.levels) == 4


# The settle delay


@ALL_STRATEGIES
def test_the_first_cycle_only_announces(strategy: str) -> None:
    scene = Scene(4)
    a = scene.start("a", settings=using(strategy, settle_delay=1.0))
    assert not a.manager.tick()
    assert a.levels == {}
    assert a.ownership.calls == ["renew_ownership"]
    assert a.manager.cycles == 0, "it is no cycle"
    assert a.manager.due == scene.clock.monotonic() + 1.0
    assert scene.present() == {a.id}
    a.settle()
    assert len(a.levels) == 4


def test_an_announcement_that_is_lost_is_made_again() -> None:
    scene = Scene(4)
    a = scene.start("a", settings=OwnershipSettings())
    a.ownership.before["renew_ownership"] = unavailable
    a.manager.tick()
    assert scene.present() == set()
    assert a.manager.due <= scene.clock.monotonic() + SETTINGS.load_balancing_interval / 4
    a.manager.tick()
    assert (scene.present(), a.levels) == ({a.id}, {})


def test_without_presence_there_is_nothing_to_announce() -> None:
    scene = Scene(4, NO_PRESENCE)
    a = scene.start("a", settings=OwnershipSettings())
    assert a.manager.tick()
    assert len(a.levels) == 4


def cold_start(scene: Scene, fleet: list[Instance]) -> None:
    """All start within the settle delay, and run when they are due."""
    started = {one: number / len(fleet) * 0.9 for number, one in enumerate(fleet)}
    for step in range(600):
        scene.clock.advance(0.1)
        for one in fleet:
            if step / 10 >= started[one] and scene.clock.monotonic() >= one.manager.due:
                one.manager.tick()
                one.drain()


def test_a_cold_start_of_8_with_32_partitions_moves_nothing_and_loses_no_claim(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(32)
    fleet = [scene.start(f"i{number}", settings=OwnershipSettings()) for number in range(8)]
    with caplog.at_level("INFO"):
        cold_start(scene, fleet)
    assert [len(one.levels) for one in fleet] == [4] * 8
    claimed = Counter(n.partition for one in fleet for n in one.notices if isinstance(n, OwnershipClaimed))
    assert claimed == dict.fromkeys(scene.hub.ends, 1), "each once"
    assert {record.owner_level for record in scene.records().values()} == {1}
    assert not [notice for one in fleet for notice in one.notices if isinstance(notice, OwnershipLost)]
    assert "lost" not in caplog.text, "no claim was lost to another"
    assert sum("ask" in one.ownership.calls for one in fleet) == 0


# Capacity and maximum


def test_shares_go_by_capacity() -> None:
    scene = Scene(12)
    fleet = [scene.running(f"i{c}", settings=using("planned", capacity=c)) for c in (1, 2, 3)]
    scene.share(*fleet)
    assert [len(one.levels) for one in fleet] == [2, 4, 6]


def test_capacities_count_only_where_all_go_by_them() -> None:
    scene = Scene(12)
    fleet = [
        scene.running("a", settings=using("planned", capacity=3)),
        scene.running("b", settings=using("planned")),
        scene.running("c", settings=using("greedy")),
    ]
    scene.share(*fleet)
    assert [len(one.levels) for one in fleet] == [4, 4, 4]
    fleet[2].manager.relinquish()
    scene.share(*fleet[:2])
    assert [len(one.levels) for one in fleet] == [9, 3, 0]


@pytest.mark.parametrize("strategies", [("planned",) * 3, ("greedy",) * 3, ("balanced",) * 3, tuple(STRATEGY_NAMES)])
def test_nobody_takes_more_than_its_maximum_and_the_others_take_the_rest(strategies: tuple[str, ...]) -> None:
    scene = Scene(12)
    fleet = [
        scene.start(f"i{number}", settings=using(strategy, maximum_partitions=maximum, settle_delay=1.0))
        for number, (strategy, maximum) in enumerate(zip(strategies, (2, None, 3), strict=True))
    ]
    for one in fleet:
        one.manager.tick()
    scene.share(*fleet)
    assert [len(one.levels) for one in fleet] == [2, 7, 3]
    assert not [notice for one in fleet for notice in one.notices if isinstance(notice, PartitionsUnserved)]


@ALL_STRATEGIES
def test_what_nobody_has_room_for_is_reported_once_by_each(strategy: str) -> None:
    scene = Scene(5)
    a = scene.running("a", settings=using(strategy, maximum_partitions=2))
    assert len(a.levels) == 2
    b = scene.start("b", settings=using(strategy, maximum_partitions=2))
    scene.share(a, b)
    scene.live(30, a, b)
    assert (len(a.levels), len(b.levels)) == (2, 2)
    [unserved] = set(scene.hub.ends) - set(a.levels) - set(b.levels)
    for one in (a, b):
        reports = [notice for notice in one.take() if isinstance(notice, PartitionsUnserved)]
        assert len(reports) == len(set(reports))
        assert reports[-1] == PartitionsUnserved((unserved,))
    c = scene.start("c", settings=using(strategy))
    scene.share(a, b, c)
    assert unserved in c.levels
    assert [n for n in a.take() if isinstance(n, PartitionsUnserved)] == [PartitionsUnserved(())]


@pytest.mark.parametrize(
    ("changes", "field"), [({"capacity": 2.0}, "capacity"), ({"maximum_partitions": 3}, "maximum_partitions")]
)
def test_a_capacity_or_maximum_is_refused_where_nobody_would_know_of_it(changes: dict[str, float], field: str) -> None:
    scene = Scene(4, NO_PRESENCE)
    with pytest.raises(ConfigError, match="the ownership store keeps no presence") as refused:
        scene.start("a", settings=dataclasses.replace(SETTINGS, **changes))  # type: ignore[arg-type]
    assert refused.value.field == field


# Two of one name


@pytest.mark.parametrize("features", [None, NO_CLOCK])
def test_two_that_run_under_one_name_both_say_so_once(
    features: StoreFeatures | None, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(4, features)
    former, other = scene.running("twin"), scene.running("other")
    latter = scene.start("twin")
    for _ in range(10):
        scene.live(10, former, other, latter)
    said = {one.id: [n for n in one.notices if isinstance(n, NameShared)] for one in (former, other, latter)}
    assert said == {former.id: [NameShared(latter.id)], latter.id: [NameShared(former.id)], other.id: []}
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len([one for one in warned if "under the name 'twin'" in one]) == 2
    third = scene.start("twin")
    scene.live(30, former, other, latter, third)
    assert [n for n in former.notices if isinstance(n, NameShared)] == [NameShared(latter.id), NameShared(third.id)]


@pytest.mark.parametrize("features", [None, NO_CLOCK])
def test_who_is_started_again_under_its_name_is_nobodys_twin(features: StoreFeatures | None) -> None:
    """Its predecessor was killed, or left in order, a moment before."""
    scene = Scene(4, features)
    scene.running("a")  # killed
    b = scene.running("b")
    again = scene.start("a")
    scene.live(5 * EXPIRATION, again, b)
    again.manager.relinquish()
    third = scene.start("a")
    scene.live(5 * EXPIRATION, third, b)
    assert not [n for one in (again, b, third) for n in one.notices if isinstance(n, NameShared)]


def test_who_was_paused_while_another_took_its_name_says_so_when_it_wakes_up() -> None:
    scene = Scene(4)
    paused = scene.running("a")
    again = scene.start("a")
    scene.live(2 * EXPIRATION, again)
    assert not [n for n in again.notices if isinstance(n, NameShared)]
    scene.live(20, paused, again)
    assert [n for n in paused.notices if isinstance(n, NameShared)] == [NameShared(again.id)]
    assert [n for n in again.notices if isinstance(n, NameShared)] == [NameShared(paused.id)]
