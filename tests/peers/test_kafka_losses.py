"""What a real Kafka takes away under a reader: retention, a topic made anew, an end that went back.

Messages are large, so that what a reader has fetched ahead ends well before the end of the topic.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from leasehold.cli.status import describe
from leasehold.config import OwnershipSettings
from leasehold.errors import DataLoss, EndWentBack, HubError
from leasehold.hubs import Hub, open_hub
from leasehold.model import Checkpoint
from leasehold.notices import EventsLost, Notices
from leasehold.operations.progress import group_progress
from leasehold.processors.events import DeliverySettings, EventBatch, EventProcessor, Handlers, PartitionContext
from leasehold.runtime import Runtime
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.reading import read_ranges, shared_hub
from leasehold.stores.sqlite.store import SqliteStore
from tests.peers.kafka_broker import Cluster
from tests.waiting import NEVER, PATIENCE, until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

COUNT, LARGE, LEFT = 80, 500_000, 75
QUICK = OwnershipSettings(load_balancing_interval=0.5, partition_expiration=NEVER)


@pytest.fixture
def topic(one_broker: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("_", "-").replace("[", "-").rstrip("]")
    yield one_broker.create(name, 1, {"max.message.bytes": "2000000"})
    one_broker.delete(name)


def fill(cluster: Cluster, topic: str, count: int, size: int = LARGE, what: str = "") -> None:
    """Append messages to partition 0."""
    producer = Producer({"bootstrap.servers": cluster.servers, "log_level": 0})
    for number in range(count):
        producer.produce(topic, f"{what}{number} ".encode().ljust(size), partition=0)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


@pytest.mark.parametrize("rows", [3, 4])
def test_no_chunk_reaches_across_what_retention_has_removed(one_broker: Cluster, topic: str, rows: int) -> None:
    fill(one_broker, topic, COUNT)
    hub = open_hub(one_broker.url(topic))
    batches = hub.read("0", 0, COUNT, batch_rows=rows, columns=["sequenceNumber"])
    read = next(batches).column(0).to_pylist()
    one_broker.trim(topic, 0, LEFT)
    found = [batch.column(0).to_pylist() for batch in batches]
    for numbers in found:
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "the gap is between two batches"
    read += [number for numbers in found for number in numbers]
    gone = set(range(COUNT)) - set(read)
    assert gone, "the reader had fetched everything ahead"
    assert gone == set(range(min(gone), LEFT))
    hub.close()


@pytest.mark.parametrize("fails", [True, False])
def test_retention_that_overtakes_a_running_processor_is_a_loss(
    one_broker: Cluster, topic: str, tmp_path: Path, fails: bool
) -> None:
    fill(one_broker, topic, COUNT)
    seen: list[int] = []
    errors: list[BaseException] = []
    lost: list[EventsLost] = []
    notices = Notices()
    notices.subscribe(lost.append, EventsLost)
    begun, go_on = threading.Event(), threading.Event()

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        seen.extend(event.sequence_number for event in batch)

    with EventProcessor(
        one_broker.url(topic),
        f"sqlite:///{tmp_path}/store.db",
        Handlers(on_events, on_error=lambda error, partition: errors.append(error)),
        ownership=QUICK,
        delivery=DeliverySettings(max_batch=3, prefetch=7, fail_on_data_loss=fails),
        runtime=Runtime(notices=notices),
    ):
        assert begun.wait(PATIENCE)
        one_broker.trim(topic, 0, LEFT)
        go_on.set()
        until(lambda: errors or COUNT - 1 in seen, "the loss to be noticed, or all to be read")
    if fails:
        (loss,) = (error for error in errors if isinstance(error, DataLoss))
        assert loss.end == LEFT
        assert seen == list(range(loss.start)), "nothing behind the gap is delivered"
    else:
        (told,) = lost
        assert told.end == LEFT
        assert seen == [*range(told.start), *range(LEFT, COUNT)]


def test_a_gap_with_nothing_behind_it_is_passed_by_the_checkpoint(
    one_broker: Cluster, topic: str, tmp_path: Path
) -> None:
    fill(one_broker, topic, 20, 10)
    one_broker.trim(topic, 0, 20)
    lost: list[EventsLost] = []
    notices = Notices()
    notices.subscribe(lost.append, EventsLost)
    seen: list[int] = []
    store = SqliteStore(tmp_path / "store.db")
    with closing(open_hub(one_broker.url(topic))) as hub:
        group = hub.consumer_group("$Default")
        store.update_checkpoints([Checkpoint(group, "0", 4, 0)])
        with EventProcessor(
            hub,
            store,
            lambda batch, context: seen.extend(event.sequence_number for event in batch),
            ownership=QUICK,
            delivery=DeliverySettings(fail_on_data_loss=False),
            runtime=Runtime(notices=notices),
        ):
            until(lambda: [one.next_sequence_number for one in store.list_checkpoints(group)] == [20], "the checkpoint")
            fill(one_broker, topic, 3, 10)
            until(lambda: len(seen) >= 3, "what follows")
    assert seen == [20, 21, 22]
    assert lost == [EventsLost("0", 5, 20)]


def made_anew(cluster: Cluster, topic: str, count: int) -> None:
    """Delete the topic and make it again, with more in it than it had."""
    cluster.delete(topic)
    cluster.create(topic, 1)
    fill(cluster, topic, count, 10, "new ")


def test_a_range_of_a_topic_that_was_made_anew_is_refused(one_broker: Cluster, topic: str) -> None:
    fill(one_broker, topic, 100, 10, "old ")
    hub = open_hub(one_broker.url(topic))
    assert sum(batch.num_rows for batch in hub.read("0", 0, 100)) == 100  # and the reader waits at 100
    made_anew(one_broker, topic, 300)
    with pytest.raises(HubError, match="deleted and made anew"):
        list(hub.read("0", 100, 200))
    with pytest.raises(HubError, match="deleted and made anew"):
        list(hub.read("0", 50, 200, columns=["sequenceNumber"]))
    until(lambda: _is_refused(lambda: hub.partition_properties(["0"])), "the ends to be refused")
    hub.close()


def test_a_worker_that_still_has_the_old_topic_reads_no_range_of_the_new_one(one_broker: Cluster, topic: str) -> None:
    """As tasks read in a worker that Spark keeps: planned on the old topic or on the new one."""
    fill(one_broker, topic, 100, 10, "old ")
    old = open_hub(one_broker.url(topic))

    def task(hub: Hub, start: int, end: int) -> list[dict[str, object]]:
        batches = read_ranges(
            hub.url,
            [ReadRange("0", start, end, 1)],
            ["body", "hub"],
            batch_rows=1_000,
            fail_on_data_loss=True,
            identity=hub.identity,
        )
        return [row for batch in batches for row in batch.to_pylist()]

    try:
        assert len(task(old, 0, 100)) == 100
        made_anew(one_broker, topic, 300)
        new = open_hub(one_broker.url(topic))
        assert new.identity != old.identity
        with pytest.raises(HubError, match="deleted and made anew"):
            task(old, 100, 200)
        rows = task(new, 50, 200)
        assert {row["hub"] for row in rows} == {new.identity}
        assert all(str(row["body"]).startswith("b'new") for row in rows)
        shared_hub(new.url, new.identity).close()
        shared_hub(old.url, old.identity).close()
        new.close()
    finally:
        shared_hub.cache_clear()
    with pytest.raises(HubError, match="deleted and made anew"):
        task(old, 0, 100)  # in a fresh worker
    old.close()


def test_a_running_processor_delivers_nothing_of_a_topic_that_was_made_anew(
    one_broker: Cluster, topic: str, tmp_path: Path
) -> None:
    fill(one_broker, topic, 100, 10, "old ")
    seen: list[bytes] = []
    errors: list[str] = []

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        seen.extend(event.body or b"" for event in batch)

    with EventProcessor(
        one_broker.url(topic),
        f"sqlite:///{tmp_path}/store.db",
        Handlers(on_events, on_error=lambda error, partition: errors.append(str(error))),
        ownership=OwnershipSettings(settle_delay=0),  # ten seconds between two looks at the list of partitions
    ):
        until(lambda: len(seen) >= 100, "the old events")
        made_anew(one_broker, topic, 3_000)
        until(lambda: any("deleted and made anew" in error for error in errors), "the new topic to be noticed")
    assert [body for body in seen if not body.startswith(b"old")] == []


def _is_refused(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except HubError as error:
        return "made anew" in str(error)
    return False


def test_an_unclean_election_is_an_error_of_who_had_read_more(three_brokers: Cluster, tmp_path: Path) -> None:
    """The end goes from 600 to 300, as `status` shows, and grows beyond what was read: the reader is told even so."""
    cluster, topic = three_brokers, "unclean"
    cluster.create(topic, 1, {"min.insync.replicas": "1"}, replicas=[1, 2])
    fill(cluster, topic, 300, 10)
    seen: list[int] = []
    errors: list[BaseException] = []

    def on_events(batch: EventBatch, context: PartitionContext) -> None:
        seen.extend(event.sequence_number for event in batch)

    with EventProcessor(
        cluster.url(topic),
        f"sqlite:///{tmp_path}/store.db",
        Handlers(on_events, on_error=lambda error, partition: errors.append(error)),
        ownership=QUICK,
        delivery=DeliverySettings(max_batch=1_000, prefetch=2_000),
    ):
        cluster.brokers[2].kill()
        until(lambda: cluster.in_sync(topic, 0) == [1], "broker 2 to be out of sync")
        fill(cluster, topic, 300, 10)
        until(lambda: len(seen) >= 600, "all to be read")
        cluster.brokers[1].kill()
        cluster.brokers[2].start()
        until(lambda: _leads(cluster, topic, 2), "broker 2 to lead")
        lost = "the hub ends at 300, before what was read: it has lost acknowledged events"
        until(lambda: lost in _remark(cluster, topic, tmp_path / "store.db"), "the status to show it")
        fill(cluster, topic, 900, 10)
        until(lambda: any(isinstance(error, EndWentBack) for error in errors), "the loss to be noticed")
    assert seen == list(range(600)), "nothing of the new events passes for what follows"
    cluster.delete(topic)
    cluster.start(1)


def _remark(cluster: Cluster, topic: str, path: Path) -> str:
    """What `leasehold status` says of partition 0; nothing where the brokers do not answer."""
    store = SqliteStore(path)
    with closing(open_hub(cluster.url(topic))) as hub, contextlib.suppress(HubError):
        shown = describe(topic, group_progress(hub, hub.consumer_group("$Default"), store, store, 6.0)).table
        assert shown is not None
        return str(shown.records()[0]["remark"])
    return ""


def _leads(cluster: Cluster, topic: str, node: int) -> bool:
    """Whether a broker leads partition 0. Where nobody does, an unclean election is asked for."""
    with contextlib.suppress(KafkaException, TimeoutError):
        cluster.elect(topic, [0], unclean=True)
    return cluster.leader(topic, 0) == node
