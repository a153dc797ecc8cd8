"""The sides of `hubs.py`, each in a process of its own: `python hub_sides.py SIDE URL EVENTS FOLDER`.

It runs one turn for every line that it is given, and answers each with a line of JSON: the seconds from the first event
to the last, and the CPU seconds of this process and its children (Spark's Java and Python workers) in the whole turn,
connecting and taking partitions included. Handlers only count.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil

from leasehold.model import Event

_PATIENCE = 300
KEYS, FEW_KEYS = 2_000, 200


@dataclasses.dataclass(frozen=True)
class Turn:
    """What a turn took, for a side whose figures are of a part of it."""

    seconds: float
    events: int
    cpu: float


class Count:
    """Counts events up to `total`, and keeps the time from the first to the last."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._lock = threading.Lock()
        self._count = 0
        self._began = self._ended = 0.0
        self._done = threading.Event()

    def add(self, events: int) -> None:
        with self._lock:
            self._began = self._began or time.perf_counter()
            self._count += events
            if self._count >= self._total and not self._ended:
                self._ended = time.perf_counter()
                self._done.set()

    def seconds(self) -> float:
        """Wait for the last one."""
        assert self._done.wait(_PATIENCE), f"{self._count} of {self._total} events have come"
        assert self._count == self._total
        return self._ended - self._began


def official(url: str, total: int, folder: Path, *, store: bool) -> Callable[[], float]:
    """The official client; with `store` as its processor, balancing and checkpointing each batch in Blob storage."""
    from azure.eventhub import EventHubConsumerClient
    from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

    turns = itertools.count()

    def turn() -> float:
        count = Count(total)
        kept: Any = None
        if store:
            container = f"turn-{os.getpid()}-{next(turns)}"
            kept = BlobCheckpointStore.from_connection_string(os.environ["BENCH_STORAGE"], container)
            kept._container_client.create_container()
        client = EventHubConsumerClient.from_connection_string(
            os.environ["BENCH_CONNECTION"],
            consumer_group=_group(url),
            checkpoint_store=kept,
            load_balancing_strategy="greedy",
            load_balancing_interval=1,
        )

        def on_events(context: Any, events: list[Any]) -> None:
            count.add(len(events))
            if store and events:
                context.update_checkpoint(events[-1])

        receiving = threading.Thread(target=client.receive_batch, args=(on_events,), kwargs={"starting_position": "-1"})
        receiving.start()
        seconds = count.seconds()
        client.close()
        receiving.join()
        return seconds

    return turn


def processor(
    url: str, total: int, folder: Path, *, defaults: bool = False, as_events: bool = True
) -> Callable[[], float]:
    """Leasehold's plain processor; with `as_events` it makes an object of each event, as the official clients do."""
    from leasehold.config import OwnershipSettings
    from leasehold.hubs import open_hub
    from leasehold.processors.events import (
        CheckpointPolicy,
        DeliverySettings,
        EventBatch,
        EventProcessor,
        PartitionContext,
        every,
    )

    turns = itertools.count()
    policy: CheckpointPolicy | None = None if defaults else every(seconds=1.0)
    delivery = DeliverySettings() if defaults else DeliverySettings(max_batch=1_000, prefetch=3_000)

    def turn() -> float:
        count = Count(total)

        def on_events(batch: EventBatch, context: PartitionContext) -> None:
            count.add(sum(1 for _ in batch) if as_events else batch.arrow().num_rows)

        hub = open_hub(url)
        with EventProcessor(
            hub,
            f"sqlite:///{folder}/{os.getpid()}-{next(turns)}.db",
            on_events,
            consumer_group=_group(url),
            delivery=replace(delivery, checkpoint=policy),
            ownership=OwnershipSettings(settle_delay=0),
        ):
            seconds = count.seconds()
        hub.close()
        return seconds

    return turn


