"""Handlers of spread entities under leases: never two at once, and what is busy waits for its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold.errors import ConfigError
from leasehold.handlers import Spread
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.contract import EntityEvent, entity
from leasehold.handlers.exclusive import BUSY, Busy, check_exclusive, lease_key
from leasehold.handlers.table import HandledTable
from leasehold.hubs.arrow_events import events_of
from leasehold.hubs.log.hub import LogHub
from leasehold.leases import EntityLeases
from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold_testkit.clock import ManualClock
from tests.handlers import flat
from tests.handlers.batches import given, rows
from tests.waiting import NEVER, PATIENCE, take, until

# Rules


def test_what_is_busy_is_looked_at_again_less_and_less_often() -> None:
    busy = Busy()
    pauses = []
    for _ in range(8):
        busy.note([("a",), ("b",)], [("b",)], 100.0, 0.0)
        pauses.append(busy.not_before(("a",), 0.0) - 100.0)
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    assert (pauses[0], pauses[-1]) == pytest.approx((BUSY.first, BUSY.longest))
    assert (busy.not_before(("b",), 7.0), busy.not_before(("a",), 500.0)) == (7.0, 500.0)
    busy.note([("a",)], [("a",)], 100.0, 0.0)
    assert busy.not_before(("a",), 7.0) == 7.0


def test_leases_have_the_names_of_their_entities() -> None:
    assert lease_key("s", ("order-42",)) == "order-42"
    assert (lease_key("s", (42,)), lease_key("s", ("a", 1))) == ("[42]", '["a", 1]')
    assert lease_key("s", ("\x02a",)) == '["\\u0002a"]'
    long = lease_key("s", ("é" * 1_000,))
    assert long.startswith("sha256:")
    assert long != lease_key("s", ("é" * 1_001,))


def test_settings_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs no lease"):
        check_exclusive("redis://h", spread=False, on_failure="park")
    never = pytest.raises(ConfigError, match="never waits for a lease")
    with never, closing(Bench(f"sqlite:////{tmp_path}/table.db")) as bench:
        bench.table(on_failure="wait")


# Two instances, batches by hand


class Bench:
    """Tables as those of several instances, over one store of leases."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock()
        self.leases = MemoryLeaseStore(self.clock)
        self.calls: list[tuple[str, int, int]] = []
        self.during: dict[int, Any] = {}
        self.asked: list[float] = []
        self.more: dict[str, Any] = {}
        self.emits = False
        self.look: Callable[[str], list[Any]]
        self._next: dict[str, int] = {}
        self._open = ExitStack()

    def table(self, **more: Any) -> HandledTable:
        @entity(keys=["account"])
        def adding(state: Any, event: EntityEvent) -> Any:
            version = event.row["version"]
            self.calls.append((event.key, version, event.fence))
            self.during.get(version, lambda: None)()
            after = {"seen": f"{state['seen']},{version}" if state else str(version)}
            return Effects(after, [Emit(f"{event.key} is at {version}")]) if self.emits else after

        table = flat.table(
            adding,
            self.url,
            table="accounts",
            pipeline="p",
            schema="account STRING, version BIGINT",
            state="account STRING, seen STRING",
            clock=self.clock,
            rng=SimpleNamespace(random=lambda: 0.0),
            **{"spread": True, "sequence_by": "version", "exclusive": self.leases, **self.more, **more},
        )
        table.level_of = lambda hub, partition: 99
        self._open.enter_context(closing(table))
        return table

    def give(self, table: HandledTable, partition: str, *events: tuple[str, int]) -> None:
        first = self._next.get(partition, 0)
        bodies = [{"account": account, "version": version} for account, version in events]
        batch, _ = given(1, first, *bodies, partition=partition)
        table.on_events(batch, self.context(partition))
        self._next[partition] = first + len(events)

    def context(self, partition: str) -> Any:
        place = {"hub": "h", "partition": partition, "owner_level": 1, "trusted": True}
        return SimpleNamespace(start=0, call_again=self.asked.append, **place)

    def held(self) -> list[str]:
        return [one.lease.key for one in self.leases.list_leases("p/accounts", None)]

    def close(self) -> None:
        self._open.close()


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    sqlite = request.param == "sqlite"
    with closing(Bench(f"sqlite:////{tmp_path}/table.db" if sqlite else request.getfixturevalue("place").url)) as made:
        made.look = (lambda query: rows(tmp_path, query)) if sqlite else request.getfixturevalue("place").look
        yield made


def seen(bench: Bench) -> dict[str, str]:
    return dict(bench.look("SELECT account, seen FROM accounts"))


def waiting(bench: Bench) -> list[tuple[str, int, int]]:
    return [*bench.look("SELECT partition, sequence_number, deliveries FROM leasehold_parked ORDER BY 1, 2")]


