"""Records as properties: what the official event processors read and write, and ours beside it.

Owns the keys. Both services keep a record as a few texts by key: the metadata of a blob, or the properties of
a table's entity. Official are `ownerid`, and `sequencenumber` with `offset`; every key of ours begins with
`leasehold`. An official write wipes ours, so each of them is optional: without them an ownership record has
no nonce, successor, failures or error, and its level is looked up in a record that nobody else writes.
Should a foreign write leave our keys behind, `leaseholdof` no longer names what stands there, and they do not count.

An official checkpoint must name an offset, a number at best, or other processors fail on it. Where ours has none that
they could read (a start that was resolved, not read; a hub without offsets), the official keys keep saying
the last place before it that they can read, or the beginning, and our keys the exact one: whoever reads only
the official ones may read events again and skips none. Values are printable ASCII, as HTTP headers need it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from leasehold.model import BEFORE_FIRST, HIGHEST, Ask, Checkpoint, ConsumerGroup, Ownership, Presence
from leasehold.stores.checkpoint_data import data_text, with_data

OWNER, NUMBER, OFFSET = "ownerid", "sequencenumber", "offset"
WRITE = "leaseholdwrite"
"""A text that is new with every write, so that a write whose answer was lost is known again."""

_OF, _LEVEL, _NONCE = "leaseholdof", "leaseholdlevel", "leaseholdnonce"
_SUCCESSOR, _CLAIMED_AT = "leaseholdsuccessor", "leaseholdclaimedat"
_FAILURES, _ERROR = "leaseholdfailures", "leaseholderror"
_NUMBER, _OFFSET, _DATA = "leaseholdsequencenumber", "leaseholdoffset", "leaseholddata"
_PIPELINE, _SINK = "leaseholdpipeline", "leaseholdsink"
_STRATEGY, _CAPACITY, _MAXIMUM, _CREATED = (
    *("leaseholdstrategy", "leaseholdcapacity"),
    *("leaseholdmaximum", "leaseholdcreated"),
)
_ASKER = "leaseholdasker"

LONGEST_ERROR = 4_000
"""Characters of a last error, as escaped, that are kept: the metadata of a blob has room for 8 KiB in all."""

Properties = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as it stands: its texts by key, its ETag and when it was last written, in the service's time."""

    properties: Properties
    etag: str
    modified: float


def to_header(text: str) -> str:
    """`text` as it is, if it is printable ASCII without spaces at its ends; else `~` and it percent-encoded."""
    if re.fullmatch(r"[!-}](?:[ -~]*[!-~])?", text):
        return text
    return "~" + quote(text, safe=" ", errors="surrogatepass").replace(" ", "%20")


def from_header(text: str) -> str:
    """What `to_header` was given."""
    return unquote(text[1:], errors="surrogatepass") if text.startswith("~") else text


_NO_NUMBER = ("None", "null", "undefined")  # as SDKs in several languages spell a number that they do not have


def _whole(text: str | None, otherwise: int) -> int:
    """The number in a text, or `otherwise` where there is none. Raises `ValueError` for anything else."""
    if not text or text in _NO_NUMBER:
        return otherwise
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise ValueError(f"{text[:40]!r} is no whole number")
    return int(text)


# Levels that nobody else writes


def level_properties(level: int) -> Properties:
    """The record that remembers an owner level when an official write has wiped it elsewhere."""
    return {_LEVEL: str(level)}


def read_level(stored: StoredRecord | None) -> int:
    """The owner level in such a record; 0 where there is none.

    One that cannot be read counts as none, and is replaced by the next level that is written: it is looked at only
    where another SDK's processor has wiped a level, and ownership and checkpoint each remember theirs.
    """
    try:
        level = _whole(stored.properties.get(_LEVEL), 0) if stored else 0
    except ValueError:
        return 0
    return level if 0 <= level <= HIGHEST else 0


# Ownership


def ownership_properties(record: Ownership) -> Properties:
    """An ownership record: `ownerid`, also where it is empty, and our keys as far as they say anything."""
    owner = to_header(record.owner_id) if record.owner_id else ""
    return {
        OWNER: owner,
        _OF: owner or "~",
        _LEVEL: str(record.owner_level),
        **({_NONCE: to_header(record.nonce)} if record.nonce else {}),
        **({_SUCCESSOR: to_header(record.successor)} if record.successor else {}),
        **({_CLAIMED_AT: str(record.claimed_at)} if record.claimed_at != BEFORE_FIRST else {}),
        **({_FAILURES: str(record.failures)} if record.failures else {}),
        **({_ERROR: to_header(record.last_error)} if record.last_error else {}),
    }


