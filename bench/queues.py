"""Queues: messages a second and calls a message, under each policy and by the classic lock per message.

The local Service Bus server, in this process, and Azurite, whose table has the leases of the policies and whose blobs
are locks and states of the classic pattern: eight threads, each with a receiver, a blob lease around each message, as
docs/queues.md has it. What processes the messages is a process of its own, begun anew for each; the clock
starts when a tenth of the messages is done. States of the policies are in SQLite. Messages of an entity come in runs of
ten. What is received ten at a time by one thread is not contended for, which favours the classic pattern: nothing is
abandoned. A call of the service is a message that is handed out, an outcome, a renewal, or a session taken or given up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent))


from tests.queue_processor.counted import count_service
from tests.stores.azurite import Azurite

from leasehold_testkit.emulators.service_bus import QueueSettings, ServiceBusServer
from on_azurite import running_azurite

Row = tuple[str, float, str, float | None, str]
"""What was measured, the figure, its unit, its ratio to the classic pattern, and the goal."""

RUN, EACH = 10, 40
SIDES = Path(__file__).with_name("queue_sides.py")
POLICIES = ("abandon", "wait", "park", "sessions")


def run(quick: bool) -> list[Row]:
    """Measure; `quick` takes about half a minute."""
    messages = 400 if quick else 16_000
    settings = {"lock_duration": 60.0, "max_delivery_count": 1_000}
    queues = {name: QueueSettings(**settings) for name in ("classic", *POLICIES[:-1])}  # type: ignore[arg-type]
    queues["sessions"] = QueueSettings(requires_session=True, lock_duration=60.0)
    results: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder,
        pytest.MonkeyPatch.context() as patch,
        running_azurite() as azurite,
        ServiceBusServer(queues) as server,
    ):
        patch.setenv("LEASEHOLD_SERVICE_BUS_CONNECTION_STRING", server.connection_string())
        azurite.make_container("states")
        azurite.make_table("leases")
        calls = count_service(patch)
        classic = 0.0
        for name in ("classic", *POLICIES):
            _send(server, name, messages // 4 if name == "classic" else messages, messages // EACH)
            count = server.count(name)
            calls.clear()
            with _processed(server, azurite, name, Path(folder) / name, calls):
                began = _until(lambda name=name, some=0.9 * count: server.count(name) < some)  # type: ignore[misc]
                left = server.count(name)
                ended = _until(lambda name=name: server.count(name) == 0)  # type: ignore[misc]
            speed = left / (ended - began)
            classic = classic or speed
            what = "queues, a lock per message" if name == "classic" else f"queues, {name}"
            results += [
                (what, speed, "messages/s", speed / classic, "" if name == "classic" else "ratio >= 10"),
                (f"{what}: of the service", calls["service"] / count, "calls a message", None, "<= 2.1"),
                (f"{what}: of leases", calls["lease"] / count, "calls a message", None, "<= 0.05"),
            ]
    return results


def _send(server: ServiceBusServer, queue: str, messages: int, entities: int) -> None:
    """This many in runs: of all entities one run, then of all the next."""
    for start in range(0, messages, RUN):
        key = f"e{start // RUN % entities}"
        bodies = (json.dumps({"order_id": key, "amount": n}) for n in range(start, start + RUN))
        server.send(queue, *bodies, session_id=key if queue == "sessions" else None)


@contextmanager
def _processed(
    server: ServiceBusServer, azurite: Azurite, name: str, folder: Path, calls: Counter[str]
) -> Iterator[None]:
    """A process that works on the queue, until the end of the block."""
    folder.mkdir()
    states = azurite.connection_string if name == "classic" else azurite.url("aztable", "leases")
    process = subprocess.Popen(
        [sys.executable, str(SIDES), name, str(folder), str(server.namespace), states],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield
        said, _ = process.communicate("", timeout=120)
        calls["lease"] += int(said)
    finally:
        process.kill()
        process.wait()


def _until(condition: Callable[[], bool]) -> float:
    while not condition():
        time.sleep(0.01)
    return time.monotonic()