def test_a_partition_of_the_same_process_is_waited_for_and_nothing_is_parked(bench: Bench) -> None:
    table = bench.table()
    assert table._exclusive is not None
    hands, begun, parked = table._exclusive._in_hand, threading.Event(), []
    hands._patience = hands._longest = NEVER

    def until_the_other_waits() -> None:
        begun.set()
        until(lambda: bool(hands._queue), "a batch that waits")

    bench.during = {1: until_the_other_waits, 2: lambda: parked.extend(waiting(bench))}
    first = threading.Thread(target=bench.give, args=[table, "0", ("a", 1), ("b", 1)])
    first.start()
    assert begun.wait(PATIENCE)
    bench.give(table, "1", ("a", 2), ("c", 2))
    first.join(PATIENCE)
    assert seen(bench) == {"a": "1,2", "b": "1", "c": "2"}
    assert (parked, waiting(bench), bench.held()) == ([], [], [])


def test_a_busy_entity_waits_uncalled_and_the_others_go_on(bench: Bench) -> None:
    table = bench.table()
    with closing(EntityLeases(bench.leases, scope="p/accounts", holder="somebody", clock=bench.clock)) as others:
        lease = others.try_acquire("a")
        assert lease is not None
        bench.give(table, "0", ("a", 1), ("b", 1), ("a", 2))
        assert seen(bench) == {"b": "1"}
        assert waiting(bench) == [("0", 0, 0), ("0", 2, 0)]
        assert bench.asked[-1] == pytest.approx(BUSY.first)
        assert bench.held() == ["a"], "the batch keeps none"
        bench.clock.advance(BUSY.first)
        bench.give(table, "0")
        assert bench.asked[-1] == pytest.approx(2 * BUSY.first)
        lease.release()
    bench.clock.advance(1.0)
    bench.give(table, "0", ("a", 3))
    assert seen(bench) == {"a": "1,2,3", "b": "1"}
    assert bench.calls[0][0] == "b"
    assert min(fence for key, _, fence in bench.calls if key == "a") > lease.fence, "the lease's"
    assert waiting(bench) == []


@pytest.mark.more
def test_who_holds_an_entity_applies_what_others_have_parked_meanwhile(bench: Bench) -> None:
    one, two = bench.table(), bench.table()
    bench.during[1] = lambda: bench.give(two, "1", ("a", 2), ("b", 2))
    bench.give(one, "0", ("a", 1))
    assert seen(bench) == {"a": "1,2", "b": "2"}
    assert waiting(bench) == []
    assert {fence for key, _, fence in bench.calls if key == "a"} == {1}, "one turn"
    bench.give(two, "1", ("a", 3))
    assert [version for key, version, _ in bench.calls if key == "a"] == [1, 2, 3]


def park_two(bench: Bench) -> tuple[HandledTable, HandledTable]:
    """Two instances that have each parked events of the entity a, by turns, since somebody else held it."""
    one, two = bench.table(), bench.table()
    with closing(EntityLeases(bench.leases, scope="p/accounts", holder="somebody", clock=bench.clock)) as others:
        lease = others.try_acquire("a")
        assert lease is not None
        for version, (table, partition) in enumerate([(one, "0"), (two, "1"), (one, "0")], start=1):
            bench.give(table, partition, ("a", version))
        assert waiting(bench) == [("0", 0, 0), ("0", 1, 0), ("1", 0, 0)]
        lease.release()
    bench.clock.advance(BUSY.longest)
    return one, two


@pytest.mark.more
def test_who_gets_the_lease_first_applies_all_that_is_parked_in_its_order(bench: Bench) -> None:
    _, two = park_two(bench)
    marks = two.sink.watermarks("h")
    bench.give(two, "1", ("a", 4))
    assert seen(bench) == {"a": "1,2,3,4"}
    assert waiting(bench) == []
    assert two.sink.watermarks("h")["0"] == marks["0"], "the batch at hand of its owner is none the worse"


@pytest.mark.more
def test_the_owner_of_a_partition_finds_that_a_guest_was_there(bench: Bench) -> None:
    one, two = park_two(bench)
    reading = one.sink.watermarks  # the owner has read what is parked, and is stopped before it calls the handler

    def read(hub: str) -> Any:
        found = reading(hub)
        one.sink.watermarks = reading  # type: ignore[method-assign]
        bench.give(two, "1")
        return found

    one.sink.watermarks = read  # type: ignore[method-assign]
    bench.give(one, "0")
    assert seen(bench) == {"a": "1,2,3"}
    assert [version for _, version, _ in bench.calls] == [1, 2, 3]


@pytest.mark.more
def test_a_guest_that_is_paused_past_its_lease_changes_nothing(bench: Bench) -> None:
    _, two = park_two(bench)

    def paused() -> None:
        bench.during.clear()
        bench.clock.advance(60.0)
        bench.give(bench.table(), "0")

    bench.during[1] = paused
    bench.give(two, "1")
    assert seen(bench) == {"a": "1,2,3"}, "what the other has made of them"
    assert [version for _, version, _ in bench.calls] == [1, 1, 2, 3]
    assert waiting(bench) == []


