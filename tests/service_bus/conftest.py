"""The sockets that the official client leaves behind are let go where a warning of them is expected."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect before the test's filters of warnings end."""
    yield
    gc.collect()
