"""What `leasehold status` says of a group in the middle of something."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from leasehold.cli.status import describe
from leasehold.hubs.log import LogHub
from leasehold.model import Ask, Checkpoint, Ownership, Presence
from leasehold.processor.progress import GroupProgress, group_progress
from leasehold.stores.base import StoreFeatures
from leasehold.stores.memory import MemoryStore
from leasehold.testing.clock import ManualClock


class Scene:
    """A group of one hub, whose records a test writes itself."""

    def __init__(self, folder: Path, features: StoreFeatures | None = None) -> None:
        self.hub = LogHub.create(folder / "hub.db", partitions=3)
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, features)
        self.group = self.hub.consumer_group("g")

    def own(self, partition: str, owner: str, **more: object) -> Ownership:
        record = Ownership(self.group, partition, owner, 5)
        [record] = self.store.claim_ownership([dataclasses.replace(record, **more)])  # type: ignore[arg-type]
        return record

    def announce(self, owner: str, **more: object) -> None:
        presence = dataclasses.replace(Presence(self.group, owner), **more)  # type: ignore[arg-type]
        self.store.renew_ownership([], presence)

    def look(self) -> GroupProgress:
        return group_progress(self.hub, self.group, self.store, self.store, 30.0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_an_instance_without_a_partition_is_named(scene: Scene) -> None:
    scene.announce("a/1", pipeline="flights")
    scene.announce("b/2")
    scene.own("0", "a/1")
    progress = scene.look()
    assert [(one.owner_id, one.partitions, one.pipeline) for one in progress.instances] == [
        ("a/1", 1, "flights"),
        ("b/2", 0, ""),
    ]
    said = describe("flights", progress)
    assert said.summary == "flights: 3 partitions, 2 instances, lag 0\nwithout a partition: b/2"
    assert said.facts["instances"] == ["a/1", "b/2"]
    assert said.table is not None
    assert [column.key for column in said.table.columns][-1] == "lag"


def test_the_dead_do_not_count(scene: Scene) -> None:
    scene.announce("a/1")
    scene.own("0", "b/2")
    scene.clock.advance(31)
    scene.announce("c/3")
    assert [one.owner_id for one in scene.look().instances] == ["c/3"]


def test_without_a_clock_every_owner_counts_and_no_age_is_given(tmp_path: Path) -> None:
    scene = Scene(tmp_path, StoreFeatures(shared=True, own_clock=False))
    scene.own("0", "a/1")
    scene.clock.advance(1000)
    progress = scene.look()
    assert (progress.partitions[0].alive, progress.partitions[0].age) == (True, None)


def test_what_nobody_has_room_for(scene: Scene) -> None:
    scene.announce("a/1", maximum=1)
    scene.own("1", "a/1")
    progress = scene.look()
    assert progress.unserved == ("0", "2")
    said = describe("flights", progress)
    assert "nobody has room for partitions 0, 2: raise maximum_partitions" in said.summary
    assert said.facts["unserved"] == ["0", "2"]


def test_a_group_that_nobody_runs_has_nothing_unserved(scene: Scene) -> None:
    assert scene.look().unserved == ()


def test_who_waits_for_a_partition(scene: Scene) -> None:
    scene.own("0", "a/1")
    scene.store.ask([Ask(scene.group, "0", 5, "b/2"), Ask(scene.group, "1", 5, "b/2")])
    said = describe("flights", scene.look())
    assert said.table is not None
    assert [row["remark"] for row in said.table.records()] == ["b/2 waits for it", "", ""]


def test_a_suspect_is_shown_with_its_error_until_its_checkpoint_moves(scene: Scene) -> None:
    scene.hub.append(pa.table({"body": pa.array([b"x"] * 9, pa.binary())}), partition="0")
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 4, 5), Checkpoint(scene.group, "1", 4, 5)])
    scene.own("0", "a/1", claimed_at=4, failures=3, last_error="out of memory")
    scene.own("1", "a/1", claimed_at=4, failures=1, last_error="killed")
    said = describe("flights", scene.look())
    assert said.table is not None
    assert [row["remark"] for row in said.table.records()] == [
        "3 owners in a row came to a bad end and no event was done, taken last: out of memory",
        "1 owner came to a bad end and no event was done: killed",
        "",
    ]
    assert said.facts["suspects"] == [{"partition": "0", "failures": 3, "lastError": "out of memory"}]
    scene.store.update_checkpoints([Checkpoint(scene.group, "0", 5, 5)])
    assert describe("flights", scene.look()).facts["suspects"] == []
