"""The programs of the pages run as they are written, and do what they show: `programs.py` says what each needs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.doc_blocks.fences import block
from tests.doc_blocks.programs import PROGRAMS, Program
from tests.doc_blocks.scene import Scene, checking


def _parameters() -> list[object]:
    return [
        pytest.param(each, each.needs, id=str(each), marks=[pytest.mark.soak] if each.soak else []) for each in PROGRAMS
    ]


@pytest.mark.more
@pytest.mark.parametrize(("program", "servers"), _parameters(), indirect=["servers"])
def test_a_program_runs_as_it_is_written(program: Program, servers: Scene) -> None:
    program.prepare(servers)
    ends = program.ends
    servers.program(program.text(), None if ends is None else lambda: ends(servers))


def test_a_value_that_a_page_shows_is_held_against_the_expression() -> None:
    exec(checking("1 + 1  # 2\nmax(\n    1,\n    2,\n)  # 2\nstr(3)  # as text"))  # noqa: S102
    with pytest.raises(AssertionError, match="the page says 3"):
        exec(checking("1 + 1  # 3"))  # noqa: S102


def test_the_files_of_a_second_sink_are_read_by_their_names(scene: Scene) -> None:
    """Of a piece that two processes have written, the file that comes last by its name counts."""
    (scene.folder / "files").mkdir()
    for name, delays in (("one.11", [1.0]), ("one.12", [1.0, 2.0]), ("two.11", [3.0])):
        pq.write_table(pa.table({"delay": delays}), scene.folder / "files" / f"{name}.parquet")
    text = block("extending.md", "newest = {file.name").text
    scene.program(
        f"from pathlib import Path\nimport pyarrow.parquet as pq\n{text}\nprint(sorted(flights['delay'].to_pylist()))"
    )
    assert scene.printed.strip() == "[1.0, 2.0, 3.0]"
