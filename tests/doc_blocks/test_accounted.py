"""No fence of a page is forgotten: each runs, or is read by what it is for, or stands in a list with its reason."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from leasehold.pipeline_file import read_pipeline_file
from tests import tutorial
from tests.doc_blocks import test_commands, test_programs
from tests.doc_blocks.accounts import ELSEWHERE, RUN_BY
from tests.doc_blocks.fences import Block, block, blocks
from tests.doc_blocks.programs import PROGRAMS

NAMED = Counter([*((each.page, each.has) for each in PROGRAMS), *RUN_BY, *ELSEWHERE])


@pytest.mark.parametrize("block", list(blocks("toml")), ids=str)
def test_every_pipeline_file_is_taken(block: Block, tmp_path: Path) -> None:
    """One that is shown in part is TOML at least."""
    if {"name", "source", "ownership", "transform", "sink"} <= tomllib.loads(block.text).keys():
        file = tmp_path / "pipeline.toml"
        file.write_text(block.text, encoding="utf-8")
        read_pipeline_file(file)


def test_every_fence_is_accounted_for_once() -> None:
    """Those of the tutorial run one after the other (`test_tutorial.py`)."""
    found = Counter(block(page, has) for page, has in NAMED)
    assert [str(each) for each, times in found.items() if times > 1] == []
    behind = {block(each.page, has) for each in PROGRAMS for has in each.behind}
    left = [
        each
        for each in blocks()
        if each not in {*found, *behind} and each.language != "toml" and each.page != tutorial.PAGE
    ]
    assert [str(each) for each in left] == [], "put each into tests/doc_blocks/programs.py or accounts.py"
    assert max(NAMED.values()) == 1
    assert {*RUN_BY.values()} <= {*dir(test_commands), *dir(test_programs)}
