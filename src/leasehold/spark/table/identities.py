"""`deduplicate_by`: what the events of a batch are known by, for a table that applies each once.

Owns the way from the expression to values. It is evaluated over the events as they come, before any transform, so that
it may use what the transform drops, and so that an event counts of which the transform leaves no row. That is an action
of its own, which reads the events a second time, but only the columns that the expression needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program
from pyspark.sql.types import BinaryType, TimestampType

from leasehold.errors import ConfigError
from leasehold.sinks.rules.batch import IDENTITY_COLUMNS, Identities
from leasehold.spark.session.versions import schema_of, to_arrow
from leasehold.spark.table.settings import RowRules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Deduplication:
    """The settings `deduplicate_by`, a Spark SQL expression, and `deduplicate_for`, in seconds."""

    expression: str
    window: float

    def prepare(self, events: DataFrame) -> DataFrame:
        """The identities of these events, not yet computed. Raises `ConfigError`."""
        hub, partition, number, identity, enqueued = IDENTITY_COLUMNS
        try:
            given = F.expr(self.expression)
            type_ = schema_of(events.select(given.alias(identity)))[0].dataType
            if isinstance(type_, BinaryType):
                given = F.base64(given)
            elif isinstance(type_, TimestampType):
                given = _in_utc(given)
            named = given.cast("string").alias(identity)
            return events.select(hub, partition, number, named, enqueued).where(F.col(identity).isNotNull())
        except AnalysisException as error:
            raise ConfigError(
                "deduplicate_by",
                self.expression,
                f"not an expression over the columns {', '.join(events.columns)}, or one of hub, partition, "
                f"sequenceNumber and enqueuedTime is not among them: {str(error).splitlines()[0]}",
                "Correct the expression, or let the DataFrame have these columns",
            ) from error

    def of(self, events: DataFrame) -> Identities:
        """The identities of these events."""
        return Identities(to_arrow(self.prepare(events)), self.expression, self.window)


def _in_utc(timestamps: Column) -> Column:
    """The same moments as UTC writes them: in the session's zone an hour of a night in autumn comes twice."""
    since = F.expr("INTERVAL '0.000001' SECOND") * F.unix_micros(timestamps)
    return F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'") + since


def deduplication(rules: RowRules) -> Deduplication | None:
    """What the rules say of events that were sent twice; None where they say nothing."""
    by, window = rules.deduplicate_by, rules.window()
    return None if by is None or window is None else Deduplication(by, window)


def identities_of(settings: Deduplication | None, events: DataFrame) -> Identities | None:
    """What these events are known by, computed now; None without the settings."""
    return None if settings is None else settings.of(events)


def refuse_beside_others(settings: Deduplication | None) -> None:
    """Another sink beside the table would get what the table drops."""
    if settings is not None:
        raise ConfigError(
            "deduplicate_by",
            settings.expression,
            "`unseen` cannot tell what the table is going to drop",
            "Leave it out",
        )
