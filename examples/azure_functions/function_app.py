"""An Azure Functions app with a Service Bus trigger: the platform receives and completes, a lease holds the entity.

    LEASE_STORE           where orders are leased: redis://…, postgresql://…, aztable://…; sqlite:///… on one machine
    ORDERS_DATABASE       the path of a SQLite file with the totals; a database of your own has the same two statements
    ServiceBusConnection  the platform's connection to the queue `orders`

One `EntityLeases`, and so one session, serves all calls of a worker. Between calls nothing is held: the platform may
freeze the process, and the next call opens another session if the old one has died meanwhile. When the order stays
busy, or the lease was lost, the function raises, and the platform brings the message again, a delivery counted.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from functools import cache

import azure.functions as func

from leasehold.leases import EntityLeases

app = func.FunctionApp()
WAIT = 20.0
"""Seconds that a call waits for a busy order: less than the message's lock, which the platform renews."""


@cache
def leases() -> EntityLeases:
    """The worker's leases."""
    return EntityLeases(os.environ["LEASE_STORE"], scope="orders")


@app.service_bus_queue_trigger(arg_name="message", queue_name="orders", connection="ServiceBusConnection")
def add_to_order(message: func.ServiceBusMessage) -> None:
    """Add a message's amount to its order, once in effect."""
    order = json.loads(message.get_body())
    with leases().hold(order["order_id"], wait=float(os.environ.get("LEASE_WAIT", WAIT))) as lease:
        lease.check()
        add(order["order_id"], order["amount"], message.sequence_number, lease.fence)


def add(order_id: str, amount: int, sequence_number: int | None, fence: int) -> None:
    """In one transaction: note the message, unless it is noted, and write the total, unless the fence is old."""
    with closing(sqlite3.connect(os.environ["ORDERS_DATABASE"], timeout=20)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS done (sequence_number INTEGER PRIMARY KEY)")
        database.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, total INTEGER, fence INTEGER)")
        if not database.execute("INSERT OR IGNORE INTO done VALUES (?)", [sequence_number]).rowcount:
            return
        written = database.execute(
            "INSERT INTO orders VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE"
            " SET total = total + excluded.total, fence = excluded.fence WHERE fence <= excluded.fence",
            [order_id, amount, fence],
        )
        if not written.rowcount:
            raise RuntimeError(f"the lease of {order_id} was lost: a later holder has written")
