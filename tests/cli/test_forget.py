"""`leasehold forget`: an entity by its key, and the retentions of a pipeline file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.errors import ConfigError
from leasehold.pipeline_file import read_pipeline_file
from leasehold.sinks.beside.forgetting import Retention
from leasehold.sinks.rules.batch import Batch
from leasehold.sinks.sqlite.sink import SqliteSink
from tests.cli.set_aside import PIPELINE


def test_an_entity_is_forgotten_by_its_key(tmp_path: Path) -> None:
    """The key is a number in the table, and a text on the command line."""
    file = tmp_path / "flights.toml"
    file.write_text(PIPELINE)
    sink = SqliteSink(tmp_path / "entities.db", read_pipeline_file(file).table_spec())
    fence = {
        "hub": ["h", "h"],
        "partition": ["0", "0"],
        "sequenceNumber": pa.array([0, 1], pa.int64()),
        "ownerLevel": pa.array([1, 1], pa.int64()),
    }
    later = {**fence, "sequenceNumber": pa.array([2, 3], pa.int64())}
    bodies = {"body": [b'{"id": 7, "n": "x"}', b'{"id": 70}'], "reason": ["bad", "bad"]}
    sink.apply(Batch(pa.table({"id": pa.array([7, 70], pa.int64()), **fence}), pa.table({**later, **bodies})))
    sink.close()
    said = CliRunner().invoke(app, ["forget", str(file), "--key", "7", "--json"])
    assert json.loads(said.stdout) == {"pipeline": "flights", "memories": 1, "rejected": 1}
    assert "0 keys and 0 rejected rows" in CliRunner().invoke(app, ["forget", str(file), "--key", "id=7"]).stdout
    wrong = CliRunner().invoke(app, ["forget", str(file), "--key", "7", "--key", "id=7"])
    assert (wrong.exit_code, "given twice" in wrong.stderr) == (1, True)
    assert CliRunner().invoke(app, ["forget", str(file)]).exit_code == 2


def test_the_retentions_of_a_pipeline_file(tmp_path: Path) -> None:
    file = tmp_path / "flights.toml"
    file.write_text(PIPELINE)
    assert read_pipeline_file(file).kept_for() == Retention()
    file.write_text(PIPELINE + 'rejected_retention = "30d"\ntombstone_retention = "90m"\n')
    assert read_pipeline_file(file).kept_for() == Retention(30 * 86_400.0, None, 5400.0)
    for line in ('memory_retention = "0s"', 'memory_retention = "long"', "memory_retention = 5"):
        file.write_text(f"{PIPELINE}{line}\n")
        with pytest.raises(ConfigError, match=r"sink\.memory_retention"):
            read_pipeline_file(file)
