"""Setting the place of a group, while others get in its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

import pytest

from leasehold.errors import StoreUnavailable, UsageError
from leasehold.model import EARLIEST, LATEST, OTHERS, Checkpoint, EventPosition, Ownership, Presence, stated_positions
from leasehold.operations.resetting import Moved, reset_group
from leasehold.sinks.base import Watermarked
from leasehold.sinks.rules.fence import Watermark
from leasehold.store_choice import Stores
from leasehold.stores.base import PipelineBinding, UnendedReset
from leasehold.stores.memory.store import MemoryStore
from leasehold.stores.stand_ins import FixedShare
from leasehold_testkit.clock import ManualClock
from tests.processor.fleet import GROUP, Hub


class Sink(Watermarked):
    """Watermarks, and something that happens while they are read."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.marks = {"0": Watermark(99, 1)}
        self.anew: list[bool] = []
        self._meanwhile = meanwhile

    def watermarks(self, hub: str) -> dict[str, Watermark]:
        self._meanwhile()
        return dict(self.marks)

    def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
        self.marks |= {p: replace(self.marks.get(p, Watermark()), owner_level=level) for p, level in levels.items()}
        return dict(self.marks)

    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, is_part: bool = False) -> None:
        pass

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        self.anew.append(anew)
        self.marks.update(marks)


def shared(store: MemoryStore, *partitions: str) -> Stores:
    """The store, for an instance with a fixed share of these partitions."""
    share = FixedShare(partitions, lambda error, partition: None, clock=ManualClock(), rng=Random(1))
    return Stores(store, store, share)


def reset(
    store: MemoryStore, sink: Sink, to: EventPosition | None = EARLIEST, begin: int = 0, end: int = 100
) -> list[Moved]:
    hub = Hub(1)
    hub.begins["0"], hub.ends["0"] = begin, end
    binding = PipelineBinding("p", "s")
    everywhere = None if to is None else {OTHERS: to}
    return reset_group(hub, GROUP, Stores(store, store), sink, binding, to=everywhere, expiration=30)


def worked_on() -> MemoryStore:
    store = MemoryStore()
    held = store.claim_ownership([Ownership(GROUP, "0", "a/1", 1)])
    store.raise_owner_level([Checkpoint(GROUP, "0", 99, 1)])
    store.relinquish_ownership(held)
    return store


def test_a_reset_moves_checkpoints_and_watermarks_at_a_new_level() -> None:
    store, sink = worked_on(), Sink()
    assert reset(store, sink) == [Moved("0", 100, 0)]
    assert sink.marks == {"0": Watermark(-1, 3, whole=True)}
    assert store.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", -1, 3)]


@pytest.mark.parametrize(
    ("to", "begin", "end", "anew"),
    [
        (EARLIEST, 0, 100, True),
        (EARLIEST, 50, 100, True),
        (EARLIEST, 100, 100, True),
        (EventPosition.parse("50"), 50, 100, True),
        (EventPosition.parse("51"), 50, 100, False),
        (LATEST, 0, 100, False),
        (LATEST, 100, 100, False),
        (None, 0, 100, False),
    ],
)
def test_only_a_reading_from_the_hubs_beginning_is_a_first_one(
    to: EventPosition | None, begin: int, end: int, anew: bool
) -> None:
    sink = Sink()
    reset(worked_on(), sink, to, begin, end)
    assert sink.anew == [anew]


def test_an_instance_that_owns_nothing_yet_stops_it_too() -> None:
    store, sink = worked_on(), Sink()
    store.renew_ownership([], Presence(GROUP, "b/1"))
    with pytest.raises(UsageError, match="in use by b/1"):
        reset(store, sink)
    assert store.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", 99, 1)]
    store.withdraw_presence(GROUP, ["b/1"])
    reset(store, sink)


def test_the_name_of_an_instance_is_one_short_line_of_the_refusal() -> None:
    store = worked_on()
    store.renew_ownership([], Presence(GROUP, f"b\nleasehold: done{'x' * 1_000_000}/1"))
    with pytest.raises(UsageError, match=r"in use by b\\nleasehold: done\w+…: a reset") as refused:
        reset(store, Sink())
    assert len(str(refused.value)) < 3_000


