"""A call that takes long goes on while others are called: nothing waits for it but its own entity."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from leasehold.handlers.calling import processes
from leasehold.handlers.calling.processes import HandlerProcesses, _Process, named
from leasehold.handlers.calling.raised import GoesOn, RaisedElsewhere
from leasehold.handlers.parking.left_behind import UNTOUCHED
from leasehold.handlers.table import Retries
from leasehold.waiting import readable
from leasehold_testkit.clock import ManualClock
from tests.handlers.batches import given
from tests.handlers.slow_handlers import told
from tests.handlers.timed_calls import SHORT, Giving, Process, event, is_gone, numbers, timed
from tests.waiting import NEVER, until

__all__ = ["timed"]

pytestmark = pytest.mark.usefixtures("timed")


@pytest.fixture
def patient(tmp_path: Path, timed: None) -> Iterator[Giving]:
    """A table whose handler has all the time that it needs."""
    with closing(Giving(tmp_path, handler_timeout=NEVER, hand_over_timeout=4 * NEVER)) as giving:
        yield giving


def see(calls: Path) -> None:
    """What `slow` waits for."""
    Path(f"{calls}-seen").touch()


def none_waits(giving: Giving, first: int) -> bool:
    """Time passes, and the table is called without an event, as it has asked for. Whether nothing waits any more."""
    giving.clock.advance(3.0)
    giving.give(first)
    return not giving.waiting()


def processes_of(calls: Path, account: str) -> list[int]:
    """The process of each call for an account."""
    return [int(line.split()[3]) for line in calls.read_text().splitlines() if line.startswith(f"{account} ")]


def process_of(calls: Path, account: str) -> int:
    """The process of the only call for an account."""
    (found,) = processes_of(calls, account)
    return found


@pytest.mark.more
def test_the_others_are_applied_while_a_call_goes_on_and_then_its_answer_is(patient: Giving, calls: Path) -> None:
    patient.give(0, "a", "slow", "b", "slow", "a")
    assert patient.seen() == {"a": "0,4", "b": "2"}
    assert patient.waiting() == [(1, 0, ""), (3, 0, "")], "no try has failed"
    assert patient.asked, "it is looked after without a new event"
    patient.give(5, "b", "slow")
    assert not none_waits(patient, 7)
    assert patient.seen() == {"a": "0,4", "b": "2,5"}
    see(calls)
    until(lambda: none_waits(patient, 7), "parked events that are done")
    assert patient.seen() == {"a": "0,4", "b": "2,5", "slow": "1,3,6"}
    assert sorted(numbers(calls)) == [0, 1, 2, 3, 4, 5, 6], "each was called for once"


@pytest.mark.more
def test_a_call_that_goes_on_is_ended_at_its_time(
    tmp_path: Path, calls: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Giving(tmp_path, retries=Retries(deliveries=3, first=0.05, longest=0.1))) as giving:
        giving.give(0, "a", "hangs", "b")
        assert giving.seen() == {"a": "0", "b": "2"}
        until(lambda: none_waits(giving, 3), "parked events that are done")
        assert giving.rejected() == [(1, f"HandlerTimeout: no answer within {SHORT:g} s")]
        until(lambda: all(map(is_gone, processes_of(calls, "hangs"))), "the end of its processes")
    said = [record.getMessage() for record in caplog.records if record.name == "leasehold.handlers.telling"]
    assert [("was ended" in line, "after the last try" in line) for line in said] == [(True, False), (False, True)]
    assert f"the call for event 1 of 'hangs' was ended: HandlerTimeout: no answer within {SHORT:g} s" in said[0]


@pytest.mark.more
def test_a_call_that_hangs_beside_takes_none_of_the_time_of_a_batch(tmp_path: Path, calls: Path) -> None:
    """With room for one that hangs only, the second would not be called for."""
    with closing(Giving(tmp_path, hand_over_timeout=3.1 * SHORT)) as giving:
        giving.give(0, "hangs-1", "a", "hangs-2", "b")
        assert giving.seen() == {"a": "1", "b": "3"}
        assert numbers(calls) == [0, 1, 2, 3]


@pytest.mark.more
def test_where_the_partition_is_left_the_call_is_ended(patient: Giving, calls: Path) -> None:
    patient.give(0, "a", "slow")
    pid = process_of(calls, "slow")
    assert not is_gone(pid)
    patient.leave()
    until(lambda: is_gone(pid), "the end of a process")
    see(calls)
    until(lambda: none_waits(patient, 2), "parked events that are done")  # the next owner calls for it
    assert patient.seen() == {"a": "0", "slow": "1"}
    assert numbers(calls) == [0, 1, 1]


@pytest.mark.more
def test_where_the_partition_is_left_the_call_for_what_a_replaced_hub_has_left_is_ended_too(
    patient: Giving, calls: Path
) -> None:
    patient.give(0, "slow")
    patient.leave()  # the owner of the old hub's partition is gone
    batch, _ = given(1, 0)
    batch.hub = "new"
    for _ in range(2):
        patient.clock.advance(UNTOUCHED)
        patient.table.on_events(batch, SimpleNamespace(hub="new", start=0, call_again=patient.asked.append))
    again = int(calls.read_text().splitlines()[-1].split()[3])
    assert (numbers(calls), is_gone(again)) == ([0, 0], False)
    patient.leave("new")
    until(lambda: is_gone(again), "the end of a process")


@pytest.mark.more
def test_a_process_that_is_killed_beside_fails_its_event_alone(patient: Giving, calls: Path) -> None:
    patient.give(0, "slow")
    os.kill(process_of(calls, "slow"), signal.SIGKILL)
    until(lambda: not none_waits(patient, 1) and patient.waiting()[0][1] == 1, "parked events that are done")
    assert patient.waiting() == [(0, 1, "HandlerDied: its process ended by SIGKILL")]


@pytest.mark.more
def test_this_process_stops_for_longer_than_the_time_out_and_the_answer_counts(calls: Path) -> None:
    with closing(HandlerProcesses("told", named(told), NEVER, beside=True)) as calling:
        with pytest.raises(GoesOn):
            calling(None, event("slow"))
        ((_, process),) = calling._going.values()
        see(calls)
        until(lambda: readable(process._calls.fileno(), 0.0), "an answer")
        process._until = time.monotonic()  # as if stopped: nobody has asked meanwhile
        assert calling(None, event("slow")).state == {"seen": "0"}
        with pytest.raises(GoesOn):
            calling(None, event("hangs", 1))
        with pytest.raises(RaisedElsewhere) as raised:
            calling(None, event("hangs", 1))
        assert raised.value.beside


class SlowToStart(Process):
    """A process that takes a minute to start, by a time that stands still otherwise."""

    clock = ManualClock()

    def __init__(self, *arguments: Any) -> None:
        self.clock.advance(60.0)
        super().__init__(*arguments)


def test_that_a_process_has_to_start_first_is_no_part_of_what_a_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those that are called next would wait for a slow one for ten times a share of it."""
    monkeypatch.setattr(processes, "_Process", SlowToStart)
    monkeypatch.setattr(processes, "time", SlowToStart.clock)
    with closing(HandlerProcesses("told", named(told), NEVER)) as calling:
        calling(None, event("a"))
        calling._beside = True
        assert calling._patience() == processes.PATIENCE


