"""`EntityLeases`: holding, waiting, losing; on the store in memory, with a clock that is moved by hand."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasehold.clock import SystemClock
from leasehold.errors import ConfigError, LeaseBusy, LeaseLost, StoreUnavailable, UsageError
from leasehold.leases import EntityLeases
from leasehold.leases.keeper import _BROKEN, _clear
from leasehold.leases.lease import GIVEN_UP
from leasehold.leases.times import lease_times
from leasehold.stores.memory.leases import MemoryLeaseStore
from leasehold_testkit.clock import ManualClock
from tests.leases.conftest import Opens, WayTo
from tests.waiting import NEVER, PATIENCE, until


def test_held_in_the_block_and_free_after_it_whatever_happens(store: MemoryLeaseStore, opens: Opens) -> None:
    mine, other = opens(store), opens(store, "other")
    with mine.hold("order-42") as lease:
        assert (lease.key, lease.scope, lease.holder) == ("order-42", "tests", "me")
        assert other.try_acquire("order-42") is None
        assert other.try_acquire("order-43") is not None
        lease.check()
        first = lease.fence
    assert lease.lost.is_set()
    with pytest.raises(RuntimeError, match="mine"), mine.hold("order-42"):
        raise RuntimeError("mine")
    taken = other.try_acquire("order-42")
    assert taken is not None
    assert taken.fence > first


def test_a_busy_lease_names_its_holder_and_the_time_left(store: MemoryLeaseStore, opens: Opens) -> None:
    with opens(store, "billing-2").hold("a"), pytest.raises(LeaseBusy) as busy, opens(store).hold("a", wait=0):
        raise AssertionError("it is held")
    assert (busy.value.holder, busy.value.remaining, busy.value.key) == ("billing-2", 30.0, "a")
    assert "held by 'billing-2', for 30 s more" in str(busy.value)


def test_many_in_one_call_and_those_that_are_busy_are_left_out(way: WayTo, opens: Opens) -> None:
    mine, other = opens(way), opens(way, "other")
    [busy] = other.acquire_many(["b"])
    way.calls.clear()
    granted = mine.acquire_many(["a", "b", "c", "a"])
    assert [lease.key for lease in granted] == ["a", "c"]
    assert way.calls == ["open_session", "acquire"]
    mine.release_many(granted)
    busy.release()
    assert way.calls[2:] == ["release", "release"]
    assert [lease.key for lease in mine.acquire_many([f"k{n}" for n in range(20_001)])][-1] == "k20000"
    assert way.calls[4:] == ["acquire"] * 3


def test_a_lock_costs_two_calls(way: WayTo, opens: Opens) -> None:
    mine = opens(way)
    for _ in range(100):
        with mine.hold("a"):
            pass
    assert way.calls == ["open_session", *["acquire", "release"] * 100]


def test_one_renewal_for_all(way: WayTo, clock: ManualClock, opens: Opens) -> None:
    mine, times = opens(way), lease_times(30)
    granted = mine.acquire_many([f"k{n}" for n in range(1000)])
    for _ in range(10):
        clock.advance(times.renew_after)
        mine._keeper.renew()
    assert not any(lease.lost.is_set() for lease in granted)
    assert way.calls.count("renew") >= 10
    assert "heartbeat" not in way.calls


def test_the_thread_renews_by_itself(way: WayTo, clock: ManualClock, opens: Opens) -> None:
    mine, times = opens(way), lease_times(30)
    lease = mine.acquire("a")
    for number in range(10):
        clock.advance(times.renew_after)
        assert mine.try_acquire(f"k{number}") is not None  # so that the thread looks at the clock
        until(lambda number=number: way.calls.count("renew") > number, "a renewal")  # type: ignore[misc]
    assert not lease.lost.is_set(), lease.lost.reason
    assert opens(way, "other").try_acquire("a") is None


# Losing


def test_after_a_pause_past_the_trust_it_is_lost_at_the_first_look_and_nothing_renews_it(
    way: WayTo, clock: ManualClock, opens: Opens
) -> None:
    mine = opens(way)
    lease = mine.acquire("a")
    way.calls.clear()
    clock.advance(lease_times(30).trust)  # the store would still renew it: nobody has taken it
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost, match="paused"):
        lease.check()
    mine._keeper.renew()
    assert "renew" not in way.calls
    assert opens(way, "other").try_acquire("a") is not None, "its session was closed"
    lease.release()
    assert "release" not in way.calls


def test_a_renewal_that_hangs_past_the_trust_saves_nothing(way: WayTo, clock: ManualClock, opens: Opens) -> None:
    mine = opens(way)
    lease = mine.acquire("a")
    way.open.clear()
    with ThreadPoolExecutor() as pool:
        renewing = pool.submit(mine._keeper.renew)
        assert way.waiting.wait(PATIENCE)
        clock.advance(lease_times(30).trust)
        assert lease.lost.wait(PATIENCE), "the holder gives up while the store hangs"
        way.open.set()
        renewing.result(PATIENCE)
    assert lease.lost.is_set()


def test_losing_wakes_who_waits_for_it(store: MemoryLeaseStore, opens: Opens) -> None:
    mine = opens(store)
    lease = mine.acquire("a")
    called = threading.Event()
    lease.lost.call(called.set)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(lease.lost.wait, PATIENCE)
        store.break_leases("tests", ["a"])
        mine._keeper.renew()
        assert waiting.result(PATIENCE)
    assert called.is_set()
    assert "broke" in lease.lost.reason
    assert not mine.acquire("a").lost.is_set()


def test_what_was_broken_and_taken_again_here_is_another_lease(store: MemoryLeaseStore, opens: Opens) -> None:
    mine = opens(store)
    former = mine.acquire("a")
    store.break_leases("tests", ["a"])
    later = mine.try_acquire("a")
    assert later is not None
    assert later.fence > former.fence
    assert former.lost.is_set()
    former.release()
    later.check()
    assert opens(store, "other").try_acquire("a") is None


def test_a_session_that_died_at_the_store_is_replaced(store: MemoryLeaseStore, opens: Opens) -> None:
    mine = opens(store)
    lease = mine.acquire("a")
    store.close_session(lease._lease.session)  # as after a store was restored
    mine._keeper.renew()
    assert lease.lost.is_set()
    assert mine.try_acquire("a") is not None


# A store that is away


def test_an_acquisition_without_an_answer_blocks_nobody(way: WayTo, opens: Opens) -> None:
    mine = opens(way)
    way.lose = ["acquire"]
    with pytest.raises(StoreUnavailable):
        mine.try_acquire("a")
    assert mine.try_acquire("a") is not None, "the session that may have won it was closed"


def test_one_without_an_answer_beside_leases_that_are_held(way: WayTo, opens: Opens) -> None:
    mine = opens(way)
    held = mine.acquire("b")
    way.lose = ["acquire"]
    with pytest.raises(StoreUnavailable):
        mine.acquire_many(["a", "c"])
    mine._keeper.renew()
    assert opens(way, "other").try_acquire("a") is not None, "the renewal gives it back"
    assert mine.try_acquire("c") is not None
    held.check()


def test_waiting_goes_on_while_the_store_is_away(way: WayTo, opens: Opens) -> None:
    mine = opens(way)
    way.away = True
    with pytest.raises(StoreUnavailable):
        mine.acquire("a", wait=0)
    way.away, way.lose = False, ["open_session", "acquire", "acquire"]
    assert mine.acquire("a", wait=PATIENCE).key == "a"


def test_a_release_without_an_answer_is_made_again(way: WayTo, opens: Opens) -> None:
    mine = opens(way)
    with mine.hold("b"):
        with mine.hold("a"):
            way.away = True
        way.away = False
        mine._keeper.renew()
        assert opens(way, "other").try_acquire("a") is not None


# Turns


def test_those_of_one_process_come_in_turn_and_only_the_first_asks(way: WayTo, opens: Opens) -> None:
    mine = opens(way, clock=SystemClock())
    order: list[int] = []
    with ThreadPoolExecutor(5) as pool, mine.hold("a") as held:

        def take(number: int) -> None:
            with mine.hold("a", wait=PATIENCE):
                order.append(number)

        jobs = []
        for number in range(5):
            jobs.append(pool.submit(take, number))
            until(lambda number=number: mine._turns.waiting("a") > number, "a thread that waits")  # type: ignore[misc]
        held.release()
        for job in jobs:
            job.result(PATIENCE)
    assert order == [0, 1, 2, 3, 4]
    assert way.calls.count("acquire") == 6, "who waits for this process's own lease asks nobody"
    assert mine._turns.waiting("a") == 0


def test_re_entry_is_refused_by_name_and_try_acquire_says_busy(store: MemoryLeaseStore, opens: Opens) -> None:
    mine = opens(store)
    with mine.hold("a"):
        with pytest.raises(UsageError, match="not re-entrant"), mine.hold("a"):
            raise AssertionError("it would wait for itself")
        assert mine.try_acquire("a") is None
        with ThreadPoolExecutor() as pool, pytest.raises(LeaseBusy, match="'me'"):
            pool.submit(mine.acquire, "a", 0.0).result(PATIENCE)


def test_another_thread_with_the_number_of_one_that_has_ended_waits(store: MemoryLeaseStore, opens: Opens) -> None:
    leases, numbers, busy = opens(store, "me"), list[int](), list[str]()

    def take() -> None:
        numbers.append(threading.get_ident())
        leases.acquire("a")

    first = threading.Thread(target=take)
    first.start()
    first.join()

    def again() -> None:
        numbers.append(threading.get_ident())
        with pytest.raises(LeaseBusy) as error:
            leases.acquire("a", wait=0)
        busy.append(str(error.value))

    while (
        numbers.count(numbers[0]) < 2 and len(numbers) < 1000
    ):  # the system gives the number to another one, mostly at once
        other = threading.Thread(target=again)
        other.start()
        other.join()
    assert len(busy) == len(numbers) - 1


@pytest.mark.parametrize("wait", [-1, float("nan")])
def test_no_time_to_wait(store: MemoryLeaseStore, opens: Opens, wait: float) -> None:
    with pytest.raises(ConfigError, match="wait"):
        opens(store).acquire("a", wait)


def test_settings_are_checked_before_the_first_lease(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/leases.db"
    with pytest.raises(ConfigError, match="scope"):
        EntityLeases(url, scope="")
    with pytest.raises(ConfigError, match="duration"):
        EntityLeases(url, scope="s", duration=float("inf"))
    EntityLeases(url, scope="s")
    assert not (tmp_path / "leases.db").exists(), "a store is not asked before the first lease"


def test_who_takes_a_key_again_and_again_lets_pass_who_is_next(store: MemoryLeaseStore, opens: Opens) -> None:
    clock = SystemClock()
    store = MemoryLeaseStore(clock)
    mine, other = opens(store, clock=clock), opens(store, "other", clock=clock)
    with ThreadPoolExecutor() as pool:
        with mine.hold("a"):
            taken = pool.submit(lambda: other.acquire("a", PATIENCE).release())
        turns = 1
        while not taken.done():
            with mine.hold("a", wait=PATIENCE):
                turns += 1
            assert turns < 1_000_000
        taken.result(PATIENCE)
    assert store.holders("tests", ["a", "\x02a"]) == []


def test_who_gives_up_waiting_gives_up_its_place(store: MemoryLeaseStore, opens: Opens) -> None:
    mine, other = opens(store), opens(store, "other", clock=SystemClock())
    with mine.hold("a"):
        with pytest.raises(LeaseBusy):
            other.acquire("a", wait=0.1)
        assert store.holders("tests", ["\x02a"]) == []
    with pytest.raises(ConfigError, match="U\\+0002"):
        mine.acquire("\x02a")


def test_a_thousand_keys_of_which_none_is_remembered_for_ever(store: MemoryLeaseStore, opens: Opens) -> None:
    mine = opens(store)
    for number in range(3000):
        mine.acquire(str(number)).release()
    assert len(mine._tenures._tenures) <= 1000


def test_a_store_of_others_that_fails_to_clear_its_leases_ends_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        def clear_leases(self) -> int:
            raise ValueError("what is this?")

    caplog.set_level(logging.INFO)
    _clear(Failing())
    assert caplog.messages == ["leases that nobody has held for long could not be cleared: what is this?"]


# A store that loses its sessions, as by FLUSHALL of a Redis


def lose_everything(store: MemoryLeaseStore) -> None:
    store._ends.clear()
    store._leases.clear()


@pytest.mark.parametrize("holding", [False, True])
def test_the_session_is_made_anew_after_the_store_has_lost_it(
    store: MemoryLeaseStore, clock: ManualClock, opens: Opens, holding: bool
) -> None:
    mine, other = opens(store), opens(store, "other")
    before = mine.try_acquire("before")
    assert before is not None
    if not holding:
        before.release()
    lose_everything(store)
    clock.advance(1.0)
    for key in ("a", "b"):
        assert mine.try_acquire(key) is not None
    assert before.lost.reason == (_BROKEN if holding else GIVEN_UP)
    assert other.try_acquire("a") is None
    assert other.try_acquire("before") is not None


def test_who_waits_for_a_lease_gets_it_after_the_store_has_lost_everything(
    store: MemoryLeaseStore, opens: Opens
) -> None:
    """Long before its next renewal would find out."""
    mine, other = (opens(store, name, clock=SystemClock(), duration=NEVER) for name in ("me", "other"))
    held = other.acquire("a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(mine.acquire, "a", wait=PATIENCE)
        until(lambda: bool(store.holders("tests", ["\x02a"])), "somebody to wait")
        lose_everything(store)
        assert waiting.result(PATIENCE).fence > held.fence


def test_who_gives_up_at_once_is_told_that_the_store_has_lost_the_session(
    store: MemoryLeaseStore, opens: Opens
) -> None:
    mine = opens(store)
    mine.acquire("before").release()
    lose_everything(store)
    with pytest.raises(StoreUnavailable, match="the store has lost the session of 'me', as when somebody empties it"):
        mine.acquire("a", wait=0)
    mine.acquire("a", wait=0).release()


def test_who_meets_busy_keys_asks_for_its_session_once_a_second(way: WayTo, clock: ManualClock, opens: Opens) -> None:
    mine = opens(way)
    opens(way, "other").acquire("a")
    mine.acquire("b").release()
    for _ in range(30):
        assert mine.acquire_many(["a"]) == []
        clock.advance(0.1)
    assert 2 <= way.calls.count("heartbeat") <= 3
    assert way.calls.count("open_session") == 2


FORKED = """
import os, threading
from leasehold.clock import SystemClock
from leasehold.leases import EntityLeases
from leasehold.stores.memory.leases import MemoryLeaseStore

leases = EntityLeases(MemoryLeaseStore(SystemClock()), scope="tests")
assert leases.try_acquire("a")
begin, both, done = leases._keeper._begin, threading.Barrier(2), threading.Event()

def slowly():
    if threading.current_thread() is not threading.main_thread():
        both.wait(120)  # both have found out that this is a fork
        if threading.current_thread().name == "second":
            done.wait(120)
    begin()

leases._keeper._begin = slowly
pid = os.fork()
if pid:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
won = []
def first():
    won.extend(leases.acquire_many(["b"]))
    done.set()
threads = [threading.Thread(target=first), threading.Thread(target=leases.try_acquire, args=["c"], name="second")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
os._exit(0 if leases._keeper.held("b") is won[0] else 1)
"""


def test_two_threads_of_a_fork_that_begin_at_once_lose_nothing() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
