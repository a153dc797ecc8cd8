"""What becomes of a test for which the machine lacks a real part that it should have."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def failed(reason: str) -> NoReturn:
    """Skip on a laptop, and fail in CI: there it would hide that something is no longer tested."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
