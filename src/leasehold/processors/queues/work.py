"""One worker's try at messages whose entity is held: handler and commit. `turns` has the lease, and what comes first.

Messages of an entity are committed together while that delays none of them for long: a handler that is slow has a
commit for each. Who stops before the commit has done none of them, and each is handled again.

Who may be doing what at the same time: any number of processes and threads may be at any line here with the same
message and entity. What happens when this thread stops for a minute (or for good) behind each line:

    state read         another holder may write meanwhile: then the commit finds another version, and does nothing
    handler called     so here, of each that is committed together. What the handlers did elsewhere is done, and done
                       again later: `event.fence`, `event.id`
    committed          the message is done for good. It comes again if it is not completed, and is passed by
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol

import pyarrow as pa

from leasehold.clock import Clock
from leasehold.errors import LeaseholdError, LeaseLost, UsageError, Verdict, is_waited_out
from leasehold.handlers.calling.calls import HandlerCalls
from leasehold.handlers.calling.raised import RaisedElsewhere, described
from leasehold.handlers.columns import columns_of
from leasehold.handlers.contract import EntityEvent, EntityHandler, Retry, compute
from leasehold.processors.queues.content import MessageContent, sent_as
from leasehold.processors.queues.messages_in_hand import Ending, HeldMessage, TryResult
from leasehold.processors.queues.settings import QueueDelivery
from leasehold.queues.base import QueueMessage
from leasehold.sinks.base import Sink
from leasehold.sinks.beside.messages.contract import (
    KnownOfMessage,
    MessageChange,
    MessageName,
    MessageOutcome,
    MessageStep,
)
from leasehold.sinks.features import STATES, require
from leasehold.sinks.rules.batch import Batch
from leasehold.told import Told

logger = logging.getLogger(__name__)

_TOGETHER = 0.2
"""Seconds of handling after which what has been handled is committed."""
_TOLD_AGAIN = 300.0
"""Seconds until it is said again that something is waited for, in the same words."""
_DESCRIPTION = 1_000  # characters of an error that a dead letter keeps: the service takes 4,096


class EntityHold(Protocol):
    """What keeps others from an entity: its lease, or a session's lock."""

    @property
    def fence(self) -> int:
        """Its number, which rises with each holder; 0 where it has none."""
        ...

    def check(self) -> None:
        """Raise `LeaseLost` once it is not trusted any more."""
        ...


