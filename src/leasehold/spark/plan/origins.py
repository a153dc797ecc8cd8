"""Which tables a streaming query fills, as text that travels: the option `tables`, and the mark on the rows.

Owns the form of both. `EntityTable.stream_options` writes the option and the source reads it; the source leaves the
mark on its column `hub`, which says for which consumer group, pipeline and tables the rows are read. On the other
columns of the fence the mark says that they are the source's own. Spark carries a column's metadata through
projections, filters and `foreachBatch`, so that a table can look at the mark of the rows that it is given. The mark
names tables by their identity and has no URL: metadata ends up in files that others read. What a table makes of a mark
is in `stream/stream_tables.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from leasehold.backends import absolute
from leasehold.errors import ConfigError
from leasehold.sinks import TableSpec
from leasehold.sinks.rules.table_spec import FENCE_COLUMNS, HUB

MARK = "leasehold"
"""The key of the mark in the metadata of the column `hub`."""
OWN = "source"
"""The mark on the other columns of the fence."""
REMEDY = "Give the stream what the table says of itself: .options(**table.stream_options())"


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where an entity table is, and what it is: enough to ask it for its watermarks. The URL may carry a secret."""

    identity: str
    url: str = field(repr=False)
    spec: TableSpec

    @classmethod
    def of(cls, identity: str, url: str, spec: TableSpec, base: Path) -> TableAddress:
        """The address of a table, the same in every working directory."""
        return cls(identity, absolute(url, base, "url"), spec)


def addresses_text(addresses: Sequence[TableAddress]) -> str:
    """These addresses as the option `tables`."""
    return json.dumps([{"identity": one.identity, "url": one.url, "spec": asdict(one.spec)} for one in addresses])


def read_addresses(text: str, name: str) -> tuple[TableAddress, ...]:
    """The addresses in the option of this name. Raises `ConfigError`."""
    try:
        return tuple(TableAddress(one["identity"], one["url"], TableSpec(**one["spec"])) for one in json.loads(text))
    except (ValueError, TypeError, KeyError):
        raise ConfigError(name, "…", "not what EntityTable.stream_options gives", REMEDY) from None


@dataclass(frozen=True, slots=True)
class Origin:
    """For whom rows were read, and how long a batch of them may take, in seconds: the mark on them."""

    consumer_group: str
    pipeline: str
    tables: tuple[str, ...]
    stall_timeout: float = 600.0

    def metadata(self) -> dict[str, Any]:
        """The mark as a column's metadata."""
        mark = {"consumerGroup": self.consumer_group, "pipeline": self.pipeline, "tables": list(self.tables)}
        return {MARK: {**mark, "stallTimeout": self.stall_timeout}}

    def marks(self) -> dict[str, dict[str, Any]]:
        """The metadata of each column of the fence: the mark on `hub`, and that they are the source's on the others."""
        return {**{name: {MARK: OWN} for name in FENCE_COLUMNS}, HUB: self.metadata()}


def origin_of(metadata: Mapping[str, Any]) -> Origin | None:
    """The mark in a column's metadata; None where there is none that can be read."""
    mark = metadata.get(MARK)
    if not isinstance(mark, Mapping):
        return None
    group, pipeline, tables = mark.get("consumerGroup"), mark.get("pipeline"), mark.get("tables")
    stall = mark.get("stallTimeout")
    if not (isinstance(group, str) and isinstance(pipeline, str) and isinstance(tables, Sequence)):
        return None
    if not (isinstance(stall, int | float) and stall > 0):
        return None
    return Origin(group, pipeline, tuple(map(str, tables)), float(stall))
