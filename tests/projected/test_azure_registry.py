"""A pipeline file without Spark whose schemas are in Azure's registry: runs, `check`, and what it is not for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

pytest.importorskip("azure.schemaregistry")

from leasehold.cli.app import app
from leasehold.errors import ConfigError
from leasehold.hubs.log import LogHub
from leasehold.pipeline_file import read_pipeline_file
from leasehold_testkit.emulators.azure_schemas import AzureSchemasServer
from tests.azure_registry import TOKEN, AzureRegistry, azure_registry, server_context
from tests.certificates import Authority
from tests.projected.azure_flights import NOBODYS, azure_events, send_azure, write_azure
from tests.projected.flights import AVRO, avro_bodies, contents
from tests.repository import ROOT
from tests.waiting import PATIENCE


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureRegistry]:
    with azure_registry(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def hub(tmp_path: Path) -> LogHub:
    return LogHub.create(tmp_path / "hub.db", partitions=2)


def test_bodies_are_read_by_the_schemas_that_their_content_types_name(
    tmp_path: Path, hub: LogHub, registry: AzureRegistry
) -> None:
    dice = Random(71)
    send_azure(hub, azure_events(registry, dice, avro_bodies(dice, 200)))
    file = write_azure(tmp_path, registry.url)
    said = CliRunner().invoke(app, ["run", str(file), "--no-spark", "--available-now", "--json"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["read"] == 200
    found = contents(tmp_path)
    assert len(found["rows"]) > 10
    reasons = {reason for _, _, reason, _ in found["rejected"]}
    for part in (f"its schema, {NOBODYS}, is not known", "it has no content-type", "its content-type is"):
        assert any(part in reason for reason in reasons), part
    assert sorted(set(registry.asked) - {NOBODYS}) == sorted(registry.server.ids)


@pytest.mark.more  # test_of_file waits for another registry so, and tests/formats says that this one is away
def test_a_registry_that_is_away_is_waited_for(tmp_path: Path, hub: LogHub, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, text = Random(71), json.dumps({**AVRO, "doc": "one"})
    with azure_registry(tmp_path, monkeypatch) as registry:
        sent = azure_events(registry, dice, avro_bodies(dice, 40))
        id = registry.server.ids[0]
        send_azure(hub, sent)
        port, file = registry.server.port, write_azure(tmp_path, registry.url)
        registry.server.close()
        process = subprocess.Popen(
            [sys.executable, "-m", "leasehold", "run", str(file), "--no-spark", "--available-now", "--json"],
            env=dict(os.environ, PYTHONPATH=str(ROOT / "src")),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            said = next(line for line in process.stderr if "does not answer" in line)
            assert f"azschemas://127.0.0.1:{port}?ca=***" in said
            again = AzureSchemasServer(server_context(Authority(tmp_path / "registry")), port, token=TOKEN)
            again.register("flights", "Flight", text, id=id)
            account, _ = process.communicate(timeout=PATIENCE)
            again.close()
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert json.loads(account)["read"] == 40
    assert contents(tmp_path)["rows"]


def test_check_asks_the_registry(tmp_path: Path, hub: LogHub, registry: AzureRegistry) -> None:
    file = write_azure(tmp_path, registry.url)
    for token, ready in ((TOKEN, True), ("of-somebody-else", False)):
        registry.identity.token = token
        said = CliRunner().invoke(app, ["check", str(file), "--no-spark", "--json"])
        (found,) = (one for one in json.loads(said.stdout)["checks"] if one["part"] == "registry")
        assert found["ok"] is ready, found
        assert ready or "Schema Registry Reader" in found["said"] + found["remedy"]
        assert token not in said.output


def test_a_handler_is_given_no_such_events(tmp_path: Path) -> None:
    handled = 'handler = "some_module:count"\nstate = "id STRING, n BIGINT"'
    file = write_azure(tmp_path, "azschemas://ns.servicebus.windows.net", delete_when=handled, keep="", sql="")
    with pytest.raises(ConfigError, match=r"transform.registry = 'azschemas://': its schemas are named by headers"):
        read_pipeline_file(file)
