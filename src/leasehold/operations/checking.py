"""What is looked at before a pipeline's first start, and what has to be done first: one finding each.

Owns the questions that need no Spark, and the time that each may take. Every question is asked in a thread of its own:
one that has no answer in time is a finding, and the thread is left behind, so that a part which is away holds up
nobody. Asked from the driver and, by the same functions, from a task. Nothing is made or changed, but for a presence
record of the time of the question, by which it is seen whether this user may write.

Concurrency: instances may be running; they see a presence without partitions for a moment, in a consumer group of its
own that nobody reads (`PROBE_GROUP`). Killed at any line, that record is left, and expires like that of an instance.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from leasehold.backends import masked
from leasehold.body_format import BodyFormat
from leasehold.errors import LeaseholdError, MissingDependency, Verdict
from leasehold.hubs import open_hub
from leasehold.hubs.base import Hub
from leasehold.model import (
    ConsumerGroup,
    OwnerId,
    PartitionProperties,
    PositionKind,
    Positions,
    Presence,
    RecordKind,
)
from leasehold.operations.asking_rights import asked_for, notes_of, said_of, summary_of
from leasehold.operations.rights import Use
from leasehold.ownership.unusable_records import MEANS
from leasehold.printable import counted, excerpt, span
from leasehold.queues import BACKENDS as QUEUES
from leasehold.queues import open_queue
from leasehold.registries import open_registry
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS
from leasehold.stores import Store, open_store
from leasehold.stores.base import TellsWhetherMade
from leasehold.stores.closing import close_store

TIMEOUT = 10.0
"""Seconds that a part has to answer."""
PROBE_GROUP = "leasehold-check"
"""The consumer group in which it is tried whether a store can be written to."""
DRIVER, TASK = "driver", "task"

_NO_HUB = ConsumerGroup("leasehold-check", "no-hub", PROBE_GROUP)  # nobody's records: of a hub that gave no answer


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about one part, asked from the driver or from a task; where it is not `ok`, what to do.

    ok       None: it was not looked at, since another part has to be mended before
    is_away  whether the part gave no answer
    """

    part: str
    place: str
    ok: bool | None
    said: str
    remedy: str = ""
    is_away: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class HubSeen:
    """What the hub has said of itself: whoever needs it has it from here, so that the hub is asked once.

    probe   the group in which it is tried whether a store can be written to
    begins  where a start begins in each partition of which nothing was read, but for those where `committed` decides
    """

    identity: str
    group: ConsumerGroup
    probe: ConsumerGroup
    partitions: Mapping[str, PartitionProperties]
    begins: Mapping[str, int] = field(default_factory=dict)


Look = Callable[[], Iterable[Finding]]


def not_looked_at(part: str, place: str, needs: str) -> Finding:
    """Of a part that could not be looked at: what is wrong is said once, by the part that it `needs`."""
    return Finding(part, place, None, f"not looked at: it needs the {needs}")


def asked(part: str, place: str, look: Look, timeout: float) -> list[Finding]:
    """What `look` finds, or that it failed, or that it had no answer within `timeout` seconds."""
    found: list[Finding] = []
    done = threading.Event()

    def run() -> None:
        try:
            for one in look():
                found.append(one)
        except LeaseholdError as error:
            failure = failed(part, place, " ".join(str(error).split()), getattr(error, "__notes__", ()))
            if error.verdict is Verdict.PASSES:
                failure = replace(failure, is_away=True)
            found.append(failure)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what was found
            found.append(failed(part, place, f"{type(error).__name__}: {error}", ()))
        done.set()

    threading.Thread(target=run, name=f"check {part}", daemon=True).start()
    if done.wait(timeout):
        return list(found)
    late = failed(part, place, f"gave no answer within {span(timeout)}", ())
    return [*found, replace(late, remedy="Start it, correct its URL, or wait longer: --timeout", is_away=True)]


def failed(part: str, place: str, text: str, notes: Iterable[str]) -> Finding:
    """A part that answered with an error."""
    return Finding(part, place, False, text, " ".join(notes) or "See the message")


def look_at_hub(
    url: str,
    place: str,
    group: str,
    tell: Callable[[HubSeen], None],
    *,
    start: Positions | None = None,
    share: Collection[str] | None = None,
    retention: float | None = None,
    timeout: float = TIMEOUT,
) -> Iterator[Finding]:
    """Whether the hub answers, its partitions, and for how long it keeps events. What it says else, `tell` is given.

    Without `start` only whether it answers. `share` are the partitions of a fixed share, `retention` what the file
    says.
    """
    hub = open_hub(url)
    try:
        known = hub.partition_properties()
        events = sum(max(0, one.end - one.begin) for one in known.values())
        seen = HubSeen(hub.identity, hub.consumer_group(group), hub.consumer_group(PROBE_GROUP), known)
        said = f"{counted(len(known), 'partition')} with {counted(events, 'event')}"
        yield Finding("hub", place, bool(known), said, "Add partitions")
        if start is None:
            tell(seen)
            return
        if unknown := sorted(set(share or ()) - known.keys()):
            said = f"the hub has no partition {', '.join(unknown)}"
            yield Finding("partitions", place, False, said, f"Correct ownership.partitions: {', '.join(known)}")
        concerned = [name for name in known if share is None or name in share]
        tell(replace(seen, begins={one: hub.resolve(one, start.of(one)) for one in concerned if _is_place(start, one)}))
        yield from _retention(hub, place, retention, timeout)
    finally:
        hub.close()


