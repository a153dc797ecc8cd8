"""Whether a history of concurrent operations could have come from one that did them one after another.

Owns the search of Wing and Gong, with the memory of configurations that Lowe added: an operation takes effect
at one moment between its call and its return; which order of these moments fits all answers is tried out,
and no state is entered twice with the same operations behind it. PURE: a history in, a verdict out.

An operation without an answer (its reply was lost) may have taken effect at any time after its call, or never.
Linearizability is local: check each key's history for itself, which is what makes it affordable. A model
says what an operation does to a state and whether its answer fits; see `histories.py` for those of stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S")
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)

_AROUND = 8  # operations that a report shows


@dataclass(frozen=True, slots=True)
class Operation(Generic[A_co]):
    """One call: who made it, when it was sent and answered (on one clock; None: never), what was asked and said."""

    process: str
    called: int
    returned: int | None
    action: A_co


class Model(Protocol[S, A_contra]):
    """The sequential behaviour of one object. States are hashable values, and never None."""

    @property
    def initial(self) -> S:
        """The state before the first operation."""
        ...

    def step(self, state: S, action: A_contra, answered: bool) -> S | None:
        """The state after the action; None if its answer does not fit here.

        One that was not answered gives the state that it would have led to, None if it would have done nothing.
        """
        ...


class _Entry:
    """A call or a return, in a list from which an operation can be lifted out and put back."""

    __slots__ = ("after", "answer", "before", "is_call", "number")

    def __init__(self, number: int, *, is_call: bool) -> None:
        self.number = number
        self.is_call = is_call
        self.answer: _Entry | None = None  # of a call: its return
        self.before: _Entry | None = None
        self.after: _Entry | None = None

    def lift(self) -> None:
        for one in (self, self.answer):
            if one is not None:
                if one.before is not None:
                    one.before.after = one.after
                if one.after is not None:
                    one.after.before = one.before

    def put_back(self) -> None:
        for one in (self.answer, self):
            if one is not None:
                if one.before is not None:
                    one.before.after = one
                if one.after is not None:
                    one.after.before = one


def violation(operations: Sequence[Operation[A]], model: Model[S, A]) -> str | None:
    """Why no order of these operations fits, as a report for people. None if one does."""
    head = _list(operations)
    state, done = model.initial, 0
    waiting = sum(operation.returned is not None for operation in operations)
    seen: set[tuple[int, S]] = set()
    chosen: list[tuple[_Entry, S]] = []
    furthest: tuple[int, S, int] = (-1, state, 0)
    entry = head.after
    while waiting:
        assert entry is not None, "as long as an answered operation waits, its return is in the list"
        if entry.is_call:
            operation = operations[entry.number]
            new = model.step(state, operation.action, operation.returned is not None)
            after = done | 1 << entry.number
            if new is not None and (after, new) not in seen:
                seen.add((after, new))
                chosen.append((entry, state))
                entry.lift()
                state, done = new, after
                waiting -= entry.answer is not None
                entry = head.after
            else:
                entry = entry.after
            continue
        # The return of an operation that fits nowhere before it: what was chosen last was wrong.
        if len(chosen) > furthest[0]:
            furthest = (len(chosen), state, entry.number)
        if not chosen:
            return _report(operations, *furthest)
        entry, state = chosen.pop()
        entry.put_back()
        done &= ~(1 << entry.number)
        waiting += entry.answer is not None
        entry = entry.after
    return None


def _list(operations: Sequence[Operation[A]]) -> _Entry:
    """All calls and returns in the order of their times; at the same time calls first, so that they overlap."""
    moments: list[tuple[int, int, _Entry]] = []
    for number, operation in enumerate(operations):
        call = _Entry(number, is_call=True)
        moments.append((operation.called, 0, call))
        if operation.returned is not None:
            call.answer = _Entry(number, is_call=False)
            moments.append((operation.returned, 1, call.answer))
    moments.sort(key=lambda moment: moment[:2])
    head = last = _Entry(-1, is_call=False)
    for _, _, entry in moments:
        last.after, entry.before = entry, last
        last = entry
    return head


def _report(operations: Sequence[Operation[A]], fitted: int, state: object, stuck: int) -> str:
    ordered = sorted(operations, key=lambda one: one.called)
    place = ordered.index(operations[stuck])
    lines = [f"no order fits: after {fitted} of {len(operations)} operations the state was {state}, and this one fails"]
    for one in ordered[max(0, place - _AROUND) : place + _AROUND]:
        mark = "→" if one is operations[stuck] else " "
        lines.append(f"{mark} {one.process} [{one.called}, {one.returned}] {one.action}")
    return "\n".join(lines)
