"""A table whose name has a schema: all of it is there, and nothing of it is another table's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leasehold.errors import ConfigError, SchemaMismatch, UsageError
from leasehold.sinks import Sink, TableSpec, open_sink
from leasehold.sinks.features import STATES, require
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.sqlite.sink import SqliteSink
from leasehold_testkit.contracts.sinks.fixtures import compared
from tests.sinks.events import E, batch
from tests.sinks.postgres import Place, place_on
from tests.waiting import PATIENCE

TWO = [E("a"), E(None, number=1)]
"""An event that is applied, and one that is rejected: it has no key."""

Open = Callable[..., Sink]


@pytest.fixture
def other(place: Place) -> Iterator[Place]:
    """Another schema of the same database."""
    with place_on(place.server) as made:
        yield made


@pytest.fixture
def open_table(place: Place) -> Iterator[Open]:
    """Opens a table of this name, over a connection that leads to the schema of `place`."""
    opened: list[Sink] = []

    def open_one(name: str, pipeline: str = "p", url: str = place.url) -> Sink:
        opened.append(open_sink(url, TableSpec(name=name, pipeline=pipeline, keys=("tail",)), timeout=PATIENCE))
        return opened[-1]

    yield open_one
    for sink in opened:
        sink.close()


def tables(place: Place) -> set[str]:
    return {name for (name,) in place.look(f"SELECT tablename FROM pg_tables WHERE schemaname = '{place.schema}'")}


OF_O = {"o", "o_rejected", "leasehold_key_o", "leasehold_table", "leasehold_watermark"}


def test_all_of_a_table_is_in_the_schema_that_its_name_has(place: Place, other: Place, open_table: Open) -> None:
    sink = open_table(f"{other.schema}.o")
    assert sink.apply(batch(TWO)).rejected == 1
    require(sink, STATES, "a test").check_parked()
    assert tables(other) >= OF_O
    assert tables(place) == set()
    assert other.look("SELECT tail FROM o") == [("a",)]
    assert other.look("SELECT sequence_number FROM o_rejected") == [(1,)]


def test_tables_of_one_name_share_nothing(place: Place, other: Place, open_table: Open) -> None:
    """Not watermarks, not what is known of keys, not rejected rows; not the pipeline to which they belong."""
    here, there = open_table("o"), open_table(f"{other.schema}.o", "q")
    assert here.apply(batch(TWO)).rejected == 1
    assert there.watermarks("h") == {}
    assert there.apply(batch([E("a", "x")])).applied == 1
    assert (here.watermarks("h"), there.watermarks("h")) == (
        {"0": Watermark(1, 1)},
        {"0": Watermark(0, 1)},
    )
    assert here.identity() != there.identity()
    there.set_watermarks("h", {"0": Watermark(-1, 2)}, anew=True)
    assert (here.watermarks("h"), here.apply(batch([E("a", "y")])).replayed) == ({"0": Watermark(1, 1)}, 1)
    assert [it.look("SELECT tail, status FROM o") for it in (place, other)] == [[("a", "ok")], [("a", "x")]]
    assert [it.look("SELECT count(*) FROM o_rejected") for it in (place, other)] == [[(1,)], [(0,)]]


def test_a_table_has_one_set_of_watermarks_however_it_is_named(place: Place, open_table: Open) -> None:
    by_path, by_name, quoted = open_table("o"), open_table(f"{place.schema}.o"), open_table(f'"{place.schema}"."o"')
    assert by_path.apply(batch([E("a")])).applied == 1
    assert by_name.apply(batch([E("a")])).replayed == 1
    assert quoted.apply(batch([E("a", number=1)])).applied == 1
    assert by_path.watermarks("h") == {"0": Watermark(1, 1)}
    assert len({sink.identity() for sink in (by_path, by_name, quoted)}) == 1


def test_names_in_quotes_may_have_dots_and_capital_letters(place: Place, open_table: Open) -> None:
    dotted = open_table('"sales.o"')
    assert dotted.apply(batch(TWO)).rejected == 1
    assert tables(place) >= {"sales.o", "sales.o_rejected", "leasehold_key_sales.o"}
    schema = f'My.{place.schema} "x"'
    place.run(f'CREATE SCHEMA "My.{place.schema} ""x"""')
    try:
        named = open_table(f'"My.{place.schema} ""x""".T')
        assert str(named.spec.called) == f'"My.{place.schema} ""x""".T'
        assert named.apply(batch(TWO)).applied == 1
        assert compared(named, batch([]).rows.schema).there
        made = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"
        assert {"T", "T_rejected", "leasehold_key_T", "leasehold_watermark"} <= {name for (name,) in place.look(made)}
    finally:
        place.run(f'DROP SCHEMA "My.{place.schema} ""x""" CASCADE')