def test_an_instance_that_came_and_went_while_it_began_stops_it() -> None:
    store = worked_on()

    def meanwhile() -> None:
        (record,) = store.list_ownership(GROUP).records
        (held,) = store.claim_ownership([Ownership(GROUP, "0", "b/1", 5, record.etag)])
        store.relinquish_ownership([held])

    sink = Sink(meanwhile)
    with pytest.raises(UsageError, match="an instance started while the reset began, and nothing was changed"):
        reset(store, sink)
    assert sink.marks == {"0": Watermark(99, 1)}
    assert store.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", 99, 1)]


def test_a_checkpoint_that_the_store_cannot_write_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store, sink = worked_on(), Sink()
    with monkeypatch.context() as leased_by_others:
        leased_by_others.setattr(store, "raise_owner_level", lambda starts: [])
        with pytest.raises(StoreUnavailable, match="cannot write the checkpoint of partition 0, and"):
            reset(store, sink)
    assert sink.marks == {"0": Watermark(99, 1)}
    assert store.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", 99, 1)]
    assert reset(store, sink) == [Moved("0", 100, 0)]


def test_a_partition_that_there_is_not_is_refused() -> None:
    store, sink = worked_on(), Sink()
    hub = Hub(1)
    to = {"77": EARLIEST, OTHERS: EARLIEST}
    with pytest.raises(UsageError, match="the hub has no partition 77; its partitions are 0"):
        reset_group(hub, GROUP, Stores(store, store), sink, PipelineBinding("p", "s"), to=to, expiration=30)
    assert store.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", 99, 1)]


def of_three() -> tuple[Hub, MemoryStore, Sink]:
    """A hub of three partitions with 100 events each, all of them read and applied at level 1."""
    hub, store, sink = Hub(3), MemoryStore(), Sink()
    hub.ends = dict.fromkeys(hub.ends, 100)
    held = store.claim_ownership([Ownership(GROUP, partition, "a/1", 1) for partition in hub.ends])
    store.raise_owner_level([Checkpoint(GROUP, partition, 99, 1) for partition in hub.ends])
    store.relinquish_ownership(held)
    store.bind_pipeline(GROUP, PipelineBinding("p", "s"))
    sink.marks = {partition: Watermark(99, 1) for partition in hub.ends}
    return hub, store, sink


@pytest.mark.parametrize(
    ("stated", "places"),
    [
        ('{"1": 20}', {"1": 20}),
        ('{"1": 20, "2": "latest"}', {"1": 20, "2": 100}),
        ('{"1": 20, "*": "earliest"}', {"0": 0, "1": 20, "2": 0}),
        ('{"0": 0, "1": 0, "2": 0}', {"0": 0, "1": 0, "2": 0}),
        ('{"1": "earliest"}', {"1": 0}),
        ("20", {"0": 20, "1": 20, "2": 20}),
    ],
)
def test_what_is_not_named_stays(stated: str, places: dict[str, int]) -> None:
    hub, store, sink = of_three()
    records = {record.partition: record for record in store.list_ownership(GROUP).records}
    to = stated_positions(stated)
    moved = reset_group(hub, GROUP, Stores(store, store), sink, PipelineBinding("p", "s"), to=to, expiration=30)
    assert moved == [Moved(partition, 100, after) for partition, after in places.items()]
    expected = {p: Watermark(places[p] - 1, 3, whole=True) if p in places else Watermark(99, 1) for p in hub.ends}
    assert sink.marks == expected
    assert {one.partition: (one.sequence_number, one.owner_level) for one in store.list_checkpoints(GROUP)} == {
        partition: (mark.sequence_number, mark.owner_level) for partition, mark in expected.items()
    }
    untouched = [record for record in store.list_ownership(GROUP).records if record.partition not in places]
    assert untouched == [record for partition, record in records.items() if partition not in places]
    assert sink.anew == [set(places.values()) == {0} and len(places) == 3]


def test_a_reset_that_names_nothing_is_refused() -> None:
    hub, store, sink = of_three()
    with pytest.raises(UsageError, match="no partition is named"):
        reset_group(hub, GROUP, Stores(store, store), sink, PipelineBinding("p", "s"), to={}, expiration=30)


def test_of_a_fixed_share_only_its_own_partitions_are_set() -> None:
    hub, store, sink = of_three()

    def reset_share(to: Mapping[str, EventPosition]) -> list[Moved]:
        return reset_group(hub, GROUP, shared(store, "0", "1"), sink, PipelineBinding("p", "s"), to=to, expiration=30)

    with pytest.raises(UsageError, match="partition 2 belongs to another instance's fixed share"):
        reset_share({"1": EARLIEST, "2": EARLIEST})
    assert sink.marks == dict.fromkeys(hub.ends, Watermark(99, 1))
    assert reset_share({OTHERS: EARLIEST}) == [Moved("0", 100, 0), Moved("1", 100, 0)]
    assert sink.marks["2"] == Watermark(99, 1)


