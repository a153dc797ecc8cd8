"""Tables that a crash of the server empties are refused before the first write. On a real server."""

from __future__ import annotations

import psycopg
import pytest

from leasehold.errors import UsageError
from leasehold.sinks import TableSpec
from leasehold.sinks.postgres.sink import PostgresSink
from tests.sinks.events import SCHEMA, E, batch
from tests.sinks.postgres import FLIGHTS, Place
from tests.stores.servers import PostgresServer
from tests.waiting import NEVER

BESIDE = ("flights_rejected", "leasehold_key_flights", "leasehold_table", "leasehold_watermark", "leasehold_dropped")
PARTED = (
    "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint) PARTITION BY LIST (tail)",
    "CREATE TABLE of_a PARTITION OF flights FOR VALUES IN ('a')",
    "CREATE TABLE others PARTITION OF flights DEFAULT PARTITION BY LIST (tail)",
    "CREATE UNLOGGED TABLE of_b PARTITION OF others FOR VALUES IN ('b')",
)
HEIR = (
    "CREATE TABLE flights (tail text PRIMARY KEY, status text, slot bigint)",
    "CREATE UNLOGGED TABLE heir () INHERITS (flights)",
)
MADE = {
    "the table": ("CREATE UNLOGGED TABLE flights (tail text PRIMARY KEY, status text, slot bigint)",),
    "a partition of a partition": PARTED,
    "an heir": HEIR,
}


@pytest.mark.more(but=1)
@pytest.mark.parametrize("made", MADE)
def test_an_unlogged_table_is_refused_before_the_first_write(place: Place, made: str) -> None:
    place.run(*MADE[made])
    sink = place.sink(FLIGHTS)
    uses = (lambda: sink.compare(SCHEMA), lambda: sink.check(SCHEMA), lambda: sink.apply(batch([E("a")])))
    for use in uses:
        with pytest.raises(UsageError, match=rf"UNLOGGED: after a crash.*ALTER TABLE {place.schema}\.\w+ SET LOGGED"):
            use()
    [(ours,)] = place.look("SELECT relname FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r'")
    place.run(f"ALTER TABLE {ours} SET LOGGED")
    assert sink.apply(batch([E("a")])).applied == 1
    sink.close()


@pytest.mark.more
def test_a_table_that_is_altered_while_it_is_written_is_refused_at_the_next_batch(place: Place) -> None:
    sink = place.sink(FLIGHTS)
    sink.apply(batch([E("a")]))
    for name in ("flights", "flights_rejected", "leasehold_key_flights"):
        place.run(f"ALTER TABLE {name} SET UNLOGGED")
        with pytest.raises(UsageError, match=f"{name} SET LOGGED"):
            sink.apply(batch([E("b", number=1)]))
        place.run(f"ALTER TABLE {name} SET LOGGED")
    assert sink.apply(batch([E("b", number=1)])).applied == 1
    sink.close()


@pytest.mark.more
def test_a_partition_that_is_attached_while_the_table_is_written_is_refused(place: Place) -> None:
    place.run(*PARTED[:-1])
    sink = place.sink(FLIGHTS)
    sink.apply(batch([E("a")]))
    place.run(PARTED[-1])
    with pytest.raises(UsageError, match=r"ALTER TABLE \w+\.of_b SET LOGGED"):
        sink.apply(batch([E("b", number=1)]))
    assert sink.watermarks("h")["0"].sequence_number == 0
    sink.close()


@pytest.mark.more(but=1)
@pytest.mark.parametrize("name", BESIDE)
def test_an_unlogged_table_beside_it_is_refused(place: Place, name: str) -> None:
    made = place.sink(FLIGHTS)
    made.apply(batch([E("a")]))
    made.close()
    place.run(f"ALTER TABLE {name} SET UNLOGGED")
    sink = place.sink(FLIGHTS)
    with pytest.raises(UsageError, match=f"{name} SET LOGGED"):
        sink.apply(batch([E("b", number=1)]))
    sink.close()


def test_unlogged_identities_of_events_are_refused(place: Place) -> None:
    spec = TableSpec(name="flights", pipeline="p", keys=("tail",))
    place.run(
        'CREATE UNLOGGED TABLE leasehold_identity_flights (identity text COLLATE "C" PRIMARY KEY, hub text COLLATE "C",'
        ' partition text COLLATE "C", sequence_number bigint, enqueued bigint)'
    )
    sink = place.sink(spec)
    with pytest.raises(UsageError, match="leasehold_identity_flights SET LOGGED"):
        sink.apply(batch([E("a")]))
    sink.close()


def test_an_unlogged_related_table_is_refused(place: Place) -> None:
    place.run("CREATE UNLOGGED TABLE seats (id text PRIMARY KEY)")
    sink = place.sink(FLIGHTS)
    for use in (lambda: sink.check_related(["seats"]), lambda: sink.related_table("seats")):
        with pytest.raises(UsageError, match="seats SET LOGGED"):
            use()
    sink.close()


def test_temporary_tables_are_no_place(place: Place) -> None:
    """Tables of a session are gone with it, and a path may name their schema, also as the first."""
    sink = PostgresSink(f"{place.server}&options=-csearch_path%3Dpg_temp,{place.schema}", FLIGHTS)
    assert sink.apply(batch([E("a")])).applied == 1
    assert place.look("SELECT tail FROM flights") == [("a",)]
    sink.close()
    alone = PostgresSink(f"{place.server}&options=-csearch_path%3Dpg_temp", FLIGHTS)
    with pytest.raises(UsageError, match=r"the search path .* names no schema"):
        alone.apply(batch([E("a")]))
    alone.close()


def test_a_table_that_a_crash_would_empty_is_whole_after_one(own_postgres: PostgresServer) -> None:
    """What the refusal is for: the server empties what is UNLOGGED, and the watermark stands."""
    sink = PostgresSink(f"{own_postgres.url}&options=-csearch_path%3Ddies", FLIGHTS, timeout=NEVER)
    count = "SELECT (SELECT count(*) FROM dies.flights), (SELECT count(*) FROM dies.lost)"
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA dies")
        sink.apply(batch([E(str(number), number=number) for number in range(500)]))
        connection.execute("CREATE UNLOGGED TABLE dies.lost AS SELECT * FROM dies.flights")
        connection.execute("ALTER TABLE dies.flights SET UNLOGGED")
        more = batch([E(str(number), number=number) for number in range(500, 1000)])
        with pytest.raises(UsageError, match="flights SET LOGGED"):
            sink.apply(more)
        connection.execute("ALTER TABLE dies.flights SET LOGGED")
        assert connection.execute(count).fetchall() == [(500, 500)]
    own_postgres.kill()
    own_postgres.start()
    assert sink.apply(more).applied == 500
    sink.close()
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        assert connection.execute(count).fetchall() == [(1000, 0)]
