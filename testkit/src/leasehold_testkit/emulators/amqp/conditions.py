"""Error conditions of AMQP, and the error that carries one.

Owns the names by which the two ends of a connection tell each other what went wrong. `AmqpError` is what the
pure modules raise; whoever catches it decides whether a link, a session or the connection ends.
"""

from __future__ import annotations

DECODE_ERROR = "amqp:decode-error"
FRAMING_ERROR = "amqp:connection:framing-error"
CONNECTION_FORCED = "amqp:connection:forced"
ILLEGAL_STATE = "amqp:illegal-state"
INVALID_FIELD = "amqp:invalid-field"
INTERNAL_ERROR = "amqp:internal-error"
NOT_ALLOWED = "amqp:not-allowed"
NOT_FOUND = "amqp:not-found"
NOT_IMPLEMENTED = "amqp:not-implemented"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"
LINK_DETACH_FORCED = "amqp:link:detach-forced"
LINK_STOLEN = "amqp:link:stolen"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
SERVER_BUSY = "com.microsoft:server-busy"
TIMEOUT = "com.microsoft:timeout"
ARGUMENT_ERROR = "com.microsoft:argument-error"
DEAD_LETTER = "com.microsoft:dead-letter"
MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
MESSAGE_NOT_FOUND = "com.microsoft:message-not-found"
SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
SESSION_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"


class AmqpError(Exception):
    """Something that the peer is told of: a condition, and a sentence for people."""

    def __init__(self, condition: str, description: str) -> None:
        self.condition, self.description = condition, description
        super().__init__(f"{condition}: {description}")
