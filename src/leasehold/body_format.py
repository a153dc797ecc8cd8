"""How bodies are read, as one value: their format, and what is to become of what the columns do not take.

Owns these settings, wherever they are stated: `[transform]` of a pipeline file, `MicroBatches`, handlers, queues. The
columns are not among them, since some are stated as text and some are Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from leasehold.config import default_where_none
from leasehold.errors import ConfigError

JSON, AVRO = "json", "avro"
FORMATS = (JSON, AVRO)
EXACT, TRUNCATE = "exact", "truncate"
"""What `timestamps` may be."""

_BEGINS = ("{", "[", '"')  # of a schema of Avro, and of no path


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyFormat:
    """How the bodies of events, or of messages, are read.

    format       `json` (default) or `avro`
    writer_schema  with `avro`, the schema that bodies are written by: its JSON text, or the path of a file that has it
    registry     with `avro`, in place of `writer_schema`, the URL of the registry that has the schemas by whose numbers
                 bodies begin
    rescue       the name of one more column, of strings, in which fields of a body that no column takes are kept, at
                 any depth, as one JSON object; null if there are none. Default: they are dropped
    timestamps   "truncate": times in bodies that are finer than a microsecond are cut; default: `exact`, rejected

    Raises `ConfigError`.
    """

    format: str = JSON
    writer_schema: str | Path | None = None
    registry: str | None = field(default=None, repr=False)
    rescue: str | None = None
    timestamps: str = EXACT

    def __post_init__(self) -> None:
        default_where_none(self)
        if self.format not in FORMATS:
            raise ConfigError("format", self.format, " or ".join(FORMATS), "Leave it out where bodies are JSON")
        if self.timestamps not in (EXACT, TRUNCATE):
            rule = f"{EXACT} or {TRUNCATE}"
            raise ConfigError("timestamps", self.timestamps, rule, "Leave it out to reject finer times")
        if self.format == AVRO and (self.writer_schema is None) == (self.registry is None):
            remedy = (
                'Give writer_schema, its JSON text or the path of its file: "flight.avsc"; or the URL of a registry'
            )
            raise ConfigError("writer_schema", None, "bodies in Avro are read by the schema that wrote them", remedy)
        for name in ("writer_schema", "registry"):
            if self.format != AVRO and getattr(self, name) is not None:
                raise ConfigError(name, None, 'it is for format = "avro"', "Set the format, or leave it out")
        if self.writer_schema is not None:
            object.__setattr__(self, "writer_schema", schema_text(self.writer_schema, Path()))

    def without_rescue(self) -> BodyFormat:
        """The same format, with fields dropped that no column takes."""
        return replace(self, rescue=None)


def schema_text(stated: str | Path, folder: Path) -> str:
    """The JSON text of a schema, which `stated` is, or of whose file it is the path. Raises `ConfigError`."""
    if not isinstance(stated, str | Path):
        raise ConfigError("writer_schema", stated, "a text or a path", "Give a schema as JSON text: json.dumps(schema)")
    if isinstance(stated, str) and stated.lstrip("\ufeff \t\r\n").startswith(_BEGINS):
        return stated.lstrip("\ufeff")
    try:
        return (folder / stated).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        remedy = "Name a file with the schema as JSON, or give its JSON text"
        raise ConfigError("writer_schema", stated, f"cannot be read ({error})", remedy) from None
