"""What a message's entity is named by: where in the message its key stands."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.errors import ConfigError
from leasehold.queues.base import QueueMessage

KeyOf = Callable[[QueueMessage], str | None]


def key_by(stated: str) -> KeyOf:
    """The key of a message's entity: `session`, `partition-key`, `message-id`, or the name of a property."""
    match stated:
        case "session":
            return lambda message: message.session_id
        case "partition-key":
            return lambda message: message.partition_key
        case "message-id":
            return lambda message: message.message_id
        case "":
            raise ConfigError(
                "key", stated, "session, partition-key, message-id, or the name of a property", "Name one"
            )
        case _:
            return lambda message: message.properties.get(stated)
