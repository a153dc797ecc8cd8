"""What an attack on the ownership core found, each as the smallest story that showed it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from leasehold.config import OwnershipSettings
from leasehold.errors import AlreadyInUse
from leasehold.model import EARLIEST, OTHERS, Ownership
from leasehold.notices import OwnershipClaimed
from leasehold.operations.resetting import reset_group
from leasehold.processors.events import EventBatch, EventProcessor, PartitionContext
from leasehold.runtime import Runtime
from leasehold.sinks.base import Watermarked
from leasehold.sinks.rules.fence import Watermark
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.options import parse_options
from leasehold.spark.stream.live import LiveStream
from leasehold.store_choice import Stores
from leasehold.stores.base import PipelineBinding, StoreFeatures
from leasehold.stores.memory.store import MemoryStore
from leasehold.stores.server_clock import brought_back
from tests.processor.fleet import GROUP, Hub, Instance, Scene
from tests.processor.plain import (
    DELIVERY,
    SETTINGS,
    Handler,
    LeadingClock,
    TellingStore,
    await_cycles,
    caught_up,
    log,
    send,
)
from tests.waiting import NEVER, PATIENCE, until

S = OwnershipSettings(settle_delay=0)


def run(scene: Scene, seconds: float, *fleet: Instance, stalled: Instance | None = None, step: float = 1.0) -> None:
    end = scene.clock.monotonic() + seconds
    while scene.clock.monotonic() < end:
        scene.clock.advance(step)
        for one in fleet:
            if one is not stalled:
                one.manager.note_progress()
            if scene.clock.monotonic() >= one.manager.due or one.manager.attention.is_set():
                one.manager.attention.clear()
                one.manager.tick()
            if one is not stalled:
                one.drain()


def test_triggers_further_apart_than_the_stall_timeout_read_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = LeadingClock()
    monkeypatch.setattr("leasehold.spark.plan.share.SystemClock", lambda: clock)
    log(tmp_path, partitions=1, each=1000)
    live = LiveStream(
        parse_options(
            {"hub": f"log:///{tmp_path}/hub.db", "ownershipStore": "memory://f1", "checkpointStore": "memory://f1"}
            | {"loadBalancingInterval": "100ms", "partitionExpiration": f"{NEVER:g}s", "requestTimeout": "60s"}
            | {"margin": "100ms", "settleDelay": "0ms", "stallTimeout": f"{NEVER:g}s"}
        )
    )
    last: tuple[ReadRange, ...] = ()
    live.begin(last)
    starts = []
    for _ in range(3):
        live.record_committed(last)
        planned = live.plan(last, 100, None)
        assert planned is not None
        last = planned.ranges
        starts.append(last[0].start)
        # Committed at once; the next trigger comes later than the stall timeout, by its timer and by the clock.
        assert live._watch is not None
        live._watch.function(*live._watch.args)
        clock.advance(NEVER + 1)
        await_cycles(live.manager.notices)
    live.close()
    assert starts == [0, 100, 200]


@pytest.mark.more
def test_suspects_are_served_where_checkpoints_are_rare() -> None:
    """ON_STOP, MANUAL, every(seconds=3600), or one long batch."""
    scene = Scene(8)
    scene.hub.ends = dict.fromkeys(scene.hub.ends, 1000)
    for _ in range(2):
        run(scene, 30, *[scene.start(name, settings=S) for name in "ab"])  # and killed
    fleet = [scene.start(name, settings=S) for name in "ab"]
    run(scene, 4 * 3600, *fleet, step=5.0)
    assert sum(len(one.levels) for one in fleet) == 8


def test_a_suspect_is_taken_by_who_is_free() -> None:
    scene = Scene(4)
    scene.hub.ends = dict.fromkeys(scene.hub.ends, 1000)
    for p in scene.hub.ends:
        scene.ownership.claim_ownership([Ownership(GROUP, p, "", 3, None, failures=2, claimed_at=5)])
    a, b = scene.start("a", settings=S), scene.start("b", settings=S)
    for number in range(720):
        run(scene, 5, a, b, step=5.0)
        for p, hold in b.manager.held().items():
            b.manager.update_checkpoint(p, hold.owner_level, 10 + number)
    assert len(a.levels) + len(b.levels) == 4


def test_another_takes_a_partition_whose_handler_hangs(tmp_path: Path) -> None:
    hub, store = log(tmp_path, partitions=4, each=5), TellingStore()
    clock, flag, go_on, hung = LeadingClock(), threading.Event(), threading.Event(), list[str]()

    def hang(batch: EventBatch, context: PartitionContext) -> None:
        if flag.is_set() and not hung:
            hung.append(batch.partition)
            go_on.wait(PATIENCE)

    theirs, mine = Handler(hang), Handler()
    a, b = (
        EventProcessor(
            hub, store, one.on_events, name=name, ownership=SETTINGS, delivery=DELIVERY, runtime=Runtime(clock=clock)
        )
        for name, one in (("a", theirs), ("b", mine))
    )
    a.start()
    b.start()
    try:
        until(lambda: len(a.partitions) == 2 == len(b.partitions), "both to have their share")
        mine.got.clear()
        flag.set()
        send(hub, 5)
        until(lambda: hung, "it to hang")
        healthy = sorted(set(hub.partition_ids()) - set(hung))
        for _ in range(7):
            clock.step(a, b)
            send(hub, 1, *healthy)
            until(lambda: caught_up(hub, healthy, theirs, mine), "what came to the others")
        until(lambda: hung[0] in mine.got, "the healthy one to take it")  # never
    finally:
        go_on.set()
        a.stop(PATIENCE)
        b.stop(PATIENCE)


def test_who_cannot_reach_the_hub_is_given_no_share() -> None:
    scene = Scene(4)
    a = scene.running("a", settings=S)
    cut = Hub(4)
    cut.away = True
    b = Instance(cut, scene.clock, scene.ownership, scene.checkpoints, name="b", settings=S)
    run(scene, 60, a, b)
    a.manager.relinquish()
    c = scene.start("c", settings=S)
    run(scene, 600, b, c)
    assert len(c.levels) == 4


def test_who_cannot_reach_the_checkpoints_asks_for_nothing() -> None:
    scene = Scene(4)
    a = scene.running("a", settings=S)
    b = scene.start("b", settings=S)
    b.checkpoints.away = True
    run(scene, 600, a, b)
    assert len(a.levels) == 4


def test_nobody_takes_what_a_reset_has_claimed() -> None:
    scene = Scene(4)
    scene.hub.ends = dict.fromkeys(scene.hub.ends, 100)
    a = scene.running("a", settings=S)
    for p, hold in a.manager.held().items():
        a.manager.update_checkpoint(p, hold.owner_level, 99)
    a.manager.relinquish()
    x = scene.start("x", settings=OwnershipSettings())

    class Sink(Watermarked):
        def __init__(self) -> None:
            self.marks = {p: Watermark(99, 1) for p in scene.hub.ends}

        def watermarks(self, hub: str) -> dict[str, Watermark]:
            x.manager.tick()  # announces itself
            return dict(self.marks)

        def raise_owner_levels(self, hub: str, levels: Mapping[str, int]) -> dict[str, Watermark]:
            self.marks |= {p: Watermark(99, level) for p, level in levels.items()}
            return dict(self.marks)

        def check_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, is_part: bool = False) -> None:
            pass

        def set_watermarks(self, hub: str, marks: Mapping[str, Watermark], *, anew: bool = False) -> None:
            scene.clock.advance(1)
            x.manager.tick()
            self.marks.update(marks)

    sink = Sink()
    binding = PipelineBinding("p", "s")
    stores = Stores(scene.ownership, scene.checkpoints)
    reset_group(scene.hub, GROUP, stores, sink, binding, to={OTHERS: EARLIEST}, expiration=30)
    assert {one.sequence_number for one in scene.progress().values()} == {-1}


def test_presence_after_the_clock_of_the_server_stepped_back() -> None:
    scene = Scene(6)

    class Clock:
        offset = 10_000.0

        def monotonic(self) -> float:
            return scene.clock.monotonic() + self.offset

        def wall(self) -> float:
            return 0.0

    class Server(MemoryStore):
        def list_ownership(self, group):  # type: ignore[no-untyped-def]
            return brought_back(super().list_ownership(group))

    clock = Clock()
    scene.ownership = Server(clock)
    a = scene.start("a", settings=dataclasses.replace(S, maximum_partitions=1))
    b = scene.start("b", settings=S)
    run(scene, 100, a, b)
    clock.offset -= 3600
    run(scene, 60, a, b)
    scene.hub.ends |= {str(p): 0 for p in range(6, 12)}
    run(scene, 600, a, b)
    assert (len(a.levels), len(b.levels)) == (1, 11)


def test_a_stall_in_a_weighted_fleet_moves_no_more_than_needed() -> None:
    scene = Scene(24)
    fleet = [
        scene.start(n, settings=dataclasses.replace(S, capacity=c)) for n, c in zip("abcd", (1, 1, 5, 5), strict=True)
    ]
    run(scene, 120, *fleet)
    assert [len(one.levels) for one in fleet] == [2, 2, 10, 10]
    for one in fleet:
        one.take()
    run(scene, 900, *fleet, stalled=fleet[3])
    claims = [n for one in fleet for n in one.take() if isinstance(n, OwnershipClaimed)]
    assert len(claims) == 10


def test_balanced_takes_the_healthy_one_before_suspects() -> None:
    for seed in range(6):
        scene = Scene(16)
        scene.hub.ends = dict.fromkeys(scene.hub.ends, 1000)
        for _ in range(seed):
            scene.start("x")
        for p in scene.hub.ends:
            scene.ownership.claim_ownership(
                [Ownership(GROUP, p, "", 3, None, failures=0 if p == "15" else 9, claimed_at=1000)]
            )
        a = scene.start("a", settings=dataclasses.replace(S, strategy="balanced"))
        run(scene, 15, a)
        assert "15" in a.levels, seed


def test_a_maximum_holds_after_a_restart_too() -> None:
    scene = Scene(10)
    scene.running("a", settings=S)
    a = scene.start("a", settings=dataclasses.replace(S, maximum_partitions=2))
    run(scene, 60, a)
    assert len(a.levels) == 2


def test_a_pipeline_that_crashed_makes_room_where_there_is_no_clock() -> None:
    scene = Scene(4, StoreFeatures(shared=False, own_clock=False))
    scene.start("q", settings=S, pipeline="q").settle()
    scene.clock.advance(3600)
    for _ in range(3):  # its supervisor starts it again and again
        p = scene.start("p", settings=S, pipeline="p")
        for _ in range(60):
            scene.clock.advance(1)
            p.manager.tick()
        try:
            assert len(p.levels) == 4
            return
        except AlreadyInUse:
            scene.clock.advance(600)
    pytest.fail("refused for ever")


def test_what_was_let_go_in_order_is_not_blamed() -> None:
    scene = Scene(2)
    a = scene.running("a", settings=S)
    a.manager.let_go("0", 1)
    a.manager.relinquish(dict.fromkeys("01", "a ended in the middle of a batch"))
    assert {p: record.failures for p, record in scene.records().items()} == {"0": 0, "1": 1}


def test_the_error_is_kept_when_the_last_renewals_reply_was_lost() -> None:
    scene = Scene(2)
    scene.hub.ends = dict.fromkeys(scene.hub.ends, 1000)
    a = scene.running("a", settings=S)
    scene.clock.advance(10)
    a.ownership.lose_reply("renew_ownership")
    a.manager.tick()
    a.manager.let_go("0", 1, "event 7 cannot be read")
    a.manager.attention.clear()
    a.manager.tick()
    assert a.manager.attention.is_set(), "the next cycle comes at once"
    a.manager.tick()
    assert scene.records()["0"].failures == 1


def test_after_an_outage_an_owner_has_the_time_to_hear_the_ask() -> None:
    scene = Scene(2)
    a = scene.running("a", settings=S)
    b = scene.start("b", settings=S)
    b.settle()
    assert scene.asks()
    a.ownership.away = b.ownership.away = True
    run(scene, 31, a, b)
    a.ownership.away = b.ownership.away = False
    b.manager.tick()
    assert b.levels == {}


def test_a_late_starter_does_not_take_its_successors_partitions() -> None:
    scene = Scene(4)
    old = scene.start("a", settings=S)
    old.ownership.away = True
    run(scene, 60, old)
    new = scene.start("a", settings=S)
    run(scene, 60, new)
    old.ownership.away = False
    run(scene, 3, old, new)
    assert len(new.levels) >= 2
