"""Tables that somebody else has made where ours are looked for: refused before a row of them is touched."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest

from leasehold.database.postgres.place import RELATIONS, qualified
from leasehold.errors import UsageError
from leasehold.model import Checkpoint
from leasehold.stores import open_lease_store, open_store
from leasehold.stores.postgres.schema import LEASES, STORES
from leasehold_testkit.contracts.stores.groups import new_group
from leasehold_testkit.contracts.stores.ownership_records import claim
from tests.stores.servers import PostgresServer
from tests.waiting import NEVER


@dataclass(frozen=True)
class Database:
    """A database where anybody may make tables in `public`, as up to Postgres 14, with two roles that are nobody's."""

    url: str
    victim: str
    attacker: str

    def url_of(self, role: str) -> str:
        return self.url.replace("postgres:@", f"{role}@")

    def run(self, *statements: str, role: str = "") -> None:
        with psycopg.connect(self.url_of(role) if role else self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def is_superuser(self, role: str) -> bool:
        with psycopg.connect(self.url) as connection:
            return connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", [role]).fetchall() == [
                (True,)
            ]

    def take_over(self) -> None:
        """The attacker makes the tables of Leasehold, with a trigger that makes a superuser of whoever it can."""
        open_store(self.url_of(self.attacker), timeout=NEVER).create_schema()  # type: ignore[attr-defined]
        self.run(
            "CREATE FUNCTION mischief() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"EXECUTE 'ALTER ROLE {self.attacker} SUPERUSER'; RETURN NEW; END $$",
            *(
                f"CREATE TRIGGER mischief BEFORE INSERT OR UPDATE ON {table} EXECUTE FUNCTION mischief()"
                for table in (*STORES.tables, "leasehold_schema")
            ),
            role=self.attacker,
        )


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    mark = secrets.token_hex(4)
    one = Database(postgres_server.database(f"db_{mark}"), f"victim_{mark}", f"attacker_{mark}")
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE db_{mark}")
        connection.execute(f"CREATE ROLE {one.victim} LOGIN")
        connection.execute(f"CREATE ROLE {one.attacker} LOGIN")
    one.run("GRANT CREATE ON SCHEMA public TO public")
    yield one
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE db_{mark} WITH (FORCE)")
        connection.execute(f"DROP ROLE {one.victim}, {one.attacker}")


def uses(url: str) -> list[Callable[[], object]]:
    return [
        lambda: open_store(url, timeout=NEVER).create_schema(),  # type: ignore[attr-defined]
        lambda: open_store(url, timeout=NEVER).is_made(),  # type: ignore[attr-defined]
        lambda: claim(open_store(url, timeout=NEVER), new_group()),
        lambda: open_store(url, timeout=NEVER).raise_owner_level([Checkpoint(new_group(), "0", 1, 1)]),
        lambda: open_lease_store(url, timeout=NEVER).open_session("me", 1.0),
    ]


def test_every_table_and_sequence_is_looked_at() -> None:
    assert {*STORES.tables, *LEASES.tables, "leasehold_schema"} == set(RELATIONS)


@pytest.mark.parametrize("superuser", [True, False])
def test_an_attackers_tables_are_refused_and_their_triggers_do_not_run(database: Database, superuser: bool) -> None:
    database.take_over()
    for use in uses(database.url if superuser else database.url_of(database.victim)):
        with pytest.raises(UsageError, match=rf"belongs to {database.attacker}.* triggers"):
            use()
    assert not database.is_superuser(database.attacker)
    database.run(f"DROP OWNED BY {database.attacker}")
    for use in uses(database.url):
        use()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE leasehold_ownership (partition text)",
        "CREATE VIEW leasehold_checkpoint AS SELECT 1 AS x",
        "CREATE SEQUENCE leasehold_fence",
        "CREATE TABLE leasehold_lease (key text)",
    ],
)
def test_one_of_them_is_enough(database: Database, statement: str) -> None:
    database.run(statement, role=database.attacker)
    for use in uses(database.url_of(database.victim)):
        with pytest.raises(UsageError, match=r"Leasehold has not made it|belongs to"):
            use()


@pytest.mark.more(but=2)
@pytest.mark.parametrize("name", RELATIONS)
def test_what_a_crash_would_empty_is_refused(database: Database, name: str) -> None:
    """Ownership, checkpoints, leases and the count of fences would go back, and their owners go on."""
    open_store(database.url, timeout=NEVER).create_schema()  # type: ignore[attr-defined]
    open_lease_store(database.url, timeout=NEVER).create_schema()  # type: ignore[attr-defined]
    kind = "SEQUENCE" if name == "leasehold_fence" else "TABLE"
    database.run(f"ALTER {kind} {name} SET UNLOGGED")
    for use in uses(database.url):
        with pytest.raises(UsageError, match=rf"UNLOGGED.*ALTER {kind} public\.{name} SET LOGGED"):
            use()
    database.run(f"ALTER {kind} {name} SET LOGGED")
    for use in uses(database.url):
        use()


