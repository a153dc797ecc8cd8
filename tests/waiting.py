"""How tests wait: for a condition, with a patience that no machine misses; and what lasts while nothing may expire.

Owns every pause of the tests; `tests/test_how_tests_wait.py` finds others. A bound is for a hang, and no test passes or
fails by how long something took. What has to measure time is marked `timing` and runs alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NoReturn

PATIENCE = float(os.environ.get("LEASEHOLD_TEST_PATIENCE", "120"))
"""Seconds after which what a test waits for counts as not coming. A correct run never waits so long."""
NEVER = 600.0
"""Seconds for what may not expire while a test runs: a lease, a partition's expiration, a lock, a time-out."""


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE, pause: float = 0.02) -> None:
    """Wait until a condition is true that other threads or processes work on; fail with its name."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience:g} s for {what}"
        time.sleep(pause)


def take(seconds: float) -> None:
    """Take a while, as a slow handler, a paced producer or a long batch does. Nothing may depend on how long it is."""
    time.sleep(seconds)


def hang() -> NoReturn:
    """Never come back, as what has to be killed."""
    while True:
        time.sleep(NEVER)
