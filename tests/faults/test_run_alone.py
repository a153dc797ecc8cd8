"""`leasehold run`, `status` and `reset` of pipelines that have one store alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasehold.stores.sqlite.store import SqliteStore
from tests.faults.hub_kinds import Log
from tests.faults.place import Place

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    kind = Log(tmp_path, 2)
    yield Place(tmp_path, kind)
    kind.close()


def use(place: Place, more: str) -> None:
    """Add a line to the file's section about stores."""
    text = (place.folder / "p.toml").read_text()
    (place.folder / "p.toml").write_text(text.replace('store = "sqlite:///stores.db"', f"{more}", 1))


def rows(place: Place, column: str) -> list[Any]:
    done = place.command("status", "p.toml", "--json")
    assert done.returncode == 0, done.stderr
    return [row[column] for row in json.loads(done.stdout)["partitions"]]


@pytest.mark.soak
def test_a_pipeline_without_checkpoints_goes_on_behind_what_its_table_holds(place: Place) -> None:
    use(place, 'ownership_store = "sqlite:///stores.db"\ncheckpoint_store = "none"')
    place.send("0", *(f'{{"id":"a{n}","n":{n}}}' for n in range(6)))
    place.send("1", '{"id":"b","n":1}')
    assert place.run()["applied"] == 7
    assert rows(place, "checkpoint") == [6, 1]
    assert rows(place, "lag") == [0, 0]
    place.send("1", '{"id":"b","n":2}')
    again = place.run()
    assert (again["applied"], again["replayed"]) == (1, 0), "nothing is read twice"
    store = SqliteStore(place.folder / "stores.db")
    group = place.kind.hub.consumer_group("$Default")
    assert store.list_checkpoints(group) == []
    assert store.list_ownership(group).records
    assert "keeps no checkpoints" in place.refused("checkpoints", "export", "p.toml")
    assert place.command("reset", "p.toml", "--to", "earliest").returncode == 0
    assert place.run()["applied"] == 8
    assert place.query("SELECT n FROM entities WHERE id = 'b'") == [(2,)]


@pytest.mark.soak
def test_a_pipeline_with_a_fixed_share(place: Place) -> None:
    use(place, 'store = "sqlite:///stores.db"\npartitions = ["1"]')
    place.send("0", '{"id":"a","n":1}')
    place.send("1", '{"id":"b","n":1}')
    assert place.run()["applied"] == 1
    assert place.query("SELECT id FROM entities") == [("b",)]
    assert rows(place, "partition") == ["1"]
    assert rows(place, "lag") == [0]
    assert place.command("reset", "p.toml", "--to", "earliest").returncode == 0
    again = place.run()
    assert (again["applied"], again["replayed"]) == (1, 0)
    group = place.kind.hub.consumer_group("$Default")
    assert {one.partition for one in SqliteStore(place.folder / "stores.db").list_checkpoints(group)} == {"1"}
