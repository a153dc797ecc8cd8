"""How long all calls of a batch may hang, together: the rules. Pure: no clock, since a time-out takes what it takes.

1. A call that has not answered within `timeout` seconds is ended. After that its event is passed by for the rest of
   the batch, also where the batch is computed again.
2. All that are ended in a batch take `at_most` seconds together, a third of `hand_over_timeout`: so a partition that
   somebody asks for is handed over, and not stolen. A call that might exceed that is not made, and its event waits.
   A call that goes on while others are called (`processes`) takes nothing of that.
3. Events that hung in an earlier batch may take half of that time, and one call in any case: so they do not hold up
   those that never have.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection
from typing import Any

from leasehold.config import check_seconds
from leasehold.errors import ConfigError
from leasehold.handlers.calling.raised import GoesOn, NotCalled, RaisedElsewhere, is_timeout
from leasehold.handlers.contract import EntityEvent, EntityHandler

SHARE = 3  # of `hand_over_timeout`: what hangs, what is computed beside, and the commit

Answers = Callable[[Any, EntityEvent], Any]


class TimeLimit:
    """What the calls of one batch have taken so far; without a `timeout` nothing is limited."""

    def __init__(self, timeout: float | None = None, at_most: float = math.inf) -> None:
        self._timeout = timeout or 0.0
        self._at_most = at_most if timeout else math.inf
        self._spent = 0.0
        self._hung: dict[str, RaisedElsewhere] = {}

    @property
    def spent(self) -> bool:
        """Whether no call may be made any more: rule 2."""
        return self._spent + self._timeout > self._at_most

    def check(self, event: EntityEvent, *, before: bool) -> None:
        """Raise `NotCalled`, or what ended the call for this event in this batch. `before`: it hung in an earlier."""
        known = self._hung.get(event.id)
        if known is not None:
            raise known
        half = before and self._spent > 0 and self._spent + self._timeout > self._at_most / 2
        if self.spent or half:
            raise NotCalled

    def note(self, event: EntityEvent, error: RaisedElsewhere) -> None:
        """A call was ended."""
        if not error.beside:
            self._spent += self._timeout
        self._hung[event.id] = error


def within(
    limit: TimeLimit,
    handler: EntityHandler,
    answers: Answers,
    before: Collection[int],
    goes_on: Callable[[EntityEvent, bool], None] | None = None,
) -> EntityHandler:
    """The handler, called by `answers`, which takes and returns states as dicts, as far as the limit allows.

    `goes_on` is told of an event whose call has not ended, and whether it has only begun.
    """

    @functools.wraps(handler.function)
    def called(state: Any, event: EntityEvent) -> Any:
        limit.check(event, before=event.sequence_number in before)
        try:
            return answers(state, event)
        except GoesOn as still:
            if goes_on is not None:
                goes_on(event, still.first)
            raise
        except RaisedElsewhere as error:
            if is_timeout(error):
                limit.note(event, error)
            raise

    return EntityHandler(called, handler.keys)


def check_timeout(timeout: float | None, hand_over_timeout: float) -> float:
    """The longest time-out of a call, in seconds. Raises `ConfigError` for a longer one, or one that is not above 0."""
    at_most = hand_over_timeout / SHARE
    if timeout is not None:
        check_seconds("handler_timeout", timeout)
        if timeout > at_most:
            raise ConfigError(
                "handler_timeout",
                timeout,
                f"at most a third of hand_over_timeout ({hand_over_timeout:g} s): a partition has to be handed over "
                "in time though a handler hangs",
                f"Give at most {at_most:g} s, or raise hand_over_timeout in all instances",
            )
    return at_most
