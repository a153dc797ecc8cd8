"""`leasehold check` without Spark: what is ready, what is away, what has to be done. With Spark: tests/spark."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.errors import HubUnavailable
from leasehold.handlers.applying import with_fence
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Checkpoint, ConsumerGroup, Event, Ownership, PartitionProperties
from leasehold.operations.checking import DRIVER, PROBE_GROUP, Finding, HubSeen, asked
from leasehold.operations.checking_table import where_it_begins
from leasehold.sinks import TableSpec, Watermark, open_sink
from leasehold.sinks.sqlite.tables import FORMAT
from leasehold.stores import PipelineBinding, open_store
from leasehold_testkit.emulators.registry import RegistryServer
from tests.projected.flights import write_registered
from tests.projected.protobuf_flights import write_protobuf
from tests.waiting import PATIENCE

PIPELINE = """
name = "flights"
[source]
hub = "log:///hub.db"
{source}
[ownership]
{ownership}
[transform]
sql = "SELECT body->>'id' AS id, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "sqlite:///{folder}entities.db"
table = "flights"
keys = ["id"]
"""
STORE = 'store = "sqlite:///stores.db"'


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LogHub]:
    hub = LogHub.create(tmp_path / "hub.db", partitions=2)
    hub.send([Event(b"{}")] * 3, partition="1")
    yield hub
    hub.close()


def checked(place: Path, *words: str, **file: str) -> tuple[int, list[dict[str, Any]]]:
    text = PIPELINE.format(**{"source": "", "ownership": STORE, "folder": "", **file})
    (place / "flights.toml").write_text(text)
    return looked_at(place, *words)


def looked_at(place: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """What the command says of the file that is there."""
    said = CliRunner().invoke(app, ["check", str(place / "flights.toml"), "--no-spark", "--json", *words])
    document = json.loads(said.stdout)
    assert document["ready"] == (said.exit_code == 0), said.output
    checks: list[dict[str, Any]] = document["checks"]
    return said.exit_code, checks


def to_do(checks: list[dict[str, Any]]) -> list[str]:
    return [f"{one['part']}: {one['said']} | {one['remedy']}" for one in checks if one["ok"] is False]


def test_before_the_first_start_all_is_ready_and_nothing_made(tmp_path: Path, hub: LogHub) -> None:
    (tmp_path / "flights.toml").touch()
    before = sorted(one.name for one in tmp_path.iterdir())
    code, checks = checked(tmp_path)
    assert (code, to_do(checks)) == (0, [])
    assert sorted(one.name for one in tmp_path.iterdir()) == before
    said = [f"{one['part']}: {one['said']}" for one in checks]
    assert said[:2] == ["hub: 2 partitions with 3 events", "retention: no event is removed by its age"]
    assert "the first start makes it" in said[2]
    assert said[-1] == "start: nothing was read: a start reads 3 events, from source.starting_position on"
    people = CliRunner().invoke(app, ["check", str(tmp_path / "flights.toml"), "--no-spark"])
    unseen, refused, last = people.stdout.splitlines()[-3:]
    assert unseen == "not looked at without Spark: the transform, its columns, a sample of events"
    assert refused.startswith("leasehold run --no-spark refuses this file: ")
    assert "transform.sql" in refused
    assert last == "flights can start"


def test_a_table_with_rows_of_a_former_reader_and_no_place_is_named(tmp_path: Path, hub: LogHub) -> None:
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection, connection:
        connection.execute("CREATE TABLE flights (id TEXT PRIMARY KEY)")
        connection.execute("INSERT INTO flights VALUES ('a')")
    open_store("sqlite:///stores.db", base=tmp_path).list_checkpoints(hub.consumer_group("$Default"))
    code, checks = checked(tmp_path)
    assert (code, to_do(checks)) == (0, [])
    [said] = [one["said"] for one in checks if "nothing says which events" in one["said"]]
    assert "leasehold checkpoints import" in said


def test_what_is_there_already_is_compared(tmp_path: Path, hub: LogHub) -> None:
    store = open_store("sqlite:///stores.db", base=tmp_path)
    group = hub.consumer_group("$Default")
    store.raise_owner_level([Checkpoint(group, "1", 2, 4)])
    sink = open_sink(
        "sqlite:///entities.db", TableSpec(name="flights", pipeline="flights", keys=("id",)), base=tmp_path
    )
    sink.check(with_fence(pa.schema([("id", pa.string())])))
    sink.raise_owner_levels(hub.identity, {"1": 4})
    sink.set_watermarks(hub.identity, {"1": Watermark(2, 4, whole=True)})
    code, checks = checked(tmp_path)
    assert (code, to_do(checks)) == (0, [])
    said = [one["said"] for one in checks]
    assert "this user may write to it" in said
    assert [one["said"] for one in checks if one["part"] == "start"] == [
        "a start goes on with partition 1 at 3: 0 events are unread there; of partition 0 nothing was read: a start "
        "reads 0 events, from source.starting_position on"
    ]
    assert store.list_ownership(hub.consumer_group(PROBE_GROUP)).presences == ()
    sink.raise_owner_levels(hub.identity, {"1": 5})
    code, checks = checked(tmp_path)
    (problem,) = to_do(checks)
    assert code == 1
    assert problem.startswith("table: the table has seen owner level 5")
    assert "leasehold reset" in problem


def test_stores_that_are_gone_under_a_table_are_something_to_do(tmp_path: Path, hub: LogHub) -> None:
    """A start would make them anew, and refuse to go on: where is not known."""
    spec = TableSpec(name="flights", pipeline="flights", keys=("id",))
    sink = open_sink("sqlite:///entities.db", spec, base=tmp_path)
    sink.check(with_fence(pa.schema([("id", pa.string())])))
    sink.set_watermarks(hub.identity, {"1": Watermark(2, 4, whole=True)})
    [problem] = to_do(checked(tmp_path)[1])
    assert "level 4 of partition 1, and the checkpoint store knows 0" in problem
    assert "leasehold reset" in problem
    assert not (tmp_path / "stores.db").exists()


def test_events_that_are_gone_before_they_were_read_are_something_to_do(tmp_path: Path, hub: LogHub) -> None:
    """A start would end with `DataLoss`; with `fail_on_data_loss` off it goes on, and the check still says so."""
    store = open_store("sqlite:///stores.db", base=tmp_path)
    store.raise_owner_level([Checkpoint(hub.consumer_group("$Default"), "1", 0, 4)])
    sink = open_sink(
        "sqlite:///entities.db", TableSpec(name="flights", pipeline="flights", keys=("id",)), base=tmp_path
    )
    sink.check(with_fence(pa.schema([("id", pa.string())])))
    sink.set_watermarks(hub.identity, {"1": Watermark(1, 4, whole=True)})
    hub.retain(max_bytes=0)
    begin = hub.partition_properties()["1"].begin
    assert begin > 2
    _, checks = checked(tmp_path)
    (problem,) = to_do(checks)
    assert problem.startswith(f"unread events: partition 1: events [2, {begin}) are gone from the hub; a start ends")
    assert "--set source.fail_on_data_loss=false" in problem
    code, checks = checked(tmp_path, "--set", "source.fail_on_data_loss=false")
    assert (code, to_do(checks)) == (0, [])
    assert "a start goes on without them" in " ".join(one["said"] for one in checks)
    code, checks = checked(tmp_path, ownership='partitions = ["0"]\ncheckpoint_store = "sqlite:///stores.db"')
    assert (code, to_do(checks)) == (0, [])


def test_a_table_that_knows_a_level_and_no_event_misses_nothing(tmp_path: Path, hub: LogHub) -> None:
    """An instance was killed before its first batch: where it was to begin is for the next one to find out."""
    spec = TableSpec(name="flights", pipeline="flights", keys=("id",))
    sink = open_sink("sqlite:///entities.db", spec, base=tmp_path)
    sink.check(with_fence(pa.schema([("id", pa.string())])))
    sink.raise_owner_levels(hub.identity, {"0": 1, "1": 1})
    hub.retain(max_bytes=0)
    ownership = 'ownership_store = "sqlite:///stores.db"\ncheckpoint_store = "none"'
    code, checks = checked(tmp_path, ownership=ownership)
    assert (code, to_do(checks)) == (0, [])


def test_a_table_of_another_pipeline_is_something_to_do(tmp_path: Path, hub: LogHub) -> None:
    spec = TableSpec(name="flights", pipeline="another", keys=("id",))
    open_sink("sqlite:///entities.db", spec, base=tmp_path).identity()
    _, checks = checked(tmp_path)
    assert "belongs to the pipeline 'another'" in to_do(checks)[0]


def test_records_of_others_are_counted_or_named_as_what_they_are(tmp_path: Path, hub: LogHub) -> None:
    """What is of no partition of the hub does not count, and what cannot be read is said."""
    store, group = open_store("sqlite:///stores.db", base=tmp_path), hub.consumer_group("$Default")
    store.claim_ownership([Ownership(group, name, "a/1", 1) for name in ("0", "1", "7")])
    store.raise_owner_level([Checkpoint(group, "0", -1, 1), Checkpoint(group, "7", -1, 1)])
    with closing(sqlite3.connect(tmp_path / "stores.db")) as connection, connection:
        connection.execute("UPDATE leasehold_ownership SET owner_level = 'high' WHERE partition = '1'")
    code, checks = checked(tmp_path)
    assert (code, to_do(checks)) == (0, [])
    said = [one["said"] for one in checks]
    assert "it answers; partitions with an owner: 1 of 2" in said
    assert "it answers; 1 checkpoint of consumer group $Default" in said
    [unread] = [one for one in said if "cannot be read" in one]
    assert unread.startswith("the ownership record of partition 1 cannot be read (")
    assert "the partition is nobody's until" in unread


def test_a_consumer_group_of_another_pipeline_or_table_is_something_to_do(tmp_path: Path, hub: LogHub) -> None:
    """A start would refuse it."""
    store, group = open_store("sqlite:///stores.db", base=tmp_path), hub.consumer_group("$Default")
    store.bind_pipeline(group, PipelineBinding("another", "a sink"))
    code, checks = checked(tmp_path)
    [problem] = to_do(checks)
    assert (code, problem.partition(" of this hub ")[0]) == (1, "consumer group: consumer group '$Default'")
    assert "belongs to pipeline 'another', and this is 'flights'" in problem
    assert "leasehold reset" in problem
    store.rebind_pipeline(group, PipelineBinding("flights", "the sink of a database that was deleted"))
    assert to_do(checked(tmp_path)[1]) == []  # nobody has read: the table of the file is the first
    store.raise_owner_level([Checkpoint(group, "1", 2, 4)])
    [problem] = to_do(checked(tmp_path)[1])
    assert "its database was deleted, or the file names another one" in problem
    spec = TableSpec(name="flights", pipeline="flights", keys=("id",))
    identity = open_sink("sqlite:///entities.db", spec, base=tmp_path).identity()
    store.rebind_pipeline(group, PipelineBinding("flights", identity))
    assert to_do(checked(tmp_path)[1]) == []  # an instance that was killed before its first event made the database
    assert store.pipeline_binding(group) == PipelineBinding("flights", identity)


def test_a_consumer_group_that_was_read_without_a_table_is_something_to_do(tmp_path: Path, hub: LogHub) -> None:
    """A start would refuse it. What nobody has read under Leasehold, such as imported checkpoints, is none."""
    store, group = open_store("sqlite:///stores.db", base=tmp_path), hub.consumer_group("$Default")
    store.raise_owner_level([Checkpoint(group, "1", 2, 0)])
    assert to_do(checked(tmp_path)[1]) == []
    store.raise_owner_level([Checkpoint(group, "1", 2, 3)])
    assert to_do(checked(tmp_path)[1]) == []
    store.update_checkpoints([Checkpoint(group, "1", 3, 3, enqueued_time=1.0)])
    [problem] = to_do(checked(tmp_path)[1])
    assert "has been read by a program that fills no table, or another one, and this table has none of" in problem
    assert store.pipeline_binding(group) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"source": 'retention = "7d"'}, ""),
        ({"folder": "nowhere/"}, "table: "),
        (
            {"ownership": 'partitions = ["1", "9"]\ncheckpoint_store = "sqlite:///stores.db"'},
            "partitions: the hub has no partition 9",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, hub: LogHub, change: dict[str, str], problem: str) -> None:
    _, checks = checked(tmp_path, **change)
    assert [one[: len(problem)] for one in to_do(checks)] == ([problem] if problem else [])


def test_a_hub_that_is_not_there_does_not_hide_the_rest(tmp_path: Path) -> None:
    code, checks = checked(tmp_path)
    assert code == 1
    [problem] = to_do(checks)
    assert problem.startswith("hub: ")
    assert {one["part"] for one in checks} == {"hub", "ownership store", "checkpoint store", "table", "start"}
    assert [one for one in checks if one["ok"] is None] == [
        {"part": "start", "place": "driver", "ok": None, "said": "not looked at: it needs the hub", "remedy": ""}
    ]
    people = CliRunner().invoke(app, ["check", str(tmp_path / "flights.toml"), "--no-spark"])
    assert "1 thing to do before flights starts; 1 part could not be looked at until then" in people.stdout


def test_a_store_that_accepts_and_never_answers_is_named_in_time(tmp_path: Path, hub: LogHub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        _, checks = checked(tmp_path, "--timeout", "8", ownership=f'store = "redis://127.0.0.1:{port}/0"')
    [problem] = to_do(checks)  # 8 s, in which all others answer on a busy machine, too
    assert problem.startswith("ownership store: gave no answer within 8 s")
    needs = "not looked at: it needs the ownership store"
    assert {one["part"]: one["said"] for one in checks if one["ok"] is None} == {
        "checkpoint store": needs,
        "start": needs,
    }


def test_what_hangs_is_left_behind_with_what_it_found_so_far() -> None:
    found, ended = threading.Event(), threading.Event()

    def hangs() -> Iterator[Finding]:
        yield Finding("hub", DRIVER, True, "it is there")
        found.set()
        ended.wait(PATIENCE)

    def started(thread: threading.Thread) -> None:
        start(thread)
        assert found.wait(PATIENCE)

    start = threading.Thread.start
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", started)
        first, late = asked("hub", DRIVER, hangs, 0.2)
    ended.set()
    assert first.ok
    assert (late.ok, late.said) == (False, "gave no answer within 0.2 s")
    assert "--timeout" in late.remedy


def test_errors_are_findings_with_their_notes() -> None:
    def fails() -> Iterator[Finding]:
        error = HubUnavailable("the hub is\naway")
        error.add_note("Start it.")
        yield from ()
        raise error

    assert asked("hub", DRIVER, fails, 5) == [Finding("hub", DRIVER, False, "the hub is away", "Start it.")]

    def breaks() -> Iterator[Finding]:
        yield from ()
        raise ValueError("odd")

    assert asked("hub", DRIVER, breaks, 5)[0].said == "ValueError: odd"


@pytest.mark.parametrize(
    ("name", "older", "part", "said", "remedy"),
    [
        ("hub.db", "PRAGMA user_version = 1", "hub", "format 1, and", "name another one for the hub"),
        (
            "stores.db",
            "UPDATE leasehold_schema SET version = 2",
            "ownership store",
            "format 2, and this release reads format 3 alone",
            "Stop every instance; drop leasehold_ownership, ",
        ),
        (
            "entities.db",
            "UPDATE leasehold_table SET format = 6",
            "table",
            f"format 6, and this release reads format {FORMAT} alone",
            "leasehold reset PIPELINE.toml --to earliest",
        ),
    ],
)
def test_an_older_format_is_something_to_do(
    tmp_path: Path, hub: LogHub, name: str, older: str, part: str, said: str, remedy: str
) -> None:
    open_store("sqlite:///stores.db", base=tmp_path).list_checkpoints(hub.consumer_group("$Default"))
    spec = TableSpec(name="flights", pipeline="flights", keys=("id",))
    open_sink("sqlite:///entities.db", spec, base=tmp_path).identity()
    hub.close()
    with closing(sqlite3.connect(tmp_path / name)) as connection, connection:
        connection.execute(older)
    [problem] = [one for one in to_do(checked(tmp_path)[1]) if one.startswith(f"{part}: ")]
    assert said in problem
    assert remedy in problem


HANDLED = """
name = "orders"
[source]
hub = "log:///hub.db"
[ownership]
store = "sqlite:///stores.db"
[transform]
schema = "order_id STRING, amount BIGINT"
[sink]
url = "sqlite:///entities.db"
table = "orders"
keys = ["order_id"]
handler = "checked_orders:order"
state = "order_id STRING, total BIGINT"
"""


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("order_id TEXT PRIMARY KEY, total INTEGER NOT NULL", "it has total NOT NULL"),
        ("order_id TEXT PRIMARY KEY, total INTEGER CHECK (total > 0)", "it has a CHECK"),
        ("order_id TEXT PRIMARY KEY, total INTEGER UNIQUE", "unique"),
        ("order_id TEXT PRIMARY KEY, sum INTEGER", "total: is not in the table"),
        ("order_id TEXT, total INTEGER", "order_id"),
    ],
)
def test_a_handlers_table_that_a_start_refuses_is_something_to_do(
    tmp_path: Path, hub: LogHub, table: str, problem: str
) -> None:
    """Asked without Spark and with it, for which a handler's columns stand in the file as well."""
    (tmp_path / "checked_orders.py").write_text(
        "from leasehold.handlers import entity\n\n\n@entity(keys=['order_id'])\ndef order(state, event):\n    ...\n"
    )
    (tmp_path / "orders.toml").write_text(HANDLED)
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection, connection:
        connection.execute(f"CREATE TABLE orders ({table})")
    for words in ([], ["--no-spark"]):
        said = CliRunner().invoke(app, ["check", str(tmp_path / "orders.toml"), "--json", *words])
        checks = json.loads(said.stdout)["checks"]
        [found] = to_do(checks)
        assert found.startswith("table: ")
        assert problem in found
        assert [one["said"] for one in checks if one["ok"] is None] == ["not looked at: it needs the table"]
    started = CliRunner().invoke(app, ["run", str(tmp_path / "orders.toml"), "--no-spark"])
    assert (started.exit_code, problem in started.stderr) == (1, True)


