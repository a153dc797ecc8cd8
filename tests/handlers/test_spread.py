"""Entities whose events are in several partitions: one commit after the other, whoever computes at the same time."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold import Event
from leasehold.errors import ConfigError
from leasehold.handlers.contract import Delete, HandlerFailed, Reject, Skip
from leasehold.handlers.spread import BEHIND, UNDER_LOCK, check_spread
from leasehold.handlers.table import Retries
from leasehold.hubs.log import LogHub
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.rules.fence import Watermark
from tests.handlers.batches import overtaken_once
from tests.handlers.processes import started
from tests.handlers.spread_bench import Bench, bench
from tests.sinks.postgres import Place
from tests.waiting import PATIENCE, until

__all__ = ["bench"]


def fails() -> Any:
    raise RuntimeError("down")


def test_only_what_has_moved_since_it_was_read_is_computed_again(bench: Bench) -> None:
    one, two = bench.table(), bench.table()
    bench.give(one, "0", ("a", 1), ("b", 1))
    bench.calls.clear()
    overtaken_once(one, lambda: bench.give(two, "1", ("a", 2)))
    bench.give(one, "0", ("a", 3), ("b", 2), ("a", 4), ("new", 1))
    assert bench.seen() == {"a": "1,2,3,4", "b": "1,2", "new": "1"}
    assert [key for key, _, _ in bench.calls] == ["a", "b", "a", "new", "a", "a", "a"], "the third is of partition 1"
    assert bench.look("SELECT key, version, latest FROM leasehold_entity ORDER BY key") == [
        ('["a"]', 3, "4"),
        ('["b"]', 2, "2"),
        ('["new"]', 1, "1"),
    ]


@pytest.mark.parametrize("answer", [Skip(), Delete()])
def test_an_entity_that_two_partitions_begin_at_once_is_made_once(bench: Bench, answer: object) -> None:
    one, two = bench.table(), bench.table()
    overtaken_once(one, lambda: bench.give(two, "1", ("a", 2)))
    bench.give(one, "0", ("a", 1))
    assert bench.seen() == {"a": "2,1"}
    assert bench.calls[-1] == ("a", 1, True)
    bench.does[5] = lambda: answer
    overtaken_once(one, lambda: bench.give(two, "1", ("a", 5)))  # a commit that leaves no state counts as well
    bench.give(one, "0", ("a", 3))
    assert bench.calls[-1] == ("a", 3, True)
    assert bench.seen() == {"a": "2,1,3" if isinstance(answer, Skip) else "3"}


def test_late_events_are_told_or_rejected(bench: Bench) -> None:
    one, two = bench.table(), bench.table(late="reject")
    bench.give(one, "0", ("a", 5), ("a", 5), ("a", 4))
    bench.give(two, "1", ("a", 5), ("a", 3), ("b", 3), ("b", 2), ("a", 6), ("a", None))
    assert bench.seen() == {"a": "5,5,4,5,6", "b": "3"}
    assert [late for _, _, late in bench.calls] == [False, False, True, False, False, False]
    reasons = bench.look("SELECT sequence_number, reason FROM accounts_rejected ORDER BY 1")
    late = "late: one of its entity with a higher version has come before"
    assert reasons == [(1, late), (3, late), (5, "version is null or NaN, and orders the events of an entity")]


@pytest.mark.parametrize("late", ["apply", "reject"])
def test_an_event_older_than_a_state_that_was_there_before_is_late(bench: Bench, late: str) -> None:
    table = bench.table("account STRING, seen STRING, version BIGINT", late=late)
    rows = "('a', 'before', 5), ('b', 'before', 5), ('c', 'before', NULL)"
    bench.look(f"INSERT INTO accounts (account, seen, version) VALUES {rows} RETURNING 1")
    bench.give(table, "0", ("a", 4), ("b", 5), ("c", 1), ("a", 5))
    assert bench.seen() == {
        "a": "before,5" if late == "reject" else "before,4,5",
        "b": "before,5",
        "c": "before,1",
    }
    assert [late for _, _, late in bench.calls] == ([False] * 3 if late == "reject" else [True, False, False, False])
    assert bench.look("SELECT key, latest FROM leasehold_entity ORDER BY key") == [
        ('["a"]', "5"),
        ('["b"]', "5"),
        ('["c"]', "1"),
    ]


def test_a_state_that_was_there_counts_until_an_event_takes_effect(bench: Bench) -> None:
    """Also once others have been set aside, here and by another owner between the reading and the commit."""
    one, two = (bench.table("account STRING, seen STRING, version BIGINT", late="reject") for _ in range(2))
    bench.look("INSERT INTO accounts (account, seen, version) VALUES ('a', 'before', 5) RETURNING 1")
    overtaken_once(one, lambda: bench.give(two, "1", ("a", 2)))
    for version in (3, 4):
        bench.give(one, "0", ("a", version))
    assert (bench.seen(), bench.calls) == ({"a": "before"}, [])
    bench.give(one, "0", ("a", 5))
    assert bench.seen() == {"a": "before,5"}


def test_a_value_of_another_kind_in_a_state_makes_no_event_late(bench: Bench) -> None:
    table = bench.table("account STRING, seen STRING, version TIMESTAMP")
    stored = "2026-06-01T00:00:00.000000Z"
    bench.look(f"INSERT INTO accounts (account, seen, version) VALUES ('a', 'before', '{stored}') RETURNING 1")
    bench.give(table, "0", ("a", 4))
    assert [late for _, _, late in bench.calls] == [False]


def test_a_state_may_hold_what_its_type_does_not(bench: Bench) -> None:
    """Somebody else has written it, into a column that takes more: an integer counts by its size, a text does not."""
    bench.table("account STRING, seen STRING, version BIGINT")
    text = "('b', 'before', 'x')" if bench.url.startswith("sqlite") else "('b', 'before', NULL)"
    bench.look(f"INSERT INTO accounts (account, seen, version) VALUES ('a', 'before', {2**40}), {text} RETURNING 1")
    bench.give(bench.table("account STRING, seen STRING, version INT"), "0", ("a", 4), ("b", 4))
    assert [late for _, _, late in bench.calls] == [True, False]


@pytest.mark.parametrize("batches", [1, 3])
def test_what_was_set_aside_makes_no_other_event_late(bench: Bench, batches: int) -> None:
    """One event with a far too high version, which its handler refuses, had all later ones of its entity set aside."""

    def refused() -> Any:
        raise Reject("no such version")

    table = bench.table(late="reject", retries=Retries(deliveries=1))
    bench.does = {900: refused, 800: fails}
    events = [("a", 900), ("a", 5), ("a", 800), ("a", 6), ("a", 4)]
    for part in [events] if batches == 1 else [events[:1], events[1:3], events[3:]]:
        bench.give(table, "0", *part)
    assert bench.seen() == {"a": "5,6"}
    assert [late for _, _, late in bench.calls] == [False] * 4
    assert bench.look("SELECT sequence_number FROM accounts_rejected ORDER BY 1") == [(0,), (2,), (4,)]
    assert bench.look("SELECT latest FROM leasehold_entity") == [("6",)]


def test_a_late_event_is_seen_as_such_under_the_lock(bench: Bench) -> None:
    one, two = bench.table(late="reject"), bench.table()
    overtaken_once(one, lambda: bench.give(two, "1", ("a", 9)))
    bench.give(one, "0", ("a", 5), ("b", 1))
    assert bench.seen() == {"a": "9", "b": "1"}
    assert bench.look("SELECT partition, sequence_number FROM accounts_rejected") == [("0", 0)]


def test_events_wait_behind_those_of_another_partition(bench: Bench) -> None:
    one, two = bench.table(), bench.table()
    bench.does[1] = fails
    bench.give(one, "0", ("a", 1), ("b", 7))
    bench.give(two, "1", ("a", 2), ("b", 8))
    one.sink._clock = SimpleNamespace(wall=lambda: 5.0)  # type: ignore[attr-defined]  # a host whose clock is behind
    bench.give(one, "0", ("a", 3))
    bench.clock.advance(10)
    assert bench.parked() == [("0", 1), ("1", 0), ("0", 0)]
    for _ in range(3):
        bench.give(two, "1")
        bench.clock.advance(BEHIND[1])
    assert bench.parked() == [("0", 1), ("1", 0), ("0", 0)]
    bench.does.clear()
    bench.give(one, "0")
    assert bench.seen() == {"a": "1", "b": "7,8"}
    assert bench.parked() == [("1", 0), ("0", 0)]
    bench.clock.advance(BEHIND[1])
    bench.give(one, "0")
    assert bench.parked() == [("1", 0), ("0", 0)]
    bench.clock.advance(BEHIND[1])
    bench.give(two, "1")
    bench.clock.advance(BEHIND[1])
    bench.give(one, "0")
    assert bench.parked() == []
    assert bench.seen()["a"] == "1,2,3"
    assert not any(late for _, _, late in bench.calls)


def test_an_entity_that_another_partition_parks_meanwhile_waits(bench: Bench) -> None:
    one, two = bench.table(), bench.table()
    bench.does[1] = fails
    overtaken_once(one, lambda: bench.give(two, "1", ("a", 1)))
    bench.give(one, "0", ("a", 2), ("b", 2), ("a", 3))
    assert bench.parked() == [("1", 1), ("0", 0), ("0", 0)]
    assert bench.seen() == {"b": "2"}
    bench.does.clear()
    bench.clock.advance(10)
    for partition, table in (("1", two), ("0", one)):
        bench.give(table, partition)
    assert bench.seen() == {"a": "1,2,3", "b": "2"}
    assert bench.parked() == []


def test_handlers_that_take_long_are_not_called_under_the_lock(bench: Bench) -> None:
    one, two = bench.table(), bench.table()
    bench.does |= {3: lambda: bench.clock.advance(UNDER_LOCK * 2), 4: lambda: bench.clock.advance(UNDER_LOCK * 2)}
    overtaken_once(one, lambda: bench.give(two, "1", ("a", 1), ("b", 1)))
    bench.give(one, "0", ("a", 3), ("b", 4), ("c", 5))
    assert bench.seen() == {"a": "1,3", "b": "1,4", "c": "5"}, "they were parked, and tried at once"
    assert len([call for call in bench.calls if call[1] == 3]) == 2
    assert bench.parked() == []


def test_a_partition_that_waits_computes_anew_where_it_has_to_end_before(bench: Bench) -> None:
    one, two = bench.table(on_failure="wait"), bench.table()
    tries: list[int] = []

    def second_time() -> Any:
        tries.append(1)
        if len(tries) > 1:
            raise RuntimeError("down")

    bench.does[5] = second_time
    overtaken_once(one, lambda: bench.give(two, "1", ("b", 1)))
    with pytest.raises(HandlerFailed):
        bench.give(one, "0", ("a", 4), ("b", 5), ("a", 6))
    assert bench.seen() == {"a": "4", "b": "1"}
    bench.does.clear()
    bench.give(one, "0", ("a", 4), ("b", 5), ("a", 6))
    assert bench.seen() == {"a": "4,6", "b": "1,5"}


def test_forgetting_and_a_reset_begin_anew(bench: Bench) -> None:
    one = bench.table(late="reject")
    bench.give(one, "0", ("a", 5), ("b", 5))
    require(one.sink, BOOKKEEPING, "a test").forget_entity({"account": "a"})
    assert bench.look("SELECT key FROM leasehold_entity") == [('["b"]',)]
    bench.give(one, "1", ("a", 1), ("b", 1))
    assert bench.seen() == {"a": "5,1", "b": "5"}
    one.sink.set_watermarks("h", {name: Watermark(-1, 1) for name in "01"}, anew=True)
    assert bench.look("SELECT key FROM leasehold_entity") == []
    bench.give(one, "1", ("b", 2))
    assert bench.seen()["b"] == "5,2"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sequence_by": "gone"}, "one of the schema's columns"),
        ({"sequence_by": "of"}, "it is of type decimal"),
        ({"late": "never"}, "one of apply, reject"),
    ],
)
def test_settings_that_do_not_go_together(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    made = Bench(f"sqlite:////{tmp_path}/table.db", lambda query: [])
    with pytest.raises(ConfigError, match=said):
        made.table(**more)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((True, None, "apply"), r'only this says which is later.*sequence_by="version"'),
        ((False, "version", "apply"), "none is late.*let the table be spread"),
        ((False, None, "reject"), "none is late"),
    ],
)
def test_settings_of_a_file_that_do_not_go_together(given: tuple[bool, str | None, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_spread(*given, None)


def test_a_table_is_spread_for_good(bench: Bench) -> None:
    bench.give(bench.table(), "0", ("a", 1))
    for more in ({"sequence_by": "at"}, {"spread": False, "sequence_by": None}):
        with pytest.raises(ConfigError, match=r"has been ordered by version \(spread\) so far"):
            bench.table(**more)


@pytest.mark.more
def test_writers_that_meet_in_any_order_of_keys_wait_for_each_other_and_never_in_a_circle(bench: Bench) -> None:
    tables = {"0": bench.table(), "1": bench.table()}
    failed: list[Exception] = []

    def write(partition: str) -> None:
        rng = Random(partition)
        try:
            for version in range(25):
                keys = [f"k{n}" for n in range(12)]
                rng.shuffle(keys)
                bench.give(tables[partition], partition, *((key, version) for key in keys))
        except Exception as error:  # noqa: BLE001  told by the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=write, args=(partition,)) for partition in "01"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failed == []
    seen = bench.seen()
    assert len(seen) == 12
    for text in seen.values():
        assert sorted(map(int, text.split(","))) == sorted([*range(25)] * 2)


# What is kept beside the table

FIRST = """CREATE TABLE leasehold_entity (pipeline TEXT, entity_table TEXT COLLATE NOCASE, key TEXT,
    version INTEGER NOT NULL, latest TEXT, PRIMARY KEY (pipeline, entity_table, key)) WITHOUT ROWID"""
FIRST_IN_POSTGRES = """CREATE TABLE leasehold_entity (pipeline text COLLATE "C", entity_table text COLLATE "C",
    key text COLLATE "C", version bigint NOT NULL, latest text, PRIMARY KEY (pipeline, entity_table, key))
    WITH (fillfactor = 50)"""
KEPT = """INSERT INTO leasehold_entity VALUES ('p', 'accounts', '["a"]', 3, '9'), ('p', 'others', '["a"]', 8, '1'),
    ('p', 'accounts', '["b"]', 4, NULL)"""


def test_the_first_form_is_read(bench: Bench, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if bench.url.startswith("sqlite"):
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            connection.executescript(f"{FIRST}; {KEPT}")
    else:
        there: Place = request.getfixturevalue("place")
        there.run(FIRST_IN_POSTGRES, KEPT)
    bench.give(bench.table(), "0", ("a", 8), ("b", 8))
    assert [late for _, _, late in bench.calls] == [True, False]
    kept = bench.look("SELECT entity_table, key, version, latest FROM leasehold_entity ORDER BY 1, 2")
    assert kept == [("accounts", '["a"]', 4, "9"), ("accounts", '["b"]', 5, "8"), ("others", '["a"]', 8, "1")]


# Two processes, of which one is killed

EACH, ACCOUNTS = 25, 8


@pytest.mark.more
@pytest.mark.parametrize("bench", [pytest.param("sqlite", marks=pytest.mark.soak), "postgres"], indirect=True)
def test_two_processes_on_two_partitions_of_which_one_is_killed(bench: Bench, tmp_path: Path) -> None:
    hub = LogHub.create(tmp_path / "log.db", partitions=2)
    total: dict[str, int] = {}
    for place_ in range(EACH):
        for partition in "01":
            bodies = [
                {"account": f"a{n}", "amount": n + place_, "place": place_, "version": 2 * place_ + int(partition)}
                for n in range(ACCOUNTS)
            ]
            hub.send([Event(json.dumps(one).encode()) for one in bodies], partition=partition)
            for one in bodies:
                total[str(one["account"])] = total.get(str(one["account"]), 0) + int(str(one["amount"]))
    hub.close()

    def start(stack: ExitStack, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.handlers.spread_program", str(tmp_path), name, bench.url]
        return started(stack, command)

    def applied() -> int:
        try:
            return int(bench.look("SELECT sum(p0 + p1) FROM accounts")[0][0] or 0)
        except Exception:  # noqa: BLE001  the table is not there yet
            return 0

    def table(**more: Any) -> list[Any]:
        return bench.look("SELECT account, p0, p1, total FROM accounts ORDER BY account")

    with ExitStack() as stack:
        first = start(stack, "one")
        start(stack, "two")
        until(lambda: applied() > 40, "events that are applied")
        first.kill()
        first.wait()
        start(stack, "one")  # takes the partitions of its predecessor at once
        until(lambda: applied() == 2 * EACH * ACCOUNTS, "events that are applied")
        until(lambda: not bench.look("SELECT 1 FROM leasehold_parked"), "parked events as expected")
    assert table() == sorted((account, EACH, EACH, amount) for account, amount in total.items())
    assert bench.look("SELECT reason FROM accounts_rejected") == []
