"""What a queue does with its messages, as a state machine: pure, with the time and the lock tokens as arguments.

Owns which messages there are, which of them are locked, and what happens when a lock, a life or a wait ends. A
subscription is such a queue too, and so are the dead letters of each. Sessions are in `sessions.py`.

    send, for later ──▶ SCHEDULED ──due──┐   ┌────────── abandon, lock ran out, released ─────────┐
    send ──────────────────────────────▶ ACTIVE ──receive──▶ locked ──complete──▶ gone            │
                                           │                   │ ├──────────────────────────────▶─┘
                                           ▼                   │ └──defer──▶ DEFERRED ──receive by number──▶ locked
                   gone, or dead letter, if expired            └──dead-letter, or delivered too often──▶ dead letter

1. Nothing happens by itself: each call first does what was due by `now` (milliseconds since the epoch, which the caller
   does not let go back). `next_due` says when something will be.
2. A message has a sequence number, which only rises; a scheduled one gets another when it becomes active, as the
   service documents. It keeps its number when it is dead-lettered.
3. The delivery count is of deliveries that failed: given up by the receiver, or by its lock running out. A delivery
   that was released, or whose session was closed, is not counted.
4. A message under a lock does not expire; it does when the lock ends without completion.
5. Whatever a call changes is in `drain`, once: who keeps messages elsewhere writes that down before anybody is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop
from typing import Any
from uuid import UUID

from leasehold_testkit.emulators.amqp.conditions import (
    ARGUMENT_ERROR,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    AmqpError,
)
from leasehold_testkit.emulators.service_bus.content import LONGEST_ID, Content
from leasehold_testkit.emulators.service_bus.queue_state import QueueState, Timer
from leasehold_testkit.emulators.service_bus.settings import QueueSettings
from leasehold_testkit.emulators.service_bus.stored import Lock, MessageState, QueuedMessage

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
FOREVER = 253_402_243_199_000
"""The until of a lock that ends with its session, in milliseconds: the end of the service's calendar."""
_LONGEST_LIFE = 922_337_203_685_477  # what the clients take for "for ever"


