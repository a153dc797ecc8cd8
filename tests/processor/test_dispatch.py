"""The thread that runs dispatch cycles: its pace, and its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.clock import SystemClock
from leasehold.notices import CycleFailed, OwnershipClaimed, OwnershipRelinquished
from leasehold.ownership import DispatchThread
from leasehold.ownership.pace import JITTER, CycleOutcome, pause_after
from leasehold.stores.memory.store import MemoryStore
from tests.processor.fleet import GROUP, SETTINGS, Hub, Instance
from tests.waiting import NEVER, PATIENCE

# The pace

IN_A_WHILE = [outcome for outcome in CycleOutcome if outcome not in (CycleOutcome.WON, CycleOutcome.DOUBTED)]
SOON = {CycleOutcome.ASKING: 0.25, CycleOutcome.FAILED: 0.25}


@pytest.mark.parametrize("outcome", IN_A_WHILE)
@given(interval=st.floats(0.01, 600), spent=st.floats(0, 600), seed=st.integers())
def test_a_pause_is_never_longer_than_what_is_left_of_the_interval(
    outcome: CycleOutcome, interval: float, spent: float, seed: int
) -> None:
    pause = pause_after(interval, spent, outcome, Random(seed))
    longest = interval * SOON.get(outcome, 1.0)
    assert max(0.0, longest * (1 - JITTER) - spent) <= pause <= max(0.0, longest - spent)


@given(interval=st.floats(0.01, 600), spent=st.floats(0, 600))
def test_a_cycle_that_won_is_followed_at_once(interval: float, spent: float) -> None:
    assert pause_after(interval, spent, CycleOutcome.WON, Random(0)) == 0.0


@given(interval=st.floats(0.01, 600), spent=st.floats(0, 600), seed=st.integers())
def test_the_second_look_comes_after_those_that_live_and_before_the_next_cycle(
    interval: float, spent: float, seed: int
) -> None:
    """After a failure they are back within a quarter of the interval: what the cycle took does not bring it forward."""
    pause = pause_after(interval, spent, CycleOutcome.DOUBTED, Random(seed))
    assert SOON[CycleOutcome.FAILED] * interval < pause <= interval / 2


@pytest.mark.parametrize("outcome", [*IN_A_WHILE, CycleOutcome.DOUBTED])
def test_a_pause_depends_on_its_arguments_alone(outcome: CycleOutcome) -> None:
    assert pause_after(10, 1, outcome, Random(7)) == pause_after(10, 1, outcome, Random(7))
    assert len({pause_after(10, 1, outcome, Random(seed)) for seed in range(20)}) == 20


# The thread


class Runner:
    """An instance on the system's clock, with a thread, and its notices as they come."""

    def __init__(self, alive: Callable[[], bool] = lambda: True, interval: float = 0.01) -> None:
        clock = SystemClock()
        self.store = MemoryStore(clock)
        settings = replace(
            SETTINGS, load_balancing_interval=interval, partition_expiration=10 * NEVER, stall_timeout=10 * NEVER
        )
        self.instance = Instance(Hub(), clock, self.store, self.store, settings=settings)
        self.manager = self.instance.manager
        self.thread = DispatchThread(self.manager, clock=clock, alive=alive)

    def claimed(self) -> threading.Event:
        """Is set when something has been claimed."""
        event = threading.Event()
        self.manager.notices.subscribe(lambda _: event.set(), OwnershipClaimed)
        return event

    def owners(self) -> set[str]:
        return {record.owner_id for record in self.store.list_ownership(GROUP).records}


MakeRunner = Callable[..., Runner]


@pytest.fixture
def make() -> Iterator[MakeRunner]:
    runners: list[Runner] = []

    def make(alive: Callable[[], bool] = lambda: True, interval: float = 0.01) -> Runner:
        runners.append(Runner(alive, interval))
        return runners[-1]

    yield make
    for runner in runners:
        if runner.thread.running:
            runner.thread.stop(PATIENCE)


def test_it_runs_cycles_until_stopped_and_then_relinquishes(make: MakeRunner) -> None:
    runner = make()
    runner.thread.start()
    assert runner.manager.wait_for_cycle(5, PATIENCE)
    assert runner.owners() == {runner.instance.id}
    runner.thread.stop(PATIENCE)
    assert not runner.thread.running
    assert runner.owners() == {""}
    assert runner.manager.held() == {}
    assert [type(notice) for notice in runner.instance.take()][-4:] == [OwnershipRelinquished] * 4
    cycles = runner.manager.cycles
    assert not runner.manager.wait_for_cycle(cycles + 1, 0.05)


def test_stopping_does_not_wait_for_the_interval(make: MakeRunner) -> None:
    runner = make(interval=NEVER)
    claimed = runner.claimed()
    runner.thread.start()
    assert claimed.wait(PATIENCE)
    runner.thread.stop(PATIENCE)
    assert not runner.thread.running


