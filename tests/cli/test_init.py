"""`leasehold init`: what it makes, that it may be run again, and what it says."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

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


def test_an_older_file_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    init(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DROP TABLE leasehold_ask")
        file.execute("ALTER TABLE leasehold_checkpoint DROP COLUMN data")
        file.execute("DROP TABLE leasehold_presence")
        for column in ("nonce", "successor", "claimed_at", "failures", "last_error"):
            file.execute(f"ALTER TABLE leasehold_ownership DROP COLUMN {column}")
        file.execute("DROP TABLE leasehold_schema")
        for table in ("session", "lease", "fence"):
            file.execute(f"DROP TABLE leasehold_{table}")
    done = {one["component"]: one["outcome"] for one in init(f"sqlite:///{path}")["components"]}
    assert done == {"stores": "brought up from version 1", "leases": "made"}


def test_a_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    init(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE leasehold_schema SET version = 99 WHERE component = 'leases'")
    result = CliRunner().invoke(app, ["init", f"sqlite:///{path}"])
    assert result.exit_code == 1
    assert "its tables for leases have version 99" in result.stderr
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