class Queue(QueueState):
    """One queue. `dead_letters` is the queue that takes what cannot be delivered; without it, it stays here."""

    def __init__(self, name: str, settings: QueueSettings, dead_letters: Queue | None = None) -> None:
        super().__init__(name, settings)
        self.dead_letters = dead_letters

    # time

    def next_due(self) -> int | None:
        """When something happens by itself, at the earliest."""
        return self._timers[0][0] if self._timers else None

    def advance(self, now: int) -> None:
        """Do what was due by now."""
        while self._timers and self._timers[0][0] <= now:
            at, kind, number = heappop(self._timers)
            message = self._messages.get(number)
            if message is None:
                continue
            if kind == Timer.LOCK.value:
                if message.lock is not None and message.lock.until <= now:
                    self._failed(message, now)
            elif kind == Timer.LIFE.value:
                if message.lock is None and message.state is MessageState.ACTIVE and message.expires == at:
                    self._expire(message, now)
            elif message.state is MessageState.SCHEDULED:
                self._remove(number)
                self._put(self._new(message.content, max(message.enqueued, at)))

    # senders

    def send(self, contents: Sequence[Content], now: int) -> list[int]:
        """Take messages, all or none; those whose time is yet to come wait for it. Return their sequence numbers.

        A duplicate is taken and dropped, as the service does: its number is 0.
        """
        self.advance(now)
        for content in contents:
            self._check(content)
        numbers = []
        for content in contents:
            if self._is_duplicate(content, now):
                numbers.append(0)
                continue
            if content.scheduled_for is not None and content.scheduled_for > now:
                message = self._scheduled(content, now, content.scheduled_for)
            else:
                message = self._new(content, now)
            self._put(message)
            numbers.append(message.sequence_number)
        return numbers

    def forwarded(self, content: Content, first_number: int, now: int) -> None:
        """Take a message from the topic. One that cannot be taken is a dead letter: its sender has been answered."""
        self.advance(now)
        message = replace(self._new(content, now), first_number=first_number)
        self._put(message)
        if self.settings.requires_session and content.session_id is None:
            self._bury(
                message, now, "Session ID is null", "A subscription that requires sessions takes no such message."
            )

    def cancel(self, numbers: Sequence[int], now: int) -> None:
        """Take scheduled messages back, all or none. Raises `AmqpError` where one is not scheduled (any more)."""
        self.advance(now)
        for number in numbers:
            message = self._messages.get(number)
            if message is None or message.state is not MessageState.SCHEDULED:
                raise AmqpError(MESSAGE_NOT_FOUND, f"{self.name} has no scheduled message {number}")
        for number in set(numbers):
            self._remove(number)

    # receivers

    def receive(
        self, most: int, now: int, token: Callable[[], UUID], *, delete: bool = False, session: str | None = None
    ) -> list[QueuedMessage]:
        """Lock the oldest messages that are free (of one session, where it is named), or remove them with `delete`."""
        self.advance(now)
        ready = self._ready.get(session, [])
        taken: list[QueuedMessage] = []
        while ready and len(taken) < most:
            number = heappop(ready)
            if self._is_free(number):
                taken.append(self._take(self._messages[number], now, token, delete=delete))
        if not ready:
            self._ready.pop(session, None)
        return taken

    def release_session(self, session: str, now: int, *, failed: bool) -> None:
        """Free what a session's receiver holds; `failed` counts it as a delivery that failed."""
        self.advance(now)
        held = [self._messages[number] for number in sorted(self._locked.values())]
        for message in held:
            if message.content.session_id == session:
                self._failed(message, now) if failed else self._give_back(message, now)

    def receive_deferred(
        self,
        numbers: Sequence[int],
        now: int,
        token: Callable[[], UUID],
        *,
        delete: bool = False,
        session: str | None = None,
    ) -> list[QueuedMessage]:
        """Lock deferred messages by their numbers, all or none."""
        self.advance(now)
        found = [self._messages.get(number) for number in dict.fromkeys(numbers)]
        wanted = [
            message
            for message in found
            if message is not None
            and message.state is MessageState.DEFERRED
            and message.lock is None
            and session in (None, message.content.session_id)
        ]
        if len(wanted) < len(found):
            raise AmqpError(
                MESSAGE_NOT_FOUND, f"{self.name} has not all of these as deferred messages, or one is locked"
            )
        return [self._take(message, now, token, delete=delete) for message in wanted]

    def peek(self, start: int, most: int, now: int, *, session: str | None = None) -> list[QueuedMessage]:
        """Look at messages of any state from a number on, in the order of numbers; nothing is locked."""
        self.advance(now)
        return self.listed(start, most, session=session)

    # settling

    def renew(self, tokens: Sequence[UUID], now: int) -> list[int]:
        """Hold messages for another lock duration from now; return until when. All or none."""
        if self.settings.requires_session:
            raise AmqpError(
                NOT_ALLOWED, f"{self.name} requires sessions: the session's lock is renewed, not a message's"
            )
        self.advance(now)
        held = [self._held(token) for token in tokens]
        until = now + self.lock_millis
        for message in held:
            assert message.lock is not None
            self._put(replace(message, lock=replace(message.lock, until=until)))
        return [until] * len(held)

    def complete(self, token: UUID, now: int) -> None:
        """The message has been processed: it is gone."""
        self.advance(now)
        self._remove(self._held(token).sequence_number)

    def abandon(self, token: UUID, now: int, changed: Mapping[Any, Any] | None = None) -> None:
        """The message could not be processed: it is free again, or dead-lettered if that was once too often."""
        self.advance(now)
        self._failed(self._changed(self._held(token), changed), now)

    def release(self, token: UUID, now: int) -> None:
        """The receiver has no use for the message: it is free again, as if it had not been delivered."""
        self.advance(now)
        self._give_back(self._held(token), now)

    def defer(self, token: UUID, now: int, changed: Mapping[Any, Any] | None = None) -> None:
        """The message waits until it is asked for by its sequence number."""
        self.advance(now)
        message = self._changed(self._held(token), changed)
        self._put(replace(message, lock=None, state=MessageState.DEFERRED))

    def dead_letter(
        self,
        token: UUID,
        now: int,
        reason: str | None,
        description: str | None,
        changed: Mapping[Any, Any] | None = None,
    ) -> None:
        """The message cannot be processed: it goes to the dead letters."""
        self.advance(now)
        self._bury(self._changed(self._held(token), changed), now, reason, description)

    def lose_locks(self, now: int) -> int:
        """End all locks, each as one that has run out; return how many there were."""
        self.advance(now)
        held = [self._messages[number] for number in sorted(self._locked.values())]
        for message in held:
            self._failed(message, now)
        return len(held)

    # transitions

    def _check(self, content: Content) -> None:
        if self.settings.requires_session and content.session_id is None:
            raise AmqpError(NOT_ALLOWED, f"{self.name} requires sessions: a message without a session id is refused")
        for name, value in (("message id", content.message_id), ("session id", content.session_id)):
            if value is not None and len(value) > LONGEST_ID:
                raise AmqpError(ARGUMENT_ERROR, f"a {name} has at most {LONGEST_ID} characters")

    def _is_duplicate(self, content: Content, now: int) -> bool:
        window = round(self.settings.duplicate_window * 1_000)
        if not window or content.message_id is None:
            return False
        for known, at in list(self._seen.items()):  # in the order of times
            if at + window > now:
                break
            del self._seen[known]
            self._changes.seen[known] = None
        if content.message_id in self._seen:
            return True
        self._seen[content.message_id] = self._changes.seen[content.message_id] = now
        return False

    def _new(self, content: Content, now: int) -> QueuedMessage:
        self.last_number += 1
        limits = [content.time_to_live or _LONGEST_LIFE]
        if self.settings.time_to_live is not None:
            limits.append(round(self.settings.time_to_live * 1_000))
        life = min(limits)
        return QueuedMessage(self.last_number, content, now, expires=now + life if life < _LONGEST_LIFE else None)

    def _scheduled(self, content: Content, now: int, at: int) -> QueuedMessage:
        self.last_number += 1
        return QueuedMessage(self.last_number, replace(content, scheduled_for=at), now, state=MessageState.SCHEDULED)

    def _held(self, token: UUID) -> QueuedMessage:
        number = self._locked.get(token)
        if number is None:
            what = "the lock has expired, or the message has been settled or is in another queue"
            raise AmqpError(MESSAGE_LOCK_LOST, f"the message of lock {token} in {self.name}: {what}")
        return self._messages[number]

    def _take(self, message: QueuedMessage, now: int, token: Callable[[], UUID], *, delete: bool) -> QueuedMessage:
        if delete:
            self._remove(message.sequence_number)
            return message
        until = FOREVER if self.settings.requires_session else now + self.lock_millis
        taken = replace(message, lock=Lock(token(), until))
        self._put(taken)
        return taken

    def _changed(self, message: QueuedMessage, changed: Mapping[Any, Any] | None) -> QueuedMessage:
        return replace(message, content=message.content.with_properties(changed)) if changed else message

    def _failed(self, message: QueuedMessage, now: int) -> None:
        count = message.delivery_count + 1
        message = replace(message, delivery_count=count)
        if self.dead_letters is not None and count >= self.settings.max_delivery_count:
            what = f"Message could not be consumed after {count} delivery attempts."
            self._bury(message, now, "MaxDeliveryCountExceeded", what)
        else:
            self._give_back(message, now)

    def _give_back(self, message: QueuedMessage, now: int) -> None:
        message = replace(message, lock=None)
        self._put(message)
        if message.expires is not None and message.expires <= now and message.state is MessageState.ACTIVE:
            self._expire(message, now)

    def _expire(self, message: QueuedMessage, now: int) -> None:
        if self.settings.dead_letter_expired and self.dead_letters is not None:
            self._bury(message, now, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            self._remove(message.sequence_number)

    def _bury(self, message: QueuedMessage, now: int, reason: str | None, description: str | None) -> None:
        if self.dead_letters is None:
            raise AmqpError(NOT_ALLOWED, f"{self.name} holds dead letters: there is nothing behind it")
        said = {name: text for name, text in ((REASON, reason), (DESCRIPTION, description)) if text is not None}
        self._remove(message.sequence_number)
        content = replace(message.content.with_properties(said), scheduled_for=None)
        buried = QueuedMessage(
            message.sequence_number, content, message.enqueued, source=self.name, first_number=message.first_number
        )
        self.dead_letters._put(buried)
