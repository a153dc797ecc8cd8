"""Pipeline files with a handler, run by the plain processor: what they do, and every way to get one wrong."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from leasehold import Event
from leasehold.cli.app import app
from leasehold.errors import ConfigError
from leasehold.handlers import handled_table
from leasehold.handlers.of_file import check_handler
from leasehold.handlers.table import HandledTable, Retries
from leasehold.hubs.log import LogHub
from leasehold.pipeline_file import read_pipeline_file
from leasehold.processors import handled_processor
from tests.handlers.orders import FILE, HANGING, MODULE, place, rows, send, totals
from tests.repository import ROOT
from tests.waiting import PATIENCE, until

__all__ = ["place"]


@pytest.mark.more
def test_the_command_runs_the_handler_until_it_is_stopped(place: Path) -> None:
    sent: list[tuple[str, int | None]] = [(f"o{number % 7}", number % 5 + 1) for number in range(200)]
    send(place, *sent, ("gone", 4), ("gone", 0), ("o1", None))
    expected: dict[str, Decimal] = {}
    for key, amount in sent:
        expected[key] = expected.get(key, Decimal(0)) + (amount or 0)
    process = subprocess.Popen(
        [sys.executable, "-m", "leasehold", "run", str(place / "orders.toml"), "--no-spark", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "src")),
    )
    try:
        until(
            lambda: totals(place) == expected and len(rows(place, "SELECT 1 FROM orders_rejected")) == 1,
            "rejected rows",
        )
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    account = json.loads(said)
    assert (account["read"], account["used"]) == (203, 203)


@pytest.mark.more
@pytest.mark.parametrize("timeout", ["", 'handler_timeout = "10m"\n'])
def test_a_handler_that_prints_into_a_pipe_that_nobody_reads_ends_the_program_and_parks_nothing(
    place: Path, timeout: str
) -> None:
    patient = FILE.replace("[ownership]", '[ownership]\nhand_over_timeout = "30m"')
    (place / "orders.toml").write_text(patient + timeout)
    (place / "some_orders.py").write_text(MODULE.replace("def order(state, event):", PRINTING))
    send(place, *((f"o{number}", 1) for number in range(50)))
    with subprocess.Popen(
        [sys.executable, "-m", "leasehold", "run", str(place / "orders.toml"), "--no-spark"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "src")),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.read(8) == "an order"
            process.stdout.close()
            said = process.stderr.read()
            assert process.wait(PATIENCE) == 1
        finally:
            process.kill()
    assert "BrokenPipe" not in said
    assert rows(place, "SELECT 1 FROM leasehold_parked") == rows(place, "SELECT 1 FROM orders_rejected") == []


PRINTING = """def order(state, event):
    print("an order" * 10_000, flush=True)"""
"""No pipe takes them all."""


def test_a_reset_goes_back_only_where_the_table_has_been_emptied(place: Path) -> None:
    def consume() -> None:
        table = handled_table(place / "orders.toml")
        with handled_processor(place / "orders.toml", table=table):
            until(lambda: totals(place) == {"a": Decimal(3), "b": Decimal(4)}, "totals in the table")
        table.close()

    def reset(to: str) -> tuple[int, str]:
        said = CliRunner().invoke(app, ["reset", str(place / "orders.toml"), "--to", to])
        return said.exit_code, said.stderr

    send(place, ("a", 1), ("a", 2), ("b", 4))
    consume()
    code, said = reset("earliest")
    assert (code, 'would count them twice. Empty the table first: DELETE FROM "orders"' in said) == (1, True)
    assert [reset(to)[0] for to in ("sink", "latest")] == [0, 0]
    with closing(sqlite3.connect(place / "entities.db")) as connection:
        connection.execute("DELETE FROM orders")
        connection.commit()
    assert reset("earliest") == (0, "")
    consume()


EMITTING = """
from leasehold.handlers.answers import Effects, Emit
from leasehold.handlers.contract import entity