class Work:
    """What workers share. Used from any thread."""

    def __init__(
        self,
        queue: str,
        handler: EntityHandler,
        sink: Sink,
        state: pa.Schema,
        *,
        settings: QueueDelivery,
        clock: Clock,
    ) -> None:
        self._queue, self._sink = queue, sink
        self._kept = require(sink, STATES, "a queue processor")
        self._state, self._columns = state, columns_of(state)
        self._settings, self._clock = settings, clock
        self._calls = HandlerCalls(handler, settings.handler_timeout, math.inf)
        self._told = Told(_TOLD_AGAIN)
        self.worked = False
        """Whether a message was applied: from then on, what a person has to mend is waited for."""

    def close(self) -> None:
        """End the handler's processes, if it has any."""
        self._calls.close()

    def tried(self, held: HeldMessage, hold: EntityHold) -> TryResult:
        """One try at a message whose entity is held: handler and commit. Raises what no waiting mends."""
        return self.tried_message(held.message, held.content, held.delivery, hold)

    def tried_message(
        self, message: QueueMessage, content: MessageContent, delivery: int, hold: EntityHold
    ) -> TryResult:
        """The same of a message that need not be in hand; `delivery` says which try it is."""
        try:
            return self._applied([_Try(message, content, delivery)], hold, lambda place: False)[0]
        except UsageError as error:
            return _failed(error)

    def tried_together(
        self, held: Sequence[HeldMessage], hold: EntityHold, stopping: Callable[[], bool]
    ) -> list[TryResult]:
        """Tries at messages of one entity that are committed together: the first, and as many behind it as may be.

        A result for each that was tried; only the last of them may be one that nothing goes on behind. The first is
        trusted; one whose lock is not any more is left out, with all behind it.
        """

        def ends(place: int) -> bool:
            return stopping() or not held[place].trusted(self._clock.monotonic())

        try:
            return self._applied([_Try(each.message, each.content, each.delivery) for each in held], hold, ends)
        except UsageError as error:
            if len(held) == 1:
                return [_failed(error)]
        results = [self.tried(held[0], hold)]  # the table does not hold the state of one of them: which one?
        while results[-1].goes_on and len(results) < len(held) and not ends(len(results)):
            results.append(self.tried(held[len(results)], hold))
        return results

    def away(self, error: LeaseholdError) -> TryResult:
        """The result where a store or the sink is waited for, which is said now and then. Else raises the error."""
        if not is_waited_out(error, worked=self.worked):
            raise error
        if self._told.is_news(None, str(error), self._clock.monotonic()):
            logger.warning("%s; waiting for it", str(error))  # the error would keep the connection alive
        return TryResult(Ending.AWAY, description=str(error))

    def name_of(self, message: QueueMessage) -> MessageName:
        """What the sink knows a message by."""
        sent = sent_as(message, self._settings.deduplicate_by, self._settings.deduplicate_for)
        return MessageName(self._queue, message.identity, message.sequence_number, message.enqueued_time, sent)

    def _applied(self, tries: Sequence[_Try], hold: EntityHold, ends: Callable[[int], bool]) -> list[TryResult]:
        """Try the first, and those that may be committed with it. Raises `UsageError` for what no table holds."""
        try:
            names = [self.name_of(each.message) for each in tries]
            known = self._kept.read_messages(self._state, tries[0].content.key, names)
            if repeated := len(list(takewhile(lambda each: each.done, known))):
                return [TryResult(Ending.REPEATED)] * repeated
            if known[0].behind:
                return [TryResult(Ending.BEHIND)]
            changes, last = self._handled(tries, names, known, hold, ends)
            return self._committed(changes, hold, last) if changes else [last] if last else []
        except LeaseLost:
            return [TryResult(Ending.BUSY)]
        except UsageError:
            raise
        except LeaseholdError as error:
            if error.verdict is Verdict.ROWS:  # such as a row that only the commit refuses
                raise UsageError(str(error)) from error
            return [self.away(error)]

    def _handled(
        self,
        tries: Sequence[_Try],
        names: Sequence[MessageName],
        facts: Sequence[KnownOfMessage],
        hold: EntityHold,
        ends: Callable[[int], bool],
    ) -> tuple[list[MessageChange], TryResult | None]:
        """What the handler makes of them, and of the one that it has rejected or failed at the result."""
        changes: list[MessageChange] = []
        state, version, until = facts[0].state, facts[0].version, self._clock.monotonic() + _TOGETHER
        sent: set[str] = set()
        last = (-math.inf, 0)
        for place, (each, name, of) in enumerate(zip(tries, names, facts, strict=True)):
            again = name.sent_as is not None and name.sent_as.digest in sent
            long = self._clock.monotonic() >= until
            if changes and (of.done or of.behind or again or long or ends(place)):
                break
            message = each.message  # the first of a line stays that, also if an earlier one comes
            late = of.late or (last[0] >= message.enqueued_time and last[1] > message.sequence_number)
            made = self._computed(each, state, hold, late=late)
            if isinstance(made, TryResult):
                return changes, made
            changed, new = made
            changes.append(MessageChange(name, each.content.key, version, new, changes=changed))
            state, version = new if changed else state, version + 1
            last = max(last, (message.enqueued_time, message.sequence_number))
            sent |= set() if name.sent_as is None else {name.sent_as.digest}
        return changes, None

    def _computed(
        self, try_: _Try, state: Mapping[str, Any] | None, hold: EntityHold, *, late: bool
    ) -> TryResult | tuple[bool, Mapping[str, Any] | None]:
        """Whether the handler changes the state, and to what; or how it has rejected the message, or failed."""
        message, key, handler = try_.message, try_.content.key, self._calls.within(self._calls.limit())
        assert message.body is not None
        event = EntityEvent(
            key[0] if len(key) == 1 else key,
            message.body,
            try_.content.row,
            self._queue,
            message.identity.partition("@")[2],
            message.sequence_number,
            message.enqueued_time,
            hold.fence,
            late=late,
            delivery=try_.delivery,
        )
        hold.check()
        states = {} if state is None else {key: state}
        done = compute(handler, states, [(key, event, None)], self._columns)
        if done.rejected:
            return TryResult(Ending.REJECTED, "Rejected", done.rejected[0][1][:_DESCRIPTION])
        if done.error is not None:
            return _failed(done.error)
        change = done.changes.get(key)
        return change is not None, None if change is None else change.state

    def _committed(self, changes: Sequence[MessageChange], hold: EntityHold, last: TryResult | None) -> list[TryResult]:
        """The results of those that were handled, and of the `last`, which comes behind them."""
        hold.check()
        step = MessageStep(self._state, changes, self._settings.remember)
        outcomes = self._sink.apply(Batch.of_messages(step)).messages
        applied = list(takewhile(lambda each: each is MessageOutcome.APPLIED, outcomes))
        results = [TryResult(Ending.APPLIED)] * len(applied)
        self.worked = self.worked or bool(applied)
        if len(applied) == len(outcomes):
            return results if last is None else [*results, last]
        overtaken = outcomes[len(applied)] is MessageOutcome.OVERTAKEN
        return [*results, TryResult(Ending.BUSY if overtaken else Ending.REPEATED)]


@dataclass(frozen=True, slots=True)
class _Try:
    """One try at a message, and which one it is."""

    message: QueueMessage
    content: MessageContent
    delivery: int


def _failed(error: Exception) -> TryResult:
    after = error.after if isinstance(error, Retry | RaisedElsewhere) else None
    return TryResult(Ending.FAILED, description=described(error)[:_DESCRIPTION], after=after)
