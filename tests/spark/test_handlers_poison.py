"""Poison on Spark: some entities raise, some hang: all others come out right, and the dead letters hold the rest."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leasehold.handlers import Failures, Retries
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event
from leasehold.spark import HandledOnSpark, MicroBatches
from tests.handlers.batches import rows
from tests.handlers.slow_handlers import told
from tests.spark.places import QUICK
from tests.waiting import PATIENCE, until

ACCOUNTS, EVENTS, OF_EACH = 200, 3, 2
POISON = {"raises": "ValueError: no good", "hangs": "HandlerTimeout: no answer within 5 s"}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_one_in_a_hundred_raises_and_one_hangs(tmp_path: Path, spark: SparkSession) -> None:
    """And an event that failed is tried again while nothing new arrives, until it is a dead letter."""
    poison = [f"{kind}-{number}" for kind in POISON for number in range(OF_EACH)]
    accounts = [f"a{number}" for number in range(ACCOUNTS - len(poison))]
    for place, account in enumerate(poison):
        accounts.insert(place * len(accounts) // len(poison), account)
    hub = LogHub.create(tmp_path / "log.db", partitions=2)
    for turn in range(EVENTS):
        for account in accounts:
            hub.send([Event(json.dumps({"account": account, "amount": turn}).encode(), partition_key=account)])
    table = HandledOnSpark(
        told,
        f"sqlite:////{tmp_path}/table.db",
        table="accounts",
        pipeline="p",
        schema="account STRING, amount BIGINT",
        state="account STRING, seen STRING",
        failures=Failures(retries=Retries(deliveries=2, first=0.05, longest=0.2), handler_timeout=5.0),
    )
    store = f"sqlite:////{tmp_path}/store.db"
    batches = MicroBatches(spark, hub.url, store=store, pipeline="p", table=table, max_events_per_trigger=150, **QUICK)

    def run() -> None:
        with batches:
            for batch in batches:
                table.apply(batch)

    def dead() -> list[tuple[str, str]]:
        found = rows(tmp_path, "SELECT body, reason FROM accounts_rejected")
        return [(json.loads(body)["account"], reason) for body, reason in found]

    def settled() -> bool:
        applied = rows(
            tmp_path, "SELECT count(*), sum(length(seen) - length(replace(seen, ',', '')) + 1) FROM accounts"
        )
        good = ACCOUNTS - len(poison)
        return (
            applied == [(good, good * EVENTS)]
            and len(dead()) >= len(poison) * EVENTS
            and not rows(tmp_path, "SELECT 1 FROM leasehold_parked")
        )

    loop = threading.Thread(target=run)
    with closing(hub), closing(table):
        loop.start()
        try:
            until(lambda: (tmp_path / "table.db").exists() and settled(), "the end of the campaign", 6 * PATIENCE)
        finally:
            batches.stop()
            loop.join()
    assert Counter(dead()) == {(account, POISON[account.partition("-")[0]]): EVENTS for account in poison}
