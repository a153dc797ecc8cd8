"""The entity table behind a source of Spark's own: its Kafka source, and the Event Hubs connector.

Owns what those sources leave to the program: the columns of `format("leasehold")` made of theirs, the identity of the
stream, where a query starts that has no checkpoint folder, and which folder belongs to it. The table is then as exact
as behind Leasehold's own source, since its watermarks decide what is new. Nothing is held by lease here: two queries
each read everything, and the owner level is always 1.

Refuses a start at the end of the stream: without a folder that is another place each time, and what lies between is
lost in silence. A query that fills several tables starts where the last of them is. Refuses a table that instances with
leases have written, whose owner levels are above 1, and a stream that was made anew since this object was made: its
numbers start again, and would count as applied.

Concurrency: one object may be used by several threads, and by many queries.
"""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 -- its name in every Spark program

from leasehold.errors import ConfigError, HubUnavailable, SchemaMismatch
from leasehold.hubs import open_hub
from leasehold.model import BEFORE_FIRST, EARLIEST, EventPosition, PositionKind
from leasehold.spark.session.versions import check_release, schema_of
from leasehold.spark.table.entity_table import EntityTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from leasehold.sinks.rules.fence import Watermark

logger = logging.getLogger(__name__)

OWNER_LEVEL = 1
"""The level of every event: the one of a partition's first owner, so that the fence refuses none of them."""


class _OtherSource(ABC):
    """Streams that another source reads; `by_name` are their hubs, by the name that its rows or options have."""

    _columns: Sequence[str]
    _format: str

    def __init__(self, urls: Sequence[str], base: Path | None) -> None:
        check_release()
        if not urls:
            raise ConfigError("urls", None, "at least one stream", "Name it as for open_hub")
        self._urls = tuple(urls)
        self._base = base or Path.cwd()
        self._hubs = {self._name_of(url): open_hub(url, base=self._base) for url in urls}
        self._identities = {name: hub.identity for name, hub in self._hubs.items()}

    @staticmethod
    @abstractmethod
    def _name_of(url: str) -> str:
        """What the other source calls the stream at `url`. Raises `ConfigError` if it is none of this kind."""

    @property
    def identities(self) -> Mapping[str, str]:
        """The identity of each stream by its name: what the column `hub` holds, and watermarks are kept for."""
        return dict(self._identities)

    def check(self) -> None:
        """Raise `HubError` if a stream was made anew since this object was made.

        The program has to be started again then; `checkpoint_location` is another folder.
        """
        for hub in self._hubs.values():
            hub.partition_ids()

    def close(self) -> None:
        """Close the connections by which the streams are asked about."""
        for hub in self._hubs.values():
            hub.close()

    def checkpoint_location(self, folder: str | Path) -> str:
        """A folder below `folder` for the query's checkpoints that belongs to these very streams.

        In the folder of a stream that was made anew Spark would go on at the old one's place.
        """
        digest = hashlib.sha256("\n".join(sorted(self._identities.values())).encode()).hexdigest()[:16]
        return f"{str(folder).rstrip('/')}/{digest}"

    def events(self, df: DataFrame) -> DataFrame:
        """The columns of `format("leasehold")`, made of those that the other source gave, and nothing else.

        Call it with each batch in the function of `foreachBatch`: it then also looks, once a batch, whether a stream
        was made anew. A hub that is away at that moment is asked with the next batch. Raises `HubError` if a stream was
        made anew, and `SchemaMismatch` if `df` is not from that source.
        """
        found = {name.lower() for name in schema_of(df).names}
        missing = [name for name in self._columns if name.lower() not in found]
        if missing:
            raise SchemaMismatch(
                f"the DataFrame has no column {', '.join(missing)}: give what {self._format} has loaded, as it is"
            )
        try:
            self.check()
        except HubUnavailable as error:  # Spark has read the batch or waits for it; the next one is looked at again
            logger.warning("whether a stream was made anew is not known: %s", error)
        return df.select(*self._selected(found), F.lit(OWNER_LEVEL).cast("bigint").alias("ownerLevel"))

    @abstractmethod
    def _selected(self, names: set[str]) -> Sequence[Column]:
        """The columns of `format("leasehold")` before the level, where these columns, in lower case, are found."""

    def _starts(self, tables: Sequence[EntityTable], start: str) -> dict[str, dict[str, int | None]]:
        """By name and partition, the first number that any of the tables lacks; None for the begin of a partition."""
        position = EventPosition.parse(start, "start", committed=False)
        if position.kind in (PositionKind.LATEST, PositionKind.SEQUENCE_NUMBER):
            raise ConfigError(
                "start",
                start,
                "is another place at each start until the table has its first events: what comes in between is lost"
                if position.kind is PositionKind.LATEST
                else "is one number for all partitions",
                "Give earliest or a time, such as 2026-01-31T08:00:00Z; it counts where the table has no watermark",
            )
        if wrong := [table for table in tables if not isinstance(table, EntityTable)]:
            raise ConfigError(
                "tables", wrong[0], "not an EntityTable", "Give each table, and a time by its name, start="
            )
        if not tables:
            raise ConfigError("tables", None, "where to start is known by the tables that the query fills", "Give them")
        self.check()
        starts: dict[str, dict[str, int | None]] = {}
        for name, hub in self._hubs.items():
            reached = [self._reached(table, name) for table in tables]
            starts[name] = {}
            for partition in hub.partition_ids():
                places = {marks[partition].sequence_number + 1 for marks in reached if partition in marks}
                if any(partition not in marks for marks in reached):
                    places.add(BEFORE_FIRST if position == EARLIEST else hub.resolve(partition, position))
                first = min(places)
                starts[name][partition] = None if first == BEFORE_FIRST else first
        return starts

    def _reached(self, table: EntityTable, name: str) -> Mapping[str, Watermark]:
        """The watermarks of a table that queries alone have written. Raises `ConfigError` for another one."""
        reached = table.watermarks(self._identities[name])
        held = sorted(p for p, watermark in reached.items() if watermark.owner_level > OWNER_LEVEL)
        if held:
            raise ConfigError(
                "table",
                self._identities[name],
                f"its watermarks of partition {', '.join(held)} have owner levels above {OWNER_LEVEL}: instances "
                "that hold partitions by lease have written it, and what this query writes would be refused",
                "Go on with leasehold run or MicroBatches, or write another table",
            )
        return reached


