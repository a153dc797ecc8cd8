"""The memory of keys in Postgres: what it says behind a batch, whoever has moved its rows meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from leasehold.sinks import TableSpec
from leasehold.sinks.postgres.sink import PostgresSink
from tests.sinks.events import E, batch
from tests.sinks.postgres import FLIGHTS, Place
from tests.waiting import until

SPEC = TableSpec(name="flights", pipeline="p", keys=("tail",), sequence_by="version")
KNOWN = "SELECT key_1, number, by_number::bigint, gone FROM leasehold_key_flights ORDER BY 1"


@pytest.fixture
def sink(place: Place) -> Iterator[PostgresSink]:
    made = place.sink(SPEC)
    yield made
    made.close()


def of(*rows: E) -> Any:
    numbered = [row._replace(number=number) for number, row in enumerate(rows, rows[0].number)]
    return batch(numbered, by_version=True, deletes=True)


def test_a_row_that_moves_while_the_table_is_written_is_noted_all_the_same(place: Place, sink: PostgresSink) -> None:
    """A trigger of the entity table that writes the memory is the only one who can move a row that is locked."""
    sink.apply(of(E("a", version=1), E("b", version=1), E("c", version=1)))
    place.run(
        f"CREATE FUNCTION moves() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE {place.schema}"
        ".leasehold_key_flights SET number = number WHERE key_1 = 'b'; RETURN NULL; END $$",
        "CREATE TRIGGER moves AFTER UPDATE ON flights FOR EACH STATEMENT EXECUTE FUNCTION moves()",
    )
    result = sink.apply(of(E("a", version=2, number=3), E("b", version=3), E("c", version=4), E("d", version=5)))
    assert result.applied == 4
    assert place.look(KNOWN) == [("a", 3, 2, False), ("b", 4, 3, False), ("c", 5, 4, False), ("d", 6, 5, False)]


def test_a_row_that_another_writer_holds_is_noted_where_that_one_has_left_it(place: Place, sink: PostgresSink) -> None:
    sink.apply(of(E("a", version=1), E("b", version=1), E("c", version=1)))
    with psycopg.connect(place.url) as other:
        other.execute("UPDATE leasehold_key_flights SET by_number = 7, number = 70 WHERE key_1 = 'b'")
        later = of(E("a", version=9, number=3), E("b", version=6), E("b", version=8), E("c", gone=True, version=9))
        results = []
        applying = threading.Thread(target=lambda: results.append(sink.apply(later)))
        applying.start()
        until(lambda: place.waiting("transactionid"), "the batch to wait for a key")
        other.commit()
        applying.join()
    assert [(one.applied, one.superseded) for one in results] == [(3, 1)]
    assert place.look(KNOWN) == [("a", 3, 9, False), ("b", 5, 8, False), ("c", 6, 9, True)]


@pytest.mark.parametrize("repeated", [False, True])
def test_older_events_are_counted_whether_a_key_comes_once_or_more(
    place: Place, sink: PostgresSink, repeated: bool
) -> None:
    place.run("CREATE TABLE flights (tail text PRIMARY KEY, status text CHECK (status <> 'bad'), slot integer UNIQUE)")
    sink.apply(of(E("a", version=5), E("b", version=5), E("c", version=5), E("d", version=5)))
    rows = [E("a", version=4, number=4), E("b", version=6), E("c", "bad", version=4), E("d", "bad", version=6)]
    result = sink.apply(of(*rows, *([E("b", version=6), E("b", version=5)] if repeated else [])))
    assert (result.applied, result.superseded, result.rejected) == ((2, 3, 1) if repeated else (1, 2, 1))
    assert place.look("SELECT sequence_number FROM flights_rejected") == [(7,)]
    assert [row[2] for row in place.look(KNOWN)] == [5, 6, 5, 5]


def test_a_batch_leaves_the_settings_of_its_session_as_they_were(place: Place, sink: PostgresSink) -> None:
    url = f"{place.url}%20-crandom_page_cost%3D2.5"
    mine = PostgresSink(url, SPEC, timeout=30.0)
    for number in range(2):
        mine.apply(of(E("a", version=number, number=number)))
    with mine._using() as session:
        assert session.one("SHOW random_page_cost") == "2.5"
        assert session.one("SHOW work_mem") == place.look("SHOW work_mem")[0][0]
    mine.close()


def test_new_tables_have_room_for_the_next_version_of_each_row(place: Place) -> None:
    sink = place.sink(FLIGHTS)
    for first in (0, 2000):  # once: other tests' transactions keep the server from clearing what is replaced
        events = [E(f"k{number}", slot=first, number=first + number) for number in range(2000)]
        assert sink.apply(batch(events)).applied == 2000
    sink.close()
    counted = "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = current_schema()"
    tables = {"flights", "leasehold_key_flights"}

    def updated() -> dict[str, tuple[int, int]]:
        return {name: (of, hot) for name, of, hot in place.look(counted) if name in tables}

    until(lambda: [of for of, _ in updated().values()] == [2000] * 2, "the server to count")
    assert all(hot > 0.9 * of for of, hot in updated().values())
