"""What the tests of handlers work on."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which handlers note their calls."""
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"
