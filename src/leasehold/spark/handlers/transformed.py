"""What a transform has made of events, as events for a handler: each row is a JSON body for the handler's reader.

Owns that way there and back. What a handler was given is kept as it was (a parked event has the row as its body), so
nothing is transformed a second time. A type that JSON does not bring back to the last digit is refused at the start. A
transform makes of an event one row or none: of two, the second would be an event that nobody has sent.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program
from pyspark.sql.types import StructType

from leasehold.errors import ConfigError, UsageError
from leasehold.formats.bodies import BodyReader
from leasehold.spark.handlers.lanes import COLUMNS, RangeEvents
from leasehold.spark.session.versions import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PLACE = tuple(name for name in COLUMNS if name != "body")
_FOLDED = frozenset(name.lower() for name in _PLACE)
_TEXT = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "ignoreNullFields": "false",
}
"""How Spark writes JSON, to the last digit."""


def reader_of(rows: DataFrame, key: str) -> BodyReader:
    """What reads these rows back; `key` is the transform's in the pipeline file. Raises `ConfigError`."""
    _check_place(rows, key)
    fields = [field for field in rows.schema.fields if field.name.lower() not in _FOLDED]
    try:
        return BodyReader(arrow_schema(StructType(fields)))
    except UsageError as error:
        raise ConfigError(key, None, f"a handler cannot be given its rows: {error}") from None
    except Exception as error:  # noqa: BLE001 - what Spark raises for a type that Arrow has not is its release's
        raise ConfigError(key, None, f"a handler cannot be given its rows: {error}", "Cast the column") from None


def rows_of(rows: DataFrame, schema: pa.Schema, key: str) -> DataFrame:
    """Of these rows the columns of a handler's `schema`, as events. Raises `ConfigError`."""
    _check_place(rows, key)
    there = {field.name.lower(): field for field in rows.schema.fields}
    if missing := [name for name in schema.names if name.lower() not in there]:
        raise ConfigError(
            key,
            ", ".join(rows.columns),
            f"a handler is given the columns of schema, and here is no {', '.join(missing)}",
            "Name the same in both",
        )
    found = arrow_schema(StructType([there[name.lower()] for name in schema.names]))
    for is_there, wanted in zip(found, schema, strict=True):
        if is_there.type != wanted.type:
            raise ConfigError(
                key,
                wanted.name,
                f"this column is of type {is_there.type}, and schema says {wanted.type}",
                "Cast it, or name the same in both",
            )
    return rows_as_events(rows.select(*(F.col(_quoted(name)).alias(name) for name in schema.names), *_PLACE))


def _check_place(rows: DataFrame, key: str) -> None:
    there = {name.lower() for name in rows.columns}
    if missing := [name for name in _PLACE if name.lower() not in there]:
        raise ConfigError(
            key,
            None,
            f"its rows have no {', '.join(missing)}, by which a handler knows where and when an event was sent",
            f"Let it keep {', '.join(_PLACE)}, as they are",
        )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def rows_as_events(rows: DataFrame) -> DataFrame:
    """Rows with a reader (`reader_of`) as events whose bodies they are."""
    fields = [F.col(_quoted(name)) for name in rows.columns if name.lower() not in _FOLDED]
    body = F.to_json(F.struct(*fields), _TEXT).cast("binary")
    return rows.select(body.alias("body"), *(F.col(name).alias(name) for name in _PLACE))


def check_rows(lanes: list[RangeEvents], rows: int, key: str) -> None:
    """Refuse `rows` of which some belong to no event of these ranges, or two to one. Raises `UsageError`."""
    if sum(len(lane.events) for lane in lanes) != rows:
        raise UsageError(
            f"{key}: it has changed hub, partition, sequenceNumber or ownerLevel of a row. Let it keep them as they are"
        )
    for lane in lanes:
        of_one = Counter(event.sequence_number for event in lane)
        for number, count in of_one.items():
            if count > 1:
                raise UsageError(
                    f"{key}: it makes {count} rows of the event {lane.partition}:{number}, and a handler is called "
                    "once for an event. Make one row of it, with an array, and let the handler go through that"
                )
