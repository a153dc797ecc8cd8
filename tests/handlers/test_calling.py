"""Handlers with a time-out: calls in processes of their own, what hangs is ended, and the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from leasehold.errors import ConfigError, HandlerUnavailable, UsageError
from leasehold.handlers.answers import Effects
from leasehold.handlers.calling import interrupting, processes
from leasehold.handlers.calling.calls import HandlerCalls
from leasehold.handlers.calling.crossing import answer_of, call_of, packed, read_answer, read_call, unpacked
from leasehold.handlers.calling.interrupting import Interrupting
from leasehold.handlers.calling.limits import TimeLimit
from leasehold.handlers.calling.processes import HandlerProcesses, named
from leasehold.handlers.calling.raised import NotCalled, RaisedElsewhere, timed_out
from leasehold.handlers.contract import Delete, EntityEvent, EntityHandler, HandlerFailed, Reject, Skip, entity
from leasehold.handlers.table import Retries
from tests.handlers.batches import rows
from tests.handlers.slow_handlers import STARTED, NoPlainValue, of_a_class, told
from tests.handlers.timed_calls import NO_ANSWER, SHORT, Giving, event, is_gone, made, numbers, timed
from tests.many_files import many_files
from tests.repository import ROOT
from tests.waiting import NEVER, PATIENCE, until

__all__ = ["timed"]

# What crosses

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=[]))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC))
    | st.times()
    | st.timedeltas()
    | st.uuids(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@drawn(VALUES)
def test_values_come_across_as_they_are(value: Any) -> None:
    there = unpacked(packed(value))
    assert (there, type(there)) == (value, type(value))


def test_values_of_a_class_of_their_own_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"^status\[1\]\.at is a NoPlainValue, which cannot come out"):
        answer_of(Effects({"status": [1, {"at": NoPlainValue()}]}))


def test_events_and_answers_come_across() -> None:
    state = {
        "a": Decimal("1.20"),
        "d": date(2026, 1, 2),
        "t": datetime(2026, 1, 2, tzinfo=UTC),
        "u": UUID(int=7),
        "s": timedelta(days=-1),
        "m": time(1),
        "$": {"$": "map"},
    }
    for one in (None, state):
        its = event("x", 7, late=True, delivery=3)
        assert read_call(call_of(one, its)) == (one, its)
    for answer in (Effects(state), Effects(Delete()), Effects(Skip()), told(None, event("emits"))):
        assert read_answer(answer_of(answer)) == Effects(answer.state, list(answer.effects))


# How long calls of a batch may hang


def test_all_that_hang_take_no_longer_than_a_batch_may() -> None:
    limit = TimeLimit(2.0, 10.0)
    for number in range(5):
        limit.check(event("a", number), before=False)
        limit.note(event("a", number), timed_out(2.0))
    assert limit.spent
    with pytest.raises(NotCalled):
        limit.check(event("a", 9), before=False)
    with pytest.raises(RaisedElsewhere, match="no answer within 2 s"):
        limit.check(event("a", 3), before=True)


def test_an_event_of_another_hub_at_the_same_place_has_not_hung() -> None:
    limit = TimeLimit(2.0, 10.0)
    limit.note(event("a", 7), timed_out(2.0))
    limit.check(replace(event("b", 7), hub="a hub that was replaced"), before=False)


def test_what_hung_before_takes_half_of_it_and_one_call_in_any_case() -> None:
    limit = TimeLimit(4.0, 10.0)
    limit.check(event("a", 0), before=True)
    limit.note(event("a", 0), timed_out(4.0))
    with pytest.raises(NotCalled):
        limit.check(event("a", 1), before=True)
    limit.check(event("a", 2), before=False)


def test_who_works_on_partitions_by_turns_shares_one_limit_among_them() -> None:
    calls = HandlerCalls(told, 2.0, 30.0)
    with calls.sharing():
        one, other = calls.limit(), calls.limit()
        one.check(event("a", 7), before=False)
        one.note(event("a", 7), timed_out(2.0))
        elsewhere = replace(event("a", 7), partition="1")
        other.check(elsewhere, before=False)
        other.note(elsewhere, timed_out(2.0))
        with pytest.raises(NotCalled):  # half of ten seconds has no room for a third
            one.check(event("a", 8), before=False)
    calls.limit().check(event("a", 8), before=False)


def test_without_a_time_out_nothing_is_limited() -> None:
    limit = TimeLimit()
    limit.check(event("a"), before=True)
    assert not limit.spent


# Processes


def opened(timeout: float, handler: EntityHandler = told) -> HandlerProcesses:
    return HandlerProcesses(handler.function.__name__, named(handler), timeout)


def process_of(calls: Path) -> int:
    """The process that has made the last call."""
    return int(calls.read_text().splitlines()[-1].split()[-1])


def test_a_call_in_a_process_answers_as_one_here(calls: Path) -> None:
    with closing(opened(NEVER)) as processes:
        assert processes(None, event("a", 4)) == Effects({"seen": "4"}, [])
        first = process_of(calls)
        assert processes({"account": "a", "seen": "4"}, event("a", 5)) == Effects({"seen": "4,5"}, [])
        assert processes(None, event("emits")) == told(None, event("emits"))
        assert (processes({}, event("deletes")).state, processes({}, event("skips")).state) == (Delete(), Skip())
        with pytest.raises(Reject, match="never"):
            processes(None, event("rejects"))
        with pytest.raises(RaisedElsewhere) as raised:
            processes(None, event("raises"))
        assert (raised.value.name, raised.value.described) == ("ValueError", "ValueError: no good")
        assert 'raise ValueError("no good")' in raised.value.traced
        with pytest.raises(RaisedElsewhere) as raised:
            processes(None, event("later"))
        assert (raised.value.name, raised.value.after) == ("Retry", 77)
        with pytest.raises(RaisedElsewhere, match="seen is a NoPlainValue"):
            processes(None, event("wrong"))
        assert process_of(calls) == first, "one process, as long as it answers"
    until(lambda: is_gone(first), "the end of a process")


def test_states_of_a_class_are_made_over_there() -> None:
    with closing(opened(NEVER, of_a_class)) as processes:
        assert processes(None, event("a")).state == {"account": "a", "seen": "new"}
        assert processes({"account": "a", "seen": "new"}, event("a")).state == {"account": "a", "seen": "new+"}


@pytest.mark.more
@pytest.mark.usefixtures("timed")
def test_what_hangs_is_ended_with_what_it_has_started_and_says_where_it_was(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(SHORT)) as calling:
        calling(None, event("a"))
        first = process_of(calls)
        with pytest.raises(RaisedElsewhere) as raised:
            calling(None, event("starts"))
        assert (raised.value.name, raised.value.described) == ("HandlerTimeout", NO_ANSWER)
        assert "in hang" in raised.value.traced
        until(lambda: is_gone(first), "the end of the process")
        until(lambda: not runs(*STARTED), "the end of what it has started")
        monkeypatch.setattr(processes, "_LOOKING", 0.1)  # impatient: a process that is stopped never says where
        with pytest.raises(RaisedElsewhere, match="no answer"):  # not even a place
            calling(None, event("stops"))
        assert calling(None, event("a", 1)).state == {"seen": "1"}
        assert process_of(calls) != first


@pytest.mark.more
@pytest.mark.usefixtures("timed")
def test_a_process_with_many_connections_has_its_handlers_called_and_what_hangs_is_ended(calls: Path) -> None:
    with many_files(), closing(opened(SHORT)) as calling:
        assert calling(None, event("a")).state == {"seen": "0"}
        with pytest.raises(RaisedElsewhere) as raised:
            calling(None, event("hangs"))
        assert "in told" in raised.value.traced, "it says where it was"
        assert calling(None, event("a", 1)).state == {"seen": "1"}


def runs(*command: str) -> bool:
    """Whether a process with such a command runs."""
    return any([*command] == one.info["cmdline"] for one in psutil.process_iter(["cmdline"]))


@pytest.mark.more
@pytest.mark.parametrize(("account", "how"), [("dies", "by SIGSEGV"), ("exits", "with exit code 3")])
@pytest.mark.usefixtures("timed")
def test_a_process_that_ends_in_a_call_is_told_as_an_exception(account: str, how: str) -> None:
    with closing(opened(NEVER)) as processes, pytest.raises(RaisedElsewhere) as raised:
        processes(None, event(account))
    assert raised.value.described == f"HandlerDied: its process ended {how}"


@pytest.mark.more
def test_a_process_that_ended_between_two_calls_is_nobodys_failure(calls: Path) -> None:
    with closing(opened(NEVER)) as processes:
        processes(None, event("a"))
        first = process_of(calls)
        os.kill(first, signal.SIGKILL)
        until(lambda: is_gone(first), "the end of a process")
        assert processes(None, event("a", 1)).state == {"seen": "1"}


CALLER = """
import sys
from leasehold.handlers.calling.processes import HandlerProcesses, named
from tests.handlers.slow_handlers import told
from tests.handlers.timed_calls import event
HandlerProcesses("told", named(told), 1_000.0)(None, event("hangs"))
"""


@pytest.mark.more
def test_who_calls_is_killed_and_its_processes_end_with_it(calls: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    caller = subprocess.Popen([sys.executable, "-c", CALLER], env=environment)
    try:
        until(lambda: calls.exists() and calls.read_text().endswith("\n"), "a call that is noted")
        called = process_of(calls)
        assert not is_gone(called)
    finally:
        caller.kill()
        caller.wait()
    until(lambda: is_gone(called), "the end of a process")


def test_handlers_that_another_process_cannot_find_are_refused_by_name(tmp_path: Path) -> None:
    @entity(keys=["account"])
    def inner(state: Any, event: EntityEvent) -> Any:
        return state

    with pytest.raises(ConfigError, match=r"of .*inner.*imports it from its module"):
        made(tmp_path, inner)


@pytest.mark.usefixtures("timed")
def test_a_process_that_does_not_start_is_an_outage() -> None:
    with pytest.raises(HandlerUnavailable, match="told has not started: it ended with exit code 1"):
        HandlerProcesses("told", b"nno_such_module:told", NEVER)(None, event("a"))


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("inf"), 10.1])
def test_time_outs_that_make_no_sense(tmp_path: Path, timeout: float) -> None:
    with pytest.raises(ConfigError, match="handler_timeout"):
        made(tmp_path, told, handler_timeout=timeout)


# Interrupted in this process


def test_a_call_is_interrupted_and_says_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupting, "GRACE", NEVER)  # else a pause of this process would end it
    former, main = signal.getsignal(signal.SIGALRM), threading.current_thread().ident
    assert main is not None

    def interrupt() -> None:
        """As the time-out does, once the handler sleeps."""
        until(lambda: SLEEPS in "".join(traceback.format_stack(sys._current_frames()[main])), "a handler that sleeps")
        signal.pthread_kill(main, signal.SIGALRM)

    with Interrupting(told, NEVER) as answers, ThreadPoolExecutor(1) as beside:
        assert answers(None, event("a", 4)) == Effects({"seen": "4"}, [])
        with pytest.raises(ValueError, match="no good"):
            answers(None, event("raises"))
        interrupted = beside.submit(interrupt)
        with pytest.raises(RaisedElsewhere) as raised:
            answers(None, event("sleeps"))
        interrupted.result()
        assert SLEEPS in raised.value.traced
        for account in ("sleeps", "swallows"):
            answers._timeout = 0.1  # impatient: neither ever ends
            with pytest.raises(RaisedElsewhere) as raised:
                answers(None, event(account))
            assert raised.value.described == "HandlerTimeout: no answer within 0.1 s"
        answers._timeout = NEVER
        assert answers({"seen": "4"}, event("a", 5)).state == {"seen": "4,5"}
    assert signal.getsignal(signal.SIGALRM) is former


SLEEPS = "take(NEVER)"
IN_C = """
from leasehold.handlers.calling import interrupting
from tests.handlers.slow_handlers import told
from tests.handlers.timed_calls import event
interrupting.GRACE = 0.1
with interrupting.Interrupting(told, 0.2) as answers:
    answers(None, event("hangs"))
