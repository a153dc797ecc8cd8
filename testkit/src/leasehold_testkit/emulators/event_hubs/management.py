"""The answers of `$cbs` and `$management`.

Owns what a request asks for and what the answer says: any token is good (this server knows no secrets), and
a hub or partition is described as it is now. A request that cannot be answered gets a status that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leasehold_testkit.emulators.amqp.conditions import NOT_FOUND, AmqpError
from leasehold_testkit.emulators.amqp.messages import sections, value_message
from leasehold_testkit.emulators.amqp.types import Array, Int, Timestamp
from leasehold_testkit.emulators.event_hubs.addresses import CBS
from leasehold_testkit.emulators.event_hubs.hosting import HostedHub

_HUB, _PARTITION = "com.microsoft:eventhub", "com.microsoft:partition"


async def answer(node: str, payload: bytes, hub_named: Callable[[str], HostedHub]) -> bytes:
    """The answer to a request, as the sections of a message. Raises `AmqpError` for one that cannot be read."""
    request = sections(payload)
    message_id = request.properties[0] if request.properties else None
    if node == CBS:
        return _reply(message_id, 202, "Accepted", None)
    try:
        value = await _described(request.application, hub_named)
    except AmqpError as error:
        missing = error.condition == NOT_FOUND
        return _reply(message_id, 404 if missing else 500, error.description, None)
    if value is None:
        return _reply(message_id, 400, "READ com.microsoft:eventhub or READ com.microsoft:partition", None)
    return _reply(message_id, 200, "OK", value)


async def _described(question: dict[Any, Any], hub_named: Callable[[str], HostedHub]) -> dict[str, object] | None:
    name, kind = question.get("name"), question.get("type")
    if question.get("operation") != "READ" or kind not in (_HUB, _PARTITION) or not isinstance(name, str):
        return None
    hosted = hub_named(name)
    if kind == _HUB:
        created_at, ids = await hosted.description()
        return {
            "name": name,
            "type": kind,
            "partition_count": len(ids),
            "created_at": Timestamp(created_at),
            "partition_ids": Array(ids),
            "georeplication_factor": Int(1),  # Go's client takes an answer without it for a broken one
        }
    partition = str(question.get("partition"))
    state = await hosted.state(partition)
    return {
        "name": name,
        "type": kind,
        "partition": partition,
        "begin_sequence_number": state.begin,
        "last_enqueued_sequence_number": state.end - 1,
        "last_enqueued_offset": state.last_offset,
        "last_enqueued_time_utc": Timestamp(state.last_enqueued),
        "is_partition_empty": state.begin == state.end,
    }


def _reply(message_id: object, status: int, description: str, value: object) -> bytes:
    application: dict[str, object] = {
        "status-code": Int(status),
        "status-description": description,
        "statusDescription": description,  # where the official Python client looks for it, for hubs
    }
    return value_message(message_id, application, value if value is not None else {})
