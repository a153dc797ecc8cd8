"""What a real Kafka takes away under a reader: retention, a topic made anew, an end that went back.

Messages are large, so that what a reader has fetched ahead ends well before the end of the topic.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from leasehold.config import OwnershipSettings
from leasehold.errors import DataLoss
from leasehold.hubs import open_hub
from leasehold.notices import EventsLost, Notices
from leasehold.processor import DeliverySettings, EventBatch, EventProcessor, PartitionContext
from tests.faults.instance import until
from tests.peers.kafka_broker import PATIENCE, Cluster

pytestmark = [pytest.mark.peers, pytest.mark.timeout(240)]

COUNT, LARGE, LEFT = 80, 500_000, 75
QUICK = OwnershipSettings(load_balancing_interval=0.5, partition_expiration=6.0, request_timeout=1.0, margin=0.3)


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
        on_events,
        on_error=lambda error, partition: errors.append(error),
        ownership=QUICK,
        delivery=DeliverySettings(max_batch=3, prefetch=7, fail_on_data_loss=fails),
        notices=notices,
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
