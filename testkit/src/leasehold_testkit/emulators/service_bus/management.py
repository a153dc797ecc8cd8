"""The answers of `$cbs` and of an entity's `$management`.

Owns what a request asks for and what the answer says, as the service documents its operations (`com.microsoft:` renewal
of message and session locks, session state, peek, deferred messages, settling by lock token, scheduling, cancelling).
Any token of `$cbs` is good: this server knows no secrets. A request that cannot be answered gets a status that says so,
never an error on the link.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from leasehold_testkit.emulators.amqp.conditions import (
    ARGUMENT_ERROR,
    INTERNAL_ERROR,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    AmqpError,
)
from leasehold_testkit.emulators.amqp.messages import sections, value_message
from leasehold_testkit.emulators.amqp.types import Array, Int, Symbol, Timestamp
from leasehold_testkit.emulators.service_bus.content import content_of
from leasehold_testkit.emulators.service_bus.deliveries import held_until, payload_of
from leasehold_testkit.emulators.service_bus.namespace import Entity, Namespace
from leasehold_testkit.emulators.service_bus.queue import Queue
from leasehold_testkit.emulators.service_bus.stored import QueuedMessage

_STATUS = {
    MESSAGE_LOCK_LOST: 410,
    SESSION_LOCK_LOST: 410,
    MESSAGE_NOT_FOUND: 404,
    NOT_FOUND: 404,
    NOT_IMPLEMENTED: 501,
    SERVER_BUSY: 503,
    INTERNAL_ERROR: 500,
}
_MOST_PEEKED, _MOST_SESSIONS = 1_000, 100
_MOST_BYTES = 1 << 20
"""Of the messages of one answer, beside the first."""

Asked = Mapping[str, Any]
Holder = Callable[[str | None], object]


def accepted_token(payload: bytes) -> bytes:
    """The answer of `$cbs`. Raises `AmqpError` for a request that cannot be read."""
    status: dict[str, object] = {"status-code": Int(202), "status-description": "Accepted"}
    return value_message(_message_id(sections(payload).properties), status, {})


async def answer(payload: bytes, namespace: Namespace, entity: Entity, dead: bool, holder: Holder) -> bytes:
    """The answer of `$management`. Raises `AmqpError` for a request that cannot be read.

    `holder` finds the receiver by the name of its link.
    """
    request = sections(payload)
    message_id = _message_id(request.properties)
    stated = _by_name(request.application)
    operation = str(stated.get("operation", "")).removeprefix("com.microsoft:")
    try:
        if operation not in _OPERATIONS:
            raise AmqpError(NOT_IMPLEMENTED, f"there is no operation {operation!r:.80} here")
        if not isinstance(request.value, dict):
            raise AmqpError(ARGUMENT_ERROR, f"{operation} needs a map")
        asking = _Asking(
            namespace, entity, dead, _by_name(request.value), holder, _optional(stated, "associated-link-name")
        )
        value = await _OPERATIONS[operation](asking)
    except AmqpError as error:
        return _reply(message_id, _STATUS.get(error.condition, 400), error.description, {}, error.condition)
    if value is None:
        return _reply(message_id, 204, "No Content", {}, None)
    return _reply(message_id, 200, "OK", value, None)


class _Asking:
    """One request."""

    def __init__(
        self, namespace: Namespace, entity: Entity, dead: bool, question: Asked, holder: Holder, link: str | None
    ) -> None:
        self.namespace, self.entity, self.dead, self.asked = namespace, entity, dead, question
        self.holder, self.link = holder, link

    @property
    def queue(self) -> Queue:
        return self.entity.queue(self.dead)

    async def do(self, work: Callable[[int], Any]) -> Any:
        return await self.namespace.do(self.entity, work)

    def held_session(self) -> str | None:
        """The session that is named, if this receiver holds it; `None` where none is named."""
        session = _optional(self.asked, "session-id")
        if session is not None and self.queue.settings.requires_session:
            self.entity.locks.held(session, self.holder(self.link))
        return session

    def tokens(self) -> list[UUID]:
        found = self.asked.get("lock-tokens")
        if not isinstance(found, list) or not all(isinstance(token, UUID) for token in found):
            raise AmqpError(ARGUMENT_ERROR, "lock-tokens is an array of UUIDs")
        return found

    def numbers(self) -> list[int]:
        found = self.asked.get("sequence-numbers")
        if not isinstance(found, list) or not found or not all(type(number) is int for number in found):
            raise AmqpError(ARGUMENT_ERROR, "sequence-numbers is an array of longs, with at least one")
        return found

    def number(self, name: str, default: int | None = None) -> int:
        found = self.asked.get(name, default)
        if not isinstance(found, int) or isinstance(found, bool):
            raise AmqpError(ARGUMENT_ERROR, f"{name} is a number")
        return int(found)


async def _renew_lock(asking: _Asking) -> Any:
    tokens = asking.tokens()
    untils = await asking.do(lambda now: asking.queue.renew(tokens, now))
    return {"expirations": Array(Timestamp(until) for until in untils)}


async def _renew_session_lock(asking: _Asking) -> Any:
    session, holder = _session(asking.asked), asking.holder(asking.link)
    until = await asking.do(lambda now: asking.entity.locks.renew(session, holder, now))
    return {"expiration": Timestamp(until)}


async def _get_session_state(asking: _Asking) -> Any:
    _session(asking.asked)
    return await asking.do(lambda now: {"session-state": asking.queue.session_state(str(asking.held_session()))})


async def _set_session_state(asking: _Asking) -> Any:
    _session(asking.asked)
    state = asking.asked.get("session-state")
    if not isinstance(state, bytes | None):
        raise AmqpError(ARGUMENT_ERROR, "session-state is binary, or null")
    await asking.do(lambda now: asking.queue.set_session_state(str(asking.held_session()), state))
    return {}


async def _update_disposition(asking: _Asking) -> Any:
    tokens, status = asking.tokens(), asking.asked.get("disposition-status")
    changed = asking.asked.get("properties-to-modify")
    if not isinstance(changed, dict | None):
        raise AmqpError(ARGUMENT_ERROR, "properties-to-modify is a map")
    reason, what = _optional(asking.asked, "deadletter-reason"), _optional(asking.asked, "deadletter-description")

    def settle(now: int) -> None:
        asking.held_session()
        for token in tokens:
            match status:
                case "completed":
                    asking.queue.complete(token, now)
                case "abandoned":
                    asking.queue.abandon(token, now, changed)
                case "defered" | "deferred":
                    asking.queue.defer(token, now, changed)
                case "suspended":
                    asking.queue.dead_letter(token, now, reason, what, changed)
                case _:
                    raise AmqpError(ARGUMENT_ERROR, f"there is no disposition-status {status!r:.60}")

    await asking.do(settle)
    return {}


async def _peek_message(asking: _Asking) -> Any:
    start, most = asking.number("from-sequence-number", 0), asking.number("message-count", 1)
    session = _optional(asking.asked, "session-id")
    found: list[QueuedMessage] = await asking.do(
        lambda now: asking.queue.peek(start, max(0, min(most, _MOST_PEEKED)), now, session=session)
    )
    listed: list[dict[str, object]] = []
    size = 0
    for message in found:
        payload = payload_of(message, None)
        size += len(payload)
        if listed and size > _MOST_BYTES:
            break
        listed.append({"message": payload})
    return {"messages": listed} if listed else None


async def _receive_by_sequence_number(asking: _Asking) -> Any:
    numbers, mode = asking.numbers(), asking.number("receiver-settle-mode", 1)
    session = _optional(asking.asked, "session-id")

    def receive(now: int) -> Any:
        asking.held_session()
        found = asking.queue.receive_deferred(numbers, now, uuid4, delete=mode == 0, session=session)
        until = held_until(asking.entity, session)
        return [(message, payload_of(message, until, in_answer=True)) for message in found]

    found: list[tuple[QueuedMessage, bytes]] = await asking.do(receive)
    listed: list[dict[str, object]] = []
    for message, payload in found:
        token: dict[str, object] = {"lock-token": message.lock.token} if message.lock else {}
        listed.append({**token, "message": payload})
    return {"messages": listed}


async def _schedule_message(asking: _Asking) -> Any:
    listed = asking.asked.get("messages")
    if not isinstance(listed, list) or asking.dead:
        raise AmqpError(ARGUMENT_ERROR, "messages is a list, and for a queue or topic")
    contents = []
    for each in listed:
        encoded = _by_name(each).get("message") if isinstance(each, dict) else None
        if not isinstance(encoded, bytes):
            raise AmqpError(ARGUMENT_ERROR, "each of messages has a message, encoded")
        contents.append(content_of(encoded))
    numbers = await asking.do(lambda now: asking.queue.send(contents, now))
    return {"sequence-numbers": Array(numbers)}


async def _cancel_scheduled_message(asking: _Asking) -> Any:
    numbers = asking.numbers()
    await asking.do(lambda now: asking.queue.cancel(numbers, now))
    return {}


async def _get_message_sessions(asking: _Asking) -> Any:
    skip, top = asking.number("skip", 0), asking.number("top", _MOST_SESSIONS)
    sessions = await asking.do(lambda now: asking.queue.sessions())
    page = sessions[max(0, skip) :][: max(0, min(top, _MOST_SESSIONS))]
    return {"skip": Int(max(0, skip) + len(page)), "sessions-ids": Array(page)} if page else None


_OPERATIONS: dict[str, Callable[[_Asking], Awaitable[Any]]] = {
    "renew-lock": _renew_lock,
    "renew-session-lock": _renew_session_lock,
    "get-session-state": _get_session_state,
    "set-session-state": _set_session_state,
    "update-disposition": _update_disposition,
    "peek-message": _peek_message,
    "receive-by-sequence-number": _receive_by_sequence_number,
    "schedule-message": _schedule_message,
    "cancel-scheduled-message": _cancel_scheduled_message,
    "get-message-sessions": _get_message_sessions,
}


def _session(question: Asked) -> str:
    session = _optional(question, "session-id")
    if session is None:
        raise AmqpError(ARGUMENT_ERROR, "session-id names the session")
    return session


def _optional(question: Asked, name: str) -> str | None:
    value = question.get(name)
    return value if type(value) is str else None


def _by_name(values: Mapping[Any, Any]) -> dict[str, Any]:
    """The values of a map by names that some clients write as text and others as symbols or bytes."""
    return {
        key.decode("ascii", "replace") if isinstance(key, bytes) else str(key): _plain(value)
        for key, value in values.items()
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Symbol) else value


def _message_id(properties: Any) -> object:
    return properties[0] if properties else None


def _reply(message_id: object, status: int, description: str, value: object, condition: str | None) -> bytes:
    application: dict[str, object] = {"statusCode": Int(status), "statusDescription": description}
    if condition is not None:
        application["errorCondition"] = Symbol(condition)
    return value_message(message_id, application, value)
