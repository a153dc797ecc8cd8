"""`leasehold init`: what it makes, that it may be run again, and what it says."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.model import ConsumerGroup
from leasehold.stores import open_store


def init(url: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["init", url, "--json"])
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_made_then_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/folder/store.db"
    made = init(url)
    assert made["store"] == url
    assert [(one["component"], one["outcome"]) for one in made["components"]] == [
        ("stores", "made"),
        ("leases", "made"),
    ]
    again = init(url)
    assert {one["outcome"] for one in again["components"]} == {"was there"}
    assert [one["version"] for one in again["components"]] == [one["version"] for one in made["components"]]
    assert open_store(url).list_checkpoints(ConsumerGroup("n", "h")) == []


def test_a_file_of_an_older_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    init(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE leasehold_schema SET version = 1 WHERE component = 'stores'")
    result = CliRunner().invoke(app, ["init", f"sqlite:///{path}"])
    assert result.exit_code == 1
    assert "its tables for stores have format 1, and this release reads format 3 alone" in result.stderr


def test_a_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    init(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE leasehold_schema SET version = 99 WHERE component = 'leases'")
    result = CliRunner().invoke(app, ["init", f"sqlite:///{path}"])
    assert result.exit_code == 1
    assert "its tables for leases have format 99" in result.stderr
    assert "pip install --upgrade leasehold" in result.stderr


def test_for_people(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["init", f"sqlite:///{tmp_path}/store.db"])
    assert result.exit_code == 0
    assert f"sqlite:///{tmp_path}/store.db is ready" in result.stdout


def test_memory_is_never_ready() -> None:
    result = CliRunner().invoke(app, ["init", "memory://init"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "a store in memory lives in one process" in result.stderr


def test_a_url_that_is_none() -> None:
    result = CliRunner().invoke(app, ["init", "store.db"])
    assert result.exit_code == 1
    assert "begins with one of" in result.stderr


def test_a_log_is_made_and_grows(tmp_path: Path) -> None:
    url = f"log:///{tmp_path}/hub.db"
    runner = CliRunner()
    for words, made, count in (((), True, 4), ((), False, 4), (("--partitions", "6"), False, 6)):
        done = runner.invoke(app, ["init", url, *words, "--json"])
        assert done.exit_code == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["made"], said["partitions"]) == (made, count)
    refused = runner.invoke(app, ["init", url, "--partitions", "2"])
    assert refused.exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sqlite:///x.db", "--partitions", "3"], "--partitions = 3: is for kafka:// and log:// alone"),
        (["sqlite:///x.db", "--topic-config", "a=b"], "--topic-config: is for kafka:// alone"),
        (["log:///x.db", "--replication-factor", "3"], "--replication-factor: is for kafka:// alone"),
        (["kafka://127.0.0.1:1/t", "--topic-config", "retention"], "a setting of the topic is NAME=VALUE"),
        (["kafka://127.0.0.1:1/a,b"], "a hub is one topic"),
    ],
)
def test_options_of_hubs_are_refused_elsewhere(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["init", *words])
    assert result.exit_code == 1
    assert said in result.stderr