def test_sql_that_leaves_out_what_a_start_needs_is_something_to_do_without_spark(tmp_path: Path, hub: LogHub) -> None:
    def problems(sql: str) -> list[str]:
        (tmp_path / "flights.toml").write_text(
            PIPELINE.format(source="", ownership=STORE, folder="").replace("SELECT body->>'id' AS id, hub", sql)
        )
        said = CliRunner().invoke(app, ["check", str(tmp_path / "flights.toml"), "--no-spark", "--json"])
        return to_do(json.loads(said.stdout)["checks"])

    assert problems("SELECT *, hub") == problems("SELECT id, HUB") == []
    [found] = problems("SELECT id")
    assert found.startswith("transform: sql does not give the columns hub, by which")
    assert "SELECT …, hub, partition, sequenceNumber, ownerLevel" in found


def test_columns_that_the_file_tells_are_compared_without_spark(tmp_path: Path, hub: LogHub) -> None:
    """Nothing transforms events: what a start writes is known."""
    text = PIPELINE.format(source="", ownership=STORE, folder="")
    file = tmp_path / "flights.toml"
    file.write_text("\n".join('schema = "id STRING"' if one.startswith("sql") else one for one in text.splitlines()))
    with closing(sqlite3.connect(tmp_path / "entities.db")) as connection, connection:
        connection.execute("CREATE TABLE flights (id TEXT PRIMARY KEY)")
    said = CliRunner().invoke(app, ["check", str(file), "--no-spark", "--json"])
    [found] = to_do(json.loads(said.stdout)["checks"])
    assert found.startswith("table: what is to be written does not fit the table flights: body: is not in the table")


