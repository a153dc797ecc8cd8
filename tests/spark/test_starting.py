"""The agreement of group, stores and table that a pipeline checks before it reads."""

from __future__ import annotations

import pytest

from leasehold.errors import AlreadyInUse, OwnerLevelWentBack
from leasehold.model import Checkpoint, ConsumerGroup, Ownership
from leasehold.sinks.fence import Watermark
from leasehold.spark.starting import check_start
from leasehold.stores.base import PipelineBinding
from leasehold.stores.memory import MemoryStore

GROUP = ConsumerGroup("log", "hub")
MINE = PipelineBinding("mine", "sink-1")


def start(store: MemoryStore, binding: PipelineBinding = MINE, level: int = 0) -> None:
    marks = {"0": Watermark(5, level)} if level else {}
    check_start(GROUP, store, binding, marks, "p.toml")


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