"""


@pytest.mark.more
def test_what_goes_on_all_the_same_ends_its_process_with_its_stack() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

    def ended_where_it_hung() -> bool:
        """Or before that, where the process was paused for longer than a call may take."""
        done = subprocess.run(
            [sys.executable, "-c", IN_C], env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 1
        return "in hang" in done.stderr

    until(ended_where_it_hung, "an end in the handler that hangs")


# Tables


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call goes on beside others, as where enough do already that the next one is waited for."""
    monkeypatch.setattr(processes, "MOST_BESIDE", 0)


@pytest.mark.more
@pytest.mark.usefixtures("one_by_one", "timed")
def test_what_hangs_is_parked_with_its_entity_and_all_others_go_on(tmp_path: Path, calls: Path) -> None:
    with closing(Giving(tmp_path, retries=Retries(deliveries=2))) as giving:
        giving.give(0, "a", "hangs", "b", "hangs", "a", "dies")
        assert giving.seen() == {"a": "0,4", "b": "2"}
        assert giving.waiting() == [(1, 1, NO_ANSWER), (3, 0, ""), (5, 1, "HandlerDied: its process ended by SIGSEGV")]
        assert numbers(calls) == [0, 1, 2, 4, 5]
        giving.clock.advance(1.0)
        giving.give(6, "b")
        assert giving.seen() == {"a": "0,4", "b": "2,6"}
        assert giving.rejected() == [(1, NO_ANSWER), (5, "HandlerDied: its process ended by SIGSEGV")]
        (source,) = rows(tmp_path, "SELECT source FROM accounts_rejected WHERE sequence_number = 1")
        assert "in hang" in source[0]
        assert giving.waiting() == [(3, 0, "")], "after its last try, too, the others of its entity wait for a batch"
        giving.give(7)
        assert giving.waiting() == [(3, 1, NO_ANSWER)]


