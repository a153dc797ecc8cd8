"""The contract of all stores under concurrent use, as tests: whatever happens at once looks like one after another.

Subclass `LinearizableOwnership` and `LinearizableLeases` beside the other contracts. Threads each use a store of
their own from `reopen`; with a `url` (None where a store is of one process only) processes do too. What goes
wrong is shown with the operations around it. `steps` and `rounds` make a long campaign of it.
"""

from __future__ import annotations

import multiprocessing
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from leasehold.stores import open_lease_store, open_store
from leasehold.stores.base import OwnershipStore
from leasehold.stores.lease_base import LeaseStore
from leasehold_testkit.contracts.stores.groups import at_once, new_group
from leasehold_testkit.contracts.stores.histories import (
    LeaseAction,
    LeaseModel,
    RecordAction,
    Recorder,
    RecordModel,
    joined,
    use_leases,
    use_ownership,
)
from leasehold_testkit.contracts.stores.linearizability import Model, violation

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Barrier

    from leasehold.model import ConsumerGroup

KEYS = ("a", "b", "c")

A = TypeVar("A")
S = TypeVar("S")
W = TypeVar("W")


class _Linearizable:
    workers = 6
    """How many threads use the store at once."""

    processes = 3
    """How many processes do."""

    steps = 60
    """How many calls each of them makes."""

    rounds = 2
    """How often, each time with another seed."""

    @pytest.fixture
    def url(self) -> str | None:
        """The URL at which a process opens the store. None: no process can."""
        return None


class LinearizableOwnership(_Linearizable):
    """Claims, renewals and relinquishments of a record are a compare-and-set by ETag."""

    @pytest.fixture
    def reopen(self) -> Callable[[], OwnershipStore]:
        """Opens the store under test as another process would."""
        raise NotImplementedError("the subclass opens the store")

    def test_what_threads_do_at_once_looks_like_one_after_another(self, reopen: Callable[[], OwnershipStore]) -> None:
        for seed in range(self.rounds):
            group = new_group()
            jobs = [
                partial(use_ownership, reopen(), group, KEYS, self.steps, seed, f"thread-{n}")
                for n in range(self.workers)
            ]
            with switching_often():
                recorders = at_once(jobs)
            judge(recorders, RecordModel(), seed)

    def test_what_processes_do_at_once_looks_like_one_after_another(self, url: str | None) -> None:
        if url is None:
            pytest.skip("the store is of one process")
        for seed in range(self.rounds):
            judge(in_processes(_own, url, new_group(), self.processes, self.steps, seed), RecordModel(), seed)


class LinearizableLeases(_Linearizable):
    """A key is held by one session at most, with a fence that only rises."""

    @pytest.fixture
    def reopen(self) -> Callable[[], LeaseStore]:
        """Opens the store under test as another process would."""
        raise NotImplementedError("the subclass opens the store")

    def test_what_threads_do_at_once_looks_like_one_after_another(self, reopen: Callable[[], LeaseStore]) -> None:
        for seed in range(self.rounds):
            scope = f"tests {secrets.token_hex(8)}"
            jobs = [
                partial(use_leases, reopen(), scope, KEYS, self.steps, seed, f"thread-{n}") for n in range(self.workers)
            ]
            with switching_often():
                recorders = at_once(jobs)
            judge(recorders, LeaseModel(), seed)

    def test_what_processes_do_at_once_looks_like_one_after_another(self, url: str | None) -> None:
        if url is None:
            pytest.skip("the store is of one process")
        for seed in range(self.rounds):
            scope = f"tests {secrets.token_hex(8)}"
            judge(in_processes(_lease, url, scope, self.processes, self.steps, seed), LeaseModel(), seed)


@contextmanager
def switching_often() -> Iterator[None]:
    """Let threads take turns after microseconds: else a quick store serves one to its end before the next begins."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def judge(recorders: Iterable[Recorder[A]], model: Model[S, A], seed: int) -> None:
    """Fail for each key whose history no order of its operations explains."""
    histories = joined(recorders)
    assert histories, "nothing was recorded"
    for key, operations in histories.items():
        if found := violation(operations, model):
            pytest.fail(f"seed {seed}, key {key}: {found}")


def _own(url: str, group: ConsumerGroup, steps: int, seed: int, name: str) -> Recorder[RecordAction]:
    return use_ownership(open_store(url, timeout=60.0), group, KEYS, steps, seed, name)


def _lease(url: str, scope: str, steps: int, seed: int, name: str) -> Recorder[LeaseAction]:
    return use_leases(open_lease_store(url, timeout=60.0), scope, KEYS, steps, seed, name)


def in_processes(
    use: Callable[[str, W, int, int, str], Recorder[A]], url: str, where: W, processes: int, steps: int, seed: int
) -> list[Recorder[A]]:
    """Run a worker in each of several new processes, all released at the same moment."""
    context = multiprocessing.get_context("spawn")  # a fork would carry over locks of this process's threads
    barrier = context.Barrier(processes)
    answers: SimpleQueue[Recorder[A] | BaseException] = context.SimpleQueue()
    names = [f"process-{n}" for n in range(processes)]
    started = [
        context.Process(target=_worker, args=(use, url, where, steps, seed, name, barrier, answers)) for name in names
    ]
    for process in started:
        process.start()
    try:
        results = [answers.get() for _ in started]
    finally:
        for process in started:
            process.join()
        answers.close()
    recorders = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        recorders.append(result)
    return recorders


def _worker(
    use: Callable[[str, W, int, int, str], Recorder[A]],
    url: str,
    where: W,
    steps: int,
    seed: int,
    name: str,
    barrier: Barrier,
    answers: SimpleQueue[Recorder[A] | BaseException],
) -> None:
    try:
        barrier.wait(60.0)
        answers.put(use(url, where, steps, seed, name))
    except BaseException as error:  # noqa: BLE001 — it is raised in the process that asked
        answers.put(error)
