"""Handlers over Spark Connect, with the server that is in PySpark's package."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasehold.spark.handlers.jobs import stated_cores
from tests.sinks.postgres import Place
from tests.spark.connect_handlers_program import EVENTS, KEYS
from tests.spark.connect_programs import said_by

OUTCOMES = {"keyed": "58 2", "transformed": "58 2", "hung": "57 3", "scattered": "58 2", "leased": "58 2"}


@pytest.mark.parametrize("tables", [["hung", "leased"], pytest.param([*OUTCOMES], marks=pytest.mark.soak)], ids=len)
def test_tables_that_handlers_fill_over_spark_connect(tmp_path: Path, place: Place, tables: list[str]) -> None:
    said = said_by("-m", "tests.spark.connect_handlers_program", tmp_path, place.url, *tables)
    assert said == [
        "2 [0, 1, 2, 3, 4, 5, 6, 7] 8",
        "[(0, [0, 1, 2, 3]), (1, [0, 1, 2, 3])]",
        *(f"{table} {OUTCOMES[table]}" for table in tables),
        "url tasks read states, and those of a server of Spark Connect have no file of this machine",
    ]
    for table in tables:
        wrong = (13, 14, 15) if table == "hung" else (13, 14)
        for key, total, trail in place.look(f"SELECT order_id, total, trail FROM {table}"):
            mine = [n for n in range(EVENTS) if f"k{n % KEYS}" == key and n not in wrong]
            applied = [int(n) for n in trail.split()]
            assert (sorted(applied), total) == (mine, sum(mine))
            assert applied == mine or table in ("scattered", "leased"), "what comes late from another partition is late"
        assert place.look(f"SELECT count(*) FROM {table}") == [(KEYS,)]


@pytest.mark.parametrize(
    ("stated", "cores"), [("8", 8), ("010", 10), (None, 2), ("", 2), ("0", 2), ("-3", 2), ("many", 2), ("9" * 20, 2)]
)
def test_a_stated_parallelism_that_is_no_number_of_tasks_counts_as_not_stated(stated: str | None, cores: int) -> None:
    assert stated_cores(stated) == cores