class SparkKafkaSource(_OtherSource):
    """Topics that Spark's own Kafka source reads: `spark.readStream.format("kafka").options(**source.options(table))`.

    `urls` are `kafka://host:port,host:port/topic` of one cluster, as for `open_hub`, with the extra `kafka`. Options
    that Spark's clients need to log in are given to Spark by its own names. Raises `HubError` for a topic that does not
    exist, and `ConfigError` where the topics' identities would not change when they are made anew. File names in the
    URLs start at the folder `base`.
    """

    _format = 'format("kafka")'
    _columns = ("key", "value", "topic", "partition", "offset", "timestamp")

    def __init__(self, *urls: str, base: Path | None = None) -> None:
        super().__init__(urls, base)
        servers = {url.removeprefix("kafka://").partition("/")[0] for url in urls}
        if len(servers) > 1 or len(self._hubs) < len(urls):
            raise ConfigError("urls", ", ".join(sorted(servers)), "different topics of one cluster", "Correct the list")
        (self._servers,) = servers
        for name, identity in self._identities.items():
            if identity.count(":") < 2:
                raise ConfigError(
                    "urls",
                    name,
                    "the cluster tells no topic id, so that a topic made anew could not be told from the old one, "
                    "and its events would count as applied",
                    "Use a cluster that has topic ids (Kafka 2.8), and not topic_identity=name",
                )

    @staticmethod
    def _name_of(url: str) -> str:
        from leasehold.hubs.kafka.options import parse_kafka_url

        return parse_kafka_url(url, {}).topic

    def options(self, *tables: EntityTable, start: str = "earliest") -> dict[str, str]:
        """What Spark's source is told: servers, topics, and to go on at the watermarks of these tables.

        Give all tables that the query fills: it goes on at the lowest watermark, and the others drop what they have.
        `start` counts for a partition that a table has nothing of: `earliest`, or an ISO 8601 time. Spark reads them
        only where the query has no checkpoint folder yet. Raises `ConfigError` for `latest` and for a table that is
        written by instances with leases.
        """
        starts = self._starts(tables, start)
        at = {
            name: {partition: -2 if number is None else number for partition, number in partitions.items()}
            for name, partitions in starts.items()
        }
        return {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": ",".join(sorted(starts)),
            "startingOffsets": json.dumps(at),
        }

    def _selected(self, names: set[str]) -> Sequence[Column]:
        hub = F.expr("raise_error(concat('no identity is known of the topic ', topic))").cast("string")
        for name, identity in self._identities.items():
            hub = F.when(F.col("topic") == F.lit(name), F.lit(identity)).otherwise(hub)
        properties = "CAST(NULL AS MAP<STRING, STRING>)"
        if "headers" in names:  # the last one of a name counts
            properties = (
                "map_from_entries(filter(transform(coalesce(headers, array()), h -> struct(h.key AS key, "
                "CAST(h.value AS STRING) AS value)), (h, i) -> NOT exists(slice(headers, i + 2, size(headers)), "
                "later -> later.key = h.key)))"
            )
        return (
            F.col("value").alias("body"),
            F.col("partition").cast("string").alias("partition"),
            F.col("offset").cast("string").alias("offset"),
            F.col("offset").cast("bigint").alias("sequenceNumber"),
            F.col("timestamp").alias("enqueuedTime"),
            F.lit(None).cast("string").alias("publisher"),
            F.col("key").cast("string").alias("partitionKey"),
            F.expr(properties).alias("properties"),
            F.expr("CAST(map() AS MAP<STRING, STRING>)").alias("systemProperties"),
            hub.alias("hub"),
        )


