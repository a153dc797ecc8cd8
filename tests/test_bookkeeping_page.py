"""docs/bookkeeping.md has a row for each table that Leasehold makes, with the rights of the one list."""

from __future__ import annotations

import re

from leasehold.operations.rights import ALL, DatabaseState, TableUse, Use, needed, tables_of
from leasehold.sinks import TableSpec
from tests.repository import ROOT

SPEC = TableSpec(name="t", pipeline="p", keys=("k",))
USE = Use(stores=True, leases=True, table=TableUse(SPEC, deletes=True, deduplicated=True))


def test_each_table_has_a_row_with_its_rights() -> None:
    page = (ROOT / "docs" / "bookkeeping.md").read_text(encoding="utf-8").partition("## The tables")[2]
    rows = [
        [cell.strip() for cell in line.strip("| \n").split(" | ")] for line in page.splitlines() if line[:3] == "| `"
    ]
    shown = {re.sub("`|<table>", lambda mark: "" if mark[0] == "`" else "t", row[0]): row for row in rows}
    assert shown.keys() == set(tables_of(USE))
    for name, row in shown.items():
        assert len(row) == 5
        rights = [one.right for one in needed(USE, DatabaseState("d", "s")) if one.thing.name == name]
        assert row[3] == ("all four" if tuple(rights) == ALL else ", ".join(rights)), name
