"""The notebook of the examples: it runs as it is, its loops may be run again, and it shows what a run gives."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.repository import ROOT
from tests.waiting import PATIENCE

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def shown(cell: Any) -> list[str]:
    """What a cell shows, but for what differs from run to run: a session's digits behind an owner's name."""
    texts = []
    for output in cell.get("outputs", ()):
        assert output.output_type != "error", output
        if output.get("name") == "stderr":
            continue  # what Java says, now and then
        data = output.get("data", {})
        texts.append(output.get("text") or data.get("text/html") or data.get("text/plain", ""))
    return [re.sub(r"/[0-9a-f]{12}\b", "", text) for text in texts]


@pytest.mark.more
def test_the_notebook_shows_what_it_does_and_its_loops_may_be_run_again(tmp_path: Path) -> None:
    committed = nbformat.read(NOTEBOOK, 4)  # type: ignore[no-untyped-call]
    run = copy.deepcopy(committed)
    first, second = (cell for cell in run.cells if "available_now=True, **settings" in cell.source)
    [begun] = (cell for cell in run.cells if "thread.start()" in cell.source)
    end = run.cells.pop()
    count = len(run.cells)
    run.cells += copy.deepcopy([first, *run.cells[run.cells.index(begun) :], second, end])
    NotebookClient(run, timeout=int(3 * PATIENCE), resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell, before in zip(run.cells[:count], committed.cells, strict=False):
        assert shown(cell) == shown(before), cell.source
    assert shown(run.cells[count]) == ["0 events applied\n", "{'s0': 195, 's1': 196, 's2': 197, 's3': 198, 's4': 199}"]
    assert shown(run.cells[-2])[-1] == "{'s0': 115, 's1': 116, 's2': 117, 's3': 118, 's4': 119}"
