"""Whose fault an error of the server is: a row's, the table's, or nobody's for long. On a real server."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg.errors
import pytest

from leasehold.database.postgres import troubles
from leasehold.errors import SinkError, SinkUnavailable
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import E, batch
from tests.sinks.postgres import FLIGHTS, Place

TABLE = "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)"
EVENTS = [E(tail, status=tail, number=number) for number, tail in enumerate(("a", "bad", "c"))]


@pytest.fixture
def sink(place: Place) -> Iterator[PostgresSink]:
    made = place.sink(FLIGHTS)
    yield made
    made.close()


def trigger(body: str, declare: str = "") -> list[str]:
    """A table whose trigger runs this for the row of the key `bad`, and lets all others pass."""
    return [
        TABLE,
        f"CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ {declare} BEGIN "
        f"IF NEW.tail <> 'bad' THEN RETURN NEW; END IF; {body} END $$",
        "CREATE TRIGGER judge BEFORE INSERT ON flights FOR EACH ROW EXECUTE FUNCTION judge()",
    ]


def raising(code: str) -> list[str]:
    return trigger(f"RAISE 'not this' USING ERRCODE = '{code}';")


ROWS = {
    **{f"raised as {code}": raising(code) for code in ("45000", "38000", "U1234", "09000", "27000", "39P01")},
    # Codes of the server's own, from somebody's RAISE:
    **{f"raised as {code}": raising(code) for code in ("42501", "42P01", "55000", "XX000", "0A000", "2200H", "XX001")},
    "no RETURN": trigger("NULL;"),
    "a CASE without it": trigger("CASE NEW.status WHEN 'good' THEN RETURN NEW; END CASE;"),
    "an assertion": trigger("ASSERT NEW.status = 'good', 'not this';"),
    "too deep": [
        TABLE,
        "CREATE FUNCTION deep(n text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN n <> 'bad' OR "
        "@deep(n); END $$",
        "ALTER TABLE flights ADD CHECK (@deep(status))",
    ],
    "its own language": [TABLE, "CREATE INDEX ON flights ((to_tsquery('simple', replace(status, 'bad', 'a b'))))"],
    "a part of a date that does not exist": [
        TABLE,
        "ALTER TABLE flights ADD CHECK (date_trunc(replace(replace(status, 'a', 'day'), 'c', 'day'), "
        "interval '1 day') IS NOT NULL) NOT VALID",
    ],
}


@pytest.mark.more(but=8)
@pytest.mark.parametrize("table", ROWS)
def test_what_a_row_causes_rejects_it_and_no_other(place: Place, sink: PostgresSink, table: str) -> None:
    place.run(*(one.replace("@", f"{place.schema}.") for one in ROWS[table]))
    assert sink.apply(batch(EVENTS)) == one_row_each(applied=2, rejected=1)
    assert place.look("SELECT sequence_number FROM flights_rejected") == [(1,)]
    assert place.look("SELECT tail FROM flights ORDER BY 1") == [("a",), ("c",)]


def test_a_rejected_row_is_no_warning_of_the_driver(
    place: Place, sink: PostgresSink, caplog: pytest.LogCaptureFixture
) -> None:
    place.run(*raising("45000"), "ALTER TABLE flights ADD twin text REFERENCES flights")  # so all go row by row
    events = [E(tail, number=number) for number, tail in enumerate(["bad", *map(str, range(1500))])]
    assert sink.apply(batch(events)) == one_row_each(applied=1500, rejected=1)
    assert place.look("SELECT reason FROM flights_rejected") == [("not this",)]
    assert [record for record in caplog.records if record.name.startswith("psycopg")] == []


def test_a_row_that_a_policy_refuses_is_rejected_alone(place: Place, sink: PostgresSink) -> None:
    sink.apply(batch([E("before")]))
    role = f"user_{place.schema}"
    place.run(
        "ALTER TABLE flights ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY judged ON flights USING (true) WITH CHECK (tail <> 'bad')",
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {place.schema} TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place.schema} TO {role}",
    )
    theirs = PostgresSink(place.url.replace("postgres:@", f"{role}:@"), FLIGHTS)
    try:
        events = [event._replace(number=event.number + 1) for event in EVENTS]
        assert theirs.apply(batch(events)) == one_row_each(applied=2, rejected=1)
        place.run(f"REVOKE INSERT ON flights FROM {role}")  # the same code, and no row's fault
        with pytest.raises(SinkError, match="permission denied"):
            theirs.apply(batch([E("d", number=9)]))
    finally:
        theirs.close()
        place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    assert place.look("SELECT count(*) FROM flights_rejected") == [(1,)]


LASTING = {
    "a table that is not there": trigger("INSERT INTO nothing_here VALUES (1); RETURN NEW;"),
    "a schema that is not there": trigger("PERFORM nowhere.f(); RETURN NEW;"),
    "no transaction of its own": trigger("COMMIT; RETURN NEW;"),
    "a value of a sequence that was not asked": [
        "CREATE SEQUENCE own",
        *trigger("PERFORM pg_catalog.currval('@own'); RETURN NEW;"),
    ],
}


@pytest.mark.parametrize("table", LASTING)
def test_what_is_wrong_with_the_table_rejects_nothing(place: Place, sink: PostgresSink, table: str) -> None:
    place.run(*(one.replace("@", f"{place.schema}.") for one in LASTING[table]))
    with pytest.raises(SinkError) as raised:
        sink.apply(batch(EVENTS))
    assert not isinstance(raised.value, SinkUnavailable)
    assert place.look("SELECT count(*) FROM flights") == [(0,)]
    assert sink.watermarks("h") == {}


@pytest.mark.parametrize("code", ["53100", "55P03", "57014", "58030", "25006"])
def test_what_passes_is_waited_for_also_if_a_trigger_says_it(place: Place, sink: PostgresSink, code: str) -> None:
    place.run(*raising(code))
    with pytest.raises(SinkUnavailable) as raised:
        sink.apply(batch(EVENTS))
    assert ("pg_stat_activity" in str(raised.value)) == (code == "55P03")
    place.run("DROP TRIGGER judge ON flights")
    assert sink.apply(batch(EVENTS)).applied == 3


ABOUT_ROWS = (
    *("02", "03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22", "23", "24", "27", "2B", "2F", "34"),
    *("38", "39", "44", "54", "P0", "XX"),
)
"""Classes of which a row may be the cause. The others of Postgres are the server's own, or its tables'."""


def test_every_code_of_postgres_is_sorted() -> None:
    classes = {code[:2] for code in psycopg.errors._sqlcodes if len(code) == 5}
    own = troubles._PASSES | troubles._LASTS
    assert classes == own | set(ABOUT_ROWS)
    assert not own & set(ABOUT_ROWS)
    assert not troubles._PASSES & troubles._LASTS
