"""Either alone: balancing without checkpoints, and a fixed share of partitions with checkpoints and no ownership."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import AlreadyInUse, ConfigError, UsageError
from leasehold.model import Checkpoint
from leasehold.processors.events import (
    MANUAL,
    ON_STOP,
    EventBatch,
    EventProcessor,
    FixedPartitions,
    Handlers,
    PartitionContext,
)
from leasehold.stores.sqlite.store import SqliteStore
from tests.processor import plain
from tests.processor.plain import DELIVERY, SETTINGS, log, send
from tests.waiting import PATIENCE, until


class Reader:
    """What a handler has been given, and the errors of its processor."""

    def __init__(self) -> None:
        self.got: list[tuple[str, int]] = []
        self.levels: dict[str, int] = {}
        self.errors: list[tuple[BaseException, str | None]] = []
        self.contexts: dict[str, PartitionContext] = {}
        self.gate = threading.Event()
        self.gate.set()

    def on_events(self, batch: EventBatch, context: PartitionContext) -> None:
        assert self.gate.wait(PATIENCE)
        self.got += [(event.partition, event.sequence_number) for event in batch]
        self.levels[context.partition] = context.owner_level
        self.contexts[context.partition] = context

    def on_error(self, error: BaseException, partition: str | None) -> None:
        self.errors.append((error, partition))

    def partitions(self) -> set[str]:
        return {partition for partition, _ in self.got}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    return SqliteStore(tmp_path / "stores.db")  # type: ignore[return-value]


def processor(hub: Any, stores: Any, reader: Reader, **more: Any) -> EventProcessor:
    given = {"ownership": SETTINGS, "on_events": reader.on_events, "on_error": reader.on_error, **more}
    return plain.processor(hub, stores, **given)


def fixed(*partitions: str) -> FixedPartitions:
    return FixedPartitions(partitions, SETTINGS)


# Balancing without checkpoints


def test_without_checkpoints_each_acquisition_starts_where_it_was_told(tmp_path: Path, store: SqliteStore) -> None:
    hub = log(tmp_path, partitions=2, each=3)
    for _ in range(2):
        reader = Reader()
        with processor(hub, (store, None), reader):
            until(lambda reader=reader: len(reader.got) >= 6, "all events")  # type: ignore[misc]
        assert sorted(reader.got) == [(p, n) for p in "01" for n in range(3)]
        assert reader.errors == []
    late = Reader()
    with processor(hub, (store, None), late, start="latest") as one:
        until(lambda: len(one.partitions) == 2, "both partitions")
        send(hub, 1)
        until(lambda: late.got, "the new events")
    assert {number for _, number in late.got} == {3}
    assert store.list_checkpoints(hub.consumer_group("$Default")) == []


def test_without_checkpoints_partitions_are_shared_and_levels_rise(tmp_path: Path, store: SqliteStore) -> None:
    hub = log(tmp_path, partitions=4, each=1)
    first, second = Reader(), Reader()
    with processor(hub, (store, None), first) as one:
        until(lambda: len(one.partitions) == 4, "all partitions")
        before = one.partitions
        with processor(hub, (store, None), second) as two:
            until(lambda: len(one.partitions) == len(two.partitions) == 2, "an equal share")
            assert not set(one.partitions) & set(two.partitions)
            assert all(level > before[partition] for partition, level in two.partitions.items())


def test_without_checkpoints_there_is_nothing_to_record(tmp_path: Path, store: SqliteStore) -> None:
    hub, reader = log(tmp_path, partitions=1, each=3), Reader()
    with processor(hub, (store, None), reader):
        until(lambda: reader.got, "the events")
        with pytest.raises(UsageError, match="no checkpoint store"):
            reader.contexts["0"].update_checkpoint(replace(hub_event(hub), partition="0"))
    with pytest.raises(ConfigError, match="no checkpoint store"):
        processor(hub, (store, None), reader, checkpoint=ON_STOP)


def hub_event(hub: Any) -> Any:
    from leasehold.model import Event

    return Event(b"", sequence_number=0)


def test_without_checkpoints_a_handler_that_failed_goes_on_after_what_it_did(
    tmp_path: Path, store: SqliteStore
) -> None:
    hub, got = log(tmp_path, partitions=1, each=6), []

    def fail_once(event: Any, context: PartitionContext) -> None:
        got.append(event.sequence_number)
        if got == [0, 1, 2]:
            raise ValueError("once")

    with EventProcessor(hub, (store, None), Handlers(on_event=fail_once), ownership=SETTINGS, delivery=DELIVERY):
        until(lambda: 5 in got, "the last event")
    assert got == [0, 1, 2, 2, 3, 4, 5]


# Checkpoints without balancing


@pytest.mark.parametrize("pair", [False, True])
def test_a_fixed_share_is_worked_on_and_remembered(tmp_path: Path, store: SqliteStore, pair: bool) -> None:
    hub, group = log(tmp_path, partitions=4, each=3), None
    stores = (None, store) if pair else store
    reader = Reader()
    with processor(hub, stores, reader, ownership=fixed("0", "3")) as one:
        until(lambda: len(reader.got) >= 6, "its events")
        assert set(one.partitions) == {"0", "3"}
    assert reader.partitions() == {"0", "3"}
    group = hub.consumer_group("$Default")
    assert {one.partition: one.sequence_number for one in store.list_checkpoints(group)} == {"0": 2, "3": 2}
    assert store.list_ownership(group).records == ()
    again = Reader()
    with processor(hub, stores, again, ownership=fixed("0", "3")):
        send(hub, 1)
        until(lambda: len(again.got) >= 2, "the new events")
    assert sorted(again.got) == [("0", 3), ("3", 3)]
    assert all(level > reader.levels[partition] for partition, level in again.levels.items())


def test_two_with_the_same_share_do_not_take_turns(tmp_path: Path, store: SqliteStore) -> None:
    hub, first, second = log(tmp_path, partitions=2, each=3), Reader(), Reader()
    with processor(hub, store, first, ownership=fixed("0")) as one:
        until(lambda: len(first.got) == 3, "its events")
        with processor(hub, store, second, ownership=fixed("0")) as two:
            until(lambda: two.partitions, "the later one's start")
            level = two.partitions["0"]
            send(hub, 1)
            until(lambda: ("0", 3) in second.got, "the later one's event")
            until(lambda: first.errors, "the earlier one's error")
            until(lambda: not one.partitions, "the earlier one's end")
            send(hub, 1)
            until(lambda: ("0", 4) in second.got, "what came after")
            assert two.partitions == {"0": level}, "it kept what it had"
            assert one.recorded_owner_level(hub.identity, "0") == level
    assert [(type(error), partition) for error, partition in first.errors] == [(AlreadyInUse, "0")]
    assert "with a fixed share or balanced" in str(first.errors[0][0]), "nobody can tell which"
    assert "a share of its own" in str(first.errors[0][0])
    assert ("0", 4) not in first.got
    assert second.errors == []


def test_who_finds_a_higher_level_before_it_claims_again_stays_away(tmp_path: Path, store: SqliteStore) -> None:
    """As after a pause of the process, in which its trust has run out."""
    hub, reader = log(tmp_path, partitions=1, each=3), Reader()
    group = hub.consumer_group("$Default")
    with processor(hub, store, reader, ownership=fixed("0")) as one:
        until(lambda: len(reader.got) == 3, "its events")
        level = one.partitions["0"]
        store.raise_owner_level([Checkpoint(group, "0", 0, level + 5)])
        one._manager.lose("0", level)
        until(lambda: reader.errors, "the error")
        assert one.partitions == {}
    assert store.list_checkpoints(group)[0].owner_level == level + 5


def test_what_does_not_go_together_is_refused(tmp_path: Path, store: SqliteStore) -> None:
    hub, reader = log(tmp_path, partitions=2, each=1), Reader()
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ((None, store), {}, "partitions"),
        ((None, None), {"ownership": fixed("0")}, "stores"),
        ((store, store), {"ownership": fixed("0")}, "stores"),
        (store, {"ownership": FixedPartitions([])}, "partitions"),
        (store, {"ownership": FixedPartitions("0")}, "partitions"),
        (store, {"ownership": FixedPartitions([0])}, "partitions"),  # type: ignore[list-item]
        ((store, None), {"checkpoint": MANUAL}, "checkpoint"),
    ]
    for stores, more, field in cases:
        with pytest.raises(ConfigError, match=field):
            processor(hub, stores, reader, **more)
    one = processor(hub, store, reader, ownership=fixed("7"))
    one.start()
    with pytest.raises(ConfigError, match="the hub has the partitions 0, 1"):
        one.wait(PATIENCE)