def test_where_a_start_begins_is_said_once() -> None:
    """In each partition: by what was read, by the file, by what a group of Kafka has committed."""
    records, probe = ConsumerGroup("a", "b"), ConsumerGroup("a", "b", PROBE_GROUP)
    known = {name: PartitionProperties(name, 10, 20) for name in "0123"}

    def told(begins: dict[str, int], following: dict[str, int], **more: Any) -> list[tuple[bool | None, str]]:
        given = {"share": None, "filled": None, **more}
        seen = HubSeen("hub", records, probe, known, begins)
        return [(one.ok, one.said) for one in where_it_begins(seen, following, given["share"], given["filled"])]

    fresh = {"0": 10, "1": 12}
    assert told({**fresh, "2": 20, "3": 10}, {}) == [
        (True, "nothing was read: a start reads 28 events, from source.starting_position on")
    ]
    assert told(fresh, {}, filled="flights") == [
        (
            True,
            "flights has rows, and nothing says which events are in them; nothing was read: a start reads 18 events, "
            "from source.starting_position on; partition 2, 3 begins where the consumer group has committed; to go on "
            "where a former reader stopped, `leasehold checkpoints import` first",
        )
    ]
    assert told(fresh, {"0": 15}, share=["0", "1"], filled="flights") == [
        (
            True,
            "a start goes on with partition 0 at 15: 5 events are unread there; of partition 1 nothing was read: a "
            "start reads 8 events, from source.starting_position on",
        )
    ]
    assert told({"0": 3}, {"0": 15}, share=["0"]) == [
        (True, "a start goes on with partition 0 at 15: 5 events are unread there")
    ]
    assert told({"0": 3}, {}, share=["0"]) == [
        (False, "the hub has removed the events at which partitions 0 are to start")
    ]


