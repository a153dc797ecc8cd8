"""A database that keeps watermarks as they are and raises nothing: the batch is refused, and not applied twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import SinkError
from leasehold.sinks import TableSpec, open_sink
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, Row, batch, read
from tests.sinks.postgres import Place

SPEC: TableSpec = UPSERT
FILES = [
    "CREATE TRIGGER keeps BEFORE UPDATE ON leasehold_watermark BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TRIGGER keeps BEFORE INSERT ON leasehold_watermark BEGIN SELECT RAISE(IGNORE); END",
]
SERVERS = [
    "CREATE TRIGGER keeps BEFORE UPDATE ON leasehold_watermark FOR EACH ROW EXECUTE FUNCTION keep()",
    "CREATE TRIGGER keeps BEFORE INSERT ON leasehold_watermark FOR EACH ROW EXECUTE FUNCTION keep()",
]


def refused(sink: Any, run: Callable[[str], object], trigger: str) -> None:
    """What comes behind the trigger is refused whole, and applied once it is gone."""
    sink.check(batch(Row("a", 1, 1)).rows.schema)
    sink.apply(batch(Row("a", 1, 1), ranges=[read(0, 4)]))
    run(trigger)
    with pytest.raises(SinkError, match=r"the watermarks of .* were not written"):
        sink.apply(batch(Row("b", 2, 5), ranges=[read(4, 6)]))
    assert sink.watermarks(HUB)["0"].sequence_number == 3
    run("DROP TRIGGER keeps" + (" ON leasehold_watermark" if "FUNCTION" in trigger else ""))
    sink.apply(batch(Row("b", 2, 5), ranges=[read(4, 6)]))
    assert sink.watermarks(HUB)["0"].sequence_number == 5


@pytest.mark.parametrize("trigger", FILES)
def test_in_sqlite(tmp_path: Path, trigger: str) -> None:
    def run(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "table.db", timeout=30)) as connection, connection:
            connection.execute(statement)

    with closing(open_sink(f"sqlite:////{tmp_path}/table.db", SPEC)) as sink:
        refused(sink, run, trigger)


@pytest.mark.more(but=1)
@pytest.mark.parametrize("trigger", SERVERS)
def test_in_postgres(place: Place, trigger: str) -> None:
    place.run("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    with closing(place.sink(SPEC)) as sink:
        refused(sink, place.run, trigger)
