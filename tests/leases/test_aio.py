"""`leasehold.aio`: the same rules for tasks."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leasehold import aio
from leasehold import leases as blocking
from leasehold.clock import SystemClock
from leasehold.errors import LeaseBusy, LeaseLost, StoreUnavailable, UsageError
from leasehold.leases.asynchronous import _ASKING
from leasehold.stores.memory.leases import MemoryLeaseStore
from tests.leases.conftest import WayTo
from tests.waiting import PATIENCE


@asynccontextmanager
async def opened(store: Any, holder: str = "me") -> AsyncIterator[aio.AsyncEntityLeases]:
    leases = aio.AsyncEntityLeases(store, scope="tests", holder=holder)
    try:
        yield leases
    finally:
        await leases.close()


async def turn() -> None:
    """Let all other tasks that are ready have their turn."""
    loop = asyncio.get_running_loop()
    after = loop.create_future()
    loop.call_soon(after.set_result, None)
    await after


@pytest.fixture
def store() -> MemoryLeaseStore:
    return MemoryLeaseStore(SystemClock())


def test_the_names_are_the_same() -> None:
    def public(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    assert public(aio.AsyncEntityLeases) == public(blocking.EntityLeases)
    assert public(aio.AsyncEntityLease) == public(blocking.EntityLease)
    assert public(blocking.LossSignal) - public(aio.AsyncLossSignal) == {"call", "call_no_more"}


def test_held_in_the_block_and_free_after_it(store: MemoryLeaseStore) -> None:
    async def run() -> None:
        async with opened(store) as mine, opened(store, "other") as other:
            async with mine.hold("a") as lease:
                assert await other.try_acquire("a") is None
                with pytest.raises(LeaseBusy, match="'me'"):
                    await other.acquire("a", wait=0)
                with pytest.raises(UsageError, match="not re-entrant"):
                    await mine.acquire("a")
                lease.check()
            granted = await other.acquire_many(["a", "b"])
            assert [one.key for one in granted] == ["a", "b"]
            await other.release_many(granted)
            taken = await mine.try_acquire("a")
            assert taken is not None
            async with taken:
                assert taken.fence > lease.fence

    asyncio.run(run())


def test_tasks_come_in_turn_and_never_two_at_once(store: MemoryLeaseStore) -> None:
    async def run() -> list[int]:
        order: list[int] = []
        inside = 0

        async def take(number: int) -> None:
            nonlocal inside
            async with mine.hold("a", wait=PATIENCE):
                inside += 1
                assert inside == 1
                await turn()
                order.append(number)
                inside -= 1

        async with opened(store) as mine:
            await asyncio.gather(*(take(number) for number in range(20)))
        return order

    assert asyncio.run(run()) == list(range(20))


def test_losing_wakes_the_task_that_waits_for_it(store: MemoryLeaseStore) -> None:
    async def run() -> None:
        async with opened(store) as mine, mine.hold("a") as lease:
            waiting = asyncio.create_task(lease.lost.wait())
            await turn()
            store.break_leases("tests", ["a"])
            await asyncio.to_thread(mine._leases._keeper.renew)
            assert await asyncio.wait_for(waiting, PATIENCE)
            with pytest.raises(LeaseLost, match="broke"):
                lease.check()

    asyncio.run(run())


def test_a_task_cancelled_while_the_store_hangs_gives_back_what_it_wins(store: MemoryLeaseStore) -> None:
    async def run() -> None:
        way = WayTo(store)
        async with opened(way) as mine, opened(store, "other") as other:
            await (await mine.acquire("first")).release()
            way.open.clear()
            way.waiting.clear()
            task = asyncio.create_task(mine.acquire("a", wait=PATIENCE))
            await asyncio.to_thread(way.waiting.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            way.open.set()
            await (await other.acquire("a", wait=PATIENCE)).release()
            await (await mine.acquire("a", wait=PATIENCE)).release()

    asyncio.run(run())


def test_what_is_won_after_the_loop_has_ended_is_given_back_too(store: MemoryLeaseStore) -> None:
    way = WayTo(store)
    leases = aio.AsyncEntityLeases(way, scope="tests", holder="me")

    async def run() -> None:
        (await leases.acquire("warm")).check()
        way.open.clear()
        taking = asyncio.create_task(leases.acquire("a", wait=PATIENCE))
        await asyncio.to_thread(way.waiting.wait)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking

    asyncio.run(run())
    way.open.set()
    other = blocking.EntityLeases(store, scope="tests", holder="other")
    other.acquire("a", wait=PATIENCE).release()
    other.close()
    asyncio.run(leases.close())


def test_waiting_for_a_loss_again_and_again_leaves_nothing_behind(store: MemoryLeaseStore) -> None:
    async def run() -> None:
        async with opened(store) as mine, mine.hold("a") as lease:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await lease.lost.wait()
            assert lease._held.lost._calls == []

    asyncio.run(run())


def test_the_loops_own_threads_are_busy_and_leases_are_taken_and_given_up(store: MemoryLeaseStore) -> None:
    free = threading.Event()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, free.wait, PATIENCE)
        try:
            async with opened(store) as mine, opened(store, "other") as other:
                async with mine.hold("a"):
                    with pytest.raises(LeaseBusy):
                        await other.acquire("a", wait=0)
                granted = await other.acquire_many(["a", "b"])
                await other.release_many(granted)
            assert not busy.done()
        finally:
            free.set()
            await busy

    asyncio.run(run())


async def await_(condition: Any) -> None:
    """Wait until it is true, while the other tasks go on."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await turn()


def test_what_is_given_up_does_not_wait_behind_what_is_asked_for(store: MemoryLeaseStore) -> None:
    """The store hangs in as many calls as there may be, and more wait to be made."""

    async def run() -> None:
        way = WayTo(store)
        async with opened(way) as mine:
            held = await mine.acquire("held")
            way.calls.clear()
            way.open.clear()
            asking = [asyncio.create_task(mine.acquire(f"a-{n}", wait=PATIENCE)) for n in range(_ASKING + 8)]
            await await_(lambda: way.calls.count("acquire") == _ASKING)
            with pytest.raises(StoreUnavailable, match="32 calls of the store that ask for leases are under way"):
                await mine.acquire("b", wait=0)
            giving = asyncio.create_task(held.release())
            await await_(lambda: "release" in way.calls)
            way.open.set()
            await giving
            await mine.release_many(await asyncio.gather(*asking))
            assert await mine.try_acquire("b"), "what nobody waited for any more was not asked for"

    asyncio.run(run())


def test_a_child_that_is_forked_has_threads_of_its_own(store: MemoryLeaseStore) -> None:
    leases = aio.AsyncEntityLeases(store, scope="tests", holder="me")

    async def take(key: str) -> None:
        await (await leases.acquire(key)).release()

    asyncio.run(take("a"))
    child = os.fork()
    if not child:
        try:
            asyncio.run(take("b"))
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    asyncio.run(take("c"))
    asyncio.run(leases.close())
    asyncio.run(take("d"))
    asyncio.run(leases.close())
