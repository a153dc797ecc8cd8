"""A real broker that dies and comes back: who runs rides it out, and who starts meanwhile waits and says so.

The broker is killed and started again at each of the moments at which a start asks it something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from leasehold.config import OwnershipSettings
from leasehold.hubs import open_hub
from leasehold.notices import Notices, StartDelayed
from leasehold.processors.events import EventBatch, EventProcessor, Handlers, PartitionContext
from leasehold.runtime import Runtime
from leasehold_testkit.contracts.hubs.fixtures import numbered
from tests.faults.fleet import Fleet
from tests.faults.instance import Instance
from tests.peers.kafka_broker import Cluster
from tests.peers.kafka_kind import RealKafka
from tests.waiting import NEVER, PATIENCE, until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

PARTITIONS = 3
QUICK = OwnershipSettings(load_balancing_interval=0.5, partition_expiration=NEVER)


def test_the_plain_processor(one_broker: Cluster, tmp_path: Path) -> None:
    url = one_broker.url(one_broker.create("outage-plain", PARTITIONS))
    hub = open_hub(url)
    seen: list[tuple[str, int]] = []
    errors: list[str] = []
    delayed: list[StartDelayed] = []
    second: list[EventProcessor] = []
    notices = Notices()
    notices.subscribe(delayed.append, StartDelayed)

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        seen.extend((batch.partition, event.sequence_number) for event in batch)

    def on_error(error: BaseException, partition: str | None) -> None:
        errors.append(f"{type(error).__name__}: {error}")

    def processor(name: str, notices: Notices | None = None) -> EventProcessor:
        store = f"sqlite:///{tmp_path}/store.db"
        return EventProcessor(
            url,
            store,
            Handlers(on_events, on_error=on_error),
            name=name,
            ownership=QUICK,
            runtime=Runtime() if notices is None else Runtime(notices=notices),
        )

    def sent(each: int) -> None:
        for partition in map(str, range(PARTITIONS)):
            hub.send(numbered(each), partition=partition)

    def all_seen(each: int) -> Callable[[], bool]:
        return lambda: len(seen) >= PARTITIONS * each

    sent(50)
    with processor("first") as first:
        until(all_seen(50), "the first events")
        with one_broker.away():
            starting = threading.Thread(target=lambda: second.append(processor("second", notices)))
            starting.start()
            until(lambda: delayed, "the second one to say that it waits")
            until(lambda: errors, "the first one to notice")
        starting.join(PATIENCE)
        assert second, "a start that meets a broker which is away waits for it"
        assert "Check that the brokers can be reached" in str(delayed[0].error)
        assert len(delayed) == 1
        with second[0]:
            until(lambda: second[0].partitions and first.partitions, "both to have a share")
            sent(50)
            until(all_seen(100), "the events after it")
    assert sorted(seen) == [(str(p), number) for p in range(PARTITIONS) for number in range(100)], "each once"
    assert {error.partition(":")[0] for error in errors} == {"HubUnavailable"}
    hub.close()


@pytest.fixture
def hub_kind(one_broker: Cluster) -> Callable[[Path], RealKafka]:
    return lambda folder: RealKafka(one_broker, environment={"LEASEHOLD_KAFKA_REQUEST_TIMEOUT": "5s"})


def test_leasehold_run(new_fleet: Callable[..., Fleet]) -> None:
    """The broker dies while blue waits for its Spark, having opened the topic, is away when green starts, and dies
    again when both run."""
    fleet = new_fleet(mode="append")
    fleet.send(100)
    blue = fleet.launch("blue")
    fleet.until(lambda: "starting Spark" in blue.said(), "blue to start Spark")
    with fleet.kind.away():
        green = fleet.launch("green")
        fleet.until(lambda: _waits(green) and _waits(blue), "both to wait")
    fleet.wait_owned(blue=2, green=2)
    fleet.wait_consumed()
    with fleet.kind.away():
        fleet.until(lambda: all("while the hub is away" in one.said() for one in (blue, green)), "both to notice")
    fleet.send(100)
    fleet.wait_consumed()
    fleet.check_table()
    for instance in (blue, green):
        instance.stop()


def _waits(instance: Instance) -> bool:
    """Whether it says so, or has ended."""
    return "Waiting for it" in instance.said() or instance.process.poll() is not None
