"""What earlier commits have kept of messages of queues, what is forgotten of an entity, and rights in Postgres."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError, SinkError, SinkUnavailable, UsageError
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.beside.messages.contract import MessageChange, MessageName, MessageOutcome
from leasehold_testkit.contracts.sinks.messages import apply_message, read_message
from tests.sinks.postgres import Place

FIRST = """
CREATE TABLE leasehold_message (
    pipeline TEXT, entity_table TEXT COLLATE NOCASE, queue TEXT, message TEXT, done_at REAL NOT NULL,
    PRIMARY KEY (pipeline, entity_table, queue, message)) WITHOUT ROWID;
CREATE INDEX leasehold_message_done_at ON leasehold_message (pipeline, entity_table, done_at);
CREATE TABLE leasehold_message_entity (
    pipeline TEXT, entity_table TEXT COLLATE NOCASE, key TEXT, version INTEGER NOT NULL, queue TEXT NOT NULL,
    sequence_number INTEGER NOT NULL, enqueued_time REAL NOT NULL,
    PRIMARY KEY (pipeline, entity_table, key)) WITHOUT ROWID;
INSERT INTO leasehold_message VALUES ('p', 'orders', 'shop/orders', '7@1800000000000', 1800000001.5);
INSERT INTO leasehold_message_entity VALUES ('p', 'orders', '["eu", 5]', 3, 'shop/orders', 7, 1800000000.0);
"""
STATE = pa.schema({"number": pa.int64(), "area": pa.string(), "total": pa.int64()})
KEY = (5, "eu")
SPEC = TableSpec(name="orders", pipeline="p", keys=("number", "area"))


def opened(tmp_path: Path, url: str = "sqlite:///table.db") -> Any:
    sink: Any = open_sink(url, SPEC, base=tmp_path)
    sink.check_messages(STATE)
    return sink


def name(number: int) -> MessageName:
    return MessageName("shop/orders", f"{number}@1800000000000", number, 1_800_000_000.0)


def test_the_first_form_is_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        connection.executescript(FIRST)
    with closing(opened(tmp_path)) as sink:
        known = read_message(sink, STATE, KEY, name(7))
        assert (known.done, known.version, known.late) == (True, 3, False)
        earlier = read_message(sink, STATE, KEY, name(6))
        assert (earlier.done, earlier.late) == (False, True)
        state = {"number": 5, "area": "eu", "total": 1}
        assert apply_message(sink, STATE, MessageChange(name(6), KEY, 3, state), 1e9) is MessageOutcome.APPLIED


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_an_entity_is_forgotten_with_its_version(tmp_path: Path, database: str, request: pytest.FixtureRequest) -> None:
    url = "sqlite:///table.db" if database == "sqlite" else request.getfixturevalue("place").url
    with closing(opened(tmp_path, url)) as sink:
        apply_message(sink, STATE, MessageChange(name(1), KEY, 0, None), 1e9)
        assert sink.forget_entity({"number": "5", "area": "eu"}).memories == 1
        assert read_message(sink, STATE, KEY, name(2)).version == 0


KEPT = "leasehold_message, leasehold_message_sent, leasehold_message_entity, leasehold_message_parked"
FIRST_IN_POSTGRES = """
CREATE TABLE leasehold_message (pipeline text COLLATE "C", entity_table text COLLATE "C", queue text COLLATE "C",
    message text COLLATE "C", done_at double precision NOT NULL,
    PRIMARY KEY (pipeline, entity_table, queue, message));
CREATE INDEX leasehold_message_done_at ON leasehold_message (pipeline, entity_table, done_at);
CREATE TABLE leasehold_message_entity (pipeline text COLLATE "C", entity_table text COLLATE "C", key text COLLATE "C",
    version bigint NOT NULL, queue text COLLATE "C" NOT NULL, sequence_number bigint NOT NULL,
    enqueued_time double precision NOT NULL, PRIMARY KEY (pipeline, entity_table, key)) WITH (fillfactor = 50);
