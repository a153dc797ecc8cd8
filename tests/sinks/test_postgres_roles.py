"""Settings that a role or a database has: what comes out is the same, or an error names the one. On a real server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pyarrow as pa
import pytest

from leasehold.database.postgres.connections import Connections
from leasehold.errors import SinkUnavailable, StoreUnavailable, UsageError
from leasehold.model import Checkpoint
from leasehold.sinks.postgres.sink import PostgresSink
from leasehold.sinks.set_aside import Selection
from leasehold.stores import open_lease_store, open_store
from leasehold_testkit.contracts.stores.groups import new_group
from leasehold_testkit.contracts.stores.ownership_records import claim
from tests.sinks.events import SCHEMA, E, batch
from tests.sinks.postgres import FLIGHTS
from tests.stores.servers import PostgresServer
from tests.waiting import NEVER

OWN = {
    "names in quotes": {"quote_all_identifiers": "on"},
    "NULL in an array is a text": {"array_nulls": "off"},
    "read only": {"default_transaction_read_only": "on"},
    "no policies": {"row_security": "off"},
    "transactions": {
        "default_transaction_isolation": "serializable",
        "default_transaction_deferrable": "on",
        "synchronous_commit": "off",
    },
    "how values are written": {
        "standard_conforming_strings": "off",
        "transform_null_equals": "on",
        "bytea_output": "escape",
        "timezone": "Asia/Kathmandu",
        "datestyle": "SQL, DMY",
        "intervalstyle": "sql_standard",
        "extra_float_digits": "-15",
        "client_encoding": "LATIN1",
        "lc_messages": "C",
    },
    "a schema first that is not there": {"search_path": "nowhere, theirs, public"},
}
TIMEOUTS = (
    *("statement_timeout", "transaction_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"),
    "lock_timeout",
)
MADE = """
CREATE TABLE theirs.flights (tail text PRIMARY KEY, status text, slot bigint, at timestamptz DEFAULT '2000-01-01 UTC',
  size interval DEFAULT '1 day', code varchar(9), tags jsonb, CHECK (status <> 'no'), UNIQUE (slot));
