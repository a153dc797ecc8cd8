"""The metrics and the health of an instance, out of its notices: of a plain processor, and of hand-made notices."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leasehold.clock import Clock
from leasehold.counts import Counts
from leasehold.errors import ConfigError, StoreUnavailable
from leasehold.hubs.log.hub import LogHub
from leasehold.installation import command_for
from leasehold.listening import Address
from leasehold.metrics import serve_metrics
from leasehold.metrics.exposition import text_of
from leasehold.metrics.health import InstanceHealth
from leasehold.metrics.instance import InstanceMetrics
from leasehold.metrics.instance_server import MetricsServer
from leasehold.model import ConsumerGroup, OwnershipListing
from leasehold.notices import (
    BatchDone,
    BatchRetried,
    CheckpointUpdated,
    CycleBegun,
    CycleEnded,
    CycleFailed,
    EventsLost,
    LossReason,
    Notices,
    OwnershipClaimed,
    OwnershipLost,
    OwnershipRelinquished,
    StoreCalled,
    TableApplied,
    WorkStalled,
)
from leasehold.processors.events import EACH_BATCH, EventBatch, EventProcessor, PartitionContext
from leasehold.runtime import Runtime
from leasehold_testkit.clock import ManualClock
from tests.metrics.groups import samples
from tests.metrics.scraper import get
from tests.processor.plain import DELIVERY, SETTINGS, Handler, LeadingClock, TellingStore, caught_up, log, send
from tests.waiting import NEVER, PATIENCE, until


class Scene:
    """Notices that a test makes, and what is served of them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.notices = Notices()
        self.metrics = InstanceMetrics(self.clock)
        self.end = self.metrics.watch(self.notices)
        self.health = InstanceHealth(self.notices, self.clock)

    def cycle(self, *held: str, settled: bool = True, failed: bool = False, stalled: bool = False) -> None:
        until_then = self.clock.monotonic() + 20
        holds = dict.fromkeys(held, until_then)
        self.notices.publish(
            CycleEnded("a/1", 0.1, 10.0, holds, 4, settled=settled, failed=failed, stalled=stalled, stall_timeout=30.0)
        )

    def told(self) -> dict[str, float]:
        found = samples(text_of(self.metrics.registry.collect()))
        return {series.removeprefix("leasehold_instance_"): value for series, value in found.items()}

    def held(self) -> set[str]:
        return {series.split('"')[1] for series in self.told() if series.startswith("partition_owner_level")}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_everything_that_is_known_to_come_begins_at_zero(scene: Scene) -> None:
    told = scene.told()
    for series in (
        "batches_total",
        "events_total",
        'claims_total{outcome="lost"}',
        'partitions_lost_total{reason="stalled"}',
        'cycles_total{outcome="failed"}',
        'batch_phase_seconds_count{phase="write"}',
        'store_errors_total{operation="renew_ownership"}',
    ):
        assert told[series] == 0, series
    assert not any("trust_left" in series for series in told)


def test_what_notices_say_is_counted(scene: Scene) -> None:
    publish = scene.notices.publish
    publish(BatchDone(100, {"plan": 0.01, "compute": 2.0, "write": 0.5}, parts={"read": 0.7, "transform": 1.3}))
    publish(
        TableApplied("flights", Counts(applied=97, rejected=3, used=100, replayed=5), 0.5, {"stage": 0.1, "merge": 0.2})
    )
    publish(BatchRetried("away"))
    publish(StoreCalled("claim_ownership", 0.002, 5, 3))
    publish(StoreCalled("renew_ownership", 0.002, 8, 8))
    publish(StoreCalled("update_checkpoints", 0.002, 4, 3))
    publish(StoreCalled("renew_ownership", 3.0, 8, 0, "StoreUnavailable"))
    publish(OwnershipLost("3", 1, LossReason.LAPSED))
    publish(OwnershipRelinquished("4", 1, "b/1"))
    publish(EventsLost("0", 10, 15))
    scene.cycle(failed=True)
    told = scene.told()
    expected = {
        "batches_total": 1,
        "events_total": 100,
        'batch_retries_total{reason="away"}': 1,
        'batch_phase_seconds_sum{phase="compute"}': 2.0,
        'batch_part_seconds_sum{part="plan"}': 0.01,
        'batch_part_seconds_sum{part="read"}': 0.7,
        'batch_part_seconds_sum{part="transform"}': 1.3,
        'batch_part_seconds_sum{part="merge"}': 0.2,
        'table_rows_total{outcome="applied"}': 97,
        'table_rows_total{outcome="rejected"}': 3,
        'table_events_total{outcome="used"}': 100,
        'table_events_total{outcome="replayed"}': 5,
        'table_events_apart_total{outcome="retried"}': 0,
        'table_transaction_seconds_sum{table="flights"}': 0.5,
        'claims_total{outcome="won"}': 3,
        'claims_total{outcome="lost"}': 2,
        "renewals_total": 8,
        'checkpoints_total{outcome="accepted"}': 3,
        'checkpoints_total{outcome="refused"}': 1,
        'store_call_seconds_count{operation="renew_ownership"}': 2,
        'store_errors_total{operation="renew_ownership"}': 1,
        'partitions_lost_total{reason="lapsed"}': 1,
        'partitions_given_up_total{to="successor"}': 1,
        "lost_events_total": 5,
        'cycles_total{outcome="failed"}': 1,
        "last_batch_timestamp_seconds": scene.clock.wall(),
    }
    assert {series: told[series] for series in expected} == expected


