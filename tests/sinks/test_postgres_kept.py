"""What a Postgres database keeps beside an entity table, on a real server: what the contracts do not say."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from leasehold.errors import ConfigError, KeyFromTwoPartitions, SinkUnavailable, UsageError
from leasehold.handlers.table import HandledTable
from leasehold.sinks import Batch, TableSpec
from leasehold.sinks.beside.forgetting import Forgotten, Retention
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.postgres.transaction import PostgresTransaction
from leasehold.sinks.set_aside import RetryResult, Selection
from leasehold_testkit.contracts.sinks.duplicates import Sent, known_by
from leasehold_testkit.contracts.sinks.fixtures import (
    APPEND,
    HUB,
    UPSERT,
    Row,
    batch,
    one_row_each,
    read,
    retried,
    table_of,
)
from leasehold_testkit.contracts.sinks.rejected import event
from tests.campaigns import first
from tests.handlers.batches import body, given
from tests.handlers.handler_program import balance
from tests.sinks.postgres import Place
from tests.sinks.postgres_writer import MADE, TRYING, die_at, killed, try_again
from tests.sinks.postgres_writer import SPEC as WRITTEN
from tests.sinks.processes import killed_in
from tests.waiting import NEVER, PATIENCE

TABLE = "SELECT tail, status, slot FROM flights ORDER BY tail"

# states


def test_states_are_found_by_keys_of_any_type_and_order(place: Place) -> None:
    place.run(
        'CREATE TABLE odd ("Id" uuid, size numeric(8,2), name varchar(5), "a %" text, PRIMARY KEY ("Id", size, name))'
    )
    sink = place.sink(TableSpec(name="odd", pipeline="p", keys=("size", "id", "name")))
    one = "3b241101-e2bb-4255-8caf-4136c566a962"
    place.run(f"INSERT INTO odd VALUES ('{one}', 1.50, 'a', 'there')")
    fields = [("id", pa.string()), ("size", pa.decimal128(8, 2)), ("name", pa.string()), ("a %", pa.string())]
    half = Decimal("1.5")
    keys: list[tuple[Any, ...]] = [(half, one, "a"), (half, one, "a\0"), (half, "no uuid", "a"), (half, one, "longer")]
    [(key, state)] = sink.read_states(pa.schema(fields), keys).items()
    assert key == (half, one, "a")
    assert state == {"id": str(UUID(one)), "size": half, "name": "a", "a %": "there"}
    sink.close()


CONSTRAINTS = (
    *("ADD CHECK (value > 0)", "ADD COLUMN other integer NOT NULL DEFAULT 1", "ADD COLUMN of short"),
    *("ADD FOREIGN KEY (entity) REFERENCES known", "ADD EXCLUDE USING hash (value WITH =)"),
)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_every_other_constraint_is_refused_for_states(place: Place, constraint: str) -> None:
    sink = place.sink(UPSERT)
    sink.check_states()  # there is no table yet
    sink.check(batch().rows.schema)
    place.run("CREATE TABLE known (id text PRIMARY KEY)", "CREATE DOMAIN short AS text CHECK (length(VALUE) < 4)")
    place.run(f"ALTER TABLE entities {constraint}")
    with pytest.raises(ConfigError, match="which may refuse what a handler"):
        sink.check_states()
    sink.close()


def test_a_handler_keeps_its_table_in_postgres(place: Place) -> None:
    def opened() -> HandledTable:
        schema = "account STRING, amount BIGINT, place BIGINT"
        state = "account STRING, events BIGINT, total BIGINT"
        return HandledTable(balance, place.url, table="accounts", pipeline="p", schema=schema, state=state)

    first, second = opened(), opened()
    first.on_events(*given(1, 0, body(0), body(1)))
    second.level_of = first.level_of = lambda hub, partition: 2
    second.on_events(*given(2, 1, body(1), body(2), body(3), start=1))
    first.on_events(*given(1, 4, body(4)))  # of a former owner: it takes no effect
    assert place.look("SELECT account, events, total FROM accounts") == [("a", 4, 4)]
    assert place.look("SELECT 1 FROM accounts_rejected") == []
    first.sink.close()
    second.sink.close()


# identities


def test_who_judges_an_identity_holds_up_only_those_who_bring_it(place: Place) -> None:
    """The other one stands still in its transaction, with the identity locked: found or new."""
    sink, seconds = place.sink(APPEND), place.sink(APPEND, timeout=NEVER)
    hasty = place.sink(APPEND, timeout=0.5)  # impatient: for the batch that is blocked for good
    sink.apply(known_by(batch(Row("a", 1, 0)), Sent("old", 0)))
    with seconds._claimed() as transaction:
        digests = {digest for (digest,) in place.look("SELECT identity FROM leasehold_identity_entities")}
        transaction.known_identities({*digests, "new"})
        with pytest.raises(SinkUnavailable):
            hasty.apply(known_by(batch(Row("b", 1, 0, "1")), Sent("old", 0, 0, "1")))
        others = sink.apply(known_by(batch(Row("c", 1, 0, "2")), Sent("other", 0, 10_000, "2")))  # forgets some
    assert others == one_row_each(applied=1)
    assert sink.apply(known_by(batch(Row("b", 1, 0, "1")), Sent("old", 0, 0, "1"))) == one_row_each(duplicates=1)
    for one in (sink, seconds, hasty):
        one.close()


# rejected rows


@pytest.mark.more
@pytest.mark.parametrize(
    "points", first(1, [["rejected rows locked", "order recorded", "set aside again", "committed"], list(TRYING)])
)
def test_a_retry_killed_at_any_point_has_done_all_or_nothing(place: Place, points: list[str]) -> None:
    """In `make test`, at some: what is committed too early is there at the last one before COMMIT."""
    kept = []
    for point in points:
        place.run("DROP TABLE IF EXISTS flights, leasehold_key_flights, flights_rejected, leasehold_watermark")
        place.run("DROP TABLE IF EXISTS leasehold_table", MADE)
        sink = place.sink(WRITTEN)
        sink.apply(killed())
        aside = "SELECT sequence_number, reason, rejected_at FROM flights_rejected ORDER BY 1"
        before = place.look(TABLE), place.look(aside)
        assert killed_in(die_at, place.url, point, try_again), point
        if point != "committed":
            assert (place.look(TABLE), place.look(aside)) == before, point
            assert try_again(sink) == RetryResult(applied=2, rejected=1), point
        assert try_again(sink) == RetryResult(gone=2, rejected=1), point
        keys = place.look("SELECT key_1, number, gone FROM leasehold_key_flights ORDER BY 1")
        kept.append((place.look(TABLE), keys))
        sink.close()
    assert all(one == kept[0] for one in kept)
    assert kept[0][0] == [("b", "ok", 2), ("c", "ok", 3), ("g", "ok", None)]


def test_rejected_rows_of_a_table_made_before_dropped_ones_were_noted(place: Place) -> None:
    """The shared table is made when it is needed; by `leasehold init` for a user who may make none."""
    sink = place.sink(UPSERT)
    sink.apply(batch(Row("a", 1, 9), rejected=[Row("?", 0, 1), Row("?", 0, 2)]))
    place.run("DROP TABLE leasehold_dropped")
    assert sink.rejected_rows.dropped(9) == []
    role = f"writer_{place.schema}"
    tables = "entities, entities_rejected, leasehold_key_entities, leasehold_table, leasehold_watermark"
    place.run(f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    place.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}")
    least = PostgresSink(place.url.replace("postgres:@", f"{role}@"), UPSERT)
    rows = least.rejected_rows.rows(Selection(), 9)
    with pytest.raises(UsageError, match="leasehold init"):
        least.rejected_rows.drop(rows[:1], "a test")
    assert sink.make_tables()
    assert not sink.make_tables()
    place.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_dropped, leasehold_cleared TO {role}")
    assert least.rejected_rows.drop(rows[:1], "a \0") == 1
    assert [row.dropped_for for row in sink.rejected_rows.dropped(9)] == ["a \\0"]
    assert retried(least, batch(Row("b", 1, 2)), [event(2)]) == RetryResult(applied=1)
    least.close()
    sink.close()
    place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_selections_that_no_column_can_hold_find_nothing(place: Place) -> None:
    sink = place.sink(UPSERT)
    sink.apply(batch(Row("a", 1, 9), rejected=[Row("?", 0, 1)]))
    rows = sink.rejected_rows
    assert rows.rows(Selection(frozenset({("0", 2**70), ("\0", 1)})), 9) == []
    assert rows.rows(Selection(reason="\0"), 9) == rows.rows(Selection(hub="\0"), 9) == []
    assert len(rows.rows(Selection(frozenset({("0", 2**70), ("0", 1)}), "not", HUB), 9)) == 1
    sink.close()


def of_one(entity: str, number: int, partition: str = "0") -> Batch:
    """One event, in a batch that was read whole: it locks no other partition's watermark."""
    return batch(Row(entity, 1, number, partition), ranges=[read(number, number + 1, partition=partition)])


