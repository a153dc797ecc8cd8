"""Messages of an entity that are handled under one lease are committed together, and what fails leaves the others."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import LeaseholdError, SinkError, UsageError, Verdict
from leasehold.handlers.contract import EntityEvent
from leasehold.leases import EntityLeases
from leasehold.processors.queues import QueueDelivery, work
from leasehold.processors.queues.content import MessageContent
from leasehold.processors.queues.messages_in_hand import HeldMessage
from leasehold.queues import QueueMessage
from leasehold.queues.locks import LockTrust
from leasehold.sinks.beside.messages.contract import MessageChange
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.rules.table_spec import BatchResult
from leasehold_testkit.emulators.service_bus import ServiceBusServer
from tests.azure_clients import LEAVES_SOCKETS
from tests.queue_processor.accounts import logs, processor
from tests.queue_processor.runs import QUICK, bodies, running
from tests.queues.conftest import url
from tests.waiting import until

pytestmark = LEAVES_SOCKETS


def changes_of(batch: Batch) -> Sequence[MessageChange]:
    """What messages make of an entity."""
    assert batch.messages is not None
    return batch.messages.changes


class Observed:
    """A processor with five messages of an entity in hand; what it has handled, and what it commits at a time."""

    def __init__(
        self, server: ServiceBusServer, folder: Path, monkeypatch: pytest.MonkeyPatch, fails: int = 0, **settings: Any
    ) -> None:
        self.handled: list[int] = []
        self.together: list[int] = []
        self.fails, self.folder, self.server = fails, folder, server
        delivery = QueueDelivery(**QUICK | {"workers": 1} | settings)
        self.made = processor(url(server), folder, "one", self._before, delivery=delivery)
        sink: Any = self.made._sink
        self._apply = sink.apply
        monkeypatch.setattr(sink, "apply", self.apply)

    def _before(self, event: EntityEvent) -> None:
        if event.key == "gate":
            until(lambda: self.made.counts["received"] == 6, "messages that count as received")
            return
        n = event.row["n"]
        self.handled.append(n)
        if n == self.fails and event.delivery == 1:
            raise ValueError("not yet")

    def apply(self, batch: Batch) -> BatchResult:
        changes = changes_of(batch)
        if changes[0].key != ("gate",):
            self.together.append(len(changes))
        result: BatchResult = self._apply(batch)
        return result

    def run(self) -> list[int]:
        """What was applied to the entity."""
        self.server.send("orders", *bodies(0, account="gate"), *bodies(1, 2, 3, 4, 5))
        with running(self.made):
            until(lambda: self.server.count("orders") == 0, "an empty queue")
        return logs(self.folder)["a"]


def test_all_that_is_at_hand_is_committed_at_once(
    server: ServiceBusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_TOGETHER", 3_600.0)
    observed = Observed(server, tmp_path, monkeypatch)
    assert observed.run() == [1, 2, 3, 4, 5]
    assert observed.together == [5]


def test_what_was_handled_before_one_that_fails_is_not_handled_again(
    server: ServiceBusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_TOGETHER", 3_600.0)
    observed = Observed(server, tmp_path, monkeypatch, fails=3)
    assert observed.run() == [1, 2, 3, 4, 5]
    assert observed.handled == [1, 2, 3, 3, 4, 5]
    assert observed.together == [2, 3]


def test_where_handlers_are_slow_each_message_is_committed_by_itself(
    server: ServiceBusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_TOGETHER", 0.0)
    observed = Observed(server, tmp_path, monkeypatch)
    assert observed.run() == [1, 2, 3, 4, 5]
    assert observed.together == [1, 1, 1, 1, 1]


def test_one_that_was_at_work_when_an_earlier_one_came_makes_that_late(
    server: ServiceBusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays the first of the line; also where both are committed together."""
    monkeypatch.setattr(work, "_TOGETHER", 3_600.0)
    late: list[tuple[int, bool]] = []
    made = processor(url(server), tmp_path, "one", lambda event: late.append((event.row["n"], event.late)))
    held = []
    for number, enqueued in ((7, 70.0), (5, 50.0), (6, 70.0), (8, 80.0)):
        body = json.dumps({"account": "a", "n": number}).encode()
        message = QueueMessage(body, number, enqueued, locked_until=enqueued)
        content = made._reader.read(message)
        assert isinstance(content, MessageContent)
        held.append(HeldMessage(message, "a", content, LockTrust(math.inf, math.inf)))
    with closing(EntityLeases(f"sqlite:////{tmp_path}/leases.db", scope="s")) as leases, leases.hold("a") as lease:
        assert [each.ending for each in made._work.tried_together(held, lease, lambda: False)] == ["applied"] * 4
    made._work.close()
    made._sink.close()
    assert late == [(7, False), (5, True), (6, True), (8, False)]


@pytest.mark.parametrize(
    "error",
    [UsageError("the state does not fit"), SinkError("only the commit refuses it", verdict=Verdict.ROWS)],
    ids=["state", "row"],
)
def test_what_the_table_does_not_hold_is_the_fault_of_its_message_alone(
    server: ServiceBusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: LeaseholdError
) -> None:
    monkeypatch.setattr(work, "_TOGETHER", 3_600.0)
    observed = Observed(server, tmp_path, monkeypatch, max_deliveries=1)
    apply = observed.apply

    def applied(batch: Batch) -> BatchResult:
        if any("3" in (change.state or {}).get("log", "") for change in changes_of(batch)):
            raise error
        return apply(batch)

    monkeypatch.setattr(observed.made._sink, "apply", applied)
    assert observed.run() == [1, 2, 4, 5]
    assert server.count("orders", dead=True) == 1
    assert observed.made.counts["dead_lettered"] == 1