@pytest.mark.more
def test_another_state_is_called_for_anew(calls: Path) -> None:
    with closing(HandlerProcesses("told", named(told), NEVER, beside=True)) as calling:
        with pytest.raises(GoesOn) as still:
            calling(None, event("slow"))
        assert still.value.first
        with pytest.raises(GoesOn) as still:
            calling(None, event("slow"))
        assert not still.value.first
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(calling, {"account": "slow", "seen": "9"}, event("slow"))
            until(lambda: len(numbers(calls)) == 2, "the second call")
            see(calls)
            assert answer.result().state == {"seen": "9,0"}, "it is waited for, so that it comes to an end"


@pytest.mark.more
def test_so_many_go_on_and_the_next_one_is_waited_for(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_BESIDE", 2)
    with closing(HandlerProcesses("told", named(told), SHORT, beside=True)) as calling:
        for number in range(2):
            with pytest.raises(GoesOn):
                calling(None, event("hangs", number))
        with pytest.raises(RaisedElsewhere) as raised:
            calling(None, event("hangs", 2))
        assert not raised.value.beside
    until(lambda: not called(), "the end of all processes")


def called() -> list[int]:
    """The processes of this one that call a handler."""
    own = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child.pid for child in own if "calling.program" in " ".join(child.cmdline())]


@pytest.mark.more
def test_calls_that_all_take_long_are_waited_for(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is slow is what takes much longer than the calls before."""
    monkeypatch.setattr(processes, "_Process", _Process)
    with closing(HandlerProcesses("told", named(told), NEVER, beside=True)) as calling:
        calling._mean = NEVER  # as after many calls that took long
        see(calls)
        assert calling(None, event("slow")).state == {"seen": "0"}


@pytest.mark.more
def test_the_next_process_is_started_beside_and_is_no_ones_once_all_is_closed(calls: Path) -> None:
    with closing(HandlerProcesses("told", named(told), NEVER, beside=True)) as calling:
        with pytest.raises(GoesOn):
            calling(None, event("slow"))
        until(lambda: len(calling._idle) == 1, "a process that is idle")
        (spare,) = calling._idle
        calling(None, event("a", 1))
        assert process_of(calls, "a") == spare._process.pid, "it waits for none that has to start"
        with pytest.raises(GoesOn):
            calling(None, event("slow", 2))
    assert called() == [], "neither what is idle nor what was being started"
