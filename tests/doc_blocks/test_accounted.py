"""No fence of a page is forgotten: each runs, or is read by what it is for, or stands in a list with its reason."""

from __future__ import annotations

import inspect
import re
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
from tests.doc_blocks.scene import PIPELINE
from tests.repository import ROOT

NAMED = Counter([*((each.page, each.has) for each in PROGRAMS), *RUN_BY, *ELSEWHERE])


PIPELINES = [each for each in blocks("toml") if each not in {block(page, has) for page, has in ELSEWHERE}]


@pytest.mark.parametrize("block", PIPELINES, ids=str)
def test_every_pipeline_file_is_taken(block: Block, tmp_path: Path) -> None:
    """One that is shown in part gets the sections that it lacks."""
    stated = tomllib.loads(block.text)
    head, *sections = re.split(r"^(?=\[)", PIPELINE.format(name="flights"), flags=re.MULTILINE)
    lacking = [each for each in sections if each[1 : each.index("]")] not in stated]
    file = tmp_path / "pipeline.toml"
    file.write_text("".join(["" if "name" in stated else head, block.text, *lacking]), encoding="utf-8")
    read_pipeline_file(file)


@pytest.mark.more
def test_every_fence_is_accounted_for_once() -> None:
    """Those of the tutorials by a test of their own, below."""
    found = Counter(block(page, has) for page, has in NAMED)
    assert [str(each) for each, times in found.items() if times > 1] == []
    behind = {block(each.page, has) for each in PROGRAMS for has in each.behind}
    left = [
        each
        for each in blocks()
        if each not in {*found, *behind} and each.language != "toml" and each.page not in tutorial.PAGES
    ]
    assert [str(each) for each in left] == [], "put each into tests/doc_blocks/programs.py or accounts.py"
    assert max(NAMED.values()) == 1


@pytest.mark.parametrize("page", tutorial.PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_runs_but_its_installation(page: Path) -> None:
    """In its own tests, one after the other, with the outputs that the page shows below them."""
    run = {each.commands.strip() for each in tutorial.blocks(page)}
    shown = {line for each in tutorial.blocks(page) for line in each.shown}
    fences = [each for each in blocks() if each.page == page]
    [installation] = [each for each in fences if each.language == "sh" and each.text.strip() not in run]
    assert "pip install" in installation.text
    outputs = [line for each in fences if each.language == "text" for line in each.text.splitlines() if line != "…"]
    assert [line for line in outputs if line not in shown] == []
    assert {each.language for each in fences} == {"sh", "text"}


def test_a_test_that_runs_a_block_names_it() -> None:
    tests = {**vars(test_commands), **vars(test_programs)}
    assert [name for (_, has), name in RUN_BY.items() if has not in inspect.getsource(tests[name])] == []


def test_what_a_reason_points_at_is_there() -> None:
    paths = re.findall(r"(?:testkit/)?tests/[\w/]+\.py", " ".join(ELSEWHERE.values()))
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / path).is_file()] == []
