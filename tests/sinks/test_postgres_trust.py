"""What somebody else has put into the schema is not run, and text arrives as it was sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pyarrow as pa
import pytest

from leasehold.errors import ConfigError, SchemaMismatch, SinkError, UsageError
from leasehold.sinks import TableSpec
from leasehold.sinks.postgres.bookkeeping import LOCK
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.rules.fence import Watermark
from tests.sinks.events import SCHEMA, E, batch
from tests.sinks.postgres import FLIGHTS, Place
from tests.stores.servers import PostgresServer
from tests.waiting import PATIENCE, until

EVIL = "CREATE FUNCTION evil() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil was here'; END $$"


@pytest.fixture
def stranger(place: Place) -> Iterator[str]:
    """A role that may make tables in the schema."""
    name = f"stranger_{place.schema}"
    place.run(f"CREATE ROLE {name}", f"GRANT ALL ON SCHEMA {place.schema} TO {name}")
    yield name
    place.run(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


LOOKS: dict[str, Callable[[PostgresSink], object]] = {
    "contents": lambda sink: sink.contents(),
    "read_states": lambda sink: sink.read_states(SCHEMA, [("a",)]),
    "reset": lambda sink: sink.set_watermarks("h", {"0": Watermark(owner_level=1)}, anew=True),
}


@pytest.mark.parametrize("look", LOOKS)
def test_nobody_looks_into_what_a_stranger_has_made(place: Place, stranger: str, look: str) -> None:
    """Triggers and views run with the rights of whoever touches the table."""
    append = look == "reset"
    spec = TableSpec(name="flights", pipeline="p", mode="append") if append else FLIGHTS
    sink = place.sink(spec)
    sink.raise_owner_levels("h", {"0": 1})
    place.run(
        f"SET ROLE {stranger}",
        EVIL,
        "CREATE VIEW flights AS SELECT 'a' AS tail, 'b' AS status, 1::bigint AS slot WHERE evil()",
        "RESET ROLE",
    )
    with pytest.raises(UsageError, match="there is a view"):
        LOOKS[look](sink)
    sink.close()


def test_a_reset_does_not_empty_the_memory_of_a_stranger(place: Place, stranger: str) -> None:
    sink = place.sink(FLIGHTS)
    sink.raise_owner_levels("h", {"0": 1})
    place.run("CREATE TABLE flights (tail text PRIMARY KEY)")
    place.run(f"SET ROLE {stranger}", "CREATE TABLE leasehold_key_flights (a integer)", "RESET ROLE")
    with pytest.raises(UsageError, match=f"belongs to {stranger}"):
        sink.set_watermarks("h", {"0": Watermark(owner_level=1)}, anew=True)
    sink.close()


def test_shared_tables_that_a_stranger_makes_in_between_are_refused(place: Place, stranger: str) -> None:
    """Between the look into the schema, when the connection is made, and the first transaction."""
    sink = place.sink(FLIGHTS)
    assert sink.contents().rows == 0
    place.run(f"SET ROLE {stranger}", "CREATE TABLE leasehold_table (name text)", "RESET ROLE")
    with pytest.raises(UsageError, match=f"leasehold_table belongs to {stranger}"):
        sink.identity()
    sink.close()


def test_text_arrives_as_it_was_whatever_the_environment_says(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    sink = place.sink(FLIGHTS)
    sink.apply(batch([E("ä", "\N{EURO SIGN}")]))
    assert place.look("SELECT convert_to(tail, 'UTF8'), convert_to(status, 'UTF8') FROM flights") == [
        ("ä".encode(), "\N{EURO SIGN}".encode())
    ]
    sink.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_in_another_encoding_is_refused(
    postgres_server: PostgresServer, place: Place, encoding: str
) -> None:
    name = f"latin_{place.schema}"
    place.run(f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    sink = PostgresSink(postgres_server.database(name), FLIGHTS)
    with pytest.raises(UsageError, match=f"encoded in {encoding}"):
        sink.apply(batch([E("a")]))
    sink.close()
    place.run(f"DROP DATABASE {name}")


def test_a_trigger_that_names_no_schema_is_told_from_a_table_that_was_dropped(place: Place) -> None:
    place.run(
        "CREATE TABLE audit (tail text)",
        "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO audit VALUES (NEW.tail); RETURN NEW; END $$",
        "CREATE TRIGGER note AFTER INSERT ON flights FOR EACH ROW EXECUTE FUNCTION note()",
    )
    sink = place.sink(FLIGHTS)
    with pytest.raises(SinkError, match=r'relation "audit" does not exist.*ALTER FUNCTION'):
        sink.apply(batch([E("a")]))
    place.run(f"ALTER FUNCTION note() SET search_path = {place.schema}")
    assert sink.apply(batch([E("a")])).applied == 1
    assert place.look("SELECT tail FROM audit") == [("a",)]
    sink.close()


@pytest.mark.parametrize(("name", "words"), [("x" * 64, "longer than 63 bytes"), ("xmin", "taken by Postgres")])
def test_a_name_that_no_column_can_have_is_refused(place: Place, name: str, words: str) -> None:
    sink = place.sink(FLIGHTS)
    with pytest.raises(SchemaMismatch, match=f"{name}: is a name {words}"):
        sink.check(SCHEMA.append(pa.field(name, pa.string())))
    sink.close()


def test_a_check_waits_for_who_makes_tables_with_no_lock_that_they_want(place: Place) -> None:
    sink = place.sink(FLIGHTS)
    sink.identity()  # and nothing is recorded of the order yet
    with psycopg.connect(place.url) as other:
        other.execute(b"SELECT pg_advisory_xact_lock(%d)" % LOCK)
        thread = threading.Thread(target=lambda: sink.check(SCHEMA))
        thread.start()
        until(lambda: place.waiting("advisory"), "the check to wait for the lock")
        other.execute("SELECT 1 FROM leasehold_table FOR UPDATE NOWAIT")  # as a batch does
    thread.join(PATIENCE)
    assert place.look("SELECT count(*) FROM flights") == [(0,)]
    sink.close()


def test_a_handler_has_no_key_that_is_written_in_several_ways(place: Place) -> None:
    place.run("CREATE TABLE flights (tail uuid PRIMARY KEY, status text, slot bigint)")
    sink = place.sink(FLIGHTS)
    with pytest.raises(ConfigError, match="tail is a uuid"):
        sink.check_states()
    sink.close()
