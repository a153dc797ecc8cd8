"""Handlers of entities: functions from what is known of an entity and one event to what the entity becomes.

    @entity(keys=["order_id"])
    def order(state: Order | None, event: EntityEvent) -> Order | Delete | Skip: ...

Owns what a handler is given and may answer, and the computation: states and events in, new states and rejected events
out. Pure: no database, no clock. A handler is called at least once for each event, in the order of its entity's events,
and takes effect once (`table`).

    a state     the entity's new state: a dict, or an object of the class that the decorator names
    Delete()    the entity is deleted; its next event finds None
    Skip()      the entity stays as it is
    Effects(one of these, [Emit(...), Row(...), Gone(...)])    beside it, events are sent, and rows written (`answers`)

    raise Reject(reason)    the event will never succeed: it is set aside with the reason, and the entity stays
    raise Retry(after=30)   the event may succeed later, and not before this many seconds: so does any other exception
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from leasehold.config import is_number
from leasehold.errors import ConfigError, LeaseholdError, UsageError, Verdict
from leasehold.handlers.answers import Emit, Gone, Row, parts
from leasehold.handlers.calling.raised import NotCalled, is_timeout, name_of
from leasehold.handlers.opened import Opens, value_of
from leasehold.handlers.state_class import form_of
from leasehold.printable import nobody_reads_the_output
from leasehold.sinks.features import SpoiledState
from leasehold.sinks.rules.related import EntityStep

__all__ = [
    "Delete",
    "EntityEvent",
    "EntityHandler",
    "HandlerFailed",
    "Reject",
    "Retry",
    "Skip",
    "entity",
]

Key = tuple[Any, ...]
State = Mapping[str, Any]
Columns = Mapping[str, Callable[[Any], Any]]
"""A table's columns, each with what gives a value as it comes back from there; it raises `ValueError`."""


@dataclass(frozen=True, slots=True)
class Delete:
    """A handler's answer: the entity is deleted."""


@dataclass(frozen=True, slots=True)
class Skip:
    """A handler's answer: the event changes nothing."""


class Reject(Exception):
    """Raised by a handler: this event will never succeed. `reason` is kept with it, as text."""

    reason = ""

    def __init__(self, reason: object) -> None:
        self.reason = str(reason).encode(errors="replace").decode()
        super().__init__(reason)


class Retry(Exception):
    """Raised by a handler: this event may succeed later, and is tried again after this many seconds.

    Without `after` the pause is that of any exception. Raises `UsageError` for what is not a duration.
    """

    after: float | None = None

    def __init__(self, reason: object = "", *, after: float | None = None) -> None:
        if after is not None and not is_number(after, least=0):
            raise UsageError(f"Retry(after={after}): it is a number of seconds, zero or more")
        self.after = after
        super().__init__(reason)


class RowsRefused(LeaseholdError):
    """The database refuses what an event makes of related rows, as if its handler had raised."""

    verdict = Verdict.ROWS


class HandlerFailed(LeaseholdError):
    """A handler raised for an event for which its partition waits; what came before it is applied."""

    verdict = Verdict.ROWS


@dataclass(frozen=True, slots=True)
class EntityEvent:
    """One event of an entity.

    key                of the entity: a value, or a tuple where there are several key columns
    body, row          what was sent, and its fields by the schema
    hub, partition, sequence_number, enqueued_time    where it stands, and when the hub received it
    id                 names the event for good: hub, partition and sequence number, as text
    fence              rises with each owner of the partition: what a handler writes elsewhere can refuse lower ones
    late               whether it came after a later one of its entity (`spread`); never in one partition
    delivery           which try this is, from 1; tries in an outage are not counted
    batch_id           on Spark the id of the batch that it was read or tried with, as the log has it; "" elsewhere, and
                       for a parked event that is tried between batches. What comes again may come in another batch:
                       `id` is what an event is known by
    """

    key: Any
    body: bytes
    row: State
    hub: str
    partition: str
    sequence_number: int
    enqueued_time: float
    fence: int
    late: bool = False
    delivery: int = 1
    batch_id: str = ""

    @property
    def id(self) -> str:
        return f"{self.hub}/{self.partition}/{self.sequence_number}"

    def __reduce__(self) -> tuple[Any, ...]:  # many go between processes, and a dataclass by itself is slow to pickle
        place = (self.hub, self.partition, self.sequence_number)
        return EntityEvent, (
            *(self.key, self.body, self.row, *place, self.enqueued_time, self.fence, self.late, self.delivery),
            self.batch_id,
        )


