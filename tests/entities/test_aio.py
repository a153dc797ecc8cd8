"""`leasehold.aio`: the same rules for tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leasehold import aio
from leasehold import entities as blocking
from leasehold.clock import SystemClock
from leasehold.errors import LeaseBusy, LeaseLost, UsageError
from leasehold.stores.memory.leases import MemoryLeaseStore
from tests.entities.conftest import WayTo
from tests.waiting import PATIENCE


@asynccontextmanager
async def opened(store: Any, holder: str = "me") -> AsyncIterator[aio.EntityLeases]:
    leases = aio.EntityLeases(store, scope="tests", holder=holder)
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

    assert public(aio.EntityLeases) == public(blocking.EntityLeases)
    assert public(aio.EntityLease) == public(blocking.EntityLease)
    assert public(blocking.LossSignal) - public(aio.LossSignal) == {"call", "call_no_more"}


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
    leases = aio.EntityLeases(way, scope="tests", holder="me")

    async def run() -> None:
        (await leases.acquire("warm")).check()
        way.open.clear()
        taking = asyncio.create_task(leases.acquire("a", wait=PATIENCE))
        await asyncio.to_thread(way.waiting.wait)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        threading.Timer(0.2, way.open.set).start()  # asyncio.run takes no new calls by then, and waits for this one

    asyncio.run(run())
    other = blocking.EntityLeases(store, scope="tests", holder="other")
    taken = other.try_acquire("a")
    assert taken is not None
    taken.release()
    other.close()
    asyncio.run(leases.close())


def test_waiting_for_a_loss_again_and_again_leaves_nothing_behind(store: MemoryLeaseStore) -> None:
    async def run() -> None:
        async with opened(store) as mine, mine.hold("a") as lease:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await lease.lost.wait()
            assert lease._lease.lost._calls == []

    asyncio.run(run())
