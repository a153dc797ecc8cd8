"""Event bodies to rows by a schema, without Spark: `BodyReader` reads JSON into Arrow, and rejects with reasons."""

from leasehold.formats.bodies import BodyReader, ReadBodies

__all__ = ["BodyReader", "ReadBodies"]
