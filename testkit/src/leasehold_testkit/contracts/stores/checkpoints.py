"""The contract of `CheckpointStore`, as tests. See `leasehold_testkit.contracts.stores` for how to use it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import pytest

from leasehold.errors import CheckpointStepBack, ConfigError, OwnerLevelSuperseded, StoreUnavailable
from leasehold.model import BEFORE_FIRST, Checkpoint, ConsumerGroup
from leasehold.stores.base import CheckpointStore, PipelineBinding
from leasehold.stores.checkpoint_data import LARGEST as LARGEST_DATA
from leasehold_testkit.contracts.stores.groups import (
    HOSTILE_NAMES,
    LARGEST,
    at_once,
    ending_by_itself,
    groups_alike,
    new_group,
)

MANY = 5_000
"""How many partitions one call must be able to name."""


class CheckpointStoreContract:
    """What every `CheckpointStore` must do."""

    @pytest.fixture
    def store(self) -> CheckpointStore:
        """The store under test. It need not be empty."""
        raise NotImplementedError("the subclass gives the store")

    @pytest.fixture
    def reopen(self, store: CheckpointStore) -> Callable[[], CheckpointStore]:
        """Opens the same store as another process would."""
        return lambda: store

    @pytest.fixture
    def hung(self) -> AbstractContextManager[CheckpointStore] | None:
        """A store whose backend does not answer while it is entered, with a time-out of at most a second.

        None where no call ever waits.
        """
        return None

    @pytest.fixture
    def group(self) -> ConsumerGroup:
        return new_group()

    @pytest.fixture
    def many(self) -> int:
        """How many partitions are many. Where fewer are given, let them be more than a page of a listing."""
        return MANY

    @pytest.fixture
    def alike(self) -> list[ConsumerGroup]:
        """Groups that differ little. `FEWER_WORDS` make fewer of them, where each record is a request of its own."""
        return groups_alike()

    def test_is_a_checkpoint_store(self, store: CheckpointStore) -> None:
        assert isinstance(store, CheckpointStore)

    # list_checkpoints

    def test_a_new_group_has_no_checkpoints(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        assert store.list_checkpoints(group) == []

    def test_lists_every_partition_that_has_one(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        written = [Checkpoint(group, str(p), 10 * p, 1, f"offset-{p}") for p in range(20)]
        for one in written:
            update(store, one)
        assert checkpoints(store, group) == {one.partition: one for one in written}

    def test_lists_no_checkpoints_of_another_group(self, store: CheckpointStore, alike: list[ConsumerGroup]) -> None:
        starts = [Checkpoint(one, "0", n, 1) for n, one in enumerate(alike)]
        assert store.raise_owner_level(starts) == starts
        for start in starts[::7]:
            assert store.list_checkpoints(start.group) == [start]

    def test_names_that_differ_never_meet(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        written = [Checkpoint(group, name, n, 1, name) for n, name in enumerate(HOSTILE_NAMES)]
        assert store.raise_owner_level(written) == written
        for one in written:
            update(store, dataclasses.replace(one, sequence_number=one.sequence_number + 1))
        assert {c.partition: (c.sequence_number, c.offset) for c in store.list_checkpoints(group)} == {
            name: (n + 1, name) for n, name in enumerate(HOSTILE_NAMES)
        }

    def test_numbers_and_offsets_come_back_as_written(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        written = [
            Checkpoint(group, "before the first", BEFORE_FIRST, 0),
            Checkpoint(group, "empty offset", 0, 1, ""),
            Checkpoint(group, "text", 1, 2, "4294967296 'é😀"),
            Checkpoint(group, "number", 1, 2, "0017"),
            Checkpoint(group, "largest", LARGEST, LARGEST, str(LARGEST)),
        ]
        for one in written:
            update(store, one)
        assert checkpoints(store, group) == {one.partition: one for one in written}

    @pytest.mark.parametrize(
        "data",
        [
            {"place": "file-7"},
            {"": "", " ": " ", "~": "~", "%25": "%", "a\nb": "\t\r\0", "'\"": "\\", "é😀": "\u202e日本"},
            {f"key {n}": "1.0" for n in range(40)},
            {"as much as there is room for": "x" * (LARGEST_DATA - 35)},
        ],
    )
    def test_data_comes_back_as_written_and_belongs_to_its_checkpoint(
        self, store: CheckpointStore, reopen: Callable[[], CheckpointStore], group: ConsumerGroup, data: dict[str, str]
    ) -> None:
        written = [Checkpoint(group, "0", 1, 1, "one", data), Checkpoint(group, "1", 1, 1, None, data)]
        assert store.update_checkpoints([*written, Checkpoint(group, "2", 1, 1)]) == []
        assert checkpoints(reopen(), group) == {"0": written[0], "1": written[1], "2": Checkpoint(group, "2", 1, 1)}
        raised = reopen().raise_owner_level([Checkpoint(group, "0", 9, 5, "nine"), Checkpoint(group, "2", 9, 5)])
        assert raised == [Checkpoint(group, "0", 1, 5, "one", data), Checkpoint(group, "2", 1, 5)]
        update(store, Checkpoint(group, "0", 1, 5, "one", {"another": "one"}))
        assert checkpoints(store, group)["0"].data == {"another": "one"}
        update(store, Checkpoint(group, "0", 2, 5, "two"))
        assert checkpoints(store, group)["0"] == Checkpoint(group, "0", 2, 5, "two")

    @pytest.mark.parametrize("data", [{}, {"much": "x" * (LARGEST_DATA - 12)}])
    def test_the_enqueued_time_comes_back_and_belongs_to_its_checkpoint(
        self, store: CheckpointStore, reopen: Callable[[], CheckpointStore], group: ConsumerGroup, data: dict[str, str]
    ) -> None:
        at = 1_795_395_089.123457
        one, other = Checkpoint(group, "0", 1, 1, "one", data, at), Checkpoint(group, "1", 2**40, 1, None, data, -0.5)
        assert store.update_checkpoints([one, other]) == []
        assert checkpoints(reopen(), group) == {"0": one, "1": other}
        assert reopen().raise_owner_level([Checkpoint(group, "0", 9, 5)]) == [dataclasses.replace(one, owner_level=5)]
        update(store, Checkpoint(group, "0", 2, 5, "two", data))
        assert checkpoints(store, group)["0"] == Checkpoint(group, "0", 2, 5, "two", data)

    @pytest.mark.parametrize(
        "data", [{"much": "x" * LARGEST_DATA}, {"é": "é" * 200}, {"number": 1}, {1: "key"}, {"leasehold.enqueued": ""}]
    )
    def test_data_that_not_every_store_can_keep_is_refused(
        self, store: CheckpointStore, group: ConsumerGroup, data: dict[str, str]
    ) -> None:
        with pytest.raises(ConfigError):
            store.update_checkpoints([Checkpoint(group, "1", 1, 1), Checkpoint(group, "0", 1, 1, None, data)])
        assert store.list_checkpoints(group) == []

    # raise_owner_level

    def test_raising_creates_the_resolved_start(
        self, store: CheckpointStore, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        start = Checkpoint(group, "0", 41, 1, "41")
        assert store.raise_owner_level([start]) == [start]
        assert reopen().list_checkpoints(group) == [start]

    def test_raising_keeps_the_place(
        self, store: CheckpointStore, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        update(store, Checkpoint(group, "0", 41, 1, "forty-one"))
        stands = Checkpoint(group, "0", 41, 2, "forty-one")
        assert store.raise_owner_level([Checkpoint(group, "0", 7, 2, "seven")]) == [stands]
        assert reopen().list_checkpoints(group) == [stands]

    @pytest.mark.parametrize("level", [1, 4, 5])
    def test_raising_never_lowers(self, store: CheckpointStore, group: ConsumerGroup, level: int) -> None:
        stands = Checkpoint(group, "0", 41, 5, "41")
        update(store, stands)
        assert store.raise_owner_level([Checkpoint(group, "0", 99, level, "99")]) == [stands]
        assert store.list_checkpoints(group) == [stands]

    def test_raising_several_partitions_at_once(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        update(store, Checkpoint(group, "1", 10, 5))
        stands = store.raise_owner_level([Checkpoint(group, p, 0, 3) for p in ("2", "1", "0")])
        assert stands == [Checkpoint(group, "2", 0, 3), Checkpoint(group, "1", 10, 5), Checkpoint(group, "0", 0, 3)]
        assert checkpoints(store, group) == {one.partition: one for one in stands}

    def test_raising_one_partition_twice_in_one_call(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        store.raise_owner_level([Checkpoint(group, "0", 41, 5), Checkpoint(group, "0", 7, 3)])
        assert store.list_checkpoints(group) == [Checkpoint(group, "0", 41, 5)]

    def test_raising_nothing(self, store: CheckpointStore) -> None:
        assert store.raise_owner_level([]) == []

    def test_of_many_starts_at_once_one_stands_for_all(
        self, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        def starter(number: int) -> Callable[[], list[Checkpoint]]:
            mine = reopen()
            return lambda: mine.raise_owner_level([Checkpoint(group, "0", number, number)])

        answers = [one for some in at_once([starter(n) for n in range(16)]) for one in some]
        [stands] = reopen().list_checkpoints(group)
        assert {one.sequence_number for one in answers} == {stands.sequence_number}
        assert stands.owner_level == 15
        assert all(one.owner_level >= number for number, one in enumerate(answers))

    # update_checkpoints

    def test_progress_is_recorded(
        self, store: CheckpointStore, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        store.raise_owner_level([Checkpoint(group, "0", BEFORE_FIRST, 1)])
        update(store, Checkpoint(group, "0", 99, 1, "offset"))
        assert reopen().list_checkpoints(group) == [Checkpoint(group, "0", 99, 1, "offset")]

    def test_a_lower_level_is_superseded_and_changes_nothing(
        self, store: CheckpointStore, group: ConsumerGroup
    ) -> None:
        stands = Checkpoint(group, "0", 10, 3, "ten")
        update(store, stands)
        with pytest.raises(OwnerLevelSuperseded) as refused:
            update(store, Checkpoint(group, "0", 11, 2, "eleven"))
        assert (refused.value.partition, refused.value.owner_level, refused.value.highest) == ("0", 2, 3)
        assert store.list_checkpoints(group) == [stands]

    def test_a_raised_level_refuses_the_former_owner(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        update(store, Checkpoint(group, "0", 10, 1, "ten"))
        store.raise_owner_level([Checkpoint(group, "0", 0, 2)])
        with pytest.raises(OwnerLevelSuperseded):
            update(store, Checkpoint(group, "0", 11, 1, "eleven"))
        assert store.list_checkpoints(group) == [Checkpoint(group, "0", 10, 2, "ten")]

    def test_a_step_back_at_the_same_level_is_refused_and_changes_nothing(
        self, store: CheckpointStore, group: ConsumerGroup
    ) -> None:
        stands = Checkpoint(group, "0", 10, 3, "ten")
        update(store, stands)
        with pytest.raises(CheckpointStepBack) as refused:
            update(store, Checkpoint(group, "0", 9, 3, "nine"))
        assert (refused.value.partition, refused.value.sequence_number, refused.value.latest) == ("0", 9, 10)
        assert store.list_checkpoints(group) == [stands]

    def test_the_same_sequence_number_is_accepted(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        for _ in range(2):
            update(store, Checkpoint(group, "0", 10, 3, "ten"))
        assert store.list_checkpoints(group) == [Checkpoint(group, "0", 10, 3, "ten")]

    def test_a_higher_level_may_step_back(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        update(store, Checkpoint(group, "0", 10, 3, "ten"))
        update(store, Checkpoint(group, "0", 4, 4, "four"))
        assert store.list_checkpoints(group) == [Checkpoint(group, "0", 4, 4, "four")]

    def test_an_offset_may_go_away(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        update(store, Checkpoint(group, "0", 10, 3, "ten"))
        update(store, Checkpoint(group, "0", 11, 3, None))
        assert store.list_checkpoints(group) == [Checkpoint(group, "0", 11, 3, None)]

    def test_each_checkpoint_of_a_batch_is_decided_alone(
        self, store: CheckpointStore, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        stands = [Checkpoint(group, p, 10, 3, "ten") for p in ("0", "1", "2")]
        assert store.update_checkpoints(stands) == []
        refused = store.update_checkpoints(
            [
                Checkpoint(group, "1", 11, 2, "superseded"),
                Checkpoint(group, "3", 1, 1, "new"),
                Checkpoint(group, "0", 9, 3, "back"),
                Checkpoint(group, "2", 4, 4, "on"),
            ]
        )
        assert [(type(one), one.partition) for one in refused] == [
            (OwnerLevelSuperseded, "1"),
            (CheckpointStepBack, "0"),
        ]
        assert checkpoints(reopen(), group) == {
            "0": stands[0],
            "1": stands[1],
            "2": Checkpoint(group, "2", 4, 4, "on"),
            "3": Checkpoint(group, "3", 1, 1, "new"),
        }

    def test_one_partition_twice_in_one_batch(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        later, earlier = Checkpoint(group, "0", 11, 1), Checkpoint(group, "0", 10, 1)
        assert store.update_checkpoints([earlier, later]) == []
        [refused] = store.update_checkpoints([dataclasses.replace(later, sequence_number=12), later])
        assert isinstance(refused, CheckpointStepBack)
        assert store.list_checkpoints(group) == [Checkpoint(group, "0", 12, 1)]

    def test_groups_in_one_batch_are_kept_apart(self, store: CheckpointStore) -> None:
        first, second = new_group(), new_group()
        assert store.update_checkpoints([Checkpoint(first, "0", 10, 5), Checkpoint(second, "0", 1, 1)]) == []
        [refused] = store.update_checkpoints([Checkpoint(second, "0", 2, 1), Checkpoint(first, "0", 2, 1)])
        assert isinstance(refused, OwnerLevelSuperseded)
        assert store.list_checkpoints(second) == [Checkpoint(second, "0", 2, 1)]

    def test_nothing_updated_is_nothing_refused(self, store: CheckpointStore) -> None:
        assert store.update_checkpoints([]) == []

    def test_thousands_of_partitions(self, store: CheckpointStore, group: ConsumerGroup, many: int) -> None:
        written = [Checkpoint(group, str(p), p, 1, str(p)) for p in range(many)]
        assert store.raise_owner_level(written) == written
        later = [dataclasses.replace(one, sequence_number=one.sequence_number + 1) for one in written]
        assert store.update_checkpoints(later) == []
        assert [one.partition for one in store.update_checkpoints(written)] == [one.partition for one in written]
        assert checkpoints(store, group) == {one.partition: one for one in later}

    def test_after_a_lost_reply_the_same_checkpoint_is_written_again(
        self, store: CheckpointStore, group: ConsumerGroup
    ) -> None:
        batch = [Checkpoint(group, p, 10, 3, "ten") for p in ("0", "1")]
        store.update_checkpoints(batch)  # … and the answer never came
        assert store.update_checkpoints(batch) == []
        assert store.raise_owner_level(batch) == store.raise_owner_level(batch) == batch

    def test_of_many_updates_at_once_the_furthest_stands(
        self, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        def updater(number: int) -> Callable[[], bool]:
            mine, progress = reopen(), Checkpoint(group, "0", number % 4, number // 4, str(number))
            return lambda: accepted(mine, progress)

        outcomes = at_once([updater(n) for n in range(16)])
        assert outcomes[-1]
        assert reopen().list_checkpoints(group) == [Checkpoint(group, "0", 3, 3, "15")]

    # pipeline_binding, bind_pipeline, rebind_pipeline

    def test_the_first_binding_stands(
        self, store: CheckpointStore, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        first, second = PipelineBinding("flights", "sink-1"), PipelineBinding("Flights", "sink-2")
        assert store.pipeline_binding(group) is None
        assert store.pipeline_binding(group) is None, "the question has tied it"
        assert store.bind_pipeline(group, first) == first
        assert reopen().pipeline_binding(group) == first
        assert reopen().bind_pipeline(group, second) == first
        assert store.bind_pipeline(group, first) == first

    def test_of_many_bindings_at_once_one_stands_for_all(
        self, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        def binder(number: int) -> Callable[[], PipelineBinding]:
            mine = reopen()
            return lambda: mine.bind_pipeline(group, PipelineBinding(f"pipeline-{number}", f"sink-{number}"))

        [stands] = set(at_once([binder(n) for n in range(16)]))
        assert stands.pipeline.removeprefix("pipeline-") == stands.sink.removeprefix("sink-")

    def test_rebinding_replaces(
        self, store: CheckpointStore, reopen: Callable[[], CheckpointStore], group: ConsumerGroup
    ) -> None:
        first, second = PipelineBinding("flights", "sink-1"), PipelineBinding("trains' 😀", "sink-2")
        store.bind_pipeline(group, first)
        store.rebind_pipeline(group, second)
        assert reopen().pipeline_binding(group) == second
        assert reopen().bind_pipeline(group, first) == second

    def test_rebinding_ties_a_group_that_is_not_tied(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        binding = PipelineBinding("flights", "sink")
        store.rebind_pipeline(group, binding)
        assert store.bind_pipeline(group, PipelineBinding("trains", "sink")) == binding

    def test_bindings_of_groups_that_differ_never_meet(
        self, store: CheckpointStore, alike: list[ConsumerGroup]
    ) -> None:
        groups = alike[::7]
        for number, one in enumerate(groups):
            store.bind_pipeline(one, PipelineBinding(f"pipeline-{number}", "sink"))
        store.rebind_pipeline(groups[0], PipelineBinding("another", "sink"))
        bound = [store.bind_pipeline(one, PipelineBinding("late", "sink")).pipeline for one in groups]
        seen = [binding.pipeline for one in alike if (binding := store.pipeline_binding(one))]
        assert bound == seen == ["another", *(f"pipeline-{number}" for number in range(1, len(groups)))]

    def test_a_binding_leaves_checkpoints_alone(self, store: CheckpointStore, group: ConsumerGroup) -> None:
        update(store, Checkpoint(group, "0", 10, 1))
        store.bind_pipeline(group, PipelineBinding("flights", "sink"))
        assert store.list_checkpoints(group) == [Checkpoint(group, "0", 10, 1)]

    # Time-outs

    def test_no_write_waits_longer_than_the_time_out(
        self, hung: AbstractContextManager[CheckpointStore] | None, store: CheckpointStore, group: ConsumerGroup
    ) -> None:
        if hung is None:
            pytest.skip("no call of this store ever waits")
        update(store, Checkpoint(group, "0", 10, 1))
        uses: list[Callable[[CheckpointStore], object]] = [
            lambda store: store.raise_owner_level([Checkpoint(group, "0", 11, 2)]),
            lambda store: store.update_checkpoints([Checkpoint(group, "0", 11, 2)]),
            lambda store: store.bind_pipeline(group, PipelineBinding("p", "s")),
            lambda store: store.rebind_pipeline(group, PipelineBinding("p", "s")),
        ]
        with hung as stuck:
            for use in uses:
                with ending_by_itself(), pytest.raises(StoreUnavailable):
                    use(stuck)
            with ending_by_itself(), suppress(StoreUnavailable):  # some can still be read
                stuck.list_checkpoints(group)


def checkpoints(store: CheckpointStore, group: ConsumerGroup) -> dict[str, Checkpoint]:
    """The checkpoints of a group by partition."""
    listed = store.list_checkpoints(group)
    assert len({one.partition for one in listed}) == len(listed)
    return {one.partition: one for one in listed}


def update(store: CheckpointStore, checkpoint: Checkpoint) -> None:
    """Update one checkpoint, and raise what refuses it."""
    for refused in store.update_checkpoints([checkpoint]):
        raise refused


def accepted(store: CheckpointStore, checkpoint: Checkpoint) -> bool:
    """Whether the store takes an update of a checkpoint."""
    return not store.update_checkpoints([checkpoint])
