"""Handlers in programs of `MicroBatches`: what `apply` does, what is tried between batches, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conftest import place as postgres_place
from leasehold.errors import ConfigError, StoreUnavailable, UsageError
from leasehold.handlers import Failures, Spread
from leasehold.handlers.contract import EntityEvent, Reject, entity
from leasehold.handlers.table import Retries
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.runtime import Runtime
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold.spark import EntityTable, HandledOnSpark, MicroBatches
from leasehold.spark.loop.between import Between
from leasehold.stores.memory import MemoryLeaseStore
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.handlers.orders import rows
from tests.repository import ROOT
from tests.sinks.postgres import Place
from tests.spark import handled_program
from tests.spark.places import FENCE, QUICK, let_expire
from tests.waiting import PATIENCE, until

__all__ = ["postgres_place"]

GIVEN: dict[str, Any] = {
    "table": "orders",
    "pipeline": "orders",
    "schema": "order_id STRING, amount BIGINT",
    "state": "order_id STRING, total BIGINT, bodies STRING, batch STRING",
}


def handler(folder: Path) -> Any:
    """Adds up, and keeps what was sent; 13 raises until there is the file `mended`, and 0 is rejected."""
    mended = str(folder / "mended")

    @entity(keys=["order_id"])
    def order(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
        if event.row["amount"] == 13 and not Path(mended).exists():
            raise ConnectionError("away")
        if event.row["amount"] == 0:
            raise Reject("nothing")
        before = state or {"total": 0, "bodies": ""}
        total, bodies = before["total"] + event.row["amount"], before["bodies"] + event.body.decode()
        return {"total": total, "bodies": bodies, "batch": event.batch_id}

    return order


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    LogHub.create(tmp_path / "hub.db", partitions=2).close()
    return tmp_path


@pytest.fixture
def table(folder: Path) -> Iterator[HandledOnSpark]:
    retries = Retries(first=0.05, longest=0.2)
    made = HandledOnSpark(
        handler(folder),
        "sqlite:///entities.db",
        runtime=Runtime(base=folder),
        failures=Failures(retries=retries),
        **GIVEN,
    )
    yield made
    made.close()


def send(folder: Path, *amounts: tuple[str, int]) -> None:
    with closing(LogHub(folder / "hub.db")) as hub:
        hub.send(Event(json.dumps({"order_id": key, "amount": n}).encode(), partition_key=key) for key, n in amounts)


def batches(spark: SparkSession, folder: Path, table: Any, **options: Any) -> MicroBatches:
    given = {**QUICK, "pipeline": "orders", "available_now": True, "table": table, **options}
    return MicroBatches(spark, f"log:////{folder}/hub.db", store=f"sqlite:////{folder}/stores.db", **given)


def totals(folder: Path) -> dict[str, int]:
    return dict(rows(folder, "SELECT order_id, total FROM orders"))


def test_a_batch_is_handled_and_one_that_comes_again_is_passed_by(
    folder: Path, table: HandledOnSpark, spark: SparkSession
) -> None:
    send(folder, ("a", 1), ("b", 2), ("a", 3), ("b", 0))
    results: list[BatchResult] = []
    named: set[str] = set()
    for _ in range(2):
        with batches(spark, folder, table) as loop:
            for batch in loop:
                results.append(table.apply(batch))
                named.add(batch.id)
            with closing(sqlite3.connect(folder / "stores.db")) as connection:
                connection.execute("UPDATE leasehold_checkpoint SET sequence_number = -1")
                connection.commit()
    assert totals(folder) == {"a": 4, "b": 2}
    assert {batch for (batch,) in rows(folder, "SELECT batch FROM orders")} <= named
    assert rows(folder, "SELECT reason FROM orders_rejected") == [("nothing",)]
    assert (table.totals.used, table.totals.rejected, table.totals.replayed) == (4, 1, 4)
    assert sum(one.used for one in results) == 4


def test_a_parked_event_is_tried_again_while_nothing_arrives_also_by_a_loop_that_gets_no_batch(
    folder: Path, table: HandledOnSpark, spark: SparkSession
) -> None:
    send(folder, ("a", 1), ("b", 13), ("b", 2))
    with batches(spark, folder, table) as loop:
        for batch in loop:
            table.apply(batch)
    assert totals(folder) == {"a": 1}
    assert len(rows(folder, "SELECT 1 FROM leasehold_parked")) == 2
    with batches(spark, folder, table, available_now=False) as loop:

        def mend_and_stop() -> None:
            until(lambda: _is_held(folder), "a partition to be held")
            (folder / "mended").touch()
            until(lambda: totals(folder) == {"a": 1, "b": 15}, "the parked ones to be handled")
            loop.stop()

        beside = threading.Thread(target=mend_and_stop)
        beside.start()
        assert list(loop) == []
        beside.join(PATIENCE)
    assert totals(folder) == {"a": 1, "b": 15}
    assert rows(folder, "SELECT 1 FROM leasehold_parked") == []


def _is_held(folder: Path) -> bool:
    with closing(sqlite3.connect(folder / "stores.db")) as connection:
        return bool(connection.execute("SELECT 1 FROM leasehold_ownership WHERE owner_id <> ''").fetchall())


def test_the_handler_is_given_what_a_transform_has_made(
    folder: Path, table: HandledOnSpark, spark: SparkSession
) -> None:
    send(folder, ("a", 1), ("b", 2), ("skipped", 5))
    other = EntityTable(f"sqlite:////{folder}/entities.db", "plain", mode="append", pipeline="orders")
    with batches(spark, folder, table, schema="order_id STRING, amount BIGINT") as loop:
        for batch in loop:
            made = batch.events.where("order_id <> 'skipped'").selectExpr(
                "order_id", "10 * amount AS amount", "'beside' AS more", *FENCE, "enqueuedTime"
            )
            table.apply(batch, made)
            other.apply(batch.events.select("order_id", *FENCE), batch)
    assert totals(folder) == {"a": 10, "b": 20}
    assert rows(folder, "SELECT bodies FROM orders WHERE order_id = 'a'") == [('{"order_id":"a","amount":10}',)]
    assert len(rows(folder, "SELECT 1 FROM plain")) == 3


def test_columns_that_a_handler_needs_and_the_loop_does_not_read_are_named(
    folder: Path, table: HandledOnSpark, spark: SparkSession
) -> None:
    send(folder, ("a", 1))
    with batches(spark, folder, table, columns=["body", *FENCE]) as loop:
        for batch in loop:
            with pytest.raises(ConfigError, match=r"columns.*no enqueuedTime"):
                table.apply(batch)
            break


def test_an_outage_of_what_the_handler_calls_gives_the_batch_again(
    folder: Path, table: HandledOnSpark, spark: SparkSession
) -> None:
    send(folder, *((f"k{number}", 13) for number in range(40)))
    given_up = 0
    with batches(spark, folder, table) as loop:
        for batch in loop:
            result = table.apply(batch)
            if batch.failure is not None:
                assert (batch.failure.kind, result) == ("away", one_row_each())
                given_up += 1
                (folder / "mended").touch()
    assert given_up == 1
    assert totals(folder) == {f"k{number}": 13 for number in range(40)}
    assert rows(folder, "SELECT 1 FROM leasehold_parked") == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["order_id", "amount", *FENCE], "rows.*its rows have no enqueuedTime"),
        (["order_id", *FENCE, "enqueuedTime"], "rows.*here is no amount"),
        (["order_id", "int(amount) AS amount", *FENCE, "enqueuedTime"], "amount.*int32, and schema says int64"),
        (["order_id", "amount", *FENCE, "enqueuedTime", "explode(array(1, 2)) AS n"], "rows: it makes 2 rows of"),
    ],
)
def test_rows_that_a_handler_cannot_be_given_are_refused_before_it_is_called(
    folder: Path, table: HandledOnSpark, spark: SparkSession, columns: list[str], said: str
) -> None:
    send(folder, ("a", 1))
    with batches(spark, folder, table, schema="order_id STRING, amount BIGINT") as loop:
        for batch in loop:
            with pytest.raises((ConfigError, UsageError), match=said):
                table.apply(batch, batch.events.selectExpr(*columns))
            loop.stop()
    assert totals(folder) == {}


def test_a_loop_that_was_not_given_the_table_and_one_of_another_pipeline(
    folder: Path, table: HandledOnSpark, spark: SparkSession
) -> None:
    send(folder, ("a", 1))
    with batches(spark, folder, None) as loop:
        for batch in loop:
            with pytest.raises(UsageError, match=r"MicroBatches\(…, table=…\)"):
                table.apply(batch)
            break
    with batches(spark, folder, table, pipeline="others") as loop, pytest.raises(ConfigError, match="pipeline"):
        next(loop)
    assert totals(folder) == {}


WITH_TIME = "order_id STRING, amount BIGINT, at BIGINT"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"failures": Failures(on_failure="wait")}, "on_failure.*plain processor"),
        ({"schema": None}, "schema.*these columns"),
        (
            {"schema": WITH_TIME, "spread": Spread("at", exclusive=MemoryLeaseStore())},
            "exclusive = 'MemoryLeaseStore'.*by its URL",
        ),
        ({"shema": ""}, "shema"),
    ],
)
def test_what_handlers_on_spark_have_not_is_refused_by_name(folder: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=said):
        HandledOnSpark(handler(folder), "sqlite:///entities.db", runtime=Runtime(base=folder), **{**GIVEN, **more})


@pytest.mark.parametrize(
    ("url", "exclusive", "key"),
    [
        ("sqlite:///entities.db", "redis://h", "url"),
        ("postgresql://h/d", "sqlite:///stores.db", "exclusive"),
    ],
)
def test_files_of_this_machine_are_none_for_the_tasks_of_a_cluster(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, url: str, exclusive: str, key: str
) -> None:
    given = {**GIVEN, "schema": WITH_TIME, "spread": Spread("at", exclusive=f"sqlite:////{folder}/stores.db")}
    with closing(HandledOnSpark(handler(folder), f"sqlite:////{folder}/entities.db", **given)) as table:
        monkeypatch.setattr(table, "_url", url)
        monkeypatch.setattr(table, "_leases", exclusive)
        monkeypatch.setattr(spark.sparkContext, "master", "spark://host:7077")
        with pytest.raises(ConfigError, match=rf"^{key} = .*spark://host:7077 have no file of this machine"):
            batches(spark, folder, table)


def test_a_store_that_is_away_between_batches_ends_nothing(table: HandledOnSpark) -> None:
    """The consumer group is tied to the table before the first parked event is tried."""
    asked: list[str] = []

    def tie(met: Any) -> None:
        asked.append(met.spec.called)
        if len(asked) == 1:
            raise StoreUnavailable("away")
        raise UsageError("another table's")

    share: Any = SimpleNamespace(
        held=lambda with_asked: {"0": SimpleNamespace(owner_level=1)},
        trusts=lambda partition, level: True,
        level_of=None,
    )
    between = Between(table, share, tie, lambda: False)
    between()
    with pytest.raises(UsageError, match="another table's"):
        between()
    assert [str(name) for name in asked] == ["orders", "orders"]


def launched(folder: Path, url: str, name: str) -> subprocess.Popen[bytes]:
    """An instance as a process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "tests.spark.handled_program", str(folder), url, name]
    return subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL)


