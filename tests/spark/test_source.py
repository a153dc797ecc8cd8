"""`format("leasehold")` on Spark: batch and streaming, with a real log and a real store."""

from __future__ import annotations

import json
import traceback
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from leasehold.errors import HubError
from leasehold.hubs.log.hub import LogHub
from leasehold.metrics import serve_metrics
from leasehold.model import Event
from leasehold.notices import Notices
from leasehold.spark import EntityTable
from leasehold.spark.plan.offsets import ReadRange
from leasehold.spark.plan.reading import read_ranges
from tests.metrics.groups import samples
from tests.metrics.scraper import get
from tests.ports import free_port
from tests.spark.streams import Bench
from tests.waiting import NEVER, PATIENCE, until


def test_batch_reads_all_columns_as_they_were_sent(bench: Bench) -> None:
    bench.hub.send([Event(b"\x00\xff", "key", {"a": "1"}, "me"), Event(b"", None)], partition="1")
    rows = bench.batch().orderBy("sequenceNumber").collect()
    first = rows[0].asDict()
    assert first.pop("enqueuedTime").year >= 2025
    assert first == {
        "body": bytearray(b"\x00\xff"),
        "partition": "1",
        "offset": "0",
        "sequenceNumber": 0,
        "publisher": "me",
        "partitionKey": "key",
        "properties": {"a": "1"},
        "systemProperties": {},
        "hub": bench.hub.identity,
        "ownerLevel": 0,
    }
    assert (rows[1].body, rows[1].partitionKey, rows[1].publisher) == (bytearray(), None, None)


@pytest.mark.more
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"0": (0, 50), "1": (0, 20)}),
        ({"startingPosition": '{"0": 10, "1": 20}'}, {"0": (10, 50)}),
        ({"startingPosition": '{"0": 45, "*": "latest"}'}, {"0": (45, 50)}),
        ({"endingPosition": '{"0": 7, "1": "earliest"}', "minPartitions": "5"}, {"0": (0, 7)}),
        ({"endingPosition": '{"0": 7}'}, {"0": (0, 7), "1": (0, 20)}),
        ({"startingPosition": '{"0": 45}'}, {"0": (45, 50), "1": (0, 20)}),
        ({"startingPosition": "2000-01-01T00:00:00Z", "eventsPerTask": "3"}, {"0": (0, 50), "1": (0, 20)}),
        ({"startingPosition": "2999-01-01T00:00:00+01:00"}, {}),
    ],
)
def test_batch_positions(bench: Bench, options: dict[str, str], expected: dict[str, tuple[int, int]]) -> None:
    bench.send("0", 50)
    bench.send("1", 20)
    rows = bench.batch(columns="sequenceNumber,partition", **options).toArrow().to_pylist()
    wanted = [(p, number) for p, (start, end) in expected.items() for number in range(start, end)]
    assert sorted((row["partition"], row["sequenceNumber"]) for row in rows) == wanted


@pytest.mark.more
def test_batch_of_what_is_not_committed_yet(bench: Bench) -> None:
    bench.send("0", 30)
    bench.stream("one", available_now=True).awaitTermination()
    bench.send("0", 5)
    url = f"sqlite:///{bench.folder}/store.db"
    assert bench.batch(startingPosition="committed", store=url).count() == 5
    assert bench.batch(endingPosition="committed", store=url).count() == 30
    with pytest.raises(PySparkException, match="checkpointStore"):
        bench.batch(startingPosition="committed").count()


def test_a_start_before_the_beginning_is_a_loss(bench: Bench) -> None:
    bench.send("0", 10)
    bench.send("0", 10)
    bench.hub.retain(max_bytes=1)
    assert bench.hub.partition_properties(["0"])["0"].begin > 0
    with pytest.raises(PySparkException, match=r"partition 0: events \[5, \d+\).*are gone"):
        bench.batch(startingPosition='{"0": 5}').count()
    left = bench.batch(startingPosition='{"0": 5}', failOnDataLoss="false").count()
    assert left == 20 - bench.hub.partition_properties(["0"])["0"].begin


