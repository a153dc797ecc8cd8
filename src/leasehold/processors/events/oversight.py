"""What looks after the work on all partitions of a processor: from what is held to threads that work on it.

Owns the thread that does so, and which partition has which work and which pump. Promises that the work on a partition
begins only when the former work on it has ended; that a work which hangs is given up, and the reason told; and that
the end comes when all work has ended, not before. See `event_processor` for the threads and what each may hang in.

Concurrency: one thread makes the rounds; any thread may stop it, take what is offered, and wake it. No lock is held
while anything is waited for, except by who waits for an offer, in a condition.
"""

from __future__ import annotations

import contextvars
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress

from leasehold.errors import LeaseholdError, verdict_of
from leasehold.logs import about
from leasehold.notices import Notice, WorkStalled
from leasehold.ownership.holds import Hold
from leasehold.printable import span
from leasehold.processors.events.cancelling import Cancellation, is_cancelled
from leasehold.processors.events.handlers import Handlers
from leasehold.processors.events.partition_client import PartitionClient
from leasehold.processors.events.partition_work import PartitionWork, described
from leasehold.processors.events.pump import Pump
from leasehold.processors.events.shared import SharedByPartitions
from leasehold.processors.events.signals import Attention

logger = logging.getLogger(__name__)

_UNSAID = 5.0
"""Seconds from a stop until it is said what it waits for."""
_GLANCE = 0.5
"""The longest time between two rounds, in seconds. What happens usually wakes it."""
_SLOW = 30.0
"""Seconds in which the work on a partition has not gone on, after which the log says so."""
_LAST_LINES = 1.0
"""Seconds that a thread gets that has noted its end, and has nothing left to do."""


