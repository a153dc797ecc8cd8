"""What a table gives rows by itself and refuses stops the table; what a row brings is the row's. On a real server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks import TableSpec
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import SCHEMA, E, batch
from tests.sinks.postgres import FLIGHTS, Place

EVERY = TableSpec(name="flights", pipeline="p", mode="append")
COLUMNS = "tail text PRIMARY KEY, status text, slot bigint"


class Own(NamedTuple):
    """A column `own` that the table fills by itself, what is made before and after the table, and how it is mended."""

    column: str
    mend: str
    before: Sequence[str] = ()
    seen: bool = True
    """Whether it is found by a look alone."""
    after: Sequence[str] = ()


DEFAULT = "ALTER TABLE flights ALTER own DROP DEFAULT"
TYPE = "ALTER TABLE flights ALTER own TYPE bigint"
OWN = {
    "a number beyond an integer": Own("integer DEFAULT nextval('@n')", TYPE, ["CREATE SEQUENCE n START 3000000000"]),
    "a sequence that was set anew": Own(
        "smallint DEFAULT nextval('@n')",
        "SELECT setval('n', 1)",
        ["CREATE SEQUENCE n", "ALTER SEQUENCE n RESTART 70000"],
    ),
    "a number in a text": Own(
        "varchar(3) NOT NULL DEFAULT 'F' || nextval('@n')",
        "ALTER TABLE flights ALTER own TYPE text",
        ["CREATE SEQUENCE n START 1000"],
    ),
    "a constant beyond an integer": Own("integer DEFAULT 3000000000", TYPE),
    "a constant that is too long": Own("varchar(3) DEFAULT 'abcd'", DEFAULT),
    "a domain": Own("@positive DEFAULT -1", DEFAULT, ["CREATE DOMAIN positive AS integer CHECK (VALUE > 0)"]),
    "the default of a domain": Own(
        "@positive",
        "ALTER DOMAIN positive DROP DEFAULT",
        ["CREATE DOMAIN positive integer DEFAULT -1 CHECK (VALUE > 0)"],
    ),
    "a function that raises": Own(
        "text DEFAULT @own()",
        DEFAULT,
        ["CREATE FUNCTION own() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$"],
    ),
    "a CHECK": Own("integer DEFAULT 0 CHECK (own > 0)", DEFAULT),
    "a CHECK of an identity": Own(
        "integer GENERATED ALWAYS AS IDENTITY (START 9) CHECK (own < 9)",
        "ALTER TABLE flights DROP CONSTRAINT flights_own_check",
        seen=False,
    ),
    "a CHECK of the next number": Own(
        "integer DEFAULT nextval('@n') CHECK (own > 1000)", "SELECT setval('n', 5000)", ["CREATE SEQUENCE n START 7"]
    ),
    "NOT NULL": Own("text NOT NULL DEFAULT nullif('a', 'a')", "ALTER TABLE flights ALTER own SET DEFAULT 'x'"),
    "a foreign key": Own(
        "text DEFAULT 'none' REFERENCES @regions", DEFAULT, ["CREATE TABLE regions (name text PRIMARY KEY)"], seen=False
    ),
    "UNIQUE": Own("integer DEFAULT 7 UNIQUE", DEFAULT, seen=False),
    "an index that is unique": Own(
        "integer DEFAULT nextval('@n')",
        "SELECT setval('n', 100)",
        ["CREATE SEQUENCE n"],
        seen=False,
        after=[
            "CREATE UNIQUE INDEX unlike ON flights (own)",
            "INSERT INTO flights SELECT 'old ' || g, 'ok', g, g FROM generate_series(1, 90) AS g",
        ],
    ),
    "an exclusion constraint": Own("integer DEFAULT 7, EXCLUDE USING btree (own WITH =)", DEFAULT, seen=False),
}


@pytest.mark.more(but=6)
@pytest.mark.parametrize("mode", ["upsert", "append"])
@pytest.mark.parametrize("own", OWN)
def test_what_the_table_gives_by_itself_stops_it_and_loses_nothing(place: Place, own: str, mode: str) -> None:
    it = OWN[own]
    made = f"CREATE TABLE flights ({COLUMNS}, own {it.column})"
    place.run(*(one.replace("@", f"{place.schema}.") for one in (*it.before, made, *it.after)))
    sink = place.sink(EVERY if mode == "append" else FLIGHTS)
    if it.seen:
        with pytest.raises(SinkError, match="its own column own,"):
            sink.compare(SCHEMA)
    events = [E("a"), E("b", number=1), E("a" if mode != "append" else "c", number=2)]
    with pytest.raises(
        SinkError, match=r"the table flights refuses what it gives its own column own,.*nothing is lost"
    ) as raised:
        sink.apply(batch(events))
    assert not isinstance(raised.value, SinkUnavailable)
    assert sink.watermarks("h") == {}
    place.run(it.mend)
    assert sink.apply(batch(events)) == one_row_each(applied=3)
    assert place.look("SELECT count(*) FROM flights_rejected") == [(0,)]
    assert sink.compare(SCHEMA).there
    sink.close()


@pytest.mark.more
def test_a_domain_that_takes_no_null_is_a_column_of_its_own_too(place: Place) -> None:
    place.run("CREATE DOMAIN told AS text CHECK (VALUE IS NOT NULL)", f"CREATE TABLE flights ({COLUMNS}, own told)")
    sink = place.sink(FLIGHTS)
    for use in (lambda: sink.compare(SCHEMA), lambda: sink.apply(batch([E("a")]))):
        with pytest.raises(SinkError, match=r"its own column own,.*DEFAULT NULL"):
            use()
    sink.close()


@pytest.mark.more
def test_a_number_that_leaves_its_columns_range_within_a_batch_rejects_none_but_bad_events(place: Place) -> None:
    place.run(
        "CREATE SEQUENCE n START 32700",
        f"CREATE TABLE flights ({COLUMNS}, own smallint DEFAULT nextval('{place.schema}.n'), CHECK (status <> 'no'), "
        "twin integer GENERATED ALWAYS AS (100 / slot) STORED)",
    )
    sink = place.sink(FLIGHTS)
    events = [E(str(number), "no" if number == 3 else "ok", number % 7, number=number) for number in range(100)]
    with pytest.raises(SinkError, match=r"own column own.*smallint out of range \(DEFAULT nextval"):
        sink.apply(batch(events))
    assert sink.watermarks("h") == {}
    place.run("ALTER TABLE flights ALTER own TYPE bigint")
    assert sink.apply(batch(events)) == one_row_each(applied=84, rejected=16)
    sink.close()


ROWS = {
    "a domain": ["CREATE DOMAIN fine AS text CHECK (VALUE <> 'bad')", "ALTER TABLE flights ALTER status TYPE @fine"],
    "a generated column": ["ALTER TABLE flights ADD low varchar(2) GENERATED ALWAYS AS (status) STORED"],
    "a generated column that is unique": [
        "ALTER TABLE flights ADD low text GENERATED ALWAYS AS (nullif(replace(status, 'bad', 'a'), 'c')) STORED UNIQUE"
    ],
    "a CHECK with a column of the row": ["ALTER TABLE flights ADD CHECK (own < 0 OR status <> 'bad')"],
    "an index with a column of the row": ["CREATE UNIQUE INDEX ON flights (fixed, (status = 'bad' OR status = 'a'))"],
    "an index of some rows": ["CREATE UNIQUE INDEX ON flights (fixed) WHERE status IN ('a', 'bad')"],
    "an exclusion constraint of some rows": [
        "ALTER TABLE flights ADD EXCLUDE USING btree (fixed WITH =) WHERE (status IN ('a', 'bad'))"
    ],
    "a trigger that writes the column later": [
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE @flights SET fixed = CASE status "
        "WHEN 'bad' THEN NULL ELSE 1 END WHERE tail = NEW.tail; RETURN NULL; END $$",
        "ALTER TABLE flights ALTER fixed SET NOT NULL",
        "CREATE TRIGGER fill AFTER INSERT ON flights FOR EACH ROW EXECUTE FUNCTION fill()",
    ],
    "a trigger that raises": [
        "CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.status = 'bad' THEN "
        "RAISE 'not this' USING ERRCODE = '22003'; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER judge BEFORE INSERT ON flights FOR EACH ROW EXECUTE FUNCTION judge()",
    ],
    "a trigger that fills the column": [
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.fixed := CASE NEW.status "
        "WHEN 'bad' THEN NULL ELSE 1 END; RETURN NEW; END $$",
        "ALTER TABLE flights ALTER fixed SET NOT NULL",
        "CREATE TRIGGER fill BEFORE INSERT ON flights FOR EACH ROW EXECUTE FUNCTION fill()",
    ],
    "a trigger that writes elsewhere": [
        "CREATE TABLE elsewhere (own integer CHECK (own > 0))",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.status = 'bad' THEN "
        "INSERT INTO @elsewhere VALUES (0); END IF; RETURN NEW; END $$",
        "CREATE TRIGGER note AFTER INSERT ON flights FOR EACH ROW EXECUTE FUNCTION note()",
    ],
}


@pytest.mark.more(but=15)
@pytest.mark.parametrize("mode", ["upsert", "append"])
@pytest.mark.parametrize("rule", ROWS)
def test_what_a_row_brings_rejects_it_alone(place: Place, rule: str, mode: str) -> None:
    place.run(
        "CREATE SEQUENCE n",
        f"CREATE TABLE flights ({COLUMNS}, own bigint DEFAULT nextval('{place.schema}.n') CHECK (own > 0), "
        "fixed integer DEFAULT 1)",
        *(one.replace("@", f"{place.schema}.") for one in ROWS[rule]),
    )
    sink = place.sink(EVERY if mode == "append" else FLIGHTS)
    events = [E(tail, status=tail, number=number) for number, tail in enumerate(("a", "bad", "c"))]
    assert sink.apply(batch(events)) == one_row_each(applied=2, rejected=1)
    assert place.look("SELECT sequence_number FROM flights_rejected") == [(1,)]
    assert place.look("SELECT tail FROM flights ORDER BY 1") == [("a",), ("c",)]
    temporary = "SELECT relname FROM pg_class WHERE relpersistence = 't' AND relname LIKE 'leasehold own%'"
    assert place.look(temporary) == []
    sink.close()


@pytest.mark.more
@pytest.mark.parametrize("ends", ["NO ACTION", "SET NULL"])
def test_a_row_that_others_of_the_table_refer_to_is_not_deleted(place: Place, ends: str) -> None:
    place.run(
        f"CREATE TABLE flights ({COLUMNS}, own text NOT NULL DEFAULT 'c' REFERENCES flights (tail) ON DELETE {ends})",
        "INSERT INTO flights (tail, own) VALUES ('c', 'c'), ('bad', 'c'), ('led', 'bad')",
    )
    sink = place.sink(FLIGHTS)
    events = [E("a"), E("bad", number=1, gone=True), E("b", number=2)]
    assert sink.apply(batch(events, deletes=True)) == one_row_each(applied=2, rejected=1)
    assert place.look("SELECT sequence_number FROM flights_rejected") == [(1,)]
    sink.close()


@pytest.mark.more
def test_what_a_default_refers_to_in_the_table_itself_may_come_later(place: Place) -> None:
    place.run(f"CREATE TABLE flights ({COLUMNS}, own text DEFAULT 'c' REFERENCES flights (tail))")
    sink = place.sink(FLIGHTS)
    assert sink.apply(batch([E("a"), E("c", number=1), E("d", number=2)])) == one_row_each(applied=2, rejected=1)
    sink.close()


@pytest.mark.more
def test_a_time_that_no_partition_takes_stops_the_table(place: Place) -> None:
    """Rows of a log are parted by when they are written, and nobody has made the partition of this month."""
    place.run(
        "CREATE TABLE flights (tail text, status text, slot bigint, at timestamptz DEFAULT now()) "
        "PARTITION BY RANGE (at)",
        "CREATE TABLE before PARTITION OF flights FOR VALUES FROM ('2000-01-01') TO ('2001-01-01')",
    )
    sink = place.sink(EVERY)
    with pytest.raises(SinkError, match=r"its own column at.*no partition of relation"):
        sink.apply(batch([E("a")]))
    place.run("CREATE TABLE others PARTITION OF flights DEFAULT")
    assert sink.apply(batch([E("a")])).applied == 1
    sink.close()
