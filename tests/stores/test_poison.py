"""Records that somebody has spoiled, in every store: ten kinds of poison and more in each kind of record."""

from __future__ import annotations

import dataclasses
import json
import math
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from leasehold.model import ConsumerGroup, RecordKind
from leasehold.stores import Store, open_store
from leasehold.stores.azure.access import BLOB, TABLE, read_url
from leasehold.stores.azure.blob import BlobRecords
from leasehold.stores.azure.calls import Calls
from leasehold.stores.azure.records import ANY, Area, RecordName
from leasehold.stores.azure.table import TableRecords
from leasehold.stores.memory.store import MemoryStore
from leasehold.stores.names import LONGEST_NAME
from leasehold.stores.readable import unreadable
from leasehold_testkit.contracts.stores.poisoned import Poison, PoisonedStoreContract, Spoil
from tests.stores.azurite import Azurite
from tests.stores.servers import PostgresServer, RedisServer
from tests.waiting import NEVER

KINDS = (RecordKind.OWNERSHIP, RecordKind.PRESENCE, RecordKind.ASK, RecordKind.CHECKPOINT)
LARGE = 2**63 - 1
DEEP = "[" * 100_000
LONG = "9" * 5_000


def test_what_is_told_of_a_record_is_short_whatever_it_says() -> None:
    group = ConsumerGroup("log", "hub", "g")
    told = unreadable(RecordKind.OWNERSHIP, group, "x" * 1_000_000, ValueError("y" * 1_000_000))
    assert (len(told.name), len(told.reason)) == (LONGEST_NAME, 120)
    assert unreadable(RecordKind.OWNERSHIP, group, "0", ValueError("y")).name == "0"


class TestMemory(PoisonedStoreContract):
    """What a program can write through the store's own functions."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def spoil(self, store: MemoryStore) -> Spoil:
        values: dict[RecordKind, list[dict[str, Any]]] = {
            RecordKind.OWNERSHIP: [
                *({"owner_level": value} for value in (-1, -LARGE, LARGE + 1, math.nan, "5", None)),
                *({"failures": value} for value in (-1, 10**10, 2**70)),
                *({"claimed_at": value} for value in (-2, 2**64)),
                *({"owner_id": value} for value in ("\ud800", None, 7)),
            ],
            RecordKind.PRESENCE: [
                *({"capacity": value} for value in (0, -1.0, math.nan, math.inf, -math.inf, "1", None, 5e-324)),
                *({"maximum": value} for value in (-1, 1.5, "7", 10**30)),
                *({"strategy": None}, {"pipeline": b"p"}),
            ],
            RecordKind.ASK: [
                *({"owner_level": value} for value in (-1, math.nan, "5", None, 2**70, 1.5)),
                *({"asker": value} for value in ("", None, 5, "\udcff", b"x")),
            ],
            RecordKind.CHECKPOINT: [
                *({"owner_level": value} for value in (-1, 1.5, 2**63, "5")),
                *({"sequence_number": value} for value in (-2, 2**63, math.nan, "10", None)),
                *({"offset": value} for value in (7, b"x", "\ud800")),
            ],
        }

        def spoil(kind: RecordKind, group: ConsumerGroup, name: str) -> Sequence[Poison]:
            tables: dict[RecordKind, Any] = {
                RecordKind.OWNERSHIP: store._ownership,
                RecordKind.PRESENCE: store._presences,
                RecordKind.ASK: store._asks,
                RecordKind.CHECKPOINT: store._checkpoints,
            }
            table = tables[kind]

            def poison(change: dict[str, Any]) -> Callable[[], None]:
                return lambda: table.update({(group, name): dataclasses.replace(table[group, name], **change)})

            return [(str(change), poison(change)) for change in values[kind]]

        return spoil


Columns = Mapping[RecordKind, tuple[str, str, Sequence[str]]]
"""A table, the column of a record's name, and what is set in it: SQL."""


