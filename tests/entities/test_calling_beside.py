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

import psutil
import pytest

from leasehold.entities.calling import processes
from leasehold.entities.calling.processes import HandlerProcesses, named
from leasehold.entities.calling.raised import GoesOn, RaisedElsewhere
from leasehold.entities.handled_table import Retries
from leasehold.entities.parking.left_behind import UNTOUCHED
from tests.entities.slow_handlers import told
from tests.entities.test_calling import PATIENT, SHORT, Giving, event, is_gone, numbers
from tests.entities.test_handled_table import given, until


@pytest.fixture
def patient(tmp_path: Path, calls: Path) -> Iterator[Giving]:
    """A table whose handler has all the time that it needs."""
    with closing(Giving(tmp_path, handler_timeout=PATIENT, hand_over_timeout=4 * PATIENT)) as giving:
        yield giving


def see(calls: Path) -> None:
    """What `slow` waits for."""
    Path(f"{calls}-seen").touch()


def none_waits(giving: Giving, first: int) -> bool:
    """Time passes, and the table is called without an event, as it has asked for. Whether nothing waits any more."""
    giving.clock.advance(3.0)
    giving.give(first)
    return not giving.waiting()


def process_of(calls: Path, account: str) -> int:
    (found,) = [line.split()[3] for line in calls.read_text().splitlines() if line.startswith(f"{account} ")]
    return int(found)


def test_the_others_are_applied_while_a_call_goes_on_and_then_its_answer_is(patient: Giving, calls: Path) -> None:
    patient.give(0, "a", "slow", "b", "slow", "a")
    assert patient.seen() == {"a": "0,4", "b": "2"}
    assert patient.waiting() == [(1, 0, ""), (3, 0, "")], "no try has failed"
    assert patient.asked, "it is looked after without a new event"
    patient.give(5, "b", "slow")
    assert not none_waits(patient, 7)
    assert patient.seen() == {"a": "0,4", "b": "2,5"}
    see(calls)
    until(lambda: none_waits(patient, 7))
    assert patient.seen() == {"a": "0,4", "b": "2,5", "slow": "1,3,6"}
    assert sorted(numbers(calls)) == [0, 1, 2, 3, 4, 5, 6], "each was called for once"


def test_a_call_that_goes_on_is_ended_at_its_time(tmp_path: Path, calls: Path) -> None:
    with closing(Giving(tmp_path, retries=Retries(deliveries=1))) as giving:
        giving.give(0, "a", "hangs", "b")
        assert giving.seen() == {"a": "0", "b": "2"}
        until(lambda: none_waits(giving, 3))
        assert giving.rejected() == [(1, f"HandlerTimeout: no answer within {SHORT:g} s")]
        until(lambda: is_gone(process_of(calls, "hangs")))


def test_a_call_that_hangs_beside_takes_none_of_the_time_of_a_batch(tmp_path: Path, calls: Path) -> None:
    """With room for one that hangs only, the second would not be called for."""
    with closing(Giving(tmp_path, hand_over_timeout=3.1 * SHORT)) as giving:
        giving.give(0, "hangs-1", "a", "hangs-2", "b")
        assert giving.seen() == {"a": "1", "b": "3"}
        assert numbers(calls) == [0, 1, 2, 3]


def test_where_the_partition_is_left_the_call_is_ended(patient: Giving, calls: Path) -> None:
    patient.give(0, "a", "slow")
    pid = process_of(calls, "slow")
    assert not is_gone(pid)
    patient.leave()
    until(lambda: is_gone(pid))
    see(calls)
    until(lambda: none_waits(patient, 2))  # the next owner calls for it
    assert patient.seen() == {"a": "0", "slow": "1"}
    assert numbers(calls) == [0, 1, 1]


