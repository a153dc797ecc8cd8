"""Changes that Debezium sends to Kafka, tombstones among them, in a plain process: into a table, and to a handler."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from tests.formats.debezium_events import UNAVAILABLE, envelope, schema_of, with_schema
from tests.hubs.kafka_cluster import Cluster
from tests.hubs.kafka_messages import produced

FILE = """
name = "words"
[source]
hub = "{hub}"
[ownership]
store = "sqlite:///stores.db"
settle_delay = "100ms"
[transform]
format = "debezium"
schema = "id BIGINT, word STRING"
sql = "SELECT id, word, __deleted, hub, partition, sequenceNumber, ownerLevel FROM events"
[sink]
url = "sqlite:///table.db"
table = "words"
keys = ["id"]
"""
HANDLED = """handler = "{module}:history"
state = "id BIGINT, told STRING"
"""
MODULE = """
from leasehold.handlers.contract import entity


@entity(keys=["id"])
def history(state, event):
    row = event.row
    now = "gone" if row["__deleted"] else row["word"]
    return {"told": f"{state['told'] if state else ''} {row['__op']}:{now}"}
"""
_SCHEMA = schema_of({"id": {"type": "int64"}, "word": {"type": "string"}})


@pytest.mark.usefixtures("patient_kafka")
def test_tombstones_are_passed_over_and_deletes_delete(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic(1)
    changes = [
        envelope("c", after={"id": 1, "word": "a"}),
        envelope("c", after={"id": 2, "word": "b"}),
        envelope("d", before={"id": 1, "word": None}),
        None,
        envelope("u", after={"id": 2, "word": UNAVAILABLE}),
    ]
    sent: list[dict[str, object]] = [{"key": b"k", "value": one and with_schema(one, _SCHEMA)} for one in changes]
    produced(cluster, topic, *sent)
    (tmp_path / "words.toml").write_text(FILE.format(hub=cluster.url(topic)))
    said = CliRunner().invoke(app, ["run", str(tmp_path / "words.toml"), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["read"] == len(changes)
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        assert connection.execute("SELECT * FROM words").fetchall() == [(2, "b")]
        assert connection.execute("SELECT * FROM words_rejected").fetchall() == []


@pytest.mark.usefixtures("patient_kafka")
def test_a_handler_is_given_changes_and_no_tombstone(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.topic(1)
    changes = [
        envelope("c", after={"id": 1, "word": "a"}),
        {**envelope("t"), "after": None},
        envelope("u", after={"id": 1, "word": UNAVAILABLE}),
        envelope("d", before={"id": 1, "word": None}),
        None,
        {**envelope("m"), "after": None},
    ]
    sent: list[dict[str, object]] = [{"key": b"k", "value": one and with_schema(one, _SCHEMA)} for one in changes]
    produced(cluster, topic, *sent)
    module = f"history_of_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = FILE.format(hub=cluster.url(topic)).replace("id BIGINT, word", "__op STRING, id BIGINT, word")
    kept = [line for line in text.splitlines() if not line.startswith("sql")]
    skipped = 'skipped_operations = ["m"]\n[sink]'
    (tmp_path / "words.toml").write_text(
        "\n".join(kept).replace("[sink]", skipped) + "\n" + HANDLED.format(module=module)
    )
    said = CliRunner().invoke(app, ["run", str(tmp_path / "words.toml"), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    account = json.loads(said.stdout)
    assert (account["read"], account["used"], account["filtered"]) == (6, 4, 2)
    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        assert connection.execute("SELECT * FROM words").fetchall() == [(1, f" c:a u:{UNAVAILABLE} d:gone")]
        assert connection.execute("SELECT sequence_number FROM words_rejected").fetchall() == [(1,)]
