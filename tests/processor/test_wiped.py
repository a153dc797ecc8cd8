"""Stores that lose everything under running instances: what these have seen of the group still counts."""

from __future__ import annotations

from random import Random

import pytest

from leasehold.model import LATEST, OwnerId, Positions
from leasehold.ownership import PartitionManager, Purpose
from leasehold.runtime import Runtime
from leasehold.sinks.rules.fence import Watermark
from leasehold.stores.memory.store import MemoryStore
from tests.processor.fleet import GROUP, SETTINGS, Instance, Scene

AT_THE_END = Positions(LATEST)


def wipe(scene: Scene) -> None:
    """As a Redis without persistence that was started again."""
    scene.ownership._ownership.clear()
    scene.ownership._presences.clear()
    scene.checkpoints._checkpoints.clear()


def starts(instance: Instance) -> dict[str, int]:
    return {p: hold.start for p, hold in instance.manager.held().items()}


@pytest.fixture
def scene() -> Scene:
    scene = Scene(2)
    scene.hub.ends = {"0": 100, "1": 200}
    return scene


def work(instance: Instance, places: dict[str, int]) -> None:
    for partition, number in places.items():
        assert instance.manager.update_checkpoint(partition, instance.levels[partition], number)


def test_the_holder_goes_on_where_it_was_at_a_level_above(scene: Scene) -> None:
    a = scene.start("a", positions=AT_THE_END)
    a.settle()
    work(a, {"0": 149, "1": 219})
    scene.hub.ends = {"0": 180, "1": 280}
    wipe(scene)
    a.settle()
    assert (starts(a), a.levels) == ({"0": 150, "1": 220}, {"0": 2, "1": 2})
    assert {p: one.sequence_number for p, one in scene.progress().items()} == {"0": 149, "1": 219}


def test_no_level_is_given_twice_however_often_the_stores_are_wiped(scene: Scene) -> None:
    a = scene.start("a", positions=AT_THE_END)
    for level in range(1, 5):
        a.settle()
        assert a.levels == {"0": level, "1": level}
        wipe(scene)


def test_another_instance_starts_from_what_it_has_seen_and_else_at_earliest(scene: Scene) -> None:
    a = scene.start("a", positions=AT_THE_END)
    a.settle()
    work(a, {"0": 149})
    b = scene.start("b", positions=AT_THE_END)  # comes to ask for its share, and reads the checkpoints
    scene.share(a, b)
    work(a, dict.fromkeys(a.levels, 210))
    scene.hub.ends = {"0": 300, "1": 400}
    a.manager.relinquish()
    wipe(scene)
    b.settle()
    assert starts(b).keys() == {"0", "1"}
    assert all(start <= 211 for start in starts(b).values()), starts(b)
    assert all(level >= 2 for level in b.levels.values()), b.levels


def test_a_new_group_begins_where_it_was_told_to(scene: Scene) -> None:
    a = scene.start("a", positions=AT_THE_END)
    a.settle()
    assert starts(a) == {"0": 100, "1": 200}
    assert a.levels == {"0": 1, "1": 1}


class Table:
    """What a table knows."""

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        return {"0": Watermark(149, 7)}


def test_one_that_has_seen_nothing_goes_on_behind_what_the_table_holds(scene: Scene) -> None:
    """It has just been started when the stores are wiped, before anybody else is back."""
    manager = PartitionManager(
        scene.hub,
        GROUP,
        scene.ownership,
        scene.checkpoints,
        owner_id=OwnerId("a"),
        settings=SETTINGS,
        positions=AT_THE_END,
        runtime=Runtime(clock=scene.clock, rng=Random(1)),
        purpose=Purpose(table=Table()),
    )
    for _ in range(4):
        manager.tick()
        scene.clock.advance(SETTINGS.load_balancing_interval)
    held = manager.held()
    assert {p: (hold.start, hold.owner_level) for p, hold in held.items()} == {"0": (150, 8), "1": (0, 1)}


def test_checkpoints_that_are_lost_alone(scene: Scene) -> None:
    a = scene.start("a", positions=AT_THE_END)
    a.settle()
    work(a, {"0": 149})
    a.manager.relinquish()
    scene.checkpoints = MemoryStore(scene.clock)
    b = scene.start("b", positions=AT_THE_END)
    b.settle()
    assert starts(b) == {"0": 0, "1": 0}, "it has seen nothing but the levels"
    assert b.levels == {"0": 2, "1": 2}