def test_where_the_partition_is_left_the_call_for_what_a_replaced_hub_has_left_is_ended_too(
    patient: Giving, calls: Path
) -> None:
    patient.give(0, "slow")
    patient.leave()  # the owner of the old hub's partition is gone
    batch, _ = given(1, 0)
    batch.hub = "new"
    for _ in range(2):
        patient.clock.advance(UNTOUCHED)
        patient.table.on_events(batch, SimpleNamespace(hub="new", start=0, call_again=patient.asked.append))  # type: ignore[arg-type]
    again = int(calls.read_text().splitlines()[-1].split()[3])
    assert (numbers(calls), is_gone(again)) == ([0, 0], False)
    patient.leave("new")
    until(lambda: is_gone(again))


def test_a_process_that_is_killed_beside_fails_its_event_alone(patient: Giving, calls: Path) -> None:
    patient.give(0, "slow")
    os.kill(process_of(calls, "slow"), signal.SIGKILL)
    until(lambda: not none_waits(patient, 1) and patient.waiting()[0][1] == 1)
    assert patient.waiting() == [(0, 1, "HandlerDied: its process ended by SIGKILL")]


def test_this_process_stops_for_longer_than_the_time_out_and_the_answer_counts(calls: Path) -> None:
    with closing(HandlerProcesses("told", named(told), SHORT, beside=True)) as calling:
        with pytest.raises(GoesOn):
            calling(None, event("slow"))
        see(calls)
        time.sleep(2 * SHORT)  # as if stopped: nobody has asked meanwhile
        assert calling(None, event("slow")).state == {"seen": "0"}
        with pytest.raises(GoesOn):
            calling(None, event("hangs", 1))
        time.sleep(SHORT)
        with pytest.raises(RaisedElsewhere) as raised:
            calling(None, event("hangs", 1))
        assert raised.value.beside


def test_that_a_process_has_to_start_first_is_no_part_of_what_a_call_takes(calls: Path) -> None:
    """Else those that are called next would wait for a slow one for ten times a share of it."""
    with closing(HandlerProcesses("told", named(told), PATIENT, beside=True)) as calling:
        calling(None, event("a"))
        assert calling._patience() == processes.PATIENCE


def test_another_state_is_called_for_anew(calls: Path) -> None:
    with closing(HandlerProcesses("told", named(told), PATIENT, beside=True)) as calling:
        with pytest.raises(GoesOn) as still:
            calling(None, event("slow"))
        assert still.value.first
        with pytest.raises(GoesOn) as still:
            calling(None, event("slow"))
        assert not still.value.first
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(calling, {"account": "slow", "seen": "9"}, event("slow"))
            until(lambda: len(numbers(calls)) == 2)
            see(calls)
            assert answer.result().state == {"seen": "9,0"}, "it is waited for, so that it comes to an end"


def test_so_many_go_on_and_the_next_one_is_waited_for(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_BESIDE", 2)
    with closing(HandlerProcesses("told", named(told), SHORT, beside=True)) as calling:
        for number in range(2):
            with pytest.raises(GoesOn):
                calling(None, event("hangs", number))
        with pytest.raises(RaisedElsewhere) as raised:
            calling(None, event("hangs", 2))
        assert not raised.value.beside
    until(lambda: not [one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE])


def test_calls_that_all_take_long_are_waited_for(calls: Path) -> None:
    """What is slow is what takes much longer than the calls before."""
    with closing(HandlerProcesses("told", named(told), PATIENT, beside=True)) as calling:
        calling._mean = 1.0  # as after many calls of a second each
        see(calls)
        assert calling(None, event("slow")).state == {"seen": "0"}


def test_the_next_process_is_started_beside_and_is_no_ones_once_all_is_closed(calls: Path) -> None:
    with closing(HandlerProcesses("told", named(told), PATIENT, beside=True)) as calling:
        with pytest.raises(GoesOn):
            calling(None, event("slow"))
        until(lambda: len(calling._idle) == 1)
        (spare,) = calling._idle
        calling(None, event("a", 1))
        assert calling._idle == [spare], "no other was started for it"
        with pytest.raises(GoesOn):
            calling(None, event("slow", 2))
    started = {child.pid for child in psutil.Process().children() if "calling.program" in " ".join(child.cmdline())}
    assert not started, "neither what is idle nor what was being started"
