"""What owners of a hub that is read no more have left: its parked events are tried by the owners of the new hub."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from leasehold import Event, EventProcessor
from leasehold.cli.app import app
from leasehold.handlers import Failures, Spread
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.parking import left_behind
from leasehold.handlers.parking.left_behind import UNTOUCHED, LeftBehind, concerns
from leasehold.handlers.table import HandledTable, Retries
from leasehold.hubs.log import LogHub
from leasehold.operations.aside.left_parked import try_left
from leasehold.processors.events import Handlers
from leasehold.sinks.features import STATES, require
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.set_aside import Selection
from leasehold_testkit.clock import ManualClock
from tests.handlers import flat
from tests.handlers.batches import database, overtaken_once, rows
from tests.waiting import until


class Bench:
    """A table that batches of two hubs fill, at a time that stands still; what the handler raises for is `fails`."""

    def __init__(self, url: str, look: Callable[[str], list[Any]]) -> None:
        self.url, self.look = url, look
        self.clock = ManualClock()
        self.fails: set[str] = set()
        self.emits = False
        self.calls: list[tuple[str, str, int]] = []
        self.asked: list[float] = []
        self._opened: list[HandledTable] = []

    def table(self, *, spread: bool = True, **more: Any) -> HandledTable:
        @entity(keys=["account"])
        def adding(state: Any, event: EntityEvent) -> Any:
            self.calls.append((event.key, event.hub, event.sequence_number))
            if event.key in self.fails:
                raise RuntimeError("down")
            after = {"seen": f"{state['seen']} {event.hub}{event.sequence_number}" if state else f"{event.hub}0"}
            said = f"{event.hub}{event.sequence_number}".encode()
            return Effects(after, [Emit(said, key=event.key)]) if self.emits else after

        settings: dict[str, Any] = {"spread": True, "sequence_by": "version"} if spread else {}
        table = flat.table(
            adding,
            self.url,
            table="accounts",
            pipeline="p",
            schema="account STRING, version BIGINT",
            state="account STRING, seen STRING",
            clock=self.clock,
            rng=SimpleNamespace(random=lambda: 0.0),
            **settings,
            **more,
        )
        self._opened.append(table)
        return table

    def give(
        self, table: HandledTable, hub: str, partition: str, first: int, *accounts: str, level: int = 1
    ) -> list[float]:
        """Give it events of these accounts, none as an idle processor does. When it wants to be called again."""
        events = [
            Event(
                json.dumps({"account": name, "version": number}).encode(), partition=partition, sequence_number=number
            )
            for number, name in enumerate(accounts, first)
        ]
        batch: Any = type("Batch", (list,), {})(events)
        batch.hub, batch.partition, batch.owner_level, batch.last_enqueued = hub, partition, level, 9.5
        batch.first, batch.last = first, first + len(events) - 1
        self.asked = []
        context: Any = SimpleNamespace(
            hub=hub, partition=partition, owner_level=level, start=0, call_again=self.asked.append, trusted=True
        )
        table.on_events(batch, context)
        return self.asked

    def idle(self, table: HandledTable, hub: str, partition: str, seconds: float, level: int = 1) -> None:
        """Let an owner without events be called as often as it asks to be, for so long."""
        end = self.clock.monotonic() + seconds
        asked = self.give(table, hub, partition, 0, level=level)
        while asked and self.clock.monotonic() + min(asked) <= end:
            self.clock.advance(max(0.01, min(asked)))
            asked = self.give(table, hub, partition, 0, level=level)
        self.clock.advance(max(0.0, end - self.clock.monotonic()))

    def seen(self) -> dict[str, str]:
        return dict(self.look("SELECT account, seen FROM accounts"))

    def parked(self) -> list[tuple[str, str, int]]:
        return self.look("SELECT hub, partition, sequence_number FROM leasehold_parked ORDER BY 1, 2, 3")

    def close(self) -> None:
        for table in self._opened:
            table.sink.close()


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(*database(request, tmp_path))
    yield made
    made.close()


@pytest.mark.parametrize(("partition", "owner"), [("1", "1"), ("7", "0")])
def test_a_spread_entity_does_not_wait_for_a_hub_that_is_gone(bench: Bench, partition: str, owner: str) -> None:
    """Events of the new hub wait behind those of the old one, of whose partition 7 the new hub has none."""
    old, new = bench.table(), bench.table()
    bench.fails = {"a", "b"}
    bench.give(old, "old", partition, 0, "a", "b", "a", "c", level=5)
    bench.fails = set()
    for name in ("0", "1"):
        bench.give(new, "new", name, 0, *(["a"] if name == owner else ["c"]))
    assert bench.seen() == {"c": "old0 new0"}
    assert len(bench.parked()) == 4
    for name in ("0", "1"):
        bench.give(new, "new", name, 0)
    bench.clock.advance(UNTOUCHED - 1)
    other = "1" if owner == "0" else "0"
    bench.give(new, "new", owner, 0)
    assert len(bench.parked()) == 4, "the owner of the old hub may be alive"
    bench.idle(new, "new", other, 3 * UNTOUCHED)
    assert len(bench.parked()) == 4, "another owner is concerned with it"
    bench.idle(new, "new", owner, 30)
    assert bench.parked() == []
    assert bench.seen() == {"a": "old0 old2 new0", "b": "old0", "c": "old0 new0"}
    assert new.sink.watermarks("old") == {partition: Watermark(3, 5, whole=True)}, "nobody is outranked"
    assert min(bench.give(new, "new", owner, 0)) > 10, "nothing is left, and it is looked for now and then"


def test_what_is_left_is_tried_by_the_rules_of_what_is_parked(bench: Bench) -> None:
    old, new = bench.table(), bench.table(retries=Retries(deliveries=3, first=1.0, longest=300.0))
    bench.fails = {"a"}
    bench.give(old, "old", "0", 0, "a", "a")
    bench.calls.clear()
    bench.idle(new, "new", "0", UNTOUCHED + 60)
    assert [number for _, _, number in bench.calls] == [0, 0, 1, 1, 1], "the first one's second and third try"
    assert bench.look("SELECT reason FROM accounts_rejected") == [("RuntimeError: down",)] * 2
    assert bench.parked() == []


@pytest.mark.more(but=2)
@pytest.mark.parametrize("idle", [True, False])
def test_what_the_old_hub_s_owners_leave_while_the_new_one_is_read_already_is_found(bench: Bench, idle: bool) -> None:
    """The new hub's owner has looked once, and found nothing: instances on the old one went on for a while."""
    old, new = bench.table(), bench.table()
    bench.give(new, "new", "0", 0, "b")
    bench.idle(new, "new", "0", UNTOUCHED / 2)
    bench.fails = {"a"}
    bench.give(old, "old", "0", 0, "a", "a")
    bench.fails = set()
    for number in range(1, 1 + 3 * round(UNTOUCHED) // 10):
        if idle:
            bench.idle(new, "new", "0", 10.0)
        else:
            bench.clock.advance(10.0)
            bench.give(new, "new", "0", number, "b")
    assert bench.parked() == []
    assert bench.seen()["a"] == "old0 old1"


def test_the_owners_of_a_hub_that_is_alive_are_left_to_it(bench: Bench) -> None:
    """Both hubs fill the table: what is parked of one is tried by its own owner as long as there is one."""
    alive, beside = bench.table(), bench.table()
    bench.fails = {"a"}
    bench.give(alive, "old", "0", 0, "a")
    for _ in range(30):
        bench.give(beside, "new", "0", 0)
        bench.clock.advance(10)
        before = len(bench.calls)
        bench.give(beside, "new", "0", 0)
        assert len(bench.calls) == before
        bench.give(alive, "old", "0", 0)


def test_an_owner_that_comes_back_outranks_whoever_has_taken_care(bench: Bench) -> None:
    old, new = bench.table(), bench.table()
    bench.fails = {"a"}
    bench.give(old, "old", "0", 0, "a", "b")
    bench.fails = set()
    bench.give(new, "new", "0", 0)
    bench.clock.advance(UNTOUCHED)
    computed = new._computed
    done: list[list[float]] = []

    def overtaken(*given: Any, **more: Any) -> Any:
        found = computed(*given, **more)
        if not done:
            done.append(bench.give(bench.table(), "old", "0", 2, "a", level=2))
        return found

    new._computed = overtaken  # type: ignore[method-assign]
    bench.idle(new, "new", "0", UNTOUCHED)
    assert bench.seen() == {"a": "old0 old2", "b": "old0"}
    assert bench.parked() == []
    assert not new.sink.watermarks("old")["0"].disputed


def test_a_table_that_is_not_spread_takes_what_the_new_hub_has_nothing_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = bench.table(spread=False), bench.table(spread=False)
    bench.fails = {"a", "b", "c"}
    bench.give(old, "old", "0", 0, "a", "b", "c", "b")
    bench.fails = set()
    bench.give(new, "new", "0", 0, "b")
    with caplog.at_level(logging.WARNING):
        bench.idle(new, "new", "0", 3 * UNTOUCHED)
    assert bench.seen() == {"a": "old0", "b": "new0", "c": "old0"}
    assert bench.parked() == [("old", "0", 1), ("old", "0", 3)]
    [said] = [record.getMessage() for record in caplog.records if "wait for ever" in record.getMessage()]
    assert "partition 0 of hub old" in said
    assert "the entity account = 'b'" in said
    calls = len(bench.calls)
    bench.idle(new, "new", "0", 3 * UNTOUCHED)
    assert len(bench.calls) == calls, "it is not tried over and over"


@pytest.mark.parametrize("spread", [True, False])
def test_a_person_tries_what_can_be_applied_whatever_else_is_chosen(bench: Bench, spread: bool) -> None:
    """Beside events that another consumer group has parked, and those of an entity that the new hub has too."""
    theirs, old = bench.table(spread=spread, consumer_group="theirs"), bench.table(spread=spread)
    new = bench.table(spread=spread)
    bench.fails = {"a", "b", "c"}
    bench.give(theirs, "another", "0", 0, "c")
    bench.give(old, "old", "0", 0, "a")
    bench.give(old, "old", "1", 0, "b")
    bench.fails = set()
    bench.give(new, "new", "0", 0, "a")
    bench.clock.advance(2)
    parked = require(new.sink, STATES, "a test")
    left = [row.id for row in parked.parked_rows(Selection(), 9) if row.id.hub != "new"]
    still = try_left(new, parked, left)
    refused = {row.id.hub: why for row, why in still}
    assert ("another", "0", 0) in bench.parked()
    assert bench.seen()["b"] == "old0"
    assert "partition 0 of hub another" in refused["another"]
    assert (bench.seen()["a"], len(still)) == (("old0", 1) if spread else ("new0", 2))
    assert spread or "the entity account = 'a'" in refused["old"]


def test_entities_that_are_not_left_are_computed_as_ever(bench: Bench) -> None:
    """A commit of the new hub that is overtaken by one of what was left builds upon it."""
    old, new, beside = bench.table(), bench.table(), bench.table()
    bench.fails = {"a"}
    bench.give(old, "old", "0", 0, "a")
    bench.fails = set()
    bench.clock.advance(2)
    bench.give(new, "new", "0", 0)
    bench.give(beside, "new", "1", 0, "b")
    bench.clock.advance(UNTOUCHED)
    overtaken_once(beside, lambda: bench.give(new, "new", "0", 0))
    bench.give(beside, "new", "1", 1, "a", "b")
    bench.idle(beside, "new", "1", 30)
    assert bench.seen() == {"a": "old0 new1", "b": "new0 new2"}


def test_what_a_hub_that_is_gone_has_left_in_the_outbox_is_sent(bench: Bench, tmp_path: Path) -> None:
    """Also where nothing of it is parked: its owner was killed, or what is sent to was away, when the hub went."""
    path = tmp_path / "sent.db"
    LogHub.create(path, partitions=1).close()
    old, new = bench.table(outbox=f"log:///{path}"), bench.table(outbox=f"log:///{path}")
    bench.emits = True
    old._sender.goes_on = lambda owner: None  # type: ignore[union-attr, method-assign]
    bench.give(old, "old", "1", 0, "a", "b")

    def sent() -> list[bytes]:
        with closing(LogHub(path)) as hub:
            end = hub.partition_properties()["0"].end
            return [body for batch in hub.read("0", 0, end, columns=["body"]) for body in batch["body"].to_pylist()]

    bench.give(new, "new", "1", 0)
    bench.clock.advance(UNTOUCHED - 1)
    bench.give(new, "new", "1", 0)
    assert len(bench.look("SELECT 1 FROM leasehold_outbox")) == 2, "the owner of the old hub may be alive"
    bench.idle(new, "new", "1", 20)
    until(lambda: bench.look("SELECT 1 FROM leasehold_outbox") == [], "an outbox that is sent")
    assert sent() == [b"old0", b"old1"]
    bench.idle(new, "new", "1", 20)
    assert min(bench.give(new, "new", "1", 0)) > 10, "nothing is left, and it is looked for now and then"
    new.close()
    old.close()


def test_who_is_concerned() -> None:
    assert concerns("1", ("old", "1"), {"0", "1"})
    assert not concerns("0", ("old", "1"), {"0", "1"})
    assert [concerns(one, ("old", "7"), {"0", "1"}) for one in ("0", "1")] == [True, False]


def test_something_is_untouched_once_it_was_due_for_a_while_and_nothing_has_changed() -> None:
    left, lane, late = LeftBehind(), ("old", "0"), UNTOUCHED
    assert not left.is_untouched(lane, ("x",), 0, due=False)
    assert not left.is_untouched(lane, ("x",), late, due=True), "it is due from now on"
    assert left.is_untouched(lane, ("x",), 2 * late, due=True)
    assert left.done(lane, ("y",), due=True), "there is more, and it may be done at once"
    assert left.is_untouched(lane, ("y",), 2 * late, due=True)
    assert not left.done(lane, ("y",), due=True), "nothing has come of it"
    assert left.is_untouched(lane, ("y",), 2 * late, due=True)
    assert not left.done(lane, ("z",), due=False)
    assert left.is_untouched(lane, ("z",), 3 * late, due=True), "it is tried when it is due again"
    assert not left.is_untouched(lane, ("other",), 4 * late, due=True), "somebody else was there"
    assert not left.is_untouched(lane, None, 5 * late, due=False)
    assert not left.is_untouched(lane, ("other",), 5 * late, due=True)


PIPELINE = """\
name = "p"

[source]
hub = "log:///log.db"

[ownership]
store = "sqlite:///stores.db"

[transform]
schema = "account STRING, version BIGINT"

[sink]
url = "sqlite:///table.db"
table = "accounts"
keys = ["account"]
"""


def test_parked_retry_reaches_the_events_of_a_log_that_was_made_anew_and_a_table_made_in_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_behind, "UNTOUCHED", 0.2)
    monkeypatch.setattr("leasehold.handlers.parking.trying._LOOK", 0.1)
    fails = True

    @entity(keys=["account"])
    def adding(state: Any, event: EntityEvent) -> Any:
        if fails:
            raise RuntimeError("down")
        return {"seen": f"{state['seen']} {event.row['version']}" if state else str(event.row["version"])}

    def run(version: int, done: Callable[[], bool]) -> None:
        for path in tmp_path.glob("log.db*"):
            path.unlink()
        with closing(LogHub.create(tmp_path / "log.db", partitions=2)) as hub:
            hub.send([Event(json.dumps({"account": "a", "version": version}).encode(), partition_key="a")])
        table = HandledTable(
            adding,
            f"sqlite:////{tmp_path}/table.db",
            table="accounts",
            pipeline="p",
            schema="account STRING, version BIGINT",
            state="account STRING, seen STRING",
            spread=Spread("version"),
            failures=Failures(retries=Retries(first=1000.0, longest=1000.0)),
        )
        processor = EventProcessor(
            f"log:////{tmp_path}/log.db",
            f"sqlite:////{tmp_path}/stores.db",
            Handlers(table.on_events, on_partition_start=table.on_partition_start),
            table=table.sink,
        )
        table.level_of = processor.recorded_owner_level
        with closing(table), processor:
            until(done, "all that is to be done")

    def parked() -> list[Any]:
        return rows(tmp_path, "SELECT sequence_number, next_at FROM leasehold_parked")

    run(1, lambda: len(parked()) == 1)
    fails = False
    (tmp_path / "p.toml").write_text(PIPELINE)
    with closing(LogHub(tmp_path / "log.db")) as hub:
        gone = hub.identity
    for path in tmp_path.glob("log.db*"):
        path.unlink()
    LogHub.create(tmp_path / "log.db", partitions=2).close()
    result = CliRunner().invoke(app, ["parked", "retry", str(tmp_path / "p.toml"), "--hub", gone])
    assert result.exit_code == 0, result.output
    assert "1 parked event to be tried" in result.output
    assert "1 of them of a hub that the pipeline does not read any more" in result.output
    run(2, lambda: rows(tmp_path, "SELECT seen FROM accounts") == [("1 2",)])
    assert parked() == []
