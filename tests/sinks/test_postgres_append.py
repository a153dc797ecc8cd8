"""A table in Postgres where every event counts: rows are copied straight into it, or one by one if one is refused."""

from __future__ import annotations

import pytest

from leasehold.sinks.postgres.merging import Merge
from leasehold.sinks.postgres.staging import Staging
from leasehold.sinks.rules.table_spec import TableSpec
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import E, batch
from tests.sinks.postgres import Place

SPEC = TableSpec(name="flights", pipeline="p", mode="append")
COLUMNS = "number bigint GENERATED ALWAYS AS IDENTITY, tail varchar(3), status text DEFAULT 'new', slot smallint"
STAMP = """CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN NEW.status = NEW.status || '!'; RETURN NEW; END $$"""
ROWS = "SELECT tail, status, slot FROM flights ORDER BY number"


@pytest.mark.more(but=1)
@pytest.mark.parametrize(
    ("made", "mark"),
    [
        (f"CREATE TABLE flights ({COLUMNS})", ""),
        (f"CREATE TABLE flights ({COLUMNS}); CREATE INDEX ON flights USING brin (slot)", ""),
        (f"CREATE TABLE flights ({COLUMNS}); {STAMP}; CREATE TRIGGER t BEFORE INSERT ON flights FOR EACH ROW "
         "EXECUTE FUNCTION stamp()", "!"),
        ("CREATE TABLE flights (number serial, tail text, status text, slot smallint) PARTITION BY LIST (tail); "
         "CREATE TABLE others PARTITION OF flights DEFAULT", ""),
    ],
    ids=["plain", "an index", "a trigger", "partitions"],
)  # fmt: skip
def test_rows_are_copied_straight_into_the_table(
    place: Place, monkeypatch: pytest.MonkeyPatch, made: str, mark: str
) -> None:
    monkeypatch.delattr(Merge, "append")
    monkeypatch.delattr(Staging, "make")
    place.run(made)
    sink = place.sink(SPEC)
    some = [E("b", 'a "1",\n', 1), E("a", "", 2, number=1), E("b", None, None, number=2)]
    assert sink.apply(batch(some)) == one_row_each(applied=3)
    assert sink.apply(batch(some)) == one_row_each(applied=0, replayed=3)
    assert place.look(ROWS) == [("b", f'a "1",\n{mark}', 1), ("a", mark, 2), ("b", None, None)]
    sink.close()


def test_a_row_that_the_table_refuses_is_set_aside_alone(place: Place) -> None:
    place.run(f"CREATE TABLE flights ({COLUMNS}, UNIQUE (slot))")
    sink = place.sink(SPEC)
    some = [E("a", "1", 1), E("long", "2", 2, number=1), E("b", "\0", 3, number=2), E("c", "4", 1, number=3)]
    assert sink.apply(batch([*some, E("d", "5", 32768, number=4), E("e", "6", number=5)])) == one_row_each(
        applied=2, rejected=4
    )
    assert place.look(ROWS) == [("a", "1", 1), ("e", "6", None)]
    assert sink.apply(batch([E("f", "7", number=6)])).applied == 1
    sink.close()


@pytest.mark.parametrize("rule", ["CREATE RULE two AS ON INSERT TO flights DO ALSO INSERT INTO seen VALUES (NEW.tail)"])
def test_a_rule_sees_each_row(place: Place, rule: str) -> None:
    place.run(
        "CREATE TABLE flights (number serial, tail text, status text, slot smallint)", "CREATE TABLE seen (t text)"
    )
    place.run(rule)
    sink = place.sink(SPEC)
    assert sink.apply(batch([E("a"), E("b", number=1)])).applied == 2
    assert place.look("SELECT t FROM seen ORDER BY 1") == [("a",), ("b",)]
    sink.close()
