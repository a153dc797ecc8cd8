"""Tables that `leasehold init` makes ahead of time: never in place of those that were there and were dropped."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from leasehold.errors import SinkError, UsageError
from leasehold.model import BEFORE_FIRST
from leasehold.sinks import open_sink
from leasehold.sinks.beside.states import fenced
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold_testkit.contracts.sinks.fixtures import HUB, UPSERT, Row, batch
from tests.sinks.postgres import Place

Run = Callable[[str], object]
SCHEMA = fenced(pa.schema([("entity", pa.string()), ("value", pa.int64())]))


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Run]:
    """A database's URL, and what runs a statement in it."""
    if request.param == "postgresql":
        place: Place = request.getfixturevalue("place")
        return place.url, place.run

    def run(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
            connection.execute(statement)

    return f"sqlite:////{tmp_path}/t.db", run


@pytest.mark.parametrize("dropped", ["entities", "leasehold_key_entities"])
def test_what_was_dropped_is_made_again_by_a_reset_alone(database: tuple[str, Run], dropped: str) -> None:
    url, run = database
    sink = open_sink(url, UPSERT)
    sink.apply(batch(Row("a", 1, 0)))
    sink.close()
    run(f"DROP TABLE {dropped}")
    again = open_sink(url, UPSERT)
    maker = again
    for act in (maker.make_tables, maker.table_statements):
        with pytest.raises(SinkError, match=f"the table {dropped} has been dropped"):
            act(SCHEMA)
    if dropped == "entities":
        again.set_watermarks(HUB, {"0": Watermark(BEFORE_FIRST, 2)}, anew=True)
        assert maker.make_tables(SCHEMA)
        assert again.apply(batch(Row("a", 1, 0, level=2))).applied == 1
    again.close()


def test_a_memory_of_keys_of_other_types_is_made_anew_by_its_owner(place: Place) -> None:
    """And a user who does not own it is told who has to do that."""
    sink = place.sink(UPSERT)
    sink.apply(batch(Row("a", 1, 0)))
    place.run("DROP TABLE entities")
    sink.set_watermarks(HUB, {"0": Watermark(BEFORE_FIRST, 2)}, anew=True)
    sink.close()
    place.run("CREATE TABLE entities (entity bigint PRIMARY KEY, value bigint)")
    role = f"role_{place.schema}"
    place.run(f"CREATE ROLE {role} LOGIN", f"GRANT USAGE, CREATE ON SCHEMA {place.schema} TO {role}")
    place.run(f"GRANT ALL ON ALL TABLES IN SCHEMA {place.schema} TO {role}")
    numbers = fenced(pa.schema([("entity", pa.int64()), ("value", pa.int64())]))
    least = PostgresSink(place.url.replace("postgres:@", f"{role}@"), UPSERT)
    with pytest.raises(UsageError, match="this user does not own it"):
        least.check(numbers)
    least.close()
    owner = place.sink(UPSERT)
    assert owner.make_tables(numbers)
    owner.check(numbers)
    owner.close()
    place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_table_of_another_name_is_made_beside_one_that_was_dropped(database: tuple[str, Run]) -> None:
    url, run = database
    sink = open_sink(url, UPSERT)
    sink.apply(batch(Row("a", 1, 0)))
    sink.close()
    run("DROP TABLE entities")
    other = open_sink(url, TableSpec(name="others", pipeline="contract", keys=("entity",)))
    assert other.make_tables(SCHEMA)
    other.close()