def test_nothing_is_stale_after_a_rebalance_and_no_hold_outlives_its_trust(scene: Scene) -> None:
    publish = scene.notices.publish
    for partition in "012":
        publish(OwnershipClaimed(partition, 5, ""))
    assert scene.held() == {"0", "1", "2"}
    scene.cycle("0", "1", "2")
    publish(CheckpointUpdated("0", 5, 17))
    publish(CheckpointUpdated("1", 4, 99))  # of a level that is not held
    told = scene.told()
    assert told['partition_checkpoint_sequence_number{partition="0"}'] == 17
    assert 'partition_checkpoint_sequence_number{partition="1"}' not in told
    assert (told["partitions"], told["trust_left_seconds"]) == (3, 20)
    publish(OwnershipLost("0", 5, LossReason.TAKEN))
    publish(OwnershipRelinquished("1", 5))
    assert scene.held() == {"2"}
    assert not any('"0"' in series or '"1"' in series for series in scene.told())
    scene.clock.advance(20)  # the dispatch thread hangs
    assert (scene.held(), scene.told()["partitions"]) == (set(), 0)


def test_an_instance_that_has_ended_holds_nothing(scene: Scene) -> None:
    scene.notices.publish(OwnershipClaimed("0", 5, ""))
    scene.end()
    scene.notices.publish(BatchDone(1, {}))
    assert (scene.held(), scene.told()["batches_total"]) == (set(), 0)


# health


def said(scene: Scene) -> tuple[bool, bool]:
    now = scene.health.now()
    assert bool(now.why) == (not now.ready)
    return now.alive, now.ready


def test_alive_and_not_ready_until_it_holds_its_share(scene: Scene) -> None:
    assert said(scene) == (True, False)
    scene.cycle(settled=False)
    assert said(scene) == (True, False)
    scene.cycle("0")
    assert said(scene) == (True, True)


def test_a_rebalance_and_an_outage_are_alive(scene: Scene) -> None:
    """quarkus#8922, smallrye#866: pods were restarted by a rebalance."""
    scene.cycle("0")
    scene.cycle("0", settled=False)
    assert said(scene) == (True, False)
    scene.notices.publish(CycleFailed(StoreUnavailable("the store is away")))
    scene.cycle("0", settled=False, failed=True)
    assert said(scene) == (True, False)
    assert "the store is away" in scene.health.now().why
    scene.cycle("0")
    assert said(scene) == (True, True)


def test_work_that_hangs_is_not_alive_whichever_partition_it_is(scene: Scene) -> None:
    """racecar#309: one stuck partition passed a check of the whole process."""
    scene.cycle("0", "1")
    scene.notices.publish(WorkStalled(("1",)))
    assert said(scene) == (False, False)
    assert "partitions 1" in scene.health.now().why
    scene.notices.publish(WorkStalled(()))
    assert said(scene) == (True, True)
    scene.cycle(stalled=True)
    assert said(scene) == (False, False)


def test_a_first_cycle_that_hangs_is_not_alive(scene: Scene) -> None:
    scene.clock.advance(1_000)  # served long before the instance is started
    assert scene.health.now().alive
    scene.notices.publish(CycleBegun("a/1", 30.0))
    scene.clock.advance(29)
    assert scene.health.now().alive
    scene.clock.advance(2)
    answer = scene.health.now()
    assert (answer.alive, answer.ready) == (False, False)
    assert answer.why == "the first dispatch cycle has not ended for 31 s"
    scene.cycle("0")
    assert said(scene) == (True, True)


def test_a_dispatch_thread_that_hangs_is_not_alive(scene: Scene) -> None:
    scene.cycle("0")
    scene.clock.advance(40)
    assert said(scene) == (True, True)
    scene.clock.advance(1)
    assert said(scene) == (False, False)


# a real instance


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return log(tmp_path, partitions=2, each=25)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    event.set()
    yield event
    event.set()


