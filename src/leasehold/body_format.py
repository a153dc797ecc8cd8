"""How bodies are read, as one value: their format, and what is to become of what the columns do not take.

Owns these settings, wherever they are stated: `[transform]` of a pipeline file, `MicroBatches`, handlers, queues. The
columns are not among them, since some are stated as text and some are Spark's.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from leasehold.config import default_where_none
from leasehold.errors import ConfigError

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
FORMATS = (JSON, AVRO, PROTOBUF)
TYPED = (AVRO, PROTOBUF)
"""Formats that are read by the schema of who wrote them."""
IDENTITY, GZIP, ZSTD = "identity", "gzip", "zstd"
ENCODINGS = (IDENTITY, GZIP, ZSTD)
"""What `content_encoding` may be."""
EXACT, TRUNCATE = "exact", "truncate"
"""What `timestamps` may be."""

_SCHEMA = re.compile(r"\s*[\[{\"]|[^{]*\{|C[g-v][A-Za-z0-9+/\r\n]{14,}={0,2}\Z")
"""How a schema begins, and no path: JSON; a `.proto` file; descriptors of Protobuf in base64, whose first byte is the
mark of a name."""
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""What no text has, and descriptors of Protobuf do."""


class SchemaText(str):
    """The text of a schema, which no longer can be a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyFormat:
    """How the bodies of events, or of messages, are read.

    format            `json` (default), `avro` or `protobuf`
    writer_schema     the schema that bodies in Avro or Protobuf are written by, or the path of a file that has it: in
                      Avro its JSON text; of Protobuf a `.proto` file that imports no others of yours, or a set of
                      descriptors, which as text is in base64
    registry          in place of `writer_schema`, the URL of the registry that has the schemas by whose numbers bodies
                      begin
    message           with `protobuf`, the full name of the type of the bodies. Default: the only one of the schema, or
                      with a registry the one that a body names
    content_encoding  `gzip` or `zstd`: bodies that begin as these do are decompressed first; default: `identity`
    rescue            the name of one more column, of strings, in which fields of a body that no column takes are kept,
                      at any depth, as one JSON object; null if there are none. Default: they are dropped
    timestamps        "truncate": times in bodies that are finer than a microsecond are cut; default: `exact`, rejected

    Raises `ConfigError`.
    """

    format: str = JSON
    writer_schema: str | Path | None = None
    registry: str | None = field(default=None, repr=False)
    message: str | None = None
    content_encoding: str = IDENTITY
    rescue: str | None = None
    timestamps: str = EXACT

    def __post_init__(self) -> None:
        default_where_none(self)
        if self.format not in FORMATS:
            raise ConfigError("format", self.format, " or ".join(FORMATS), "Leave it out where bodies are JSON")
        if self.timestamps not in (EXACT, TRUNCATE):
            rule = f"{EXACT} or {TRUNCATE}"
            raise ConfigError("timestamps", self.timestamps, rule, "Leave it out to reject finer times")
        if self.content_encoding not in ENCODINGS:
            rule = f"{', '.join(ENCODINGS[:-1])} or {ENCODINGS[-1]}"
            raise ConfigError(
                "content_encoding", self.content_encoding, rule, "Leave it out to read bodies as they are"
            )
        stated = self.writer_schema, self.registry
        if self.format != JSON and stated.count(None) != 1:
            rule = f"bodies in {self.format.title()} are read by the schema that wrote them"
            remedy = 'Give writer_schema, as text or as the path of its file: "flight.avsc"; or the URL of a registry'
            raise ConfigError("writer_schema", None, rule, remedy)
        if self.message is not None and not isinstance(self.message, str):
            raise ConfigError("message", self.message, "the name of a type", "Give its whole name: flights.v1.Flight")
        for name, formats in (("writer_schema", TYPED), ("registry", TYPED), ("message", (PROTOBUF,))):
            if self.format not in formats and getattr(self, name) is not None:
                rule = f"it is for format = {' or '.join(map(json.dumps, formats))}"
                raise ConfigError(name, None, rule, "Set the format, or leave it out")
        if self.writer_schema is not None:
            object.__setattr__(self, "writer_schema", schema_text(self.writer_schema, Path()))

    def without_rescue(self) -> BodyFormat:
        """The same format, with fields dropped that no column takes."""
        return replace(self, rescue=None)


def schema_text(stated: str | Path, folder: Path) -> SchemaText:
    """The text of a schema, which `stated` is, or of whose file it is the path. Raises `ConfigError`."""
    if isinstance(stated, SchemaText):
        return stated
    if not isinstance(stated, str | Path):
        raise ConfigError("writer_schema", stated, "a text or a path", "Give a schema as text: json.dumps(schema)")
    if isinstance(stated, str) and _SCHEMA.match(stated.strip("\ufeff \t\r\n")):
        return SchemaText(stated.lstrip("\ufeff"))
    try:
        content = (folder / stated).read_bytes()
        is_text = _BINARY.search(content) is None
        return SchemaText(content.decode("utf-8-sig") if is_text else base64.b64encode(content).decode())
    except (OSError, ValueError) as error:
        remedy = "Name a file that has the schema, or give its text"
        raise ConfigError("writer_schema", stated, f"cannot be read ({error})", remedy) from None
