"""A handler that Spark's tasks call, in a program: balances of accounts, each event in effect once.

    python examples/spark_handler.py

Start such a program as often as you like: the instances share the partitions. This one ends when all is consumed.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from leasehold import Event
from leasehold.handlers import EntityEvent, Reject, entity
from leasehold.hubs.log import LogHub
from leasehold.spark import HandledOnSpark, MicroBatches, open_session


@entity(keys=["account"])
def balance(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
    """What an account has after an event: a row that depends on the one before."""
    before = state["balance"] if state else 0
    after = before + event.row["amount"]
    if after < 0:
        raise Reject(f"{-event.row['amount']} of {before}")
    return {"balance": after}


def main() -> None:
    """Send a thousand events about ten accounts, and keep their balances."""
    with tempfile.TemporaryDirectory() as folder:
        hub = LogHub.create(Path(folder) / "payments.db", partitions=4)
        payments = ({"account": f"a{n % 10}", "amount": (n * 37) % 101 - 50} for n in range(1000))
        hub.send(Event(json.dumps(one).encode(), partition_key=str(one["account"])) for one in payments)
        accounts = HandledOnSpark(
            balance,
            f"sqlite:///{folder}/entities.db",
            table="accounts",
            pipeline="payments",
            schema="account STRING, amount BIGINT",
            state="account STRING, balance BIGINT",
        )
        spark = open_session("accounts")
        with MicroBatches(
            spark,
            f"log:///{folder}/payments.db",
            store=f"sqlite:///{folder}/leasehold.db",
            pipeline="payments",
            table=accounts,
            max_events_per_trigger=300,
            available_now=True,
        ) as batches:
            for batch in batches:
                done = accounts.apply(batch)
                print(f"{done.applied} events have taken effect, {done.rejected} are rejected")
        accounts.close()
        with closing(sqlite3.connect(Path(folder) / "entities.db")) as table:
            for account, amount in table.execute("SELECT account, balance FROM accounts ORDER BY account"):
                print(account, amount)
        spark.stop()


if __name__ == "__main__":
    main()