@entity(keys=["order_id"])
def order(state, event):
    total = event.row["amount"] + (state["total"] if state else 0)
    return Effects({"total": total}, [Emit({"total": total}, key=event.key)])
"""


def test_what_the_handler_emits_goes_to_the_hub_of_the_outbox(place: Path) -> None:
    (place / "some_orders.py").write_text(EMITTING)
    (place / "orders.toml").write_text(f'{FILE}[outbox]\nhub = "log:///sent.db"\n')
    sent = LogHub.create(place / "sent.db", partitions=1)
    send(place, ("a", 1), ("a", 2), ("a", 3))
    table = handled_table(place / "orders.toml")
    with handled_processor(place / "orders.toml", table=table) as processor:
        until(lambda: sent.partition_properties()["0"].end == 3 and processor.running, "a processor that runs")
    table.close()
    bodies = [body for batch in sent.read("0", 0, 3, columns=["body"]) for body in batch.column(0).to_pylist()]
    sent.close()
    assert bodies == [b'{"total":"1.00"}', b'{"total":"3.00"}', b'{"total":"6.00"}']


def test_a_check_asks_the_hub_of_the_outbox(place: Path) -> None:
    (place / "orders.toml").write_text(f'{FILE}[outbox]\nhub = "log:///sent.db"\n')
    said = CliRunner().invoke(app, ["check", str(place / "orders.toml"), "--json"])
    (outbox,) = [one for one in json.loads(said.stdout)["checks"] if one["part"] == "outbox"]
    assert (said.exit_code, outbox["ok"], "there is no log at" in outbox["said"]) == (1, False, True)
    LogHub.create(place / "sent.db", partitions=1).close()
    assert CliRunner().invoke(app, ["check", str(place / "orders.toml")]).exit_code == 0


def test_a_check_looks_at_related_tables(place: Path) -> None:
    (place / "orders.toml").write_text(f'{FILE}related = ["lines", "notes"]\n')

    def found() -> dict[str, tuple[bool, str]]:
        said = CliRunner().invoke(app, ["check", str(place / "orders.toml"), "--json"])
        document = json.loads(said.stdout)
        assert document["ready"] == (said.exit_code == 0)
        its = [one for one in document["checks"] if one["part"] == "related"]
        return {name: (one["ok"], one["said"]) for name, one in zip(["lines", "notes"], its, strict=True)}

    before = found()
    assert [ok for ok, _ in before.values()] == [False, False]
    assert "there is no such table" in before["notes"][1]
    with closing(sqlite3.connect(place / "entities.db")) as connection:
        connection.execute("CREATE TABLE lines (line INTEGER PRIMARY KEY, sku TEXT UNIQUE, twice AS (2 * line))")
        connection.execute("CREATE TABLE notes (note TEXT)")
    after = found()
    assert after["lines"] == (True, "lines has the columns line, sku; keys=[…] of a Row may be (line) or (sku)")
    assert (after["notes"][0], "no unique index" in after["notes"][1]) == (False, True)
    with closing(sqlite3.connect(place / "entities.db")) as connection:
        connection.execute("CREATE TRIGGER t AFTER UPDATE ON lines BEGIN INSERT INTO gone VALUES (1); END")
    later = found()
    assert (later["lines"][0], "lines: SQLite cannot write" in later["lines"][1]) == (False, True)


def test_an_outbox_without_a_handler(place: Path) -> None:
    without = "".join(
        line for line in FILE.splitlines(keepends=True) if "handler =" not in line and "state =" not in line
    )
    (place / "orders.toml").write_text(f'{without}[outbox]\nhub = "log:///sent.db"\n')
    with pytest.raises(ConfigError, match=r"outbox\.hub"):
        read_pipeline_file(place / "orders.toml")


def test_in_code_with_a_parked_event_that_commands_see(place: Path) -> None:
    send(place, ("a", 1), ("b", 13), ("b", 2))
    file = place / "orders.toml"
    table = handled_table(file, retries=Retries(first=0.05, longest=0.2))
    with handled_processor(file, table=table, name="one") as processor:
        until(lambda: totals(place) == {"a": 1} and processor.running, "a processor that runs")
        until(lambda: len(rows(place, "SELECT 1 FROM leasehold_parked")) == 2, "parked events as expected")
        said = CliRunner().invoke(app, ["parked", str(file), "--json"])
        assert [one["key"] for one in json.loads(said.stdout)["parked"]] == [["b"], ["b"]]
        status = CliRunner().invoke(app, ["status", str(file), "--json"])
        assert status.exit_code == 0
        assert "one" in status.stdout
        (place / "mended").touch()
        until(lambda: totals(place) == {"a": 1, "b": 15}, "totals in the table")
    table.sink.close()


SPREAD = (
    FILE.replace("amount DECIMAL(12,2)", "amount DECIMAL(12,2), at BIGINT")
    + 'spread = true\nsequence_by = "at"\n[outbox]\nhub = "log:///sent.db"\n'
)
SUMMING = MODULE.replace(
    'return {"total": event.row["amount"] + (state["total"] if state else 0)}',
    'total = event.row["amount"] + (state["total"] if state else 0)\n'
    '    return Effects({"total": total}, [Emit({"total": total}, key=event.key)])',
).replace(
    "from leasehold.handlers.contract",
    "from leasehold.handlers.answers import Effects, Emit\nfrom leasehold.handlers.contract",
)


def test_parked_events_of_a_hub_that_was_made_anew_are_tried_by_the_command(place: Path) -> None:
    """Nobody owns its partitions, and in a spread table they hold up their entities."""

    def numbered(*bodies: tuple[str, int, int]) -> None:
        hub = LogHub(place / "hub.db")
        for key, amount, at in bodies:
            hub.send([Event(json.dumps({"order_id": key, "amount": amount, "at": at}).encode(), partition_key=key)])
        hub.close()

    def parked() -> int:
        return len(rows(place, "SELECT 1 FROM leasehold_parked"))

    file = place / "orders.toml"
    file.write_text(SPREAD)
    (place / "some_orders.py").write_text(SUMMING)
    sent = LogHub.create(place / "sent.db", partitions=1)
    numbered(("a", 1, 1), ("b", 13, 1), ("b", 2, 2), ("c", 13, 1))
    table = handled_table(file, retries=Retries(first=300.0))
    with handled_processor(file, table=table):
        until(lambda: totals(place) == {"a": 1} and parked() == 3, "totals in the table")
    table.close()
    for one in place.glob("hub.db*"):
        one.unlink()
    LogHub.create(place / "hub.db", partitions=2).close()
    numbered(("a", 4, 2), ("b", 5, 3))
    table = handled_table(file)
    with handled_processor(file, table=table):
        until(lambda: totals(place) == {"a": 5} and parked() == 4, "totals in the table")

        def retried() -> dict[str, Any]:
            said = CliRunner().invoke(app, ["parked", "retry", str(file), "--all", "--json"])
            assert said.exit_code == 0, said.output
            return dict(json.loads(said.stdout))

        refused = retried()
        assert (refused["triedHere"], refused["stillParked"]) == (3, 3)
        why = sorted(one["why"] for one in refused["left"])
        assert why == ["ConnectionError: away", "ConnectionError: away", "it waits behind another of its entity"]
        file.write_text(SPREAD.replace("[transform]", '[transform]\nsql = "SELECT * FROM events"'))
        assert retried()["leftToInstances"] == 3, "a transform takes Spark, whose instances try them"
        file.write_text(SPREAD)
        (place / "mended").touch()
        done = retried()
        assert (done["retried"], done["triedHere"], done["stillParked"], done["left"]) == (4, 3, 0, [])
        until(lambda: totals(place) == {"a": 5, "b": 20, "c": 13} and parked() == 0, "totals in the table")
    table.close()
    bodies = [body for batch in sent.read("0", 0, 6, columns=["body"]) for body in batch.column(0).to_pylist()]
    sent.close()
    assert sorted(bodies) == sorted(b'{"total":"%d.00"}' % total for total in (1, 5, 13, 15, 20, 13))
    assert retried()["retried"] == 0


def test_check_looks_at_the_handler_and_starts_no_spark(place: Path) -> None:
    said = CliRunner().invoke(app, ["check", str(place / "orders.toml"), "--json"])
    checks = json.loads(said.stdout)["checks"]
    assert said.exit_code == 0, said.output
    assert {"handler"} <= {one["part"] for one in checks}
    assert "spark" not in {one["part"] for one in checks}
    assert rows(place, "SELECT name FROM sqlite_master WHERE name = 'orders'") == []
    (place / "orders.toml").write_text(FILE.replace("some_orders:order", "some_orders:other"))
    said = CliRunner().invoke(app, ["check", str(place / "orders.toml"), "--json"])
    wrong = [one for one in json.loads(said.stdout)["checks"] if not one["ok"]]
    assert [one["part"] for one in wrong] == ["handler"]
    assert "sink.handler" in wrong[0]["said"]
    (place / "orders.toml").write_text(FILE.replace('state = "order_id STRING,', 'state = "order_id NOTHING,'))
    said = CliRunner().invoke(app, ["check", str(place / "orders.toml"), "--json"])
    assert [one["part"] for one in json.loads(said.stdout)["checks"] if not one["ok"]] == ["handler"]


def test_a_plain_function_is_told_how_it_becomes_a_handler(place: Path) -> None:
    """With the keys of the file; in a program they are for the user to say."""
    for name in ("tail", "flight_date"):
        (place / "orders.toml").write_text(
            FILE.replace('"some_orders:order"', '"some_orders:plain"').replace('["order_id"]', f'["{name}", "day"]')
        )
        with pytest.raises(ConfigError, match=rf'Put @entity\(keys=\["{name}", "day"\]\) above the function'):
            handled_table(place / "orders.toml")
    plain: Any = lambda state, event: state  # noqa: E731 - what a user may give
    with pytest.raises(ConfigError, match=r"handler.*this is a function\. Put @entity.*leasehold\.handlers import"):
        HandledTable(plain, "sqlite:///t.db", table="t", pipeline="p", schema="id STRING", state="id STRING")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"some_orders:order"', '"some_orders"', "sink.handler.*module:function"),
        ('"some_orders:order"', '"no_orders:order"', "sink.handler.*cannot be imported.*Put no_orders.py into"),
        ('"some_orders:order"', '"broken_orders:order"', "sink.handler.*ZeroDivisionError.*python -m broken_orders"),
        (
            '"some_orders:order"',
            '"some_orders:plain"',
            r'sink.handler.*this is a function.*@entity\(keys=\["order_id"\]\).*from leasehold.handlers import entity',
        ),
        ('keys = ["order_id"]', 'keys = ["amount"]', "sink.keys.*is for the keys order_id"),
        ('state = "order_id STRING, total', 'state = "total', "sink.state.*the key order_id is not in it"),
        ('state = "order_id STRING,', 'state = "order_id NOTHING,', "sink.state"),
        ('schema = "order_id STRING, amount DECIMAL(12,2)"', "", "transform.schema.*fields of the body"),
        ("[sink]", 'sql = "SELECT * FROM events"\n[sink]', "transform.sql.*takes Spark"),
        ("[sink]", 'python = "a:b"\n[sink]', "transform.python.*takes Spark"),
        (
            "[ownership]",
            'deduplicate_by = "id"\ndeduplicate_for = "1h"\n[ownership]',
            "deduplicate_by.*for tables that no handler fills",
        ),
        ('table = "orders"', 'table = "orders"\nsequence_by = "amount"', "sink.sequence_by.*within one partition"),
        ('table = "orders"', 'table = "orders"\nspread = true', "sink.spread.*only sequence_by"),
    ],
)
def test_what_does_not_go_together_is_refused_at_the_start(place: Path, old: str, new: str, said: str) -> None:
    assert old in FILE
    (place / "orders.toml").write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=said):
        handled_processor(place / "orders.toml")
    assert not (place / "entities.db").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('handler = "some_orders:order"', "", "sink: handler and state go together"),
        ('state = "order_id STRING, total DECIMAL(12,2)"', "", "sink: handler and state go together"),
        ('table = "orders"', 'table = "orders"\ndelete_when = "amount = 0"', "delete_when is for a table without"),
        (
            'table = "orders"',
            'table = "orders"\non_two_partitions = "reject"',
            "on_two_partitions is for a table without",
        ),
        ('table = "orders"', 'table = "orders"\nmode = "append"', "mode is for a table without a handler"),
        ('table = "orders"', 'table = "orders"\non_failure = "abandon"', "on_failure"),
        (FILE[FILE.index("handler =") :], "spread = true\n", "spread is for a table with a handler"),
    ],
)
def test_keys_that_do_not_go_together_are_refused_when_the_file_is_read(
    place: Path, old: str, new: str, said: str
) -> None:
    (place / "orders.toml").write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=said):
        read_pipeline_file(place / "orders.toml")


def test_a_file_without_a_handler(place: Path) -> None:
    (place / "orders.toml").write_text(FILE[: FILE.index("handler =")])
    with pytest.raises(ConfigError, match=r"sink\.handler.*leasehold run"):
        handled_processor(place / "orders.toml")


def test_the_command_ends_when_what_the_hub_has_is_consumed(place: Path) -> None:
    def ran() -> dict[str, Any]:
        said = CliRunner().invoke(app, ["run", str(place / "orders.toml"), "--no-spark", "--available-now", "--json"])
        assert said.exit_code == 0, said.output
        account: dict[str, Any] = json.loads(said.stdout)
        return account

    assert ran()["read"] == 0
    send(place, *((f"o{number % 7}", 2) for number in range(70)))
    assert (ran()["read"], totals(place)) == (70, {f"o{number}": Decimal(20) for number in range(7)})
    assert ran()["read"] == 0


RESCUING = """

