"""Events whose handler raises wait without holding up others, are tried again on time, and take effect once."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold import Event, EventProcessor
from leasehold.errors import ConfigError, HandlerUnavailable, UsageError, Verdict
from leasehold.handlers import Failures
from leasehold.handlers.contract import EntityEvent, Held, Reject, Retry, entity
from leasehold.handlers.parking.policy import ALIKE, REMEMBERED, Outcomes, parked
from leasehold.handlers.table import HandledTable, Retries
from leasehold.hubs.log import LogHub
from leasehold.processors.events import Handlers
from leasehold.sinks.features import BOOKKEEPING, STATES, require
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.set_aside import EventId, Selection, SetAsideCounts
from tests.handlers.batches import body, rows
from tests.handlers.handler_program import OFTEN, balance
from tests.handlers.parking_bench import Bench, bench
from tests.repository import ROOT
from tests.waiting import PATIENCE, until

__all__ = ["bench"]

ALL = Selection()

# Rules


def test_pauses_double_up_to_the_longest_and_chance_takes_up_to_half() -> None:
    retries = Retries(first=2.0, longest=100.0)
    assert [retries.pause(tries, 0.0) for tries in (1, 2, 3, 6, 7, 10_000)] == [2.0, 4.0, 8.0, 64.0, 100.0, 100.0]
    assert [retries.pause(2, draw) for draw in (0.5, 1.0)] == [3.0, 2.0]


@pytest.mark.parametrize(
    "wrong", [{"deliveries": 0}, {"first": 0.0}, {"longest": float("inf")}, {"first": 2.0, "longest": 1.0}]
)
def test_retries_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Retries(**wrong)


def held(number: int, error: Exception | None, tries: int = 1) -> Held:
    return Held(("a",), EntityEvent("a", b"x", {}, "h", "0", number, 9.0, 1, delivery=tries), error)


def test_what_is_kept_of_an_event_that_waits() -> None:
    kept, removed = parked(
        [held(1, ValueError("no"), 3), held(2, None), held(3, Retry("later", after=77)), held(4, Retry("soon"))],
        (),
        Retries(),
        1_000.0,
        lambda: 0.0,
    )
    assert [(one.sequence_number, one.deliveries, one.next_at, one.error) for one in kept] == [
        (1, 3, 1_004.0, "ValueError: no"),
        (2, 0, 0.0, ""),
        (3, 1, 1_077.0, "Retry: later"),
        (4, 1, 1_001.0, "Retry: soon"),
    ]
    assert (kept[0].body, kept[0].enqueued_time) == (b"x", 9.0)
    assert removed == []
    assert parked([held(1, ValueError("\ud800" * 2_000))], (), Retries(), 0.0, lambda: 0.0)[0][0].error.isascii()


def test_of_events_that_were_tried_those_that_were_not_called_for_stay_as_they_are() -> None:
    kept, removed = parked([held(2, ValueError("no")), held(3, None)], (1, 2, 3), Retries(), 0.0, lambda: 0.0)
    assert [one.sequence_number for one in kept] == [2]
    assert removed == [1]


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf")])
def test_no_duration_to_try_again_after(after: float) -> None:
    with pytest.raises(UsageError, match="number of seconds"):
        Retry(after=after)


def calls(failing: int, well: int, start: int = 0, name: str = "E") -> dict[Any, str | None]:
    return {(start + n,): name if n < failing else None for n in range(failing + well)}


def test_when_most_fail_alike_it_is_an_outage() -> None:
    assert Outcomes().outage(calls(ALIKE, ALIKE - 1)) == "E"
    assert Outcomes().outage(calls(ALIKE, ALIKE)) is None
    assert Outcomes().outage(calls(ALIKE - 1, 0)) is None
    assert Outcomes().outage(calls(ALIKE - 1, 0) | calls(ALIKE - 1, 0, 500, "F")) is None


def test_batches_of_one_event_make_an_outage_too_and_end_it() -> None:
    outcomes = Outcomes()
    found = [outcomes.outage(calls(1, 0, n)) for n in range(ALIKE + 1)]
    assert found == [None] * (ALIKE - 1) + ["E"] * 2
    assert outcomes.outage(calls(0, 1, 99)) is None, "none of these calls fails"
    assert outcomes.outage(calls(0, ALIKE + 1)) is None
    assert outcomes.outage(calls(1, 0)) is None, "the last call of each entity counts"


def test_parked_events_alone_that_fail_again_are_no_outage() -> None:
    outcomes = Outcomes()
    assert outcomes.outage(calls(0, ALIKE + 1, 500)) is None
    assert not outcomes.outage_of_parked(calls(ALIKE, 0), worked=False)
    assert outcomes.outage_of_parked(calls(ALIKE + 2, 0), worked=False), "nothing has succeeded since"
    assert not outcomes.outage_of_parked(calls(ALIKE + 2, 1), worked=True)
    assert not outcomes.outage_of_parked(calls(ALIKE, 0), worked=False), "more entities than these are well"


def test_only_the_last_entities_are_remembered() -> None:
    outcomes = Outcomes()
    outcomes.outage(calls(0, REMEMBERED, 1_000))
    found = [outcomes.outage(calls(1, 0, n)) for n in range(REMEMBERED // 2 + 1)]
    assert found == [None] * (REMEMBERED // 2) + ["E"]


# One table, batches by hand


def test_one_failing_entity_holds_up_none_but_its_own_events(bench: Bench) -> None:
    table = bench.table()
    bench.fails["a"] = RuntimeError("down")
    bench.give(table, 0, "a", "b", "a", "b")
    bench.give(table, 4, "b", "a")
    assert bench.seen() == {"b": "1,3,4"}
    assert bench.waiting() == [(0, 1), (2, 0), (5, 0)]
    assert [number for key, number, _ in bench.tries if key == "a"] == [0], "those behind it are not called"
    assert table.sink.watermarks("h")["0"].sequence_number == 5
    assert bench.asked[-1] == pytest.approx(1.0)
    bench.give(table, 6)
    assert len(bench.tries) == 4, "it is not due"
    del bench.fails["a"]
    bench.clock.advance(1.0)
    bench.give(table, 6)
    assert bench.seen() == {"a": "0,2,5", "b": "1,3,4"}
    assert bench.tries[-3:] == [("a", 0, 2), ("a", 2, 1), ("a", 5, 1)]
    assert bench.waiting() == []
    bench.give(table, 6, "a")
    assert bench.seen()["a"] == "0,2,5,6"


def test_pauses_grow_and_a_handler_may_say_when(bench: Bench) -> None:
    table = bench.table(retries=Retries(first=10.0, longest=30.0))

    def pause() -> float:
        ((at,),) = bench.look("SELECT next_at FROM leasehold_parked")
        return float(at - bench.clock.wall())

    bench.fails["a"] = RuntimeError("down")
    bench.give(table, 0, "a")
    pauses = [pause()]
    for error in (RuntimeError("down"), RuntimeError("down"), Retry("not now", after=500)):
        bench.fails["a"] = error
        bench.clock.advance(pauses[-1])
        bench.give(table, 1)
        pauses.append(pause())
        assert bench.asked[-1] == 10.0, "an operator may change it meanwhile"
    assert pauses == [10.0, 20.0, 30.0, 500.0]
    assert bench.waiting() == [(0, 4)]


def test_an_event_that_is_tried_too_often_is_set_aside_and_its_entity_goes_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    table = bench.table(retries=Retries(deliveries=3))
    bench.fails["a"] = RuntimeError("broken")
    bench.give(table, 0, "a", "a", "b")
    for _ in range(2):
        bench.clock.advance(5.0)
        if len(bench.tries) == 3:
            bench.fails.clear()
            bench.fails["a"] = RuntimeError("still broken")
        bench.give(table, 3)
    assert [entry for entry in bench.tries if entry[0] == "a"] == [("a", 0, 1), ("a", 0, 2), ("a", 0, 3), ("a", 1, 1)]
    assert bench.waiting() == [(1, 1)]
    first, last = (record.getMessage() for record in caplog.records if record.name == "leasehold.handlers.telling")
    assert first.endswith("2 events to be tried again (leasehold parked lists them). The handler raised for event 0 of "
                          "'a', try 1: RuntimeError: broken")  # fmt: skip
    assert "set aside after the last try, so that the entities go on without: 1 event." in last
    assert last.endswith("The first is event 0 of 'a': RuntimeError: still broken")
    (dead,) = table.sink.rejected_rows.rows(Selection(), 9)
    assert isinstance(dead.body, bytes)
    assert (dead.event.sequence_number, dead.reason, json.loads(dead.body)["account"]) == (
        0,
        "RuntimeError: still broken",
        "a",
    )
    beside = json.loads(dead.source or "")
    assert beside["deliveries"] == 3
    assert "Traceback" in beside["traceback"]
    assert "raise self.fails[failing]" in beside["traceback"]
    bench.fails.clear()
    bench.clock.advance(5.0)
    bench.give(table, 3)
    assert bench.seen() == {"a": "1", "b": "2"}


def test_how_much_is_set_aside_is_told(bench: Bench) -> None:
    table = bench.table(retries=Retries(deliveries=2, first=4.0))
    counting = table.sink
    assert counting.set_aside_counts() == SetAsideCounts()
    bench.fails |= {"a": RuntimeError("broken"), "b": Reject("never")}
    began = bench.clock.wall()
    bench.give(table, 0, "a", "a", "b")
    counts = counting.set_aside_counts()
    ((since,),) = bench.look("SELECT DISTINCT parked_at FROM leasehold_parked")
    assert counts == SetAsideCounts(rejected=1, parked=2, oldest_parked=since, next_retry=began + 4.0)
    bench.clock.advance(5.0)
    bench.give(table, 3, "c")
    counts = counting.set_aside_counts()
    assert (counts.rejected, counts.dead_letters, counts.parked) == (2, 1, 1)
    assert counts.oldest_parked == since
    assert counts.next_retry == bench.clock.wall() + 4.0
    assert require(table.sink, STATES, "a test").hurry_parked([EventId("h", "0", 1)]) == 1
    assert counting.set_aside_counts().next_retry == since, "at once, which is since it was parked"


def test_a_parked_event_may_be_rejected_at_last(bench: Bench) -> None:
    table = bench.table()
    bench.fails["a"] = RuntimeError("down")
    bench.give(table, 0, "a", "a")
    bench.fails["a"] = Reject("never")
    bench.clock.advance(5.0)
    bench.give(table, 2)
    assert bench.waiting() == []
    assert bench.look("SELECT sequence_number, reason FROM accounts_rejected ORDER BY 1") == [
        (0, "never"),
        (1, "never"),
    ]


def test_discarded_events_are_set_aside_at_once(bench: Bench) -> None:
    table = bench.table(on_failure="discard")
    bench.fails["a"] = RuntimeError("broken")
    bench.give(table, 0, "a", "b")
    del bench.fails["a"]
    bench.give(table, 2, "a")
    assert (bench.seen(), bench.waiting()) == ({"a": "2", "b": "1"}, [])
    assert bench.look("SELECT sequence_number, reason FROM accounts_rejected") == [(0, "RuntimeError: broken")]


def test_when_most_fail_nothing_is_parked(bench: Bench) -> None:
    table = bench.table()
    names = [f"n{n}" for n in range(ALIKE)]
    bench.fails.update(dict.fromkeys(names, ConnectionError("away")))
    for _ in range(2):
        with pytest.raises(
            HandlerUnavailable, match=r"fail alike, the last with ConnectionError: away.*Nothing"
        ) as raised:
            bench.give(table, 0, *names, "well")
        assert raised.value.verdict is Verdict.PASSES
    assert (bench.seen(), bench.waiting(), bench.look("SELECT 1 FROM accounts_rejected")) == ({}, [], [])
    bench.fails.clear()
    bench.give(table, 0, *names, "well")
    assert len(bench.seen()) == ALIKE + 1
    assert {tries for _, _, tries in bench.tries} == {1}, "what fails in an outage is not counted"


def test_tries_of_parked_events_are_not_counted_in_an_outage(bench: Bench) -> None:
    table = bench.table()
    names = [f"n{n}" for n in range(ALIKE)]
    for number, name in enumerate(names[:-1]):
        bench.fails[name] = ConnectionError("away")
        bench.give(table, number, name)
    bench.fails[names[-1]] = ConnectionError("away")
    with pytest.raises(HandlerUnavailable):
        bench.give(table, ALIKE - 1, names[-1])
    before = bench.waiting()
    assert len(before) == ALIKE - 1
    bench.clock.advance(1.0)
    bench.give(table, ALIKE - 1)
    assert bench.waiting() == before
    assert 0 < bench.asked[-1] <= 1.0, "it is tried again, after a pause"
    bench.fails.clear()
    bench.clock.advance(1.0)
    bench.give(table, ALIKE - 1)
    assert (bench.waiting(), len(bench.seen())) == ([], ALIKE - 1)


def test_many_events_that_never_succeed_hold_up_neither_each_other_nor_others(bench: Bench) -> None:
    table = bench.table(retries=Retries(deliveries=4, first=1.0, longest=1.0))
    poison = [f"p{n}" for n in range(ALIKE + 2)]
    well = [f"w{n}" for n in range(2 * ALIKE)]
    bench.fails = {**dict.fromkeys(poison, ValueError("never")), "later": ValueError("not yet")}
    bench.give(table, 0, *well, *poison, "later", "later")
    del bench.fails["later"]
    first = len(well) + len(poison) + 2
    for number in range(4):  # something comes now and then, and succeeds
        bench.clock.advance(1.0)
        bench.give(table, first + number, well[number])
        assert bench.seen()["later"] == f"{first - 2},{first - 1}"
    assert bench.waiting() == []
    set_aside = bench.look("SELECT reason FROM accounts_rejected")
    assert set_aside == [("ValueError: never",)] * len(poison)


def test_one_bad_event_of_every_entity_is_no_outage(bench: Bench) -> None:
    table = bench.table()
    names = [f"n{n}" for n in range(ALIKE + 2)]
    bench.fails = {f"{name}@{2 * len(names) + place}": ValueError("bad") for place, name in enumerate(names)}
    bench.give(table, 0, *names, *names, *names, *names)
    assert bench.seen() == {name: f"{place},{len(names) + place}" for place, name in enumerate(names)}
    assert [deliveries for _, deliveries in bench.waiting()] == [1] * len(names) + [0] * len(names)


def test_a_new_owner_takes_parked_events_along_and_the_former_one_changes_none(bench: Bench) -> None:
    former, later = bench.table(), bench.table()
    bench.fails["a"] = RuntimeError("down")
    bench.give(former, 0, "a", "a")
    bench.clock.advance(5.0)
    del bench.fails["a"]
    committed = former.sink.apply

    def overtaken(*arguments: Any) -> Any:
        later.on_partition_start(bench.context)
        assert bench.asked[-1] == 0.0
        bench.give(later, 2, level=2)
        return committed(*arguments)

    former.sink.apply = overtaken  # type: ignore[method-assign, assignment]
    bench.give(former, 2)  # both have called the handler for the same events
    former.sink.apply = committed  # type: ignore[method-assign]
    assert sorted(bench.tries) == [("a", 0, 1), ("a", 0, 2), ("a", 0, 2), ("a", 1, 1), ("a", 1, 1)]
    assert (bench.seen(), bench.waiting()) == ({"a": "0,1"}, [])
    bench.give(former, 2, "a")
    assert bench.seen() == {"a": "0,1"}, "a former owner's events take no effect"


def test_a_former_owner_asks_for_nothing_once_a_later_one_is_there(bench: Bench) -> None:
    former, later = bench.table(), bench.table()
    bench.fails["a"] = RuntimeError("down")
    bench.give(former, 0, "a")
    bench.give(later, 1, level=2)
    bench.clock.advance(5.0)
    asked, tried = len(bench.asked), len(bench.tries)
    bench.give(former, 1)
    assert (len(bench.asked), len(bench.tries)) == (asked, tried)


def test_a_former_owner_leaves_what_the_next_one_parks_while_it_looks(bench: Bench) -> None:
    former, later = bench.table(), bench.table()
    bench.fails["a"] = RuntimeError("down")
    bench.give(former, 0, "a")
    bench.clock.advance(5.0)
    look, tried = former.sink.parked_events, len(bench.tries)  # type: ignore[attr-defined]

    def overtaken(*arguments: Any) -> Any:
        bench.give(later, 1, "a", level=2)
        del bench.fails["a"]
        return look(*arguments)

    former.sink.parked_events = overtaken  # type: ignore[attr-defined]
    bench.give(former, 1)
    former.sink.parked_events = look  # type: ignore[attr-defined]
    assert [number for _, number, _ in bench.tries[tried:]] == [0, 0], "by the later one, and by the former in vain"
    assert ([number for number, _ in bench.waiting()], bench.seen()) == ([0, 1], {})
    bench.clock.advance(5.0)
    bench.give(later, 2, level=2)
    assert (bench.seen(), bench.waiting()) == ({"a": "0,1"}, [])


def test_where_nothing_waits_a_batch_reads_the_watermark_once(bench: Bench) -> None:
    table = bench.table()
    bench.give(table, 0, "a")
    read, reads = table.sink.watermarks, []

    def counted(hub: str) -> Any:
        reads.append(hub)
        return read(hub)

    table.sink.watermarks = counted  # type: ignore[method-assign]
    bench.give(table, 1, "a")
    table.sink.watermarks = read  # type: ignore[method-assign]
    assert (reads, 10 < min(bench.asked) <= 60) == (["h"], True)


def test_events_that_come_again_are_not_parked_twice(bench: Bench) -> None:
    first, second = bench.table(), bench.table()
    bench.fails["a"] = RuntimeError("down")
    bench.give(first, 0, "a", "b")
    bench.give(second, 0, "a", "b", "a", level=2)
    assert bench.waiting() == [(0, 1), (2, 0)]
    bench.fails.clear()
    bench.clock.advance(5.0)
    bench.give(second, 3, level=2)
    bench.give(bench.table(), 0, "a", "b", "a", level=3)
    assert bench.seen() == {"a": "0,2", "b": "1"}


def test_a_reset_parks_no_more_what_will_be_read_again(bench: Bench) -> None:
    table = bench.table()
    bench.fails["a"] = RuntimeError("down")
    bench.give(table, 0, "a", "b", "a", "b")
    table.sink.set_watermarks("h", {"0": Watermark(1, 1, whole=True)})
    assert bench.waiting() == [(0, 1)]
    bench.fails.clear()
    bench.clock.advance(5.0)
    bench.give(bench.table(), 2, "a", "b", level=2)
    assert bench.seen()["a"] == "0,2"
    bench.fails["a"] = RuntimeError("down")
    bench.give(table, 4, "a", level=3)
    table.sink.set_watermarks("h", {"0": Watermark(owner_level=3)}, anew=True)
    assert bench.waiting() == []


def test_an_entity_that_is_forgotten_leaves_no_parked_event(bench: Bench) -> None:
    table = bench.table()
    bench.fails = {"a": RuntimeError("down"), "b": RuntimeError("down")}
    bench.give(table, 0, "a", "b", "a")
    assert require(table.sink, BOOKKEEPING, "a test").forget_entity({"account": "a"}).rejected == 2
    assert bench.waiting() == [(1, 1)]
    bench.fails.clear()
    bench.give(table, 3, "a")
    assert bench.seen() == {"a": "3"}, "nothing waits any more"


def numbers(sink: Any, selection: Selection = ALL, limit: int = 9, after: EventId | None = None) -> list[int]:
    found = require(sink, STATES, "a test").parked_rows(selection, limit, after)
    return [row.id.sequence_number for row in found]


def test_an_operator_lists_parked_events(bench: Bench) -> None:
    table = bench.table()
    sink = table.sink
    assert numbers(sink) == []
    bench.fails = {"a": RuntimeError("down"), "b": ValueError("50 % off")}
    bench.give(table, 0, "a", "b", "c", "a")
    rows = require(sink, STATES, "a test").parked_rows(ALL, 9)
    assert [(row.id, row.event.key, row.event.deliveries, row.event.error, row.first) for row in rows] == [
        (EventId("h", "0", 0), ("a",), 1, "RuntimeError: down", True),
        (EventId("h", "0", 1), ("b",), 1, "ValueError: 50 % off", True),
        (EventId("h", "0", 3), ("a",), 0, "", False),
    ]
    assert json.loads(rows[0].event.body) == body(0, "a")
    assert rows[0].event.next_at == bench.clock.wall() + 1.0
    assert (numbers(sink, limit=2), numbers(sink, after=rows[0].id)) == ([0, 1], [1, 3])
    for selection, found in (
        (Selection(reason="50 %"), [1]),
        (Selection(reason="\0"), []),
        (Selection(hub="other"), []),
        (Selection(frozenset({("0", 3), ("0", 2), ("1", 0), ("\0", 1)}), hub="h"), [3]),
    ):
        assert numbers(sink, selection) == found


def test_an_operator_has_events_tried_at_once_or_drops_them(bench: Bench) -> None:
    table, beside = bench.table(), bench.table().sink
    bench.fails = {"a": RuntimeError("down"), "b": RuntimeError("down")}
    bench.give(table, 0, "a", "b", "a", "b")
    bench.fails.clear()
    listed = require(beside, STATES, "a test")
    assert listed.hurry_parked([EventId("h", "0", 0), EventId("h", "0", 9)]) == 1
    bench.give(table, 4)
    assert (bench.seen(), bench.waiting()) == ({"a": "0,2"}, [(1, 1), (3, 0)])
    assert listed.drop_parked([EventId("h", "0", 1), EventId("h", "0", 0)], "a test") == 1
    bench.give(table, 4)
    assert (bench.seen(), bench.waiting()) == ({"a": "0,2", "b": "3"}, [])
    rows = beside.rejected_rows
    assert [(one.event, one.reason, one.dropped_for) for one in rows.dropped(9)] == [
        (EventId("h", "0", 1), "RuntimeError: down", "a test")
    ]


def test_what_an_operator_drops_while_it_is_tried_takes_no_effect(bench: Bench) -> None:
    table, beside = bench.table(), bench.table().sink
    bench.fails["a"] = RuntimeError("down")
    bench.give(table, 0, "a", "a")
    bench.fails.clear()
    bench.clock.advance(5.0)
    committed = table.sink.apply

    def dropped_first(*arguments: Any) -> Any:
        require(beside, STATES, "a test").drop_parked([EventId("h", "0", 0)], "not wanted")
        return committed(*arguments)

    table.sink.apply = dropped_first  # type: ignore[method-assign, assignment]
    bench.give(table, 2)
    table.sink.apply = committed  # type: ignore[method-assign]
    assert (bench.seen(), bench.asked[-1] <= 0.0) == ({}, True), "it is looked at again at once"
    bench.give(table, 2)
    assert (bench.seen(), bench.waiting()) == ({"a": "1"}, [])


def test_while_a_partition_waits_too_no_event_overtakes_a_parked_one(bench: Bench) -> None:
    bench.fails["a"] = RuntimeError("down")
    bench.give(bench.table(), 0, "a")
    del bench.fails["a"]
    waiting = bench.table(on_failure="wait")
    bench.give(waiting, 1, "a", "b", level=2)
    assert bench.seen() == {"b": "2"}
    bench.clock.advance(5.0)
    bench.give(waiting, 3, level=2)
    assert bench.seen() == {"a": "0,1", "b": "2"}


def test_many_events_of_many_entities(bench: Bench) -> None:
    table = bench.table()
    names = [f"n{n}" for n in range(ALIKE - 1)]
    bench.fails = dict.fromkeys(names, RuntimeError("down"))
    bench.give(table, 0, *names * 30, *(f"well{n}" for n in range(20)))
    assert len(bench.waiting()) == 30 * len(names)
    bench.fails.clear()
    bench.clock.advance(5.0)
    while bench.waiting():
        bench.give(table, 1_000)
    expected = {
        name: ",".join(str(n) for n in range(place, 30 * len(names), len(names))) for place, name in enumerate(names)
    }
    assert {name: seen for name, seen in bench.seen().items() if name in names} == expected


def test_no_policy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="on_failure"):
        Bench(f"sqlite:////{tmp_path}/table.db", lambda query: []).table(on_failure="panic")


# Processes


def test_poison_entities_end_as_dead_letters_and_all_others_come_out_right(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "log.db", partitions=2)
    bodies = [{"account": f"a{n}", "amount": n, "place": place} for place in range(4) for n in range(200)]
    hub.send([Event(json.dumps(one).encode(), partition_key=str(one["account"])) for one in bodies])
    hub.close()
    poison = {"a50", "a150"}

    @entity(keys=["account"])
    def failing(state: Any, event: EntityEvent) -> Any:
        if event.key in poison:
            raise RuntimeError("poison")
        return balance(state, event)

    accounts = HandledTable(
        failing,
        f"sqlite:////{tmp_path}/table.db",
        table="accounts",
        pipeline="accounts",
        schema="account STRING, amount BIGINT, place BIGINT",
        state="account STRING, events BIGINT, total BIGINT",
        failures=Failures(retries=Retries(deliveries=3, first=0.05, longest=0.1)),
    )
    made = EventProcessor(
        f"log:////{tmp_path}/log.db",
        f"sqlite:////{tmp_path}/store.db",
        Handlers(accounts.on_events, on_partition_start=accounts.on_partition_start),
        table=accounts.sink,
        ownership=OFTEN,
    )
    accounts.level_of = made.recorded_owner_level
    with made:
        until(lambda: len(rows(tmp_path, "SELECT 1 FROM accounts_rejected")) == 4 * len(poison), "rejected rows")
        until(lambda: len(rows(tmp_path)) == 198 and {one[1] for one in rows(tmp_path)} == {4}, "the rows of the table")
    assert rows(tmp_path) == sorted((f"a{n}", 4, 4 * n) for n in range(200) if f"a{n}" not in poison)
    dead = rows(tmp_path, "SELECT body, reason, json_extract(source, '$.deliveries') FROM accounts_rejected")
    assert {(json.loads(one)["account"], reason, tries) for one, reason, tries in dead} == {
        (name, "RuntimeError: poison", 3) for name in poison
    }
    assert rows(tmp_path, "SELECT 1 FROM leasehold_parked") == []


@pytest.mark.more
def test_parked_events_outlive_killed_processes_and_are_tried_with_nothing_new_arriving(tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "log.db", partitions=1)
    bodies = [{"account": name, "amount": 1, "place": place} for place in range(5) for name in ("poison", "a", "b")]
    hub.send([Event(json.dumps(one).encode(), partition="0") for one in bodies])
    hub.close()

    def start(name: str, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.handlers.parking_program", str(tmp_path), name, *more]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)

    def tried() -> int:
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            try:
                (found,) = connection.execute("SELECT max(deliveries) FROM leasehold_parked").fetchone()
            except sqlite3.OperationalError:
                return 0
        return found or 0

    running = start("one")
    try:
        until(
            lambda: tried() > 2 and len(rows(tmp_path, "SELECT 1 FROM leasehold_parked")) == 5,
            "parked events as expected",
        )
        until(lambda: rows(tmp_path) == [("a", 5, 5), ("b", 5, 5)], "the rows of the table")
        running.kill()
        running.wait()
        assert rows(tmp_path) == [("a", 5, 5), ("b", 5, 5)]
        (tmp_path / "mended").touch()
        running = start("one", "die")
        assert running.wait(PATIENCE) == -9
        assert rows(tmp_path) == [("a", 5, 5), ("b", 5, 5)]
        assert len(rows(tmp_path, "SELECT 1 FROM leasehold_parked")) == 5
        running = start("one")
        until(lambda: not rows(tmp_path, "SELECT 1 FROM leasehold_parked"), "parked events as expected")
        assert rows(tmp_path) == [("a", 5, 5), ("b", 5, 5), ("poison", 5, 5)]
        assert rows(tmp_path, "SELECT 1 FROM accounts_rejected") == []
    finally:
        running.kill()
        running.wait()
