"""What groups, partitions and records are called on Azure.

Owns the way from our names to theirs and back. Promises that names which differ never meet, and that a plain
name is spelled as the official event processors spell it, so that both find one record:

- In Blob Storage .NET, Java, JavaScript and Python lower-case the whole name, Go and Rust write it as it is spelled
  (`as_spelled`). Where the namespace is an Event Hubs namespace lower case loses nothing, since Event Hubs itself does
  not tell `Flights` from `flights`: namespace, hub and group are lower-cased. Anywhere else (an embedded log, Kafka)
  case counts, and a capital is escaped. `$Default` is `$default` everywhere.
- A server that is reached as `HOST:PORT` is a namespace of that name to the others, but to Java, which leaves the port
  out: the colon stays, in a group that they may share.
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

_HOST = re.compile(r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\]):[0-9]+|[0-9]+(?:\.[0-9]+){3}|localhost", re.IGNORECASE)

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


def others_may_share(group: ConsumerGroup) -> bool:
    """Whether it may be a group of other SDKs' processors: of an event hub that goes by its plain name.

    Where all owners are ours, the name has the hub's creation time behind an `@`.
    """
    host = is_event_hubs(group.namespace) or _HOST.fullmatch(group.namespace) is not None
    return host and "@" not in group.hub


def blob_folder(group: ConsumerGroup, *, as_spelled: bool = False) -> str:
    """`namespace/hub/group` as the official processors spell it in the names of blobs."""
    if is_event_hubs(group.namespace) or others_may_share(group):
        parts = [group.namespace, group.hub, group.name]
        return "/".join(_as_others_do(part, as_spelled=as_spelled) for part in parts)
    name = {"$Default": "$default", "$default": "~24default"}.get(group.name) or encode(group.name, LOWER)
    return "/".join((encode(group.namespace, LOWER), encode(group.hub, LOWER), name))


def _as_others_do(part: str, *, as_spelled: bool) -> str:
    if as_spelled:
        return part if _HOST.fullmatch(part) else encode(part, ANY_CASE)
    return part.lower() if _HOST.fullmatch(part) else encode(part.lower(), LOWER)


def alike(folder: str, other: str) -> bool:
    """Whether two parts of a folder's name are one name, in other case or with other characters escaped."""
    return decode(folder).casefold() == decode(other).casefold()


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