def fitting_error(error: str) -> str:
    """As much of the beginning of an error as a record can keep."""
    while len(to_header(error)) > LONGEST_ERROR:
        error = error[: len(error) * LONGEST_ERROR // len(to_header(error))]
    return error


def ownership_is_foreign(stored: StoredRecord) -> bool:
    """Whether another SDK's processor wrote this ownership record last."""
    return stored.properties.get(_OF) != (stored.properties.get(OWNER) or "~")


def read_ownership(group: ConsumerGroup, partition: str, stored: StoredRecord, remembered: int) -> Ownership:
    """The ownership record; `remembered` is its level if an official write has wiped it."""
    found = stored.properties
    owner = from_header(found.get(OWNER) or "")
    if ownership_is_foreign(stored):
        return Ownership(group, partition, owner, remembered, stored.etag, stored.modified)
    return Ownership(
        *(group, partition, owner, _whole(found.get(_LEVEL), remembered), stored.etag, stored.modified),
        nonce=from_header(found.get(_NONCE) or ""),
        successor=from_header(found.get(_SUCCESSOR) or ""),
        claimed_at=_whole(found.get(_CLAIMED_AT), BEFORE_FIRST),
        failures=_whole(found.get(_FAILURES), 0),
        last_error=from_header(found.get(_ERROR) or ""),
    )


# Checkpoints


def checkpoint_properties(checkpoint: Checkpoint, before: StoredRecord | None) -> Properties:
    """A checkpoint; `before` is the record whose place it takes."""
    number, offset = _official_place(checkpoint, before)
    exact = number == str(checkpoint.sequence_number) and offset == checkpoint.offset
    return {
        NUMBER: number,
        OFFSET: offset,
        _OF: f"{number}:{offset}",
        _LEVEL: str(checkpoint.owner_level),
        **({} if exact else {_NUMBER: str(checkpoint.sequence_number)}),
        **({} if exact or checkpoint.offset is None else {_OFFSET: to_header(checkpoint.offset)}),
        **({_DATA: data} if (data := data_text(checkpoint)) is not None else {}),
    }


def _official_place(checkpoint: Checkpoint, before: StoredRecord | None) -> tuple[str, str]:
    if checkpoint.offset is not None and _readable(checkpoint.offset):
        return str(checkpoint.sequence_number), checkpoint.offset
    if before is not None:
        number, offset = before.properties.get(NUMBER) or "", before.properties.get(OFFSET) or ""
        try:
            stands = _whole(number, checkpoint.sequence_number + 1)
        except ValueError:
            return str(BEFORE_FIRST), str(BEFORE_FIRST)
        # What another processor wrote for this very place stays as it is, if without an offset.
        if stands <= checkpoint.sequence_number and (_readable(offset) or stands == checkpoint.sequence_number):
            return number, offset
    return str(BEFORE_FIRST), str(BEFORE_FIRST)


def _readable(offset: str) -> bool:
    return offset != "no offset" and not offset.startswith("~") and to_header(offset) == offset


def checkpoint_is_foreign(stored: StoredRecord) -> bool:
    """Whether another SDK's processor wrote this checkpoint last."""
    found = stored.properties
    return found.get(_OF) != f"{found.get(NUMBER) or ''}:{found.get(OFFSET) or ''}"


def read_checkpoint(group: ConsumerGroup, partition: str, stored: StoredRecord, remembered: int) -> Checkpoint | None:
    """The checkpoint, or None if there is no place in the record.

    `remembered` is its level if an official write has wiped it. One with an offset alone cannot be ordered:
    it stands before the first event.
    """
    found = stored.properties
    if not checkpoint_is_foreign(stored) and _NUMBER in found:
        offset = from_header(found[_OFFSET]) if _OFFSET in found else None
        number = _whole(found[_NUMBER], BEFORE_FIRST)
        level = _whole(found.get(_LEVEL), remembered)
        return with_data(Checkpoint(group, partition, number, level, offset), found.get(_DATA))
    text = (found.get(OFFSET) or "").strip()
    known = None if text in ("", "no offset") else text
    number = _whole((found.get(NUMBER) or "").strip(), BEFORE_FIRST)
    if known is None and number == BEFORE_FIRST:
        return None
    level = remembered if checkpoint_is_foreign(stored) else _whole(found.get(_LEVEL), remembered)
    data = None if checkpoint_is_foreign(stored) else found.get(_DATA)
    return with_data(Checkpoint(group, partition, number, level, known), data)


# Presence, asks and bindings


def presence_properties(presence: Presence, created: float | None) -> Properties:
    """A presence record; `created` is None when it is written for the first time."""
    return {
        _PIPELINE: to_header(presence.pipeline),
        _STRATEGY: to_header(presence.strategy),
        _CAPACITY: repr(presence.capacity),
        **({} if presence.maximum is None else {_MAXIMUM: str(presence.maximum)}),
        **({} if created is None else {_CREATED: repr(created)}),
    }


def presence_created(stored: StoredRecord) -> float:
    """When a presence record was first written, in the service's time: now, if what it says cannot be read."""
    try:
        created = float(stored.properties.get(_CREATED) or stored.modified)
    except ValueError:
        return stored.modified
    return created if math.isfinite(created) else stored.modified


def read_presence(group: ConsumerGroup, owner_id: str, stored: StoredRecord) -> Presence:
    """The presence of an instance."""
    found = stored.properties
    return Presence(
        group,
        owner_id,
        from_header(found.get(_PIPELINE) or ""),
        from_header(found.get(_STRATEGY) or ""),
        float(found.get(_CAPACITY) or 1.0),
        int(found[_MAXIMUM]) if _MAXIMUM in found else None,
        float(found.get(_CREATED) or stored.modified),
        stored.modified,
        stored.etag,
    )


def ask_properties(ask: Ask) -> Properties:
    """An ask."""
    return {_LEVEL: str(ask.owner_level), _ASKER: to_header(ask.asker)}


def read_ask(group: ConsumerGroup, partition: str, stored: StoredRecord) -> Ask:
    """Who asks for a partition."""
    return Ask(
        group, partition, _whole(stored.properties.get(_LEVEL), 0), from_header(stored.properties.get(_ASKER) or "")
    )


def binding_properties(pipeline: str, sink: str) -> Properties:
    """What a group is tied to."""
    return {_PIPELINE: to_header(pipeline), _SINK: to_header(sink)}


def read_binding(stored: StoredRecord) -> tuple[str, str]:
    """The pipeline and the sink that a group is tied to."""
    found = stored.properties
    return from_header(found.get(_PIPELINE) or ""), from_header(found.get(_SINK) or "")