INSERT INTO leasehold_message VALUES ('p', 'orders', 'shop/orders', '7@1800000000000', 1800000001.5);
INSERT INTO leasehold_message_entity VALUES ('p', 'orders', '["eu", 5]', 3, 'shop/orders', 7, 1800000000.0)
"""


def test_the_first_form_is_read_in_postgres(tmp_path: Path, place: Place) -> None:
    place.run(*FIRST_IN_POSTGRES.split(";"))
    with closing(opened(tmp_path, place.url)) as sink:
        known = read_message(sink, STATE, KEY, name(7))
        assert (known.done, known.version, known.late) == (True, 3, False)
        state = {"number": 5, "area": "eu", "total": 1}
        assert apply_message(sink, STATE, MessageChange(name(6), KEY, 3, state), 1e9) is MessageOutcome.APPLIED
    assert place.look("SELECT number, area, total FROM orders") == [(5, "eu", 1)]
    assert place.look("SELECT version, sequence_number FROM leasehold_message_entity") == [(4, 7)]


def test_a_schema_of_a_commit_that_knew_no_messages_is_brought_up_to_date(tmp_path: Path, place: Place) -> None:
    """By whoever may; a user with least rights is told what is missing."""
    opened(tmp_path, place.url).close()
    place.run(f"DROP TABLE {KEPT}")
    role = f"messages_{place.schema}"
    place.run(f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    rights = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {{}} TO {role}"
    place.run(
        rights.format("orders, orders_rejected, leasehold_key_orders, leasehold_table, leasehold_watermark"),
    )
    least = place.url.replace("postgres:@", f"{role}@")
    with pytest.raises(UsageError, match="may not make them"):
        opened(tmp_path, least)
    opened(tmp_path, place.url).close()
    place.run(rights.format(KEPT))
    with closing(opened(tmp_path, least)) as sink:
        state = {"number": 5, "area": "eu", "total": 1}
        assert apply_message(sink, STATE, MessageChange(name(1), KEY, 0, state), 1e9) is MessageOutcome.APPLIED
        known = read_message(sink, STATE, KEY, name(1))
        assert (known.done, known.state) == (True, state)
        gone = MessageChange(name(2), KEY, known.version, None)
        assert apply_message(sink, STATE, gone, -1e9) is MessageOutcome.APPLIED  # and forgets the first
        assert place.look("SELECT count(*) FROM orders") == [(0,)]
        assert not read_message(sink, STATE, KEY, name(1)).done
    place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_one_message_under_two_keys_is_done_once_in_postgres(tmp_path: Path, place: Place) -> None:
    """Both lock another entity. The second waits for the first, and changes nothing."""
    with closing(opened(tmp_path, place.url)) as sink:
        of = {area: {"number": 5, "area": area, "total": 1} for area in ("eu", "us")}
        with place.connection.transaction():
            place.run(
                "INSERT INTO leasehold_message VALUES ('p', 'orders', 'shop/orders', '1@1800000000000', 1800000001.5)"
            )
            hasty = place.sink(SPEC, timeout=0.3)  # impatient: for the message that is blocked for good
            with closing(hasty), pytest.raises(SinkUnavailable):
                apply_message(hasty, STATE, MessageChange(name(1), (5, "us"), 0, of["us"]), 1e9)
        assert place.look("SELECT count(*) FROM orders") == [(0,)]
        again = apply_message(sink, STATE, MessageChange(name(1), (5, "us"), 0, of["us"]), 1e9)
        assert again is MessageOutcome.DONE_BEFORE
        assert apply_message(sink, STATE, MessageChange(name(2), KEY, 0, of["eu"]), 1e9) is MessageOutcome.APPLIED
    assert place.look("SELECT area FROM orders") == [("eu",)]


def test_a_table_with_rules_of_its_own_is_refused_in_postgres(tmp_path: Path, place: Place) -> None:
    place.run(
        "CREATE TABLE orders (number bigint, area text, total bigint CHECK (total > 0), PRIMARY KEY (area, number))"
    )
    with pytest.raises(ConfigError, match="a CHECK"):
        opened(tmp_path, place.url)


def test_a_state_that_a_narrow_column_cannot_hold_changes_nothing(tmp_path: Path, place: Place) -> None:
    place.run("CREATE TABLE orders (number integer, area text, total smallint, PRIMARY KEY (area, number))")
    with closing(opened(tmp_path, place.url)) as sink:
        wide = {"number": 5, "area": "eu", "total": 2**20}
        with pytest.raises(UsageError, match="does not fit the table orders"):
            apply_message(sink, STATE, MessageChange(name(1), KEY, 0, wide), 1e9)
        assert not read_message(sink, STATE, KEY, name(1)).done
        nothing = MessageChange(name(1), (2**40, "eu"), 0, None)
        assert apply_message(sink, STATE, nothing, 1e9) is MessageOutcome.APPLIED


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_state_for_which_the_table_raises_an_error_is_the_states_fault(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    statements = (
        "CREATE TABLE orders (number BIGINT, area VARCHAR(9), total BIGINT, PRIMARY KEY (number, area))",
        f"CREATE INDEX by_total ON orders ({'abs(total)' if database == 'sqlite' else '(1 / total)'})",
    )
    if database == "sqlite":
        url = "sqlite:///table.db"
        with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
            for statement in statements:
                connection.execute(statement)
    else:
        there = request.getfixturevalue("place")
        there.run(*statements)
        url = there.url
    with closing(opened(tmp_path, url)) as sink:
        bad = {"number": 5, "area": "eu", "total": -(2**63) if database == "sqlite" else 0}
        with pytest.raises(UsageError, match="does not fit the table orders"):
            apply_message(sink, STATE, MessageChange(name(1), KEY, 0, bad), 1e9)
        good = MessageChange(name(2), KEY, 0, bad | {"total": 5})
        assert apply_message(sink, STATE, good, 1e9) is MessageOutcome.APPLIED


def test_a_number_that_its_column_does_not_take_is_no_messages_fault(tmp_path: Path, place: Place) -> None:
    state = {"number": 5, "area": "eu", "total": 1}
    with closing(opened(tmp_path, place.url)) as sink:
        place.run(
            "CREATE SEQUENCE own START 70000",
            f"ALTER TABLE orders ADD own smallint DEFAULT nextval('{place.schema}.own')",
        )
        with pytest.raises(SinkError, match="the table orders refuses what it gives its own column own"):
            apply_message(sink, STATE, MessageChange(name(1), KEY, 0, state), 1e9)
        place.run("ALTER TABLE orders ALTER own TYPE bigint")
        assert apply_message(sink, STATE, MessageChange(name(1), KEY, 0, state), 1e9) is MessageOutcome.APPLIED
