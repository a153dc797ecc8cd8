"""What a queue, a subscription and a topic are told when they are made.

Owns their settings with the service's names, defaults and limits of sense. Durations are in seconds here, and in
milliseconds everywhere below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from leasehold.config import check_number
from leasehold.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._~/-]{0,258}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How a queue, or a subscription, treats its messages. Raises `ConfigError` for a value that makes no sense."""

    lock_duration: float = 60.0
    """How long a receiver, or one of a session, holds what it has locked, in seconds."""
    max_delivery_count: int = 10
    """A message that has been given back, or whose lock has run out, this many times is dead-lettered."""
    requires_session: bool = False
    """Whether every message belongs to a session, and receivers take sessions."""
    duplicate_window: float = 0.0
    """For how long, in seconds, a message with the message id of an earlier one is dropped; 0 for not at all."""
    time_to_live: float | None = None
    """The longest time a message stays, in seconds, also where its sender says more; `None` for ever."""
    dead_letter_expired: bool = False
    """Whether a message that has outlived its time is dead-lettered; else it is dropped."""

    def __post_init__(self) -> None:
        for name in ("lock_duration", "max_delivery_count", "time_to_live"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, above=0)
        _check_window(self.duplicate_window)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic with its `subscriptions`, each of which gets every message. `duplicate_window` as of a queue."""

    subscriptions: Mapping[str, QueueSettings] = field(default_factory=dict)
    duplicate_window: float = 0.0

    def __post_init__(self) -> None:
        _check_window(self.duplicate_window)


def _check_window(seconds: float) -> None:
    check_number("duplicate_window", seconds, least=0, rule="seconds, or 0 for no detection", remedy="")


def check_name(kind: str, name: str) -> None:
    """Raise `ConfigError` for what cannot be the name of an entity."""
    if not _NAME.fullmatch(name) or "//" in name or (kind == "subscription" and "/" in name):
        rule = "1 to 260 letters, digits and . - _ ~ (in names of queues and topics also /), no mark first or last"
        raise ConfigError(kind, name, rule)
