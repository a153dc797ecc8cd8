"""Small batches that the driver reads itself: a Spark job takes some 80 ms however little it reads.

Owns which batches these are, and the thread that reads them, by the same function that runs in tasks. Their rows are
the events as they are read, so none of the user's code runs here. A batch is one that a single task would read: the
driver would read the ranges of several tasks one after another. The weight of its events is known, and a batch that
turns out to be far heavier is left to the tasks.

Concurrency: the thread that evaluates batches waits for the read, and stops waiting once another thread has cancelled
the batch. The read ends once the hub answers or its client gives up: it looks at `cancelled` after each answer and
before it connects anew, and nobody looks at what it has brought. Until then tasks read, in processes of their own, and
so they do once after a read that was left or has failed.
"""

from __future__ import annotations

import threading
from concurrent.futures import wait
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from leasehold.errors import LeaseholdError, Verdict
from leasehold.spark.loop.orders import Order, Receipt, describe, task_order
from leasehold.spark.loop.tasks import ReadSpec, Tally, receipt_of, run_task
from leasehold.spark.loop.worker import Worker

FEW_EVENTS, FEW_BYTES = 10_000, 16 * 2**20
"""The driver itself reads batches of at most this much, by what is known before, and leaves one that turns out to have
more than twice these bytes."""
_LOOK = 0.1
"""Seconds between two looks at whether the batch is cancelled."""


class ReadCancelled(LeaseholdError):
    """The batch was cancelled before its events were read."""

    verdict = Verdict.ROWS


def check_wanted(order: Order, cancelled: threading.Event) -> None:
    """Raise `ReadCancelled` where the batch is cancelled already."""
    if cancelled.is_set():
        raise ReadCancelled(f"cancelled before its events were read: {describe(order.ranges)}")


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of an order: its events, None if there are none, and the receipt of its one task."""

    events: pa.Table | None
    receipt: Receipt


def is_small(order: Order) -> bool:
    """Whether the driver reads the events of an order faster than Spark begins a job."""
    if len(order.tasks) != 1:
        return False
    ranges = order.tasks[0]
    if sum(map(len, ranges)) > FEW_EVENTS or any(one.partition not in order.mean for one in ranges):
        return False
    return sum(len(one) * order.mean[one.partition] for one in ranges) <= FEW_BYTES


class DriverReads:
    """Reads in this process, one at a time."""

    def __init__(self, spec: ReadSpec) -> None:
        self._spec = spec
        self._idle = threading.Event()
        """Whether no read goes on, not even one that was left."""
        self._idle.set()
        self._by_tasks = False
        """Whether tasks read next, since the last read was left or has failed."""

    def read(self, order: Order, cancelled: threading.Event) -> Read | None:
        """Read what an order says; None where tasks are to read it.

        Raises `ReadCancelled` once `cancelled` is set, and whatever reading raises.
        """
        check_wanted(order, cancelled)
        by_tasks, self._by_tasks = self._by_tasks, False
        if by_tasks or not self._idle.is_set() or not is_small(order):
            return None
        worker, context = self._worker, copy_context()  # for the log: which batch the thread works on
        self._by_tasks = True  # unless this one goes well
        self._idle.clear()
        reading = worker.submit(lambda: context.run(self._read, order, cancelled))
        while not wait([reading], timeout=_LOOK).done:
            check_wanted(order, cancelled)
        read = reading.result()
        self._by_tasks = False
        return read

    @cached_property
    def _worker(self) -> Worker:
        return Worker("leasehold-read")

    def _read(self, order: Order, cancelled: threading.Event) -> Read | None:
        try:
            return _read(self._spec, order, cancelled)
        finally:
            self._idle.set()


def _read(spec: ReadSpec, order: Order, cancelled: threading.Event) -> Read | None:
    """The events of an order of one task; None if they have more than twice `FEW_BYTES`."""

    def pause(seconds: float) -> None:
        cancelled.wait(seconds)
        check_wanted(order, cancelled)

    task, tally = task_order(order.text(), 0), Tally({}, {}, [])
    batches = []
    with closing(run_task(spec, task, tally, pause=pause)) as events:
        for batch in events:
            check_wanted(order, cancelled)
            batches.append(batch)
            if sum(tally.size.values()) > 2 * FEW_BYTES:
                return None
    return Read(pa.Table.from_batches(batches) if batches else None, receipt_of(task, tally))