def updates(kind: RecordKind, columns: Columns, run: Callable[[str, Sequence[str]], None], mark: str) -> Spoil:
    table, key, settings = columns[kind]

    def spoil(_: RecordKind, group: ConsumerGroup, name: str) -> Sequence[Poison]:
        where = f"namespace = {mark} AND hub = {mark} AND consumer_group = {mark} AND {key} = {mark}"

        def poison(setting: str) -> Callable[[], None]:
            named = (group.namespace, group.hub, group.name, name)
            return lambda: run(f"UPDATE {table} SET {setting} WHERE {where}", named)

        return [(setting, poison(setting)) for setting in settings]

    return spoil


NO_TEXT = ("x'ff00'", "CAST(x'ff' AS TEXT)", "CAST(x'c328a0' AS TEXT)")
SQLITE: Columns = {
    RecordKind.OWNERSHIP: (
        "leasehold_ownership",
        "partition",
        [
            *(
                f"owner_level = {value}"
                for value in ("'abc'", "-1", "9e999", "-9e999", "1.5", "x'ff'", str(LARGE), "''")
            ),
            *(f"owner_id = {value}" for value in NO_TEXT),
            *(f"{name} = {value}" for name in ("nonce", "successor", "last_error") for value in NO_TEXT[:2]),
            *(f"{name} = {value}" for name in ("failures", "claimed_at") for value in ("'x'", "-7", "1e300", "x'00'")),
            *("failures = 10000000000", f"failures = {LARGE}", "last_modified = 'abc'", "last_modified = x'00'"),
            *("last_modified = 9e999", "etag = x'00'", "etag = CAST(x'ff' AS TEXT)", "boot_id = x'00'"),
        ],
    ),
    RecordKind.PRESENCE: (
        "leasehold_presence",
        "owner_id",
        [
            *(f"capacity = {value}" for value in ("0", "-1", "'abc'", "9e999", "-9e999", "x'00'", "5e-324", "'NaN'")),
            *(f"maximum = {value}" for value in ("-1", "'x'", "1.5", "x'00'", str(LARGE))),
            *(f"{name} = {value}" for name in ("pipeline", "strategy") for value in NO_TEXT),
            *("created = 'x'", "last_modified = 'y'", "owner_id = CAST(x'ff' AS TEXT)"),
        ],
    ),
    RecordKind.ASK: (
        "leasehold_ask",
        "partition",
        [
            *(f"owner_level = {value}" for value in ("'abc'", "-1", "1.5", "9e999", "x'00'", "''", str(LARGE))),
            *(f"asker = {value}" for value in ("''", *NO_TEXT)),
        ],
    ),
    RecordKind.CHECKPOINT: (
        "leasehold_checkpoint",
        "partition",
        [
            *(f"sequence_number = {value}" for value in ("'abc'", "-2", "1.5", "9e999", "x'00'", "''")),
            *(f"owner_level = {value}" for value in ("'abc'", "-1", "1.5", "9e999", "x'00'")),
            *(f'"offset" = {value}' for value in NO_TEXT),
            *(f"data = {value}" for value in (*NO_TEXT, "'x'", "'[]'", "'{\"a\":1}'", '\'{"a":"\\ud800"}\'', "5")),
        ],
    ),
}