def test_a_batch_of_the_same_partition_waits_for_a_retry(place: Place) -> None:
    """The retry stands still with its rows written: others of its partition or keys wait, and no one else."""
    sink, others = place.sink(UPSERT, timeout=NEVER), place.sink(UPSERT)
    hasty = place.sink(UPSERT, timeout=0.5)  # impatient: for what the retry blocks until it goes on
    sink.apply(batch(Row("a", 1, 9), rejected=[Row("?", 0, 1)]))
    stopped, go_on = threading.Event(), threading.Event()
    whole = PostgresTransaction.write

    def stop(self: PostgresTransaction, *given: Any, again: bool, each_row: bool) -> Any:
        result = whole(self, *given, again=again, each_row=each_row)
        if again:
            stopped.set()
            go_on.wait(NEVER)
        return result

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(1) as beside:
        patched.setattr(PostgresTransaction, "write", stop)
        trying = beside.submit(retried, sink, batch(Row("b", 1, 1)), [event(1)])
        assert stopped.wait(PATIENCE)
        try:
            for waiting in (of_one("c", 10), of_one("b", 0, "1")):
                with pytest.raises(SinkUnavailable):
                    hasty.apply(waiting)
            rejected = others.rejected_rows.rows(Selection(), 9)
            with pytest.raises(SinkUnavailable):
                hasty.rejected_rows.drop(rejected, "a test")
            assert others.apply(of_one("d", 0, "2")).applied == 1
        finally:
            go_on.set()
        assert trying.result() == RetryResult(applied=1)
    assert sink.rejected_rows.rows(Selection(), 9) == []
    with pytest.raises(KeyFromTwoPartitions):
        sink.apply(batch(Row("b", 1, 0, "1")))
    for one in (sink, others, hasty):
        one.close()


