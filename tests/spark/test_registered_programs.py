"""Bodies behind the numbers of schemas in programs on Spark: the driver asks the registry once, and tasks nobody."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from leasehold import Event
from leasehold.errors import ConfigError, RegistryUnavailable
from leasehold.formats import BodyFormat
from leasehold.hubs.log import LogHub
from leasehold.spark import EntityTable, MicroBatches, RowRules, read_bodies
from leasehold_testkit.emulators.registry import RegistryServer
from tests.formats.protobuf_schemas import message_class
from tests.formats.registered import FLIGHTS, headed, schema
from tests.spark.places import FENCE, QUICK

SUBJECT = "flights-value"
COLUMNS = "id STRING, n BIGINT"
OLD, NEW = schema(id="string"), schema(n="long", id="string")
A, B = b"\x02a", b"\x0a\x02b"
"""The bodies ("a", null) and ("b", 5) of these two."""
NOT_GIVEN = "its schema, {}, is of no version that the named subjects had when this read began"


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with closing(RegistryServer()) as server:
        yield server


def events(spark: SparkSession, bodies: Sequence[bytes | None]) -> DataFrame:
    return spark.createDataFrame([(body,) for body in bodies], "body BINARY")


def outcome(read: DataFrame) -> list[Any]:
    return [row["reason"] or (row["id"], row["n"]) for row in read.select("id", "n", "reason").collect()]


def test_bodies_are_read_by_all_versions_of_the_named_subjects(spark: SparkSession, server: RegistryServer) -> None:
    other = server.register("others-value", schema(id="string", more="int"))
    old, new = (server.register(SUBJECT, text) for text in (OLD, NEW))
    third = server.register("gates-value", schema(n="long"))
    bodies = [headed(old, A), headed(new, B), headed(other, b"\x02c\x02"), headed(third, b"\x0e"), None]
    read = read_bodies(
        events(spark, bodies),
        COLUMNS,
        BodyFormat(format="avro", registry=server.url),
        subjects=[SUBJECT, "gates-value"],
    )
    server.close()  # the driver has asked
    first, second, unknown, *rest = outcome(read)
    assert (first, second, rest) == (("a", None), ("b", 5), [(None, 7), "the event has no body"])
    assert unknown.startswith(NOT_GIVEN.format(other))
    assert "begin it again if they have it now, or name its subject" in unknown


@pytest.mark.more
def test_protobuf_is_read_by_the_type_that_a_body_names(spark: SparkSession, server: RegistryServer) -> None:
    number = server.register(SUBJECT, FLIGHTS, "PROTOBUF")
    new = message_class(FLIGHTS, "flights.New")(id="b", n=6, gate="B7").SerializeToString()
    old = message_class(FLIGHTS, "flights.Old")(id="a", n=5).SerializeToString()
    bodies = [headed(number, b"\0" + old), headed(number, b"\x02\x02" + new)]
    how = BodyFormat(format="protobuf", registry=server.url)
    assert outcome(read_bodies(events(spark, bodies), COLUMNS, how, subjects=[SUBJECT])) == [("a", 5), ("b", 6)]


def test_subjects_that_do_not_go_with_the_rest_are_refused_by_name(spark: SparkSession, server: RegistryServer) -> None:
    server.register(SUBJECT, OLD)
    df, how = events(spark, []), BodyFormat(format="avro", registry=server.url)
    with pytest.raises(ConfigError, match=r"subjects: .*ask no registry.*Name the subjects"):
        read_bodies(df, COLUMNS, how)
    with pytest.raises(ConfigError, match=r"subjects = 'flights-value'.*Give registry in BodyFormat"):
        read_bodies(df, COLUMNS, subjects=[SUBJECT])
    with pytest.raises(ConfigError, match=r'a list of names.*Write \["flights-value"\]'):
        read_bodies(df, COLUMNS, how, subjects=SUBJECT)
    with pytest.raises(ConfigError, match="subjects = '': names of subjects"):
        read_bodies(df, COLUMNS, how, subjects=[SUBJECT, ""])
    with pytest.raises(ConfigError, match="subjects = 'flight-value': the registry has no version of it"):
        read_bodies(df, COLUMNS, how, subjects=[SUBJECT, "flight-value"])
    server.close()
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        read_bodies(df, COLUMNS, how, subjects=[SUBJECT])


@pytest.mark.more
def test_each_batch_of_a_program_has_the_versions_of_its_time(
    spark: SparkSession, server: RegistryServer, tmp_path: Path
) -> None:
    hub = LogHub.create(tmp_path / "hub.db", partitions=1)
    how = BodyFormat(format="avro", registry=server.url)
    table = EntityTable(
        f"sqlite:///{tmp_path}/t.db", "flights", keys=["id"], pipeline="p", rules=RowRules(reject_by="reason")
    )
    old = server.register(SUBJECT, OLD)
    hub.send([Event(headed(old, A)), Event(headed(9, A))], partition="0")
    store = f"sqlite:///{tmp_path}/stores.db"
    given = {**QUICK, "pipeline": "p", "available_now": True, "columns": ("body", *FENCE), "max_events_per_trigger": 2}
    sizes = []
    for _ in range(2):
        with MicroBatches(spark, hub.url, store=store, **given) as batches:
            for batch in batches:
                sizes.append(len(batch))
                table.apply(read_bodies(batch.events, COLUMNS, how, subjects=[SUBJECT]), batch)
        if len(sizes) == 1:
            new = server.register(SUBJECT, NEW)
            hub.send([Event(headed(new, B)), Event(headed(old, b"\x02c"))], partition="0")
    table.close()
    hub.close()
    assert sizes == [2, 2]
    asked = [path.partition("?")[0] for path in server.requests]
    assert [asked.count(f"/subjects/{SUBJECT}/versions{one}") for one in ("", "/1", "/2")] == [2, 1, 1]
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        rows = connection.execute("SELECT id, n FROM flights ORDER BY 1").fetchall()
        ((reason, body),) = connection.execute("SELECT reason, body FROM flights_rejected").fetchall()
    assert rows == [("a", None), ("b", 5), ("c", None)]
    assert (reason[: len(NOT_GIVEN) - 1], body) == (NOT_GIVEN.format(9), headed(9, A))
