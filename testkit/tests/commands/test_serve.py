"""`leasehold serve`: a process of its own, reached by the official client."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from tests.cli.served import serving

from leasehold.cli.app import app
from leasehold.hubs import open_hub
from leasehold.hubs.log.hub import LogHub
from leasehold.model import Event

eventhub: Any = pytest.importorskip("azure.eventhub")
servicebus: Any = pytest.importorskip("azure.servicebus")


def test_a_log_is_served_until_ctrl_c(tmp_path: Path) -> None:
    log = LogHub.create(tmp_path / "orders.db", partitions=2)
    with serving(log.url, "--json") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["name"] == "orders"
        with eventhub.EventHubProducerClient.from_connection_string(
            said["connectionString"],
            socket_timeout=0.02,  # impatient: how long the client sleeps between two looks
        ) as client:
            assert client.get_partition_ids() == ["0", "1"]
            client.send_event(eventhub.EventData("sent"), partition_id="1")
    assert log.partition_properties()["1"].end == 1
    log.close()


def test_queues_are_served_until_ctrl_c_and_again(tmp_path: Path) -> None:
    url = f"servicebus:///{tmp_path / 'bus.db'}"
    made = ("--queue", "orders", "--session-queue", "jobs", "--topic", "news/all", "--topic", "news/some")
    for arguments in (made, ()):
        with serving(url, "--json", *arguments) as process:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            assert said["entities"] == ["jobs", "news", "news/all", "news/some", "orders"]
            with (
                servicebus.ServiceBusClient.from_connection_string(
                    said["connectionString"],
                    socket_timeout=0.02,  # impatient: how long the client sleeps between two looks
                ) as client,
                client.get_queue_sender("orders") as sender,
                client.get_queue_receiver("orders") as receiver,
            ):
                if arguments:
                    sender.send_messages(servicebus.ServiceBusMessage("kept"))
                (message,) = receiver.peek_messages(2, sequence_number=1)
                assert str(message) == "kept"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder that each user may reach: root's Postgres is another user's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_kafka_is_served_until_ctrl_c() -> None:
    with serving("kafka", "--topic", "orders", "--topic", "totals", "--partitions", "2", "--json") as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        hub, other = (open_hub(url) for url in said["urls"])
        assert hub.identity != other.identity
        assert hub.partition_ids() == ("0", "1")
        hub.send([Event(b"one", partition_key="k"), Event(b"two", partition_key="k")])
        [there] = [one for one in hub.partition_properties().values() if one.end]
        assert (there.begin, there.end) == (0, 2)
        hub.close()
        other.close()


def test_a_registry_is_served_until_ctrl_c() -> None:
    with serving("registry", "--json") as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with SchemaRegistryClient({"url": url}) as client:
            number = client.register_schema("orders-value", Schema('"int"', "AVRO"))
            assert client.register_schema("others-value", Schema('"int"', "AVRO")) == number
            assert client.get_schema(number).schema_str == '"int"'
            latest = client.register_schema("orders-value", Schema("{}", "JSON"))
            assert client.get_latest_version("orders-value").schema_id == latest
            assert client.get_versions("orders-value") == [1, 2]
            assert client.lookup_schema("orders-value", Schema('"int"', "AVRO")).version == 1
            assert client.get_subjects() == ["orders-value", "others-value"]
            with pytest.raises(SchemaRegistryError, match="not found"):
                client.get_schema(99)
            with pytest.raises(SchemaRegistryError, match="not found"):
                client.get_version("orders-value", 3)


def test_a_postgres_is_served_until_ctrl_c_and_again(open_folder: Path) -> None:
    """Its password is the same, and nobody gets in without one."""
    keep = ("--keep", str(open_folder / "data"))
    urls = []
    for statement in ("CREATE TABLE kept (v int)", "INSERT INTO kept VALUES (1)"):
        with serving("postgres", "--json", *keep) as process:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            urls.append(said["url"].replace(str(said["port"]), "PORT"))
            with psycopg.connect(said["url"], autocommit=True) as connection:
                connection.execute(statement.encode())
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(f"postgresql://postgres@127.0.0.1:{said['port']}/postgres", password="")
    assert urls[0] == urls[1]


@pytest.mark.more
def test_the_data_of_a_postgres_are_gone_at_the_end(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(open_folder))
    with serving("postgres") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("postgresql://postgres:")
        assert len(list(open_folder.glob("leasehold-postgres-*"))) == 1
    assert list(open_folder.iterdir()) == []


@pytest.mark.more
@pytest.mark.parametrize(
    ("host", "warning"),
    [("0.0.0.0", "0.0.0.0 may be reached from other machines"), ("localhost", "")],  # noqa: S104 - what is warned of
)
def test_another_address_than_that_of_this_machine_is_warned_of(tmp_path: Path, host: str, warning: str) -> None:
    log = LogHub.create(tmp_path / "orders.db", partitions=1)
    with serving(log.url, "--host", host, warning=warning) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Endpoint=sb://")
    log.close()


@pytest.mark.more
def test_people_get_the_connection_string_on_a_line_of_its_own(tmp_path: Path) -> None:
    log = LogHub.create(tmp_path / "orders.db", partitions=2)
    with serving(log.url, "--name", "flights") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Endpoint=sb://127.0.0.1:")
        assert line.endswith(";EntityPath=flights\n")
    log.close()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["eventhubs://x/y"], "only log:///PATH"),
        (["log:///none.db", "--queue", "q"], "--queue and its like: is not for log"),
        (["log:///none.db", "--keep", "x"], "--keep: is not for log"),
        (["kafka"], "a Kafka makes no topic later"),
        (["kafka", "--topic", "news/all"], "1 to 249 letters"),
        (["kafka", "--topic", "news", "--port", "9092"], "--port: is not for kafka"),
        (["registry", "--keep", "x"], "--keep: is not for registry"),
        (["postgres", "--host", "example.org"], "--host: is not for postgres"),
        (["servicebus:///{folder}/bus.db"], "the file has no queue yet"),
        (["servicebus:///{folder}/bus.db", "--topic", "news"], "TOPIC/SUBSCRIPTION"),
        (["servicebus:///{folder}/bus.db", "--name", "x"], "--name: is not for servicebus"),
        (["servicebus:///{folder}/bus.db", "--queue", "a;b"], "1 to 260 letters"),
        (["log:///none.db"], "there is no log"),
        (["{log}", "--name", "a/b"], "a hub's name"),
    ],
)
def test_what_cannot_be_served_is_refused(tmp_path: Path, arguments: list[str], match: str) -> None:
    log = LogHub.create(tmp_path / "orders.db")
    ran = CliRunner().invoke(app, ["serve", *(argument.format(log=log.url, folder=tmp_path) for argument in arguments)])
    assert ran.exit_code == 1
    assert match in ran.stderr
    log.close()
