"""How bodies are read, as one value: their format, and what is to become of what the columns do not take.

Owns these settings, wherever they are stated: `[transform]` of a pipeline file, `MicroBatches`, handlers, queues. The
columns are not among them, since some are stated as text and some are Spark's.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from leasehold.config import default_where_none
from leasehold.errors import ConfigError

JSON, AVRO, PROTOBUF, DEBEZIUM = "json", "avro", "protobuf", "debezium"
FORMATS = (JSON, AVRO, PROTOBUF, DEBEZIUM)
TYPED = (AVRO, PROTOBUF)
"""Formats that are read by the schema of who wrote them."""
DELETED = "__deleted"
"""The column, of booleans, that says of a change of Debezium whether the row is deleted."""
UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium writes in place of a value that an update leaves as it is, and that Postgres does not give it."""
OPERATIONS = ("t", "m")
"""What `skipped_operations` may have: truncations and messages, which are no change of a row."""
PRECISE, STRING = "precise", "string"
"""What `decimal_handling_mode` may be."""
IDENTITY, GZIP, ZSTD = "identity", "gzip", "zstd"
ENCODINGS = (IDENTITY, GZIP, ZSTD)
"""What `content_encoding` may be."""
CLOUD_EVENTS = "cloudevents"
"""What `envelope` may be."""
AZURE_SCHEMAS = "azschemas://"
"""How the URL begins of a registry whose schemas are named by the content types of events, and not by their bodies."""
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

    format            `json` (default), `avro` or `protobuf`; or `debezium`: changes of a table's rows, in JSON, or in
                      Avro with `writer_schema` or `registry`. A column `__deleted` comes behind those of the row
    writer_schema     the schema that bodies in Avro or Protobuf are written by, or the path of a file that has it: in
                      Avro its JSON text; of Protobuf a `.proto` file that imports no others of yours, or a set of
                      descriptors, which as text is in base64
    registry          in place of `writer_schema`, the URL of the registry that has the schemas by whose numbers bodies
                      begin; or `azschemas://NAMESPACE…`, Azure's, whose schemas content types name
    message           with `protobuf`, the full name of the type of the bodies. Default: the only one of the schema, or
                      with a registry the one that a body names
    envelope          `cloudevents`: events are CloudEvents, in structured or binary mode as their headers say; `format`
                      is that of their data, and columns called `ce_id`, `ce_time` … take attributes. Default: none
    content_encoding  `gzip` or `zstd`: bodies that begin as these do are decompressed first; default: `identity`
    rescue            the name of one more column, of strings, in which fields of a body that no column takes are kept,
                      at any depth, as one JSON object; null if there are none. Of a change those of the row alone.
                      Default: they are dropped
    skipped_operations
                      with `debezium`, which of `t` (truncation) and `m` (message) are passed over, which are rejected
                      otherwise. Default: none
    decimal_handling_mode
                      with `debezium` in JSON without schemas, that of the connector: with `string`, text may be a
                      decimal. Default: `precise`, by which it is base64 that nobody can read
    timestamps        "truncate": times in bodies that are finer than a microsecond are cut; default: `exact`, rejected

    Raises `ConfigError`.
    """

    format: str = JSON
    writer_schema: str | Path | None = None
    registry: str | None = field(default=None, repr=False)
    message: str | None = None
    envelope: str | None = None
    content_encoding: str = IDENTITY
    rescue: str | None = None
    skipped_operations: Sequence[str] = ()
    decimal_handling_mode: str = PRECISE
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
        if self.envelope not in (None, CLOUD_EVENTS):
            raise ConfigError("envelope", self.envelope, CLOUD_EVENTS, "Leave it out where bodies have none")
        self._check_changes()
        stated = self.writer_schema, self.registry
        if self.encoding != JSON and stated.count(None) != 1:
            rule = f"bodies in {self.encoding.title()} are read by the schema that wrote them"
            remedy = 'Give writer_schema, as text or as the path of its file: "flight.avsc"; or the URL of a registry'
            raise ConfigError("writer_schema", None, rule, remedy)
        if self.message is not None and not isinstance(self.message, str):
            raise ConfigError("message", self.message, "the name of a type", "Give its whole name: flights.v1.Flight")
        by_schema = (*TYPED, DEBEZIUM)
        for name, formats in (("writer_schema", by_schema), ("registry", by_schema), ("message", (PROTOBUF,))):
            if self.format not in formats and getattr(self, name) is not None:
                raise _of_others(name, formats)
        self._check_content_types()
        if self.writer_schema is not None:
            object.__setattr__(self, "writer_schema", schema_text(self.writer_schema, Path()))

    def _check_content_types(self) -> None:
        if not self.by_content_type:
            return
        if self.encoding != AVRO:
            rule = f"schemas of {AZURE_SCHEMAS} are of Avro, and bodies in {self.encoding.title()} are read otherwise"
            raise ConfigError("registry", None, rule, 'Set format = "avro", or give writer_schema')
        if self.envelope is not None:
            rule = f"with {AZURE_SCHEMAS} the content type of an event names its schema, and not its envelope"
            raise ConfigError("envelope", self.envelope, rule, "Leave it out, or give writer_schema")

    def _check_changes(self) -> None:
        if isinstance(self.skipped_operations, str):
            remedy = f'Write ["{self.skipped_operations}"]'
            raise ConfigError("skipped_operations", self.skipped_operations, "a list of operations", remedy)
        object.__setattr__(self, "skipped_operations", tuple(self.skipped_operations))
        if others := [one for one in self.skipped_operations if one not in OPERATIONS]:
            raise ConfigError("skipped_operations", others[0], f"among {', '.join(OPERATIONS)}", "Correct it")
        if self.decimal_handling_mode not in (PRECISE, STRING):
            rule = f"{PRECISE} or {STRING}"
            raise ConfigError("decimal_handling_mode", self.decimal_handling_mode, rule, "See the connector's setting")
        if self.format == DEBEZIUM:
            if self.envelope is not None:
                raise ConfigError("envelope", self.envelope, "a change is an envelope by itself", "Leave it out")
        elif self.skipped_operations:
            raise _of_others("skipped_operations", (DEBEZIUM,))
        elif self.decimal_handling_mode != PRECISE:
            raise _of_others("decimal_handling_mode", (DEBEZIUM,))

    @property
    def encoding(self) -> str:
        """What the bytes are: the format, and of changes JSON or Avro."""
        if self.format != DEBEZIUM:
            return self.format
        return JSON if self.writer_schema is None and self.registry is None else AVRO

    @property
    def by_content_type(self) -> bool:
        """Whether the content type of an event names the schema that its body was written by."""
        return self.registry is not None and self.registry.startswith(AZURE_SCHEMAS)

    @property
    def by_headers(self) -> bool:
        """Whether a body is read by the headers of its event, which have to be kept with it therefore."""
        return self.envelope is not None or self.by_content_type

    def named(self, number: int) -> str:
        """The number of a schema as its registry writes it."""
        return f"{number:032x}" if self.by_content_type else str(number)

    @property
    def adds(self) -> tuple[str, ...]:
        """The columns that come behind those of the schema: that of deleted rows, and the rescue column."""
        deleted = (DELETED,) if self.format == DEBEZIUM else ()
        return deleted if self.rescue is None else (*deleted, self.rescue)

    @property
    def within(self) -> BodyFormat:
        """How what holds a change is read; the rescue column has a name there that no part of a change has."""
        rescue = None if self.rescue is None else ""
        return replace(self, format=self.encoding, skipped_operations=(), decimal_handling_mode=PRECISE, rescue=rescue)

    def without_rescue(self) -> BodyFormat:
        """The same format, with fields dropped that no column takes."""
        return replace(self, rescue=None)


def _of_others(name: str, formats: Sequence[str]) -> ConfigError:
    rule = f"it is for format = {' or '.join(map(json.dumps, formats))}"
    return ConfigError(name, None, rule, "Set the format, or leave it out")


def check_for_handlers(how: BodyFormat) -> None:
    """Refuse what handlers and queues are not given: what headers tell of. Raises `ConfigError`."""
    if how.by_headers:
        name, value = ("registry", AZURE_SCHEMAS) if how.envelope is None else ("envelope", how.envelope)
        told = "its schemas are named" if how.envelope is None else "it is told"
        rule = f"{told} by headers, and of an event that is parked, or a message, the body alone is kept and read"
        remedy = "Give writer_schema" if how.envelope is None else "Leave it out"
        raise ConfigError(name, value, rule, f"{remedy}, or fill a table without a handler")


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
