"""A processor whose table is a log: python -m tests.queue_processor.accounts URL FOLDER SINK NAME POLICY WHAT.

Each message is `{"account": …, "n": …}`, and an account's state has the numbers that were applied to it, in order. WHAT
is `die`, to be killed between a commit and its completion, or `hang`, to wait in the handler until the file `go` is
there, after making the file `hanging`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from leasehold.handlers.contract import EntityEvent, Reject, entity
from leasehold.processors.queues import QueueDelivery, QueueProcessor
from leasehold.queues import QueueMessage
from leasehold.queues.service_bus.queue import ServiceBusQueue
from leasehold.runtime import Runtime
from tests.waiting import NEVER, PATIENCE, until

Before = Callable[[EntityEvent], object]
LEASE = float(os.environ.get("LEASE", NEVER))
"""Seconds, given where a process is paused past it."""


def sqlite_in(folder: Path) -> str:
    """The URL of the table in `folder`."""
    return f"sqlite:////{folder}/table.db"


def processor(
    url: str,
    folder: Path,
    name: str,
    before: Before = lambda event: None,
    *,
    sink: str | None = None,
    leases: str | None = "",
    delivery: QueueDelivery | None = None,
    runtime: Runtime | None = None,
) -> QueueProcessor:
    """A processor on the table in `folder`, or in `sink`; `before` is called in the handler, for each message.

    Without `leases`, in a file of `folder`, or nowhere where the queue has sessions.
    """
    if leases == "":
        leases = None if "sessions=true" in url else f"sqlite:////{folder}/leases.db"

    @entity(keys=["account"])
    def account(state: dict[str, Any] | None, event: EntityEvent) -> dict[str, Any]:
        before(event)
        if event.row["n"] is None:
            raise Reject("no n")
        log = f"{state['log']} " if state else ""
        return {"log": f"{log}{event.row['n']}", "late": (state["late"] if state else 0) + event.late}

    return QueueProcessor(
        url,
        leases,
        account,
        sink=sink or sqlite_in(folder),
        table="accounts",
        pipeline="accounts",
        schema="account STRING, n BIGINT",
        state="account STRING, log STRING, late BIGINT",
        delivery=replace(delivery or QueueDelivery(), holder=name, lease_duration=LEASE),
        runtime=runtime,
    )


LOGS = "SELECT account, log FROM accounts"


def read_logs(rows: Iterable[tuple[str, str]]) -> dict[str, list[int]]:
    """What the rows of `LOGS` say."""
    return {key: [int(n) for n in log.split()] for key, log in rows}


def logs(folder: Path) -> dict[str, list[int]]:
    """What was applied to each account, in order."""
    if not (folder / "table.db").exists():
        return {}
    with closing(sqlite3.connect(folder / "table.db", timeout=PATIENCE)) as connection:
        try:
            return read_logs(connection.execute(LOGS))
        except sqlite3.OperationalError:
            return {}  # not made yet


def _hang(folder: Path) -> Before:
    def before(event: EntityEvent) -> None:
        if not (folder / "hanging").exists():
            (folder / "hanging").write_text(str(event.row["n"]))
            until((folder / "go").exists, "the word to go on")

    return before


def _die(self: ServiceBusQueue, messages: Sequence[QueueMessage]) -> list[QueueMessage]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


if __name__ == "__main__":
    url, folder, sink, name, policy, what = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
    if what == "die":
        ServiceBusQueue.complete = _die  # type: ignore[method-assign]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever started the tests ignores it
    before = _hang(folder) if what == "hang" else lambda event: None
    delivery = QueueDelivery(busy=policy, most=20, workers=4)
    processor(url, folder, name, before, sink=sink, delivery=delivery).run()
