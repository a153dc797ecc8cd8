"""What a queue holds: the part of its state machine that only keeps account.

Owns the messages, which of them are locked, free, or waiting for a time, the states of sessions, and what has changed.
`Queue` decides; every change of a message goes through `_put` and `_remove` here. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from heapq import heappop, heappush, nsmallest
from uuid import UUID

from leasehold_testkit.emulators.service_bus.settings import QueueSettings
from leasehold_testkit.emulators.service_bus.stored import Changes, MessageState, QueuedMessage


class Timer(Enum):
    """What ends at a time: a lock, a life, a wait."""

    LOCK = 0
    LIFE = 1
    DUE = 2


class QueueState:
    """What there is in one queue."""

    def __init__(self, name: str, settings: QueueSettings) -> None:
        self.name, self.settings = name, settings
        self.last_number = 0
        """The highest sequence number that was ever given."""
        self._messages: dict[int, QueuedMessage] = {}
        self._locked: dict[UUID, int] = {}
        self._ready: dict[str | None, list[int]] = {}
        self._timers: list[tuple[int, int, int]] = []
        self._seen: dict[str, int] = {}
        self._session_states: dict[str, bytes] = {}
        self._changes = Changes()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def locked(self) -> int:
        """How many messages receivers hold now."""
        return len(self._locked)

    # from and to where messages are kept

    def drain(self) -> Changes:
        """What has changed since the last call."""
        changes, self._changes = self._changes, Changes()
        return changes

    def restore(
        self, messages: Iterable[QueuedMessage], seen: Mapping[str, int], states: Mapping[str, bytes], last_number: int
    ) -> None:
        """Begin with what was kept: messages in the order of sequence numbers, `seen` in that of times.

        Locks are as they were. Those of sessions are gone: their holders were links.
        """
        self.last_number = last_number
        self._seen, self._session_states = dict(seen), dict(states)
        for kept in messages:
            message = replace(kept, lock=None) if self.settings.requires_session else kept
            self._messages[message.sequence_number] = message
            self._arm(message)
            if message.lock is not None:
                self._locked[message.lock.token] = message.sequence_number
            elif message.state is MessageState.ACTIVE:
                self._make_ready(message)

    # looking

    @property
    def lock_millis(self) -> int:
        """The lock duration, in milliseconds."""
        return round(self.settings.lock_duration * 1_000)

    def listed(self, start: int, most: int, *, session: str | None = None) -> list[QueuedMessage]:
        """Look at messages of any state from a number on, in the order of numbers; nothing is locked."""
        numbers = (
            number
            for number, message in self._messages.items()
            if number >= start and session in (None, message.content.session_id)
        )
        return [self._messages[number] for number in nsmallest(most, numbers)]

    def _is_free(self, number: int) -> bool:
        message = self._messages.get(number)
        return message is not None and message.lock is None and message.state is MessageState.ACTIVE

    # sessions

    def free_sessions(self) -> dict[str, int]:
        """Sessions with a message that can be received, each with the number of the oldest."""
        found = {}
        for session, ready in self._ready.items():
            while ready and not self._is_free(ready[0]):
                heappop(ready)
            if ready and session is not None:
                found[session] = ready[0]
        return found

    def sessions(self) -> list[str]:
        """Sessions with messages or a state, in the order of their names."""
        with_messages = {message.content.session_id for message in self._messages.values()}
        return sorted({session for session in with_messages if session is not None} | set(self._session_states))

    def session_state(self, session: str) -> bytes | None:
        """What a receiver of the session has left there."""
        return self._session_states.get(session)

    def set_session_state(self, session: str, state: bytes | None) -> None:
        """Leave something for the next receiver of the session; `None` takes it away."""
        self._changes.session_states[session] = state
        if state is None:
            self._session_states.pop(session, None)
        else:
            self._session_states[session] = state

    # bookkeeping: all changes go through these two

    def _put(self, message: QueuedMessage) -> None:
        number = message.sequence_number
        before = self._messages.get(number)
        if before is not None and before.lock is not None:
            self._locked.pop(before.lock.token, None)
        self._messages[number] = self._changes.messages[number] = message
        if message.lock is not None:
            self._locked[message.lock.token] = number
        elif message.state is MessageState.ACTIVE:
            self._make_ready(message)
        self._arm(message)

    def _remove(self, number: int) -> None:
        before = self._messages.pop(number)
        if before.lock is not None:
            self._locked.pop(before.lock.token, None)
        self._changes.messages[number] = None

    def _make_ready(self, message: QueuedMessage) -> None:
        session = message.content.session_id if self.settings.requires_session else None
        heappush(self._ready.setdefault(session, []), message.sequence_number)

    def _arm(self, message: QueuedMessage) -> None:
        number = message.sequence_number
        if message.lock is not None:
            heappush(self._timers, (message.lock.until, Timer.LOCK.value, number))
        elif message.state is MessageState.SCHEDULED:
            assert message.content.scheduled_for is not None
            heappush(self._timers, (message.content.scheduled_for, Timer.DUE.value, number))
        elif message.expires is not None and message.state is MessageState.ACTIVE:
            heappush(self._timers, (message.expires, Timer.LIFE.value, number))
