"""What groups, partitions and records are called on Azure.

Owns the way from our names to theirs and back. Promises that names which differ never meet, and that a plain
name is spelled as the official event processors spell it, so that both find one record:

- In Blob Storage they lower-case the whole name. Where the namespace is an Event Hubs namespace that loses
  nothing, since Event Hubs itself does not tell `Flights` from `flights`: namespace, hub and group are
  lower-cased. Anywhere else (an embedded log, Kafka) case counts, and a capital is escaped. `$Default` is
  `$default` everywhere.
- In Tables they keep the case and put spaces between the parts: case is kept, and a space is escaped.
- Every other character is escaped as `~` and two hexadecimal digits for each byte of its UTF-8: `~` is in no
  name of an Event Hubs namespace, event hub, consumer group or partition. An empty name is `~` alone.

Refuses names that are longer than the service can keep, with a `ConfigError`.
"""

from __future__ import annotations

import re

from leasehold.errors import ConfigError
from leasehold.model import ConsumerGroup

LOWER = re.compile(r"[a-z0-9._$-]")
"""The characters that a blob's name keeps as they are."""

ANY_CASE = re.compile(r"[A-Za-z0-9._$-]")
"""The characters that the keys of a table's entity keep as they are."""

LONGEST_BLOB_NAME = 1024
LONGEST_TABLE_KEY = 512  # 1 KiB of UTF-16


def encode(name: str, plain: re.Pattern[str]) -> str:
    """`name` with everything escaped that is not plain. A dot at the end is escaped too: services drop it."""
    if not name:
        return "~"
    last = len(name) - 1
    return "".join(
        one if plain.fullmatch(one) and not (one == "." and place == last) else _escaped(one)
        for place, one in enumerate(name)
    )


def _escaped(character: str) -> str:
    return "".join(f"~{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def decode(text: str) -> str:
    """The name that was encoded as `text`; a text that nobody of us encoded, as it is."""
    if text == "~":
        return ""
    try:
        raw = re.sub(rb"~([0-9a-f]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode())
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return text


def is_event_hubs(namespace: str) -> bool:
    """Whether a namespace is one of Event Hubs, in whatever cloud: `NAME.servicebus.windows.net`."""
    return re.fullmatch(r"[a-z0-9-]+\.servicebus\.[a-z0-9.]+", namespace, re.IGNORECASE) is not None


def blob_folder(group: ConsumerGroup) -> str:
    """`namespace/hub/group` as the official processors spell it in the names of blobs."""
    if is_event_hubs(group.namespace):
        parts = [part.lower() for part in (group.namespace, group.hub, group.name)]
        return "/".join(encode(part, LOWER) for part in parts)
    name = {"$Default": "$default", "$default": "~24default"}.get(group.name) or encode(group.name, LOWER)
    return "/".join((encode(group.namespace, LOWER), encode(group.hub, LOWER), name))


def table_key(group: ConsumerGroup) -> str:
    """`namespace hub group` as the official processors spell it in the keys of a table."""
    return " ".join(encode(part, ANY_CASE) for part in (group.namespace, group.hub, group.name))


def check_length(what: str, name: str, longest: int) -> str:
    """`name`, unless it is longer than the service can keep. Raises `ConfigError`."""
    if len(name) > longest:
        raise ConfigError(
            what,
            f"{name[:60]}…",
            f"at most {longest:,} characters, and this is {len(name):,} (what is not a plain letter, digit or one "
            "of . _ - takes three or more)",
            "Use shorter names",
        )
    return name
