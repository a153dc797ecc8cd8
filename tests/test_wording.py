"""The wording check finds each of its phrases, also across lines, and leaves plain sentences alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.wording import files, hits


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ('"""Read so many events."""', "so many"),
        ('"""Read at most so\n    many events."""', "so many"),
        ("x = 1  # a message comes so\n       # often", "so often"),
        ("# Who has not one, waits", "Who has not"),
        ('"""So that who is about the same rows waits."""', "who is about"),
        ('"""What others wrote never raises: what is none is dropped."""', "what is none"),
        ('"""Raises for options that are none."""', "that are none"),
        ('raise Wrong("a table is none, say")', "table is none"),
        ('"""Raises for what is no number."""', "what is no"),
        ('"""A connection of one\'s own."""', "one's own"),
    ],
)
def test_a_phrase_is_found(text: str, phrase: str) -> None:
    assert [found.strip() for _, found, _ in hits(text)] == [phrase]


@pytest.mark.parametrize(
    "text",
    [
        '"""Read this many events."""',
        '"""So many events that memory ends."""',
        '"""It raises so often that it is given up."""',
        "if x is None:",
        "assert found is None, 'nothing'",
        '"""The level, or 0 where there is none."""',
        '"""The level, or 0 where there\n    is none."""',
        '"""What is no longer held is given up."""',
        '"""A column that is none of these."""',
    ],
)
def test_a_plain_sentence_is_left_alone(text: str) -> None:
    assert list(hits(text)) == []


def test_lines_are_counted_from_one() -> None:
    assert [line for line, _, _ in hits("a\nso many\n\nso\nmany\n")] == [2, 4]


def test_it_reads_the_sources_and_not_itself() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in files()}
    assert {"src/leasehold/waiting.py", "tests/waiting.py", "bench/run.py"} <= names
    assert "testkit/src/leasehold_testkit/clock.py" in names
    assert not names & {"tests/wording.py", "tests/test_wording.py"}


def test_the_command_names_place_phrase_and_cure_and_fails(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('"""Read so many events."""\n')
    (tmp_path / "two.py").write_text('"""Read this many events."""\n')
    command = [sys.executable, "-m", "tests.wording", str(tmp_path / "two.py")]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).returncode == 0
    done = subprocess.run([*command, str(tmp_path / "one.py")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{tmp_path}/one.py:1: 'so many': say which number")
