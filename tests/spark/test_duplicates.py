"""`deduplicate_by` on `MicroBatches`, `foreachBatch` and pipeline files: what was sent twice counts once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.errors import ConfigError
from leasehold.model import Event
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.spark import EntityTable, RowRules
from leasehold.spark.loop.evaluation import Evaluation
from leasehold.spark.loop.jobs import jobs_on
from leasehold.spark.loop.orders import Order
from leasehold.spark.loop.tasks import ReadSpec
from leasehold.spark.plan.batch_transform import BatchTransform
from leasehold.spark.plan.offsets import ReadRange
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.spark.places import FENCE, Place

BY = RowRules(deduplicate_by="properties['id']", deduplicate_for="10m")


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def send(place: Place, partition: str, *sent: tuple[str | None, int]) -> None:
    """Events with the number `n`, and what their producer calls them."""
    events = [
        Event(json.dumps({"id": f"k{n}", "n": n}).encode(), properties={} if name is None else {"id": name})
        for name, n in sent
    ]
    place.hub.send(events, partition=partition)


def apply_all(place: Place, table: EntityTable) -> BatchResult:
    """The sums of all batches; the transform drops what the identity is made of, and events of n = 9."""
    applied = duplicates = 0
    with place.batches(max_events_per_trigger=4) as batches:
        for batch in batches:
            result = table.apply(batch.events.where("n <> 9").select("id", "n", *FENCE), batch)
            applied, duplicates = applied + result.applied, duplicates + result.duplicates
    return one_row_each(applied=applied, duplicates=duplicates)


def test_what_was_sent_twice_is_applied_once(place: Place) -> None:
    """In one batch, in two, from two partitions; a filtered event counts as the first; none without an identity."""
    send(place, "0", ("a", 1), ("a", 2), (None, 3), (None, 4), ("b", 9), ("b", 5), ("c", 6))
    send(place, "1", ("c", 7), ("d", 8))
    table = place.table(rules=BY)
    done = apply_all(place, table)
    assert (done.applied, done.duplicates) == (5, 3)
    rows = [n for (n,) in place.rows()]
    assert rows[:3] == [1, 3, 4]
    assert len({6, 7} & set(rows)) == 1
    assert table.totals.duplicates == 3
    send(place, "1", ("d", 10), ("e", 11))
    assert apply_all(place, place.table(rules=BY)) == one_row_each(applied=1, duplicates=1)


def test_a_wrong_setting_is_refused_by_its_name(place: Place) -> None:
    with pytest.raises(ConfigError, match="deduplicate_for"):
        RowRules(deduplicate_by="n")
    with pytest.raises(ConfigError, match="deduplicate_by"):
        RowRules(deduplicate_for=5.0)
    with pytest.raises(ConfigError, match="10"):
        RowRules(deduplicate_by="n", deduplicate_for="10")
    send(place, "0", ("a", 1))
    table = place.table(rules=RowRules(deduplicate_by="nothing", deduplicate_for=5.0))
    with pytest.raises(ConfigError, match="deduplicate_by = 'nothing'"):
        apply_all(place, table)
    with pytest.raises(ConfigError, match="`unseen` cannot tell"):
        place.table(rules=BY).unseen(place.spark.range(0), 1)


@pytest.mark.more
def test_in_a_query_it_is_over_the_rows_that_are_applied(place: Place) -> None:
    def rows(*sent: tuple[int, str | None, int]) -> DataFrame:
        values = [(key, n, "h", "0", n, 1) for n, key, _ in sent]
        frame = place.spark.createDataFrame(values, "id STRING, n BIGINT, hub STRING, partition STRING, "
                                            "sequenceNumber BIGINT, ownerLevel BIGINT")  # fmt: skip
        times = F.expr(
            f"element_at(array({', '.join(str(time) for _, _, time in sent)}), CAST(n AS INT) - {sent[0][0]} + 1)"
        )
        return frame.withColumn("enqueuedTime", F.timestamp_seconds(times))

    table = place.table(rules=RowRules(deduplicate_by="id", deduplicate_for=60.0))
    assert table.apply_batch(rows((0, "a", 0), (1, "a", 30), (2, None, 31))) == one_row_each(2, duplicates=1)
    assert table.apply_batch(rows((3, "a", 59), (4, "a", 61))) == one_row_each(1, duplicates=1)


def test_a_pipeline_file_reads_what_the_identity_needs(place: Place) -> None:
    """The evaluation of a run, without its loop: the columns of the source that neither transform nor table has."""
    (place.folder / "p.toml").write_text(
        f'name = "p"\n[source]\nhub = "{place.hub.url}"\n'
        "deduplicate_by = \"concat(properties['id'], ':', n)\"\ndeduplicate_for = \"1h\"\n"
        '[ownership]\nstore = "sqlite:///s.db"\n[transform]\nschema = "id STRING, n BIGINT"\n'
        'sql = "SELECT id, hub, partition, sequenceNumber, ownerLevel FROM events"\n'
        '[sink]\nurl = "sqlite:///table.db"\ntable = "events"\nmode = "append"\n'
    )
    file = read_pipeline_file(place.folder / "p.toml")
    assert (file.source.deduplicate_by, file.deduplicate_for) == ("concat(properties['id'], ':', n)", 3600.0)
    assert "deduplicate_by" not in file.loop_options()
    send(place, "0", ("a", 1), ("a", 1), ("a", 2), ("b", 1), (None, 3))
    rules = RowRules(deduplicate_by=file.source.deduplicate_by, deduplicate_for=file.deduplicate_for)
    table = EntityTable(file.sink_url, "events", mode="append", pipeline="p", rules=rules)
    transform = BatchTransform(file, place.spark)
    columns = ("sequenceNumber", "partition", "enqueuedTime", "properties", "hub", "ownerLevel")
    spec = ReadSpec(place.hub.url, columns, 1000, None, transform.bodies())
    jobs = jobs_on(place.spark, spec, transform.read_schema(columns, inline=False))
    evaluation = Evaluation(jobs, transform, table, name="p", lasting=True)
    one = ReadRange("0", 0, 5, 1)
    order = Order(place.hub.identity, (), ((one,),))
    batch = evaluation(order).batch
    assert isinstance(batch, Batch)
    assert batch.identities is not None
    assert batch.identities.rows["identity"].to_pylist() == ["a:1", "a:1", "a:2", "b:1"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('deduplicate_by = "n"', "source.deduplicate_for: for how long"),
        ('deduplicate_for = "10m"', "source.deduplicate_by: deduplicate_for is given"),
        ('deduplicate_by = "n"\ndeduplicate_for = 10', "deduplicate_for"),
        ('deduplicate_by = "n"\ndeduplicate_for = "0s"', "source.deduplicate_for"),
    ],
)
def test_a_pipeline_file_says_what_is_wrong(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "p.toml").write_text(
        f'name = "p"\n[source]\nhub = "log:///h.db"\n{lines}\n[ownership]\nstore = "sqlite:///s.db"\n'
        '[sink]\nurl = "sqlite:///t.db"\ntable = "t"\nmode = "append"\n'
    )
    with pytest.raises(ConfigError) as raised:
        read_pipeline_file(tmp_path / "p.toml")
    assert said in str(raised.value)