# forgetting


def test_keys_of_other_types_are_forgotten_and_cleared(place: Place) -> None:
    place.run('CREATE TABLE odd ("Id %" integer, at timestamptz, entity text, PRIMARY KEY ("Id %", at))')
    sink = place.sink(TableSpec(name="odd", pipeline="p", keys=("at", "Id %")))
    moments = [datetime(2026, 2, 3, 4, 5, second, tzinfo=UTC) for second in range(5)]
    rows = table_of([Row("a", 0, number) for number in range(5)]).drop_columns(["value"])
    rows = rows.append_column("Id %", pa.array([7] * 5, pa.int64())).append_column("at", pa.array(moments))
    sink.apply(Batch(rows, ranges=[read(0, 5)]))
    for wrong in ({"Id %": "seven", "at": "2026-02-03"}, {"Id %": "7", "at": "\0"}, {"Id %": "7", "at": "2026-02-03"}):
        assert sink.forget_entity(wrong) == Forgotten()
    assert sink.forget_entity({"Id %": "7", "at": "2026-02-03T05:05:01+01:00"}) == Forgotten(memories=1)
    sink.clear(Retention(memories=10.0), 0.0)
    first = sink.clear(Retention(memories=10.0), 20.0, None, 2)
    assert (first.memories, first.more, len(first.after or ())) == (2, True, 2)
    assert sink.clear(Retention(memories=10.0), 20.0, first.after, 3).memories == 2
    sink.close()


def test_clearing_leaves_out_what_a_batch_has_locked_and_waits_for_none(place: Place) -> None:
    sink, batches = place.sink(UPSERT), place.sink(UPSERT, timeout=NEVER)
    sink.apply(batch(Row("a", 1, 0), Row("b", 1, 1), ranges=[read(0, 2)], rejected=[Row("?", 0, 1)]))
    retention = Retention(memories=10.0)
    sink.clear(retention, 0.0)
    sink.clear(retention, 20.0 - 0.25, None, 0)  # notes places
    with batches._claimed() as transaction:
        transaction.session.rows(f"SELECT 1 FROM {transaction.session.names.memory} WHERE key_1 = 'a' FOR UPDATE")
        transaction.session.rows(f"SELECT 1 FROM {transaction.session.names.rejected} FOR UPDATE")
        held = sink.clear(Retention(rejected=1.0, memories=10.0), 20.0)
    assert (held.rejected, held.memories) == (0, 1)
    assert sink.clear(retention, 20.0).memories == 1
    batches.close()
    sink.close()


def test_shared_tables_that_were_removed_are_made_again(place: Place) -> None:
    sink = place.sink(UPSERT)
    sink.apply(batch(Row("a", 1, 0)))
    place.run("DROP TABLE leasehold_dropped, leasehold_place, leasehold_cleared, leasehold_parked")
    again = place.sink(UPSERT)
    assert again.apply(batch(Row("a", 2, 1))).applied == 1
    assert again.rejected_rows.rows(Selection(), 9) == []
    again.check_parked()
    assert again.parked_entities(HUB, "0") == {}
    again.close()
    sink.close()
