"""A user of Postgres with exactly the rights that `leasehold init --sql` prints: every kind of pipeline, every command.

In a database whose schema `public` gives nobody CREATE. The Spark side of `init`: tests/spark/test_init_rights.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from leasehold import Event
from leasehold.cli.app import app
from leasehold.database.rights import grants
from leasehold.handlers import Retries, handled_table
from leasehold.handlers.applying import with_fence
from leasehold.hubs.log import LogHub
from leasehold.operations.asking_rights import asked_for
from leasehold.operations.rights import FENCE, LEASES, STORES, uses_of
from leasehold.pipeline_file import read_pipeline_file
from leasehold.processors import handled_processor
from leasehold.sinks import TableSpec, open_sink
from leasehold.sinks.beside.forgetting import Retention
from leasehold.sinks.beside.messages.contract import MessageChange, MessageName, MessageOutcome
from leasehold.sinks.rules.fence import Watermark
from leasehold.sinks.rules.skipping import SkipNote
from leasehold.sinks.set_aside import Selection
from leasehold.stores import open_lease_store
from leasehold.stores.postgres.schema import LEASES as LEASE_TABLES
from leasehold.stores.postgres.schema import STORES as STORE_TABLES
from leasehold_testkit.contracts.sinks.messages import apply_message, read_message
from tests.few_rights import FewRights, few_rights
from tests.sinks.events import E, batch
from tests.stores.servers import PostgresServer
from tests.waiting import PATIENCE, until

MODULE = """
from leasehold.handlers import Effects, Emit, Reject, Row, entity


@entity(keys=["order_id"])
def order(state, event):
    if event.row["amount"] is None:
        raise Reject("no amount")
    if event.row["amount"] < 0:
        raise ValueError("below zero")
    total = event.row["amount"] + (state["total"] if state else 0)
    new = {"total": total, "version": event.row["version"]} if VERSIONED else {"total": total}
    lines = [Row("lines", {"order_id": event.row["order_id"], "total": total}, keys=["order_id"])] if RELATED else []
    return Effects(new, [*lines, *([Emit({"total": total}, key=event.key)] if EMITS else [])])
"""
FILE = """
name = "orders"
[source]
hub = "log:///hub.db"
[ownership]
store = "{url}"
[transform]
schema = "order_id STRING, amount BIGINT, version BIGINT"
[sink]
url = "{url}"
table = "orders"
keys = ["order_id"]
handler = "orders_{kind}:order"
state = "order_id STRING, total BIGINT{version}"
{more}
"""
BESIDE = """related = ["lines"]
[outbox]
hub = "log:///sent.db"
"""
KINDS = {
    "plain": (dict[str, str](), (False, False, False)),
    "beside": ({"more": BESIDE}, (False, True, True)),
    "spread": ({"version": ", version BIGINT", "more": 'spread = true\nsequence_by = "version"'}, (True, False, False)),
    "exclusive": (
        {"version": ", version BIGINT", "more": 'spread = true\nsequence_by = "version"\nexclusive = true'},
        (True, False, False),
    ),
}


@pytest.fixture
def few(postgres_server: PostgresServer) -> Iterator[FewRights]:
    with few_rights(postgres_server) as made:
        yield made


def pipeline(folder: Path, few: FewRights, kind: str) -> Path:
    """A pipeline file of this kind, with its handler, hub, and a user's own tables."""
    keys, (versioned, emits, related) = KINDS[kind]
    file = folder / "orders.toml"
    file.write_text(FILE.format(url=few.url, **{"version": "", "more": "", "kind": kind, **keys}))
    head = f"VERSIONED, EMITS, RELATED = {versioned}, {emits}, {related}\n"
    (folder / f"orders_{kind}.py").write_text(head + MODULE)
    for name in ("hub", "sent"):
        LogHub.create(folder / f"{name}.db", partitions=2).close()
    few.run(
        "CREATE TABLE of_others (order_id text PRIMARY KEY)", "INSERT INTO of_others VALUES ('a'), ('b')",
        "CREATE TABLE lines (number serial, order_id text PRIMARY KEY REFERENCES of_others, total bigint)",
    )  # fmt: skip
    return file


