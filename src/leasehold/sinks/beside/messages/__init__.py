"""Messages of a queue, beside a table: which are done, and those that wait."""

from leasehold.sinks.beside.messages.contract import (
    KnownOfMessage,
    MessageChange,
    MessageName,
    MessageOutcome,
    MessageStep,
    SentAs,
)

__all__ = [
    "KnownOfMessage",
    "MessageChange",
    "MessageName",
    "MessageOutcome",
    "MessageStep",
    "SentAs",
]