def test_a_processor_is_served_while_it_runs(hub: LogHub, gate: threading.Event) -> None:
    store = TellingStore()

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        assert gate.wait(PATIENCE)

    def processor(name: str) -> EventProcessor:
        return EventProcessor(
            hub, store, on_events, name=name, ownership=SETTINGS, delivery=replace(DELIVERY, checkpoint=EACH_BATCH)
        )

    first, second = processor("a"), processor("b")
    with serve_metrics(first.notices, listen="127.0.0.1:0") as server:

        def told(series: str) -> float | None:
            return samples(get(f"{server.url}/metrics")[1]).get(f"leasehold_instance_{series}")

        assert get(f"{server.url}/livez") == (200, "ok\n")
        assert get(f"{server.url}/readyz")[0] == 503
        with first:
            until(lambda: told("events_total") == 50, "all events to be counted")
            until(lambda: get(f"{server.url}/readyz")[0] == 200, "it to be ready")
            assert told("partitions") == 2
            assert (told("trust_left_seconds") or 0) > 0
            assert (told("renewals_total") or 0) >= 2
            with second:
                until(lambda: told("partitions") == 1, "one to be handed over")
                assert told('partitions_given_up_total{to="successor"}') == 1
            until(lambda: told("partitions") == 2, "it to come back")
            store.away.set()
            until(lambda: (told('store_errors_total{operation="renew_ownership"}') or 0) > 0, "errors to be counted")
            until(lambda: get(f"{server.url}/readyz")[0] == 503, "it to be ready no longer")
            assert "cycle failed" in get(f"{server.url}/readyz")[1]
            assert get(f"{server.url}/livez")[0] == 200
            store.away.clear()
            until(lambda: get(f"{server.url}/readyz")[0] == 200, "it to be ready again")
            [page] = json.loads(get(f"{server.url}/status")[1])
            assert (page["ownerId"], page["partitionCount"]) == (str(first.owner_id), 2)
            assert set(page["partitions"]) == {"0", "1"}
        assert told("partitions") == 0


def served(processor: EventProcessor, clock: Clock) -> MetricsServer:
    return MetricsServer([processor.notices], Address("127.0.0.1", 0), clock=clock)


def test_a_first_cycle_whose_store_hangs_fails_the_liveness_probe(hub: LogHub, gate: threading.Event) -> None:
    inside, clock = threading.Event(), LeadingClock()

    class Hanging(TellingStore):
        def list_ownership(self, group: ConsumerGroup) -> OwnershipListing:
            inside.set()
            assert gate.wait(PATIENCE)
            return super().list_ownership(group)

    gate.clear()
    processor = EventProcessor(
        hub, Hanging(), lambda batch, context: None, ownership=SETTINGS, delivery=DELIVERY, runtime=Runtime(clock=clock)
    )
    with served(processor, clock) as server, processor:
        assert inside.wait(PATIENCE)
        assert get(f"{server.url}/livez")[0] == 200
        clock.advance(NEVER + 1)
        status, why = get(f"{server.url}/livez")
        assert (status, why.startswith("the first dispatch cycle has not ended for ")) == (503, True)
        gate.set()
        until(lambda: get(f"{server.url}/livez")[0] == 200, "it to be alive")


def test_a_handler_that_hangs_past_the_stall_timeout_fails_the_liveness_probe(
    hub: LogHub, gate: threading.Event
) -> None:
    stuck, clock = threading.Event(), LeadingClock()

    def hang(batch: EventBatch, context: PartitionContext) -> None:
        if batch.partition == "1":
            stuck.set()
            assert gate.wait(PATIENCE)

    handler = Handler(hang)
    processor = EventProcessor(
        hub,
        TellingStore(),
        handler.on_events,
        ownership=SETTINGS,
        delivery=replace(DELIVERY, checkpoint=EACH_BATCH),
        runtime=Runtime(clock=clock),
    )
    with served(processor, clock) as server:
        gate.clear()
        with processor:
            assert stuck.wait(PATIENCE)
            for _ in range(7):
                clock.step(processor)
                send(hub, 1, "0")
                until(lambda: caught_up(hub, ["0"], handler), "the other partition")
            until(lambda: get(f"{server.url}/livez")[0] == 503, "the probe to fail")
            assert "partitions 1" in get(f"{server.url}/livez")[1]
            gate.set()
            until(lambda: get(f"{server.url}/livez")[0] == 200, "the probe to pass")


def test_a_port_in_use_names_the_setting() -> None:
    with (
        serve_metrics(Notices(), listen="127.0.0.1:0") as server,
        pytest.raises(ConfigError, match=r"metrics\.listen = '127\.0\.0\.1:\d+': cannot be listened at"),
    ):
        MetricsServer([Notices()], Address.parse(server.url.removeprefix("http://")), field="metrics.listen")


ALONE = """
import sys
sys.modules["prometheus_client"] = None
import leasehold.spark.pipeline, leasehold.processors.events, leasehold.metrics
assert not [name for name in sys.modules if name.startswith("leasehold.metrics.")]
try:
    leasehold.metrics.serve_metrics
except leasehold.MissingDependency as error:
    print(error)
"""


@pytest.mark.more
def test_nothing_that_works_imports_an_exporter_and_the_extra_is_named() -> None:
    ran = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert command_for("metrics") in ran.stdout
