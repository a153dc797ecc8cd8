"""What Postgres does with types, constraints, names and trouble, on a real server."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from leasehold.database.rights import Thing
from leasehold.errors import ConfigError, SchemaMismatch, SinkError, SinkUnavailable, UsageError
from leasehold.operations.asking_rights import asked_for
from leasehold.operations.rights import TableUse, Use
from leasehold.sinks import Batch, BatchResult, TableSpec, open_sink
from leasehold.sinks.postgres import rows
from leasehold.sinks.postgres.merging import Merge
from leasehold.sinks.postgres.session import PostgresSession
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.postgres.staging import Staging, encode
from leasehold.sinks.rules.fence import Watermark
from leasehold_testkit.clock import ManualClock
from leasehold_testkit.contracts.sinks.fixtures import one_row_each
from tests.sinks.events import E, batch, lacking_chunks
from tests.sinks.postgres import FLIGHTS, Place
from tests.waiting import PATIENCE, until

ROWS = "SELECT tail, status, slot FROM flights ORDER BY tail"
REASONS = "SELECT sequence_number, reason FROM flights_rejected ORDER BY 1"
WITH_SLOT = "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot integer UNIQUE)"


def numbered(*rows: E) -> list[E]:
    return [row._replace(number=number) for number, row in enumerate(rows)]


def of(values: dict[str, pa.Array], first: int = 0) -> Batch:
    """Rows of these columns, one an event."""
    count = len(next(iter(values.values())))
    fence = {"hub": ["h"] * count, "partition": ["0"] * count, "ownerLevel": [1] * count}
    return Batch(pa.table({**values, **fence, "sequenceNumber": range(first, first + count)}))


@pytest.fixture
def sink(place: Place) -> Iterator[PostgresSink]:
    made = place.sink(FLIGHTS)
    yield made
    made.close()


# values

VALUES = {
    "key": pa.array(["k"]),
    "small": pa.array([-5], pa.int16()),
    "big": pa.array([-(2**63)], pa.int64()),
    "yes": pa.array([True]),
    "real": pa.array([0.1], pa.float64()),
    "float": pa.array([0.5], pa.float32()),
    "text": pa.array(['ä, "quoted"\n\\ line']),
    "empty": pa.array([""]),
    "none": pa.array([None], pa.string()),
    "bytes": pa.array([b"\x00\xff"]),
    "exact": pa.array([Decimal("-12345678901234567890.50")], pa.decimal128(38, 2)),
    "day": pa.array([dt.date(1, 1, 1)]),
    "at": pa.array([dt.datetime(2026, 1, 31, 8, 0, 0, 5, dt.UTC)], pa.timestamp("us", "UTC")),
    "local": pa.array([dt.datetime(2026, 1, 31, 8, 0, 0, 5)], pa.timestamp("us")),
    "list": pa.array([[1, None]], pa.list_(pa.int64())),
    "struct": pa.array([{"a": "x", "b": 1.5}]),
}
KEPT = (
    *("k", -5, -(2**63), True, 0.1, 0.5, 'ä, "quoted"\n\\ line', "", None, b"\x00\xff"),
    *(Decimal("-12345678901234567890.50"), dt.date(1, 1, 1), dt.datetime(2026, 1, 31, 8, 0, 0, 5, dt.UTC)),
    *(dt.datetime(2026, 1, 31, 8, 0, 0, 5), [1, None], {"a": "x", "b": 1.5}),
)
DECLARED = ["text", "integer", "bigint", "boolean", "double precision", "real", "text", "text", "text", "bytea"]
DECLARED += ["numeric", "date", "timestamp with time zone", "timestamp without time zone", "jsonb", "jsonb"]


def test_every_type_comes_back_as_it_was(place: Place) -> None:
    sink = place.sink(TableSpec(name="types", pipeline="p", keys=("key",)))
    assert sink.apply(of(VALUES)) == one_row_each(applied=1)
    assert place.look("SELECT * FROM types") == [KEPT]
    declared = "SELECT data_type FROM information_schema.columns WHERE table_name = 'types' AND table_schema = '{}'"
    assert [name for (name,) in place.look(declared.format(place.schema))] == DECLARED
    sink.close()


def test_infinities_and_nan_stay(place: Place) -> None:
    sink = place.sink(TableSpec(name="floats", pipeline="p", mode="append"))
    sink.apply(of({"v": pa.array([float("inf"), float("-inf"), float("nan"), -0.0])}))
    assert place.look("SELECT v::text FROM floats") == [("Infinity",), ("-Infinity",), ("NaN",), ("0",)]
    sink.close()


def test_text_with_nul_is_rejected_and_kept(place: Place, sink: PostgresSink) -> None:
    rows = numbered(E("a"), E("b\0"), E("c", status="\0"), E("d"))
    assert sink.apply(batch(rows)) == one_row_each(applied=2, rejected=2)
    nul = "has a NUL character, which Postgres cannot hold in text"
    assert place.look(REASONS) == [(1, f"tail {nul}"), (2, f"status {nul}")]
    [(body,), _] = place.look("SELECT convert_from(body, 'UTF8') FROM flights_rejected ORDER BY sequence_number")
    assert '"tail":"b\\u0000"' in body


def test_a_nul_in_json_is_rejected(place: Place) -> None:
    sink = place.sink(TableSpec(name="j", pipeline="p", mode="append"))
    assert sink.apply(of({"v": pa.array([["\0"], ["\\u0000"]])})) == one_row_each(applied=1, rejected=1)
    sink.close()


def test_a_delete_that_is_refused_is_kept_with_what_postgres_cannot_hold(place: Place) -> None:
    place.run(
        "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)",
        "CREATE TABLE seats (tail text REFERENCES flights)",
        "INSERT INTO flights VALUES ('a', 'ok', 1)",
        "INSERT INTO seats VALUES ('a')",
    )
    sink = place.sink(FLIGHTS)
    assert sink.apply(batch([E("a", "n\0l", gone=True)], deletes=True)) == one_row_each(rejected=1)
    [(body,)] = place.look("SELECT convert_from(body, 'UTF8') FROM flights_rejected")
    assert "n\\u0000l" in body
    sink.close()


# constraints: the outcome is that of one row after the other

CONSTRAINED = [
    ("a not null", "status text NOT NULL", [E("a", "x"), E("a", None), E("b", None), E("a", "y")], [1, 2]),
    (
        "a check",
        "status text CHECK (status LIKE 'o%')",
        [E("a", "ok"), E("a", "no"), E("a", "ok2"), E("b", "no")],
        [1, 3],
    ),
    ("a length", "status varchar(3)", [E("a", "long"), E("a", "abc"), E("b", "abc"), E("b", "abcd")], [0, 3]),
    ("a domain", "status short", [E("a", "long"), E("a", "abc"), E("b", "abcd")], [0, 2]),
    ("a number", "status text, slot smallint", [E("a", slot=70000), E("a", slot=7), E("b", slot=-70000)], [0, 2]),
    ("a partial index", "status text", [E("a", "x", 1), E("b", "y", 1), E("c", "x", 1), E("c", "x", 2)], [2]),
    (
        "a foreign key",
        "status text REFERENCES known",
        [E("a", "in"), E("a", "out"), E("b", "out"), E("b", "in")],
        [1, 2],
    ),
]


@pytest.mark.parametrize(
    ("columns", "rows", "wrong"), [one[1:] for one in CONSTRAINED], ids=[o[0] for o in CONSTRAINED]
)
def test_a_row_that_breaks_a_rule_is_rejected_alone(
    place: Place, sink: PostgresSink, columns: str, rows: list[E], wrong: list[int]
) -> None:
    place.run("CREATE TABLE known (id text PRIMARY KEY)", "INSERT INTO known VALUES ('in')")
    place.run("CREATE DOMAIN short AS text CHECK (length(VALUE) < 4)")
    slot = "" if "slot" in columns else ", slot integer"
    place.run(f"CREATE TABLE flights (tail text PRIMARY KEY, {columns}{slot})")
    place.run("CREATE UNIQUE INDEX ON flights (slot, lower(status)) WHERE status = 'x'")
    events = numbered(*rows)
    assert sink.apply(batch(events)).rejected == len(wrong)
    assert [number for number, _ in place.look(REASONS)] == wrong
    last = {e.tail: (e.tail, e.status, e.slot) for e in events if e.number not in wrong}
    assert place.look(ROWS) == sorted(last.values())


def test_keys_that_hand_a_unique_value_on_go_in_the_order_of_events(place: Place, sink: PostgresSink) -> None:
    place.run(WITH_SLOT)
    sink.apply(batch(numbered(E("a", slot=1), E("b", slot=2), E("c", slot=3))))
    chain = [
        E("a", slot=9),
        E("b", slot=1),
        E("c", slot=2),
        E("d", slot=9),
        E("e", slot=5),
        E("b", slot=7),
        E("f", slot=1),
    ]
    result = sink.apply(batch([e._replace(number=e_number) for e_number, e in enumerate(chain, 3)]))
    assert (result.applied, result.rejected) == (6, 1)
    assert place.look(ROWS) == [(k, "ok", s) for k, s in (("a", 9), ("b", 7), ("c", 2), ("e", 5), ("f", 1))]
    assert [number for number, _ in place.look(REASONS)] == [6]


def test_a_deferred_constraint_is_checked_row_by_row(place: Place, sink: PostgresSink) -> None:
    place.run(
        "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot integer UNIQUE DEFERRABLE INITIALLY DEFERRED)"
    )
    assert sink.apply(batch(numbered(E("a", slot=1), E("b", slot=1)))) == one_row_each(applied=1, rejected=1)


def test_what_only_the_write_shows_is_rejected_alone(place: Place, sink: PostgresSink) -> None:
    """A trigger that raises, among more keys than go row by row at once."""
    place.run(
        "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot integer)",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.slot = 77 THEN RAISE 'not on %', NEW.slot; END IF; RETURN NEW; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON flights FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    events = numbered(*(E(f"{slot:03}", slot=slot) for slot in range(300)))
    assert sink.apply(batch(events)) == one_row_each(applied=299, rejected=1)
    assert place.look(REASONS) == [(77, "not on 77")]
    assert sink.apply(batch([E("077", number=300, partition="1")])).applied == 1  # it was never written


# tables that are there


def test_an_existing_table_is_checked_before_the_first_write(place: Place, sink: PostgresSink) -> None:
    place.run(
        "CREATE TABLE flights (tail text PRIMARY KEY, status date, slot integer GENERATED ALWAYS AS (1) STORED, "
        "must text NOT NULL)"
    )
    with pytest.raises(SchemaMismatch) as refused:
        sink.check(batch([]).rows.schema)
    assert "status: is of type string, and the table declares it date" in str(refused.value)
    assert "slot: is computed by the table itself" in str(refused.value)
    place.run("ALTER TABLE flights DROP COLUMN status, DROP COLUMN slot, ADD COLUMN slot integer")
    with pytest.raises(SchemaMismatch, match=r'status: is not in the table.* ADD COLUMN "status" text'):
        sink.check(batch([]).rows.schema)
    place.run("ALTER TABLE flights ADD COLUMN status text")
    with pytest.raises(SchemaMismatch, match="must: is NOT NULL and has no default"):
        sink.check(batch([]).rows.schema)
    place.run(
        "ALTER TABLE flights ALTER COLUMN must SET DEFAULT 'x', ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY"
    )
    sink.apply(batch([E("a")]))
    place.run("ALTER TABLE flights DROP CONSTRAINT flights_pkey")
    with pytest.raises(SchemaMismatch, match="tail: neither the primary key nor a unique index"):
        sink.apply(batch([E("b", number=1)]))


def test_names_are_quoted_wherever_they_stand(place: Place) -> None:
    place.run(
        'CREATE TABLE "Order %s" ("group" text PRIMARY KEY, "Tail ""x"" %" text CHECK ("Tail ""x"" %" LIKE \'a%\'))'
    )
    sink = place.sink(TableSpec(name="Order %s", pipeline="p", keys=("GROUP",)))
    columns = {"Group": pa.array(["k", "l"]), 'Tail "x" %': pa.array(["a%", "b"])}
    assert sink.apply(of(columns)) == one_row_each(applied=1, rejected=1)
    assert place.look('SELECT * FROM "Order %s"'.replace("%", "%")) == [("k", "a%")]
    sink.close()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("CREATE VIEW flights AS SELECT 'a' AS tail", "is a view"),
        ("CREATE MATERIALIZED VIEW flights AS SELECT 'a' AS tail", "is a materialized view"),
    ],
)
def test_what_is_no_table_is_refused(place: Place, sink: PostgresSink, made: str, words: str) -> None:
    place.run(made)
    with pytest.raises(SchemaMismatch, match=words):
        sink.check(batch([]).rows.schema)


def test_a_partitioned_table_is_filled(place: Place, sink: PostgresSink) -> None:
    place.run(
        "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot integer) PARTITION BY LIST (tail)",
        "CREATE TABLE flights_a PARTITION OF flights FOR VALUES IN ('a')",
    )
    assert sink.apply(batch(numbered(E("a"), E("b"), E("a", "late")))) == one_row_each(applied=2, rejected=1)
    assert place.look(ROWS) == [("a", "late", None)]


def test_a_name_that_postgres_would_cut_off_is_refused(place: Place) -> None:
    with pytest.raises(ConfigError, match="cuts names off"):
        open_sink(place.url, TableSpec(name="x" * 50, pipeline="p", mode="append"))


def test_a_table_of_somebody_else_is_refused(place: Place, sink: PostgresSink) -> None:
    role = f"other_{place.schema}"
    place.run(f"CREATE ROLE {role}", "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot integer)")
    place.run(f"ALTER TABLE flights OWNER TO {role}")
    with pytest.raises(UsageError, match=f"belongs to {role}"):
        sink.apply(batch([E("a")]))
    place.run("DROP TABLE flights", f"DROP ROLE {role}")


def test_a_dropped_table_is_not_made_anew(place: Place, sink: PostgresSink) -> None:
    sink.apply(batch([E("a")]))
    place.run("DROP TABLE flights")
    with pytest.raises(SinkError, match="has been dropped"):
        sink.apply(batch([E("b", number=1)]))
    with pytest.raises(SinkError, match="has been dropped"):
        sink.compare(None)
    with pytest.raises(SinkError, match="has been dropped"):
        sink.check_watermarks("h", {"0": Watermark(-1, 1)}, is_part=True)


def test_a_user_who_may_make_nothing_fills_what_is_there(place: Place, sink: PostgresSink) -> None:
    """With the rights that docs/table.md names, and no others."""
    sink.check(batch([]).rows.schema)
    role = f"writer_{place.schema}"
    tables = "flights, flights_rejected, leasehold_key_flights, leasehold_table, leasehold_watermark"
    place.run(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {place.schema} TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}",
        f"GRANT SELECT ON leasehold_skip TO {role}",
    )
    least_url = place.url.replace("postgres:@", f"{role}@")
    least = PostgresSink(least_url, FLIGHTS)
    assert least.apply(batch(numbered(E("a"), E("b\0")))) == one_row_each(applied=1, rejected=1)
    others = TableSpec(name="others", pipeline="p", mode="append")
    maker = PostgresSink(least_url, others)
    with pytest.raises(SinkError, match="permission denied"):
        maker.check(batch([]).rows.schema)
    assert least.compare(None).there
    use = Use(table=TableUse(FLIGHTS))
    before = set(asked_for(least_url, use, timeout=PATIENCE).needed)
    for right, table in (("INSERT", "flights"), ("UPDATE", "leasehold_watermark"), ("SELECT", "leasehold_key_flights")):
        place.run(f"REVOKE {right} ON {table} FROM {role}")
        [lacking] = set(asked_for(least_url, use, timeout=PATIENCE).needed) - before
        assert (lacking.right, lacking.thing) == (right, Thing("TABLE", table, place.schema))
        place.run(f"GRANT {right} ON {table} TO {role}")
    least.close()
    place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_columns_of_every_type_are_added_by_the_owner_alone(place: Place, sink: PostgresSink) -> None:
    sink.check(batch([]).rows.schema)
    types_of = [
        *(("On", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("n", pa.decimal128(30, 2)), ("select", pa.int32())),
        *(("parts", pa.list_(pa.string())), ("yes", pa.bool_()), ("tail", pa.string())),
    ]
    wanted = pa.schema([field for field in batch([]).rows.schema if field.name != "tail"] + types_of)
    role = f"writer_{place.schema}"
    place.run(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {place.schema} TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {place.schema} TO {role}",
    )
    adding = replace(FLIGHTS, schema_evolution="add")
    least = PostgresSink(place.url.replace("postgres:@", f"{role}@"), adding)
    for call in (least.check, least.compare):
        with pytest.raises(SchemaMismatch, match=r'n: is not in the table, and only the .* owner may .*"n" numeric'):
            call(wanted)
    least.close()
    place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    columns = """SELECT attname::text || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE attrelid = 'flights'::regclass AND attnum > 3 AND NOT attnotnull ORDER BY attnum"""
    before = place.sink(adding).compare(wanted).added
    assert place.look(columns) == []
    place.sink(adding).check(wanted)
    assert [row[0] for row in place.look(columns)] == [
        *("On date", "at timestamp with time zone", "n numeric(30,2)", "select integer", "parts jsonb", "yes boolean")
    ]
    assert before == (
        *('"On" date', '"at" timestamptz', '"n" numeric(30,2)', '"select" integer', '"parts" jsonb', '"yes" boolean'),
    )
    place.run("CREATE TABLE keyless (other text)")
    with pytest.raises(SchemaMismatch, match="tail: is not in the table"):
        place.sink(replace(adding, name="keyless")).check(wanted)
    place.run('CREATE TABLE odd (tail text PRIMARY KEY, "ON" date, "on" date)')
    with pytest.raises(SchemaMismatch, match="On: is not in the table"):  # either of the two could be meant
        place.sink(replace(adding, name="odd")).check(wanted)


def test_a_column_is_added_once_the_writers_of_now_are_through(place: Place, sink: PostgresSink) -> None:
    sink.apply(batch([E("a")]))
    adding = replace(FLIGHTS, schema_evolution="add")
    late = place.sink(adding)
    hasty = place.sink(adding, timeout=0.5)  # impatient: for the batch that is blocked for good
    rows = batch([E("b", number=1)]).rows.append_column("more", pa.array([1]))
    with psycopg.connect(place.url) as other:
        other.execute("UPDATE flights SET status = 'busy'")
        assert late.compare(rows.schema).added == ('"more" bigint',)  # a look waits for nobody
        with pytest.raises(SinkUnavailable):
            hasty.apply(Batch(rows))
    assert late.apply(Batch(rows)).applied == 1
    assert place.look("SELECT tail, more FROM flights ORDER BY 1") == [("a", None), ("b", 1)]


# a shared house


def test_a_writer_that_holds_a_key_is_waited_for_no_longer_than_the_timeout(place: Place, sink: PostgresSink) -> None:
    hasty = place.sink(FLIGHTS, timeout=0.5)  # impatient: for the batch that is blocked for good
    sink.apply(batch([E("a")]))
    with psycopg.connect(place.url) as other:
        other.execute("SELECT 1 FROM leasehold_key_flights FOR UPDATE")
        with pytest.raises(SinkUnavailable):
            hasty.apply(batch([E("a", number=1)]))
        assert sink.apply(batch([E("b", number=0, partition="1")])).applied == 1  # nobody else waits
        other.rollback()
    assert sink.apply(batch([E("a", number=1)])).applied == 1
    hasty.close()


def noting(calls: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a note of each call."""

    def noted(*given: Any, **named: Any) -> Any:
        calls.append(name)
        return function(*given, **named)

    return noted