def command(*words: object) -> Any:
    """What a command of the line gives, as JSON."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, (words, done.output, done.stderr)
    return json.loads(done.stdout) if done.stdout else None


def by_sql(few: FewRights, *words: object) -> list[str]:
    """Have a superuser run what `leasehold init` prints; the statements."""
    printed = CliRunner().invoke(app, ["init", *map(str, words), "--sql"])
    assert printed.exit_code == 0, printed.output
    few.run(printed.stdout)
    return printed.stdout.splitlines()


def checked(file: Path) -> list[dict[str, Any]]:
    """What `leasehold check` finds to do."""
    said = CliRunner().invoke(app, ["check", str(file), "--no-spark", "--timeout", str(PATIENCE), "--json"])
    return [one for one in json.loads(said.stdout)["checks"] if one["ok"] is False]


def send(folder: Path, *bodies: tuple[str, int | None]) -> None:
    with closing(LogHub(folder / "hub.db")) as hub:
        for place, (key, amount) in enumerate(bodies):
            body = json.dumps({"order_id": key, "amount": amount, "version": place}).encode()
            hub.send([Event(body, partition_key=key)])


@pytest.mark.more(but=2)  # each runs a processor; the first two have what a handler can do beside its table
@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_runs_and_every_command_works_with_what_is_printed(
    few: FewRights, tmp_path: Path, kind: str
) -> None:
    file = pipeline(tmp_path, few, kind)
    found = checked(file)
    assert found
    assert {one["part"] for one in found} == {"rights"}
    assert any("leasehold_ownership" in one["said"] and "--sql" in one["remedy"] for one in found)
    statements = by_sql(few, file)
    assert any(line.startswith('CREATE TABLE "public"."orders"') for line in statements)
    assert checked(file) == []
    send(tmp_path, ("a", 1), ("b", 2), ("a", None), ("b", -1), ("a", 5))
    table = handled_table(read_pipeline_file(file), retries=Retries(deliveries=5, first=1e6, longest=1e6))
    with handled_processor(file, table=table):
        until(lambda: few.look("SELECT order_id, total FROM orders ORDER BY 1") == [("a", 6), ("b", 2)], "the totals")
        until(lambda: few.look("SELECT count(*) FROM leasehold_parked") == [(1,)], "the parked event")
        until(lambda: few.look("SELECT count(*) FROM leasehold_outbox") == [(0,)], "the outbox to be sent")
    table.close()
    assert few.look("SELECT count(*) FROM lines") == [(2 if kind == "beside" else 0,)]
    use_every_command(few, file, kind)
    few.run("DELETE FROM orders")
    command("reset", file, "--to", "earliest")
    assert few.look("SELECT to_regclass('leasehold_key_orders') IS NOT NULL") == [(True,)]
    assert checked(file) == []


def use_every_command(few: FewRights, file: Path, kind: str) -> None:
    status = command("status", file)
    assert (status["rejected"], status["parked"]) == (1, 1)
    assert len(command("rejected", "list", file)["rejected"]) == 1
    assert len(command("parked", "list", file)["parked"]) == 1
    command("parked", "retry", file, "--all")
    command("parked", "drop", file, "--all", "--because", "a test")
    command("rejected", "drop", file, "--all", "--because", "a test")
    assert len(command("rejected", "dropped", file)["dropped"]) == 2
    command("outbox", "list", file)
    command("outbox", "retry", file, "--all")
    command("forget", file, "--key", "a")
    metrics = CliRunner().invoke(app, ["metrics", str(file), "--once"])
    assert "leasehold_group_up" in metrics.stdout
    assert CliRunner().invoke(app, ["checkpoints", "export", str(file)]).exit_code == 0
    if kind == "exclusive":
        command("leases", "list", few.url)
    command("reset", file, "--to", "sink")
    send(file.parent, ("a", 1))
    with closing(LogHub(file.parent / "hub.db")) as hub:
        partition, known = max(hub.partition_properties().items(), key=lambda one: one[1].end)
    command("skip", file, "--event", f"{partition}:{known.end - 1}", "--because", "a test")


def test_each_right_that_is_taken_away_is_named_with_its_grant(few: FewRights, tmp_path: Path) -> None:
    file = pipeline(tmp_path, few, "exclusive")
    file.write_text(file.read_text().replace("spread = true", 'related = ["lines"]\nspread = true'))
    by_sql(few, file)
    asks = [(url, use) for url, uses in uses_of(read_pipeline_file(file)).items() for use in uses]
    rights = [one for url, use in asks for one in asked_for(url, use, timeout=PATIENCE).rights]
    assert len(rights) > 100
    for right in rights:
        if right.right in ("CONNECT", "USAGE") and right.thing.kind in ("DATABASE", "SCHEMA"):
            continue  # then the database or the schema is not reached at all
        [grant] = grants([right], few.role)
        few.run(grant.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM "))
        lacking = {one for url, use in asks for one in asked_for(url, use, timeout=PATIENCE).lacking}
        assert {(one.thing, one.right) for one in lacking} == {(right.thing, right.right)}
        few.run(grant)
    numbered = few.look("SELECT pg_get_serial_sequence('lines', 'number')")[0][0]
    for taken, thing in (
        ("UPDATE", "leasehold_checkpoint"),
        ("DELETE", "leasehold_parked"),
        ("SELECT", "of_others"),
        ("USAGE", f"SEQUENCE {numbered}"),
        ("USAGE", "SEQUENCE leasehold_fence"),
        ("TEMPORARY", f"DATABASE {few.database}"),
        ("INSERT", "lines"),
    ):
        few.run(f"REVOKE {taken} ON {thing} FROM {few.role}")
        [said] = checked(file)
        name = thing.rpartition(" ")[2].rpartition(".")[2]
        assert said["part"] == "rights"
        assert f"has no {taken} on the " in said["said"]
        assert name in said["said"]
        assert said["remedy"].startswith(f"GRANT {taken} ON ")
        few.run(said["remedy"])
        assert checked(file) == []
    few.run(f"REVOKE USAGE ON SCHEMA public FROM PUBLIC, {few.role}")
    assert {one["remedy"] for one in checked(file)} == {"See the message"}
    assert all("GRANT USAGE ON SCHEMA" in one["said"] for one in checked(file))


def test_another_user_makes_the_tables_and_a_role_is_given_the_rights(few: FewRights, tmp_path: Path) -> None:
    file = pipeline(tmp_path, few, "plain")
    refused = CliRunner().invoke(app, ["init", str(file)])
    assert refused.exit_code == 1
    assert "--as USER" in refused.stderr
    few.run(f"CREATE ROLE {few.role}_other LOGIN", f"GRANT ALL ON SCHEMA public TO {few.role}_other")
    few.run(f"GRANT CONNECT, TEMPORARY ON DATABASE {few.database} TO {few.role}_other")
    stranger = CliRunner().invoke(app, ["init", str(file), "--as", f"{few.role}_other"])
    assert stranger.exit_code == 1
    assert f"{few.role} would use no tables that another user has made there" in stranger.stderr
    few.run(f"DROP OWNED BY {few.role}_other", f"DROP ROLE {few.role}_other")
    made = command("init", file, "--as", "postgres")
    assert [one["outcome"] for one in made["components"] if one["component"] == "entity tables"] == ["made"]
    assert few.role in " ".join(one["outcome"] for one in made["components"] if one["component"] == "rights")
    assert checked(file) == []
    again = command("init", file, "--as", "postgres", "--grant-to", few.role)
    assert {one["outcome"] for one in again["components"]} == {
        "was there", "was as it should be", f"{few.role} had all rights",
    }  # fmt: skip
    (tmp_path / "lite.toml").write_text(file.read_text().replace(few.url, "sqlite:///lite.db"))
    for option in ("--as", "--grant-to"):
        refused = CliRunner().invoke(app, ["init", str(tmp_path / "lite.toml"), option, "x"])
        assert "is for postgresql:// alone" in refused.stderr
    printed = CliRunner().invoke(app, ["init", str(tmp_path / "lite.toml"), "--sql"])
    assert 'CREATE TABLE IF NOT EXISTS "orders"' in printed.stdout
    assert "GRANT" not in printed.stdout
    assert not (tmp_path / "lite.db").exists()


def test_sql_with_a_name_that_cannot_be_printed_is_told_as_json_alone(tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    sink = 'url = "sqlite:///lite.db"\ntable = "or\\u00a0ders"\nkeys = ["id"]\n'
    file.write_text(
        f'name = "odd"\n[source]\nhub = "log:///hub.db"\n[ownership]\nstore = "sqlite:///lite.db"\n[sink]\n{sink}'
        '[transform]\nschema = "id STRING"\n'
    )
    said = CliRunner().invoke(app, ["init", str(file), "--sql"])
    assert (said.exit_code, said.stdout) == (1, "")
    assert "--sql --json" in said.stderr
    (statements,) = command("init", file, "--sql")["statements"].values()
    assert any('"or\u00a0ders"' in one for one in statements)


def test_the_search_path_of_the_role_decides_where_the_tables_are_made(few: FewRights, tmp_path: Path) -> None:
    file = pipeline(tmp_path, few, "plain")
    few.run('CREATE SCHEMA "My Own"', f'ALTER ROLE {few.role} SET search_path = "My Own", public')
    command("init", file, "--as", "postgres")
    assert few.look("SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = 'orders'") == [('"My Own"',)]
    assert checked(file) == []


def test_a_table_whose_bookkeeping_is_missing_is_something_to_do(few: FewRights, tmp_path: Path) -> None:
    file = pipeline(tmp_path, few, "plain")
    by_sql(few, file)
    few.run("DROP TABLE leasehold_key_orders, leasehold_cleared")
    [said] = checked(file)
    assert "leasehold_cleared, leasehold_key_orders are missing in the schema public" in said["said"]
    assert by_sql(few, file)
    assert checked(file) == []


OWN = pa.schema([("tail", pa.string()), ("status", pa.string()), ("slot", pa.int32())])
KEYED = TableSpec(name="flights", pipeline="flights", keys=("tail",))


@pytest.mark.parametrize("appended", [False, True])
def test_a_table_that_spark_fills_takes_no_other_rights(few: FewRights, tmp_path: Path, appended: bool) -> None:
    """With a foreign key and a number of its own. What the loop on Spark does with its sink, and the commands."""
    key = "" if appended else " PRIMARY KEY"
    few.run("CREATE TABLE planes (tail text PRIMARY KEY)", "INSERT INTO planes VALUES ('a'), ('b')")
    few.run(f"CREATE TABLE flights (tail text{key} REFERENCES planes, status text, slot int, id serial)")
    mode = 'mode = "append"' if appended else 'keys = ["tail"]\ndelete_when = "status = \'gone\'"'
    (tmp_path / "flights.toml").write_text(
        f'name = "flights"\n[source]\nhub = "log:///hub.db"\ndeduplicate_by = "tail"\ndeduplicate_for = "1h"\n'
        f'[ownership]\nstore = "{few.url}"\n[transform]\nschema = "tail STRING, status STRING, slot INT"\n'
        'sql = "SELECT tail, status, slot, hub, partition, sequenceNumber, ownerLevel FROM events"\n'
        f'[sink]\nurl = "{few.url}"\ntable = "flights"\n{mode}\n'
    )
    LogHub.create(tmp_path / "hub.db", partitions=1).close()
    by_sql(few, tmp_path / "flights.toml")
    assert checked(tmp_path / "flights.toml") == []
    spec = TableSpec(name="flights", pipeline="flights", mode="append") if appended else KEYED
    with closing(open_sink(few.url, spec)) as table:
        sink: Any = table
        sink.check(with_fence(OWN))
        events = [E("a"), E("x", number=1), E("b", number=2), E("a", number=3, gone=True)]
        result = sink.apply(batch(events, deletes=not appended))
        assert (result.rejected, result.applied) == (1, 3)
        sink.set_watermarks("h", {"0": Watermark(3, 1)})
        sink.note_skip(SkipNote("h", "0", 7, b"{}", "{}", "a test", "a test"))
        sink.apply(batch([E("b", number=7), E("b", number=8)], deletes=not appended))
        sink.clear(Retention(rejected=1e-3, memories=None if appended else 1e-3))
        if not appended:
            sink.forget_entity({"tail": "b"})
            assert sink.compare(with_fence(OWN)).there
        assert len(sink.rejected_rows.rows(Selection(), 9)) >= 0
        sink.check_watermarks("h", {"0": Watermark(8, 1)})
    few.run(f"REVOKE DELETE ON flights FROM {few.role}")
    assert bool(checked(tmp_path / "flights.toml")) is not appended


def test_a_queue_takes_no_other_rights(few: FewRights, tmp_path: Path) -> None:
    """A pipeline file names its table and its state, for `init` alone: no hub is asked."""
    file = pipeline(tmp_path, few, "plain")
    by_sql(few, file)
    by_sql(few, few.url)
    state = pa.schema([("order_id", pa.string()), ("total", pa.int64())])
    spec = TableSpec(name="orders", pipeline="orders", keys=("order_id",))
    with closing(open_sink(few.url, spec)) as table:
        sink: Any = table
        sink.check_messages(state)
        name = MessageName("q", "7", 7, 1.0)
        known = read_message(sink, state, ("a",), name)
        change = MessageChange(name, ("a",), known.version, {"order_id": "a", "total": 1})
        assert apply_message(sink, state, change, 1e9) is MessageOutcome.APPLIED
        assert read_message(sink, state, ("a",), name).done
        assert sink.parked_messages.waiting() == {}
    leases = open_lease_store(few.url)
    session = leases.open_session("me", None)
    [lease] = leases.acquire(session, "orders", ["a"])
    assert leases.renew([lease])
    leases.release([lease])
    leases.close_session(session)


def test_one_pipelines_role_reads_nothing_of_another_in_a_schema_of_its_own(few: FewRights, tmp_path: Path) -> None:
    """As docs/bookkeeping.md says: a schema for each pipeline whose events another's role must not read."""
    file = pipeline(tmp_path, few, "plain")
    few.run("CREATE SCHEMA one", "CREATE SCHEMA two", f"CREATE ROLE {few.role}_two LOGIN")
    for schema, role in (("one", few.role), ("two", f"{few.role}_two")):
        text = FILE.format(url=few.url.replace(f"{few.role}@", f"{role}@"), version="", more="", kind="plain")
        file.write_text(text.replace('table = "orders"', f'table = "{schema}.orders"'))
        by_sql(few, file, "--as", "postgres")
    reads = few.look(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'one'::regnamespace AND relkind = 'r' "
        f"AND has_table_privilege('{few.role}_two', oid, 'SELECT')"
    )
    few.run(f"DROP OWNED BY {few.role}_two", f"DROP ROLE {few.role}_two")
    assert reads == []


def test_the_names_of_a_stores_tables_are_those_that_it_makes() -> None:
    assert STORE_TABLES.tables == STORES
    assert (*LEASES, FENCE) == LEASE_TABLES.tables


def test_a_role_that_may_not_create_is_told_before_the_first_start(few: FewRights, tmp_path: Path) -> None:
    """Without Spark too, and what a handler's table has that a start refuses."""
    file = pipeline(tmp_path, few, "plain")
    found = checked(file)
    assert {one["part"] for one in found} == {"rights"}
    missing = [one for one in found if "missing in the schema public, and the user" in one["said"]]
    assert ["leasehold_ownership" in one["said"] for one in missing] == [True, False]
    assert ["orders" in one["said"] for one in missing] == [False, True]
    assert all("leasehold init" in one["remedy"] for one in missing)
    few.run("CREATE TABLE orders (order_id text PRIMARY KEY, total bigint NOT NULL)")
    by_sql(few, file)
    [refused] = checked(file)
    assert (refused["part"], "it has total NOT NULL" in refused["said"]) == ("table", True)
    few.run("ALTER TABLE orders ALTER total DROP NOT NULL")
    assert checked(file) == []
