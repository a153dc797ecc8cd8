"""Where the repository is: programs that tests start find the package `tests` there."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