def test_a_deadlock_repeats_the_whole_transaction(
    place: Place, sink: PostgresSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another transaction holds what the batch wants, and wants what it holds: the server ends one of the two."""
    calls: list[str] = []
    for owner, name in ((Staging, "fill"), (Merge, "upsert")):
        monkeypatch.setattr(owner, name, noting(calls, name, getattr(owner, name)))
    place.run(WITH_SLOT)
    sink.apply(batch(numbered(E("a", slot=1), E("b", slot=2))))
    done: list[BatchResult] = []
    with psycopg.connect(place.url) as other:
        other.execute("SET deadlock_timeout = '1h'")  # the batch is the one that notices
        other.execute("UPDATE flights SET status = 'mine' WHERE tail = 'b'")
        thread = threading.Thread(
            target=lambda: done.append(sink.apply(batch([E("a", "x", 1, number=2), E("b", "x", 2, number=3)])))
        )
        thread.start()
        until(lambda: place.waiting("transactionid"), "the batch to wait for a row")
        other.execute("UPDATE flights SET status = 'mine' WHERE tail = 'a'")
    thread.join(PATIENCE)
    assert done == [one_row_each(applied=2)]
    assert calls == ["fill", "upsert", "fill", "upsert", "fill", "upsert"]
    assert place.look(ROWS) == [("a", "x", 1), ("b", "x", 2)]


def test_a_deadlock_over_a_row_that_was_written_by_itself_is_not_met_again(place: Place, sink: PostgresSink) -> None:
    """Rows that a rule concerns are written under savepoints: who waits for one waits for the end of the batch."""
    place.run("CREATE TABLE kinds (name text PRIMARY KEY)")
    place.run("INSERT INTO kinds VALUES ('x'), ('mine')")
    place.run(WITH_SLOT.replace("status text", "status text REFERENCES kinds"))  # so that it goes the long way
    sink.apply(batch([]))
    done: list[BatchResult] = []
    with psycopg.connect(place.url) as other:
        other.execute("SET deadlock_timeout = '1h'")  # the batch is the one that notices
        other.execute("INSERT INTO flights VALUES ('z', 'mine', 2)")
        events = numbered(E("a", "x", 1), E("c", "x", 1), E("b", "x", 2), E("d", "x", 2))
        thread = threading.Thread(target=lambda: done.append(sink.apply(batch(events))))
        thread.start()
        until(lambda: place.waiting("transactionid"), "the batch to wait for slot 2")
        other.execute("INSERT INTO flights VALUES ('y', 'mine', 1)")
    thread.join(PATIENCE)
    assert [(one.applied, one.rejected) for one in done] == [(0, 4)]
    assert place.look(ROWS) == [("y", "mine", 1), ("z", "mine", 2)]


def test_a_batch_that_takes_long_to_convert_is_not_ended_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends a transaction in which nothing is said for half of the time-out: a word comes much sooner."""
    clock, calls = ManualClock(), list[str]()

    def slow(column: Any, carrier: str) -> Any:
        clock.advance(0.06)
        return encode(column, carrier)

    monkeypatch.setattr(rows, "encode", noting(calls, "piece", slow))
    monkeypatch.setattr(rows, "time", clock)
    monkeypatch.setattr(rows, "_PIECE", 1)
    monkeypatch.setattr(PostgresSession, "one", noting(calls, "word", PostgresSession.one))
    sink = place.sink(TableSpec(name="slow", pipeline="p", mode="append"), timeout=60.0)
    values = [str(number) if number != 50 else "\0" for number in range(60)]
    assert sink.apply(of({"v": pa.array(values)})) == one_row_each(applied=59, rejected=1)
    assert place.look("SELECT sequence_number FROM slow_rejected") == [(50,)]
    assert calls.count("piece") >= 60
    assert "piece piece piece" not in " ".join(calls), "more than 0.1 s without a word"
    with sink._using() as session:
        assert session.one("SHOW idle_in_transaction_session_timeout") == "30s"
    sink.close()


def test_the_catalogue_does_not_grow_with_batches(place: Place, sink: PostgresSink) -> None:
    sink.apply(batch([E("a")]))
    [(newest,)] = place.look("SELECT max(oid::bigint) FROM pg_class")
    for number in range(1, 20):
        sink.apply(batch([E("a", number=number)]))
    assert place.look(f"SELECT relname FROM pg_class WHERE oid::bigint > {newest}") == []


@pytest.mark.parametrize("by_version", [False, True])
def test_rows_are_rejected_where_columns_have_no_chunks(place: Place, *, by_version: bool) -> None:
    place.run("CREATE TABLE flights (tail text PRIMARY KEY, status text CHECK (status <> 'bad'), slot bigint)")
    table = place.sink(replace(FLIGHTS, sequence_by="version" if by_version else None))
    for each in lacking_chunks(by_version=by_version):
        table.apply(each)
    table.close()
    assert place.look("SELECT sequence_number FROM flights_rejected ORDER BY 1") == [(n,) for n in range(4)]
    assert place.look("SELECT tail FROM flights") == [("c",)]
