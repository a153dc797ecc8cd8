"""What a handler emits is sent once it is committed: in order, by the owner alone, and again with the same id."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from leasehold import Event
from leasehold.errors import ConfigError, HubUnavailable
from leasehold.handlers import outbox
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.contract import Delete, Reject, Skip
from leasehold.handlers.publishing import ID
from leasehold.handlers.table import Retries
from leasehold.hubs import open_hub
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.hubs.log import LogHub
from leasehold.operations.aside.contract import EntryFilter
from leasehold.operations.aside.refused import RefusedAside
from leasehold.processors.events.stopping import StopReason
from leasehold.sinks.features import BOOKKEEPING, require
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.set_aside import OutboxCounts
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.handlers.batches import rows
from tests.handlers.outbox_bench import Bench, bench, outbox_of, sent
from tests.handlers.processes import started, writable
from tests.waiting import NEVER, PATIENCE, until

__all__ = ["bench"]


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_AT_ONCE", 3)


@pytest.mark.usefixtures("small_steps")
def test_what_is_emitted_is_sent_in_order_and_then_gone(bench: Bench) -> None:
    table = bench.table()
    bench.give(table, 0, "a", "b", "a")
    bench.give(table, 3, "a")
    until(lambda: len(bench.bodies()) == 8 and bench.waiting() == [], "an outbox that is sent")
    found = sent("log:///sent.db", bench.folder)
    assert [text for _, text, _, key in found if key == "a"] == ["a1x", "a1y", "a2x", "a2y", "a3x", "a3y"]
    assert [(name, text) for name, text, _, key in found if key == "b"] == [("h/0/1/0", "b1x"), ("h/0/1/1", "b1y")]
    assert len({(key, partition) for _, _, partition, key in found}) == 2, "a key has one partition"


def test_each_answer(bench: Bench) -> None:
    table = bench.table(retries=Retries(deliveries=5), clock=bench.clock)
    bench.answers = {
        0: Effects(Skip(), [Emit("skipped")]),
        1: Effects(Delete(), [Emit("deleted")]),
        2: Reject("no"),
        3: RuntimeError("down"),
    }
    bench.give(table, 0, "a", "b", "c", "d", "e")
    until(lambda: sorted(bench.bodies()) == ["deleted", "e1x", "e1y", "skipped"], "what is emitted, in its hub")
    del bench.answers[3]
    bench.clock.advance(5.0)
    bench.give(table, 5)
    until(lambda: sorted(bench.bodies())[:2] == ["d1x", "d1y"] and bench.waiting() == [], "an outbox that is sent")
    assert len({partition for _, _, partition, key in sent("log:///sent.db", bench.folder) if not key}) == 1


def test_a_handler_that_names_no_outbox_emits_nothing(bench: Bench) -> None:
    table = bench.table(None)
    bench.give(table, 0, "a")
    assert bench.look("SELECT 1 FROM accounts") == []
    assert "outbox" in bench.look("SELECT error FROM leasehold_parked")[0][0]


def test_a_hub_that_is_away_holds_up_no_handler_and_nothing_is_lost(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_PAUSES", Retries(first=0.05, longest=0.1))
    table = bench.table()
    bench.away()
    bench.give(table, 0, "a")
    until(lambda: "the outbox waits" in caplog.text, "a line of the log")
    bench.give(table, 1, "a", "a")
    assert bench.look("SELECT events FROM accounts") == [(3,)]
    sender: Any = table._sender
    until(lambda: sender._failures > 3, "failures of the sender")
    assert bench.waiting() == ["a1x", "a1y", "a2x", "a2y", "a3x", "a3y"]
    bench.back()
    until(lambda: bench.waiting() == [], "an outbox that is sent")
    assert bench.bodies() == ["a1x", "a1y", "a2x", "a2y", "a3x", "a3y"]
    said = [record.getMessage() for record in caplog.records if record.name == outbox.logger.name]
    assert len([one for one in said if "waits" in one]) == 1
    until(lambda: "sent again" in caplog.text, "a line of the log")


def test_a_hub_that_is_made_anew_is_sent_what_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_PAUSES", Retries(first=0.05, longest=0.1))
    table = bench.table()
    bench.give(table, 0, "a")
    until(lambda: bench.waiting() == [], "an outbox that is sent")
    for path in bench.folder.glob("sent.db*"):
        path.unlink()
    LogHub.create(bench.folder / "sent.db", partitions=3).close()
    bench.give(table, 1, "a")
    until(lambda: bench.waiting() == [], "an outbox that is sent")
    assert bench.bodies() == ["a2x", "a2y"]


def test_the_next_owner_sends_what_is_left_and_the_former_one_stops(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_PAUSES", Retries(first=60.0))
    former = bench.table()
    bench.away()
    owner = bench.give(former, 0, "a", "a")
    until(lambda: "the outbox waits" in caplog.text, "a line of the log")  # it tries no more before the next owner has
    bench.back()
    later = bench.table()
    bench.give(later, 2, "a", level=2)
    until(lambda: bench.waiting() == [], "an outbox that is sent")
    bench.give(later, 3, "a", level=2)
    until(lambda: bench.waiting() == [], "an outbox that is sent")
    assert bench.bodies() == [f"a{n}{letter}" for n in range(1, 5) for letter in "xy"]
    assert owner.trusted, "it has not found out"


def test_who_lost_the_partition_removes_and_marks_nothing(bench: Bench) -> None:
    table = bench.table()
    bench.away()
    bench.give(table, 0, "a")
    kept = outbox_of(table)
    [first, second] = kept.waiting("h", "0", 9, 1 << 20)
    assert [one.number for one in kept.waiting("h", "0", 1, 1 << 20)] == [first.number]
    assert [one.number for one in kept.waiting("h", "0", 9, 1)] == [first.number], "at least one, whatever its size"
    assert kept.waiting("h", "1", 9, 1 << 20) == []
    table.sink.raise_owner_levels("h", {"0": 2})
    assert not kept.remove("h", "0", 1, [first.number])
    assert not kept.refuse("h", "0", 1, first.number, "no")
    assert kept.counts().waiting == 2
    assert kept.remove("h", "0", 2, [first.number])
    assert kept.refuse("h", "0", 2, second.number, "too large")
    assert kept.waiting("h", "0", 9, 1 << 20) == []
    counts = kept.counts()
    assert (counts.waiting, counts.since, counts.refused) == (0, None, 1)
    assert table.sink.set_aside_counts().outbox == counts


def test_what_was_refused_is_listed_and_sent_again_or_dropped(bench: Bench) -> None:
    began = time.time()
    table = bench.table()
    bench.away()
    bench.give(table, 0, "a", "b")
    kept = outbox_of(table)
    events = kept.waiting("h", "0", 9, 1 << 20)
    for one in events[:3]:
        assert kept.refuse("h", "0", 1, one.number, f"too large: {one.number}")
    assert kept.send_again([events[3].number]) == kept.drop_refused([events[3].number]) == 0, "it waits"
    listed = kept.refused(2)
    assert [one.event for one in listed] == events[:2]
    assert [(one.hub, one.partition, one.reason) for one in listed] == [
        ("h", "0", f"too large: {one.number}") for one in events[:2]
    ]
    assert began <= listed[0].emitted_at <= time.time()
    refused = RefusedAside("orders", kept)

    def numbered(number: int) -> EntryFilter:
        return EntryFilter(frozenset({(None, number)}))

    assert [one.kept.event for one in refused.chosen(EntryFilter(reason=f": {events[2].number}"))] == events[2:3]
    assert [one.kept.event for one in refused.chosen(numbered(events[1].number))] == events[1:2]
    assert refused.drop(numbered(events[0].number), "").counts == {"dropped": 1}
    assert refused.retry(EntryFilter(), None, lambda seen: None).counts == {"retried": 2}
    assert kept.refused(9) == []
    bench.back()
    owner = bench.give(table, 2)  # an idle processor, soon after: nobody here has put anything there
    bench.clock.advance(10.0)
    bench.give(table, 2)
    until(lambda: bench.bodies() == ["a1y", "b1x", "b1y"], "what is emitted, in its hub")
    assert owner.trusted


def test_a_refused_batch_emits_nothing(bench: Bench) -> None:
    former, later = bench.table(), bench.table()
    bench.give(former, 0, "a")
    bench.give(later, 1, level=2)
    bench.give(former, 1, "a")
    bench.give(later, 1, "b", level=2)
    until(lambda: bench.waiting() == [], "an outbox that is sent")
    assert sorted(bench.bodies()) == ["a1x", "a1y", "b1x", "b1y"]


def test_what_is_computed_again_under_the_lock_emits_in_place_of_what_was(bench: Bench) -> None:
    mine, other = (bench.table(spread=True, sequence_by="place", on_failure="park") for _ in range(2))
    committed = mine.sink.apply

    def overtaken(*arguments: Any) -> Any:
        mine.sink.apply = committed  # type: ignore[method-assign]
        bench.give(other, 0, "a", partition="1")
        return committed(*arguments)

    mine.sink.apply = overtaken  # type: ignore[method-assign, assignment]
    bench.give(mine, 0, "a", "b")
    until(lambda: bench.waiting() == [] and len(bench.bodies()) == 6, "an outbox that is sent")
    sent = [text for text in bench.bodies() if text.startswith("a")]
    assert sorted(sent) == ["a1x", "a1y", "a2x", "a2y"], "in any order: two partitions' owners send side by side"


def test_a_reset_leaves_what_waits_and_forget_removes_it(bench: Bench) -> None:
    table = bench.table()
    bench.away()
    bench.give(table, 0, "a", "b")
    table.sink.set_watermarks("h", {"0": Watermark(owner_level=1)})
    assert len(bench.waiting()) == 4
    require(table.sink, BOOKKEEPING, "a test").forget_entity({"account": "a"})
    assert bench.waiting() == ["b1x", "b1y"]
    bench.back()


def test_the_end_of_a_partition_waits_for_what_it_has_emitted(bench: Bench) -> None:
    table = bench.table()
    owner: Any = bench.give(table, 0, *"abcdef")
    table.on_partition_stop(owner, StopReason.SHUTDOWN)
    assert bench.waiting() == []
    assert len(bench.bodies()) == 12


def test_an_ending_waits_for_no_hub_that_is_away(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    table = bench.table()
    bench.away()
    owner: Any = bench.give(table, 0, "a")
    until(lambda: "the outbox waits" in caplog.text, "a line of the log")
    sender: Any = table._sender
    sender.leave = partial(sender.leave, at_most=NEVER)
    table.on_partition_stop(owner, StopReason.SHUTDOWN)
    assert len(bench.waiting()) == 2
    bench.back()


def test_counts(bench: Bench) -> None:
    assert outbox_of(bench.table(None)).counts() == OutboxCounts()


def test_a_hub_that_is_not_there(bench: Bench) -> None:
    with pytest.raises(HubUnavailable):
        bench.table("log:///none.db")
    with pytest.raises(ConfigError):
        bench.table("nowhere://x")


# Event Hubs


@pytest.fixture
def event_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with EventHubsServer({"Sent": MemoryHub(2)}) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        yield f"eventhubs://{server.namespace}/Sent"


@pytest.mark.parametrize("bench", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "refused", [Emit(b"z" * 2_000_000, key="a"), Emit(b"z", key="k" * 129)], ids=["too large", "key too long"]
)
def test_event_hubs_and_an_event_that_it_never_takes(
    bench: Bench, event_hub: str, caplog: pytest.LogCaptureFixture, refused: Emit
) -> None:
    table = bench.table(event_hub)
    bench.answers = {1: Effects({"events": 2}, [refused])}
    bench.give(table, 0, "a", "a", "a", "b")
    until(lambda: bench.look("SELECT count(*) FROM leasehold_outbox") == [(1,)], "an outbox that is sent")
    assert "is passed by" in caplog.text
    assert outbox_of(table).counts().refused == 1
    table.close()
    found = list(dict.fromkeys(text for _, text, _, key in sent(event_hub, bench.folder) if key == "a"))
    assert found == ["a1x", "a1y", "a3x", "a3y"]


# Processes

ACCOUNTS, EACH = 20, 5
STOPS = [("remove", "KILL"), ("publish", "STOP"), ("remove", "STOP"), ("publish", "KILL")]


@pytest.mark.more
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.parametrize("to", ["log", pytest.param("event hub", marks=pytest.mark.soak)])
def test_processes_that_are_killed_and_paused_between_sending_and_removing(
    tmp_path: Path, event_hub: str, monkeypatch: pytest.MonkeyPatch, to: str, rounds: int
) -> None:
    """Each process stops at one of its steps, and the next one takes its partitions at once, being of its name.

    What is handed over to one that was paused, and has ended since, is had when that has expired.
    """
    monkeypatch.setenv("PARTITION_EXPIRATION", "12")
    url = event_hub if to == "event hub" else f"log:////{tmp_path}/sent.db"
    LogHub.create(tmp_path / "sent.db", partitions=3).close()
    hub = LogHub.create(tmp_path / "log.db", partitions=2)
    each = EACH * max(1, rounds // 4)
    bodies = [{"account": f"a{n}", "amount": n, "place": place} for place in range(each) for n in range(ACCOUNTS)]
    hub.send(Event(json.dumps(one).encode(), partition_key=str(one["account"])) for one in bodies)
    hub.close()
    chance = Random(rounds)
    with ExitStack() as stack:

        def start(*more: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "tests.handlers.outbox_program", str(tmp_path), url, *more]
            return started(stack, command)

        def pause(process: subprocess.Popen[bytes]) -> None:
            """It stops itself again each time it goes on, until none of its threads is in a transaction."""
            while os.waitpid(process.pid, os.WUNTRACED) and not all(map(writable, tmp_path.glob("*.db"))):
                process.send_signal(signal.SIGCONT)

        def gone_on(process: subprocess.Popen[bytes]) -> bool:
            """Whether it has ended. Its threads stop it one more time, perhaps, so it is told again."""
            process.send_signal(signal.SIGCONT)
            return process.poll() is not None

        paused: list[subprocess.Popen[bytes]] = []
        for turn in range(rounds):
            line, how = STOPS[turn % len(STOPS)]
            process = start(line, how, str(chance.randint(1, 3)))
            if how == "KILL":
                assert process.wait(PATIENCE) == -signal.SIGKILL
            else:
                pause(process)
                paused.append(process)
            if len(paused) > 1 or turn == rounds - 1:
                follower = start()
                until((tmp_path / f"sending-{follower.pid}").exists, "a sender at work")
                for one in paused:  # those go on behind one that has taken over
                    (tmp_path / f"go-{one.pid}").touch()
                    until(lambda one=one: gone_on(one), "the end of a process")  # type: ignore[misc]
                    assert one.returncode == 0
                paused.clear()
                if turn == rounds - 1:
                    until(lambda: rows(tmp_path, "SELECT sum(events) FROM accounts") == [(len(bodies),)], "all events")
                    until(
                        lambda: rows(tmp_path, "SELECT count(*) FROM leasehold_outbox") == [(0,)],
                        "an outbox that is sent",
                    )
                follower.kill()
                follower.wait()
        found = sent(url, tmp_path)
    expected = {
        f"a{n}": [f"a{n} {place} {letter}" for place in range(each) for letter in "xy"] for n in range(ACCOUNTS)
    }
    first: dict[str, tuple[str, str | None]] = {}
    for name, text, _, key in found:
        assert first.setdefault(name, (text, key)) == (text, key), "a repeat is the same"
    by_key: dict[str | None, list[str]] = {}
    for text, key in first.values():
        by_key.setdefault(key, []).append(text)
    assert by_key == expected, "nothing is missing, and nothing out of order"
    if to == "log":
        assert max(Counter(name for name, *_ in found).values()) == 1
    else:
        assert len(found) > len(first), "an event hub has some twice"


# What earlier commits have kept

FIRST = """
CREATE TABLE leasehold_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, pipeline TEXT NOT NULL, entity_table TEXT COLLATE NOCASE NOT NULL,
    hub TEXT NOT NULL, partition TEXT NOT NULL, sequence_number INTEGER NOT NULL, place INTEGER NOT NULL,
    entity TEXT NOT NULL, key TEXT, body BLOB NOT NULL, properties TEXT NOT NULL, emitted_at REAL NOT NULL,
    refused TEXT);