def spark(url: str, total: int, folder: Path) -> Callable[[], Turn]:
    """The Spark source, as a batch read of everything into Spark's noop sink."""
    from leasehold.spark import open_session

    session = open_session("bench", {"spark.driver.memory": "2g"})

    def turn() -> Turn:
        # Spark ends Python workers after a minute without work, which the other sides' turns may take.
        session.read.format("leasehold").options(hub=url, startingPosition="latest").load().count()
        frame = session.read.format("leasehold").options(hub=url).load()
        started, before = time.perf_counter(), cpu_seconds()
        frame.write.format("noop").mode("overwrite").save()
        return Turn(time.perf_counter() - started, total, cpu_seconds() - before)

    return turn


def spark_stream(url: str, total: int, folder: Path) -> Callable[[], Turn]:
    """The Spark source, as a running stream: what follows its first micro-batch, of three."""
    from pyspark.sql import DataFrame

    from leasehold.spark import open_session

    session = open_session("bench", {"spark.driver.memory": "2g"})
    turns = itertools.count()

    def turn() -> Turn:
        number = next(turns)
        ends: list[tuple[float, float]] = []

        def take(batch: DataFrame, batch_id: int) -> None:
            batch.write.format("noop").mode("overwrite").save()
            ends.append((time.perf_counter(), cpu_seconds()))

        options = {
            "hub": url,
            "consumerGroup": _group(url),
            "store": f"sqlite:///{folder}/{os.getpid()}-{number}.db",
            "maxEventsPerTrigger": str(total // 3),
        }
        stream = session.readStream.format("leasehold").options(**options).load()
        scratch = str(folder / f"scratch-{os.getpid()}-{number}")
        query = (
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", scratch)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_PATIENCE)
        rows = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        assert sum(rows) == total
        (began, cpu_before), (ended, cpu_after) = ends[0], ends[-1]
        return Turn(ended - began, sum(rows[1:]), cpu_after - cpu_before)

    return turn


def bare_kafka(
    url: str, total: int, folder: Path, *, tuned: bool = False, as_events: bool = False
) -> Callable[[], float]:
    """A bare consumer of confluent-kafka that has all partitions assigned, and reads what an event is made of.

    By its defaults it stops fetching for a second whenever its queue was full; `tuned` takes that pause away, as
    Leasehold does. With `as_events` it makes an object of each message, as Leasehold's handlers get them.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    servers, _, topic = url.removeprefix("kafka://").partition("/")

    def turn() -> float:
        config: dict[str, Any] = {"bootstrap.servers": servers, "group.id": "bare", "enable.auto.commit": False}
        consumer = Consumer({**config, "fetch.queue.backoff.ms": 50} if tuned else config)
        partitions = consumer.list_topics(topic).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        count = Count(total)
        left = total
        while left:
            messages = consumer.consume(1_000, 1.0)
            read: list[Any] = [
                (one.value(), one.key(), one.headers(), one.partition(), one.offset(), one.timestamp())
                for one in messages
                if one.error() is None
            ]
            if as_events:
                for value, key, headers, partition, offset, (_, at) in read:
                    Event(
                        value,
                        None if key is None else key.decode(),
                        dict(headers or ()),
                        partition=str(partition),
                        sequence_number=offset,
                        offset=str(offset),
                        enqueued_time=at / 1e3,
                    )
            found = len(read)
            left -= found
            if found:
                count.add(found)
        seconds = count.seconds()
        consumer.close()
        return seconds

    return turn


def send_official(url: str, total: int, folder: Path) -> Callable[[], float]:
    """The official producer: full batches, one partition after another."""
    from azure.eventhub import EventData, EventHubProducerClient

    def turn() -> float:
        client = EventHubProducerClient.from_connection_string(os.environ["BENCH_CONNECTION"])
        ids = client.get_partition_ids()
        started = time.perf_counter()
        for partition in ids:
            batch = client.create_batch(partition_id=partition)
            for body in _bodies(total // len(ids)):
                event = EventData(body)
                try:
                    batch.add(event)
                except ValueError:
                    client.send_batch(batch)
                    batch = client.create_batch(partition_id=partition)
                    batch.add(event)
            client.send_batch(batch)
        seconds = time.perf_counter() - started
        client.close()
        return seconds

    return turn


def send_official_keys(url: str, total: int, folder: Path, *, keys: int) -> Callable[[], float]:
    """The official producer: the events of each of this many keys as a batch, one after another."""
    from azure.eventhub import EventData, EventHubProducerClient

    def turn() -> float:
        client = EventHubProducerClient.from_connection_string(os.environ["BENCH_CONNECTION"])
        client.get_partition_ids()
        started = time.perf_counter()
        for number in range(keys):
            batch = client.create_batch(partition_key=f"key-{number}")
            for body in _bodies(total // keys):
                batch.add(EventData(body))
            client.send_batch(batch)
        seconds = time.perf_counter() - started
        client.close()
        return seconds

    return turn


def send_kafka(url: str, total: int, folder: Path) -> Callable[[], float]:
    """A bare producer of confluent-kafka, with the acknowledgements that Leasehold asks for."""
    from confluent_kafka import KafkaError, Message, Producer

    servers, _, topic = url.removeprefix("kafka://").partition("/")

    def turn() -> float:
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        partitions = len(producer.list_topics(topic).topics[topic].partitions)
        started = time.perf_counter()
        for number, body in enumerate(_bodies(total)):
            while True:
                try:
                    producer.produce(topic, body, partition=number % partitions, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1_000 == 0:
                producer.poll(0)
        producer.flush()
        assert not failed, failed[0]
        return time.perf_counter() - started

    return turn


def send(url: str, total: int, folder: Path, *, keys: int = 0) -> Callable[[], float]:
    """Leasehold's `Hub.send` of events without a key, or of this many keys in turn."""
    from leasehold.hubs import open_hub

    def turn() -> float:
        hub = open_hub(url)
        started = time.perf_counter()
        named = itertools.cycle([f"key-{number}" for number in range(keys)] or [None])
        assert hub.send(Event(body, key) for body, key in zip(_bodies(total), named, strict=False)) == total
        seconds = time.perf_counter() - started
        hub.close()
        return seconds

    return turn


def _group(url: str) -> str:
    """The consumer group that the URL names: owner levels are said only in that one."""
    return parse_qs(urlsplit(url).query).get("consumer_group", ["$Default"])[0]


def _bodies(count: int) -> Iterable[bytes]:
    return (b"%0250d" % number for number in range(count))


SIDES: dict[str, Callable[[str, int, Path], Callable[[], float | Turn]]] = {
    "client": lambda *where: official(*where, store=False),
    "official": lambda *where: official(*where, store=True),
    "bare": bare_kafka,
    "bare-tuned": lambda *where: bare_kafka(*where, tuned=True),
    "bare-events": lambda *where: bare_kafka(*where, tuned=True, as_events=True),
    "processor": processor,
    "arrow": lambda *where: processor(*where, as_events=False),
    "defaults": lambda *where: processor(*where, defaults=True),
    "spark": spark,
    "stream": spark_stream,
    "send-client": send_official,
    "send-bare": send_kafka,
    "send": send,
    "send-client-keys": lambda *where: send_official_keys(*where, keys=KEYS),
    "send-keys": lambda *where: send(*where, keys=KEYS),
    "send-client-far": lambda *where: send_official_keys(*where, keys=FEW_KEYS),
    "send-far": lambda *where: send(*where, keys=FEW_KEYS),
}


def cpu_seconds() -> float:
    """Of this process, its children, and what has ended of them."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue  # it counts among its parent's ended children
    return total


def main(side: str, url: str, events: str, folder: str) -> None:
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    turn = SIDES[side](url, int(events), Path(folder))
    print("ready", flush=True)
    for _ in sys.stdin:
        before = cpu_seconds()
        took = turn()
        if not isinstance(took, Turn):
            took = Turn(took, int(events), cpu_seconds() - before)
        print(json.dumps(dataclasses.asdict(took)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
