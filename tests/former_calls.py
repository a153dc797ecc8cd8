"""Calls with keywords that constructors had before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def formerly(make: Callable[..., Any], *arguments: Any, **former: Any) -> tuple[Any, list[str]]:
    """What a call makes, and the warnings that it gives for this line."""
    with pytest.warns(DeprecationWarning, match=" is .* now$") as said:
        made = make(*arguments, **former)
    assert {each.filename for each in said} == {__file__}
    return made, [str(each.message) for each in said]
