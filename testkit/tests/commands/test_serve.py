"""`leasehold serve`: a process of its own, reached by the official client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.served import serving

from leasehold.cli.app import app
from leasehold.hubs.log.hub import LogHub

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
        (["eventhubs://x/y"], "only an embedded log"),
        (["log:///none.db", "--queue", "q"], "queues are in servicebus:///PATH"),
        (["servicebus:///{folder}/bus.db"], "the file has no queue yet"),
        (["servicebus:///{folder}/bus.db", "--topic", "news"], "TOPIC/SUBSCRIPTION"),
        (["servicebus:///{folder}/bus.db", "--name", "x"], "queues have names of their own"),
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
