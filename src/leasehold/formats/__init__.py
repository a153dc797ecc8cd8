"""Event bodies to rows by a schema, without Spark: `BodyReader` reads JSON, Avro, Protobuf; rejects with reasons."""

from leasehold.body_format import BodyFormat
from leasehold.formats.bodies import BodyReader
from leasehold.formats.format_readers import ReadBodies

__all__ = ["BodyFormat", "BodyReader", "ReadBodies"]
