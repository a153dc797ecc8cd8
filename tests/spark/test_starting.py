"""The agreement of group, stores and table that a pipeline checks before it reads."""

from __future__ import annotations

import pytest

from leasehold.errors import AlreadyInUse, EventsMissing, OwnerLevelWentBack
from leasehold.model import Checkpoint, ConsumerGroup, Ownership
from leasehold.ownership.starting import check_start
from leasehold.sinks.rules.fence import Watermark
from leasehold.stores.base import PipelineBinding
from leasehold.stores.memory.store import MemoryStore

GROUP = ConsumerGroup("log", "hub")
MINE = PipelineBinding("mine", "sink-1")


def start(store: MemoryStore, binding: PipelineBinding = MINE, level: int = 0) -> None:
    marks = {"0": Watermark(5, level)} if level else {}
    check_start(GROUP, store, binding, lambda: marks, "p.toml")


def test_the_first_start_binds_the_group_and_later_ones_agree() -> None:
    store = MemoryStore()
    start(store)
    start(store)
    assert store.bind_pipeline(GROUP, PipelineBinding("x", "y")) == MINE


def test_another_pipeline_is_refused_even_before_any_progress() -> None:
    store = MemoryStore()
    start(store)
    with pytest.raises(AlreadyInUse, match=r"belongs to pipeline 'mine', and this is 'other'.*consumer_group"):
        start(store, PipelineBinding("other", "sink-2"))


def test_another_table_is_refused_once_there_is_progress() -> None:
    store = MemoryStore()
    start(store)
    store.raise_owner_level([Checkpoint(GROUP, "0", -1, 0)])
    start(store, PipelineBinding("mine", "sink-2"))  # starts are recorded, and nobody has read yet
    store.raise_owner_level([Checkpoint(GROUP, "0", -1, 1)])
    with pytest.raises(AlreadyInUse, match=r"its database was deleted.*leasehold reset p\.toml --to earliest"):
        start(store, PipelineBinding("mine", "sink-3"))


def test_stores_that_know_less_than_the_table_are_refused() -> None:
    store = MemoryStore()
    with pytest.raises(
        OwnerLevelWentBack, match=r"level 3 of partition 0, and the checkpoint store knows 0.*--to sink"
    ):
        start(store, level=3)
    store.claim_ownership([Ownership(GROUP, "0", "a/1", 4)])  # its own checkpoint was lost, or a reset was cut short
    store.raise_owner_level([Checkpoint(GROUP, "0", 5, 2)])
    with pytest.raises(OwnerLevelWentBack, match="knows 2"):
        start(store, level=3)
    store.raise_owner_level([Checkpoint(GROUP, "0", 5, 3)])
    start(store, level=3)


def checked(store: MemoryStore, mark: Watermark) -> None:
    check_start(GROUP, store, MINE, lambda: {"0": mark}, "p.toml")


def test_a_partition_that_the_table_knows_is_not_new() -> None:
    with pytest.raises(OwnerLevelWentBack, match="level 0 of partition 0, and the checkpoint store knows 0"):
        checked(MemoryStore(), Watermark(5, 0))


def test_a_table_restored_from_an_older_copy_is_refused() -> None:
    store = MemoryStore()
    store.raise_owner_level([Checkpoint(GROUP, "0", 99, 3)])
    with pytest.raises(
        EventsMissing, match=r"is at event 99, and the table.*no event behind 50.*reset p\.toml --to sink"
    ):
        checked(store, Watermark(50, 3, whole=True))
    checked(store, Watermark(50, 3))  # the others may have been filtered
    checked(store, Watermark(99, 3, whole=True))
    checked(store, Watermark(150, 3, whole=True))


def test_an_instance_that_goes_on_meanwhile_is_no_sign_of_anything() -> None:
    """It is asked for the watermarks between two looks at the checkpoints; each time something has moved."""
    store = MemoryStore()
    store.raise_owner_level([Checkpoint(GROUP, "0", 99, 3)])

    def watermarks() -> dict[str, Watermark]:
        store.raise_owner_level([Checkpoint(GROUP, "0", 99, 4)])
        before = Watermark(150, 4, whole=True)
        store.update_checkpoints([Checkpoint(GROUP, "0", 500, 4)])
        return {"0": before}

    check_start(GROUP, store, MINE, watermarks, "p.toml")


def test_what_the_table_has_refused_is_refused_again_whatever_the_levels_are_by_now() -> None:
    store = MemoryStore()
    store.raise_owner_level([Checkpoint(GROUP, "0", 5, 7)])
    with pytest.raises(OwnerLevelWentBack, match="had gone back behind it"):
        checked(store, Watermark(5, 3, disputed=True))
