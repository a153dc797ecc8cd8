"""A table whose handler emits two events for each of its own, batches by hand, and what is in the hub they go to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.publishing import ID
from leasehold.handlers.table import HandledTable
from leasehold.hubs import open_hub
from leasehold.hubs.log import LogHub
from leasehold.sinks.beside.outbox.contract import Outbox
from leasehold.sinks.features import STATES, require
from leasehold_testkit.clock import ManualClock
from tests.handlers import flat
from tests.handlers.batches import body, given, rows
from tests.sinks.postgres import Place


def sent(url: str, base: Path) -> list[tuple[str, str, str, str | None]]:
    """The events of a hub by partition, in order: id, body, partition, key."""
    with closing(open_hub(url, base=base)) as hub:
        found = []
        for name, about in hub.partition_properties().items():
            for batch in hub.read(name, about.begin, about.end):
                for one in batch.to_pylist():
                    properties = dict(one["properties"])
                    found.append((properties[ID], bytes(one["body"]).decode(), name, one["partitionKey"]))
        return found


class Bench:
    """A table whose handler emits for each event its place in its entity, and answers as told; batches by hand."""

    def __init__(self, folder: Path, url: str, look: Callable[[str], list[Any]]) -> None:
        self.folder, self._url, self.look = folder, url, look
        self.clock = ManualClock()
        self.answers: dict[int, Any] = {}
        self.owners: dict[tuple[int, int], SimpleNamespace] = {}
        self._opened: list[HandledTable] = []
        LogHub.create(folder / "sent.db", partitions=3).close()

    def table(self, outbox: str | None = "log:///sent.db", **more: Any) -> HandledTable:
        @entity(keys=["account"])
        def emitting(state: Any, event: EntityEvent) -> Any:
            number = event.sequence_number
            answer = self.answers.get(number)
            if isinstance(answer, Exception):
                raise answer
            count = state["events"] + 1 if state else 1
            effects = [Emit(f"{event.key}{count}{letter}", key=event.key) for letter in "xy"]
            return answer if answer is not None else Effects({"events": count}, effects)

        table = flat.table(
            emitting,
            self._url,
            table="accounts",
            pipeline="p",
            schema="account STRING, amount BIGINT, place BIGINT",
            state="account STRING, events BIGINT",
            base=self.folder,
            outbox=outbox,
            rng=SimpleNamespace(random=lambda: 0.0),
            **more,
        )
        table.level_of = lambda hub, partition: 99
        self._opened.append(table)
        return table

    def give(
        self, table: HandledTable, first: int, *accounts: str, level: int = 1, partition: str = "0"
    ) -> SimpleNamespace:
        """Give it events of these accounts; none is a call of an idle processor."""
        batch, _ = given(level, first, *(body(0, account) for account in accounts), partition=partition)
        owner = self.owners.setdefault(
            (id(table), level),
            SimpleNamespace(
                hub="h", partition=partition, owner_level=level, trusted=True, start=0, call_again=lambda seconds: None
            ),
        )
        table.on_events(batch, owner)
        return owner

    def waiting(self) -> list[str]:
        return [text for (text,) in self.look("SELECT body FROM leasehold_outbox ORDER BY number")]

    def bodies(self) -> list[str]:
        return [text for _, text, _, _ in sent("log:///sent.db", self.folder)]

    def away(self) -> None:
        (self.folder / "sent.db").rename(self.folder / "away.db")

    def back(self) -> None:
        (self.folder / "away.db").rename(self.folder / "sent.db")

    def close(self) -> None:
        for table in self._opened:
            table.close()


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        made = Bench(
            tmp_path,
            f"sqlite:////{tmp_path}/table.db",
            lambda query: rows(tmp_path, query.replace("body", "CAST(body AS TEXT)")),
        )
    else:
        there: Place = request.getfixturevalue("place")
        made = Bench(tmp_path, there.url, lambda query: there.look(query.replace("body", "convert_from(body, 'UTF8')")))
    yield made
    made.close()


def outbox_of(table: HandledTable) -> Outbox:
    return require(table.sink, STATES, "a test").outbox