def test_a_group_that_has_not_started_is_reset_as_a_whole() -> None:
    """Its other partitions would start at earliest from then on, whatever its starting position is."""
    hub, _, sink = of_three()
    store, binding = MemoryStore(), PipelineBinding("p", "s")
    with pytest.raises(UsageError, match="no checkpoint yet"):
        reset_group(hub, GROUP, Stores(store, store), sink, binding, to={"1": EARLIEST}, expiration=30)
    assert (store.list_checkpoints(GROUP), store.pipeline_binding(GROUP)) == ([], None)
    everywhere = {"1": EARLIEST, OTHERS: LATEST}
    assert len(reset_group(hub, GROUP, Stores(store, store), sink, binding, to=everywhere, expiration=30)) == 3


@pytest.mark.parametrize("binding", [PipelineBinding("q", "s"), PipelineBinding("p", "another")])
def test_a_group_of_another_table_is_reset_as_a_whole(binding: PipelineBinding) -> None:
    """The partitions that stay would go on in the new table from where the former one was."""
    hub, store, sink = of_three()
    with pytest.raises(UsageError, match="set them too"):
        reset_group(hub, GROUP, Stores(store, store), sink, binding, to={"1": EARLIEST}, expiration=30)
    assert sink.marks == dict.fromkeys(hub.ends, Watermark(99, 1))
    assert store.bind_pipeline(GROUP, binding) == PipelineBinding("p", "s")
    reset_group(hub, GROUP, Stores(store, store), sink, binding, to={"1": LATEST, OTHERS: EARLIEST}, expiration=30)
    assert store.bind_pipeline(GROUP, PipelineBinding("p", "s")) == binding


def test_a_reset_of_one_fixed_share_that_did_not_end_is_ended_by_that_share_alone() -> None:
    hub, store, sink = of_three()
    binding = PipelineBinding("p", "s")
    store.rebind_pipeline(GROUP, binding.resetting(UnendedReset("earliest", ("0", "1"))))

    def reset_share(*share: str) -> list[Moved]:
        to = {OTHERS: EARLIEST}
        return reset_group(hub, GROUP, shared(store, *share), sink, binding, to=to, stated="earliest", expiration=30)

    with pytest.raises(UsageError, match="--to earliest of the partitions 0, 1 has begun and not ended"):
        reset_share("2")
    assert sink.marks == dict.fromkeys(hub.ends, Watermark(99, 1))
    assert [move.partition for move in reset_share("0", "1")] == ["0", "1"]
    assert store.pipeline_binding(GROUP) == binding


@pytest.mark.parametrize("binding", [PipelineBinding("q", "s"), PipelineBinding("p", "another")])
def test_a_part_that_is_reset_again_is_of_the_same_table(binding: PipelineBinding) -> None:
    hub, store, sink = of_three()
    begun = PipelineBinding("p", "s").resetting(UnendedReset("earliest"))
    store.rebind_pipeline(GROUP, begun)
    to = {"1": EARLIEST}
    with pytest.raises(UsageError, match="set them too"):
        reset_group(hub, GROUP, Stores(store, store), sink, binding, to=to, stated="earliest", expiration=30)
    assert store.pipeline_binding(GROUP) == begun
    same = PipelineBinding("p", "s")
    assert len(reset_group(hub, GROUP, Stores(store, store), sink, same, to=to, stated="earliest", expiration=30)) == 1


@pytest.mark.parametrize(
    "sink", ["leasehold reset ", "leasehold reset [1]", 'leasehold reset {"to": 1}', "leasehold reset {"]
)
def test_a_mark_that_somebody_else_has_written_is_a_reset_that_did_not_end(sink: str) -> None:
    bound = PipelineBinding("p", sink)
    assert bound.reset == UnendedReset("sink")
    assert bound.settled.sink == sink


def test_the_mark_of_a_reset_keeps_what_it_is_of() -> None:
    reset, binding = UnendedReset('{"1": 3}', ("0", "1")), PipelineBinding("p", "s")
    begun = binding.resetting(reset)
    assert (begun.reset, begun.settled, binding.reset) == (reset, binding, None)
