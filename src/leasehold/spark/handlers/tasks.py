"""What a task does for a handler: it reads the states of its events' entities, and calls the handler for each event.

Owns the worker's side. A task has new events of one partition, in order, all that there are of an entity, so that no
two tasks have events of one entity (`shares`). It reads states over a connection of its own, which its worker keeps,
and writes nothing: what it tells is worth something only if the driver's commit finds the watermark that the driver has
read before. So a task may be run twice, be killed, or end long after its batch was given up.

With a time-out a call that hangs is interrupted. One that ignores that is ended with its worker: the task has failed,
and its next try, by Spark or by the driver, calls in processes of their own, where what hangs is ended alone.

What a handler raises is an answer, told in texts: the driver need not know its class.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import pyarrow as pa

from leasehold.formats.bodies import BodyReader
from leasehold.handlers.calling.answering import elsewhere
from leasehold.handlers.calling.interrupting import Interrupting
from leasehold.handlers.calling.limits import TimeLimit, within
from leasehold.handlers.calling.processes import HandlerProcesses
from leasehold.handlers.calling.program import BY_VALUE
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import CallRules, Computed, EntityHandler, Key, compute
from leasehold.handlers.given import RejectedInput, given_events
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.base import Sink
from leasehold.sinks.features import STATES, require
from leasehold.spark.handlers.leased import BatchLeases

C = TypeVar("C", bound=Computed)


class EventOfPartition(NamedTuple):
    """An event as the hub has it; `enqueued_time` in seconds since 1970."""

    body: bytes
    sequence_number: int
    enqueued_time: float


@dataclass(frozen=True, slots=True)
class TaskPiece:
    """New events of one partition, in order, of all its entities or of some. Those that are `waiting` wait too."""

    hub: str
    partition: str
    owner_level: int
    events: tuple[EventOfPartition | RejectedInput, ...]
    waiting: frozenset[Key]
    batch_id: str = ""


class Answer(NamedTuple):
    """What the events of a piece come to, and how many seconds that took in the task."""

    done: Computed
    seconds: float


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """How tasks call a handler, whatever the batch: `deliveries` is how often an event is tried.

    It `emits` where somebody sends that, and may write rows of the `related` tables. `late` is of spread tables,
    `leases` of exclusive ones. With a `timeout` a call is interrupted after this many seconds, and what hangs in a task
    takes `at_most` seconds together. `careful` says that calls are made in processes of their own, with the handler as
    `pickled`.
    """

    handler: EntityHandler
    reader: BodyReader
    state: pa.Schema
    url: str
    spec: TableSpec
    deliveries: int
    emits: bool = False
    related: frozenset[str] = frozenset()
    late: str = "apply"
    leases: BatchLeases | None = None
    timeout: float | None = None
    at_most: float = math.inf
    pickled: bytes = b""
    careful: bool = False

    def task(self) -> Callable[[TaskPiece], Answer]:
        """What a task does with a piece."""
        return functools.partial(answers, self)


def answers(call: HandlerCall, piece: TaskPiece) -> Answer:
    """What the events of a piece come to, from what the table has now. Raises what the sink raises, and no other."""
    began = time.monotonic()
    given, _ = given_events(call.reader, call.handler, piece, piece.events, [1] * len(piece.events), piece.batch_id)
    keys = list(dict.fromkeys(key for key, _, reason in given if reason is None))
    states = require(sink_at(call.url, call.spec), STATES, "a handler").read_states(call.state, keys)
    with calling(call) as computed:
        done = told(computed(states, given, columns_of(call.state), waiting=piece.waiting))
    return Answer(done, time.monotonic() - began)


@contextmanager
def calling(
    call: HandlerCall, leased: Callable[[EntityHandler], EntityHandler] = lambda handler: handler
) -> Iterator[Callable[..., Computed]]:
    """`compute` with the handler as far as it is `leased`, within the limit of one task."""
    rules = CallRules(goes_on=True, deliveries=call.deliveries, emits=call.emits, related=call.related)
    with _limited(call) as handler:
        yield functools.partial(compute, leased(handler), rules=rules)


def told(done: C) -> C:
    """The same, where what was raised can go to another process."""
    done.held = [one if one.error is None else replace(one, error=elsewhere(one.error)) for one in done.held]
    done.dead = [(event, elsewhere(error)) for event, error in done.dead]
    return done


@contextmanager
def _limited(call: HandlerCall) -> Iterator[EntityHandler]:
    """The handler within the limit of one task. A task that Spark tries again is careful."""
    from pyspark import TaskContext

    if call.timeout is None:
        yield call.handler
        return
    context = TaskContext.get()
    limit = TimeLimit(call.timeout, call.at_most)
    if call.careful or (context is not None and context.attemptNumber() > 0):
        name = call.handler.function.__name__
        with closing(HandlerProcesses(name, BY_VALUE + call.pickled, call.timeout)) as processes:
            yield within(limit, call.handler, processes, ())
    else:
        with Interrupting(call.handler, call.timeout) as interrupting:
            yield within(limit, call.handler, interrupting, ())


@functools.cache
def sink_at(url: str, spec: TableSpec) -> Sink:
    """The table, opened once in a worker."""
    return open_sink(url, spec)