class Oversight:
    """The rounds of one processor.

    `attention` is asked for by whoever wants the next round at once. `begin` starts the other threads, and `close` is
    called at the end, with the works whose fetching may not have ended. Works are offered to `take` where there are no
    handlers.
    """

    def __init__(
        self,
        shared: SharedByPartitions,
        handlers: Handlers | None,
        *,
        stall_timeout: float,
        attention: Attention,
        begin: Callable[[], None],
        close: Callable[[Sequence[PartitionWork]], None],
    ) -> None:
        self.failure: LeaseholdError | None = None
        """What keeps this instance from working."""
        self.leaving: BaseException | None = None
        """What one of the user's functions has raised to end the program."""
        self.stopping = False
        self.ended = False
        self._going_on = threading.Lock()
        """Held until the end: who waits for that waits for this lock, and for nothing that others need.

        A condition would do, but that Ctrl-C may hit between the last line of its `with` and the release, and then the
        oversight could never note the end. A signal handler may wait, too, in the thread that waits already.
        """
        self._going_on.acquire()
        self._shared = shared
        self._manager = shared.manager
        self._clock = shared.clock
        self._handlers = handlers
        self._stall_timeout = stall_timeout
        self._attention = attention
        self._begin_others = begin
        self._close = close
        self._abandoned: bool | None = None
        self._lock = threading.RLock()  # a signal handler may cancel in the thread that is about to wait
        self._offered = threading.Condition(self._lock)
        self._offers: deque[PartitionWork] = deque()
        self._works: dict[str, PartitionWork] = {}
        self._pumps: dict[PartitionWork, threading.Thread] = {}
        self._fetching: list[PartitionWork] = []
        self._unsaid_after = 0.0
        self._hanging: tuple[str, ...] = ()
        self._slow = dict[PartitionWork, float]()
        """How long works had not gone on when that was said of them."""
        self._slow_after = min(_SLOW, stall_timeout / 2)
        self._thread = threading.Thread(target=self._oversee, name="leasehold-oversight")

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def abandon(self) -> None:
        """The start was interrupted: what has begun ends in order, and what has not does not begin any more."""
        self.stop()
        with self._lock:
            if self._abandoned is None:  # the thread may never come to its first line
                self._abandoned = True
                self._note_end()

    def stop(self) -> None:
        """Begin nothing more, and end what is begun. Waits for nothing."""
        self.stopping = True
        self.look_again()

    def leave(self, error: BaseException) -> None:
        """One of the user's functions means to end the program: end everything in order, and keep the error."""
        self._manager.retire()  # not only in the next round: its partition is let go next, and would be claimed again
        with self._lock:
            self.leaving = self.leaving or error
            self.stopping = True
        self.look_again()

    def wait(self, timeout: float | None) -> bool:
        """Wait until all has ended, at most `timeout` seconds. Returns whether it has."""
        # Not by joining the thread: a join that Ctrl-C interrupts takes a running thread for one that has ended.
        until = None if timeout is None else self._clock.monotonic() + timeout
        while not self.ended:
            left = math.inf if until is None else until - self._clock.monotonic()
            if left <= 0:
                return False
            if self._going_on.acquire(timeout=min(_GLANCE, left)):
                self._going_on.release()  # where Ctrl-C hits before it, the others see the end at their next glance
        if self._thread.ident is not None:
            # Not for ever: a signal handler that has interrupted this very join waits for a lock that it holds.
            self._thread.join(_LAST_LINES)
        return True

    def take(self, timeout: float | None, cancel: Cancellation | None) -> PartitionClient | None:
        """The next work that is offered; see `EventProcessor.next_partition_client`."""
        until = None if timeout is None else self._clock.monotonic() + timeout
        with cancel.waking(self._wake_takers) if cancel is not None else nullcontext(), self._offered:
            while True:
                if self.failure is not None:
                    raise self.failure
                if self.stopping or is_cancelled(cancel):
                    return None
                while self._offers:
                    work = self._offers.popleft()
                    work.touch()
                    work.receiver = threading.get_ident()
                    client = PartitionClient(work)
                    if work.stop_reason is None:
                        return client
                    client.close()  # it was lost, or asked for, before anybody took it
                left = None if until is None else until - self._clock.monotonic()
                if left is not None and left <= 0:
                    return None
                if cancel is not None:  # a signal handler may have called it since the look above, unheard
                    left = _GLANCE if left is None else min(left, _GLANCE)
                self._offered.wait(left)

    def look_again(self, notice: Notice | None = None) -> None:
        """Wake all who act on what is held. Called by the dispatch thread too, so it waits for nothing."""
        with self._lock:
            works = list(self._works.values())
        for work in works:
            work.wake()
        self._attention.ask()

    def is_pulled_by(self, thread: int) -> bool:
        """Whether this thread, by its ident, was the last to take or use a client that is still open."""
        with self._lock:
            return any(work.receiver == thread and not work.closed for work in self._works.values())

    @property
    def threads(self) -> list[threading.Thread]:
        """Those that call the user's functions on events, and its own."""
        with self._lock:
            return [self._thread, *self._pumps.values()]

    def _oversee(self) -> None:
        with self._lock:
            if self._abandoned:
                return
            self._abandoned = False
        with about(owner=str(self._manager.owner_id)):
            self._go_round()

    def _go_round(self) -> None:
        try:
            self._begin_others()
        except RuntimeError as error:  # no more threads may be started
            self.leave(error)
        while True:
            try:
                if self._round():
                    break
            except Exception as error:
                logger.exception("a round of the oversight failed in an unexpected way")
                self._shared.report(error, None)
            self._attention.wait(_GLANCE)
        try:
            self._close(self._fetching)
            if (why := self.failure or self.leaving) is not None and verdict_of(why) is not None:
                logger.error("this processor gives up: %s", why)
        finally:
            self._note_end()

    def _note_end(self) -> None:
        self.ended = True
        with suppress(RuntimeError):  # noted before
            self._going_on.release()

    def _round(self) -> bool:
        """Begin what is to be begun, end what is to be ended. Returns whether all has ended."""
        self._manager.note_progress()
        self._forget_ended()  # before the look at what is held: what is let go is not held when it has ended
        held = self._held()
        stopping = self.stopping
        if stopping:
            self._shut_down()
            self._say_who_is_waited_for()
        for partition, hold in held.items():
            if partition in self._works:
                continue
            if stopping:
                self._manager.let_go(partition, hold.owner_level)
            else:
                self._begin(hold)
        for work in list(self._works.values()):
            self._look_after(work, held.get(work.partition))
        # What hangs was given up, and is not to come back to where it hangs.
        hanging = tuple(sorted(work.partition for work in self._works.values() if self._hangs(work)))
        self._manager.hold_no_more(bool(hanging))
        if hanging != self._hanging:
            self._hanging = hanging
            self._manager.notices.publish(WorkStalled(hanging))
        return stopping and not self._works

    def _held(self) -> dict[str, Hold]:
        try:
            return self._manager.held()
        except LeaseholdError as error:
            if self.failure is None:
                self.failure = error
                self.stopping = True
            return {}

    def _begin(self, hold: Hold) -> None:
        work = PartitionWork(hold, self._shared)
        with self._lock:
            self._works[work.partition] = work
        work.begin()
        if self._handlers is None:
            with self._offered:
                self._offers.append(work)
                self._offered.notify_all()  # one that is woken may have given up waiting, and takes nothing
            return
        pump = Pump(work, self._handlers, self._shared.delivery, self._shared.report, self.leave)
        known = contextvars.copy_context()  # whose work it is, for the log
        thread = threading.Thread(target=known.run, args=(pump.run,), name=f"leasehold-partition-{work.partition}")
        with self._lock:
            self._pumps[work] = thread
        thread.start()

    def _say_who_is_waited_for(self) -> None:
        """Once, a while after the stop: a handler that does not return is not to be a silence without a reason."""
        now = self._clock.monotonic()
        self._unsaid_after = self._unsaid_after or now + _UNSAID
        running = [work for work in self._works.values() if not work.closed]
        if now >= self._unsaid_after and running:
            self._unsaid_after = math.inf
            logger.warning(
                "waiting for what runs on partitions %s to return, for %.0f s already (%s): no handler is interrupted. "
                "To end the process all the same, kill it",
                ", ".join(sorted(work.partition for work in running)),
                max(work.idle for work in running),
                self._manager.owner_id,
            )

    def _hangs(self, work: PartitionWork) -> bool:
        return not work.closed and work.idle > self._stall_timeout

    def _look_after(self, work: PartitionWork, hold: Hold | None) -> None:
        """Give up a partition whose work hangs: also one that came back while its former work still hangs."""
        self._say_slow(work)
        if not self._hangs(work):
            return
        hung = TimeoutError(
            f"the work on partition {work.partition} has not gone on for {span(work.idle)} (stall_timeout is "
            f"{span(self._stall_timeout)}): the partition is given up, and what is still written for it must be fenced "
            "by its owner level. This instance claims no partition until that work returns: if it hangs for good, kill "
            "the process, and give the call a time-out. If a handler may take so long, raise stall_timeout"
        )
        level = work.owner_level if hold is None else hold.owner_level
        if self._manager.give_up(work.partition, level, described(hung)):
            self._shared.report(hung, work.partition)
        if work not in self._pumps:  # a client that nobody closes: its thread may be gone, a handler's is not
            work.drain()
            work.end()

    def _say_slow(self, work: PartitionWork) -> None:
        """Say once that a call takes long, and when it has returned; the next one only where it takes twice as long."""
        idle = work.idle
        if not work.closed and idle > self._slow_after and work not in self._slow:
            self._slow[work] = idle
            self._slow_after = 2 * idle
            what = "handler, or the database that it waits for," if work in self._pumps else "client"
            logger.warning(
                "partition %s has not gone on for %s, behind event %d: its %s has not returned. Nothing else of it is "
                "done meanwhile, and it is given up after %s (stall_timeout)",
                *(work.partition, span(idle), work.reached, what, span(self._stall_timeout)),
            )
        elif work in self._slow and (work.closed or idle < self._slow[work]):
            del self._slow[work]
            logger.warning("partition %s goes on", work.partition)

    def _forget_ended(self) -> None:
        for partition, work in list(self._works.items()):
            if not work.closed:
                continue
            thread = self._pumps.get(work)
            if thread is not None:
                thread.join()
            self._fetching = [each for each in [*self._fetching, work] if each.fetching]
            self._slow.pop(work, None)
            with self._lock:
                del self._works[partition]
                self._pumps.pop(work, None)

    def _shut_down(self) -> None:
        self._manager.retire()
        with self._offered:
            untaken = list(self._offers)
            self._offers.clear()
            self._offered.notify_all()
        for work in self._works.values():
            work.shut_down()
        for work in untaken:
            PartitionClient(work).close()

    def _wake_takers(self) -> None:
        with self._offered:
            self._offered.notify_all()
