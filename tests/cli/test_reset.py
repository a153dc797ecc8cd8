"""`leasehold reset`: what a place may be. What it does is tested where it is run (`tests/faults`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.app import app
from tests.cli.set_aside import PIPELINE


@pytest.mark.parametrize("to", ["erliest", "committed", '{"0": "committed"}', '{"0": 1, "*": "sink"}'])
def test_a_place_that_is_none_is_answered_with_those_there_are(tmp_path: Path, to: str) -> None:
    (tmp_path / "flights.toml").write_text(PIPELINE)
    said = CliRunner().invoke(app, ["reset", str(tmp_path / "flights.toml"), "--to", to])
    assert said.exit_code == 1
    assert "a position is earliest, latest, a sequence number or an ISO 8601 timestamp" in said.stderr
    assert "Or sink, alone" in said.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["flights.toml"]
