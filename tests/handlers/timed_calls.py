"""Calls of `slow_handlers.told` with a time-out, whose time is up as soon as they hang, and no sooner.

`timed` has every other call of this process wait for its answer, however long that takes: only those hang and go on
beside others whose account says so.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from leasehold.handlers.calling import processes
from leasehold.handlers.calling.crossing import read_call
from leasehold.handlers.contract import EntityEvent, EntityHandler
from leasehold.handlers.table import HandledTable
from leasehold.processors.events.stopping import StopReason
from leasehold_testkit.clock import ManualClock
from tests.handlers import flat
from tests.handlers.batches import body, given, rows
from tests.handlers.slow_handlers import told
from tests.waiting import NEVER, PATIENCE, until

SHORT = 0.7
"""Seconds that a call may take, by the settings; what hangs has had them as soon as it hangs."""
NO_ANSWER = f"HandlerTimeout: no answer within {SHORT:g} s"

HANGS = "hangs", "starts", "stops"
BESIDE = *HANGS, "slow"


class Process(processes._Process):
    """A process of the product in which the time of a call is what its account says."""

    _does = ""

    def begin(self, said: bytes, timeout: float) -> bool:
        """Begin with the call, and wait until it hangs or is slow if it will: it has all the time for that."""
        event = read_call(said)[1]
        self._does = event.key.partition("-")[0]
        if not super().begin(said, NEVER):
            return False
        self._timeout = timeout
        if self._does in BESIDE:
            until(lambda: self._noted(f"{event.key} {event.sequence_number} {event.delivery}"), "a call that is noted")
        if self._does in HANGS:
            until(self._hangs, "a handler that hangs")
        return True

    def answer(self, patience: float | None) -> bytes | None:
        """What goes on beside others is what hangs, or is slow: at first without a time-out, which is up later."""
        beside = self._does in BESIDE
        if beside and patience is not None and patience > 0:
            return None
        if self._does in HANGS:
            self._until = time.monotonic()
        return super().answer(patience if beside else None)

    def _noted(self, call: str) -> bool:
        calls = Path(os.environ["CALLS"])
        return calls.exists() and f"{call} {self._process.pid}\n" in calls.read_text()

    def _hangs(self) -> bool:
        pid = self._process.pid
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED or hanging(pid).exists()


def hanging(pid: int) -> Path:
    """The file that a process leaves whose handler hangs."""
    return Path(f"{os.environ['CALLS']}-hanging-{pid}")


@pytest.fixture
def timed(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_Process", Process)
    monkeypatch.setattr(processes, "_LOOKING", PATIENCE)


def event(key: str, number: int = 0, **more: Any) -> EntityEvent:
    return EntityEvent(key, b"\x00\xff", {"account": key}, "h", "0", number, 9.5, 3, **more)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def made(folder: Path, handler: EntityHandler, **more: Any) -> HandledTable:
    settings: dict[str, Any] = {
        "handler_timeout": SHORT,
        "clock": ManualClock(),
        "rng": SimpleNamespace(random=lambda: 0.0),
        **more,
    }
    return flat.table(
        handler,
        f"sqlite:////{folder}/table.db",
        table="accounts",
        pipeline="p",
        schema="account STRING, amount BIGINT",
        state="account STRING, seen STRING",
        **settings,
    )


class Giving:
    """Gives a table events of these accounts."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.folder, self.clock, self.asked = folder, ManualClock(), list[float]()
        self.table = made(folder, told, clock=self.clock, **more)
        self.table.level_of = lambda hub, partition: 99
        self._context: Any = SimpleNamespace(start=0, call_again=self.asked.append)

    def give(self, first: int, *accounts: str) -> None:
        batch, _ = given(1, first, *(body(0, account) for account in accounts))
        self.table.on_events(batch, self._context)

    def leave(self, hub: str = "h") -> None:
        self.table.on_partition_stop(SimpleNamespace(hub=hub, partition="0"), StopReason.HANDED_OVER)

    def seen(self) -> dict[str, str]:
        return dict(rows(self.folder, "SELECT account, seen FROM accounts ORDER BY account"))

    def waiting(self) -> list[tuple[int, int, str]]:
        return rows(self.folder, "SELECT sequence_number, deliveries, error FROM leasehold_parked ORDER BY 1")

    def rejected(self) -> list[tuple[int, str]]:
        return rows(self.folder, "SELECT sequence_number, reason FROM accounts_rejected ORDER BY 1")

    def close(self) -> None:
        self.table.close()


def numbers(calls: Path) -> list[int]:
    return [int(line.split()[1]) for line in calls.read_text().splitlines()]
