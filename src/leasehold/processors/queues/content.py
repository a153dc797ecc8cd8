"""What a message says: its entity's key, and the fields of its body. Pure.

A message that cannot be read, or has no key, is `Unfit`: it never raises, and is dead-lettered with the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa

from leasehold.errors import ConfigError
from leasehold.formats.bodies import BodyReader
from leasehold.handlers.contract import EntityHandler
from leasehold.queues.base import QueueMessage
from leasehold.queues.keys import KeyOf, key_by
from leasehold.sinks.beside.messages.contract import SentAs

NO_BYTES, UNREADABLE, NO_KEY = "NoBytes", "Unreadable", "NoKey"


@dataclass(frozen=True, slots=True)
class MessageContent:
    """A message's entity, as the values of the handler's keys and as the key of its lease, and its fields."""

    key: tuple[Any, ...]
    lease_key: str
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a message cannot be given to a handler."""

    reason: str
    description: str


def lease_key_of(key: tuple[Any, ...]) -> str:
    """The key of an entity's lease."""
    return key[0] if len(key) == 1 and isinstance(key[0], str) else json.dumps(key)


def sent_as(message: QueueMessage, by: str | None, remember: float) -> SentAs | None:
    """What its sender names the message by, where `by` says that it stands; None where it stands nowhere."""
    if by is None:
        return None
    stated = message.message_id if by == "message_id" else message.properties.get(by)
    if not stated:
        return None
    return SentAs(hashlib.sha256(stated.encode("utf-8", "surrogatepass")).hexdigest(), remember)


class ContentReader:
    """Reads messages for a handler. `stated` is where the key stands; without it, in the body's fields.

    `check` raises `ConfigError` for what is not a key of a lease.
    """

    def __init__(
        self,
        handler: EntityHandler,
        bodies: BodyReader,
        state: pa.Schema,
        stated: str | KeyOf | None,
        check: Callable[[str], None],
    ) -> None:
        self._keys, self._bodies, self._check = handler.keys, bodies, check
        self._key_of = key_by(stated) if isinstance(stated, str) else stated
        for name in self._keys:
            self._check_column(name, state)

    def read(self, message: QueueMessage) -> MessageContent | Unfit:
        """What the message says."""
        return self.read_all([message])[0]

    def read_all(self, messages: Sequence[QueueMessage]) -> list[MessageContent | Unfit]:
        """What each of them says; many at once cost less."""
        read = self._bodies.read(pa.array([message.body for message in messages], pa.binary()))
        reasons = repeat(None) if read.reasons is None else read.reasons.to_pylist()
        return [self._content(*each) for each in zip(messages, read.columns.to_pylist(), reasons, strict=False)]

    def _content(self, message: QueueMessage, row: dict[str, Any], reason: str | None) -> MessageContent | Unfit:
        if message.body is None:
            return Unfit(
                NO_BYTES, "The message holds an AMQP value, or AMQP that cannot be read, and a handler reads bytes"
            )
        if reason is not None:
            return Unfit(UNREADABLE, reason)
        key = self._key(message, row)
        if isinstance(key, Unfit):
            return key
        lease_key = lease_key_of(key)
        try:
            self._check(lease_key)
        except ConfigError as error:
            return Unfit(NO_KEY, str(error))
        return MessageContent(key, lease_key, row)

    def _key(self, message: QueueMessage, row: dict[str, Any]) -> tuple[Any, ...] | Unfit:
        if self._key_of is None:
            missing = [name for name in self._keys if row[name] is None]
            if missing:
                return Unfit(NO_KEY, f"{missing[0]} is null, and names the entity")
            return tuple(row[name] for name in self._keys)
        try:
            key = self._key_of(message)
        except Exception as error:  # noqa: BLE001  a function of the user's, on what others sent
            return Unfit(NO_KEY, f"the function for the key raised {type(error).__name__}: {error}")
        if not isinstance(key, str) or not key:
            return Unfit(NO_KEY, "The message has no key of an entity where it is looked for")
        (name,) = self._keys
        if row.get(name) not in (None, key):
            return Unfit(NO_KEY, f"the body says that {name} is {row[name]!r}, and the message's key is {key!r}")
        row[name] = key
        return (key,)

    def _check_column(self, name: str, state: pa.Schema) -> None:
        of_body = self._bodies.schema
        if name not in state.names:
            raise ConfigError("state", ", ".join(state.names), f"the key {name} is not in it", "Add it")
        type_ = state.field(name).type
        if self._key_of is not None:
            if len(self._keys) != 1 or not pa.types.is_string(type_):
                rule = "one column of type STRING, where the key is not taken from the body"
                raise ConfigError("keys", ", ".join(self._keys), rule, "Name one, or leave key out")
        elif name not in of_body.names:
            raise ConfigError("schema", ", ".join(of_body.names), f"the key {name} is not in it", "Add it, or give key")
        if name in of_body.names and of_body.field(name).type != type_:
            raise ConfigError("keys", name, "of one type in schema and state", "Make it so")
        if not pa.types.is_string(type_) and not pa.types.is_integer(type_):
            raise ConfigError("keys", name, "a STRING or a whole number", "Make it so")