class EventHubsConnector(_OtherSource):
    """An event hub that the Event Hubs connector reads: `spark.readStream.format("eventhubs").options(**…)`.

    `url` is `eventhubs://NAMESPACE.servicebus.windows.net/HUB`, as for `open_hub`, with the extra `azure`. The
    connection string, encrypted as the connector wants it, is given to Spark by its own name. File names in
    the URL start at the folder `base`.
    """

    _format = 'format("eventhubs")'
    _columns = ("body", "partition", "offset", "sequenceNumber", "enqueuedTime", "publisher", "partitionKey")

    def __init__(self, url: str, *, base: Path | None = None) -> None:
        super().__init__((url,), base)

    @staticmethod
    def _name_of(url: str) -> str:
        from leasehold.hubs.event_hubs.url import read_url

        return read_url(url).hub

    def options(self, *tables: EntityTable, start: str = "earliest") -> dict[str, str]:
        """What the connector is told: to go on at the tables' watermarks. Its own default is the end of the stream.

        Give all tables that the query fills: it goes on at the lowest watermark, and the others drop what they have.
        `start` counts for a partition that a table has nothing of: `earliest`, or an ISO 8601 time.
        """
        positions: dict[str, dict[str, Any]] = {}
        for name, partitions in self._starts(tables, start).items():
            for partition, number in partitions.items():
                key = json.dumps({"ehName": name, "partitionId": int(partition)}, separators=(",", ":"))
                place = {"offset": "-1", "seqNo": -1} if number is None else {"offset": None, "seqNo": number}
                positions[key] = {**place, "enqueuedTime": None, "isInclusive": True}
        return {"eventhubs.startingPositions": json.dumps(positions)}

    def _selected(self, names: set[str]) -> Sequence[Column]:
        (identity,) = self._identities.values()
        maps = [
            F.col(name) if name.lower() in names else F.expr("CAST(map() AS MAP<STRING, STRING>)").alias(name)
            for name in ("properties", "systemProperties")
        ]
        return (*(F.col(name) for name in self._columns), *maps, F.lit(identity).alias("hub"))
