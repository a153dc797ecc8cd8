"""The entity table behind the Event Hubs connector: its JAR, and the event hub that this simulates, on PySpark 3.5."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leasehold.spark.session.versions import OLDEST
from tests.peers.maven import jars
from tests.versions.conftest import Interpreter
from tests.versions.environments import python_with

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]

PROGRAM = Path(__file__).with_name("event_hubs_connector_program.py")


def test_the_connector_with_a_deleted_folder(tmp_path: Path) -> None:
    libraries = jars("event-hubs-connector", ["com.microsoft.azure:azure-eventhubs-spark_2.12:2.3.22"])
    done = Interpreter(python_with(str(OLDEST)), OLDEST).run(PROGRAM, tmp_path, libraries, timeout=600)
    assert done.returncode == 0, done.stderr[-5000:]
    said = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    positions, *accounts, table = [rest for word, rest in said if word in ("positions", "account", "table")]
    assert json.loads(positions) == [[0, "-1", -1, True], [1, "-1", -1, True]]
    assert accounts == ["60 0", "20 0"]
    places = [json.loads(rest) for word, rest in said if word == "committed"]
    assert places == [{"0": 30, "1": 30}, {"0": 40, "1": 40}], "what `checkpoints import` takes over"
    expected = [[str(number), partition, number] for number in range(40) for partition in ("0", "1")]
    assert sorted(json.loads(table)) == sorted(expected)
