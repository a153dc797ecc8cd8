"""What Debezium itself writes of a Postgres: the facts that a reader of its changes depends on.

Each names a fact and not a promise of ours: where a newer release writes something else, its test fails first.
"""

from __future__ import annotations

import base64
import io
import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastavro import schemaless_reader

from leasehold.registries.confluent import ConfluentRegistry
from tests.peers.debezium_engine import FLATTENED, WITHOUT_SCHEMA, Change, Engine, avro
from tests.peers.debezium_postgres import RELEASE, Debezium, PostgresSource
from tests.peers.registry_server import RELEASES, Apicurio
from tests.waiting import NEVER

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

ALL_OPERATIONS = {"skipped.operations": "none"}
SIGNALS = {"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "2"}
UNAVAILABLE = "__debezium_unavailable_value"
LONG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100) i)"


@pytest.fixture(scope="module")
def engine(debezium: Debezium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One for the tests that need no settings of their own. Each has tables of its own."""
    with debezium.source(tmp_path_factory.mktemp("debezium")) as source:
        source.run("CREATE TABLE signals (id text PRIMARY KEY, type text, data text)")
        yield source.captured(WITHOUT_SCHEMA, ALL_OPERATIONS, SIGNALS)


def said(changes: Sequence[Change], table: str) -> list[Any]:
    """Of each change of the table the key, the operation, the rows before and after; of a tombstone the key alone."""
    values = [(json.loads(each.key or b"null"), each.read()) for each in changes if each.topic.endswith(f".{table}")]
    return [(key, value["op"], value["before"], value["after"]) if value else (key,) for key, value in values]


def places(changes: Sequence[Change]) -> list[int]:
    return [each.read()["source"]["lsn"] for each in changes if each.value]


def test_a_row_is_created_updated_moved_to_another_key_and_deleted(engine: Engine) -> None:
    changes = engine.changes(
        "CREATE TABLE life (id int PRIMARY KEY, word text)",
        "INSERT INTO life VALUES (1, 'a')",
        "UPDATE life SET word = 'b'",
        "UPDATE life SET id = 2",
        "DELETE FROM life",
    )
    assert said(changes, "life") == [
        ({"id": 1}, "c", None, {"id": 1, "word": "a"}),
        ({"id": 1}, "u", None, {"id": 1, "word": "b"}),
        ({"id": 1}, "d", {"id": 1, "word": None}, None),
        ({"id": 1},),
        ({"id": 2}, "c", None, {"id": 2, "word": "b"}),
        ({"id": 2}, "d", {"id": 2, "word": None}, None),
        ({"id": 2},),
    ]
    created, updated, away, there, deleted = places(changes)
    assert created < updated < away == there < deleted, "both halves of a new key have one place in the log"


def test_the_source_block(engine: Engine) -> None:
    [change] = engine.changes("CREATE TABLE blocks (id int PRIMARY KEY)", "INSERT INTO blocks VALUES (1)")
    envelope = change.read()
    source = envelope["source"]
    commit_before, place = json.loads(source["sequence"])
    assert set(envelope) == {"before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"}
    assert set(source) == {
        *("version", "connector", "name", "db", "schema", "table", "snapshot"),
        *("ts_ms", "ts_us", "ts_ns", "lsn", "sequence", "txId", "xmin", "origin", "origin_lsn"),
    }
    assert (source["version"], source["connector"], source["name"]) == (RELEASE, "postgresql", "source")
    assert (source["schema"], source["table"], source["snapshot"]) == ("public", "blocks", "false")
    assert (place, int(commit_before) < source["lsn"]) == (str(source["lsn"]), True)


def test_a_truncated_table_and_a_message_have_no_row(engine: Engine) -> None:
    changes = engine.changes(
        "CREATE TABLE emptied (id int PRIMARY KEY)",
        "TRUNCATE emptied",
        "SELECT pg_logical_emit_message(true, 'greeting', 'hello')",
    )
    assert said(changes, "emptied") == [(None, "t", None, None)]
    [message] = [each for each in changes if each.topic == "source.message"]
    assert message.key == b'{"prefix":"greeting"}'
    assert {name: message.read().get(name) for name in ("op", "message", "after")} == {
        "op": "m",
        "message": {"prefix": "greeting", "content": base64.b64encode(b"hello").decode()},
        "after": None,
    }


def test_a_long_value_that_did_not_change_has_a_mark_or_is_lost(engine: Engine) -> None:
    kinds = {
        "t": ("text", LONG),
        "b": ("bytea", f"convert_to({LONG}, 'utf8')"),
        "j": ("json", f"to_json({LONG})"),
        "jb": ("jsonb", f"to_jsonb({LONG})"),
        "ta": ("text[]", f"ARRAY[{LONG}]"),
        "ia": ("int[]", "(SELECT array_agg(i) FROM generate_series(1, 1000) i)"),
        "ua": ("uuid[]", "(SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 200))"),
        "ba": ("bool[]", "(SELECT array_agg(true) FROM generate_series(1, 3000))"),
        "na": ("numeric[]", "(SELECT array_agg(i + 0.5) FROM generate_series(1, 500) i)"),
        "za": ("timestamptz[]", "(SELECT array_agg(now()) FROM generate_series(1, 400))"),
    }
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in kinds.items())
    outside = ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in kinds)
    row = f"INSERT INTO long SELECT 1, 1, {', '.join(value for _, value in kinds.values())}"
    changes = engine.changes(
        f"CREATE TABLE long (id int PRIMARY KEY, n int, {columns})",
        f"ALTER TABLE long {outside}",
        row,
        "UPDATE long SET n = 2",
        "ALTER TABLE long REPLICA IDENTITY FULL",
        "UPDATE long SET n = 3",
    )
    (_, _, _, created), (_, _, _, updated), (_, _, before, whole) = said(changes, "long")
    assert updated == {
        **{"id": 1, "n": 2, "t": UNAVAILABLE, "j": UNAVAILABLE, "jb": UNAVAILABLE, "ta": [UNAVAILABLE]},
        "b": base64.b64encode(UNAVAILABLE.encode()).decode(),
        "ia": list(UNAVAILABLE.encode()),
        "ua": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
        **{"ba": None, "na": None, "za": None},
    }, "of some types it is null, as if the value had been removed"
    assert (before, whole) == ({**created, "n": 2}, {**created, "n": 3}), "with the whole identity nothing is missing"


def test_null_in_a_column_with_a_default_arrives_as_the_default(engine: Engine, source: PostgresSource) -> None:
    table = "CREATE TABLE defaults (id int PRIMARY KEY, word text DEFAULT 'a', day timestamptz DEFAULT now())"
    row = "INSERT INTO defaults VALUES (1, NULL, NULL)"
    told = said(engine.changes(table, row), "defaults")
    assert told == [({"id": 1}, "c", None, {"id": 1, "word": "a", "day": "1970-01-01T00:00:00.000000Z"})]
    as_it_is = source.captured(WITHOUT_SCHEMA, {"converter.replace.null.with.default": "false"})
    assert said(as_it_is.changes(table, row), "defaults") == [
        ({"id": 1}, "c", None, {"id": 1, "word": None, "day": None})
    ]


def test_a_snapshot_beside_writes_comes_after_what_it_has_read(engine: Engine) -> None:
    order = """'{"data-collections": ["public.many"], "type": "incremental"}'"""
    table = "CREATE TABLE many (id int PRIMARY KEY, word text)"
    engine.changes(table, "INSERT INTO many SELECT i, 'old' FROM generate_series(1, 5) i")
    changes = engine.changes(
        f"INSERT INTO signals VALUES ('all', 'execute-snapshot', {order})",
        "UPDATE many SET word = 'new' WHERE id IN (2, 5)",
        "DELETE FROM many WHERE id = 3",
    )
    last = ({"id": 5}, "r", None, {"id": 5, "word": "new"})
    changes += engine.changes_until(lambda made: last in said(made, "many"), "the last row")
    assert [each for each in said(changes, "many") if each[1:2] == ("r",)] == [
        ({"id": 1}, "r", None, {"id": 1, "word": "old"}),
        ({"id": 2}, "r", None, {"id": 2, "word": "new"}),
        ({"id": 4}, "r", None, {"id": 4, "word": "old"}),
        last,
    ]
    values = [each.read() for each in changes if each.topic == "source.public.many" and each.value]
    sources = [value["source"] for value in values if value["op"] == "r"]
    assert {(each["snapshot"], each["lsn"], each["txId"]) for each in sources} == {("incremental", None, None)}
    places = [int(json.loads(each["sequence"])[1]) for each in sources]
    assert places == sorted(places), "their place stands in `sequence` alone"
    assert places[0] > max(value["source"]["lsn"] for value in values if value["op"] != "r")


def test_the_first_snapshot(source: PostgresSource) -> None:
    source.run("CREATE TABLE early (id int PRIMARY KEY)", "INSERT INTO early VALUES (1), (2), (3)")
    values = [each.read() for each in source.captured(WITHOUT_SCHEMA).changes()]
    assert [(each["op"], each["after"]["id"], each["source"]["snapshot"]) for each in values] == [
        ("r", 1, "first"),
        ("r", 2, "true"),
        ("r", 3, "last"),
    ]


def test_a_killed_engine_writes_again_what_it_had_not_confirmed(source: PostgresSource) -> None:
    engine = source.captured(WITHOUT_SCHEMA, {"offset.flush.interval.ms": str(int(NEVER * 1000))})
    engine.changes("CREATE TABLE kept (id int PRIMARY KEY)", "INSERT INTO kept VALUES (1)")  # confirmed: the first is
    later = engine.changes("INSERT INTO kept VALUES (2)", "DELETE FROM kept WHERE id = 1")
    engine.kill()
    source.run("INSERT INTO kept VALUES (3)")
    engine.start()
    again = engine.changes()
    assert said(again, "kept") == [*said(later, "kept"), ({"id": 3}, "c", None, {"id": 3})]
    repeated = zip(again, later, strict=False)
    assert all(new.read()["source"] == old.read()["source"] for new, old in repeated if old.value), "place and all"


def test_an_update_under_way_while_a_snapshot_reads_comes_after_it_with_an_earlier_place(
    source: PostgresSource,
) -> None:
    source.run(
        "CREATE TABLE open (id int PRIMARY KEY, word text)",
        "INSERT INTO open VALUES (1, 'old')",
        "CREATE PUBLICATION early FOR ALL TABLES",
        f"SELECT pg_create_logical_replication_slot('{(slot := f'early_{secrets.token_hex(4)}')}', 'pgoutput')",
    )
    with psycopg.connect(source.url) as writer:
        writer.execute("UPDATE open SET word = 'new'")
        source.run("SELECT pg_logical_emit_message(false, 'noise', 'later in the log')")
        engine = source.captured(WITHOUT_SCHEMA, {"slot.name": slot, "publication.name": "early"})
        writer.commit()
        changes = [each for each in engine.changes() if each.topic.endswith(".open")]
    assert said(changes, "open") == [
        ({"id": 1}, "r", None, {"id": 1, "word": "old"}),
        ({"id": 1}, "u", None, {"id": 1, "word": "new"}),
    ]
    read, updated = places(changes)
    assert updated < read, "whoever keeps the highest place loses the update"
    assert [json.loads(each.read()["source"]["sequence"]) for each in changes] == [
        [None, str(read)],
        [None, str(updated)],
    ]


def test_flattened_values_are_the_row_or_the_word_null(source: PostgresSource) -> None:
    changes = source.captured(WITHOUT_SCHEMA, FLATTENED).changes(
        "CREATE TABLE flat (id int PRIMARY KEY, word text)",
        "INSERT INTO flat VALUES (1, 'a')",
        "UPDATE flat SET id = 2",
    )
    assert [(each.key, each.value) for each in changes] == [
        (b'{"id":1}', b'{"id":1,"word":"a"}'),
        (b'{"id":1}', b"null"),
        (b'{"id":2}', b'{"id":2,"word":"a"}'),
    ], "a delete is no tombstone but JSON's null"


def test_a_flattened_delete_with_a_schema_has_a_payload_of_null(source: PostgresSource) -> None:
    _, deleted = source.captured(FLATTENED).changes(
        "CREATE TABLE flat (id int PRIMARY KEY)", "INSERT INTO flat VALUES (1)", "DELETE FROM flat"
    )
    assert (deleted.read()["schema"]["name"], deleted.read()["payload"]) == ("source.public.flat.Value", None)


def test_a_schema_before_each_value_names_the_types(source: PostgresSource) -> None:
    [change] = source.captured().changes(
        "CREATE TABLE typed (id int PRIMARY KEY, amount numeric(10, 2), anything numeric, day date, at timestamp)",
        "INSERT INTO typed VALUES (1, -1.5, 0.25, '1969-12-31', '2024-02-29 13:45:30.123456')",
    )
    value = change.read()
    fields = {field["field"]: field for field in value["schema"]["fields"]}
    after = {field["field"]: field for field in fields["after"]["fields"]}
    assert value["schema"]["name"] == "source.public.typed.Envelope"
    assert {name: (each["type"], each.get("name"), each.get("parameters")) for name, each in after.items()} == {
        "id": ("int32", None, None),
        "amount": ("bytes", "org.apache.kafka.connect.data.Decimal",
                   {"scale": "2", "connect.decimal.precision": "10"}),
        "anything": ("struct", "io.debezium.data.VariableScaleDecimal", None),
        "day": ("int32", "io.debezium.time.Date", None),
        "at": ("int64", "io.debezium.time.MicroTimestamp", None),
    }  # fmt: skip
    assert value["payload"]["after"] == {
        "id": 1,
        "amount": base64.b64encode((-150).to_bytes(2, "big", signed=True)).decode(),
        "anything": {"scale": 2, "value": base64.b64encode(bytes([25])).decode()},
        "day": -1,
        "at": 1709214330123456,
    }


def test_avro_is_written_as_confluent_writes_it(source: PostgresSource, tmp_path: Path) -> None:
    registry = Apicurio(RELEASES[0], tmp_path)
    try:
        changes = source.captured(avro(registry.root)).changes(
            "CREATE TABLE numbered (id int PRIMARY KEY, word text)",
            "INSERT INTO numbered VALUES (1, 'a')",
            "DELETE FROM numbered",
        )
        bodies = [each.value for each in changes if each.value]
        numbers = [int.from_bytes(body[1:5], "big") for body in bodies]
        schemas = ConfluentRegistry(registry.url).schemas(set(numbers))
    finally:
        registry.kill()
    assert [each.value and each.value[0] for each in changes] == [0, 0, None]
    read: list[Any] = []
    for body, number in zip(bodies, numbers, strict=True):
        registered = schemas[number]
        assert registered is not None
        read.append(schemaless_reader(io.BytesIO(body[5:]), json.loads(registered.text), None))
    assert [(each["op"], each["before"], each["after"]) for each in read] == [
        ("c", None, {"id": 1, "word": "a"}),
        ("d", {"id": 1, "word": None}, None),
    ]
