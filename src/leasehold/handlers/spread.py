"""Entities whose events are in several partitions: what a handler is given of them, and what is computed again.

Owns which events come late, what a batch has to say of the versions that it was computed from, and how what was
computed again under the lock of a commit takes the place of what was computed before (`sinks.beside.versions`).

1. An event is late if one of its entity with a higher value of `sequence_by` has come before it and taken effect, in an
   earlier commit or in the same batch: one that was set aside, or waits, has not. With the policy `apply` its handler
   is told (`EntityEvent.late`), with `reject` it is set aside uncalled. An event without a value is always set aside.
   Of an entity with a state, and of which none has taken effect, the value of that name in the state counts, if it is
   of the same kind: see `remembered_order`, rule 6.
2. Entities that wait (`KnownEntity.waits`) keep their events waiting, whichever partition has parked the first.
3. Under the lock of a commit handlers are called for `UNDER_LOCK` seconds at most, judged by how long the batch's calls
   took on average. The other events that have to be computed again are parked, uncalled: from then on nobody else
   changes their entities, so that what is computed of them next holds. With the policy `wait` all are called.
4. With leases (`exclusive`) a commit that holds an entity's goes through though others have parked events of it since
   it was read: its state is the same. And so that a holder who was paused past its lease overwrites nothing, batches of
   parked events compare states, too.
5. Events of several partitions may be computed together, before the first of them is committed: each partition from
   what the ones before it leave, with the versions that their commits will have made (`computed_in_turn`). That holds
   only if each is then committed in turn, as it was computed: once one is not, the later ones are computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial

import pyarrow as pa
from pyarrow import types

from leasehold.clock import Clock
from leasehold.errors import ConfigError
from leasehold.handlers.contract import Columns, Computed, EntityEvent, Key
from leasehold.handlers.given import Given
from leasehold.sinks.base import Sink
from leasehold.sinks.features import STATES, KeepsStates, require
from leasehold.sinks.rules.batch import Batch, KnownEntity, OrderValue, Versioned
from leasehold.sinks.rules.fence import Lane
from leasehold.sinks.rules.values import order_kind, order_values

UNDER_LOCK = 1.0
BEHIND = (0.05, 2.0)
"""Seconds after which a partition looks again whether its parked events are the first ones of their entities by now:
at first, and at most, since each look that finds none doubles them."""
LATE = ("apply", "reject")

BEHIND_ALL = 2**63 - 1
"""No event has a higher number."""

Compute = Callable[..., Computed]
"""`handlers.compute`, with its handler and what else is the same for all events of a call."""


@dataclass(slots=True)
class SpreadComputed(Computed):
    """What events come to, and from what: `known` at the first computation, each event's `values` by its number.

    `average` is how long a call took, in seconds.
    """

    given: Sequence[Given] = ()
    values: Mapping[int, OrderValue] = field(default_factory=dict)
    known: Mapping[Key, KnownEntity] = field(default_factory=dict)
    average: float = 0.0

    def latest(self, end: int) -> dict[Key, OrderValue]:
        """The highest value of each entity after the events below `end`."""
        without = {event.sequence_number for event, _ in (*self.rejected, *self.dead)}
        without |= {one.event.sequence_number for one in self.held}
        found: dict[Key, OrderValue] = {}
        for key, event, unreadable in self.given:
            number = event.sequence_number
            if unreadable is None and number < end and number not in without:
                found[key] = _higher(found.get(key), self.values[number])
        for key, value in found.items():
            found[key] = _higher(self.known[key].latest, value)
        return found

    def left(self) -> dict[Key, KnownEntity]:
        """What will be known of these entities once all of it has been committed as it is."""
        latest, waits = self.latest(BEHIND_ALL), {one.key for one in self.held}
        return {
            key: KnownEntity(
                one.version + 1,
                latest.get(key, one.latest),
                self.changes[key].state if key in self.changes else one.state,
                one.waits or key in waits,
            )
            for key, one in self.known.items()
        }

    def take(self, anew: Computed, keys: Collection[Key]) -> None:
        """Put what was computed again in place of what these entities' events have come to."""
        its = {event.sequence_number for key, event, reason in self.given if reason is None and key in keys}
        self.changes = {key: one for key, one in self.changes.items() if key not in keys} | anew.changes
        self.calls |= anew.calls
        self.passed += anew.passed
        rejected = [one for one in self.rejected if one[0].sequence_number not in its] + anew.rejected
        self.rejected = sorted(rejected, key=lambda one: one[0].sequence_number)
        emitted = [one for one in self.emitted if one[0] not in keys] + anew.emitted
        self.emitted = sorted(emitted, key=lambda one: one[1].sequence_number)
        dead = [one for one in self.dead if one[0].sequence_number not in its] + anew.dead
        self.dead = sorted(dead, key=lambda one: one[0].sequence_number)
        held = [one for one in self.held if one.key not in keys] + anew.held
        self.held = sorted(held, key=lambda one: one.event.sequence_number)
        steps = [one for one in self.steps if one.key not in keys] + anew.steps
        self.steps = sorted(steps, key=lambda one: one.number)


