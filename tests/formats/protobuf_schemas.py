"""Messages of Protobuf that the official runtime has written, by schemas as people write them."""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from leasehold.formats.protobuf.schemas import message_type, read_file
from leasehold.registries.contract import Files

IMPORTS = """
import "google/protobuf/any.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto"; import "google/type/date.proto"; import "google/type/decimal.proto";
import "google/type/timeofday.proto"; import "confluent/type/decimal.proto";
"""


def proto(*fields: str, more: str = "", syntax: str = "proto3") -> str:
    """A file with the message `M` of these fields, numbered from 1, beside an enum and a few others."""
    numbered = "\n".join(f"{field}= {number};" if "{" not in field else field for number, field in enumerate(fields, 1))
    return f"""syntax = "{syntax}"; package p; {IMPORTS}
    enum Status {{ UNKNOWN = 0; LATE = 1; LANDED = 2; }}
    {more}
    message M {{ {numbered} }}"""


@functools.lru_cache(maxsize=256)
def message_class(text: str, name: str = "p.M", files: Files = ()) -> Any:
    """The runtime's class of the messages of this type, in a file that may import these `files`."""
    return GetMessageClass(message_type(read_file(text, files), name))


def encoded(text: str, value: dict[str, Any], name: str = "p.M") -> bytes:
    """A message with these fields, as Protobuf's JSON has them."""
    message = message_class(text, name)()
    body: bytes = json_format.ParseDict(value, message).SerializeToString(deterministic=True)
    return body
