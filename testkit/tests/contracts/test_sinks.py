"""The suites of sinks find methods that are missing, and skip what a sink does not say that it has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.repository import ROOT
from tests.sinks.plain import PlainSink

from leasehold.sinks import TableSpec
from leasehold.sinks.features import BOOKKEEPING, STATES
from leasehold_testkit.contracts.sinks.fixtures import asked
from leasehold_testkit.contracts.sinks.methods import wrong_with


def test_a_missing_method_and_one_with_other_arguments_are_found() -> None:
    class Half:
        def skip_notes(self, twice: bool) -> None: ...

        def noted(self, hub: str, more: int = 0) -> None: ...

        def clear(self, retention: object) -> None: ...

    found = [*wrong_with(Half(), BOOKKEEPING.protocol)]
    assert [what.partition(" cannot")[0] for what in found] == [
        "Half lacks KeepsNotes.note_skip",
        "Half.skip_notes",
        "Half lacks KeepsNotes.forget_entity",
        "Half.clear",
    ]


def test_a_suite_is_skipped_by_the_name_of_what_is_not_said(tmp_path: Path) -> None:
    lacking = PlainSink(tmp_path / "t.db", TableSpec(name="orders", pipeline="p", keys=("id",)))
    with pytest.raises(pytest.skip.Exception, match="PlainSink does not have the feature STATES"):
        asked(lacking, STATES)


SUITES = """
import pytest
from leasehold.sinks.features import STATES
from leasehold_testkit.contracts.sinks import ParkingContract, SinkContract
from tests.sinks.plain import PlainSink

class Boasting(PlainSink):
    features = frozenset({STATES})

class TestNothingSaid(ParkingContract):
    @pytest.fixture
    def open_table(self, tmp_path):
        return lambda spec: PlainSink(tmp_path / "t.db", spec)

class TestTooMuchSaid(SinkContract):
    @pytest.fixture
    def open_table(self, tmp_path):
        return lambda spec: Boasting(tmp_path / "t.db", spec)
"""


def test_a_suite_skips_what_is_not_said_and_fails_what_is_said_and_not_there(tmp_path: Path) -> None:
    (tmp_path / "test_suites.py").write_text(SUITES)
    run = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-k", "NothingSaid or all_methods"]
    ran = subprocess.run([*run, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "PlainSink does not have the feature STATES" in ran.stdout
    assert "Boasting lacks KeepsStates.check_parked" in ran.stdout
    assert re.search(r"^1 failed, \d+ skipped", ran.stdout, re.MULTILINE), ran.stdout