def test_a_schema_that_is_not_there_is_refused(place: Place, open_table: Open) -> None:
    sink = open_table(f"{place.schema}_not.o")
    for act in (
        lambda: sink.apply(batch([E("a")])),
        sink.identity,
        lambda: sink.make_tables(),
    ):
        with pytest.raises(UsageError, match=f"there is no schema {place.schema}_not. CREATE SCHEMA"):
            act()
    assert tables(place) == set()


def test_a_schema_that_this_user_may_not_use_is_refused(place: Place, other: Place, open_table: Open) -> None:
    role = f"stranger_{place.schema}"
    place.run(f"CREATE ROLE {role} LOGIN")
    try:
        url = place.server.replace("postgres:@", f"{role}@")
        with pytest.raises(
            UsageError, match=f"may not use the schema {other.schema}. GRANT USAGE ON SCHEMA {other.schema} TO {role}"
        ):
            open_table(f"{other.schema}.o", url=url).identity()
        other.run(f"GRANT USAGE ON SCHEMA {other.schema} TO {role}")
        with pytest.raises(UsageError, match=f"missing in the schema {other.schema}.*leasehold init"):
            open_table(f"{other.schema}.o", url=url).identity()
    finally:
        place.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_schema_that_is_named_like_the_user_is_trusted_where_the_table_names_it(place: Place) -> None:
    """The search path finds such a schema by itself, so anybody may have made it: there its owner has to be trusted."""
    role, owner = f"user_{place.schema}", f"owner_{place.schema}"
    place.run(f"CREATE ROLE {role} LOGIN", f"CREATE ROLE {owner}", f"CREATE SCHEMA {role} AUTHORIZATION {owner}")
    place.run(f"GRANT USAGE, CREATE ON SCHEMA {role} TO {role}")
    place.run(f'ALTER ROLE {role} SET search_path = "$user"')  # others leave tables of Leasehold in public
    url = place.server.replace("postgres:@", f"{role}@")
    try:
        with pytest.raises(UsageError, match="is named like this user"):
            open_sink(url, TableSpec(name="o", pipeline="p", keys=("tail",))).identity()
        sink = open_sink(url, TableSpec(name=f"{role}.o", pipeline="p", keys=("tail",)), timeout=PATIENCE)
        assert sink.apply(batch([E("a")])).applied == 1
        sink.close()
    finally:
        place.run(f"DROP OWNED BY {role}, {owner} CASCADE", f"DROP ROLE {role}, {owner}")


@pytest.mark.parametrize("schema", ["pg_catalog", "pg_temp", "information_schema", "s" * 64])
def test_a_schema_that_cannot_have_the_table_is_refused(place: Place, schema: str) -> None:
    with pytest.raises(ConfigError, match=r"the server's own|cuts names off after 63 bytes"):
        open_sink(place.url, TableSpec(name=f"{schema}.o", pipeline="p", mode="append"))


def test_what_is_said_of_a_table_has_its_schema(place: Place, other: Place, open_table: Open) -> None:
    name = f"{other.schema}.o"
    sink = open_table(name)
    other.run("CREATE TABLE o (tail text PRIMARY KEY, slot integer)")
    with pytest.raises(
        SchemaMismatch, match=rf'the table {name}:\n.*ALTER TABLE "{other.schema}"."o" ADD COLUMN "status"'
    ):
        sink.check(batch([]).rows.schema)
    other.run("DROP TABLE o", "CREATE VIEW o AS SELECT 1 AS tail")
    with pytest.raises(SchemaMismatch, match=f"{name} is a view"):
        sink.check(batch([]).rows.schema)


@pytest.mark.parametrize("name", ["sales.o", 'main."o"'])
def test_sqlite_has_no_schemas(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="SQLite has no schemas") as refused:
        open_sink("sqlite:///t.db", TableSpec(name=name, pipeline="p", mode="append"), base=tmp_path)
    assert "quote it: table = '\"" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_name_in_quotes_may_have_a_dot_in_sqlite(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "t.db", TableSpec(name='"sales.o"', pipeline="p", keys=("tail",)))
    assert sink.apply(batch(TWO)).rejected == 1
    assert (sink.spec.name, sink.row_count()) == ("sales.o", 1)
    sink.close()


def test_a_statement_that_is_said_to_a_person_names_the_table_as_it_is_written(place: Place) -> None:
    """Without quotes it would be about the table with small letters, which may be another one."""
    sink = open_sink(place.url, TableSpec(name=f"{place.schema}.Flights", pipeline="p", mode="append"))
    sink.apply(batch([E("a")]))
    with pytest.raises(UsageError, match=rf'DELETE FROM "{place.schema}"."Flights"$'):
        sink.set_watermarks("h", {"0": Watermark(-1, 2)})
    sink.close()