def test_a_database_that_is_away_is_said_once(tmp_path: Path, hub: LogHub) -> None:
    """Of the stores and of the table: each was a thing to do."""
    url = f"postgresql://nobody@127.0.0.1:{closed_port()}/flights"
    (tmp_path / "flights.toml").write_text(
        PIPELINE.format(source="", ownership=f'store = "{url}"', folder="").replace("sqlite:///entities.db", url)
    )
    said = CliRunner().invoke(app, ["check", str(tmp_path / "flights.toml"), "--no-spark", "--json"])
    checks = json.loads(said.stdout)["checks"]
    assert len(to_do(checks)) == 1
    assert "refused" in to_do(checks)[0]
    assert {one["part"]: one["said"] for one in checks if one["ok"] is None} == dict.fromkeys(
        ("ownership store", "checkpoint store", "table", "start"), "not looked at: it needs the database"
    )


def closed_port() -> int:
    """Of this machine: nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_an_instance_that_gives_up_says_so_and_why(tmp_path: Path, hub: LogHub) -> None:
    """What `check` finds beforehand."""
    (tmp_path / "checked_orders.py").write_text(
        "from leasehold.handlers import entity\n\n\n@entity(keys=['order_id'])\ndef order(state, event):\n    ...\n"
    )
    file = tmp_path / "orders.toml"
    file.write_text(HANDLED)
    spec = TableSpec(name="orders", pipeline="orders", keys=("order_id",))
    sink = open_sink("sqlite:///entities.db", spec, base=tmp_path)
    sink.check(with_fence(pa.schema([("order_id", pa.string()), ("total", pa.int64())])))
    sink.set_watermarks(hub.identity, {"1": Watermark(2, 4, whole=True)})
    [found] = to_do(json.loads(CliRunner().invoke(app, ["check", str(file), "--json"]).stdout)["checks"])
    command = [sys.executable, "-m", "leasehold", "run", str(file), "--no-spark"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    why = "level 4 of partition 1, and the checkpoint store knows 0"
    assert why in found
    assert ended.stderr.splitlines()[-1].startswith("leasehold: this instance gives up: ")
    assert why in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(("message", "said"), [("flights.Flight", ""), ("flights.None", "no such type of messages")])
def test_the_schema_of_bodies_is_read(tmp_path: Path, message: str, said: str) -> None:
    LogHub.create(tmp_path / "hub.db", partitions=1).close()
    file = write_protobuf(tmp_path)
    file.write_text(file.read_text().replace('message = "flights.Flight"', f'message = "{message}"'))
    _, checks = looked_at(tmp_path)
    [found] = [one for one in checks if one["part"] == "bodies"]
    assert found["ok"] is not bool(said)
    assert said in found["said"]


def test_a_registry_is_asked(tmp_path: Path) -> None:
    LogHub.create(tmp_path / "hub.db", partitions=1).close()
    with closing(RegistryServer(user="me", password="right")) as server:  # noqa: S106
        for user, said in (
            ("me:right", []),
            ("me:wrong", ["Check the URL, and the user and password, or the token, and their rights"]),
        ):
            write_registered(tmp_path, server.url.replace("http://", f"http://{user}@"))
            _, checks = looked_at(tmp_path)
            problems = [one for one in to_do(checks) if one.startswith("registry")]
            assert len(problems) == len(said)
            assert all(text in problem for text, problem in zip(said, problems, strict=True))
    assert "wrong" not in str(checks)
    _, checks = looked_at(tmp_path, "--timeout", "60")
    assert any("does not answer" in one for one in to_do(checks))
