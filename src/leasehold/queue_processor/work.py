"""One worker's try at a message whose entity is held: handler and commit. `turns` has the lease, and what comes first.

Who may be doing what at the same time: any number of processes and threads may be at any line here with the same
message and entity. What happens when this thread stops for a minute (or for good) behind each line:

    state read         another holder may write meanwhile: then the commit finds another version, and does nothing
    handler called     so here. What the handler did elsewhere is done, and done again later: `event.fence`, `event.id`
    committed          the message is done for good. It comes again if it is not completed, and is passed by
"""

from __future__ import annotations

import math
from typing import Protocol

import pyarrow as pa

from leasehold.clock import Clock
from leasehold.entities.calling.calls import HandlerCalls
from leasehold.entities.calling.raised import RaisedElsewhere, described
from leasehold.entities.columns import columns_of
from leasehold.entities.handlers import EntityEvent, EntityHandler, Retry, compute
from leasehold.errors import LeaseholdError, LeaseLost, UsageError, may_pass
from leasehold.queue_processor.content import Content, sent_as
from leasehold.queue_processor.room import Ending, HeldMessage, Result
from leasehold.queue_processor.settings import QueueDelivery
from leasehold.queues.base import QueueMessage
from leasehold.sinks.messages import KeepsMessages, MessageChange, MessageName, MessageOutcome

_DESCRIPTION = 1_000  # characters of an error that a dead letter keeps: the service takes 4,096


class Hold(Protocol):
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
        sink: KeepsMessages,
        state: pa.Schema,
        *,
        settings: QueueDelivery,
        clock: Clock,
    ) -> None:
        self._queue, self._sink = queue, sink
        self._state, self._columns = state, columns_of(state)
        self._settings, self._clock = settings, clock
        self._calls = HandlerCalls(handler, settings.handler_timeout, math.inf)

    def close(self) -> None:
        """End the handler's processes, if it has any."""
        self._calls.close()

    def tried(self, held: HeldMessage, hold: Hold) -> Result:
        """One try at a message whose entity is held: handler and commit. Raises what no waiting mends."""
        return self.tried_message(held.message, held.content, held.delivery, hold)

    def tried_message(self, message: QueueMessage, content: Content, delivery: int, hold: Hold) -> Result:
        """The same of a message that need not be in hand; `delivery` says which try it is."""
        try:
            return self._applied(message, content, delivery, hold)
        except LeaseLost:
            return Result(Ending.BUSY)
        except UsageError as error:
            return _failed(error)
        except LeaseholdError as error:
            if not may_pass(error):
                raise
            return Result(Ending.AWAY, description=str(error))

    def name_of(self, message: QueueMessage) -> MessageName:
        """What the sink knows a message by."""
        sent = sent_as(message, self._settings.deduplicate_by, self._settings.deduplicate_for)
        return MessageName(self._queue, message.identity, message.sequence_number, message.enqueued_time, sent)

    def _applied(self, message: QueueMessage, content: Content, delivery: int, hold: Hold) -> Result:
        key, handler = content.key, self._calls.within(self._calls.limit())
        name = self.name_of(message)
        known = self._sink.read_message(self._state, key, name)
        if known.done:
            return Result(Ending.REPEATED)
        if known.behind:
            return Result(Ending.BEHIND)
        assert message.body is not None
        event = EntityEvent(
            key[0] if len(key) == 1 else key,
            message.body,
            content.row,
            self._queue,
            message.identity.partition("@")[2],
            message.sequence_number,
            message.enqueued_time,
            hold.fence,
            late=known.late,
            delivery=delivery,
        )
        hold.check()
        states = {} if known.state is None else {key: known.state}
        done = compute(handler, states, [(key, event, None)], self._columns)
        if done.rejected:
            return Result(Ending.REJECTED, "Rejected", done.rejected[0][1][:_DESCRIPTION])
        if done.error is not None:
            return _failed(done.error)
        change = done.changes.get(key)
        state = None if change is None else change.state
        hold.check()
        outcome = self._sink.apply_message(
            self._state,
            MessageChange(name, key, known.version, state, changes=change is not None),
            self._settings.remember,
        )
        if outcome is MessageOutcome.OVERTAKEN:
            return Result(Ending.BUSY)
        return Result(Ending.APPLIED if outcome is MessageOutcome.APPLIED else Ending.REPEATED)


def _failed(error: Exception) -> Result:
    after = error.after if isinstance(error, Retry | RaisedElsewhere) else None
    return Result(Ending.FAILED, description=described(error)[:_DESCRIPTION], after=after)
