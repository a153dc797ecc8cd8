"""In which format `leasehold send` writes rows, where it is not JSON: by which schema, and behind which number.

Owns what the options for it say together. A schema is read, and registered, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from leasehold.backends import masked
from leasehold.body_format import schema_text
from leasehold.cli.options.waiting import said_when_slow
from leasehold.cli.rows.row_file import FileRows, RowFile
from leasehold.errors import ConfigError, MissingDependency
from leasehold.settings.names import naming

if TYPE_CHECKING:
    from leasehold.formats.avro.writing import AvroWriter
    from leasehold.formats.protobuf.writing import ProtobufWriter

BodyWriter = Callable[[pa.Array], tuple[pa.Array, int | None, str]]
"""As `TypedWriter.write`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFormat:
    """What the options say: the file of a schema of Avro or of Protobuf, a type of messages, a registry's URL.

    Raises `ConfigError` for options that do not go together.
    """

    avro_schema: Path | None
    protobuf_schema: Path | None
    message: str | None
    registry: str | None

    def __post_init__(self) -> None:
        if self.avro_schema is not None and self.protobuf_schema is not None:
            raise ConfigError("--avro-schema", self.avro_schema, "a body has one format", "Leave --protobuf-schema out")
        if self.message is not None and self.protobuf_schema is None:
            raise ConfigError("--message", self.message, "is for bodies in Protobuf", "Give --protobuf-schema as well")
        if self.registry is not None and self.avro_schema is None and self.protobuf_schema is None:
            rule = "is for bodies in Avro or Protobuf"
            remedy = "Give --avro-schema or --protobuf-schema as well"
            raise ConfigError("--registry", masked(self.registry), rule, remedy)

    def writer(self) -> AvroWriter | ProtobufWriter | None:
        """What writes bodies by the schema; None for JSON. Raises `ConfigError`, `MissingDependency`."""
        if self.avro_schema is not None:
            return _in_avro(self.avro_schema)
        return None if self.protobuf_schema is None else _in_protobuf(self.protobuf_schema, self.message)


def registered(writer: AvroWriter | ProtobufWriter, registry: str, hub: str) -> BodyWriter:
    """What writes rows behind the number that the schema has in a registry, as the value of this hub's topic."""
    from leasehold.formats.schema_headers import with_header
    from leasehold.registries import open_registry
    from leasehold.registries.confluent import ConfluentRegistry

    topic = urlsplit(hub).path.rpartition("/")[2].removesuffix(".db")
    with said_when_slow(masked(registry)), naming(lambda _: "--registry"):
        asked = open_registry(registry)
        if not isinstance(asked, ConfluentRegistry):
            rule = "only Confluent's registries are written to: here bodies begin with the numbers of schemas"
            raise ConfigError("registry", masked(registry), rule, "Leave it out, or send with Azure's own encoder")
        number = asked.register(f"{topic}-value", writer.text, writer.kind)

    def write(bodies: pa.Array) -> tuple[pa.Array, int | None, str]:
        written, bad, reason = writer.write(bodies)
        return with_header(written, number, writer.header), bad, reason

    return write


def written(source: RowFile, write: BodyWriter) -> Iterator[FileRows]:
    """The rows of a file with their bodies so. Raises `UsageError` for a row that the schema does not take."""
    done = 0
    for rows in source.rows():
        bodies, bad, reason = write(rows.bodies)
        if bad is not None:
            source.refuse(reason, f"row {done + bad + 1}")
        done += len(bodies)
        yield replace(rows, bodies=bodies)


def _in_avro(path: Path) -> AvroWriter:
    try:
        from leasehold.formats.avro.writing import AvroWriter
    except ModuleNotFoundError as error:
        raise MissingDependency("leasehold send --avro-schema", "avro") from error
    with naming(lambda _: "--avro-schema"):
        return AvroWriter(schema_text(str(path), Path()))


def _in_protobuf(path: Path, message: str | None) -> ProtobufWriter:
    from leasehold.formats.protobuf.writing import ProtobufWriter

    with naming(lambda name: "--message" if name == "message" else "--protobuf-schema"):
        return ProtobufWriter(schema_text(str(path), Path()), message)
