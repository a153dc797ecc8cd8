"""Which names a store on a server can keep, as pure functions: the same for all of them, so that records can move.

A name (of a namespace, hub, consumer group, partition or owner) has up to 512 bytes of UTF-8 and no NUL. Free
text that only people read is made fit instead of refused: an error message must not keep a partition from being
given up.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasehold.errors import ConfigError
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership
from leasehold.printable import shortened
from leasehold.stores.checkpoint_data import check_data

LONGEST_NAME = 512
"""Bytes of UTF-8: four names together fit in an index entry of Postgres."""

_SHOWN = 60


def check_name(field: str, name: str) -> None:
    """Refuse a name that not every store can keep. Raises `ConfigError`."""
    check_text(field, name, LONGEST_NAME)


def check_text(field: str, text: str, longest: int, *, shortest: int = 0) -> None:
    """Refuse text that not every store can keep, or of fewer or more bytes of UTF-8. Raises `ConfigError`."""
    if shortest <= len(text) <= longest and text.isascii() and "\0" not in text:
        return
    shown = shortened(text, _SHOWN)
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError(field, shown, "text that can be written as UTF-8", "It holds half a surrogate pair") from None
    if not shortest <= length <= longest:
        rule = f"{shortest} to {longest:,} bytes of UTF-8, and this is {length:,}"
        remedy = "Shorten it, or use a hash of it" if length else "Name it"
        raise ConfigError(field, shown, rule, remedy)
    if "\0" in text:
        raise ConfigError(field, shown, "text without a NUL character, which not every store can keep", "Leave it out")


def is_text(text: str, longest: int, *, shortest: int = 0) -> bool:
    """Whether every store can keep the text, and it has `shortest` to `longest` bytes of UTF-8."""
    try:
        check_text("text", text, longest, shortest=shortest)
    except ConfigError:
        return False
    return True


def check_group(group: ConsumerGroup) -> None:
    """Refuse a group whose names not every store can keep. Raises `ConfigError`."""
    check_name("namespace", group.namespace)
    check_name("hub", group.hub)
    check_name("consumer group", group.name)


def check_records(records: Iterable[Ownership | Checkpoint | Ask]) -> None:
    """Refuse records whose names not every store can keep, before anything is done. Raises `ConfigError`."""
    groups = set()
    for record in records:
        if record.group not in groups:
            check_group(record.group)
            groups.add(record.group)
        check_name("partition", record.partition)
        if isinstance(record, Checkpoint) and record.data:
            check_data(record.data)
        if isinstance(record, Ownership):
            check_name("owner id", record.owner_id)


def legible(text: str) -> str:
    """Text for people, without what a store could not keep."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{SYMBOL FOR NULL}")
