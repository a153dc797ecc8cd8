"""The tutorials as they are written: their blocks run in one shell, and print what the page shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.tutorial import KILLING, PAGES, SERVERS, blocks, run

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@each_page
def test_the_page_has_blocks_in_each_section(page: Path) -> None:
    sections = [2, 3, 4, 5, 6, 7, 8, 9, 10] if page == SERVERS else [2, 3, 4, 5, 6, 7, 8]
    assert sorted({block.section for block in blocks(page)}) == sections


@pytest.mark.more
@each_page
def test_the_first_events_become_a_table(page: Path, tmp_path: Path) -> None:
    """Of servers also those in Avro, and the last section ends all."""
    chosen = [block for block in blocks(page) if block.section not in KILLING]
    run(chosen, tmp_path, Path(sys.executable).parent)


@pytest.mark.soak
@pytest.mark.timeout(900)
@each_page
def test_two_applications_share_the_events_and_one_is_killed(page: Path, tmp_path: Path) -> None:
    run(blocks(page), tmp_path, Path(sys.executable).parent)
