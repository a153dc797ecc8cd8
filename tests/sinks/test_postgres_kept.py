"""What a Postgres database keeps beside an entity table, on a real server: what the contracts do not say."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from leasehold.entities.handled_table import HandledTable
from leasehold.errors import ConfigError, SinkUnavailable
from leasehold.sinks import BatchResult, TableSpec
from leasehold.testing.sinks.duplicates import Sent, known_by
from leasehold.testing.sinks.fixtures import APPEND, UPSERT, Row, batch
from tests.entities.handler_program import balance
from tests.entities.test_handled_table import body, given
from tests.sinks.postgres import Place

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
    sink, seconds = place.sink(APPEND, timeout=1.0), place.sink(APPEND, timeout=60.0)
    sink.apply(known_by(batch(Row("a", 1, 0)), Sent("old", 0)))
    stopped, go_on = threading.Event(), threading.Event()
    results: list[BatchResult] = []

    def hold() -> None:
        with seconds._claimed() as transaction:
            digests = {digest for (digest,) in place.look("SELECT identity FROM leasehold_identity_entities")}
            transaction.known_identities({*digests, "new"})
            stopped.set()
            go_on.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert stopped.wait(60)
    with pytest.raises(SinkUnavailable):
        sink.apply(known_by(batch(Row("b", 1, 0, "1")), Sent("old", 0, 0, "1")))
    results.append(sink.apply(known_by(batch(Row("c", 1, 0, "2")), Sent("other", 0, 10_000, "2"))))  # forgets some
    go_on.set()
    holder.join()
    results.append(sink.apply(known_by(batch(Row("b", 1, 0, "1")), Sent("old", 0, 0, "1"))))
    assert results == [BatchResult(applied=1), BatchResult(duplicates=1)]
    seconds.close()
    sink.close()