def test_a_bad_option_is_one_error_that_says_what_is_allowed(bench: Bench) -> None:
    with pytest.raises(
        PySparkException, match=r"maxeventspertriger = '5': not an option.*Did you mean maxEventsPerTrig"
    ) as refused:
        bench.stream("x", maxEventsPerTriger="5")
    assert "Traceback" not in str(refused.value)
    assert not any("leasehold" in frame.filename for frame in traceback.extract_tb(refused.value.__traceback__)[1:-1])
    with pytest.raises(PySparkException, match=r"minPartitions = 'many': a whole number above zero"):
        bench.stream("x", minPartitions="many")
    times: dict[str, Any] = {"partitionExpiration": "1s", "requestTimeout": "1s"}  # by hand: refused
    with pytest.raises(PySparkException, match=r"partitionExpiration = 1.0: at least .* = 5 s"):
        bench.stream("x", loadBalancingInterval="1s", margin="1s", **times)
    query = bench.spark.readStream.format("leasehold").option("hub", bench.hub.url).load().writeStream.format("noop")
    with pytest.raises(PySparkException, match="a stream shares partitions through a store") as refused:
        query.start().awaitTermination()
    assert "Traceback" not in str(refused.value)


def test_a_plan_shows_no_secret(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    source = bench.spark.readStream.format("leasehold").option("hub", bench.hub.url)
    source.option("store", "postgresql://user:hunter2@host/db").load().explain(extended=True)
    shown = capfd.readouterr().out
    assert "leasehold" in shown
    assert "hunter2" not in shown


def test_available_now_reads_everything_once_in_limited_batches(bench: Bench) -> None:
    for partition, count in (("0", 50), ("1", 5), ("2", 20)):
        bench.send(partition, count)
    query = bench.stream("one", available_now=True, maxEventsPerTrigger="15")
    query.awaitTermination()
    assert sorted(bench.seen) == bench.everything()
    assert max(bench.batches) == 15
    reached = {
        c.partition: c.next_sequence_number for c in bench.store.list_checkpoints(bench.hub.consumer_group("$Default"))
    }
    assert reached == {"0": 50, "1": 5, "2": 20}
    progress = query.lastProgress
    assert progress is not None
    report: dict[str, Any] = json.loads(progress.sources[0].latestOffset or "{}")
    assert (report["owned"], report["partitionCount"], report["lag"]) == (3, 3, 0)
    assert report["partitions"]["1"] == {"ownerLevel": 1, "position": 5, "lag": 0}


@pytest.mark.more
def test_a_stream_notices_new_partitions_and_relinquishes_when_it_stops(bench: Bench) -> None:
    group = bench.hub.consumer_group("$Default")
    bench.send("0", 10)
    query = bench.stream("one", startingPosition="latest")
    until(lambda: len(bench.store.list_checkpoints(group)) == 3, "the start to be recorded")
    bench.send("0", 3)
    until(lambda: len(bench.seen) >= 3, "three events")
    bench.hub.grow(4)
    bench.send("3", 7)
    until(lambda: len(bench.seen) >= 10, "the events of the new partition")
    assert sorted(bench.seen) == [("0", n) for n in range(10, 13)] + [("3", n) for n in range(7)]
    query.stop()
    until(lambda: all(r.owner_id == "" for r in bench.store.list_ownership(group).records), "the release")


def test_two_streams_share_and_one_takes_the_others_place(bench: Bench) -> None:
    group = bench.hub.consumer_group("$Default")

    def owners() -> list[str]:
        return sorted(r.owner_id.partition("/")[0] for r in bench.store.list_ownership(group).records)

    first = bench.stream("first")
    until(lambda: owners() == ["first"] * 3, "the first to own all")
    second = bench.stream("second")
    until(lambda: owners() == ["first", "first", "second"], "the second to own one")
    for partition in "012":
        bench.send(partition, 10)
    until(lambda: len(set(bench.seen)) >= 30, "all events")
    first.stop()
    until(lambda: owners() == ["second"] * 3, "the second to own all")
    bench.send("0", 10)
    until(lambda: len(set(bench.seen)) >= 40, "all events")
    assert set(bench.seen) == set(bench.everything())
    second.stop()


@pytest.mark.more
def test_fewer_than_the_least_events_come_after_the_delay(bench: Bench) -> None:
    bench.send("0", 4)
    query = bench.stream("one", minEventsPerTrigger="10", maxTriggerDelay="500ms")
    until(lambda: len(bench.seen) >= 4, "the delay to pass")
    query.stop()


@pytest.mark.more
def test_fewer_than_the_least_events_wait_for_more(bench: Bench) -> None:
    query = bench.stream("one", minEventsPerTrigger="10", maxTriggerDelay=f"{NEVER:g}s")
    bench.send("0", 4)
    until(lambda: bench.store.list_checkpoints(bench.hub.consumer_group("$Default")), "the start to be recorded")
    bench.send("0", 6)
    until(lambda: len(bench.seen) >= 10, "enough events")
    assert [size for size in bench.batches if size] == [10]
    query.stop()


@pytest.mark.soak
def test_separate_stores_and_a_new_checkpoint_folder(bench: Bench) -> None:
    stores = {name: f"sqlite:///{bench.folder}/{name}.db" for name in ("ownershipStore", "checkpointStore")}
    bench.send("0", 10)
    bench.stream("one", available_now=True, **stores).awaitTermination()
    bench.send("0", 10)
    bench.stream("two", available_now=True, **stores).awaitTermination()
    assert sorted(bench.seen) == bench.everything()


@pytest.mark.more
def test_a_checkpoint_folder_of_another_hub_is_refused(bench: Bench) -> None:
    bench.send("0", 10)
    bench.stream("one", available_now=True).awaitTermination()
    other = Bench(bench.spark, bench.folder, LogHub.create(bench.folder / "other.db", partitions=1))
    other.send("0", 10)
    with pytest.raises(PySparkException, match="the Spark checkpoint folder belongs to hub"):
        other.stream("one", available_now=True).awaitTermination()


@pytest.mark.more
def test_triggers_further_apart_than_the_stall_timeout_go_on_reading(bench: Bench) -> None:
    short: dict[str, Any] = {
        "partitionExpiration": "2s",  # expires: it is taken again, by the next trigger at the latest
        "stallTimeout": "2s",  # expires: so is this
        "requestTimeout": "1s",  # impatient: a call of the store that failed is made again by the next cycle
    }
    query = bench.stream("slow", interval="3 seconds", **short)
    try:
        for count in (5, 10):
            bench.send("0", 5)
            until(lambda: len(set(bench.seen)) >= count, f"{count} events")  # noqa: B023 - called before it changes
    finally:
        query.stop()


@pytest.mark.more
def test_a_gap_with_nothing_behind_it_is_passed_by_the_checkpoint(bench: Bench) -> None:
    bench.send("0", 5)
    bench.stream("one", available_now=True).awaitTermination()
    bench.send("0", 5)
    bench.hub.retain(max_age=0)
    query = bench.stream("one", failOnDataLoss="false")
    group = bench.hub.consumer_group("$Default")

    def report() -> dict[str, Any]:
        progress = query.lastProgress
        return {} if progress is None else json.loads(progress.sources[0].latestOffset or "{}")

    def reached() -> int:
        return next(c.next_sequence_number for c in bench.store.list_checkpoints(group) if c.partition == "0")

    try:
        until(lambda: reached() == 10, "the place behind the gap")
        until(lambda: (report().get("lag"), report().get("lostEvents")) == (0, 5), "nothing to be left")
        bench.send("0", 3)
        until(lambda: len(bench.seen) >= 8, "what follows")
    finally:
        query.stop()
    assert bench.seen[5:] == [("0", 10), ("0", 11), ("0", 12)]


def test_a_range_beyond_the_end_of_a_restored_hub_is_no_gap(bench: Bench) -> None:
    bench.send("0", 5)
    with pytest.raises(HubError, match="it has lost acknowledged events or was restored"):
        list(
            read_ranges(
                bench.hub.url,
                [ReadRange("0", 2, 9, 1)],
                ["body"],
                batch_rows=10,
                fail_on_data_loss=False,
                identity=bench.hub.identity,
            )
        )


@pytest.mark.more
def test_the_source_process_serves_metrics_and_health_of_the_whole_query(bench: Bench) -> None:
    port = free_port()
    bench.send("0", 30)
    query = bench.stream("a", metricsListen=f"127.0.0.1:{port}")
    try:

        def told(series: str) -> float:
            try:
                return samples(get(f"http://127.0.0.1:{port}/metrics")[1]).get(f"leasehold_instance_{series}", 0.0)
            except (OSError, HTTPException):  # the process is about to start, or ended while it answered
                return -1.0

        until(lambda: (told("events_total") or 0) >= 30, "the batch to be counted")
        until(lambda: told("partitions") == 3, "all partitions to be held")
        assert told('batch_phase_seconds_sum{phase="body"}') > 0
        until(lambda: get(f"http://127.0.0.1:{port}/readyz")[0] == 200, "it to be ready")
    finally:
        query.stop()
    until(lambda: told("partitions") == -1, "the port to be given back")


@pytest.mark.more
def test_the_source_and_the_table_of_a_query_come_together_in_one_endpoint(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.metrics.beside.TIMEOUT", PATIENCE)
    port = free_port()
    table = EntityTable(f"sqlite:///{tmp_path}/t.db", "entities", mode="append", pipeline="p")
    columns = ("CAST(body AS STRING) AS id", "hub", "partition", "sequenceNumber", "ownerLevel")
    bench.send("0", 30)
    with serve_metrics(table.notices, listen="127.0.0.1:0", beside=f"127.0.0.1:{port}") as server:

        def told(series: str) -> float | None:
            return samples(get(f"{server.url}/metrics")[1]).get(f"leasehold_instance_{series}")

        assert told(f'beside_up{{endpoint="127.0.0.1:{port}"}}') == 0
        assert get(f"{server.url}/readyz") == (503, f"127.0.0.1:{port} does not answer\n")
        assert get(f"{server.url}/livez")[0] == 200
        bench.write = lambda batch, batch_id: table.apply_query_batch(batch.selectExpr(*columns), batch_id)
        options: dict[str, Any] = {"metricsListen": f"127.0.0.1:{port}", **table.stream_options()}
        query = bench.stream("a", **options)
        try:
            until(lambda: (told("events_total") or 0) >= 30, "the batch to be counted")
            until(lambda: told("partitions") == 3, "all partitions to be held")
            assert told('table_rows_total{outcome="applied"}') == 30
            assert told(f'beside_up{{endpoint="127.0.0.1:{port}"}}') == 1
            until(lambda: get(f"{server.url}/readyz") == (200, "ok\n"), "it to be ready")
            [page] = json.loads(get(f"{server.url}/status")[1])
            assert set(page["partitions"]) == {"0", "1", "2"}
        finally:
            query.stop()
        until(lambda: told("events_total") == 0, "the port to be given back")
        assert told('partition_owner_level{partition="0"}') is None
        assert told('table_rows_total{outcome="applied"}') == 30


@pytest.mark.more
def test_checkpoints_and_watermarks_say_when_their_events_were_enqueued(bench: Bench, tmp_path: Path) -> None:
    """Also of a few events; and a folder of a former release, whose offsets say nothing of it, goes on."""
    table = EntityTable(f"sqlite:///{tmp_path}/t.db", "entities", mode="append", pipeline="p")
    columns = ("CAST(body AS STRING) AS id", "hub", "partition", "sequenceNumber", "ownerLevel")
    bench.write = lambda batch, batch_id: table.apply_query_batch(batch.selectExpr(*columns), batch_id)

    def run() -> None:
        bench.stream("a", available_now=True, **table.stream_options()).awaitTermination()

    def told() -> list[dict[str, float]]:
        listed = bench.store.list_checkpoints(bench.hub.consumer_group("$Default"))
        kept = {one.partition: one.enqueued_time for one in listed}
        marks = {partition: one.enqueued_time for partition, one in table.watermarks(bench.hub.identity).items()}
        return [{p: at for p, at in times.items() if at is not None} for times in (kept, marks)]

    bench.send("0", 30)
    bench.send("1", 1)
    run()
    first = bench.hub.enqueued_times({"0": 29, "1": 0}, PATIENCE)
    assert told() == [first, first]
    for offset in (tmp_path / "a" / "offsets").glob("[0-9]*"):
        lines = offset.read_text().splitlines()
        known = json.loads(lines[-1])
        if known.pop("enqueued", None):
            offset.write_text("\n".join([*lines[:-1], json.dumps(known, separators=(",", ":"))]))
            (offset.parent / f".{offset.name}.crc").unlink()
    bench.send("0", 2)
    run()
    second = bench.hub.enqueued_times({"0": 31}, 1.0)
    assert [one["0"] for one in told()] == [second["0"]] * 2


@pytest.mark.more
def test_a_port_in_use_ends_the_query_with_the_option_s_name(bench: Bench) -> None:
    bench.send("0", 1)
    with serve_metrics(Notices(), listen="127.0.0.1:0") as server:
        query = bench.stream("a", metricsListen=server.url.removeprefix("http://"))
        with pytest.raises(PySparkException, match=r"metricsListen = .*cannot be listened at"):
            query.awaitTermination()
