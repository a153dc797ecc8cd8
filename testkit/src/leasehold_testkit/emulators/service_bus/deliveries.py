"""What a receiver gets, and what it says of it.

Owns a queued message as bytes, the delivery tag (the lock token), and what an outcome means: accepted completes,
released frees, modified abandons or defers, rejected dead-letters. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from leasehold_testkit.emulators.amqp.conditions import INVALID_FIELD, NOT_IMPLEMENTED, AmqpError
from leasehold_testkit.emulators.amqp.types import Described, Int, Timestamp, ULong
from leasehold_testkit.emulators.service_bus.content import delivered
from leasehold_testkit.emulators.service_bus.namespace import Entity
from leasehold_testkit.emulators.service_bus.queue import DESCRIPTION, REASON, Queue
from leasehold_testkit.emulators.service_bus.stored import QueuedMessage

_ACCEPTED, _REJECTED, _RELEASED, _MODIFIED = 0x24, 0x25, 0x26, 0x27
_NAMES = {
    "amqp:accepted:list": 0x24,
    "amqp:rejected:list": 0x25,
    "amqp:released:list": 0x26,
    "amqp:modified:list": 0x27,
}


def payload_of(message: QueuedMessage, until: int | None, *, in_answer: bool = False) -> bytes:
    """A message as a receiver gets it; `until` says otherwise than its lock how long it is held, as a session does.

    `in_answer`: it comes in an answer, without a delivery tag, so that Go's client looks for its lock token in it.
    """
    given: dict[str, object] = {
        "x-opt-sequence-number": message.sequence_number,
        "x-opt-enqueued-time": Timestamp(message.enqueued),
        "x-opt-message-state": Int(message.state),
    }
    if message.lock is not None:
        given["x-opt-locked-until"] = Timestamp(message.lock.until if until is None else until)
    if message.source is not None:
        given["x-opt-deadletter-source"] = message.source
    given["x-opt-enqueue-sequence-number"] = (
        message.sequence_number if message.first_number is None else message.first_number
    )
    token = {"x-opt-lock-token": message.lock.token} if in_answer and message.lock is not None else None
    return delivered(message.content, message.delivery_count, given, token)


def held_until(entity: Entity, session: str | None) -> int | None:
    """Until when the messages of a session are held; `None` where each has a lock of its own."""
    return None if session is None else entity.locks.until(session)


def tag_of(message: QueuedMessage) -> bytes | None:
    """The delivery tag; `None` for what is settled as it is sent."""
    return None if message.lock is None else message.lock.token.bytes_le


def settle(queue: Queue, tag: bytes, state: Any, now: int) -> Any:
    """Do what an outcome says of the delivery of a tag; return the outcome to answer with. Raises `AmqpError`."""
    if not isinstance(state, Described) or not isinstance(state.value, list) or len(tag) != 16:
        raise AmqpError(INVALID_FIELD, "an outcome is a described list")
    token = UUID(bytes_le=tag)
    name = state.descriptor
    code = int(name) if type(name) is ULong else _NAMES.get(str(name))
    values = state.value
    match code:
        case 0x24:
            queue.complete(token, now)
        case 0x25:
            reason, description = _why(values)
            queue.dead_letter(token, now, reason, description, {})
            return Described(ULong(0x25), [None])
        case 0x26:
            queue.release(token, now)
        case 0x27:
            changed = _item(values, 2)
            (queue.defer if _item(values, 1) is True else queue.abandon)(
                token, now, changed if isinstance(changed, dict) else None
            )
        case _:
            raise AmqpError(NOT_IMPLEMENTED, f"the outcome {name!r:.60} is not known here")
    return state


def _why(values: list[Any]) -> tuple[str | None, str | None]:
    """Why a receiver rejects a message: its own words, else those of its error."""
    error = _item(values, 0)
    stated = error.value if isinstance(error, Described) and isinstance(error.value, list) else []
    given = _item(stated, 2)
    said: Mapping[str, Any] = (
        {key.decode("ascii", "replace") if isinstance(key, bytes) else str(key): value for key, value in given.items()}
        if isinstance(given, dict)
        else {}
    )
    reason, description = said.get(REASON), said.get(DESCRIPTION, _item(stated, 1))
    return reason if type(reason) is str else None, description if type(description) is str else None


def _item(values: list[Any], at: int) -> Any:
    return values[at] if len(values) > at else None