@entity(keys=["order_id"])
def rescuing(state, event):
    assert event.row["rest"] == '{"note":"by hand"}', event.row
    return {"total": event.row["amount"]}
"""


def test_an_envelope_is_refused_by_its_key(place: Path) -> None:
    (place / "orders.toml").write_text(FILE.replace("[transform]", '[transform]\nenvelope = "cloudevents"'))
    with pytest.raises(ConfigError, match=r"orders.toml: transform.envelope = 'cloudevents': it is told by headers"):
        read_pipeline_file(place / "orders.toml")


def test_fields_that_the_schema_does_not_know_are_rescued(place: Path) -> None:
    (place / "some_orders.py").write_text(MODULE + RESCUING)
    text = FILE.replace(":order", ":rescuing").replace("[transform]", '[transform]\nrescue = "rest"')
    (place / "orders.toml").write_text(text)
    hub = LogHub(place / "hub.db")
    hub.send([Event(b'{"order_id": "a", "note": "by hand", "amount": 7}')], partition="0")
    hub.close()
    with handled_processor(place / "orders.toml") as processor:
        until(
            lambda: totals(place) == {"a": 7} or bool(rows(place, "SELECT 1 FROM leasehold_parked")),
            "parked events as expected",
        )
        processor.stop()
    assert totals(place) == {"a": 7}


TIMED = """