CREATE INDEX leasehold_outbox_lane ON leasehold_outbox (pipeline, entity_table, hub, partition, number);
INSERT INTO leasehold_outbox VALUES
    (7, 'p', 'accounts', 'h', '0', 5, 1, '["a"]', 'a', x'6F6C64', '{"n":"ü"}', 1.8e9, NULL),
    (8, 'p', 'accounts', 'h', '0', 5, 2, '["a"]', NULL, x'6E6F', '{}', 1.8e9, 'large');
"""
FIRST_IN_POSTGRES = """
CREATE TABLE leasehold_outbox (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline text COLLATE "C" NOT NULL, entity_table text COLLATE "C" NOT NULL, hub text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL, sequence_number bigint NOT NULL, place integer NOT NULL,
    entity text COLLATE "C" NOT NULL, key text, body bytea NOT NULL, properties text NOT NULL,
    emitted_at double precision NOT NULL, refused text);
CREATE INDEX leasehold_outbox_lane ON leasehold_outbox (pipeline, entity_table, hub, partition, number);
INSERT INTO leasehold_outbox (pipeline, entity_table, hub, partition, sequence_number, place, entity, key, body,
    properties, emitted_at, refused) VALUES
    ('p', 'accounts', 'h', '0', 5, 1, '["a"]', 'a', 'old', '{"n":"ü"}', 1.8e9, NULL),
    ('p', 'accounts', 'h', '0', 5, 2, '["a"]', NULL, 'no', '{}', 1.8e9, 'large')
"""


def test_the_first_form_is_sent(bench: Bench, request: pytest.FixtureRequest) -> None:
    if "place" in request.fixturenames or "postgres" in request.node.name:
        request.getfixturevalue("place").run(*FIRST_IN_POSTGRES.split(";"))
    else:
        with closing(sqlite3.connect(bench.folder / "table.db")) as connection:
            connection.executescript(FIRST)
    table = bench.table()
    bench.give(table, 6, "a")
    until(lambda: outbox_of(table).counts() == OutboxCounts(refused=1), "an outbox that is sent")
    assert bench.bodies() == ["old", "a1x", "a1y"]
    with closing(open_hub("log:///sent.db", base=bench.folder)) as hub:
        found = [
            dict(one["properties"])
            for name in hub.partition_ids()
            for batch in hub.read(name, 0, hub.partition_properties()[name].end)
            for one in batch.to_pylist()
        ]
    assert {"n": "ü", ID: "h/0/5/1"} in found