class SpreadEntities:
    """The computation of one table's spread entities. Of any threads at once."""

    def __init__(
        self,
        sink: KeepsStates,
        state: pa.Schema,
        columns: Columns,
        *,
        sequence_by: str,
        late: str,
        exclusive: bool,
        clock: Clock,
    ) -> None:
        self._sink, self._state, self._columns = sink, state, columns
        self._sequence_by, self._late, self._clock = sequence_by, late, clock
        self._exclusive = exclusive

    def computed(
        self,
        entries: Iterable[Given],
        rows: pa.Table,
        call: Compute,
        *,
        parked: bool,
        lease: Callable[[list[Key]], None] | None = None,
    ) -> SpreadComputed:
        """Read what is known of these events' entities, and `call` the handler. `parked` events wait for nothing.

        What is to be called for is leased before it is read, if there is a `lease`.
        """
        valued, values = self.valued(entries, rows)
        keys = list(dict.fromkeys(key for key, _, reason in valued if reason is None))
        if lease is not None:
            self._lease(keys, lease, parked=parked)
        known = self._known(keys, rows.schema.field(self._sequence_by).type)
        if parked:
            known = {key: replace(one, waits=False) for key, one in known.items()}
        began = self._clock.monotonic()
        done = self._compute(valued, values, known, call)
        took = self._clock.monotonic() - began
        return _with_basis(done, valued, values, known, took / max(1, len(done.calls)))

    def _known(self, keys: Sequence[Key], ordered: pa.DataType) -> dict[Key, KnownEntity]:
        """What is known of these entities, whose events have values of this type; what states say counts: rule 1."""
        known, name = self._sink.read_entities(self._state, keys), self._sequence_by
        if name not in self._state.names:
            return known
        type_ = self._state.field(name).type
        if order_kind(type_) is None or order_kind(type_) != order_kind(ordered):
            return known
        moved_in = {key: one.state[name] for key, one in known.items() if one.latest is None and one.state}
        for key, own in zip(moved_in, _own_values(list(moved_in.values()), type_), strict=True):
            known[key] = replace(known[key], latest=own)
        return known

    def first_parked(self, keys: Collection[Key]) -> dict[Key, tuple[Lane, float]]:
        """Of those that have parked events, where the first one comes from, and when it is tried."""
        return self._sink.first_parked(keys) if keys else {}

    def _lease(self, keys: list[Key], lease: Callable[[list[Key]], None], *, parked: bool) -> None:
        """Lease what is to be called for: of entities that wait, `parked` events alone."""
        waiting = {} if parked else self.first_parked(keys)
        lease([key for key in keys if key not in waiting])

    def valued(self, entries: Iterable[Given], rows: pa.Table) -> tuple[list[Given], dict[int, OrderValue]]:
        """The events with their values of `sequence_by`; those without one cannot be read."""
        converted = order_values(rows[self._sequence_by])
        events: list[Given] = []
        values: dict[int, OrderValue] = {}
        for place, (key, event, reason) in enumerate(entries):
            problem = converted.problems.get(place)
            if reason is None and problem is not None:
                reason = f"{self._sequence_by} {problem}, and orders the events of an entity"
            if reason is None:
                values[event.sequence_number] = converted.values[place]
            events.append((key, event, reason))
        return events, values

    def computed_in_turn(
        self,
        lanes: Sequence[tuple[Sequence[Given], Mapping[int, OrderValue]]],
        ordered: pa.DataType,
        call: Compute,
        lease: Callable[[list[Key]], None] | None = None,
    ) -> list[SpreadComputed]:
        """The same of new events of several partitions, which are committed one after the other: rule 5.

        `ordered` is the type of their values of `sequence_by`.
        """
        keys = list(dict.fromkeys(key for given, _ in lanes for key, _, reason in given if reason is None))
        if lease is not None:
            self._lease(keys, lease, parked=False)
        known = self._known(keys, ordered)
        found = []
        for given, values in lanes:
            its = {key: known[key] for key, _, reason in given if reason is None}
            began = self._clock.monotonic()
            done = self._compute(given, values, its, call)
            took = self._clock.monotonic() - began
            found.append(_with_basis(done, given, values, its, took / max(1, len(done.calls))))
            known.update(found[-1].left())
        return found

    def compute_again(
        self, done: SpreadComputed, moved: Mapping[Key, KnownEntity], end: int, call: Compute, *, goes_on: bool
    ) -> bool:
        """Compute the events below `end` of entities that have moved, in `done`. False where it cannot end there.

        All are called for unless the computation `goes_on` where one fails.
        """
        if not (moved := self._changed(done, moved)):
            return True
        stop = self._clock.monotonic() + UNDER_LOCK - done.average
        some = [
            (key, replace(event, delivery=event.delivery + 1), reason)
            for key, event, reason in done.given
            if reason is None and key in moved and event.sequence_number < end
        ]
        if goes_on:
            call = partial(call, enough=lambda: self._clock.monotonic() > stop)
        anew = self._compute(some, done.values, moved, call)
        if anew.failed is not None:
            return False
        done.known = {**done.known, **moved}
        done.take(anew, moved.keys())
        return True

    def versioned(
        self,
        done: SpreadComputed,
        end: int,
        make: Callable[[], Batch],
        call: Compute,
        *,
        goes_on: bool,
        parked: bool,
    ) -> Versioned:
        """What `done` was computed from. Where that has changed it is computed again, and `make` makes the batch anew.

        With `parked` events nobody else changes their entities, unless leases do not hold what they promise: rule 4.
        """
        read = {key: one.version for key, one in done.known.items()}

        def again(moved: Mapping[Key, KnownEntity]) -> Batch | None:
            if parked:
                if self._changed(done, moved):
                    return None
            elif not self.compute_again(done, moved, end, call, goes_on=goes_on):
                return None
            return replace(make(), versioned=Versioned(self._state, read, done.latest(end)))

        compares = self._exclusive or not parked
        return Versioned(self._state, read, done.latest(end), again if compares else None)

    def _changed(self, done: SpreadComputed, moved: Mapping[Key, KnownEntity]) -> dict[Key, KnownEntity]:
        """Those that have moved for what their events were computed from: with leases, not by parking alone.

        While no event has taken effect, what their states said counts on.
        """
        before = done.known
        moved = {
            key: one if one.latest is not None else replace(one, latest=before[key].latest)
            for key, one in moved.items()
        }
        if not self._exclusive:
            return moved
        return {
            key: one for key, one in moved.items() if (one.state, one.latest) != (before[key].state, before[key].latest)
        }

    def _compute(
        self,
        entries: Sequence[Given],
        values: Mapping[int, OrderValue],
        entities: Mapping[Key, KnownEntity],
        call: Compute,
    ) -> Computed:
        latest = {key: one.latest for key, one in entities.items()}

        def took_effect(key: Key, event: EntityEvent) -> None:
            latest[key] = _higher(latest[key], values[event.sequence_number])

        return call(
            {key: one.state for key, one in entities.items() if one.state is not None},
            self._judged(entries, values, latest),
            self._columns,
            waiting={key for key, one in entities.items() if one.waits},
            took_effect=took_effect,
        )

    def _judged(
        self, entries: Iterable[Given], values: Mapping[int, OrderValue], latest: Mapping[Key, OrderValue | None]
    ) -> Iterable[Given]:
        """Rule 1. `latest` goes on with each event that takes effect."""
        for key, event, reason in entries:
            if reason is None:
                value, before = values[event.sequence_number], latest[key]
                late = before is not None and _higher(before, value) != value
                said = f"late: one of its entity with a higher {self._sequence_by} has come before"
                yield (
                    key,
                    replace(event, late=True) if late else event,
                    said if late and self._late == "reject" else None,
                )
            else:
                yield key, event, reason


