"""Tables over Spark Connect, in a folder: those of `connect_table`, then some that handlers fill from one hub.

python -m tests.spark.connect_program FOLDER URL TABLE…

One program has both, since its server is a Java that nothing else can use.
"""

from __future__ import annotations

import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from leasehold.errors import ConfigError
from leasehold.handlers import Failures, Retries, Spread
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark import HandledOnSpark, MicroBatches
from leasehold.spark.handlers.jobs import ConnectTasks
from leasehold.spark.session import keeping
from leasehold.spark.session.java import use_java
from tests.spark import connect_table
from tests.spark.conftest import NOTHING_COMPILED
from tests.spark.connect_handlers import hanging, order, parts, placed, together
from tests.waiting import until

KEYS, EVENTS, PARTITIONS = 7, 60, 3
SCHEMA, STATE = "order_id STRING, n BIGINT", "order_id STRING, total BIGINT, trail STRING"


def main(folder: Path, url: str, tables: list[str]) -> None:
    use_java()
    spark = SparkSession.builder.remote("local[2]").config(map=NOTHING_COMPILED).getOrCreate()
    connect_table.fill(spark, folder, url)
    spark.conf.set("spark.default.parallelism", "many")  # nobody checks it
    _handle(spark, folder, url, tables)
    _wait(spark, folder)
    spark.stop()


def _handle(spark: SparkSession, folder: Path, url: str, tables: list[str]) -> None:
    """Fill these tables, and say what is refused."""
    hub = LogHub.create(folder / "hub.db", partitions=PARTITIONS)
    hub.send(Event(b'{"order_id":"k%d","n":%d}' % (n % KEYS, n), partition_key=f"k{n % KEYS}") for n in range(EVENTS))
    scattered = LogHub.create(folder / "scattered.db", partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        mine = range(partition, EVENTS, PARTITIONS)
        scattered.send((Event(b'{"order_id":"k%d","n":%d}' % (n % KEYS, n)) for n in mine), partition=str(partition))
    tasks = ConnectTasks(spark)
    answers = tasks.each(placed, range(8))
    print("said", tasks.cores, [number for number, _ in answers], len({place for _, place in answers}))
    print("said", sorted(tasks.sorted_out(parts, together, range(4), 3)))
    kinds: dict[str, tuple[LogHub, Any, dict[str, Any]]] = {
        "keyed": (hub, order, {}),
        "transformed": (hub, order, {"sql": True}),
        "hung": (hub, hanging, {"failures": Failures(on_failure="discard", handler_timeout=5.0)}),
        "scattered": (scattered, order, {"spread": Spread("n")}),
        "leased": (scattered, order, {"spread": Spread("n", exclusive=url)}),
    }
    for name in tables:
        _fill(spark, folder, url, name, *kinds[name])
    try:
        _fill(spark, folder, f"sqlite:///{folder}/t.db", "file", hub, order, {})
    except ConfigError as error:
        print("said", error.field, error.rule)
    hub.close()
    scattered.close()


def _fill(
    spark: SparkSession, folder: Path, url: str, name: str, hub: LogHub, handler: Any, more: dict[str, Any]
) -> None:
    """Fill the table `name` with all that the hub has; `sql` says that the columns come from a transform."""
    sql = more.pop("sql", False)
    given: dict[str, Any] = {"failures": Failures(retries=Retries(deliveries=1)), **more}
    orders = HandledOnSpark(handler, url, table=name, pipeline=name, schema=SCHEMA, state=STATE, **given)
    store = f"sqlite:///{folder}/stores-{name}.db"
    options: dict[str, Any] = {"pipeline": name, "table": orders, "available_now": True, "max_events_per_trigger": 30}
    with closing(orders), MicroBatches(spark, hub.url, store=store, **options) as batches:
        for batch in batches:
            rows = batch.events.selectExpr(
                *("get_json_object(decode(body, 'utf-8'), '$.order_id') AS order_id",),
                *("CAST(get_json_object(decode(body, 'utf-8'), '$.n') AS BIGINT) AS n", "body", "hub", "partition"),
                *("sequenceNumber", "ownerLevel", "enqueuedTime"),
            )
            orders.apply(batch, rows if sql else None)
        done = orders.totals  # what ends beside a call that hangs is parked, and tried again
        rejected = done.rejected + done.retried_rejected
        print("said", name, done.used + done.retried - rejected, rejected)


def _wait(spark: SparkSession, folder: Path) -> None:
    """A loop without events uses its session: what the server knows of that, in whose process this is."""
    keeping.LONGEST = 0.05
    java: Any = SparkContext._active_spark_context
    server = getattr(java._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
    uses: set[int] = set()

    def last_use() -> int:
        (session,) = (one for one in sessions() if one.sessionId() == spark.client._session_id)
        return int(session.lastAccessTimeMs())

    def sessions() -> list[Any]:
        found = getattr(server, "MODULE$").sessionManager().listActiveSessions()
        return [found.apply(place) for place in range(found.size())]

    def watch() -> None:
        try:
            until(lambda: "leasehold-session" in {one.name for one in threading.enumerate()}, "a loop that waits")
            until(lambda: uses.add(last_use()) or len(uses) > 5, "use of the session")  # type: ignore[func-returns-value]
        finally:
            batches.stop()

    empty = LogHub.create(folder / "empty.db", partitions=1)
    store = f"sqlite:///{folder}/stores-empty.db"
    with closing(empty), MicroBatches(spark, empty.url, store=store, pipeline="empty") as batches:
        beside = threading.Thread(target=watch)
        beside.start()
        print("said", list(batches), len(uses) > 5)
        beside.join()
    print("said", "leasehold-session" in {one.name for one in threading.enumerate()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
