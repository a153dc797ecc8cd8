"""What is logged of cycles in trouble: each trouble once, in whatever turns they come, and the end of all."""

from __future__ import annotations

import pytest

from leasehold.errors import StoreUnavailable
from leasehold.notices import CycleFailed
from tests.processor.fleet import Instance, Scene

AWAY, REFUSED = "dispatch cycle failed: away", "dispatch cycle failed: refused"
ALL_WELL = "dispatch cycles work again"


def fail(instance: Instance, why: str) -> None:
    """Let the next cycle fail."""

    def raise_it() -> None:
        raise StoreUnavailable(why)

    instance.ownership.before["renew_ownership"] = raise_it


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def instance(scene: Scene) -> Instance:
    return scene.running()


def test_troubles_that_take_turns_are_logged_once_each(
    scene: Scene, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        fail(instance, ("away", "refused", "away", "")[number % 4])
        instance.manager.tick()
        scene.clock.advance(2.5)
    assert sorted(caplog.messages) == sorted([AWAY, REFUSED, "dispatch cycle failed: "])
    assert sum(isinstance(notice, CycleFailed) for notice in instance.take()) == 100, "each is a notice"


def test_two_troubles_of_one_cycle_are_logged_once_each(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The hub or the checkpoints cannot be read, nor can the ownership records."""
    newcomer = scene.start()
    newcomer.checkpoints.away = True
    for _ in range(10):
        newcomer.manager.tick()
        scene.clock.advance(2.5)
        fail(newcomer, "away")
    first = "dispatch cycle failed: the store is away"
    assert caplog.messages == [first, "acquiring nothing: the store is away", AWAY]


def test_cycles_that_fail_and_succeed_in_turns_are_logged_once_until_they_have_been_well_for_a_while(
    scene: Scene, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        for _ in range(20):
            fail(instance, "away")
            for _ in range(2):
                instance.manager.note_progress()
                instance.manager.tick()
                scene.clock.advance(5.0)
        scene.live(60.0, instance)
    assert caplog.messages == [AWAY, ALL_WELL] * 2


def test_a_trouble_that_comes_back_while_another_one_lasts_is_logged_again(
    scene: Scene, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    for why in ("away", *["refused"] * 20, "away", "refused"):
        fail(instance, why)
        instance.manager.tick()
        scene.clock.advance(2.5)
    assert caplog.messages == [AWAY, REFUSED, AWAY]


def test_a_hub_that_is_away_from_an_instance_that_knows_its_partitions_is_logged_once(
    scene: Scene, instance: Instance, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        scene.hub.away = True
        scene.live(100.0, instance)
        scene.hub.away = False
        scene.live(50.0, instance)
    assert caplog.messages == ["going on with the partitions known so far: the hub is away"] * 2