def test_a_schema_of_the_users_name_that_another_made_is_refused(database: Database) -> None:
    database.run(f"CREATE SCHEMA {database.victim} AUTHORIZATION {database.attacker}")
    database.run(f"GRANT ALL ON SCHEMA {database.victim} TO public", role=database.attacker)
    for use in uses(database.url_of(database.victim)):
        with pytest.raises(UsageError, match="named like this user"):
            use()


def test_a_function_of_the_same_name_is_not_called(database: Database) -> None:
    database.run(
        f"CREATE FUNCTION mischief(json[], json) RETURNS json[] LANGUAGE plpgsql AS $$ BEGIN "
        f"EXECUTE 'ALTER ROLE {database.attacker} SUPERUSER'; RETURN $1; END $$",
        "CREATE AGGREGATE json_agg(json) (SFUNC = mischief, STYPE = json[], INITCOND = '{}')",
        role=database.attacker,
    )
    store, group = open_store(database.url, timeout=NEVER), new_group()
    claimed = claim(store, group)
    assert store.list_ownership(group).records == (claimed,)
    assert not database.is_superuser(database.attacker)


def test_tables_of_a_role_of_ones_own_are_used(database: Database) -> None:
    store = open_store(database.url_of(database.attacker), timeout=NEVER)
    store.create_schema()  # type: ignore[attr-defined]
    database.run(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {database.victim}", role=database.attacker)
    with pytest.raises(UsageError, match="a member of that role"):
        claim(open_store(database.url_of(database.victim), timeout=NEVER), new_group())
    database.run(f"GRANT {database.attacker} TO {database.victim}")
    claim(open_store(database.url_of(database.victim), timeout=NEVER), new_group())


def test_tables_of_the_schemas_owner_and_of_a_superuser_are_used(database: Database) -> None:
    """As where an administrator has run `leasehold init` for users that may make nothing."""
    database.run(
        f"CREATE SCHEMA shared AUTHORIZATION {database.attacker}", f"GRANT USAGE ON SCHEMA shared TO {database.victim}"
    )
    for owner in (database.attacker, ""):
        database.run(
            "DROP TABLE IF EXISTS " + ", ".join(f"shared.{name}" for name in RELATIONS if name != "leasehold_fence")
        )
        url = database.url_of(owner) if owner else database.url
        open_store(f"{url}&options=-csearch_path%3Dshared", timeout=NEVER).create_schema()  # type: ignore[attr-defined]
        database.run(f"GRANT ALL ON ALL TABLES IN SCHEMA shared TO {database.victim}")
        claim(
            open_store(f"{database.url_of(database.victim)}&options=-csearch_path%3Dshared", timeout=NEVER),
            new_group(),
        )


def test_a_schema_with_a_name_that_needs_quotes(database: Database) -> None:
    database.run('CREATE SCHEMA "Our ""Own"""')
    url = f"{database.url}&options=-csearch_path%3D%22Our%5C%20%22%22Own%22%22%22"
    claim(open_store(url, timeout=NEVER), new_group())
    leases = open_lease_store(url, timeout=NEVER)
    assert leases.acquire(leases.open_session("me", 60.0), "s", ["a"])
    with psycopg.connect(database.url) as connection:
        rows = connection.execute("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'leasehold%'")
        assert rows.fetchall() == [('Our "Own"',)]


def test_the_settings_of_the_url_count(database: Database) -> None:
    """They are set after connecting, and were sent with the connection before."""
    from leasehold.database.postgres.connections import Connections

    for options in ("-c%20work_mem%3D7MB%20-clock_timeout%3D9s", "--work-mem%3D7MB%20--lock_timeout%3D9s"):
        connections = Connections(f"{database.url}&options={options}", 30.0, lambda _: None)
        seen = connections.rows("SELECT current_setting('work_mem'), current_setting('lock_timeout')", {})
        assert seen == [("7MB", "9s")]
        connections.close()


def test_names_are_qualified_wherever_they_stand() -> None:
    assert qualified("SELECT nextval('leasehold_fence') FROM leasehold_ask AS a", 'x"y') == (
        'SELECT nextval(\'"x""y".leasehold_fence\') FROM "x""y".leasehold_ask AS a'
    )
