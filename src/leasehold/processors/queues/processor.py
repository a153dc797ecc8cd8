"""Messages of a queue, processed one entity at a time by any number of processes, each once in effect.

    processor = QueueProcessor(
        "servicebus://shop.servicebus.windows.net/orders", "redis://…", order, sink="sqlite:///entities.db",
        table="orders", pipeline="orders", schema="order_id STRING, amount BIGINT",
        state="order_id STRING, total BIGINT",
    )
    processor.run()

Where the queue requires sessions, their locks are the leases, and `sessions` is the shell. For all others this module
owns the thin shell: one thread that receives, renews, completes, gives back and dead-letters, as `room` decides, and a
few that work (`work`). So no message has a thread of its own, and the queue is used by one thread.

What is done is known to the sink (`sinks.beside.messages`), in the transaction of the new state. So nothing here, nor
the service or the lease store, decides whether a message takes effect once; they decide how often it is tried. When
this process stops for a minute, or for good:

    after receiving      the lock ends; another receives the message. This one does not begin work on it any more
    while a worker works see `work`
    after the commit     the lock ends; whoever gets the message finds it done, and completes it
    while completing     the same, if the service has not done it; else nothing is left to do
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from leasehold.counts import APART, EVENTS, ROWS, Counts
from leasehold.errors import ConfigError, LeaseholdError, UsageError, is_waited_out
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.applying import require_handler
from leasehold.handlers.contract import EntityHandler
from leasehold.handlers.settings import Bodies, bodies_of
from leasehold.leases import EntityLeases
from leasehold.leases.key_turns import check_no_place
from leasehold.processors.events.signals import terminating
from leasehold.processors.queues.content import ContentReader, Unfit
from leasehold.processors.queues.entity_turns import MessageTurns
from leasehold.processors.queues.kept_leases import KeptLeases
from leasehold.processors.queues.messages_in_hand import (
    TRIES,
    Complete,
    DeadLetter,
    Ending,
    GiveBack,
    HeldMessage,
    LookForParked,
    Renew,
    Start,
    Step,
    TryResult,
    counted_as,
)
from leasehold.processors.queues.room import Room
from leasehold.processors.queues.sessions import Sessions, SharedByWorkers
from leasehold.processors.queues.settings import QueueDelivery, for_sessions
from leasehold.processors.queues.work import Work
from leasehold.queues import Queue, QueueMessage, open_queue
from leasehold.queues.locks import LOST, Answered, LockTimes
from leasehold.runtime import Runtime
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.base import Sink
from leasehold.sinks.features import STATES, require
from leasehold.stores import LeaseStore
from leasehold.stores.lease_rules import check_keys
from leasehold.told import Outage

__all__ = ["QueueProcessor"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_IDLE, _BRIEFLY, _AWAY = 1.0, 0.05, 2.0
"""Seconds to wait for messages with nothing in hand and with something, and for a queue that is away."""


class QueueProcessor:
    """One process's share of a queue's messages, given to a handler under the lease of their entity.

    url          of the queue: `servicebus://NAMESPACE/QUEUE`, or `…/TOPIC/subscriptions/NAME`
    lease_store  where entities are leased: a URL, or a `LeaseStore`. None for a queue that requires sessions
    handler      what `entity` has made of a function
    sink         URL of the sink that keeps states and what is done: `sqlite:///PATH` or `postgresql://…`
    table        the table's name, in Postgres also `schema.name`. One queue or several fill a table; a hub does not
    pipeline     the pipeline that the table belongs to
    schema       the columns of a message's body, as `order_id STRING, amount BIGINT`, or `Bodies(…)`, which says
                 more of how it is read
    state        the table's columns, in the same way as text; the handler's keys among them
    delivery     what names a message's entity, the leases of entities, and how messages are delivered; default:
                 `QueueDelivery()`
    runtime      time, chance in the pauses, and what a relative path in a URL is relative to

    Raises `ConfigError`, also for a sink that keeps no messages, `SchemaMismatch` and `MissingDependency`.
    """

    def __init__(
        self,
        url: str,
        lease_store: str | LeaseStore | None,
        handler: EntityHandler,
        *,
        sink: str,
        table: str,
        pipeline: str,
        schema: str | Bodies,
        state: str,
        delivery: QueueDelivery | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        require_handler(handler)
        settings, runtime = delivery or QueueDelivery(), runtime or Runtime()
        sessions = parse_qs(urlsplit(url).query).get("sessions") == ["true"]
        if sessions:
            settings = for_sessions(settings, lease_store)
        columns, scope = read_columns(state, "state"), f"{pipeline}/{table}"
        check = _any_key if sessions else partial(_check_lease_key, scope)
        self._settings, self._clock = settings, runtime.clock
        bodies = bodies_of(schema)
        if bodies.how.registry is not None:
            rule = "messages of a queue are read by a schema of your own"
            raise ConfigError("registry", None, rule, "Give writer_schema, or bring the messages into a hub")
        if bodies.how.skipped_operations:
            rule = "a message is applied or a dead letter, and none is passed over"
            raise ConfigError("skipped_operations", bodies.how.skipped_operations, rule, "Leave it out")
        self._reader = ContentReader(handler, bodies.reader(), columns, settings.key, check)
        spec = TableSpec(name=table, pipeline=pipeline, keys=handler.keys)
        self._sink: Sink = open_sink(sink, spec, base=runtime.base)
        kept = require(self._sink, STATES, "a queue processor")
        kept.check_messages(columns)
        self._leases = None if sessions else _leases_in(lease_store, scope, settings)
        opened = partial(open_queue, url, base=runtime.base)
        self._queue: Queue = opened()
        name, parking = self._queue.name, kept.parked_messages
        self._locks = LockTimes(self._queue.url, self._queue.shortest_lock)
        self._work = Work(name, handler, self._sink, columns, settings=settings, clock=self._clock)
        self._turns = MessageTurns(name, self._work, self._reader, parking, settings=settings, runtime=runtime)
        self._room = Room(settings, runtime.rng, looks=True)
        self._stop = threading.Event()
        self._jobs: SimpleQueue[Start | LookForParked | None] = SimpleQueue()
        self._reports: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._ran = False
        self._away = Outage(logger, "%s; waiting for it", f"the queue {self._queue.url} is back")
        self._failure: BaseException | None = None
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._sessions = self._sessions_of(opened, runtime) if sessions else None

    @property
    def counts(self) -> dict[str, int]:
        """What has happened so far: what became of messages (`Counts.named`: `duplicates` were done before, or sent
        twice; `rejected` are dead letters), and beside that how many were `received`, tries that `failed`, found the
        entity `busy` or a store `away`, and messages `dead_lettered`, `given_back` or `lost` (their lock ended before
        they were completed, so that they come again). Of those received, `read` are done with; the others are in hand,
        or come again."""
        names = ("received", *TRIES, "dead_lettered", "given_back", "lost")
        counted = {str(name): self._counts[name] for name in names}
        return {**self._done.named(), **counted, "lost": counted["lost"] + self._room.lost}

    @property
    def _done(self) -> Counts:
        return Counts(**{name: self._counts[name] for name in (*EVENTS, *ROWS, *APART)})

    def stop(self) -> None:
        """Let `run` end: no work is begun, what is at work is finished, the rest given back. From any thread."""
        self._stop.set()

    def run(self) -> None:
        """Process messages until `stop`, SIGTERM, Ctrl-C or an exception; at most once for an object.

        Waits while the queue, the lease store or the sink is away, and says so; once a message has been applied, also
        until a person has mended what keeps them from working. Raises what no waiting mends.
        """
        if self._ran:
            raise UsageError("this processor has run already: its queue is closed. Make another one")
        self._ran = True
        asked: list[int] = []
        try:
            with terminating(asked, interrupts=True):
                self._run(self._leases, lambda: bool(asked))
        finally:
            self._stop.set()
            for each in (self._queue, self._leases, self._work, self._sink):
                if each is not None:
                    each.close()
            logger.info("table %s: %s", self._sink.spec.called, self._done.said("message"))
        if self._failure is not None:
            logger.error("this processor gives up: %s", self._failure)
            raise self._failure

    def _sessions_of(self, opened: Callable[[], Queue], runtime: Runtime) -> Sessions:
        return Sessions(
            SharedByWorkers(
                open=opened,
                reader=self._reader,
                work=self._work,
                settings=self._settings,
                runtime=runtime,
                count=self._count,
                stop=self._stop,
                close_thread=self._sink.close,
            )
        )

    def _run(self, leases: EntityLeases | None, must_end: Callable[[], bool]) -> None:
        if leases is None:
            assert self._sessions is not None
            self._sessions.run(must_end)
        else:
            with closing(KeptLeases(leases, self._clock)) as kept, self._workers(kept):
                while not (must_end() or self._stop.is_set() or self._failure):
                    self._step()
                self._stop.set()
                self._end()

    @contextmanager
    def _workers(self, leases: KeptLeases) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._work_on, args=[leases], name=f"leasehold-queue-{number}", daemon=True)
            for number in range(self._settings.workers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for _ in threads:
                self._jobs.put(None)
            for thread in threads:
                thread.join()

    def _work_on(self, leases: KeptLeases) -> None:
        """A worker's thread."""
        while (job := self._jobs.get()) is not None:
            try:
                match job:
                    case Start():
                        self._turns.take(job, leases, self._report, self._stop.is_set)
                    case LookForParked():
                        self._look(job)
            except BaseException as error:  # noqa: BLE001  `run` raises it
                self._failure = self._failure or error
            finally:
                if isinstance(job, Start):
                    key = job.key
                    self._reports.put(lambda key=key: self._room.finished(key))  # type: ignore[misc]
        self._sink.close()

    def _look(self, look: LookForParked) -> None:
        """In a worker's thread: which entities have parked messages that are due."""
        found: Mapping[str, tuple[Any, ...]] = {}
        try:
            found = self._turns.due(look.at_most)
        finally:
            self._reports.put(lambda: self._room.looked(found))

    def _count(self, name: str, number: int) -> None:
        with self._counting:
            self._counts[name] += number

    def _report(self, start: Start, held: HeldMessage | None, result: TryResult) -> None:
        """In a worker's thread: tell the other."""
        self._reports.put(lambda: self._ended(start, held, result))

    def _ended(self, start: Start, held: HeldMessage | None, result: TryResult) -> None:
        self._counts.update(counted_as(result.ending, in_hand=held is not None))
        parked = result.ending is Ending.PARKED and bool(result.description)  # for it has failed
        self._counts[Ending.FAILED] += parked
        if parked or result.ending is Ending.FAILED:
            which = "a parked message" if held is None else f"message {held.message.sequence_number}"
            logger.warning("%s of %r: the handler raised %s", which, start.key, result.description)
        if held is None:
            self._room.ended_parked(start, result, self._clock.monotonic())
        else:
            self._room.ended(held, result, self._clock.monotonic())

    def _step(self) -> None:
        """One turn of the shell."""
        self._collect(0.0)
        for step in self._room.due(self._clock.monotonic()):
            self._perform(step)
        if not self._room.free:
            self._collect(self._room.next_due(self._clock.monotonic()))
            return
        wait = _BRIEFLY if self._room.at_work else min(_IDLE, self._room.next_due(self._clock.monotonic()))
        sent = self._clock.monotonic()
        received = self._told(lambda: self._queue.receive(self._room.free, wait))
        if received is None:
            self._collect(_AWAY if self._room.empty else self._room.next_due(self._clock.monotonic()))
        if received:
            self._take(received, Answered.now(sent, self._clock))

    def _end(self) -> None:
        """Give back what nobody works on, and wait for those who work; their messages are renewed meanwhile."""
        while True:
            self._collect(0.0)
            for step in self._room.due(self._clock.monotonic(), stopping=True):
                self._perform(step)
            if not self._room.at_work:
                return
            self._collect(self._room.next_due(self._clock.monotonic()))

    def _collect(self, wait: float) -> None:
        """Note what workers have reported; wait for the first of it."""
        try:
            self._reports.get(timeout=wait)() if wait else self._reports.get_nowait()()
            while True:
                self._reports.get_nowait()()
        except Empty:
            return

    def _take(self, messages: Sequence[QueueMessage], answered: Answered) -> None:
        self._counts["received"] += len(messages)
        for message, content in zip(messages, self._reader.read_all(messages), strict=True):
            if isinstance(content, Unfit):
                self._dead_letter(message, content.reason, content.description)
                continue
            if (former := self._room.trust_in(message)) is not None:  # it has come again, under a new lock
                self._locks.lost(former, answered.at)
            self._room.take(message, content.lease_key, content, self._locks.received(message, answered))

    def _perform(self, step: Step) -> None:
        match step:
            case Start() | LookForParked():
                self._jobs.put(step)
            case Renew(held):
                self._renew(held)
            case Complete(held):
                self._complete([each.message for each in held])
            case GiveBack(held):
                self._told(lambda: self._queue.abandon([each.message for each in held]))
                self._counts["given_back"] += len(held)
            case DeadLetter(one, reason, description):
                self._dead_letter(one.message, reason, description)

    def _complete(self, messages: Sequence[QueueMessage]) -> None:
        """Remove what is done from the queue. What is lost, or was done while the queue is away, comes again."""
        lost = self._told(lambda: self._queue.complete(messages))
        self._counts["lost"] += len(messages if lost is None else lost)

    def _renew(self, held: tuple[HeldMessage, ...]) -> None:
        """One by one, since each is a call of the service. None is given up while the queue is away."""
        for each in held:
            sent = self._clock.monotonic()
            found = self._told(lambda each=each: self._queue.renew([each.message]))  # type: ignore[misc]
            if found is None:
                return
            answered = Answered.now(sent, self._clock)
            if not found:
                self._locks.lost(each.trust, answered.at)
                each.trust = LOST
            for message in found:
                self._room.renewed(each, message, self._locks.renewed(message, answered))

    def _dead_letter(self, message: QueueMessage, reason: str, description: str) -> None:
        self._counts.update(("used", "rejected"))
        held = self._told(lambda: self._queue.dead_letter(message, reason, description))
        self._counts["dead_lettered" if held else "lost"] += 1
        if held:
            logger.warning("message %d is a dead letter: %s, %s", message.sequence_number, reason, description)

    def _told(self, call: Callable[[], T]) -> T | None:
        """Call the queue. None while it is away, which is said once; a message that was not settled comes again."""
        try:
            found = call()
        except LeaseholdError as error:
            if not is_waited_out(error, worked=self._work.worked):
                raise
            self._away.note(error)
            return None
        self._away.note(None)
        return found


def _any_key(key: str) -> None:
    """A session's lock is its entity's lease: its key is never given to a lease store."""


def _check_lease_key(scope: str, key: str) -> None:
    """Raises `ConfigError` for what cannot be a lease's key."""
    check_no_place(key)
    check_keys(scope, [key])


def _leases_in(store: str | LeaseStore | None, scope: str, settings: QueueDelivery) -> EntityLeases:
    """The leases of a queue without sessions. Raises `ConfigError` where no store is named."""
    if store is None:
        rule = "a lease store: only a queue that requires sessions needs none"
        raise ConfigError("lease_store", None, rule, "Name one, or write ?sessions=true behind such a queue")
    return EntityLeases(store, scope=scope, holder=settings.holder, duration=settings.lease_duration)
