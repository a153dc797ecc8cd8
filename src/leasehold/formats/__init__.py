"""Event bodies to rows by a schema, without Spark: `BodyReader` reads JSON or Avro, and rejects with reasons."""

from leasehold.body_format import BodyFormat
from leasehold.formats.bodies import BodyReader, ReadBodies

__all__ = ["BodyFormat", "BodyReader", "ReadBodies"]