@entity(keys=["order_id"])
def timed(state, event):
    assert event.row["at"].microsecond == 123_456, event.row
    return {"total": event.row["amount"]}
"""


def test_times_are_cut_where_the_file_says_so(place: Path) -> None:
    (place / "some_orders.py").write_text(MODULE + TIMED)
    text = FILE.replace(":order", ":timed").replace('schema = "', 'timestamps = "truncate"\nschema = "at TIMESTAMP, ')
    (place / "orders.toml").write_text(text)
    hub = LogHub(place / "hub.db")
    hub.send([Event(b'{"order_id": "a", "at": "2026-02-03T04:05:06.1234567Z", "amount": 7}')], partition="0")
    hub.close()
    with handled_processor(place / "orders.toml") as processor:
        until(
            lambda: totals(place) == {"a": 7} or bool(rows(place, "SELECT 1 FROM orders_rejected")),
            "the event to be applied, or rejected",
        )
        processor.stop()
    assert totals(place) == {"a": 7}
    (place / "orders.toml").write_text(FILE.replace('schema = "', 'timestamps = "round"\nschema = "'))
    with pytest.raises(ConfigError, match=r"transform\.timestamps.*exact.*truncate"):
        handled_processor(place / "orders.toml")


@pytest.mark.more
def test_a_time_out_in_the_file_is_looked_at_before_the_start_and_ends_what_hangs(place: Path) -> None:
    file = place / "orders.toml"
    (place / "some_orders.py").write_text(MODULE + HANGING)
    asked = FILE.replace("some_orders:order", "some_orders:hanging")
    file.write_text(asked.replace('table = "orders"', 'table = "orders"\nhandler_timeout = "11s"', 1))
    with pytest.raises(ConfigError, match=r"sink\.handler_timeout = 11.*a third of hand_over_timeout \(30 s\)"):
        check_handler(read_pipeline_file(file))
    # impatient: a call that takes longer by chance is made again
    file.write_text(asked.replace('table = "orders"', 'table = "orders"\nhandler_timeout = "700ms"', 1))
    assert check_handler(read_pipeline_file(file)) == "hanging"
    send(place, ("a", 1), ("b", 1), ("c", 1))
    with closing(handled_table(file)) as table, handled_processor(file, table=table) as processor:
        until(lambda: totals(place) == {"a": 1, "c": 1} and processor.running, "a processor that runs")
        until(
            lambda: rows(place, "SELECT substr(error, 1, 15) FROM leasehold_parked") == [("HandlerTimeout:",)],
            "parked events as expected",
        )


def test_entities_are_leased_in_the_store_of_the_ownership(place: Path) -> None:
    file = place / "orders.toml"
    file.write_text(FILE + "exclusive = true\n")
    with pytest.raises(ConfigError, match=r"sink\.exclusive = True: within one partition"):
        check_handler(read_pipeline_file(file))
    spread = FILE.replace("amount DECIMAL(12,2)", "amount DECIMAL(12,2), version BIGINT", 1)
    file.write_text(spread + 'spread = true\nsequence_by = "version"\nexclusive = true\n')
    assert check_handler(read_pipeline_file(file)) == "order"
    with closing(LogHub(place / "hub.db")) as hub:
        for at in range(4):
            body = json.dumps({"order_id": "a", "amount": 1, "version": at}).encode()
            hub.send([Event(body)], partition=str(at % 2))
    with closing(handled_table(file)) as table, handled_processor(file, table=table):
        until(lambda: totals(place) == {"a": 4}, "totals in the table")
    with closing(sqlite3.connect(place / "stores.db")) as store:
        ((fences,),) = store.execute("SELECT last FROM leasehold_fence").fetchall()
        assert fences > 0
        assert store.execute("SELECT key FROM leasehold_lease").fetchall() == []


def test_related_tables_are_named_in_the_file(place: Path) -> None:
    (place / "orders.toml").write_text(FILE.replace('table = "orders"', 'table = "orders"\nrelated = ["lines"]', 1))
    with pytest.raises(ConfigError, match=r"sink\.related = 'lines': there is no such table"):
        handled_table(place / "orders.toml")
    with closing(sqlite3.connect(place / "entities.db")) as connection:
        connection.execute("CREATE TABLE lines (id INTEGER PRIMARY KEY)")
    table = handled_table(place / "orders.toml")
    table.sink.close()
    assert table._related == {"lines"}