def check_two_instances(
    folder: Path,
    url: str,
    look: Callable[[str], list[Any]],
    other: Callable[[], AbstractContextManager[object]],
) -> None:
    """Two instances share the partitions; one is killed; the other applies all, and tries what both have parked.

    The one is a process. The `other` works in a block, is told to stop at its end, and has its name.
    """
    LogHub.create(folder / "sent.db", partitions=1).close()
    events = [(f"o{number % 10}", 13 if number in (30, 31) else 100 + number) for number in range(200)]

    def owners() -> set[str]:
        with closing(sqlite3.connect(folder / "stores.db")) as connection:
            try:
                found = connection.execute("SELECT owner_id FROM leasehold_ownership").fetchall()
            except sqlite3.OperationalError:
                return set()
        return {str(owner)[:2] for (owner,) in found if owner}

    def totals() -> dict[str, int]:
        return dict(look("SELECT order_id, total FROM orders"))

    def sent() -> dict[str, list[int]]:
        found = defaultdict(list)
        with closing(LogHub(folder / "sent.db")) as hub:
            end = hub.partition_properties()["0"].end
            for part in hub.read("0", 0, end, columns=["body"]):
                for one in map(json.loads, part.column(0).to_pylist()):
                    found[one["order_id"]].append(one["total"])
        return dict(found)

    def steps(amounts: list[tuple[str, int]]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for key, amount in amounts:
            found[key].append(amount + (found[key][-1] if found[key] else 0))
        return dict(found)

    with ExitStack() as stack:
        killed = launched(folder, url, "p0")
        stack.callback(killed.wait)
        stack.callback(killed.kill)
        stack.enter_context(other())
        until(lambda: owners() == {"p0", "p1"}, "both to own something")
        send(folder, *events[:100])
        until(lambda: sum(map(len, sent().values())) > 20, "some to be handled")
        killed.kill()
        killed.wait()
        let_expire(folder / "stores.db", "p0")
        send(folder, *events[100:])
        apart = last(steps([(key, amount) for key, amount in events if key not in ("o0", "o1")]))
        until(
            lambda: {key: total for key, total in totals().items() if key not in ("o0", "o1")} == apart,
            "all but what is parked to be handled",
        )
        failed = "SELECT count(*) FROM leasehold_parked WHERE error <> ''"
        until(lambda: look(failed) == [(2,)], "both that fail to be parked")
        (folder / "mended").touch()
        until(lambda: totals() == last(steps(events)) and sent() == steps(events), "the parked ones to be handled")
        assert look("SELECT 1 FROM leasehold_parked") == []
        until(lambda: look("SELECT 1 FROM leasehold_outbox") == [], "a sender to remove what it has sent")


def last(steps: dict[str, list[int]]) -> dict[str, int]:
    return {key: found[-1] for key, found in steps.items()}


@contextmanager
def in_this_process(spark: SparkSession, folder: Path, url: str) -> Iterator[None]:
    """An instance on the tests' own session, while the block lasts."""
    orders = handled_program.table(folder, url)
    loop = handled_program.batches(spark, folder, orders, "p1")
    working = threading.Thread(target=handled_program.work, args=(loop, orders))
    working.start()
    try:
        yield
    finally:
        loop.stop()
        working.join(PATIENCE)
    assert not working.is_alive()


@contextmanager
def in_a_process(folder: Path, url: str) -> Iterator[None]:
    """An instance as a process, which ends by SIGTERM at the end of the block."""
    process = launched(folder, url, "p1")
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_two_instances_of_which_one_is_killed(folder: Path, spark: SparkSession) -> None:
    url = "sqlite:///entities.db"
    check_two_instances(folder, url, lambda query: rows(folder, query), lambda: in_this_process(spark, folder, url))


@pytest.mark.soak
def test_two_programs_of_which_one_is_killed_on_postgres(folder: Path, postgres_place: Place) -> None:
    url = postgres_place.url
    check_two_instances(folder, url, postgres_place.look, lambda: in_a_process(folder, url))
