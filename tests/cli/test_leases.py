"""`leasehold leases`: what is listed, what is broken, and what is refused."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from leasehold.cli.app import app
from leasehold.leases import EntityLeases
from tests.waiting import NEVER, PATIENCE, until


def leases(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["leases", *arguments])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def test_what_is_held_is_listed_with_who_waits(url: str) -> None:
    billing = EntityLeases(url, scope="billing", holder="billing-1", duration=NEVER)
    other = EntityLeases(url, scope="billing", holder="billing-2", duration=NEVER)

    def wait() -> None:
        with other.hold("order-42", NEVER):
            pass

    def listed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(leases("list", url, "--scope", "billing", "--json").stdout)["leases"]
        return found

    waiting = threading.Thread(target=wait)
    with billing.hold("order-42") as lease, EntityLeases(url, scope="s", holder="x", duration=NEVER).hold("k"):
        waiting.start()
        until(lambda: len(listed()) == 2, "the one that waits")
        rows = listed()
        held, waits = sorted(rows, key=lambda row: str(row["waits"]))
        assert (held["key"], held["holder"], held["fence"]) == ("order-42", "billing-1", lease.fence)
        assert 0 < held["remaining"] <= NEVER
        assert (waits["key"], waits["waits"]) == ("order-42", "billing-2")
        assert len(json.loads(leases("list", url, "--json").stdout)["leases"]) == 3
        assert "only the first 1" in leases("list", url, "--most", "1").output
    waiting.join()
    shown = leases("list", url)
    assert (shown.exit_code, "0 leases held" in shown.output) == (0, True)
    billing.close()
    other.close()


@pytest.mark.parametrize(
    ("rest", "shown"),
    [("x" * 900, r"blue\x1b[2J\n1 lease held"), ("x" * 1_000_000, "(unreadable)")],
    ids=["a name that a holder can have", "one that none can have"],
)
def test_what_others_wrote_into_a_lease_is_one_short_line(url: str, tmp_path: Path, rest: str, shown: str) -> None:
    mine = EntityLeases(url, scope="billing", holder="billing-1", duration=NEVER)
    hostile = f"blue\x1b[2J\n1 lease held{rest}"
    with mine.hold("order-42"):
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%owner%'")]
            for table in tables:
                connection.execute(f"UPDATE {table} SET owner = ? WHERE owner LIKE 'billing-1%'", (hostile,))
        header, row, summary = leases("list", url).stdout.splitlines()
        assert header.startswith("Scope")
        assert shown in row
        assert len(row) < 3_000
        assert summary == "1 lease held"
        [listed] = json.loads(leases("list", url, "--json").stdout)["leases"]
        assert listed["holder"] == (shown if shown == "(unreadable)" else hostile), "programs get a name whole"


def test_a_broken_lease_is_free_and_its_holder_finds_out(url: str) -> None:
    mine = EntityLeases(url, scope="billing", holder="billing-1", duration=12.0)
    with mine.hold("order-42") as lease:
        said = leases("break", url, "--scope", "billing", "order-42", "order-43")
        assert said.exit_code == 0
        assert "1 lease broken; nobody held 'order-43'" in said.output
        with EntityLeases(url, scope="billing").hold("order-42") as taken:
            assert taken.fence > lease.fence
            assert lease.lost.wait(PATIENCE)
        assert "broke" in lease.lost.reason
    mine.close()


def test_looking_makes_nothing(tmp_path: Path, url: str) -> None:
    said = leases("list", url)
    assert said.exit_code == 1
    assert "there are no leases at" in said.stderr
    assert list(tmp_path.iterdir()) == []
    assert leases("list", "memory://here").exit_code == 1
