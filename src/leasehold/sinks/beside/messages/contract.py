"""What a sink keeps for messages of a queue: which are done, and at which version each entity's state is.

Owns the contract of an entity's step from one state to the next by one message:

1. `read_message` gives the entity's state, its version and whether the message is done, as of one moment.
2. `apply_message` writes the new state, the next version and that the message is done, in one transaction, and only if
   the message is not done and the version is still the one that was read.
   Messages of one entity may be read together, and what they make of it applied together: each of the state that the
   one before it has left. The first that is not applied ends it, and all behind it are `OVERTAKEN`: their states were
   computed from one that never was.
3. A message of the queue that was `sent_as` one that is done counts as done, for as long as that says. Both see it:
   what the message was sent as is noted in the transaction of rule 2, by the first that takes effect.

So a message takes effect once, however often and wherever it comes, and what was computed from a state is applied to no
other. Any number of threads and processes may do both at once. Who stops between the two has done nothing; what it
brings later, after another has written, is `OVERTAKEN`. Who stops inside the second keeps other writers waiting until
their time-out; killed there, it has done nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.sinks.beside.messages.names import MessageName, SentAs
from leasehold.sinks.beside.messages.parking import ParkedMessages

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KeepsMessages", "KnownOfMessage", "MessageChange", "MessageName", "MessageOutcome", "SentAs"]


class MessageOutcome(StrEnum):
    """What became of a change."""

    APPLIED = "applied"
    DONE_BEFORE = "done before"
    OVERTAKEN = "overtaken"
    """Another message has changed the entity since its state was read, or an earlier one is parked: read it again."""


@dataclass(frozen=True, slots=True)
class KnownOfMessage:
    """What is known when a message comes.

    `late` says that the entity's last message from this queue has a higher sequence number, `behind` that an earlier
    one of the entity is parked (`sinks.beside.messages.parking`).
    """

    done: bool
    state: Mapping[str, Any] | None
    version: int
    late: bool
    behind: bool = False


@dataclass(frozen=True, slots=True)
class MessageChange:
    """What a message makes of the entity `key`, whose `version` was read.

    `state` has the columns of the schema, and None deletes the row; without `changes` the row stays as it is.
    """

    message: MessageName
    key: tuple[Any, ...]
    version: int
    state: Mapping[str, Any] | None = None
    changes: bool = True


class KeepsMessages(Protocol):
    """What a sink may do beside: apply messages of queues, each once, and park them. `check_messages` comes first."""

    def check_messages(self, schema: pa.Schema) -> None:
        """Make what is missing, for states of this schema.

        Raises `ConfigError` for a table that a hub's events fill, or with constraints other than its keys, and
        `SchemaMismatch`.
        """
        ...

    def read_message(self, schema: pa.Schema, key: tuple[Any, ...], message: MessageName) -> KnownOfMessage:
        """See rule 1. A key has the values of the key columns, in the order of the spec."""
        ...

    def read_messages(
        self, schema: pa.Schema, key: tuple[Any, ...], messages: Sequence[MessageName]
    ) -> list[KnownOfMessage]:
        """The same of one or more messages of one queue and entity, all as of one moment."""
        ...

    def apply_message(self, schema: pa.Schema, change: MessageChange, remember: float) -> MessageOutcome:
        """See rule 2. What was returned for is on disk.

        Messages that were done more than `remember` seconds ago are forgotten, a few with each call: not before this
        one was enqueued, whatever the clock of this process says. Raises
        `UsageError` for a state that the table cannot hold, with nothing changed.
        """
        ...

    def apply_messages(
        self, schema: pa.Schema, changes: Sequence[MessageChange], remember: float
    ) -> list[MessageOutcome]:
        """The same of one or more changes of one queue and entity, in one transaction; an outcome for each.

        The version of each is one above that of the change before it. Of the states only the last one is written.
        """
        ...

    @property
    def parked_messages(self) -> ParkedMessages:
        """Its parked messages."""
        ...