def _is_place(start: Positions, partition: str) -> bool:
    """Whether a position is one that the hub knows: `committed` is the stores' to know."""
    return start.of(partition).kind is not PositionKind.COMMITTED


def _retention(hub: Hub, place: str, stated: float | None, timeout: float) -> Iterator[Finding]:
    told = hub.retention(timeout)
    kept = stated if told is None else told
    if stated is not None and told is not None and stated > told:
        said = f"the file says that events are kept for {span(stated)}, and the hub keeps them for {span(told)}"
        yield Finding("retention", place, False, said, "Correct source.retention, or leave it out")
    elif kept is None:
        said = "the hub does not tell: `leasehold status` can warn of it if source.retention says it"
        yield Finding("retention", place, True, said)
    else:
        said = "no event is removed by its age" if math.isinf(kept) else f"events are kept for {span(kept)}"
        yield Finding("retention", place, True, said)


def look_at_receiver(url: str, place: str) -> Iterator[Finding]:
    """Whether the hub answers to which a handler's events go; of a queue, whether its URL can be read."""
    if url.partition("://")[0] in QUEUES:
        open_queue(url).close()
        yield Finding("outbox", place, True, f"events go to {masked(url)}, which is not asked")
        return
    hub = open_hub(url)
    try:
        yield Finding("outbox", place, True, f"{counted(len(hub.partition_ids()), 'partition')} to send to")
    finally:
        hub.close()


def look_at_registry(url: str, place: str) -> Iterator[Finding]:
    """Whether the registry of schemas answers, and lets this user ask."""
    open_registry(url).schemas([1])
    yield Finding("registry", place, True, "it gives schemas by their numbers")


def look_at_writer_schema(how: BodyFormat, place: str) -> Iterator[Finding]:
    """Whether the schema that bodies are written by can be read, and has their type."""
    try:
        from leasehold.formats.format_readers import check_writer_schema
    except ImportError as error:
        raise MissingDependency("reading bodies", how.format) from error
    check_writer_schema(how)
    yield Finding("bodies", place, True, f"their schema of {how.format.title()} can be read")


def look_at_sql(sql: str) -> Iterator[Finding]:
    """Whether the text of a query lacks columns that a start asks for. Only what is certain: no `*`, no such name."""
    names = [] if "*" in sql else [one for one in FENCE_COLUMNS if not re.search(rf"\b{one}\b", sql, re.IGNORECASE)]
    if names:
        said = f"sql does not give the columns {', '.join(names)}, by which a row is known to be an event's"
        remedy = f"Select them too: SELECT …, {', '.join(FENCE_COLUMNS)} FROM events"
        yield Finding("transform", DRIVER, False, said, remedy)


def look_at_rights(url: str, use: Use, file: str, *, timeout: float = TIMEOUT) -> Iterator[Finding]:
    """Whether this user has all the rights of the one list (`operations.rights`) that a run needs at a URL."""
    answer = asked_for(url, use, timeout=timeout)
    if answer.is_ready:
        yield Finding("rights", DRIVER, True, f"{masked(url)}: {summary_of(answer)}")
    for said, remedy in said_of(answer, file):
        yield Finding("rights", DRIVER, False, f"{masked(url)}: {said}", remedy)
    for said in notes_of(answer):
        yield Finding("rights", DRIVER, True, said)


def look_at_store(part: str, url: str, place: str, seen: HubSeen | None, *, timeout: float) -> Iterator[Finding]:
    """Whether a store answers, has what it keeps records in, and lets this user read and write. `timeout` of a call.

    Without what the hub has said, nothing is found of the records of its partitions.
    """
    store = open_store(url, timeout=timeout)
    try:
        if isinstance(store, TellsWhetherMade) and not store.is_made():
            said = f"nothing is at {masked(url)} yet: the first start makes it"
            yield Finding(part, place, True, f"{said}, or a user who may calls `leasehold init` before")
            return
        yield from _records(part, store, place, seen)
        if store.features.presence:
            probe, me = _NO_HUB if seen is None else seen.probe, str(OwnerId("check"))
            store.renew_ownership([], Presence(probe, me))
            store.withdraw_presence(probe, [me])
            yield Finding(part, place, True, "this user may write to it")
    finally:
        close_store(store)


def _records(part: str, store: Store, place: str, seen: HubSeen | None) -> Iterator[Finding]:
    """What a store has of the partitions of the hub."""
    if part == "checkpoint store":
        checkpoints = [*store.list_checkpoints(_NO_HUB if seen is None else seen.group)]
        if seen is not None:
            count = sum(one.partition in seen.partitions for one in checkpoints)
            said = f"it answers; {counted(count, 'checkpoint')} of consumer group {seen.group.name}"
            yield Finding(part, place, True, said)
        return
    listing = store.list_ownership(_NO_HUB if seen is None else seen.group)
    if seen is not None:
        owned = sum(bool(one.owner_id) and one.partition in seen.partitions for one in listing.records)
        said = f"it answers; partitions with an owner: {owned} of {len(seen.partitions)}"
        yield Finding(part, place, True, said)
        for one in listing.unreadable:
            if one.kind is RecordKind.OWNERSHIP and one.name in seen.partitions:
                said = f"the ownership record of partition {one.name} cannot be read ({excerpt(one.reason)})"
                yield Finding(part, place, True, f"{said}: {MEANS[one.kind]}")
