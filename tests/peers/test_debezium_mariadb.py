"""A table that is made of what a real Debezium captures of a MariaDB equals the captured one; and what Debezium tells
otherwise than it is.

The latter are facts and no promises of ours: where a newer release writes something else, its test fails first, and the
page of formats is to be mended.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from leasehold.formats import BodyFormat, BodyReader
from tests.peers.debezium_engine import WITHOUT_SCHEMA
from tests.peers.debezium_mariadb import MariaDbSource
from tests.peers.debezium_replica import READABLE, Replica
from tests.waiting import until

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

_AS_THEY_ARE = {"converter.replace.null.with.default": "false"}
_TABLE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, word varchar(20) CHARACTER SET latin1 DEFAULT 'none', "
    "`long` longtext, raw varbinary(4000), price decimal(12, 2), day date, at timestamp(3) NULL, flag bit(1))"
)
_LONG = "repeat(md5(rand()), 100)"


def source_rows(source: MariaDbSource) -> dict[int, tuple[Any, ...]]:
    """What the captured table has, as SQLite stores it."""
    query = (
        "SELECT id, word, `long`, raw, CAST(price AS char), CAST(day AS char), "
        "DATE_FORMAT(at, '%Y-%m-%dT%H:%i:%s.%fZ'), flag + 0 FROM orders"
    )
    return {key: tuple(rest) for key, *rest in source.look(query)}


def statement(rng: Random, known: set[int]) -> str:
    """A change of one row, or of several."""
    key = rng.choice(sorted(known))
    kind = rng.choice(["insert", "insert", "word", "word", "long", "none", "several", "move", "replace", "delete"])
    values = (
        f"{rng.choice(['NULL', repr('é')])}, {rng.choice([_LONG, 'NULL'])}, unhex(md5(rand())), "
        f"{rng.randrange(-99999, 99999) / 100}, '1969-12-31', '2024-02-03 04:05:06.789', b'1'"
    )
    if kind in ("insert", "replace"):
        key = key if kind == "replace" else max(known) + 1
        known.add(key)
        return f"REPLACE INTO orders VALUES ({key}, {values})"
    if kind == "delete" and len(known) > 1:
        known.discard(key)
        return f"DELETE FROM orders WHERE id = {key}"
    if kind == "move":
        known.discard(key)
        known.add(max(known, default=0) + 1000)
        return f"UPDATE orders SET id = {max(known)}, `long` = {_LONG}, raw = NULL WHERE id = {key}"
    changes = {
        "long": f"`long` = {_LONG}, flag = NOT flag",
        "none": "word = NULL, `long` = NULL, raw = NULL, price = NULL, day = '0101-01-01', at = NULL",
    }
    where = f"id % 3 = {key % 3}" if kind == "several" else f"id = {key}"
    return f"UPDATE orders SET {changes.get(kind, f'word = {rng.randrange(100)}')} WHERE {where}"


@pytest.fixture(params=["with schemas", "without schemas"])
def replica(request: pytest.FixtureRequest, mariadb_source: MariaDbSource, tmp_path: Path) -> Iterator[Replica]:
    source = mariadb_source
    plain = request.param == "without schemas"
    source.run(
        _TABLE,
        "INSERT INTO orders (id, word, `long`) SELECT seq, 'early', repeat(md5(seq), 100) FROM seq_1_to_20",
    )
    engine = source.captured(_AS_THEY_ARE, {**WITHOUT_SCHEMA, **READABLE} if plain else {})
    transform = 'decimal_handling_mode = "string"' if plain else ""
    made = Replica(tmp_path, engine, "STRING" if plain else "DATE", transform)
    yield made
    made.end()


def test_the_table_equals_its_source_at_each_quiet_moment(replica: Replica, mariadb_source: MariaDbSource) -> None:
    rng, known = Random(replica.day), set(range(1, 21))

    def expected() -> dict[int, tuple[Any, ...]]:
        rows = source_rows(mariadb_source)
        if replica.day == "DATE":
            return rows
        return {key: (*row[:4], row[4] and f"{row[4]}Z", *row[5:]) for key, row in rows.items()}

    replica.start()
    replica.start()
    for turn in range(5):
        replica.send(replica.engine.changes(*(statement(rng, known) for _ in range(60))))
        if turn == 1:
            until(lambda: len(replica.rows()) > 0, "the table to be there")
            replica.kill()
            replica.start()
        if turn == 3:
            replica.engine.kill()  # so that it writes again what it has not confirmed
            replica.engine.start()
        until(lambda: replica.rows() == expected(), "both tables to be the same")
    assert any(row[1] for row in replica.rows().values())
    assert replica.rejected() == []


def test_values_that_are_told_wrong(mariadb_source: MariaDbSource) -> None:
    source = mariadb_source
    columns = "large bigint unsigned, u uuid, flag tinyint(1), at timestamp NULL, day date"
    source.run(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns})")
    source.run("SET SESSION sql_mode = ''")
    row = "18446744073709551615, '123e4567-e89b-12d3-a456-426655440000', 1, '0000-00-00 00:00:00', '0001-01-01'"
    source.run(f"INSERT INTO kinds VALUES (1, {row})")
    engine = source.captured(WITHOUT_SCHEMA)
    changes = engine.changes(f"INSERT INTO kinds VALUES (2, {row})")
    read, created = (each.read()["after"] for each in changes if each.topic.endswith(".kinds"))
    both = {"large": -1, "flag": 1, "day": 11323}  # of 2001
    assert read == {"id": 1, **both, "u": "123e4567-e89b-12d3-a456-426655440000", "at": None}
    assert created == {"id": 2, **both, "u": "0000123e-4567-e89b-12d3-a45642665544", "at": "1970-01-01T00:00:00Z"}


def test_settings_by_which_they_are_told_right(mariadb_source: MariaDbSource) -> None:
    mariadb_source.run("CREATE TABLE large (id bigint unsigned PRIMARY KEY, day date)")
    settings = {"bigint.unsigned.handling.mode": "precise", "enable.time.adjuster": "false"}
    [change] = mariadb_source.captured(settings).changes(
        "INSERT INTO large VALUES (18446744073709551615, '0001-01-01')"
    )
    columns = pa.schema([("id", pa.decimal128(20, 0)), ("day", pa.date32())])
    read = BodyReader(columns, BodyFormat(format="debezium")).read(pa.array([change.value]))
    assert read.columns.to_pylist() == [{"id": Decimal(2**64 - 1), "day": date(1, 1, 1), "__deleted": False}]