def joined(parts: Sequence[SpreadComputed]) -> SpreadComputed:
    """What events of one partition come to that were computed in parts, each of entities of its own."""
    whole = SpreadComputed(average=max(part.average for part in parts))
    for part in parts:
        whole.values = {**whole.values, **part.values}
        whole.known = {**whole.known, **part.known}
        whole.take(part, ())
    whole.given = sorted((one for part in parts for one in part.given), key=lambda one: one[1].sequence_number)
    return whole


def spread_entities(
    sink: Sink,
    state: pa.Schema,
    columns: Columns,
    sequence_by: str | None,
    late: str,
    clock: Clock,
    *,
    exclusive: bool,
) -> SpreadEntities | None:
    """The computation of a table's entities if they are spread; what its sink lacks for that is made."""
    if sequence_by is None:
        return None
    keeps = require(sink, STATES, "entities whose events are in several partitions")
    keeps.check_entities()
    return SpreadEntities(keeps, state, columns, sequence_by=sequence_by, late=late, exclusive=exclusive, clock=clock)


def check_spread(spread: bool, sequence_by: str | None, late: str, schema: pa.Schema | None) -> None:
    """Refuse settings of a spread table that do not go together, as far as `schema` is known. Raises `ConfigError`."""
    if late not in LATE:
        raise ConfigError("late", late, f"one of {', '.join(LATE)}", "apply is the default")
    if not spread:
        for name, value, default in (("sequence_by", sequence_by, None), ("late", late, "apply")):
            if value != default:
                raise ConfigError(
                    name,
                    value,
                    "within one partition events are in order, and none is late",
                    "Leave it out, or let the table be spread if an entity's events are in several partitions",
                )
        return
    if sequence_by is None:
        raise ConfigError(
            "sequence_by",
            None,
            "of a spread table an entity's events are in several partitions, and only this says which is later",
            'Name the field of the event that grows with each event of an entity: sequence_by="version"',
        )
    if schema is None:
        return
    if sequence_by not in schema.names:
        raise ConfigError(
            "sequence_by", sequence_by, f"one of the schema's columns: {', '.join(schema.names)}", "Add it to schema"
        )
    if order_kind(schema.field(sequence_by).type) is None:
        raise ConfigError(
            "sequence_by",
            sequence_by,
            f"it is of type {schema.field(sequence_by).type}, and an order is a number without fixed decimals, a "
            "string, a date or a timestamp",
            "Name another field",
        )


def _with_basis(
    done: Computed,
    entries: Sequence[Given],
    values: Mapping[int, OrderValue],
    entities: Mapping[Key, KnownEntity],
    average: float,
) -> SpreadComputed:
    its = {one.name: getattr(done, one.name) for one in fields(Computed)}
    return SpreadComputed(**its, given=entries, values=values, known=entities, average=average)


def _own_values(values: Sequence[object], type_: pa.DataType) -> list[OrderValue | None]:
    """What states' values are compared as, None for one that says nothing: a column may hold more than the type."""
    try:
        wide = pa.int64() if types.is_integer(type_) else type_
        found = order_values(pa.chunked_array([pa.array(values, wide)]))
    except (ValueError, TypeError, OverflowError):
        return [None] if len(values) == 1 else [_own_values([value], type_)[0] for value in values]
    return [None if place in found.problems else value for place, value in enumerate(found.values)]


def _higher(first: OrderValue | None, second: OrderValue) -> OrderValue:
    """The higher of two values, which are of one kind, numbers or texts, unless somebody else has written the first."""
    return second if first is None or isinstance(first, str) != isinstance(second, str) or first <= second else first  # type: ignore[operator]
