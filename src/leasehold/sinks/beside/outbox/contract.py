"""What a sink promises of its outbox: events that handlers emit, kept until they are sent.

Owns the contract. A sink with the feature OUTBOX has an `outbox`, and its transaction emits (`WritesBeside`).

1. An event is put into the outbox by the batch that applies what emitted it (`Batch.outbox`), in its transaction, with
   the partition it came from, its cause and its place among what the cause emits. A batch whose range is refused, or
   that is outdated, puts nothing; so a batch that emits says which watermarks it was computed under
   (`Batch.read_under`).
2. The events of one partition are numbered in the order in which they took effect, and no number is ever given twice.
   That is the order to send them in.
3. An event is removed by who has sent it, under the lock of its partition's watermark and only if no higher owner level
   has been there. A former owner removes nothing: the next one sends what is left, and decides.
4. One that its receiver refuses for good is marked with the reason, stays, and is passed by from then on.
5. A reset leaves the outbox as it is: what was committed is sent, and what is emitted again has the same id. It is
   removed with what is forgotten of its entity.

Any number of threads and processes may read one partition's events at once. Who stops between reading and removing has
changed nothing.

An operator lists the events that their receiver has refused, sends them again, or drops them:

6. They are listed in the order of their numbers, each with the reason.
7. One that is to be sent again is marked no more. Its partition's owner sends it before what waits there, under the id
   that it had, and behind all that was sent since: also of its key.
8. One that is dropped is gone.

Any number of operators at once, beside senders: these touch none that is refused, and an operator none that is not. Who
stops at any line has changed nothing, or all that was asked for in one call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from leasehold.sinks.beside.kept_values import seconds
from leasehold.sinks.set_aside import OutboxCounts

__all__ = ["Outbox", "RefusedEvent", "WaitingEvent"]


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """An event of the outbox, under its number. `id` names it for good, and is the same however often it is sent.

    `unfit` says why it is none that can be sent: somebody else has written it, or what was there has been spoiled.
    """

    number: int
    id: str
    body: bytes
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    unfit: str | None = None


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """An event that its receiver has refused: which `hub` and `partition` its cause came from, since when it is in the
    outbox (seconds since 1970), and why it is refused."""

    event: WaitingEvent
    hub: str
    partition: str
    emitted_at: float
    reason: str


class Outbox(Protocol):
    """The outbox of one entity table. `check` comes first, but for what an operator does."""

    def check(self) -> None:
        """Make what is missing."""
        ...

    def waiting(self, hub: str, partition: str, at_most: int, size: int) -> list[WaitingEvent]:
        """The first events that wait of this partition, in order: this many, and no more once their bodies have `size`
        bytes. At least one, if there is one."""
        ...

    def lanes(self) -> list[tuple[str, str]]:
        """The hubs and partitions of which events wait."""
        ...

    def remove(self, hub: str, partition: str, owner_level: int, numbers: Collection[int]) -> bool:
        """Remove what was sent: rule 3. False, with nothing changed, if a higher level has been there."""
        ...

    def refuse(self, hub: str, partition: str, owner_level: int, number: int, reason: str) -> bool:
        """Mark what its receiver refuses for good: rule 4. False as `remove`."""
        ...

    def counts(self) -> OutboxCounts:
        """How much is there. Makes nothing."""
        ...

    def refused(self, limit: int, after: int = 0) -> list[RefusedEvent]:
        """At most `limit` refused events behind the number `after`: rule 6. Makes nothing."""
        ...

    def send_again(self, numbers: Collection[int]) -> int:
        """Let these be sent, as far as they are refused: rule 7. How many there were."""
        ...

    def drop_refused(self, numbers: Collection[int]) -> int:
        """Remove these, as far as they are refused: rule 8. How many there were."""
        ...


def id_of(hub: str, partition: str, sequence_number: int, place: int) -> str:
    """What names an emitted event for good: its cause, and its place among what the cause has emitted."""
    return f"{hub}/{partition}/{sequence_number}/{place}"


def text_of_properties(properties: Mapping[str, str]) -> str:
    """Properties as they are kept: a JSON object."""
    return json.dumps(dict(properties), ensure_ascii=False)


def waiting_event(
    number: int, hub: str, partition: str, cause: int, place: int, key: object, body: object, properties: object
) -> WaitingEvent:
    """An event as it was kept, whoever has written it: texts may come as UTF-8. Raises nothing."""
    name = id_of(hub, partition, cause, place)
    try:
        return WaitingEvent(number, name, _bytes(body), None if key is None else _text(key), _properties(properties))
    except (ValueError, RecursionError) as error:
        why = "its properties are nested too deep" if isinstance(error, RecursionError) else str(error)
        return WaitingEvent(number, name, b"", unfit=f"the outbox holds what no handler has emitted: {why}")


def refused_event(
    hub: object, partition: object, emitted_at: object, reason: object, number: int, *kept: object
) -> RefusedEvent:
    """An event as it was kept, whoever has written it: see `waiting_event`. Raises nothing."""
    texts = [one.decode(errors="replace") if isinstance(one, bytes) else str(one) for one in (hub, partition, reason)]
    event = waiting_event(number, texts[0], texts[1], *kept)  # type: ignore[arg-type]  # whatever it is
    return RefusedEvent(event, texts[0], texts[1], seconds(emitted_at), texts[2])


def _properties(kept: object) -> Mapping[str, str]:
    found = json.loads(_text(kept))
    if not isinstance(found, dict):
        raise ValueError("its properties are no JSON object")
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: object) -> str:
    found = value.decode() if isinstance(value, bytes) else value
    if not isinstance(found, str):
        raise ValueError("a key or a property is no text")
    found.encode()  # half a surrogate pair has no UTF-8
    return found


def _bytes(body: object) -> bytes:
    if not isinstance(body, bytes):
        raise ValueError("its body is no bytes")
    return body
