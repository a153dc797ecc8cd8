"""What a sink keeps for messages of a queue: which are done, and at which version each entity's state is.

Owns the contract of an entity's step from one state to the next by one message:

1. `read_messages` gives the entity's state, its version and whether a message is done, as of one moment.
2. `Sink.apply` of a batch with `messages` writes the new state, the next version and that the message is done, in one
   transaction, and only if the message is not done and the version is still the one that was read.
   Messages of one entity may be read together, and what they make of it applied together: each of the state that the
   one before it has left. The first that is not applied ends it, and all behind it are `OVERTAKEN`: their states were
   computed from one that never was. Of the states only the last one is written. `UsageError` says that the table cannot
   hold it, with nothing changed.
3. A message of the queue that was `sent_as` one that is done counts as done, for as long as that says. Both see it:
   what the message was sent as is noted in the transaction of rule 2, by the first that takes effect.

So a message takes effect once, however often and wherever it comes, and what was computed from a state is applied to no
other. Any number of threads and processes may do both at once. Who stops between the two has done nothing; what it
brings later, after another has written, is `OVERTAKEN`. Who stops inside the second keeps other writers waiting until
their time-out; killed there, it has done nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold.sinks.rules.messages import MessageChange, MessageName, MessageOutcome, MessageStep, SentAs

if TYPE_CHECKING:
    pass

__all__ = [
    "KnownOfMessage",
    "MessageChange",
    "MessageName",
    "MessageOutcome",
    "MessageStep",
    "SentAs",
]


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
