"""The server, the rows and the plain SQL of `postgres_sink.py`.

Rows have 8 columns and two unique indexes, `id` (the key) and `code`. Row `n` of the beginning is key `n`; the rows of
a batch jump through a tenth more keys than there are, no key twice in a batch, so that about one in eleven is new. A
key stays in its partition. The same rows can be had as Arrow, and in Spark from an event's partition and number.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

sys.path.append(str(Path(__file__).parents[1]))

from tests.node_packages import locked
from tests.ports import free_port
from tests.stores.servers import PostgresServer

HUB = "6f1b6a1e-6c2f-4b7e-9f0c-0c9d1b0f6a3e"
PARTITIONS = 4
COLUMNS = ("id", "code", "origin", "dest", "status", "delay", "distance", "at")
_TYPES = "text", "bigint", "text", "text", "text", "double precision", "bigint", "timestamptz"
_STRIDE = 618_033  # shares no factor with 1,100,000 and leaves the rest by 4 as it is
_PLACES = ("EWR", "JFK", "LGA", "ORD", "ATL", "LAX", "BOS")
_STATES = ("scheduled", "departed", "arrived", None)
_BEGIN = 1_700_000_000
_SETTINGS = """
autovacuum = off
shared_buffers = 1GB
max_wal_size = 16GB
checkpoint_timeout = 1h
"""
_ADBC = ("adbc-driver-postgresql>=1.13,<2", "adbc-driver-manager>=1.13,<2", "importlib-resources")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a real server, as a bulk load would have it set, that listens on a port: JDBC knows no socket file.

    No vacuum of its own: the benchmark has one between the rounds. No checkpoint within a side's turn.
    """
    server = PostgresServer(folder)
    server.end()
    server.port = free_port()
    with (folder / "data" / "postgresql.conf").open("a") as settings:
        settings.write(f"{_SETTINGS}\nlisten_addresses = '127.0.0.1'\nport = {server.port}\n")
    server.start()
    try:
        yield f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
    finally:
        server.end()


def adbc() -> ModuleType | None:
    """ADBC's driver for Postgres, from PyPI where it is missing; None, and a line that says so, where it cannot be."""
    folder = Path(sys.prefix) / "share" / "leasehold-tests" / "adbc"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent / "lock"):
            if not (folder / "adbc_driver_postgresql").exists():
                install = [
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--no-deps",
                ]
                subprocess.run([*install, "--target", str(folder), *_ADBC], check=True, timeout=600)
        sys.path.append(str(folder))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module("adbc_driver_postgresql.dbapi")
    except (OSError, subprocess.SubprocessError, ImportError) as error:
        print(f"postgres_sink: the sides of ADBC are left out: {error}", file=sys.stderr)
        return None


# rows


def events(first: int, count: int, begun: int) -> pa.Table:
    """Events `first` to `first + count`, as a DataFrame of a source holds them: the partitions one after the other."""
    number = np.arange(first, first + count).reshape(-1, PARTITIONS).T.ravel()
    return pa.table(
        {
            **_values(number, begun),
            "hub": [HUB] * count,
            "partition": pa.array(number % PARTITIONS).cast(pa.string()),
            "sequenceNumber": number // PARTITIONS,
            "ownerLevel": pa.array([1] * count, pa.int64()),
        }
    )


def _values(number: Any, begun: int) -> dict[str, Any]:
    key = np.where(number < begun, number, (number - begun) * _STRIDE % _keys(begun))
    text = pa.array(key).cast(pa.string())
    at = pa.array((_BEGIN + number) * 1_000_000)
    return {
        "id": pc.binary_join_element_wise("K", pc.utf8_lpad(text, 9, "0"), ""),
        "code": key * 7 + 3,
        "origin": _chosen(number, _PLACES[:3]),
        "dest": _chosen(number, _PLACES[3:]),
        "status": _chosen(number, _STATES),
        "delay": (number % 6007) / 8,
        "distance": number % 5000,
        "at": at.cast(pa.timestamp("us", tz="UTC")),
    }


def _chosen(number: Any, of: tuple[str | None, ...]) -> Any:
    return pa.array(of, pa.string()).take(pa.array(number % len(of)))


def _keys(begun: int) -> int:
    return begun + begun // 10


def in_spark(begun: int) -> list[str]:
    """The same columns, as expressions of Spark SQL over what the source gives."""
    number = f"(sequenceNumber * {PARTITIONS} + CAST(partition AS BIGINT))"
    key = f"IF({number} < {begun}, {number}, ({number} - {begun}) * {_STRIDE} % {_keys(begun)})"

    def chosen(of: tuple[str | None, ...]) -> str:
        values = ", ".join("CAST(NULL AS STRING)" if one is None else f"'{one}'" for one in of)
        return f"element_at(array({values}), CAST({number} % {len(of)} AS INT) + 1)"

    return [
        f"concat('K', lpad({key}, 9, '0')) AS id",
        f"{key} * 7 + 3 AS code",
        f"{chosen(_PLACES[:3])} AS origin",
        f"{chosen(_PLACES[3:])} AS dest",
        f"{chosen(_STATES)} AS status",
        f"({number} % 6007) / 8D AS delay",
        f"{number} % 5000 AS distance",
        f"timestamp_seconds({_BEGIN} + {number}) AS at",
    ]


# SQL


def create(connection: psycopg.Connection[Any], table: str) -> None:
    """An entity table as users make them."""
    columns = ", ".join(f"{name} {type_}" for name, type_ in zip(COLUMNS, _TYPES, strict=True))
    connection.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY (id), UNIQUE (code))")


def create_staging(connection: psycopg.Connection[Any], table: str) -> None:
    """A table on the way: unlogged, and without an index."""
    columns = ", ".join(f"{name} {type_}" for name, type_ in zip(COLUMNS, _TYPES, strict=True))
    connection.execute(f"CREATE UNLOGGED TABLE {table} ({columns})")


def merge(table: str, source: str, *, by_value: bool = False) -> str:
    """The one statement that brings the rows of `source`, a staging table or values, into the table."""
    names = ", ".join(COLUMNS)
    updates = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS[1:])
    newer = " WHERE excluded.at >= t.at" if by_value else ""
    return f"INSERT INTO {table} AS t ({names}) {source} ON CONFLICT (id) DO UPDATE SET {updates}{newer}"


def staged(table: str) -> str:
    """What a staging table holds."""
    return f"SELECT {', '.join(COLUMNS)} FROM {table}"


VALUES = f"VALUES ({', '.join(['%s'] * len(COLUMNS))})"


def contents(connection: psycopg.Connection[Any], table: str) -> tuple[Any, ...]:
    """What tells tables of different rows apart: how many there are, sums, and a sum of all they hold."""
    found = connection.execute(
        f"SELECT count(*), sum(code), sum(distance), sum(delay::numeric), max(at), "
        f"sum(hashtextextended(t::text, 0)::numeric) FROM {table} AS t"
    ).fetchone()
    assert found is not None
    return tuple(found)
