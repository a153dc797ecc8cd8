"""Setting the place of a group, while others get in its way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from leasehold.errors import StoreUnavailable, UsageError
from leasehold.model import EARLIEST, LATEST, Checkpoint, Ownership, Positions, Presence
from leasehold.operations.resetting import Moved, reset_group
from leasehold.sinks.rules.fence import Watermark
from leasehold.stores.base import PipelineBinding
from leasehold.stores.memory.store import MemoryStore
from tests.processor.fleet import GROUP, Hub

BEGINNING = Positions(EARLIEST)


class Sink:
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

    def check_watermarks(self, hub: str, marks: Mapping[str, Watermark]) -> None:
        pass

    def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
        self.anew.append(anew)
        self.marks.update(marks)


def reset(
    store: MemoryStore, sink: Sink, to: Positions | None = BEGINNING, begin: int = 0, end: int = 100
) -> list[Moved]:
    hub = Hub(1)
    hub.begins["0"], hub.ends["0"] = begin, end
    binding = PipelineBinding("p", "s")
    return reset_group(hub, GROUP, store, store, sink, binding, to=to, expiration=30)


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
        (Positions(EARLIEST), 0, 100, True),
        (Positions(EARLIEST), 50, 100, True),
        (Positions(EARLIEST), 100, 100, True),
        (Positions.parse("50"), 50, 100, True),
        (Positions.parse("51"), 50, 100, False),
        (Positions(LATEST), 0, 100, False),
        (Positions(LATEST), 100, 100, False),
        (None, 0, 100, False),
    ],
)
def test_only_a_reading_from_the_hubs_beginning_is_a_first_one(
    to: Positions | None, begin: int, end: int, anew: bool
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
    to = Positions(EARLIEST, (("77", EARLIEST),))
    with pytest.raises(UsageError, match="the hub has no partition 77; its partitions are 0"):
        reset_group(hub, GROUP, store, store, sink, PipelineBinding("p", "s"), to=to, expiration=30)
    assert store.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", 99, 1)]
