"""The tutorial as it is written: its blocks run in one shell, and print what the page shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.tutorial import LAST_QUICK, blocks, run


def test_the_page_has_blocks_in_each_section() -> None:
    assert sorted({block.section for block in blocks()}) == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.more
def test_a_file_becomes_a_table(tmp_path: Path) -> None:
    run([block for block in blocks() if block.section <= LAST_QUICK], tmp_path, Path(sys.executable).parent)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_applications_share_the_events_and_one_is_killed(tmp_path: Path) -> None:
    run(blocks(), tmp_path, Path(sys.executable).parent)
