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
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from leasehold.clock import Clock, SystemClock
from leasehold.errors import ConfigError, LeaseholdError, UsageError, may_pass
from leasehold.formats.bodies import BodyReader
from leasehold.formats.columns_text import read_columns
from leasehold.handlers.contract import EntityHandler
from leasehold.leases import EntityLeases
from leasehold.leases.turns import check_no_place
from leasehold.processors.events.signals import terminating
from leasehold.processors.queues.content import ContentReader, Unfit
from leasehold.processors.queues.kept_leases import KeptLeases
from leasehold.processors.queues.locks import lock_trust
from leasehold.processors.queues.messages_in_hand import (
    Complete,
    Ending,
    GiveBack,
    HeldMessage,
    Look,
    Renew,
    Result,
    SetAside,
    Start,
    Step,
)
from leasehold.processors.queues.room import Room
from leasehold.processors.queues.sessions import Sessions, Shared
from leasehold.processors.queues.settings import QueueDelivery, check_none_deferred, check_sessions
from leasehold.processors.queues.turns import Turns
from leasehold.processors.queues.work import Work
from leasehold.queues import Queue, QueueMessage, open_queue
from leasehold.queues.keys import KeyOf
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.base import Sink
from leasehold.sinks.features import MESSAGES, require
from leasehold.stores import LeaseStore
from leasehold.stores.lease_rules import check_keys

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
    table, pipeline, schema, state    as of a `HandledTable`. One queue fills a table, or several do; a hub does not
    timestamps   as of a `HandledTable`
    key          where a message's entity is named: `session`, `partition-key`, `message-id`, a property's name, or a
                 function of the message. Default: the handler's keys in the body; with sessions it is the session id
    delivery     how messages are delivered
    holder       who holds leases, for people; default: host and process id
    lease_duration    seconds after which another process may work on the entity of one that died (30)
    base         what relative paths are relative to; default: the working directory
    clock, rng   for tests

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
        schema: str,
        state: str,
        timestamps: str = "exact",
        key: str | KeyOf | None = None,
        delivery: QueueDelivery | None = None,
        holder: str | None = None,
        lease_duration: float = 30.0,
        base: Path | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self._settings, self._rng = delivery or QueueDelivery(), rng or Random()
        self._clock: Clock = clock or SystemClock()
        sessions = parse_qs(urlsplit(url).query).get("sessions") == ["true"]
        if sessions:
            key = check_sessions(lease_store, key, self._settings)
        columns, scope = read_columns(state, "state"), f"{pipeline}/{table}"

        def check(lease_key: str) -> None:
            if not sessions:
                check_no_place(lease_key)
                check_keys(scope, [lease_key])

        reader = BodyReader(read_columns(schema, "schema"), timestamps=timestamps)
        self._reader = ContentReader(handler, reader, columns, key, check)
        self._sink: Sink = open_sink(sink, TableSpec(name=table, pipeline=pipeline, keys=handler.keys), base=base)
        kept = require(self._sink, MESSAGES, "a queue processor")
        kept.check_messages(columns)
        self._leases: EntityLeases | None = None
        if lease_store is not None:
            self._leases = EntityLeases(lease_store, scope=scope, holder=holder, duration=lease_duration)
        elif not sessions:
            rule = "a lease store: only a queue that requires sessions needs none"
            raise ConfigError("lease_store", None, rule, "Name one, or write ?sessions=true behind such a queue")
        self._queue: Queue = open_queue(url, base=base)
        self._work = Work(
            *(self._queue.name, handler, kept, columns),
            settings=self._settings,
            clock=self._clock,
        )
        parking = kept.parked_messages
        check_none_deferred(self._queue.name, parking)
        self._turns = Turns(
            *(self._queue.name, self._work, self._reader, parking),
            settings=self._settings,
            clock=self._clock,
            rng=self._rng,
        )
        self._room = Room(self._settings, self._rng, looks=True)
        self._stop = threading.Event()
        self._jobs: SimpleQueue[Start | Look | None] = SimpleQueue()
        self._reports: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._ran = self._away = False
        self._failure: BaseException | None = None
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._sessions: Sessions | None = None
        if sessions:
            shared = Shared(
                open=lambda: open_queue(url, base=base),
                reader=self._reader,
                work=self._work,
                settings=self._settings,
                clock=self._clock,
                rng=self._rng,
                count=self._count,
                stop=self._stop,
                close_thread=self._sink.close,
            )
            self._sessions = Sessions(shared)

    @property
    def counts(self) -> dict[str, int]:
        """What has happened so far: messages `received`, those that were `applied`, `repeated` (done before, or sent
        twice), tries that `failed`, found the entity `busy` or a store `away`, messages that were `parked`, parked
        ones that were `set_aside`, and messages `dead_lettered`, `given_back` or `lost` (their lock ended before they
        were completed, so that they come again)."""
        names = ("received", *Ending, "dead_lettered", "given_back", "lost")
        inner = (Ending.REJECTED, Ending.BEHIND)
        counted = {str(name): self._counts[name] for name in names if name not in inner}
        return counted | {"lost": counted["lost"] + self._room.lost}

    def stop(self) -> None:
        """Let `run` end: no work is begun, what is at work is finished, the rest given back. From any thread."""
        self._stop.set()

    def run(self) -> None:
        """Process messages until `stop`, SIGTERM, Ctrl-C or an exception; at most once for an object.

        Waits while the queue, the lease store or the sink is away, and says so once. Raises what no waiting mends.
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
        if self._failure is not None:
            raise self._failure

    def _run(self, leases: EntityLeases | None, asked: Callable[[], bool]) -> None:
        if leases is None:
            assert self._sessions is not None
            self._sessions.run(asked)
        else:
            with closing(KeptLeases(leases, self._clock)) as kept, self._workers(kept):
                while not (asked() or self._stop.is_set() or self._failure):
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
                    case Look():
                        self._look(job)
            except BaseException as error:  # noqa: BLE001  `run` raises it
                self._failure = self._failure or error
            finally:
                if isinstance(job, Start):
                    key = job.key
                    self._reports.put(lambda key=key: self._room.finished(key))  # type: ignore[misc]
        self._sink.close()

    def _look(self, look: Look) -> None:
        """In a worker's thread: which entities have parked messages that are due."""
        found: Mapping[str, tuple[Any, ...]] = {}
        try:
            found = self._turns.due(look.at_most)
        finally:
            self._reports.put(lambda: self._room.looked(found))

    def _count(self, name: str, number: int) -> None:
        with self._counting:
            self._counts[name] += number

    def _report(self, start: Start, held: HeldMessage | None, result: Result) -> None:
        """In a worker's thread: tell the other."""
        self._reports.put(lambda: self._ended(start, held, result))

    def _ended(self, start: Start, held: HeldMessage | None, result: Result) -> None:
        self._counts[result.ending] += 1
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
        received = self._told(lambda: self._queue.receive(self._room.free, wait))
        if received is None:
            self._collect(_AWAY if self._room.empty else self._room.next_due(self._clock.monotonic()))
        if received:
            self._take(received)

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

    def _take(self, messages: Sequence[QueueMessage]) -> None:
        self._counts["received"] += len(messages)
        for message, content in zip(messages, self._reader.read_all(messages), strict=True):
            if isinstance(content, Unfit):
                self._dead_letter(message, content.reason, content.description)
                continue
            now, wall = self._clock.monotonic(), self._clock.wall()
            trust = lock_trust(message.locked_until, sent=now, answered=now, wall=wall)
            self._room.take(message, content.lease_key, content, trust, now)

    def _perform(self, step: Step) -> None:
        match step:
            case Start() | Look():
                self._jobs.put(step)
            case Renew(held):
                self._renew(held)
            case Complete(held):
                self._complete([each.message for each in held])
            case GiveBack(held):
                self._told(lambda: self._queue.abandon([each.message for each in held]))
                self._counts["given_back"] += len(held)
            case SetAside(one, reason, description):
                self._dead_letter(one.message, reason, description)

    def _complete(self, messages: Sequence[QueueMessage]) -> None:
        """Remove what is done from the queue. What is lost, or was done while the queue is away, comes again."""
        lost = self._told(lambda: self._queue.complete(messages))
        self._counts["lost"] += len(messages if lost is None else lost)

    def _renew(self, held: tuple[HeldMessage, ...]) -> None:
        """One by one, since each is a call of the service. One that is not held any more is left to its end."""
        for each in held:
            sent = self._clock.monotonic()
            found = self._told(lambda each=each: self._queue.renew([each.message]))  # type: ignore[misc]
            if found is None:
                return
            answered, wall = self._clock.monotonic(), self._clock.wall()
            for message in found:
                trust = lock_trust(message.locked_until, sent=sent, answered=answered, wall=wall)
                self._room.renewed(each, message, trust)

    def _dead_letter(self, message: QueueMessage, reason: str, description: str) -> None:
        held = self._told(lambda: self._queue.dead_letter(message, reason, description))
        self._counts["dead_lettered" if held else "lost"] += 1
        if held:
            logger.warning("message %d is a dead letter: %s, %s", message.sequence_number, reason, description)

    def _told(self, call: Callable[[], T]) -> T | None:
        """Call the queue. None while it is away, which is said once; a message that was not settled comes again."""
        try:
            found = call()
        except LeaseholdError as error:
            if not may_pass(error):
                raise
            if not self._away:
                logger.warning("%s; waiting for it", str(error))  # the error would keep the connection alive
            self._away = True
            return None
        if self._away:
            logger.info("the queue %s is back", self._queue.url)
        self._away = False
        return found
