"""What `leasehold check` finds of a table by a row that is written on trial and undone. On a real server."""

from __future__ import annotations

import pytest

from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks import TableSpec
from tests.sinks.events import SCHEMA, E, batch
from tests.sinks.postgres import FLIGHTS, Place

TABLE = "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)"
INNER = "CREATE FUNCTION inner_one(s text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT lower($1)'"
OUTER = (
    "CREATE FUNCTION outer_one(s text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN inner_one(s); END'",
    "CREATE FUNCTION on_row() RETURNS trigger LANGUAGE plpgsql AS "
    "'BEGIN PERFORM inner_one(NEW.status); RETURN NEW; END'",
)
RUNS = {
    "an index": "CREATE INDEX ON flights (outer_one(status))",
    "the condition of an index": "CREATE INDEX ON flights (slot) WHERE outer_one(status) = 'x'",
    "a check": "ALTER TABLE flights ADD CHECK (outer_one(status) <> 'x')",
    "a computed column": "ALTER TABLE flights ADD low text GENERATED ALWAYS AS (outer_one(status)) STORED",
    "a trigger before": "CREATE TRIGGER t BEFORE INSERT ON flights FOR EACH ROW EXECUTE FUNCTION on_row()",
    "a trigger after": "CREATE TRIGGER t AFTER INSERT ON flights FOR EACH ROW EXECUTE FUNCTION on_row()",
    "a trigger of updates": "CREATE TRIGGER t AFTER UPDATE ON flights FOR EACH ROW EXECUTE FUNCTION on_row()",
    "a default": "ALTER TABLE flights ADD low text DEFAULT outer_one('x')",
}


@pytest.mark.more(but=5)
@pytest.mark.parametrize("rows", [1, 0])
@pytest.mark.parametrize("runs", RUNS)
def test_code_that_finds_nothing_by_the_search_path_is_found(place: Place, runs: str, rows: int) -> None:
    functions = ("outer_one(text)", "on_row()")
    finding = [f"ALTER FUNCTION {one} SET search_path = {place.schema}" for one in functions]
    place.run(TABLE, INNER, *OUTER, *finding, RUNS[runs])
    sink = place.sink(FLIGHTS)
    sink.apply(batch([E("a")] * rows))
    place.run(*(f"ALTER FUNCTION {one} RESET ALL" for one in functions))
    said = r"inner_one.*does not exist.*ALTER FUNCTION .* SET search_path"
    with pytest.raises(SinkError, match=said):
        sink.compare(SCHEMA)
    if "updates" in runs and not rows:
        sink.apply(batch([E("a")]))
    with pytest.raises(SinkError, match=said):
        sink.apply(batch([E("a", "x", number=1), E("b", "x", number=1)]))
    place.run(*finding)
    before = place.look("SELECT * FROM flights")
    assert sink.compare(SCHEMA).there
    assert place.look("SELECT * FROM flights") == before
    sink.close()


@pytest.mark.more
def test_a_publication_that_needs_a_replica_identity_is_no_outage(place: Place) -> None:
    """A table of the user's own may have a unique index and no primary key; all of ours have one."""
    place.run(
        "CREATE TABLE flights (tail text NOT NULL UNIQUE, status text, slot bigint)",
        f"CREATE PUBLICATION {place.schema} FOR TABLE flights",
    )
    sink = place.sink(FLIGHTS)
    for act in (lambda: sink.compare(SCHEMA), lambda: sink.apply(batch([E("a")]))):
        with pytest.raises(SinkError, match="ALTER TABLE … REPLICA IDENTITY") as raised:
            act()
        assert not isinstance(raised.value, SinkUnavailable)
    place.run("ALTER TABLE flights REPLICA IDENTITY USING INDEX flights_tail_key")
    assert sink.compare(SCHEMA).there
    assert sink.apply(batch([E("a")])).applied == 1
    sink.make_tables()
    without = place.look(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND "
        "relpersistence = 'p' AND NOT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)"
    )
    assert without == [("flights",)]
    place.run(f"DROP PUBLICATION {place.schema}")
    sink.close()


def test_a_row_on_trial_leaves_nothing(place: Place) -> None:
    place.run(
        "CREATE TABLE parts (id text PRIMARY KEY)",
        "INSERT INTO parts VALUES ('x')",
        "CREATE TABLE flights (tail text PRIMARY KEY, status text REFERENCES parts, slot bigint UNIQUE, "
        "id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT now(), low text GENERATED ALWAYS AS "
        "(lower(status)) STORED, CHECK (slot > 0), EXCLUDE USING btree (tail WITH =))",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER note AFTER INSERT ON flights FOR EACH ROW EXECUTE FUNCTION note()",
    )
    sink = place.sink(FLIGHTS)
    assert sink.compare(SCHEMA).there
    assert sink.apply(batch([E("a", "x", 1), E("b", "x", 2, number=1)])).applied == 2
    before = place.look("SELECT * FROM flights ORDER BY tail")
    for _ in range(2):
        assert sink.compare(SCHEMA).there
    assert place.look("SELECT * FROM flights ORDER BY tail") == before
    sink.apply(batch([E("c", "x", 3, number=2)]))
    assert place.look("SELECT id FROM flights ORDER BY tail") == [(1,), (2,), (3,)]
    sink.close()


@pytest.mark.more
def test_a_row_on_trial_waits_for_nobody(place: Place) -> None:
    sink = place.sink(FLIGHTS)
    sink.apply(batch([E("a")]))
    with place.connection.transaction():
        place.run("SELECT 1 FROM flights FOR UPDATE")
        assert sink.compare(SCHEMA).there
    append = place.sink(TableSpec(name="every", pipeline="p", mode="append"))
    append.apply(batch([E("a")]))
    assert append.compare(SCHEMA).there
    assert place.look("SELECT count(*) FROM every") == [(1,)]
    for one in (sink, append):
        one.close()
