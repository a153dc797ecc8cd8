"""What a real Kafka takes away under a query and under a loop on Spark: a topic made anew, and what retention removes.

Nothing is skipped without an error, and nothing comes twice into the table.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from leasehold.errors import LeaseholdError
from leasehold.hubs import open_hub
from leasehold.model import Event
from leasehold.spark import MicroBatches, Writing
from tests.peers.kafka_broker import Cluster
from tests.spark.conftest import spark as spark
from tests.spark.programs import Program
from tests.waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

COUNT, LARGE, LEFT = 80, 500_000, 75


class OnKafka(Program):
    """The program, on a topic of one partition in place of a log."""

    def __init__(self, spark: SparkSession, folder: Path, url: str) -> None:
        super().__init__(spark, folder, 1)
        self.url = url

    def send(self, count: int, partition: str = "0", size: int = 0) -> None:
        bodies = [f"{number} {'x' * size}".strip().encode() for number in range(self.sent, self.sent + count)]
        self.sent += count
        with closing(open_hub(self.url)) as hub:
            hub.send([Event(body) for body in bodies], partition=partition)


@pytest.fixture
def topic(one_broker: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.replace("_", "-").replace("[", "-").rstrip("]")
    yield one_broker.create(name, 1, {"max.message.bytes": "2000000"})
    one_broker.delete(name)


@pytest.fixture
def program(spark: SparkSession, tmp_path: Path, one_broker: Cluster, topic: str) -> OnKafka:
    return OnKafka(spark, tmp_path, one_broker.url(topic))


def made_anew(cluster: Cluster, topic: str) -> None:
    cluster.delete(topic)
    cluster.create(topic, 1, {"max.message.bytes": "2000000"})


def said(query: StreamingQuery) -> str:
    """What a query has ended with."""
    return str(query.exception())


@pytest.mark.parametrize("more", [20, 5])
def test_a_topic_made_anew_under_a_query_is_another_hub_and_read_whole(
    one_broker: Cluster, topic: str, program: OnKafka, more: int
) -> None:
    program.send(10)
    table = program.table(writing=Writing(keep=("sequenceNumber", "hub")))
    rows = program.rows(program.events(table, hub=program.url))
    query = program.start(rows, table.apply_query_batch, available_now=False)
    until(lambda: query.exception() or table.row_count() >= 10, "the events of the first topic")
    made_anew(one_broker, topic)
    program.send(more)
    until(query.exception, "the end of the query")
    assert re.search("deleted and made anew|the cluster has no topic", said(query)), said(query)
    assert program.numbers() == list(range(10))
    with pytest.raises(PySparkException, match="the Spark checkpoint folder belongs to hub"):
        program.start(rows, table.apply_query_batch).awaitTermination()
    program.start(rows, table.apply_query_batch, scratch="new").awaitTermination()
    assert program.numbers() == list(range(10 + more))


def test_a_topic_made_anew_between_the_planning_of_a_batch_and_its_reading(
    one_broker: Cluster, topic: str, program: OnKafka
) -> None:
    program.send(10)
    table = program.table(writing=Writing(keep=("sequenceNumber", "hub")))

    def apply(rows: DataFrame, number: int) -> None:
        made_anew(one_broker, topic)
        program.send(20)
        table.apply_query_batch(rows, number)

    query = program.start(program.rows(program.events(table, hub=program.url)), apply, available_now=False)
    until(query.exception, "the end of the query")
    assert "made anew" in said(query)
    assert table.row_count() == 0


@pytest.mark.parametrize("fails", ["true", "false"])
def test_retention_that_strikes_while_a_query_reads(
    one_broker: Cluster, topic: str, program: OnKafka, fails: str
) -> None:
    program.send(COUNT, size=LARGE)
    table = program.table()
    events = program.events(table, hub=program.url, failOnDataLoss=fails, batchRows="1")
    struck = threading.Event()

    def apply(rows: DataFrame, number: int) -> None:
        if not struck.is_set():
            one_broker.trim(topic, 0, LEFT)
            struck.set()
        table.apply_query_batch(rows, number)

    query = program.start(program.rows(events), apply, available_now=False)
    until(lambda: query.exception() or table.row_count() >= COUNT - LEFT, "the loss, or what is left")
    if fails == "true":
        assert f"events [0, {LEFT}) were to be read and are gone from the hub" in said(query)
        assert table.row_count() == 0
    else:
        program.send(3)
        until(lambda: query.exception() or COUNT + 2 in program.numbers(), "what follows")
        query.stop()
        assert program.numbers() == [*range(LEFT, COUNT + 3)]


@pytest.mark.parametrize("more", [20, 5])
def test_a_topic_made_anew_under_a_loop_is_another_hub_and_read_whole(
    one_broker: Cluster, topic: str, program: OnKafka, more: int
) -> None:
    program.send(10)
    table = program.table(writing=Writing(keep=("sequenceNumber", "hub")))
    stores = {"store": f"sqlite:///{program.folder}/stores.db", "pipeline": "p", "table": table}

    def run() -> None:
        with MicroBatches(program.spark, hub=program.url, **stores) as batches:  # type: ignore[arg-type]
            for batch in batches:
                table.apply(program.rows(batch.events), batch)
                if program.sent == 10:
                    made_anew(one_broker, topic)
                    program.send(more)
                elif table.row_count() == 10 + more:
                    batches.stop()

    with pytest.raises(LeaseholdError, match="made anew"):
        run()
    assert program.numbers() == list(range(10))
    run()
    assert program.numbers() == list(range(10 + more))
