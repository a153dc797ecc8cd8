"""Either store alone, on Spark: no checkpoints, and a fixed share; in options, the loop and the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leasehold.errors import AlreadyInUse, ConfigError
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark import MicroBatch, MicroBatches
from leasehold.spark.loop.settings import loop_settings
from leasehold.spark.plan.options import check_stores, parse_options, require_stores
from leasehold.store_choice import TablePlaces
from leasehold.stores.sqlite.store import SqliteStore
from tests.spark.places import Place, each
from tests.spark.streams import Bench
from tests.waiting import until

PIPELINE = """
name = "p"
[source]
hub = "log:///hub.db"
[ownership]
{stores}
[sink]
url = "sqlite:///table.db"
table = "events"
keys = ["id"]
"""


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


# How it is written

URL = "sqlite:///s.db"
OTHER = "sqlite:///t.db"


@pytest.mark.parametrize(
    ("given", "stores"),
    [
        ({"ownership_store": URL, "checkpoint_store": "none"}, (URL, None)),
        ({"store": URL, "checkpoint_store": "none"}, (URL, None)),
        ({"store": URL, "partitions": ["0", "3"]}, (None, URL)),
        ({"store": OTHER, "checkpoint_store": URL, "partitions": ["0", "3"]}, (None, URL)),
        ({"checkpoint_store": URL, "partitions": ["0", "3"]}, (None, URL)),
        ({"checkpoint_store": URL, "ownership_store": "none", "partitions": ["0", "3"]}, (None, URL)),
    ],
)
def test_either_is_said_in_the_same_words_everywhere(
    tmp_path: Path, given: dict[str, Any], stores: tuple[str | None, str | None]
) -> None:
    loop = loop_settings({"hub": "log:///hub.db", **given}).source
    options = {name.replace("_s", "S"): value for name, value in given.items() if name != "partitions"}
    if "partitions" in given:
        options["partitions"] = "0, 3"
    source = parse_options({"hub": "log:///hub.db", **options})
    for one in (loop, source):
        assert require_stores(one) == stores
        assert one.partitions == (("0", "3") if "partitions" in given else None)
        check_stores(one)
    said = "\n".join(f"{name} = {value!r}".replace("'", '"') for name, value in given.items())
    (tmp_path / "p.toml").write_text(PIPELINE.format(stores=said))
    file = read_pipeline_file(tmp_path / "p.toml")
    absolute = tuple(url and url.replace(":///", f":///{tmp_path}/") for url in stores)
    assert (file.ownership_url, file.checkpoint_url) == absolute
    again = loop_settings(file.loop_options()).source
    assert require_stores(again) == absolute
    assert again.partitions == loop.partitions


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"store": "none"}, "store", "one is needed"),
        ({"ownership_store": "none", "checkpoint_store": URL}, "ownership_store", "nobody shares out"),
        ({"ownership_store": URL, "checkpoint_store": URL, "partitions": ["0"]}, "ownership_store", "no ownership"),
        ({"store": URL, "checkpoint_store": "none", "partitions": ["0"]}, "checkpoint_store", "keep two"),
        ({"store": URL, "partitions": ["0"], "capacity": 2.0}, "capacity", "is for balancing"),
        ({"store": URL, "partitions": ["0"], "maximum_partitions": 1}, "maximum_partitions", "is for balancing"),
        ({"store": URL, "partitions": []}, "partitions", "a list of partition ids"),
        ({"store": URL, "partitions": ["0"], "hub": "eventhubs://ns/h?fleet=mixed"}, "partitions", "fleet=mixed"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, given: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        loop_settings({"hub": "log:///hub.db", **given})
    assert error.value.field == field
    if "hub" in given:
        return
    lines = "\n".join(f"{name} = {value!r}".replace("'", '"') for name, value in given.items())
    (tmp_path / "p.toml").write_text(PIPELINE.format(stores=lines))
    with pytest.raises(ConfigError, match=rf"ownership\.{field}.*{said}"):
        read_pipeline_file(tmp_path / "p.toml")


def test_a_store_that_is_missing_is_no_store_that_is_not_wanted() -> None:
    with pytest.raises(ConfigError, match=r"checkpoint_store.*none is named"):
        MicroBatches(None, "log:///x.db", ownership_store=URL)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="checkpoint_store: a fixed share of partitions goes on at its checkpoints"):
        MicroBatches(None, "log:///x.db", partitions=["0"])  # type: ignore[arg-type]


# The loop


def read(batches: MicroBatches, count: int = 0) -> list[tuple[str, int]]:
    """What the batches hold; stopped once there are `count` events."""
    found: list[tuple[str, int]] = []
    with batches:
        for batch in batches:
            found += [(row.partition, row.sequenceNumber) for row in batch.events.collect()]
            if count and len(found) >= count:
                batches.stop()
    return sorted(found)


@pytest.mark.more
def test_a_fixed_share_is_read_and_remembered(place: Place) -> None:
    place.send(4)
    with_one = {"partitions": ["1"], "schema": None}
    assert read(place.batches(**with_one)) == [("1", n) for n in range(4)]
    assert place.checkpoints() == {"1": 4}
    store = SqliteStore(place.folder / "stores.db")
    group = place.hub.consumer_group("$Default")
    assert store.list_ownership(group).records == ()
    place.send(1)
    assert read(place.batches(**with_one)) == [("1", 4)]
    with pytest.raises(ConfigError, match="the hub has the partitions 0, 1"):
        read(place.batches(partitions=["7"]))


@pytest.mark.more
def test_the_later_of_two_with_one_share_wins_and_the_table_has_each_event_once(place: Place) -> None:
    place.send(4)
    table = place.table()
    rows = ("id", "n", "hub", "partition", "sequenceNumber", "ownerLevel")
    results: list[Any] = []

    def apply_beside_another(batch: MicroBatch) -> None:
        assert table.apply(batch.events.select(*rows), batch).applied == 4
        with place.batches(partitions=["0"]) as second:
            results.extend(table.apply(one.events.select(*rows), one) for one in second)

    with pytest.raises(AlreadyInUse, match="a share of its own"):
        each(place.batches(partitions=["0"], available_now=False), apply_beside_another)
    # The checkpoint of the first one's batch had not been written: its events came again, and were dropped.
    assert [(result.applied, result.replayed) for result in results] == [(0, 4)]
    assert place.rows() == [(n,) for n in range(4)]


@pytest.mark.more
def test_without_checkpoints_each_start_is_the_first_and_the_table_drops_what_it_has(place: Place) -> None:
    place.send(3)
    table = place.table()
    alone = {"checkpoint_store": "none", "available_now": False}
    for applied, replayed in ((6, 0), (0, 6)):
        results = []
        with place.batches(**alone) as batches:
            for batch in batches:
                rows = batch.events.select("id", "n", "hub", "partition", "sequenceNumber", "ownerLevel")
                results.append(table.apply(rows, batch))
                if sum(one.applied + one.replayed for one in results) == 6:
                    batches.stop()
        assert sum(one.applied for one in results) == applied
        assert sum(one.replayed for one in results) == replayed
    assert place.rows() == [(n,) for n in range(6)]
    assert place.checkpoints() == {}
    with pytest.raises(ConfigError, match=r"available_now = True: what others have consumed"):
        place.batches(checkpoint_store="none")


@pytest.mark.more
def test_without_checkpoints_the_table_knows_the_places_where_the_instance_knows_the_table(place: Place) -> None:
    place.send(3)
    table = place.table()
    with place.batches() as batches:
        for batch in batches:
            table.apply(batch.events.select("id", "n", "hub", "partition", "sequenceNumber", "ownerLevel"), batch)
    group = place.hub.consumer_group("$Default")
    found = TablePlaces(table, place.hub.identity).list_checkpoints(group)
    assert {one.partition: one.next_sequence_number for one in found} == {"0": 3, "1": 3}


# The source


@pytest.mark.more
def test_a_stream_with_a_fixed_share(bench: Bench) -> None:
    for partition in ("0", "1", "2"):
        bench.send(partition, 5)
    for _ in range(2):
        query = bench.stream("a", available_now=True, partitions="0,2")
        query.awaitTermination()
    assert sorted(bench.seen) == [(p, n) for p in "02" for n in range(5)]
    group = bench.hub.consumer_group("$Default")
    assert {one.partition for one in bench.store.list_checkpoints(group)} == {"0", "2"}
    assert bench.store.list_ownership(group).records == ()
    found = bench.batch(partitions="1").select("partition").distinct().collect()
    assert [row.partition for row in found] == ["1"]


@pytest.mark.more
def test_a_stream_without_checkpoints(bench: Bench) -> None:
    bench.send("0", 5)
    url = f"sqlite:///{bench.folder}/store.db"
    for times in (1, 2):
        query = bench.stream(f"a{times}", ownershipStore=url, checkpointStore="none")
        until(lambda times=times: len(bench.seen) == 5 * times, "its events")  # type: ignore[misc]
        query.stop()
    assert bench.store.list_checkpoints(bench.hub.consumer_group("$Default")) == []
    query = bench.stream("b", available_now=True, ownershipStore=url, checkpointStore="none")
    with pytest.raises(PySparkException, match=r"what others have consumed is told by the checkpoints"):
        query.awaitTermination()
