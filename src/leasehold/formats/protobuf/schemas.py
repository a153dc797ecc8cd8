"""A schema of Protobuf, from its text to the descriptors that bodies are read by.

Owns which type of messages is meant, by its name or by its place in the file. `registries.protobuf` has the forms that
a schema may have; the runtime of Protobuf checks descriptors, and finds the names.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigError
from leasehold.printable import printable, shortened
from leasehold.registries.contract import Files
from leasehold.registries.protobuf import compiled

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor

_SHOWN = 200


@functools.lru_cache(maxsize=256)
def read_file(text: str, files: Files = ()) -> FileDescriptor:
    """The file of this text. Raises what `compiled` raises."""
    whole = base64.b64decode(compiled(text, files))
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, together = DescriptorPool(), FileDescriptorSet.FromString(whole)
    for one in together.file:
        pool.AddSerializedFile(one.SerializeToString())
    return pool.FindFileByName(together.file[-1].name)


def message_type(file: FileDescriptor, name: str | None) -> Descriptor:
    """The type of messages that is called `name`; without one, the only type of the file. Raises `ConfigError`."""
    if name is None:
        types = list(file.message_types_by_name.values())
        if len(types) == 1:
            return types[0]
        names = ", ".join(one.full_name for one in types)
        rule = f"the schema has these types of messages: {names}" if types else "the schema has no type of messages"
        raise ConfigError("message", None, printable(shortened(rule, _SHOWN)), "Name the type of the bodies")
    try:
        return file.pool.FindMessageTypeByName(name)
    except (KeyError, UnicodeError):
        remedy = "Give its whole name, with the package: flights.v1.Flight"
        raise ConfigError("message", name, "the schema has no such type of messages", remedy) from None


def type_at(file: FileDescriptor, places: Iterable[int]) -> Descriptor | None:
    """The type at this place among those of the file, then among the types within that one, and so on."""
    types: Any = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for place in places:
        if not 0 <= place < len(types):
            return None
        found = types[place]
        types = found.nested_types
    return found