class TestSqlite(PoisonedStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_store(f"sqlite:///{tmp_path}/store.db")

    @pytest.fixture
    def spoil(self, tmp_path: Path) -> Spoil:
        def run(statement: str, values: Sequence[str]) -> None:
            with closing(sqlite3.connect(tmp_path / "store.db")) as file, file:
                assert file.execute(statement, values).rowcount == 1, statement

        return lambda kind, group, name: updates(kind, SQLITE, run, "?")(kind, group, name)


LEAST = "'-9223372036854775808'::bigint"
POSTGRES: Columns = {
    RecordKind.OWNERSHIP: (
        "leasehold_ownership",
        "partition",
        [
            *(f"owner_level = {value}" for value in ("-1", LEAST, str(LARGE))),
            *(f"claimed_at = {value}" for value in ("-2", LEAST, str(LARGE))),
            *(f"failures = {value}" for value in ("-1", LEAST, str(LARGE), "10000000000")),
            *("last_modified = 'infinity'", "last_modified = '-infinity'", "last_modified = '294000-01-01'"),
            *("owner_id = repeat('x', 100000)", "last_error = repeat(E'\\x1b[2J', 100000)", "successor = E'\\u202e'"),
        ],
    ),
    RecordKind.PRESENCE: (
        "leasehold_presence",
        "owner_id",
        [
            *(f"capacity = {value}" for value in ("0", "-1", "'NaN'", "'infinity'", "'-infinity'", "1e-300", "1e300")),
            *(f"maximum = {value}" for value in ("-1", LEAST, str(LARGE))),
            *("created = 'infinity'", "created = '-infinity'", "last_modified = 'infinity'", "strategy = ''"),
        ],
    ),
    RecordKind.ASK: (
        "leasehold_ask",
        "partition",
        [
            *(f"owner_level = {value}" for value in ("-1", "-7", LEAST, str(LARGE), "0")),
            *(f"asker = {value}" for value in ("''", "'nobody'", "repeat('x', 100000)", "E'\\x1b'", "E'\\u202e'")),
        ],
    ),
    RecordKind.CHECKPOINT: (
        "leasehold_checkpoint",
        "partition",
        [
            *(f"sequence_number = {value}" for value in ("-2", "-3", "-100", LEAST)),
            *(f"owner_level = {value}" for value in ("-1", "-2", "-100", LEAST)),
            *(
                "data = 'x'",
                "data = '[1]'",
                "data = '{\"a\": 1}'",
                "data = repeat('[', 1000)",
                "data = repeat('x', 5000)",
            ),
            *("owner_level = -1, sequence_number = -2", f"owner_level = {LEAST}, sequence_number = {LEAST}"),
        ],
    ),
}


@pytest.mark.more_of(
    "test_a_newcomer_takes_the_other_partitions",
    "test_what_cannot_be_read_is_named_and_the_rest_is_listed",
)
class TestPostgres(PoisonedStoreContract):
    @pytest.fixture
    def store(self, postgres_server: PostgresServer) -> Store:
        return open_store(postgres_server.url, timeout=NEVER)

    @pytest.fixture
    def spoil(self, postgres_server: PostgresServer) -> Spoil:
        def run(statement: str, values: Sequence[str]) -> None:
            with psycopg.connect(postgres_server.url, autocommit=True) as other:
                assert other.execute(statement, values).rowcount == 1, statement

        return lambda kind, group, name: updates(kind, POSTGRES, run, "%s")(kind, group, name)


NOW = b"1795326684283109"
GARBAGE = [b"", b"garbage", b"\xff\xfe", b"\n", b"\n\n", b"\n\n\n", b"\n\n\n\n", b"null", b"{}", DEEP.encode(), b"\0"]
REST = b'["", "", -1, 0, ""]'


def owned(etag: bytes = b"e", modified: bytes = NOW, identity: bytes = b'["other/1", 5]', rest: bytes = REST) -> bytes:
    return b"\n".join((etag, modified, identity, rest))


REDIS: Mapping[RecordKind, Sequence[bytes]] = {
    RecordKind.OWNERSHIP: [
        *GARBAGE,
        *(owned(modified=value) for value in (b"", b"abc", b"-1", b"1e400", b"NaN", LONG.encode(), b"9" * 400)),
        *(owned(identity=b'["other/1", %s]' % value) for value in (b"-1", b'"5"', b"1e999", b"NaN", b"9" * 30, b"5.5")),
        *(owned(identity=value) for value in (b"", b"[]", b"null", b"{}", DEEP.encode(), b'["\xff", 1]', b"[1, 2, 3]")),
        *(owned(rest=value) for value in (b"", b"[]", b"{}", DEEP.encode(), b'["", "", -9, 0, ""]', b"\xff")),
        *(owned(rest=b'["", "", -1, %s, ""]' % value) for value in (b"-1", b"10000000000", b"Infinity", b"1e5")),
        *(owned(etag=b"\xff"), owned() + b"\nmore", owned(identity=b'["other/1", 9223372036854775807]')),
    ],
    RecordKind.PRESENCE: [
        *GARBAGE,
        *(b"e\n%s\n%s\n%s" % (NOW, NOW, value) for value in (b"", b"[]", DEEP.encode(), b"\xff", b"{}")),
        *(
            b'e\n%s\n%s\n["", "planned", %s, null]' % (NOW, NOW, value)
            for value in (b"0", b"-1", b"NaN", b"Infinity", b'"1"', b"null", b"1e999", b"[]")
        ),
        *(b'e\n%s\n%s\n["", "", 1, %s]' % (NOW, NOW, value) for value in (b"-1", b"1.5", b'"7"', b"9" * 30)),
        *(b'e\n%s\n%s\n["", "", 1, null]' % (value, NOW) for value in (b"", b"x", LONG.encode())),
        *(b'e\n%s\n%s\n["", "", 1, null]' % (NOW, value) for value in (b"", b"x", LONG.encode())),
    ],
    RecordKind.ASK: [
        *(one for one in GARBAGE),
        *(b'[%s, "another/1"]' % value for value in (b"-1", b'"5"', b"NaN", b"1e999", b"9" * 30, LONG.encode())),
        *(b"[5, %s]" % value for value in (b'""', b"null", b"7", b'"\xff"', b'"\\ud800"', DEEP.encode())),
    ],
    RecordKind.CHECKPOINT: [
        *GARBAGE,
        *(b'%s\n10\n"ten"' % value for value in (b"", b"x", b"-1", b"007", b"1e3", b"9" * 19, LONG.encode())),
        *(b'5\n%s\n"ten"' % value for value in (b"", b"x", b"-2", b"--1", b"-0", b"007", b"9" * 19, LONG.encode())),
        *(
            b"5\n10\nnull\n%s" % value
            for value in (b"", b"x", b"[]", b'{"a":1}', b'{"a":"\xff"}', b"{}\n", DEEP.encode())
        ),
        *(b"5\n10\n%s" % value for value in (b"", b"ten", b"7", DEEP.encode(), b'"\xff"', b"[]", b'"ten"\n')),
    ],
}


@pytest.mark.more_of(
    "test_a_newcomer_takes_the_other_partitions",
    "test_a_start_does_not_take_the_place_of_a_checkpoint_that_cannot_be_read",
    "test_what_cannot_be_read_is_named_and_the_rest_is_listed",
)
class TestRedis(PoisonedStoreContract):
    @pytest.fixture
    def store(self, redis_server: RedisServer) -> Store:
        return open_store(redis_server.url, timeout=NEVER)

    @pytest.fixture
    def spoil(self, redis_server: RedisServer) -> Spoil:
        def spoil(kind: RecordKind, group: ConsumerGroup, name: str) -> Sequence[Poison]:
            def poison(value: bytes) -> Callable[[], None]:
                def do() -> None:
                    with redis.Redis(port=redis_server.port) as other:
                        [key] = [key for key in other.keys("*") if _is_of(key, kind, group)]
                        other.hset(key, name, value)

                return do

            return [(repr(value[:60]), poison(value)) for value in REDIS[kind]]

        return spoil


def _is_of(key: bytes, kind: RecordKind, group: ConsumerGroup) -> bool:
    return (
        key.endswith(f":{kind}".encode())
        and f"/{group.name}}}".replace("$", "%24").encode() in key
        and (f"/{group.hub}/".encode() in key)
    )


BAD_NUMBERS = ("abc", "-7", "1.5", "1e999", "NaN", "infinity", LONG[:500], "9" * 19, " ", "0x10")
AZURE: Mapping[RecordKind, Sequence[Mapping[str, str]]] = {
    RecordKind.OWNERSHIP: [
        *({"leaseholdlevel": value} for value in BAD_NUMBERS),
        *({"leaseholdfailures": value} for value in (*BAD_NUMBERS[:4], "10000000000")),
        *({"leaseholdclaimedat": value} for value in BAD_NUMBERS[:4]),
        *({name: "~%FF%FE"} for name in ("ownerid", "leaseholdnonce", "leaseholdsuccessor", "leaseholderror")),
        *({"ownerid": "~%ED%A0%80", "leaseholdof": "~%ED%A0%80"}, {"ownerid": "", "leaseholdof": ""}),
    ],
    RecordKind.PRESENCE: [
        *({"leaseholdcapacity": value} for value in ("0", "-1", "abc", "NaN", "infinity", "-infinity", "1e999")),
        *({"leaseholdmaximum": value} for value in ("-1", "abc", "1.5", LONG[:500], "")),
        *({"leaseholdcreated": value} for value in ("abc", "NaN")),
        *({name: "~%FF"} for name in ("leaseholdpipeline", "leaseholdstrategy")),
    ],
    RecordKind.ASK: [
        *({"leaseholdlevel": value} for value in BAD_NUMBERS[:8]),
        *({"leaseholdasker": value} for value in ("", "~%FF", "~%ED%A0%80")),
    ],
    RecordKind.CHECKPOINT: [
        *({"sequencenumber": value, "leaseholdof": f"{value}:ten"} for value in BAD_NUMBERS[:8]),
        *({"leaseholdlevel": value} for value in BAD_NUMBERS[:8]),
        *({"leaseholdsequencenumber": value} for value in ("abc", "-7", "1.5")),
        {"leaseholdsequencenumber": "10", "leaseholdoffset": "~%FF"},
        *({"leaseholddata": value} for value in ("x", "[]", '{"a":1}', "[" * 1500, "null")),
    ],
}
AREAS = {
    RecordKind.OWNERSHIP: (Area.OWNERSHIP, ""),
    RecordKind.PRESENCE: (Area.FLEET, "presence-"),
    RecordKind.ASK: (Area.FLEET, "ask-"),
    RecordKind.CHECKPOINT: (Area.CHECKPOINT, ""),
}


class _OnAzurite(PoisonedStoreContract):
    records: Callable[[], BlobRecords | TableRecords]

    @pytest.fixture
    def spoil(self, records: BlobRecords | TableRecords) -> Spoil:
        def spoil(kind: RecordKind, group: ConsumerGroup, name: str) -> Sequence[Poison]:
            area, prefix = AREAS[kind]

            def poison(change: Mapping[str, str]) -> Callable[[], None]:
                def do() -> None:
                    deadline, address = records.calls.deadline(), RecordName(group, area, prefix + name)
                    stands = records.read(address, deadline)
                    assert stands is not None
                    records._write(address, {**stands.properties, **change}, ANY, deadline)

                return do

            return [(json.dumps(change)[:90], poison(change)) for change in AZURE[kind]]

        return spoil


@pytest.mark.soak  # `TestTable` reads the same values by the same code, in half of the time
class TestBlob(_OnAzurite):
    @pytest.fixture
    def url(self, azurite: Azurite) -> str:
        name = f"poison-{secrets.token_hex(6)}"
        azurite.make_container(name)
        return azurite.url("azblob", name)

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url, timeout=NEVER)

    @pytest.fixture
    def records(self, url: str) -> BlobRecords:
        return BlobRecords(read_url(url, BLOB), Calls("there", 30.0), 5_000)


@pytest.mark.more_of(
    "test_a_newcomer_takes_the_other_partitions",
    "test_a_start_does_not_take_the_place_of_a_checkpoint_that_cannot_be_read",
    "test_what_cannot_be_read_is_named_and_the_rest_is_listed",
)
class TestTable(_OnAzurite):
    @pytest.fixture
    def url(self, azurite: Azurite) -> str:
        name = f"poison{secrets.token_hex(6)}"
        azurite.make_table(name)
        return azurite.url("aztable", name)

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url, timeout=NEVER)

    @pytest.fixture
    def records(self, url: str) -> TableRecords:
        return TableRecords(read_url(url, TABLE), Calls("there", 30.0), 1_000)