@pytest.mark.more
def test_what_is_first_and_fails_holds_up_a_guest_too(bench: Bench) -> None:
    _, two = park_two(bench)
    tries = []

    def fails() -> None:
        tries.append(bench.clock.wall())
        if len(tries) < 3:
            raise ValueError("it fails")

    bench.during[1] = fails
    bench.give(two, "1")
    assert waiting(bench) == [("0", 0, 1), ("0", 1, 0), ("1", 0, 0)]
    bench.give(two, "1", ("a", 4))
    assert len(tries) == 1, "not before its time"
    bench.clock.advance(1.0)
    bench.give(two, "1")
    bench.clock.advance(2.0)
    bench.give(two, "1")
    assert seen(bench) == {"a": "1,2,3,4"}
    assert [two - one for one, two in pairwise(tries)] == pytest.approx([1.0, 2.0])


def test_what_is_emitted_for_a_guest_is_sent_by_the_owner_of_its_partition(bench: Bench, tmp_path: Path) -> None:
    told = LogHub.create(tmp_path / "told.db", partitions=1)
    bench.more = {"outbox": f"log:////{tmp_path}/told.db"}
    bench.emits = True
    one, two = park_two(bench)
    one.close()  # else its thread, which may begin late, would send at once what the guest leaves
    bench.give(two, "1")
    assert seen(bench) == {"a": "1,2,3"}
    assert waiting(bench) == []

    def are_told(*told_so_far: str) -> bool:
        bench.clock.advance(0.001)  # what cannot be sent at once is tried after a pause, which this clock measures
        return said(told) == [*told_so_far]

    until(lambda: are_told("a is at 2"), "what is emitted, in its hub")
    until(
        lambda: bench.look("SELECT partition FROM leasehold_outbox ORDER BY number") == [("0",), ("0",)],
        "an outbox that is sent",
    )
    bench.give(one, "0")  # which its parked events have had it ask for
    until(lambda: are_told("a is at 2", "a is at 1", "a is at 3"), "what is emitted, in its hub")


def said(hub: LogHub) -> list[str]:
    end = hub.partition_properties()["0"].end
    return [event.body.decode() for batch in hub.read("0", 0, end) for event in events_of(batch)]


def test_who_loses_a_lease_calls_no_more(bench: Bench) -> None:
    table = bench.table()
    bench.during[1] = lambda: bench.clock.advance(60.0)  # the process is paused in the call
    bench.give(table, "0", ("a", 1), ("a", 2), ("b", 5))
    assert [version for _, version, _ in bench.calls][:1] == [1]
    bench.clock.advance(60.0)
    bench.give(table, "0")
    assert seen(bench) == {"a": "1,2", "b": "5"}
    assert [version for _, version, _ in bench.calls] == [1, 2, 5]


@pytest.mark.more
def test_many_at_once_never_call_for_one_entity_at_the_same_time(bench: Bench) -> None:
    """Four instances with a partition each meet the same entities in every batch; the handler looks who else is in."""
    inside: dict[str, int] = {}
    overlaps: list[str] = []
    lock = threading.Lock()
    store = MemoryLeaseStore()

    @entity(keys=["account"])
    def looking(state: Any, event: EntityEvent) -> Any:
        with lock:
            inside[event.key] = inside.get(event.key, 0) + 1
            if inside[event.key] > 1:
                overlaps.append(event.key)
        take(0.002)
        with lock:
            inside[event.key] -= 1
        return {"seen": (state["seen"] if state else "") + f" {event.partition}:{event.row['version']}"}

    def work(partition: str) -> None:
        table = HandledTable(
            looking,
            bench.url,
            table="accounts",
            pipeline="p",
            schema="account STRING, version BIGINT",
            state="account STRING, seen STRING",
            spread=Spread("version", exclusive=store),
        )
        table.level_of = lambda hub, partition: 99
        context: Any = SimpleNamespace(start=0, call_again=lambda seconds: None)
        with closing(table):
            for first in range(0, 12, 3):
                bodies = [{"account": f"a{n}", "version": first} for n in range(3)]
                table.on_events(given(1, first, *bodies, partition=partition)[0], context)

            def none_waits() -> bool:
                table.on_events(given(1, 12, partition=partition)[0], context)
                return partition not in {where for where, *_ in waiting(bench)}

            until(none_waits, "an end of all waiting")

    bench.table()
    workers = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
        assert not worker.is_alive()
    assert overlaps == []
    for its in seen(bench).values():
        its_events = [one.split(":") for one in its.split()]
        assert len(its_events) == 16
        for partition in "0123":
            assert [int(version) for of, version in its_events if of == partition] == [0, 3, 6, 9]
