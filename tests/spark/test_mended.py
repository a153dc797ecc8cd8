"""What a person has to mend, under `leasehold run` on Spark: it ends a start, and a run waits for it and goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit, repeat

from leasehold import Event
from leasehold.errors import LeaseholdError, SinkUnavailable, Verdict
from leasehold.hubs.log.hub import LogHub
from leasehold.pipeline_file import read_pipeline_file
from leasehold.spark import PipelineRun
from leasehold.stores.sqlite.store import SqliteStore
from tests.mending import Server, Trouble, fill, live_through, make_room, says, small_disk
from tests.spark import places
from tests.spark.handled_runs import opened_as
from tests.stores.servers import PostgresServer
from tests.waiting import PATIENCE, until

PIPELINE = """
name = "numbers"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
load_balancing_interval = "300ms"
partition_expiration = "600s"
[transform]
schema = "id STRING, n BIGINT"
[sink]
url = "{url}"
table = "numbers"
keys = ["id"]
"""


class Numbers:
    """The pipeline, run on the session of all tests, and what is sent to it."""

    def __init__(self, folder: Path, spark: SparkSession, server: Server) -> None:
        self.file = folder / "p.toml"
        self._spark, self._server = spark, server
        self._hub = LogHub.create(folder / "hub.db", partitions=2)
        self.sent = 0

    def goes_to(self, url: str) -> None:
        self.file.write_text(PIPELINE.format(url=url))

    def send(self, keys: int = 300) -> None:
        numbers = range(self.sent, self.sent + keys)
        bodies = [json.dumps({"id": f"{number:09d}", "n": number % 5}).encode() for number in numbers]
        self._hub.send([Event(body) for body in bodies], partition="0")
        self.sent += keys

    def is_done(self) -> bool:
        return self._server.look("SELECT count(*) FROM numbers") == [(self.sent,)]

    def run(self, stop: threading.Event, **options: Any) -> object:
        return PipelineRun(read_pipeline_file(self.file), java=opened_as(self._spark), **options).run(stop)

    def refused(self, parts: tuple[str, ...]) -> None:
        """A start is refused and says why, and no partition is to blame."""
        with pytest.raises(LeaseholdError) as raised:
            self.run(threading.Event())
        assert says(str(raised.value), parts)
        records = (
            SqliteStore(self.file.parent / "stores.db").list_ownership(self._hub.consumer_group("$Default")).records
        )
        assert {(record.owner_id, record.failures) for record in records} <= {("", 0)}


@pytest.fixture
def server(own_postgres: PostgresServer) -> Iterator[Server]:
    made = Server(own_postgres)
    yield made
    made.close()


@pytest.mark.more  # tests/handlers/test_mended.py has it without Spark
def test_in_postgres(tmp_path: Path, spark: SparkSession, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)  # it is that of all tests
    numbers, notes = Numbers(tmp_path, spark, server), list[str]()
    numbers.goes_to(server.admin_url)
    numbers.send(1)
    numbers.run(threading.Event(), available_now=True)
    server.run(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
        "CREATE TABLE known (n bigint PRIMARY KEY)",
        "INSERT INTO known SELECT generate_series(0, 4)",
        "GRANT SELECT ON known TO {role}",
        "ALTER TABLE numbers ADD FOREIGN KEY (n) REFERENCES known",
    )
    numbers.goes_to(server.url)
    with small_disk(server.folder / f"{server.role}.disk") as disk:
        server.run(f"ALTER TABLE numbers SET TABLESPACE {server.on_disk(disk)}")
        troubles = [
            Trouble(
                "a right is revoked",
                lambda: server.run("REVOKE INSERT ON numbers FROM {role}"),
                lambda: server.run("GRANT INSERT ON numbers TO {role}"),
                ("permission denied for table numbers", "has no INSERT", "GRANT INSERT ON public.numbers TO few_"),
            ),
            Trouble(
                "a right on a foreign key's table is missing",
                lambda: server.run("REVOKE SELECT ON known FROM {role}"),
                lambda: server.run("GRANT SELECT ON known TO {role}"),
                ("permission denied for table known", "has no SELECT", "GRANT SELECT ON public.known TO few_"),
            ),
            Trouble(
                "the disk is full",
                lambda: fill(disk),
                lambda: make_room(disk),
                ("No space left on device", "Make room on the server's disk"),
            ),
            Trouble(
                "the password is another",
                server.lock_out,
                server.let_in,
                ("password authentication failed", "ALTER ROLE … PASSWORD", "correct the URL or PGPASSWORD"),
            ),
        ]
        for trouble in troubles:
            numbers.send()
            trouble.begin()
            numbers.refused(trouble.says)
            trouble.mend()
        stop = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(numbers.run, stop, report=lambda progress: notes.append(progress.note))
            try:
                until(lambda: numbers.is_done() or running.done(), "the run to catch up")
                for trouble in troubles:
                    live_through(trouble, numbers.file, numbers.send, numbers.is_done)
                    assert any(says(note, (*trouble.says, "trying again in")) for note in notes), trouble.name
                assert not running.done()
            finally:
                stop.set()
                running.result(PATIENCE)
        server.run("DROP TABLE numbers")


def test_in_a_program_with_a_table_in_a_file(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    loop = places.Place(spark, tmp_path)
    loop.send(1, "0")
    with small_disk(tmp_path / "disk") as disk:
        fill(disk)
        with pytest.raises(SinkUnavailable, match=r"disk is full.*make room") as refused:
            places.each(
                loop.batches(), lambda batch: loop.table(file="disk/t.db").apply(places.plain(batch.events), batch)
            )
        assert refused.value.verdict is Verdict.MEND
        make_room(disk)
        table, applied, full = loop.table(file="disk/t.db"), 0, 0
        with loop.batches(available_now=False) as batches:
            for batch in batches:
                rows = places.plain(batch.events).withColumn("pad", repeat(lit("x"), 500))
                result = table.apply(rows, batch)
                assert result is not None
                applied += result.applied
                if applied == 1 and not full:
                    fill(disk)
                    loop.send(300, "0")
                full += not result.applied
                if full == 2 and not result.applied:
                    make_room(disk)
                if applied == loop.sent:
                    batches.stop()
        assert full >= 2
        table.close()
    assert [line for line in caplog.messages if "comes again until it is" in line and "disk is full" in line]