def key_of(event: EntityEvent) -> Key:
    """The key of an event's entity, as a tuple also where it has one column."""
    return event.key if isinstance(event.key, tuple) else (event.key,)


def fenced(event: EntityEvent, fence: int) -> EntityEvent:
    """The same event with another fence: `dataclasses.replace`, of which each call takes twice as long."""
    place = (event.hub, event.partition, event.sequence_number)
    of_try = (event.delivery, event.batch_id)
    return EntityEvent(event.key, event.body, event.row, *place, event.enqueued_time, fence, event.late, *of_try)


@dataclass(frozen=True)
class EntityHandler:
    """A function with the key columns of its entity, the class of its states, and what it `opens` in a process."""

    function: Callable[..., Any]
    keys: tuple[str, ...]
    state: type = dict
    opens: Opens | None = None

    def __call__(self, state: Any, event: EntityEvent) -> Any:
        if self.opens is None:
            return self.function(state, event)
        return self.function(state, event, value_of(self.opens))

    def fields(self) -> tuple[str, ...] | None:
        """The names of what a state has; None for a dict, which has those of the table."""
        return None if self.state is dict else form_of(self.state).fields

    def loaded(self, stored: State | None) -> Any:
        """A stored state as the function gets it. Raises `UsageError` for a row that cannot be read."""
        if isinstance(stored, SpoiledState):
            raise UsageError(
                f"the row of this entity cannot be read as the state that the handler has: {stored.reason}. Somebody "
                "else has written it. Mend the row: its events are tried again, or send them in again if they are set "
                "aside by then"
            )
        if stored is None or self.state is dict:
            return None if stored is None else dict(stored)
        return form_of(self.state).load(stored)

    def dumped(self, state: Any) -> dict[str, Any]:
        """What the function returned, to be stored. Raises `UsageError` for what is not a state."""
        if isinstance(state, Mapping):
            return dict(state)
        if not isinstance(state, self.state):
            raise UsageError(
                f"the handler {self.function.__name__} returned {type(state).__name__}: a state is a dict"
                f"{'' if self.state is dict else f' or a {self.state.__name__}'}; else return Delete() or Skip()"
            )
        return form_of(self.state).dump(state)


def entity(
    *, keys: Sequence[str], state: type = dict, opens: Opens | None = None
) -> Callable[[Callable[..., Any]], EntityHandler]:
    """Make a function the handler of an entity.

    keys     the columns of an event that name its entity
    state    the class of its states: `dict` (the default), a dataclass or a pydantic model
    opens    a function without arguments that returns a context manager. The first call in a process enters it, and
             the handler is given what that returns as its third argument: a pool of connections, a model (`opened`)

    Raises `ConfigError`, also for what is not a plain function of a state and an event, and for a class of which no
    object can be made from its stored fields (`states`).
    """
    if isinstance(keys, str) or not keys:
        raise ConfigError("keys", keys, "a list of at least one column", 'For example keys=["order_id"]')
    if state is not dict:
        form_of(state)
    if opens is not None and not callable(opens):
        raise ConfigError("opens", opens, "a function that returns a context manager", "Put @contextmanager above one")

    def handler(function: Callable[..., Any]) -> EntityHandler:
        _check_function(function, 2 if opens is None else 3)
        return EntityHandler(function, tuple(keys), state, opens)

    return handler


