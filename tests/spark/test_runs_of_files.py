"""Runs of pipeline files on the tests' own session: what `make soak` has in `tests/faults` with processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from leasehold.errors import PipelineFailed
from leasehold.hubs.log.hub import LogHub
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark import PipelineRun
from leasehold.spark.loop.warming import WarmUp
from leasehold.spark.pipeline import Progress
from leasehold.stores.sqlite.store import SqliteStore
from tests.faults.fleet import Fleet
from tests.faults.hub_kinds import Log
from tests.faults.place import FENCE, Place
from tests.spark.handled_runs import opened_as
from tests.waiting import PATIENCE, until

NewRun = Callable[..., PipelineRun]


@pytest.fixture
def new_run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> NewRun:
    """Makes a run of a file on the session of all tests, which it leaves as it is."""

    def make(file: Path, name: str = "blue", **options: Any) -> PipelineRun:
        monkeypatch.setattr(spark, "stop", lambda: None)
        given = {"owner_name": name, "available_now": True, **options}
        return PipelineRun(read_pipeline_file(file), java=opened_as(spark), **given)

    return make


def test_a_run_that_is_to_stop_at_errors_names_the_batch(tmp_path: Path, new_run: NewRun) -> None:
    place = Place(tmp_path, Log(tmp_path, 2))
    place.send("1", '{"id":"a","n":1}', '{"id":"b","n":2}', '{"id":"c","n":0}')
    never_zero = "IF(n > 0, n, CAST(raise_error('never zero') AS BIGINT)) AS checked"
    place.write(fence=f"{FENCE}, {never_zero}", on_error="stop")
    with pytest.raises(PipelineFailed, match=r"never zero.*\(batch: partition 1 \[0, 3\)\)"):
        new_run(tmp_path / "p.toml").run(threading.Event())
    assert place.query("SELECT * FROM entities") == []
    records = SqliteStore(tmp_path / "stores.db").list_ownership(place.kind.hub.consumer_group("$Default")).records
    assert {record.owner_id for record in records} == {""}, "what it held is given up"
    place.kind.close()


@pytest.mark.more
def test_a_run_goes_on_behind_an_event_that_is_skipped(tmp_path: Path, new_run: NewRun) -> None:
    """Which its transform cannot compute and is not given, and another that the table refuses."""
    place = Place(tmp_path, Log(tmp_path, 2))
    place.send("1", '{"id":"a","n":1}', '{"id":"b","n":0}', '{"id":"c","n":3}')
    never_zero = "IF(n > 0, n, CAST(raise_error('never zero') AS BIGINT)) AS checked"
    place.write(fence=f"{FENCE}, {never_zero}", on_error="stop")
    with pytest.raises(PipelineFailed, match="never zero"):
        new_run(tmp_path / "p.toml").run(threading.Event())
    because = ("--because", "a test")
    assert place.command("skip", "p.toml", "--event", "1:1", *because).returncode == 0
    done = new_run(tmp_path / "p.toml").run(threading.Event())
    assert (done.totals.applied, done.totals.skipped, done.totals.read) == (2, 1, 3)
    place.send("0", '{"id":"a","n":9}', '{"id":"d","n":4}')
    with pytest.raises(PipelineFailed, match="was last written from partition 1, and event 0 of partition 0"):
        new_run(tmp_path / "p.toml").run(threading.Event())
    assert place.command("skip", "p.toml", "--event", "0:0", *because).returncode == 0
    done = new_run(tmp_path / "p.toml").run(threading.Event())
    assert (done.totals.applied, done.totals.skipped, done.totals.read) == (1, 1, 2)
    assert place.query("SELECT id, n FROM entities ORDER BY id") == [("a", 1), ("c", 3), ("d", 4)]
    rejected = place.query("SELECT partition, sequence_number, CAST(body AS TEXT) FROM entities_rejected ORDER BY 1, 2")
    assert rejected == [("0", 0, '{"id":"a","n":9}'), ("1", 1, '{"id":"b","n":0}')]
    place.kind.close()


def test_a_stop_leaves_a_batch_for_which_the_hub_does_not_answer(
    tmp_path: Path, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is no fault of the events: the next owner takes them as any others."""
    place = Place(tmp_path, Log(tmp_path, 1))
    file = tmp_path / "p.toml"
    file.write_text(file.read_text().replace("[ownership]", 'stop_timeout = "1s"\n[ownership]'))
    place.send("0", '{"id":"a","n":1}')
    stop, asked, answers = threading.Event(), threading.Event(), threading.Event()
    said: list[Progress] = []

    def silent(*args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        asked.set()
        answers.wait()
        yield from ()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(new_run(file, available_now=False, report=said.append).run, stop)
        try:
            until(lambda: said and said[-1].totals.applied == 1, "the first batch, by which the weight is known")
            monkeypatch.setattr(LogHub, "read", silent)  # in the driver
            place.send("0", '{"id":"b","n":2}')
            assert asked.wait(PATIENCE)
            stop.set()
            assert running.result(PATIENCE).totals.applied == 1
        finally:
            stop.set()
            answers.set()
    (record,) = SqliteStore(tmp_path / "stores.db").list_ownership(place.kind.hub.consumer_group("$Default")).records
    assert (record.owner_id, record.failures, record.last_error) == ("", 0, "")
    place.kind.close()


def test_nothing_is_claimed_before_a_job_has_run(
    tmp_path: Path, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance whose cluster has no room for it takes nothing from the others."""
    place = Place(tmp_path, Log(tmp_path, 1))
    place.send("0", '{"id":"a","n":1}')
    store, group = SqliteStore(tmp_path / "stores.db"), place.kind.hub.consumer_group("$Default")
    wait, owned = WarmUp.wait, []

    def looks_then(warm_up: WarmUp, stop: threading.Event) -> None:
        wait(warm_up, stop)
        listing = store.list_ownership(group)
        owned.append((listing.records, listing.presences))

    monkeypatch.setattr(WarmUp, "wait", looks_then)
    assert new_run(tmp_path / "p.toml").run(threading.Event()).totals.applied == 1
    assert [(len(records), len(presences)) for records, presences in owned] == [(0, 0)]
    place.kind.close()


@pytest.mark.more
def test_two_runs_in_one_session(tmp_path: Path, new_run: NewRun) -> None:
    """One session has one view of the name `events` for both."""
    with closing(Fleet(tmp_path, "append", Log(tmp_path), limit=80)) as fleet:
        file = tmp_path / "pipeline.toml"
        sql = "SELECT id, n, hub, partition, sequenceNumber, ownerLevel FROM events"
        file.write_text(file.read_text().replace('python = "gate:transform"', f'sql = "{sql}"'))
        fleet.send(100)
        runs = [new_run(file, name) for name in ("blue", "green")]
        with ThreadPoolExecutor(len(runs)) as pool:
            accounts = list(pool.map(lambda run: run.run(threading.Event()), runs))
        assert sum(account.totals.applied for account in accounts) == 400
        fleet.check_table()
