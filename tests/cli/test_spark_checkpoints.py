"""`leasehold checkpoints import --from-spark-checkpoint`: with files that Spark's sources have written, and others.

`spark_checkpoints/kafka` is of Spark's Kafka source (4.2.0, PySpark 4.2), `spark_checkpoints/event_hubs` of the Event
Hubs connector (2.3.22, PySpark 3.5); of either query the last batch has begun and is not committed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leasehold.cli.app import app
from leasehold.cli.checkpoints.spark_folder import committed_places
from leasehold.errors import UsageError
from leasehold.hubs import open_hub
from leasehold.hubs.event_hubs.url import VARIABLE
from leasehold.stores import open_store
from leasehold_testkit.contracts.hubs.fixtures import numbered
from leasehold_testkit.emulators.event_hubs import EventHubsServer, MemoryHub
from tests.hubs.kafka_cluster import Cluster

pytestmark = pytest.mark.usefixtures("patient_kafka")
KEPT = Path(__file__).parent / "spark_checkpoints"
TOPIC = "test-a-query-is-moved-over-to-leases-by-its-checkpoint-folde"
"""What the query of Kafka's files has read."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A query's folder of two streams, with one committed batch."""
    folder = tmp_path / "query"
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    write(folder, 0, '{"trips":{"0":5}}', "-", '{"flights":{"0":7,"1":0}}')
    return folder


def write(folder: Path, batch: int, *sources: str, version: str = "v1") -> None:
    (folder / "offsets" / str(batch)).write_text("\n".join([version, "{}", *sources]))


def imported(store: str, folder: Path, *more: str) -> Result:
    command = ["checkpoints", "import", store, "--from-spark-checkpoint", str(folder), "--json", *more]
    return CliRunner().invoke(app, command)


def test_of_a_kept_folder_the_committed_batches_count() -> None:
    assert committed_places(KEPT / "event_hubs", "flights") == {"0": 28, "1": 28}
    assert committed_places(KEPT / "kafka", TOPIC) == {"0": 200, "1": 200, "2": 200}


def test_a_query_of_the_connector_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    with EventHubsServer({"flights": MemoryHub(2)}) as server:
        monkeypatch.setenv(VARIABLE, server.connection_string())
        hub = open_hub(f"eventhubs://{server.namespace}/flights")
        for partition in ("0", "1"):
            hub.send(numbered(30), partition=partition)
        done = imported(store, KEPT / "event_hubs", "--hub", hub.url)
        assert done.exit_code == 0, done.stderr
        found = {one.partition: one for one in open_store(store).list_checkpoints(hub.consumer_group("$Default"))}
        assert {name: (one.next_sequence_number, one.offset) for name, one in found.items()} == {
            "0": (28, None),
            "1": (28, None),
        }
        hub.close()


def test_a_query_of_the_kafka_source_is_taken_over(cluster: Cluster, tmp_path: Path, folder: Path) -> None:
    topic, store = cluster.topic(3), f"sqlite:///{tmp_path}/store.db"
    hub = open_hub(cluster.url(topic))
    hub.send(numbered(10), partition="0")
    write(folder, 0, json.dumps({topic: {"0": 7, "1": 0}}))
    done = imported(store, folder, "--hub", hub.url)
    assert done.exit_code == 0, done.stderr
    found = {one.partition: one for one in open_store(store).list_checkpoints(hub.consumer_group("$Default"))}
    assert {name: (one.next_sequence_number, one.offset) for name, one in found.items()} == {
        "0": (7, "6"),
        "1": (0, None),
    }
    write(folder, 0, json.dumps({topic: {"0": 11}}))
    beyond = imported(store, folder, "--hub", hub.url)
    assert beyond.exit_code == 1
    assert "beyond what the hub has" in beyond.stderr, "the folder is of another topic of this name"


def test_each_source_of_a_query_is_found_by_its_stream(folder: Path) -> None:
    assert committed_places(folder, "flights") == {"0": 7, "1": 0}
    assert committed_places(folder, "trips") == {"0": 5}


def test_batches_are_counted_and_not_sorted_as_text(folder: Path) -> None:
    for batch in (9, 10):
        write(folder, batch, json.dumps({"flights": {"0": batch}}))
        (folder / "commits" / str(batch)).touch()
        (folder / "commits" / f".{batch}.crc").touch()
    assert committed_places(folder, "flights") == {"0": 10}


def test_a_stream_that_the_query_has_not_read_is_refused_with_those_it_has(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"has not read 'other'; its streams: flights, trips"):
        committed_places(folder, "other")


def test_a_stream_of_two_sources_is_refused(folder: Path) -> None:
    write(folder, 0, '{"flights":{"0":7}}', '{"flights":{"0":9}}')
    with pytest.raises(UsageError, match="by more than one source"):
        committed_places(folder, "flights")


def test_a_query_without_a_committed_batch_is_refused(folder: Path) -> None:
    (folder / "commits" / "0").unlink()
    with pytest.raises(UsageError, match="no batch of this query has been committed"):
        committed_places(folder, "flights")


def test_a_folder_that_is_not_a_query_s_is_refused(folder: Path) -> None:
    shutil.rmtree(folder / "commits")
    with pytest.raises(UsageError, match="which has 'commits' in it"):
        committed_places(folder, "flights")
    with pytest.raises(UsageError, match="not the checkpoint folder"):
        committed_places(folder / "absent", "flights")


@pytest.mark.parametrize(
    "line",
    [
        *("5", "null", "[]", "{}", "{", "[" * 100_000),
        *('{"flights":7}', '{"flights":{}}', '{"flights":{"0":-2}}', '{"flights":{"0":true}}', '{"flights":{"0":1.5}}'),
        *('{"flights":{"x":1}}', '{"flights":{"0":"7"}}'),
    ],
)
def test_what_is_of_another_form_names_no_stream(folder: Path, line: str) -> None:
    write(folder, 0, line)
    with pytest.raises(UsageError, match="its streams: none that is known here"):
        committed_places(folder, "flights")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"v2\n{}\n", b"v1 and more\n{}"])
def test_a_file_that_is_not_of_the_known_version_is_refused(folder: Path, content: bytes) -> None:
    (folder / "offsets" / "0").write_bytes(content)
    with pytest.raises(UsageError, match=r"offsets/0: (of version|cannot be read)"):
        committed_places(folder, "flights")


def test_one_source_is_named_and_a_hub_that_spark_reads(folder: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    nothing = CliRunner().invoke(app, ["checkpoints", "import", store])
    assert (nothing.exit_code, nothing.stderr.count("Name one source")) == (1, 1)
    both = CliRunner().invoke(app, ["checkpoints", "import", store, "-", "--from-spark-checkpoint", str(folder)])
    assert (both.exit_code, both.stderr.count("Name one source")) == (1, 1)
    no_hub = imported(store, folder, "--group", "a/b/c")
    assert (no_hub.exit_code, no_hub.stderr.count("Name the hub")) == (1, 1)