ALTER TABLE theirs.flights ENABLE ROW LEVEL SECURITY;
ALTER TABLE theirs.flights FORCE ROW LEVEL SECURITY;
CREATE POLICY all_of_them ON theirs.flights USING (tail <> 'hidden');
"""


@dataclass(frozen=True)
class Role:
    """A role that owns the schema `theirs` of a database of its own."""

    name: str
    server: PostgresServer

    @property
    def url(self) -> str:
        return self.server.database(self.name).replace("postgres:@", f"{self.name}:@")

    def run(self, *statements: str) -> None:
        """As the superuser, in the role's database."""
        with psycopg.connect(self.server.database(self.name), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def look(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.server.database(self.name), autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()


@pytest.fixture
def role(postgres_server: PostgresServer) -> Iterator[Role]:
    made = Role(f"role_{secrets.token_hex(4)}", postgres_server)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {made.name} LOGIN".encode())
        connection.execute(f"CREATE DATABASE {made.name}".encode())
        made.run(
            f"CREATE SCHEMA theirs AUTHORIZATION {made.name}",
            f"ALTER ROLE {made.name} SET search_path = theirs",
            *MADE.split(";\n")[:-1],
            f"ALTER TABLE theirs.flights OWNER TO {made.name}",
        )
        yield made
        connection.execute(f"DROP DATABASE {made.name} WITH (FORCE)".encode())
        connection.execute(f"DROP ROLE {made.name}".encode())


@pytest.mark.more
@pytest.mark.parametrize("own", OWN)
def test_a_roles_own_settings_change_nothing(role: Role, own: str) -> None:
    for name, value in OWN[own].items():
        role.run(f"ALTER ROLE {role.name} SET {name} = {value if name == 'search_path' else repr(value)}")
    sink = PostgresSink(role.url, FLIGHTS, timeout=NEVER)
    sink.check(SCHEMA)
    events = [E("a", "ä\\n", 1), E("b", None, None), E("c", "no", 3), E("d", "x", 1)]
    numbered = [event._replace(number=number) for number, event in enumerate(events)]
    assert sink.apply(batch(numbered)).rejected == 2
    assert sink.compare(SCHEMA).there
    assert sink.apply(batch([E("a", "b", 2, number=4), E("e", number=5)])).applied == 2
    assert sink.read_states(pa.schema(list(SCHEMA)[:3]), [("a",)]) == {("a",): {"tail": "a", "status": "b", "slot": 2}}
    assert [one.event.sequence_number for one in sink.rejected_rows.rows(Selection(), 5)] == [2, 3]
    sink.close()
    rows = "SELECT tail, status, slot, at = '2000-01-01 UTC', size = '1 day' FROM theirs.flights ORDER BY 1"
    assert role.look(rows) == [(*row, True, True) for row in [("a", "b", 2), ("b", None, None), ("e", "ok", None)]]
    assert role.look("SELECT sequence_number, source FROM theirs.flights_rejected ORDER BY 1") == [(2, None), (3, None)]
    stores_work(role)


def stores_work(role: Role) -> None:
    store, group = open_store(role.url, timeout=NEVER), new_group()
    claimed = claim(store, group)
    assert store.list_ownership(group).records == (claimed,)
    store.raise_owner_level([Checkpoint(group, "0", 6, 1)])
    assert not store.update_checkpoints([Checkpoint(group, "0", 7, 1)])
    assert [(one.sequence_number, one.offset) for one in store.list_checkpoints(group)] == [(7, None)]
    leases = open_lease_store(role.url, timeout=NEVER)
    assert leases.acquire(leases.open_session("me", None), "s", ["a\\b"])
    assert [one.key for one in leases.holders("s", ["a\\b"])] == ["a\\b"]


def test_a_roles_own_time_outs_end_no_call(role: Role) -> None:
    """As they would end one that takes longer, or a connection that waits for its next batch."""
    for name in TIMEOUTS:
        role.run(f"ALTER ROLE {role.name} SET {name} = '50s'")
    looked = f"SELECT {', '.join(f'current_setting({name!r})' for name in TIMEOUTS)}"
    store = Connections(role.url, 60.0, lambda _: None)
    assert store.rows(looked, {}) == [("1min", "0", "0", "1min", "0")]
    store.close()
    sink = PostgresSink(role.url, FLIGHTS, timeout=60.0)
    with sink._using() as session:
        assert session.rows(looked) == [("30min", "0", "0", "30s", "1min")]
    sink.close()


@pytest.mark.more
@pytest.mark.parametrize("also", ["", "SET default_transaction_read_only = on"], ids=["", "its role is, too"])
def test_a_database_that_somebody_has_made_read_only_is_not_written(role: Role, also: str) -> None:
    """As before it moves to another server: what is written then is lost."""
    if also:
        role.run(f"ALTER ROLE {role.name} {also}")
    sink = PostgresSink(role.url, FLIGHTS, timeout=NEVER)
    sink.apply(batch([E("a")]))
    sink.close()
    role.run(f"ALTER DATABASE {role.name} SET default_transaction_read_only = on")
    said = "takes no writes: default_transaction_read_only is on, and comes from the database"
    with pytest.raises(SinkUnavailable, match=said):
        sink.apply(batch([E("b", number=1)]))
    with pytest.raises(StoreUnavailable, match=said):
        claim(open_store(role.url, timeout=NEVER), new_group())
    role.run("SET default_transaction_read_only = off", f"ALTER DATABASE {role.name} RESET ALL")
    assert sink.apply(batch([E("b", number=1)])).applied == 1
    sink.close()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("session_replication_role%3Dreplica", 'permission denied to set parameter "session_replication_role"'),
        ("work_mem%3Dmuch", 'invalid value for parameter "work_mem"'),
        ("no_such_setting%3D1", 'unrecognized configuration parameter "no_such_setting"'),
    ],
)
def test_what_the_session_may_not_set_is_named_at_the_start(role: Role, option: str, words: str) -> None:
    url = f"{role.url}&options=-csearch_path%3Dtheirs%20-c{option}"
    with pytest.raises(UsageError, match=f"{words}.*[Cc]orrect the options of the URL"):
        PostgresSink(url, FLIGHTS, timeout=NEVER).check(SCHEMA)
    with pytest.raises(UsageError, match=f"{words}.*[Cc]orrect the options of the URL"):
        open_store(url, timeout=NEVER).list_ownership(new_group())


def test_a_role_whose_sessions_pass_over_the_tables_rules_is_refused_or_mended(role: Role) -> None:
    """A superuser alone gives a role this, and it may not take it back by itself."""
    role.run(
        "CREATE TABLE theirs.states (name text PRIMARY KEY)",
        f"ALTER TABLE theirs.states OWNER TO {role.name}",
        "INSERT INTO theirs.states VALUES ('ok')",
        "ALTER TABLE theirs.flights ADD FOREIGN KEY (status) REFERENCES theirs.states",
        f"ALTER ROLE {role.name} SET session_replication_role = replica",
    )
    sink = PostgresSink(role.url, FLIGHTS, timeout=NEVER)
    events = batch([E("a"), E("b", "dangling", number=1)])
    with pytest.raises(UsageError, match=r'set parameter "session_replication_role".*ALTER ROLE … RESET'):
        sink.apply(events)
    role.run(f"GRANT SET ON PARAMETER session_replication_role TO {role.name}")
    assert (sink.apply(events).applied, role.look("SELECT tail FROM theirs.flights")) == (1, [("a",)])
    sink.close()
    role.run(f"REVOKE SET ON PARAMETER session_replication_role FROM {role.name}")