@pytest.mark.more
@pytest.mark.usefixtures("one_by_one", "timed")
def test_a_batch_ends_before_the_partition_would_be_stolen_and_no_event_is_lost(tmp_path: Path, calls: Path) -> None:
    with closing(Giving(tmp_path, hand_over_timeout=3.1 * SHORT)) as giving:
        giving.give(0, "hangs-1", "a", "hangs-2", "b")
        assert giving.seen() == {}, "no call may be made that would hang for longer"
        assert [number for number, *_ in giving.waiting()] == [0, 1, 2, 3]
        assert giving.asked == [0.0], "the others are called for at once"
        giving.give(4)
        assert giving.waiting()[1][:2] == (2, 1)
        giving.give(4)
        assert giving.seen() == {"a": "1", "b": "3"}
        assert numbers(calls) == [0, 1, 2, 3]


@pytest.mark.more
@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize("policy", ["discard", "wait"])
def test_the_other_policies_take_a_time_out_as_an_exception(tmp_path: Path, calls: Path, policy: str) -> None:
    with closing(Giving(tmp_path, on_failure=policy)) as giving:
        if policy == "discard":
            giving.give(0, "a", "hangs", "b")
            assert giving.rejected() == [(1, NO_ANSWER)]
            assert giving.seen() == {"a": "0", "b": "2"}
        else:
            with pytest.raises(HandlerFailed, match="HandlerTimeout: no answer"):
                giving.give(0, "a", "hangs", "b")
            assert giving.seen() == {"a": "0"}
            assert numbers(calls) == [0, 1]
