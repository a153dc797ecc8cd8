"""Messages of queues as values: what one is known by, what it makes of its entity, and what became of that.

The rules are in `sinks.beside.messages.contract`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MessageChange", "MessageName", "MessageOutcome", "MessageStep", "SentAs"]


@dataclass(frozen=True, slots=True)
class SentAs:
    """What its sender names a message by, as a digest, and for how many seconds another one of that name is the same.

    The seconds are counted from when the first took effect to when the other was enqueued.
    """

    digest: str
    remember: float


@dataclass(frozen=True, slots=True)
class MessageName:
    """Names a message for good. `identity` is unique in the queue; the others say where it stands there.

    `sent_as` is None for a message that is no other's duplicate.

    `enqueued_time` is in seconds since the epoch, by the service's clock.
    """

    queue: str
    identity: str
    sequence_number: int
    enqueued_time: float
    sent_as: SentAs | None = None


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


@dataclass(frozen=True, slots=True)
class MessageStep:
    """What messages of one queue make of one entity, one after the other (`Batch.of_messages`).

    schema    of the states
    changes   one at least; the version of each is one above that of the change before it
    remember  messages that were done more than this many seconds ago are forgotten, a few with each batch: not before
              this one was enqueued, whatever the clock of this process says
    """

    schema: pa.Schema
    changes: Sequence[MessageChange]
    remember: float


class MessageOutcome(StrEnum):
    """What became of a change."""

    APPLIED = "applied"
    DONE_BEFORE = "done before"
    OVERTAKEN = "overtaken"
    """Another message has changed the entity since its state was read, or an earlier one is parked: read it again."""