def test_a_cycle_that_won_is_followed_by_another_at_once(make: MakeRunner) -> None:
    runner = make(interval=NEVER)
    runner.thread.start()
    assert runner.manager.wait_for_cycle(2, PATIENCE)


def test_what_is_let_go_is_written_down_at_once(make: MakeRunner) -> None:
    runner = make(interval=NEVER)
    runner.thread.start()
    assert runner.manager.wait_for_cycle(2, PATIENCE), "the second one wins nothing, and a pause follows"
    given_up = threading.Event()
    runner.manager.notices.subscribe(lambda _: given_up.set(), OwnershipRelinquished)
    assert runner.manager.let_go("0", runner.manager.held()["0"].owner_level)
    assert given_up.wait(PATIENCE)


def test_the_error_that_ended_the_work_is_written_down(make: MakeRunner) -> None:
    runner = make(interval=NEVER)
    claimed = runner.claimed()
    runner.thread.start()
    assert claimed.wait(PATIENCE)
    runner.thread.stop(PATIENCE, dict.fromkeys(runner.manager.held(), "the batch cannot be read"))
    records = runner.store.list_ownership(GROUP).records
    assert {(record.owner_id, record.last_error) for record in records} == {("", "the batch cannot be read")}


def test_it_ends_when_what_it_works_for_is_gone(make: MakeRunner) -> None:
    gone = threading.Event()
    runner = make(alive=lambda: not gone.is_set())
    claimed = runner.claimed()
    given_up = threading.Event()
    runner.manager.notices.subscribe(lambda _: given_up.set(), OwnershipRelinquished)
    runner.thread.start()
    assert claimed.wait(PATIENCE)
    gone.set()
    assert given_up.wait(PATIENCE)
    runner.thread.stop(PATIENCE)
    assert runner.owners() == {""}


def test_it_does_not_start_for_what_is_gone_already(make: MakeRunner) -> None:
    runner = make(alive=lambda: False)
    runner.thread.start()
    runner.thread.stop(PATIENCE)
    assert (runner.manager.cycles, runner.owners()) == (0, set())


def test_an_unexpected_error_does_not_end_it(make: MakeRunner) -> None:
    runner = make()
    failed: list[CycleFailed] = []
    runner.manager.notices.subscribe(failed.append, CycleFailed)
    bug = ZeroDivisionError("a bug")

    def raise_it() -> None:
        raise bug

    runner.instance.ownership.before["list_ownership"] = raise_it
    claimed = runner.claimed()
    runner.thread.start()
    assert claimed.wait(PATIENCE)
    assert [notice.error for notice in failed] == [bug]
    assert runner.thread.running


def test_an_unexpected_error_is_logged_once(make: MakeRunner, caplog: pytest.LogCaptureFixture) -> None:
    runner = make()
    failed: list[CycleFailed] = []
    often = threading.Event()

    def note(notice: CycleFailed) -> None:
        failed.append(notice)
        if len(failed) == 4:
            often.set()

    def raise_it() -> None:
        runner.instance.ownership.before["list_ownership"] = raise_it
        raise ZeroDivisionError(f"a bug, {min(len(failed), 2)}")

    runner.manager.notices.subscribe(note, CycleFailed)
    runner.instance.ownership.before["list_ownership"] = raise_it
    runner.thread.start()
    assert often.wait(PATIENCE)
    runner.thread.stop(PATIENCE)
    logged = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert logged == ["a bug, 0", "a bug, 1", "a bug, 2"]


def test_a_store_that_is_away_does_not_end_it(make: MakeRunner) -> None:
    runner = make()
    runner.instance.ownership.away = True
    runner.thread.start()
    assert runner.manager.wait_for_cycle(3, PATIENCE)
    claimed = runner.claimed()
    runner.instance.ownership.away = False
    assert claimed.wait(PATIENCE)


def test_a_store_that_is_away_at_the_end_is_put_up_with(make: MakeRunner, caplog: pytest.LogCaptureFixture) -> None:
    runner = make(interval=NEVER)
    claimed = runner.claimed()
    runner.thread.start()
    assert claimed.wait(PATIENCE)
    runner.instance.ownership.away = True
    runner.thread.stop(PATIENCE)
    assert not runner.thread.running
    assert runner.manager.held() == {}
    assert runner.owners() == {runner.instance.id}, "it will expire"
    assert "not relinquished and will expire" in caplog.text


def test_a_subscriber_that_raises_does_not_end_it(make: MakeRunner) -> None:
    runner = make()

    def fail(notice: OwnershipClaimed) -> None:
        raise ZeroDivisionError

    runner.manager.notices.subscribe(fail, OwnershipClaimed)
    runner.thread.start()
    assert runner.manager.wait_for_cycle(3, PATIENCE)
    assert len(runner.manager.held()) == 4


def test_it_does_not_keep_the_process_alive(make: MakeRunner) -> None:
    before = set(threading.enumerate())
    make().thread.start()
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