def _check_function(function: Callable[..., Any], arguments: int) -> None:
    if not inspect.isroutine(function):
        raise ConfigError("entity", function, "a function of a state and an event", "Put @entity above one")
    if (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise ConfigError(
            "entity",
            function.__name__,
            "calling it would only make a coroutine or a generator, and none of its lines would run",
            "Give a plain function; for a coroutine, one that hands it to an event loop and waits for it",
        )
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError as error:
        given = "a state and an event" if arguments == 2 else "a state, an event and what it opens"
        rule = f"it is called with {given}: {error}"
        raise ConfigError("entity", function.__name__, rule, f"Take these {arguments}") from error
    except ValueError:
        """A function without a signature, written in C."""


@dataclass(frozen=True, slots=True)
class Change:
    """The last state of an entity that a batch has changed, by the event `number`; None: it is deleted."""

    key: Key
    state: State | None
    number: int

    def __reduce__(self) -> tuple[Any, ...]:
        return Change, (self.key, self.state, self.number)


@dataclass(frozen=True, slots=True)
class Held:
    """An event that has to wait: its handler raised `error`, or has not been called since an earlier event waits."""

    key: Key
    event: EntityEvent
    error: Exception | None = None


class PassedOver(Enum):
    """In the place of the reason why an event is not given to a handler: it says nothing, and is neither called for nor
    set aside. No text is equal to it, since a transform may give any as a reason."""

    PASSED_OVER = "passed over"


PASSED_OVER = PassedOver.PASSED_OVER


@dataclass(slots=True)
class Computed:
    """What events come to.

    changes     the states that they leave
    rejected    events that are set aside, with the reason
    failed      the event for which the handler raised `error`, where none after it is computed
    held        events that wait, in order
    dead        events that are not tried any more, with what their handler raised last
    emitted     for each event that has emitted any, in order: its entity's key, the event, and what it has emitted
    steps       where there are related tables, or `by_steps`, what each event makes of its entity, in order
    by_steps    the database is given each state in between, and not only the last, and so names the event it refuses
    calls       how the calls for each entity have ended: with an exception of this name, or None if any succeeded
    passed      how many events were passed over
    """

    changes: dict[Key, Change] = field(default_factory=dict)
    rejected: list[tuple[EntityEvent, str]] = field(default_factory=list)
    failed: EntityEvent | None = None
    error: Exception | None = None
    held: list[Held] = field(default_factory=list)
    dead: list[tuple[EntityEvent, Exception]] = field(default_factory=list)
    emitted: list[tuple[Key, EntityEvent, Sequence[Emit]]] = field(default_factory=list)
    steps: list[EntityStep] = field(default_factory=list)
    by_steps: bool = False
    calls: dict[Key, str | None] = field(default_factory=dict)
    passed: int = 0


def joined(parts: Sequence[Computed]) -> Computed:
    """What the events of one partition come to that were computed in parts, each of entities of its own."""
    if len(parts) == 1:
        return parts[0]
    whole = Computed(by_steps=parts[0].by_steps)
    for part in parts:
        whole.changes |= part.changes
        whole.calls |= part.calls
        whole.passed += part.passed
    whole.rejected = sorted((one for part in parts for one in part.rejected), key=lambda one: one[0].sequence_number)
    whole.held = sorted((one for part in parts for one in part.held), key=lambda one: one.event.sequence_number)
    whole.dead = sorted((one for part in parts for one in part.dead), key=lambda one: one[0].sequence_number)
    whole.emitted = sorted((one for part in parts for one in part.emitted), key=lambda one: one[1].sequence_number)
    whole.steps = sorted((one for part in parts for one in part.steps), key=lambda one: one.number)
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """What holds for all calls of a computation.

    goes_on     after an event whose handler raised, other entities' events are computed; else none behind it
    deliveries  an event whose handler raises is dead with the try of this number
    emits       somebody sends what answers emit; else an answer that emits fails its event
    related     the tables of which answers may have rows; a row of another one fails its event
    refused     from the numbers of the events that the database has refused to why: the handler is not called for them
    by_steps    see `Computed`
    """

    goes_on: bool = False
    deliveries: int = 1
    emits: bool = False
    related: Collection[str] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    by_steps: bool = False


def compute(
    handler: EntityHandler,
    states: Mapping[Key, State],
    events: Iterable[tuple[Key, EntityEvent, str | PassedOver | None]],
    columns: Columns,
    *,
    rules: CallRules | None = None,
    waiting: Collection[Key] = (),
    enough: Callable[[], bool] | None = None,
    took_effect: Callable[[Key, EntityEvent], object] = lambda key, event: None,
) -> Computed:
    """Call the handler for each event in order. The third of each is why the event cannot be read, None if it can,
    `PASSED_OVER` if it is nothing to call for.

    Events of entities that are `waiting` wait too. When the handler raises, none of the events from there on is
    computed; if it goes on by the `rules`, that event waits with all later ones of its entity, or is dead if this was
    its last try, and the others are computed. Once there is `enough`, all that is left waits.

    Where a call took too long, or none may be made (`NotCalled`), all later events of the entity wait, uncalled.
    `took_effect` is called for each event that has an answer, before the next of `events` is asked for.

    A state has the columns of the table, in which the keys are filled in; a column it lacks is null. Another column, or
    a value that its column cannot have, is a `UsageError` that fails the event. In the same batch as in a later one, an
    event is given the values that the table gives back: a float in a DOUBLE column for a whole number.
    """
    rules = rules or CallRules()
    done, known, behind = Computed(by_steps=rules.by_steps), dict(states), set(waiting)
    for key, event, unreadable in events:
        if unreadable is PASSED_OVER:
            done.passed += 1
            continue
        if unreadable is not None:
            done.rejected.append((event, unreadable))
            continue
        if key in behind or (enough is not None and enough()):
            behind.add(key)
            done.held.append(Held(key, event))
            continue
        try:
            answer, emitted, rows = _answer(handler, known.get(key), event, rules)
            skipped = isinstance(answer, Skip)
            gone = skipped or isinstance(answer, Delete)
            state = None if gone else _row(handler, key, handler.dumped(answer), columns)
        except Reject as rejection:
            done.calls[key] = None
            done.rejected.append((event, rejection.reason))
            continue
        except NotCalled:
            behind.add(key)
            done.held.append(Held(key, event))
            continue
        except Exception as error:  # whatever a handler raises, the event is tried again
            if name_of(error) == "BrokenPipeError" and nobody_reads_the_output():
                raise BrokenPipeError(*error.args) from error  # `program | head`: no event is to blame
            if _note_raised(done, key, event, error, rules):
                behind.add(key)
            if done.failed is not None:
                return done
            continue
        done.calls[key] = None
        took_effect(key, event)
        if emitted:
            done.emitted.append((key, event, emitted))
        if (rules.related or rules.by_steps) and (rows or not skipped):
            done.steps.append(EntityStep(event.sequence_number, key, rows, changes=not skipped, state=state))
        if skipped:
            continue
        if state is None:
            known.pop(key, None)
        else:
            known[key] = state
        done.changes[key] = Change(key, state, event.sequence_number)
    return done


def _note_raised(done: Computed, key: Key, event: EntityEvent, error: Exception, rules: CallRules) -> bool:
    """What becomes of an event whose handler has raised. Whether later events of its entity wait."""
    done.calls.setdefault(key, name_of(error))
    if not rules.goes_on:
        done.failed, done.error = event, error
        return True
    last = event.delivery >= rules.deliveries
    if last:
        done.dead.append((event, error))
    else:
        done.held.append(Held(key, event, error))
    return not last or is_timeout(error)


def _answer(
    handler: EntityHandler, state: State | None, event: EntityEvent, rules: CallRules
) -> tuple[Any, Sequence[Emit], Sequence[Row | Gone]]:
    """What the handler answers, what it emits, and its related rows. Raises what it raises, and what `rules` refuse."""
    if event.sequence_number in rules.refused:
        raise RowsRefused(rules.refused[event.sequence_number])
    answer, emitted, rows = parts(handler(handler.loaded(state), event))
    if emitted and not rules.emits:
        raise UsageError(
            f"the handler {handler.function.__name__} returned Emit(…), and nothing says where to send it: "
            "name a hub in HandledTable(state=Writes(…, outbox=…))"
        )
    if strangers := [row.table for row in rows if row.table not in rules.related]:
        raise UsageError(
            f"the handler {handler.function.__name__} returned a row of {strangers[0]}, which is no related "
            f'table: name it in HandledTable(state=Writes(…, related=["{strangers[0]}"]))'
        )
    return answer, emitted, rows


def _row(handler: EntityHandler, key: Key, state: dict[str, Any], columns: Columns) -> State:
    if strangers := [name for name in state if name not in columns]:
        raise UsageError(
            f"the handler {handler.function.__name__} returned a state with {strangers[0]!r}, and the table has "
            f"{', '.join(columns)}. Name it in the state's columns, or leave it out"
        )
    named = dict(zip(handler.keys, key, strict=True))
    if wrong := [name for name, value in named.items() if state.get(name, value) != value]:
        raise UsageError(
            f"the handler {handler.function.__name__} returned another {wrong[0]} than its event's: {state[wrong[0]]!r}"
        )
    row = {name: named.get(name, state.get(name)) for name in columns}
    for name, stored in columns.items():
        try:
            row[name] = stored(row[name])
        except ValueError as error:
            raise UsageError(
                f"the handler {handler.function.__name__} returned a state whose {name} {error}"
            ) from error
    return row
